// SPDX-License-Identifier: Apache-2.0
//! How long a trace of a million kernels and a million launch calls takes to write, and the heap it
//! needs. `cargo bench -p gapprobe-cli --bench chrome`; the limit of two seconds is for two
//! cores that do nothing else: the CPU time beside it holds on a busy machine too.

use std::time::Instant;

use verdict::output::chrome::{write, ChromeOptions};

#[path = "../tests/chrome/heap.rs"]
mod heap;
#[path = "../tests/chrome/million.rs"]
mod million;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// CPU time of this process, all threads, s (fields 14 and 15 of /proc/self/stat, 100 ticks a
/// second).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..].split(' ').collect();
    fields[11..13].iter().map(|f| f.parse::<f64>().expect("ticks")).sum::<f64>() / 100.0
}

fn main() {
    let bytes = million::recording(1_000_000);
    let begin = Instant::now();
    let run = verdict::load(bytes.as_slice()).expect("the recording is readable");
    println!("load      {:7.3} s, {:6.1} MB", begin.elapsed().as_secs_f64(), heap::live_megabytes());
    let begin = Instant::now();
    let analysis = verdict::analyze(&run);
    println!("analyse   {:7.3} s, {:6.1} MB", begin.elapsed().as_secs_f64(), heap::live_megabytes());
    for (threaded, name) in [(true, "two threads"), (false, "one thread")] {
        let mut best = f64::MAX;
        let mut last = None;
        let before = heap::reset_peak();
        let cpu = cpu_seconds();
        for _ in 0..5 {
            let begin = Instant::now();
            let options = ChromeOptions { threaded, ..ChromeOptions::default() };
            let (_, written) =
                write(&run, &analysis, std::io::sink(), &options).expect("a sink takes everything");
            best = best.min(begin.elapsed().as_secs_f64());
            assert_eq!((written.ops, written.calls), (1_000_000, 1_000_000));
            last = Some(written);
        }
        let written = last.expect("five runs");
        let cpu = (cpu_seconds() - cpu) / 5.0;
        println!(
            "write     {best:7.3} s (best of 5, {name}; {cpu:.2} s of CPU), {:.1} MB, {} events, heap {:.1} MB above the run",
            written.bytes as f64 / 1e6,
            written.events,
            heap::peak_megabytes() - before,
        );
    }
}
