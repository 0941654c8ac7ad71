// SPDX-License-Identifier: Apache-2.0
//! Purpose: the recording's own memory grows with the run, until it is full. That is no leak of the
//! program's, and nothing says that it is one. (Seen on an H200: "host memory grows 7.4 kB a step",
//! a hundred kernels of 64 bytes.)

use gapprobe_scenarios::Victim;
use trace::event::Gauge;
use trace::Kind;

#[test]
fn what_the_recording_takes_is_not_said_to_be_a_leak() {
    let victim = Victim::ours("13.0", &["steps", "5000", "40", "600"]).env("SIM_TRUTH", "");
    let run = victim.env("GAPPROBE_BUDGET", "100").run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let recorded = run.recorded();
    let resident: Vec<u64> = recorded
        .of(Kind::Gauge)
        .filter(|(_, e)| e.a == Gauge::ResidentBytes as u32)
        .map(|(_, e)| u64::from(e.b) | u64::from(e.c) << 32)
        .collect();
    let bytes = std::fs::metadata(&run.recordings()[0]).expect("the recording").len();
    assert!(bytes > 20 << 20, "{bytes}: it does grow");
    let [first, .., last] = resident[1..] else { panic!("{resident:?}: too few readings") };
    assert!(last < first + (8 << 20), "{resident:?}");
    assert!(!run.stderr.contains("memory grows"), "{}", run.stderr);
}
