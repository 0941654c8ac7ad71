// SPDX-License-Identifier: Apache-2.0
//! A process ends while a thread of it still writes the trace (the exit deadline has passed): no
//! half file stays, and the thread finishes none. Alone in its file: giving up is for the whole
//! process.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use verdict::output::report::{give_up, remove_unfinished, report, ReportOptions};

#[path = "chrome/million.rs"]
mod million;

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_report_that_is_given_up_leaves_no_half_file() {
    let folder = std::env::temp_dir().join(format!("gapprobe-report-abandoned-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let bytes = million::recording(60_000);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| report(bytes.as_slice(), &ReportOptions::new(&folder)).unwrap());
        let begin = Instant::now();
        while !names(&folder).iter().any(|n| n.starts_with('.') && n.ends_with(".part")) {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        let begin = Instant::now();
        assert!(give_up(), "there is something to remove");
        remove_unfinished();
        assert!(begin.elapsed() < Duration::from_secs(1), "it must not hold the exit up");
        assert_eq!(names(&folder), Vec::<String>::new());
        assert!(!writer.is_finished(), "the trace was still being written");
        let made = writer.join().unwrap();
        assert!(!made.is_complete() && made.trace.is_none() && made.summary.is_none());
        assert_eq!(made.problems.len(), 2, "{:?}", made.problems);
    });
    assert_eq!(names(&folder), Vec::<String>::new(), "nothing is finished later either");
    fs::remove_dir_all(&folder).unwrap();
}
