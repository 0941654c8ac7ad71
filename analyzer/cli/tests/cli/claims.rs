// SPDX-License-Identifier: Apache-2.0
//! `recover --all`: one that fails does not keep the others, and two at once report each recording
//! once.

use std::fs;
use std::process::Stdio;

use crate::place::{code, err, out, recording, Place};

/// A recording whose header can be read and nothing else.
fn broken() -> Vec<u8> {
    let mut bytes = recording(|_| {});
    for segment in bytes[4096..].chunks_mut(32 * 1024) {
        segment[..4].copy_from_slice(b"JUNK");
    }
    bytes
}

#[test]
fn all_goes_on_after_a_failure_and_says_so_in_the_end() {
    let place = Place::new("all");
    let good = ["a.gpr", "c.gpr", "e.gpr"];
    for name in good {
        fs::write(place.private().join(name), recording(|b| b.header.command = name.into())).unwrap();
    }
    fs::write(place.private().join("b.gpr"), broken()).unwrap();
    fs::write(place.private().join("d.gpr"), "no recording at all").unwrap();
    let output = place.run(&["recover", "--all"]);
    assert_eq!(code(&output), 7, "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 3, "{}", out(&output));
    let said = err(&output);
    for name in ["b.gpr", "d.gpr"] {
        let path = place.private().join(name);
        assert_eq!(said.matches(&format!("gapprobe: {}: ", path.display())).count(), 1, "{said}");
        assert!(path.exists(), "left as it is");
    }
    assert!(said.contains("gapprobe: 2 of 5 recordings could not be reported"), "{said}");
    assert!(good.iter().all(|name| !place.private().join(name).exists()));
    assert_eq!(place.results().iter().filter(|n| n.ends_with(".json.gz")).count(), 3);
    // the same where nothing is left but what fails
    assert_eq!(code(&place.run(&["recover", "--all"])), 7);
    // who asks for the newest alone gets it, and is told of the others
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(place.private().join("f.gpr"), recording(|_| {})).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!((code(&output), out(&output).lines().count()), (0, 1), "{}", err(&output));
    assert!(err(&output).contains("b.gpr") && err(&output).contains("d.gpr: "), "{}", err(&output));
}

#[test]
fn two_at_once_report_each_recording_once() {
    let place = Place::new("race");
    const RECORDINGS: usize = 12;
    for i in 0..RECORDINGS {
        let bytes = recording(|b| b.header.pid = i32::MAX as u32 - i as u32);
        fs::write(place.private().join(format!("{i:02}.gpr")), bytes).unwrap();
    }
    let start = || {
        let mut command = place.gapprobe(&["recover", "--all"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> =
        [start(), start(), start()].into_iter().map(|c| c.wait_with_output().unwrap()).collect();
    let lines: usize = all.iter().map(|o| out(o).lines().count()).sum();
    let told: Vec<String> = all.iter().map(err).collect();
    assert_eq!(lines, RECORDINGS, "{told:?}");
    let results = place.results();
    for i in 0..RECORDINGS {
        let pid = i32::MAX as usize - i;
        let own = results.iter().filter(|n| n.contains(&format!("-{pid}-"))).count();
        assert_eq!(own, 2, "trace and summary of {pid}: {results:?}");
    }
    assert_eq!(results.len(), 2 * RECORDINGS, "nothing half");
    assert_eq!(fs::read_dir(place.private()).unwrap().count(), 0);
    for output in &all {
        // 3: the others were quicker with all of them
        assert!([0, 3].contains(&code(output)), "{}", err(output));
    }
}

#[test]
fn a_recording_that_another_process_reports_is_left_to_it() {
    let place = Place::new("claimed");
    let path = place.private().join("run.gpr");
    fs::write(&path, recording(|_| {})).unwrap();
    // flock(1) holds it as another gapprobe would
    let script = "exec 9<\"$1\"; flock -x 9; echo held; read wait";
    let mut holder = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).expect("flock(1) of util-linux");
    for args in [&["recover"][..], &["recover", "--all"], &["recover", path.to_str().unwrap()]] {
        let output = place.run(args);
        assert_eq!((code(&output), out(&output).as_str()), (3, ""), "{args:?}: {}", err(&output));
        assert!(err(&output).contains("run.gpr: reported by another gapprobe"), "{}", err(&output));
    }
    assert!(path.exists() && place.results().is_empty());
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(code(&place.run(&["recover"])), 0, "it ended without reporting");
    assert!(!path.exists());
}
