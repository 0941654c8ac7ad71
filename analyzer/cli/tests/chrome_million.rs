// SPDX-License-Identifier: Apache-2.0
//! A million kernels and a million launch calls in one trace: all there for Perfetto, to the
//! nanosecond, within the heap bound; the time is printed (the bench `chrome` measures it). Alone
//! in its file: the heap is the process's. Needs node and `scripts/perfetto install`.

use std::time::Instant;

use serde_json::Value;
use verdict::output::chrome::{write, ChromeOptions};

#[path = "chrome/heap.rs"]
mod heap;
#[path = "chrome/million.rs"]
mod million;
#[path = "chrome/perfetto.rs"]
mod perfetto;

use perfetto::{ask, assert_same_times, count, is_here, number, scratch, ARROWS, COUNTS, UNION, WRONG};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

#[test]
fn a_million_kernels_and_calls_are_all_there_to_the_nanosecond() {
    if !is_here() {
        return;
    }
    let folder = scratch("million");
    let file = folder.0.join("trace.json.gz");
    // zlib without optimisation takes a minute: the whole million in release builds
    let kernels: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let bytes = million::recording(kernels);
    let begin = Instant::now();
    let run = verdict::load(bytes.as_slice()).expect("a readable recording");
    let loaded = begin.elapsed();
    let analysis = verdict::analyze(&run);
    let analysed = begin.elapsed();
    drop(bytes);
    let before = heap::reset_peak();
    let out = std::fs::File::create(&file).expect("a trace file");
    let (_, written) = write(&run, &analysis, out, &ChromeOptions::default()).expect("a written trace");
    let heap = heap::peak_megabytes() - before;
    println!(
        "load {:.2} s, analyse {:.2} s, write {:.2} s: {:.1} MB, {} events, heap {heap:.1} MB above the run's {before:.1} MB",
        loaded.as_secs_f64(),
        (analysed - loaded).as_secs_f64(),
        (begin.elapsed() - analysed).as_secs_f64(),
        written.bytes as f64 / 1e6,
        written.events,
    );
    assert!(heap < 24.0, "writing needs {heap:.1} MB");
    assert!(written.bytes <= verdict::output::chrome::MAX_BYTES);
    assert_eq!((written.ops_left_out, written.calls_left_out), (0, 0));
    let rows = ask(&file, &[WRONG, ARROWS, UNION, COUNTS, "select count(*) n from flow"]);
    assert_eq!(rows[0], Value::from(Vec::<Value>::new()), "errors");
    assert_eq!(rows[1], Value::from(Vec::<Value>::new()), "arrows without an end");
    assert_eq!(number(&rows[2][0], "n"), kernels);
    assert_same_times(&analysis, &rows[2][0]);
    assert_eq!((count(&rows[3], "kernel"), count(&rows[3], "cuda_runtime")), (kernels, kernels));
    assert_eq!(count(&rows[3], "idle"), analysis.devices[0].slices.len() as u64 - written.gaps_left_out);
    assert_eq!(number(&rows[4][0], "n"), kernels);
}
