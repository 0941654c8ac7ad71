// SPDX-License-Identifier: Apache-2.0
//! Purpose: when the rings are lapped, what is left is still the truth. Two streams, one 1,000
//! times busier than the other; the recording's room is used up ten times over; within the valid
//! span, busy and idle time are those of the script, to the nanosecond, for each stream and for the
//! device.

use std::os::fd::AsRawFd;
use std::time::Duration;

use gapprobe_scenarios::recorded::union;
use gapprobe_scenarios::{Truth, Victim, CORES};
use trace::segment::SEGMENT_EVENTS;
use trace::{Loss, Total};

/// The driver writes 300 bytes of truth a launch, 1.3 GB in all: only the newest part is kept.
const KEPT: u64 = 220 << 20;

/// Takes the blocks of a growing file back up to its last [`KEPT`] bytes; returns where the kept
/// part begins.
fn forget_the_old(file: &std::fs::File, forgotten: u64) -> u64 {
    let length = file.metadata().map_or(0, |m| m.len());
    let until = length.saturating_sub(KEPT) & !0xf_ffff;
    if until <= forgotten {
        return forgotten;
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: an open descriptor; bytes that the driver wrote and does not look at again.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, forgotten as i64, (until - forgotten) as i64) };
    until
}

#[test]
#[ignore = "scripts/test thorough: four million launches, half a minute"]
fn idle_time_in_the_valid_span_is_the_truth_after_ten_laps() {
    // 64 MB: room for 25 MB of events, 800,000 of them; a launch leaves two (kernel and call)
    let victim = Victim::sim("13.0", &["two_streams", "4400", "1000", "0.3"]);
    let truth = victim.folder.join("truth");
    let victim = victim
        // (launches by records: told by callbacks, 400,000 a second of them fill the thread's ring
        // where the drain thread has to wait for a core)
        .env("GAPPROBE_BUDGET", "100")
        .env("GAPPROBE_MAX_MB", "64")
        .env("SIM_LAUNCH_NS", "2500")
        .env("SIM_TRUTH", &truth)
        .limit(Duration::from_secs(150));
    let _shared = CORES.read().unwrap_or_else(|e| e.into_inner());
    let mut running = victim.start();
    let (mut file, mut forgotten) = (None, 0);
    running.wait_for(|_| {
        if file.is_none() {
            file = std::fs::File::options().write(true).open(&truth).ok();
        }
        if let Some(file) = &file {
            forgotten = forget_the_old(file, forgotten);
        }
        std::thread::sleep(Duration::from_millis(20));
        false
    });
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 4400 * 1001), "{}", run.stderr);
    let (recorded, truth) = (run.recorded(), Truth::tail(&truth, forgotten));

    let room = u64::from(recorded.header.segments) * SEGMENT_EVENTS as u64;
    let laps = recorded.total(Total::Overwritten) as f64 / room as f64;
    assert!(laps > 9.0, "the room was used up {:.1} times", laps + 1.0);
    assert_eq!(recorded.total(Total::Kernels), run.launched(), "totals survive overwriting");
    let lost: Vec<_> = recorded.losses();
    assert!(lost.is_empty(), "overwriting is no loss: {lost:?}");
    assert_eq!(recorded.loss(Loss::HostRingFull), 0);

    let (from, to) = (recorded.header.valid_from, recorded.header.gpu_complete_to);
    assert!(from > recorded.header.start_monotonic && to > from);
    assert!(truth.ops.first().expect("truth").start < from, "the kept truth reaches back far enough");
    let kernels = recorded.kernels();
    let mut streams: Vec<u32> = truth.ops.iter().map(|o| o.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 2);
    let mut counts = Vec::new();
    for wanted in [Some(streams[0]), Some(streams[1]), None] {
        let is = |stream: u32| wanted.is_none_or(|w| w == stream);
        let have = union(kernels.iter().filter(|(s, _)| is(*s)).map(|(_, k)| (k.start, k.end)), from, to);
        let real = Truth::busy(truth.ops.iter().filter(|o| is(o.stream)), from, to);
        assert_eq!(have, real, "busy ns of stream {wanted:?} within {} ns", to - from);
        assert!(real > 0 && real < to - from);
        let events = kernels.iter().filter(|(s, k)| is(*s) && k.end > from && k.start < to).count();
        let ops = truth.ops.iter().filter(|o| is(o.stream) && o.end > from && o.start < to).count();
        assert_eq!(events, ops, "kernels of stream {wanted:?}");
        counts.push(ops);
    }
    println!("{:.1} laps, {} ms valid, {counts:?} kernels", laps + 1.0, (to - from) / 1_000_000);
    let summary = run.summary().expect("a summary");
    assert_eq!(summary["coverage"]["overwritten"], true, "and the report says so");
}
