// SPDX-License-Identifier: Apache-2.0
//! Purpose: what gapprobe takes of the host's memory stays within GAPPROBE_MAX_MB to the very end,
//! the report of a run that filled the recording included.

use gapprobe_scenarios::Victim;

/// Largest resident size of the process so far, MB; 0 where it has ended.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// The largest size seen of a run that records 3.3 million events, all the image of 256 MB holds,
/// and its lines.
fn size(victim: Victim) -> (u64, Vec<String>) {
    let mut running = victim.start();
    let pid = running.pid();
    let mut most = 0;
    running.wait_for(|_| {
        most = most.max(peak(pid));
        false
    });
    let run = running.finish();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    (most, run.lines().iter().map(|l| (*l).to_owned()).collect())
}

#[test]
#[ignore = "scripts/test thorough: 20 s, alone on the cores"]
fn timed_a_full_recording_is_reported_within_the_memory_allowed() {
    let _alone = gapprobe_scenarios::CORES.write().unwrap_or_else(|e| e.into_inner());
    let victim = || Victim::sim("13.0", &["loop", "1650", "1000", "0"]).whole();
    let (alone, _) = size(victim().alone());
    // time enough: what is measured is the report of all that memory allows
    let (with, lines) = size(victim().env("GAPPROBE_EXIT_MS", "30000"));
    let ours = with - alone;
    println!("{ours} MB of 256 (the program itself {alone} MB)");
    assert!(lines[0].contains("older events not looked at"), "the recording was full: {lines:?}");
    assert!(ours > 150, "the report was made: {ours} MB, {lines:?}");
    assert!(ours <= 256, "{ours} MB of 256");
}
