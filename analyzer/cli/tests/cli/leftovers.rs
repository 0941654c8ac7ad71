// SPDX-License-Identifier: Apache-2.0
//! What dead processes left behind goes with the next `recover` or `run`; what belongs to the
//! living stays.

use std::fs;
use std::process::Command;

use trace::place::{unfinished_recording, unfinished_result, Owner};

use crate::place::{code, err, harmless_library, recording, Place};

/// A process of this boot that has ended and was waited for: its pid is free.
fn dead() -> Owner {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    let start = spool::procfs::Stat::of(pid).map_or(1, |s| s.start);
    child.wait().unwrap();
    Owner { pid, start, ..spool::liveness::own() }
}

#[test]
fn recordings_without_a_header_of_dead_processes_go_and_those_of_living_ones_stay() {
    for verb in ["recover", "run"] {
        let place = Place::new(&format!("new-{verb}"));
        let (dead, own) = (dead(), spool::liveness::own());
        let reused = Owner { start: own.start + 1, ..own };
        let name = |n: &str, o: &Owner| place.private().join(unfinished_recording(n, o));
        let gone = [name("a.gpr", &dead), name("b.gpr", &reused)];
        let stays = [name("c.gpr", &own), place.private().join("notes.new")];
        for file in gone.iter().chain(&stays) {
            fs::write(file, "").unwrap();
        }
        let library = harmless_library();
        match verb {
            "recover" => assert_eq!(code(&place.run(&["recover"])), 3),
            _ => assert_eq!(code(&place.run(&["run", "--lib", &library, "--", "true"])), 0),
        }
        assert!(gone.iter().all(|f| !f.exists()), "{verb}");
        assert!(stays.iter().all(|f| f.exists()), "{verb}");
    }
}

#[test]
fn a_recording_whose_process_died_before_it_had_its_name_is_recovered() {
    let place = Place::new("nameless");
    let file = place.private().join(unfinished_recording("run.gpr", &dead()));
    fs::write(&file, recording(|_| {})).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!((fs::read_dir(place.private()).unwrap().count(), place.results().len()), (0, 2));
}

#[test]
fn half_traces_of_dead_processes_go_with_the_next_report() {
    let place = Place::new("parts");
    fs::write(place.private().join("run.gpr"), recording(|_| {})).unwrap();
    let at = |o: &Owner| place.out().join(unfinished_result("gapprobe-a-1-2-3.json.gz", o));
    let (gone, stays) = (at(&dead()), at(&spool::liveness::own()));
    fs::write(&gone, "half").unwrap();
    fs::write(&stays, "half").unwrap();
    assert_eq!(code(&place.run(&["recover"])), 0);
    assert!(!gone.exists() && stays.exists(), "{:?}", place.results());
    assert_eq!(place.results().len(), 3);
}
