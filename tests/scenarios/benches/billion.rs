// SPDX-License-Identifier: Apache-2.0
//! A long run in little time: `cargo bench -p gapprobe-scenarios --bench billion -- [KERNELS
//! [PLAIN]]`, 10^9 kernels (about ten minutes on two cores) of which PLAIN (a twentieth) are
//! launched one by one, while correlation ids come round at 2^32, and the others are nodes of graph
//! launches. What must hold: the program's memory, threads and descriptors at its end are those of
//! its first tenth; every kernel is counted as recorded or can be in one of the buffers that are
//! counted as lost.

use std::time::Duration;

use gapprobe_scenarios::Victim;
use trace::{Loss, Total};

/// Most kernels in a buffer that is thrown away: 64 KiB (`cupti/buffers.rs`) of the smallest kernel
/// record, and what CUPTI itself counts as dropped besides.
const IN_A_BUFFER: u64 = 64 * 1024 / 100;
/// Memory that may come with time: names, the allocator's own.
const GROWTH_KB: u64 = 4096;
/// A tenth of so many fills the rings.
const FILLED: u64 = 50_000_000;

fn main() {
    let words: Vec<u64> = std::env::args().skip(1).filter_map(|w| w.parse().ok()).collect();
    let kernels = words.first().copied().unwrap_or(1_000_000_000);
    let plain = words.get(1).copied().unwrap_or(kernels / 20);
    let nodes = kernels - plain;
    let first = u32::MAX - (plain / 2) as u32;
    let victim = Victim::ours("13.0", &["billion", &plain.to_string(), &nodes.to_string()]);
    let mut victim = victim
        .limit(Duration::from_secs(7200))
        .whole()
        .env("SIM_CORRELATION", first.to_string())
        .env("SIM_TRUTH", "");
    for zero in ["SIM_LAUNCH_NS", "SIM_LATENCY_NS", "SIM_GAP_NS", "SIM_NODE_GAP_NS"] {
        victim = victim.env(zero, "0");
    }
    let run = victim.run();
    print!("{}", run.stdout);
    println!("{}", run.stderr.trim());
    assert_eq!((run.ending(), run.launched()), (0, kernels), "{}", run.stderr);
    let recorded = run.recorded();
    let (seen, discarded, dropped) = (
        recorded.total(Total::Kernels),
        recorded.loss(Loss::BufferExhausted),
        recorded.loss(Loss::CuptiDropped),
    );
    let seconds = run.wall.as_secs_f64();
    println!("kernels {kernels}, of them {plain} launched one by one; correlation ids from {first}");
    println!(
        "recorded {seen}; buffers thrown away {discarded}, records dropped {dropped}: {:?}",
        recorded.losses()
    );
    println!(
        "{seconds:.0} s, {:.0} ns a kernel, drain thread {:.0} s",
        seconds * 1e9 / kernels as f64,
        recorded.total(Total::DrainCpuNs) as f64 / 1e9
    );
    let tenths: Vec<Vec<u64>> = run.stdout.lines().filter(|l| l.starts_with("tenth")).map(numbers).collect();
    let (begin, middle, end) = (&tenths[0], &tenths[4], &tenths[9]);
    println!("resident MB after a tenth, half, all: {} {} {}", begin[1] >> 10, middle[1] >> 10, end[1] >> 10);
    assert_eq!(recorded.problems, Default::default(), "the recording is whole");
    assert!(
        seen <= kernels && seen + discarded * IN_A_BUFFER + dropped >= kernels,
        "kernels are missing and not counted"
    );
    let grown = |since: &[u64]| end[1].saturating_sub(since[1]);
    assert!(grown(middle) <= GROWTH_KB, "memory grows: {tenths:?}");
    // the newest three million events are kept: until then memory fills
    assert!(grown(begin) <= GROWTH_KB || kernels < FILLED, "memory grows: {tenths:?}");
    assert_eq!(middle[2..], end[2..], "threads and descriptors");
    assert!(begin[2] >= end[2] && begin[3] >= end[3], "threads and descriptors: {tenths:?}");
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().filter_map(|w| w.parse().ok()).collect()
}
