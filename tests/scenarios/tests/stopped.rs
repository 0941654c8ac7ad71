// SPDX-License-Identifier: Apache-2.0
//! Purpose: a process that is stopped as a whole (SIGSTOP, suspend, a frozen container) waited for
//! nothing in that time: it is unobserved, and no call or line is accused of it.

use std::time::Duration;

use gapprobe_scenarios::Victim;
use trace::event::Unobserved;

#[test]
fn a_stopped_process_accuses_nobody() {
    // steps of 5 ms whose kernels are queued in time: bound by the GPU
    let mut running = Victim::sim("13.0", &["loop", "500", "50", "100", "0", "50"]).start();
    assert!(running.wait_for(|f| std::fs::read_dir(f.join("kept")).is_ok_and(|mut d| d.next().is_some())));
    std::thread::sleep(Duration::from_millis(700));
    running.signal(libc::SIGSTOP);
    let from = gapprobe_scenarios::now();
    std::thread::sleep(Duration::from_millis(3000));
    let to = gapprobe_scenarios::now();
    running.signal(libc::SIGCONT);
    let run = running.finish();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 25000\n"), "{}", run.stderr);
    let spans = run.recorded().unobserved();
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert_eq!(spans[0].a, Unobserved::Stopped as u32);
    assert!(spans[0].start <= from && spans[0].end >= to, "{spans:?} {from} {to}");
    assert!(spans[0].end - spans[0].start < 4_500_000_000, "and little more: {spans:?}");
    let summary = run.summary().expect("a summary");
    // (on a busy machine other causes cost something; the 3 s are more than half of all)
    let verdict = &summary["verdict"];
    let accused = verdict["cause"] != "GPU-BOUND" && verdict["share"].as_f64() > Some(0.4);
    assert!(!accused, "{}", run.stderr);
}

#[test]
fn one_that_runs_is_never_said_to_have_stopped() {
    let run = Victim::sim("13.0", &["loop", "100", "50", "100", "0", "4"]).run();
    assert_eq!(run.recorded().unobserved(), [], "{}", run.stderr);
}
