// SPDX-License-Identifier: Apache-2.0
//! `recover` of what is no regular file: a clear error at once. A pipe nobody writes to must not
//! hold it up.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::place::{code, err, out, recording, Place};

/// Runs `recover` with these arguments; fails the test where it does not end by itself.
fn ends(place: &Place, args: &[&str]) -> Output {
    let mut child = place
        .gapprobe(&[&["recover"], args].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("recover {args:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn what_is_no_regular_file_is_named_at_once() {
    let place = Place::new("special");
    let at = |name: &str| place.0.join(name);
    assert!(Command::new("mkfifo").arg(at("pipe.gpr")).status().unwrap().success());
    symlink(at("pipe.gpr"), at("link.gpr")).unwrap();
    let _socket = UnixListener::bind(at("socket.gpr")).unwrap();
    symlink(at("nowhere"), at("dangling.gpr")).unwrap();
    fs::write(at("empty.gpr"), "").unwrap();
    for (path, expected) in [
        (at("pipe.gpr"), "a pipe; a recording is a regular file"),
        (at("link.gpr"), "a pipe; a recording is a regular file"),
        (at("socket.gpr"), "a socket; a recording is a regular file"),
        ("/dev/zero".into(), "a device; a recording is a regular file"),
        ("/dev/tty".into(), "a device; a recording is a regular file"),
        (at("dangling.gpr"), "no such file"),
        (at("empty.gpr"), "too short for a recording (0 bytes"),
        // a file of no length that gives bytes all the same
        ("/proc/self/cmdline".into(), "too short for a recording"),
    ] {
        let path = path.to_str().unwrap();
        for args in [&[path][..], &["--list", path], &["--all", path]] {
            let output = ends(&place, args);
            assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{args:?}: {}", err(&output));
            let said = err(&output);
            assert!(said.starts_with(&format!("gapprobe: {path}: {expected}")), "{said}");
            assert!(said.contains("\nhint: "), "{said}");
        }
    }
}

#[test]
fn in_a_folder_they_are_passed_over() {
    let place = Place::new("special-folder");
    assert!(Command::new("mkfifo").arg(place.private().join("pipe.gpr")).status().unwrap().success());
    fs::create_dir(place.private().join("folder.gpr")).unwrap();
    fs::write(place.private().join("run.gpr"), recording(|_| {})).unwrap();
    let output = ends(&place, &["--all"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(out(&output).lines().count(), 1);
    // a folder given by name is a folder of recordings
    let folder = place.private().join("folder.gpr");
    let output = ends(&place, &[folder.to_str().unwrap()]);
    assert_eq!(code(&output), 3);
    assert!(err(&output).contains(&format!("no recording of an ended process in {}", folder.display())));
}

#[test]
fn a_recording_that_is_cut_while_it_is_read_is_named_and_stays() {
    let place = Place::new("shrinks");
    // long enough to be caught in the middle: the trace of 120,000 events takes a while to write
    let bytes = recording(|b| {
        for i in 0..120_000u64 {
            let begin = 2_000_000_000 + i * 2_000;
            b.on_stream(0, 1, 7, trace::Event::new(trace::Kind::Memset, begin, begin + 1_000));
        }
    });
    let path = place.0.join("run.gpr");
    fs::write(&path, &bytes).unwrap();
    let child = place
        .gapprobe(&["recover", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !place.results().iter().any(|n| n.ends_with(".part")) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::File::options().write(true).open(&path).unwrap().set_len(40_000).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{}", err(&output));
    let expected = format!(
        "gapprobe: {}: shrank while it was read, from {} bytes to 40000",
        path.display(),
        bytes.len()
    );
    assert!(err(&output).contains(&expected) && err(&output).contains("\nhint: "), "{}", err(&output));
    assert!(path.exists());
}
