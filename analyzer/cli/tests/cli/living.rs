// SPDX-License-Identifier: Apache-2.0
//! Recordings of processes that still run.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::place::{code, err, out, recording, Place};

#[test]
fn recover_of_a_living_process_only_when_told_and_never_removes() {
    let place = Place::new("living");
    let file = place.private().join("run.gpr");
    let grows = |b: &mut trace::build::Builder| {
        (b.header.pid, b.header.state) = (std::process::id(), trace::header::state::RECORDING);
    };
    fs::write(&file, recording(grows)).unwrap();
    let path = file.to_str().unwrap();
    let output = place.run(&["recover", path]);
    assert_eq!((code(&output), out(&output).as_str()), (6, ""));
    assert!(
        err(&output).contains(&format!("hint: what it has recorded so far: gapprobe recover --live {path}"))
    );
    assert_eq!(code(&place.run(&["recover"])), 3);
    let output = place.run(&["recover", "--live", path]);
    assert_eq!(code(&output), 0);
    assert!(!out(&output).contains("killed"), "{}", out(&output));
    assert!(file.exists());
    let trace = place.results().into_iter().find(|n| n.ends_with(".json.gz")).unwrap();
    let line = out(&place.run(&["analyze", "--line", &trace]));
    assert!(!line.contains("killed"), "nor when the trace is read again: {line}");
}

#[test]
fn a_recording_that_is_read_while_its_program_runs_is_not_of_one_that_ended() {
    let place = Place::new("still-running");
    let file = place.private().join("run.gpr");
    let path = file.to_str().unwrap();
    let of = |pid: u32| {
        let shape = |b: &mut trace::build::Builder| {
            (b.header.pid, b.header.state) = (pid, trace::header::state::RECORDING);
        };
        fs::write(&file, recording(shape)).unwrap();
        place.run(&["analyze", "--line", path])
    };
    let own = std::process::id();
    let output = of(own);
    let said = format!("run.gpr: process {own} still runs: this is what it has recorded so far");
    assert!(err(&output).contains(&said), "{}", err(&output));
    assert!(!out(&output).contains("exit handlers"), "{}", out(&output));
    let output = of(i32::MAX as u32);
    assert!(!err(&output).contains("still runs"), "{}", err(&output));
    assert!(out(&output).contains("ended without exit handlers"), "{}", out(&output));
}

#[test]
fn recover_of_a_recording_that_grows_meanwhile_is_of_what_was_there_and_takes_nothing_away() {
    let place = Place::new("growing");
    let file = place.private().join("run.gpr");
    let whole = recording(|b| b.header.pid = std::process::id());
    fs::write(&file, &whole).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // as the library does: a segment is taken back (odd generation), written, given again, all
        // the time
        scope.spawn(|| {
            let out = fs::File::options().write(true).open(&file).unwrap();
            let last = 4096 + (whole.len() - 4096) / 32_768 / 2 * 32_768;
            let mut generation = u32::from_le_bytes(whole[last + 4..last + 8].try_into().unwrap());
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for _ in 0..2 {
                    generation = generation.wrapping_add(1);
                    out.write_all_at(&generation.to_le_bytes(), last as u64 + 4).unwrap();
                }
            }
        });
        for args in [&["recover", "--live"][..], &["recover", "--live", "--all"]] {
            let output = place.run(args);
            assert_eq!(code(&output), 0, "{}", err(&output));
            let line = out(&output);
            assert!(line.contains(" [GP") && !line.contains("killed"), "{line}");
            assert!(!line.contains("damaged"), "being written is not damage: {line}");
        }
        assert_eq!(code(&place.run(&["recover"])), 3, "not without being told");
        assert_eq!(code(&place.run(&["recover", "--all"])), 3);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read(&file).unwrap().len(), whole.len(), "it is the process's own");
}

#[test]
fn a_process_of_another_container_is_not_taken_for_dead() {
    let place = Place::new("container");
    let file = place.private().join("run.gpr");
    let own = spool::liveness::own();
    let bytes = recording(|b| {
        b.header.boot_id = own.boot;
        b.header.pid_namespace = own.namespace + 1;
    });
    fs::write(&file, bytes).unwrap();
    let path = file.to_str().unwrap();
    for args in [&["recover"][..], &["recover", "--all"]] {
        assert_eq!(code(&place.run(args)), 3);
    }
    let output = place.run(&["recover", path]);
    assert_eq!(code(&output), 6);
    assert!(err(&output).contains("another pid namespace"), "{}", err(&output));
    let output = place.run(&["recover", "--live", path]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(file.exists() && place.results().len() == 2);
}
