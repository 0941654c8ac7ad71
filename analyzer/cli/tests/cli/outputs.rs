// SPDX-License-Identifier: Apache-2.0
//! What is never lost or waited for: devices, links and the trace itself as outputs; pipes and
//! growing ids as inputs.

use std::fs;
use std::os::unix::fs::{symlink, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::place::{code, err, Place, BINARY};

fn trace() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/h200_graphs.json.gz").display().to_string()
}

#[test]
fn only_regular_files_are_replaced_and_never_the_input() {
    let place = Place::new("outputs");
    let at = |name: &str| place.out().join(name).display().to_string();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    fs::write(at("kept"), "kept").unwrap();
    symlink(at("kept"), at("link")).unwrap();
    fs::copy(trace(), at("own.json.gz")).unwrap();
    for verb in ["export", "report"] {
        for output in ["pipe", "link", "own.json.gz"] {
            let done = place.run(&[verb, &at("own.json.gz"), "-o", &at(output), "--force"]);
            assert_eq!(code(&done), 2, "{verb} {output}: {}", err(&done));
            assert!(err(&done).contains("hint: "), "{}", err(&done));
        }
    }
    // the second input too
    let both = place.run(&["report", &trace(), &at("own.json.gz"), "-o", &at("own.json.gz"), "--force"]);
    assert_eq!(code(&both), 2);
    assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(at("kept")).unwrap(), "kept");
    assert_eq!(fs::read(at("own.json.gz")).unwrap(), fs::read(trace()).unwrap());
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let place = Place::new("outputs-pipe");
    let pipe = place.out().join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for verb in ["analyze", "stats", "gaps", "steps", "report", "export"] {
        let done = place.run(&[verb, &pipe]);
        assert_eq!(code(&done), 4, "{verb}");
        assert!(err(&done).contains("not a regular file"), "{verb}: {}", err(&done));
    }
}

/// Devices and threads without end: what is beyond the bound is refused and counted, and so there
/// is no verdict.
#[test]
fn tracks_without_end_are_bounded_and_said() {
    let place = Place::new("outputs-tracks");
    let mut text = String::from("[");
    for n in 0..30_000 {
        text += &format!(
            r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{n},"dur":1,"args":{{"device":{n},"stream":7,"correlation":{n}}}}},
               {{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":{n},"ts":{n},"dur":1,"args":{{"correlation":{n}}}}},"#
        );
    }
    text.pop();
    fs::write(place.out().join("tracks.json"), text + "]").unwrap();
    let done = place.run(&["analyze", "--line", "--strict", "tracks.json"]);
    assert_eq!(code(&done), 5, "{}", err(&done));
    assert!(err(&done).contains("than can be told apart"), "what was refused is said: {}", err(&done));
}

/// Command lines, paths and lines of code stand in them, as in the trace: nobody else reads them,
/// until the user says so.
#[test]
fn what_is_made_is_the_users_alone_and_what_is_replaced_keeps_its_mode() {
    let place = Place::new("outputs-modes");
    let at = |name: &str| place.out().join(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
    let made = [
        ("report", "page.html"),
        ("export", "new.csv"),
        ("export", "new.folded"),
        ("export", "new.parquet"),
        ("export", "new.json.gz"),
    ];
    for (verb, file) in made {
        for force in ["", " --force"] {
            let script = format!("umask 0; exec {BINARY} {verb} {} -o {file}{force}", trace());
            let mut shell = Command::new("sh");
            place.surround(shell.args(["-c", &script]));
            let done = shell.output().unwrap();
            assert_eq!((code(&done), mode(file)), (0, 0o600), "{verb} {file}{force}: {}", err(&done));
            if force.is_empty() {
                continue;
            }
            fs::set_permissions(at(file), fs::Permissions::from_mode(0o640)).unwrap();
            assert_eq!(code(&shell.output().unwrap()), 0);
            assert_eq!(mode(file), 0o640, "{verb} {file}: as it was");
        }
    }
}
