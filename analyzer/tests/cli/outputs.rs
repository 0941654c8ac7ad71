// SPDX-License-Identifier: Apache-2.0
//! What is never lost or waited for: devices, links and the trace itself as outputs; pipes and growing ids as inputs.

use std::fs;
use std::os::unix::fs::{symlink, FileTypeExt};
use std::path::Path;
use std::process::Command;

use crate::place::{code, err, Place};

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

/// Devices and threads without end: what is beyond the bound is refused and counted, and so there is no verdict.
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
