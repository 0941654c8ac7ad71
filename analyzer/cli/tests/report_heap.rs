// SPDX-License-Identifier: Apache-2.0
//! The memory a report takes inside the traced process, by stage: with the recording's image beside
//! it, the whole stays within 200 MB of the 256 that GAPPROBE_MAX_MB allows. Alone in its file: the
//! heap is the process's.

use std::cell::Cell;

use verdict::output::report::{report, ReportOptions, MOST_EVENTS};

#[path = "chrome/heap.rs"]
mod heap;
#[path = "chrome/million.rs"]
mod million;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// The image of the recording: 40 % of 256 MB (`injector/src/boot/attach.rs`, IMAGE_SHARE).
const IMAGE_MB: f64 = 0.4 * 256.0;
/// What image and report may take together.
const LIMIT_MB: f64 = 200.0;

/// Peaks of a report of `kernels` kernels and as many calls, of which `most` events at most are
/// looked at: of loading, and of what comes after, MB for [`MOST_EVENTS`].
fn peaks(kernels: u64, most: u64) -> (f64, f64) {
    let folder = std::env::temp_dir().join(format!("gapprobe-report-heap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let bytes = million::recording(kernels);
    let before = heap::reset_peak();
    let loading = Cell::new(0.0);
    let loaded = || {
        loading.set(heap::peak_megabytes() - before);
        heap::reset_peak();
    };
    let options = ReportOptions {
        loaded: Some(&loaded),
        most_events: most,
        // compressing without optimisation takes minutes, and its memory does not grow with the run
        // (chrome_million)
        write_trace: !cfg!(debug_assertions),
        ..ReportOptions::new(&folder)
    };
    let made = report(bytes.as_slice(), &options).unwrap();
    let working = heap::peak_megabytes() - before;
    std::fs::remove_dir_all(&folder).unwrap();
    let kept = 2 * kernels - made.left_out;
    assert_eq!(made.left_out > 0, 2 * kernels > most);
    assert!(kept > most * 9 / 10, "{kept} of {most} events looked at");
    assert!(loading.get() > 0.0, "told when everything is loaded");
    let scale = MOST_EVENTS as f64 / kept as f64;
    println!("{kept} events: load {:.1} MB, analysis and trace {working:.1} MB", loading.get());
    (loading.get() * scale, working * scale)
}

#[test]
fn image_and_report_fit_into_two_hundred_megabytes() {
    // in full in debug builds too: what is replayed has a bound of its own, so that a smaller run's
    // peak says nothing
    let most = MOST_EVENTS;
    // just below the bound with its marks, and as many as the image holds
    for kernels in [most / 2 - most / 200, most * 8 / 10] {
        let (loading, working) = peaks(kernels, most);
        println!("{MOST_EVENTS} events: load {loading:.1} MB, analysis and trace {working:.1} MB");
        assert!(IMAGE_MB + loading <= LIMIT_MB, "loading needs {loading:.1} MB beside the image");
        // the image was given back
        assert!(working <= LIMIT_MB, "analysis and trace need {working:.1} MB");
    }
}
