// SPDX-License-Identifier: Apache-2.0
//! Recording to files: what is written, what is not in time, what is never touched.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use verdict::output::report::{earlier, report, write, ReportError, ReportOptions};

#[path = "chrome/million.rs"]
mod million;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gapprobe-report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn json(path: &Path) -> serde_json::Value {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).unwrap();
    match path.extension().is_some_and(|e| e == "gz") {
        true => flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap(),
        false => { file }.read_to_end(&mut bytes).unwrap(),
    };
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn trace_and_summary_agree_and_two_reports_do_not_meet() {
    let folder = Folder::new("agree");
    let bytes = million::recording(5_000);
    let stages = RefCell::new(Vec::new());
    let progress = |stage: &str, done: u64, all: u64| {
        assert!(done <= all, "{stage}: {done} of {all}");
        stages.borrow_mut().push(stage.to_owned());
    };
    let options = ReportOptions { progress: Some(&progress), ..ReportOptions::new(&folder.0) };
    let first = report(bytes.as_slice(), &options).unwrap();
    let second = report(bytes.as_slice(), &options).unwrap();
    assert!(first.is_complete() && second.is_complete());
    assert_ne!(first.trace, second.trace);
    assert_eq!(folder.names().len(), 4, "{:?}", folder.names());
    let mut order = stages.into_inner();
    order.dedup();
    assert_eq!(order[..4], ["load", "analyse", "trace", "summary"]);

    let summary = json(first.summary.as_deref().unwrap());
    let trace = json(first.trace.as_deref().unwrap());
    assert_eq!(summary["line"].as_str(), Some(first.line.as_str()));
    let name = first.trace.as_deref().and_then(Path::file_name).unwrap().to_str().unwrap();
    assert_eq!(summary["trace"].as_str(), Some(name));
    assert_eq!(summary["trace_file"]["gpu_operations"], 5_000);
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|e| e["cat"] == "kernel").count(), 5_000);
    assert_eq!(events.len() as u64, first.written.unwrap().events);
    assert_eq!(trace["otherData"]["left_out_at_the_size_limit"]["gpu_operations"], 0);
    // the verdict in the trace is that of the line, without the file's own name
    let said = trace["otherData"]["line"].as_str().unwrap();
    assert!(first.line.starts_with(said), "{said}\n{}", first.line);
}

#[test]
fn a_deadline_gives_up_what_is_not_done_and_says_what() {
    let folder = Folder::new("deadline");
    let bytes = million::recording(20_000);
    let past = Instant::now();
    let late = ReportOptions { deadline: Some(past), ..ReportOptions::new(&folder.0) };
    assert!(matches!(report(bytes.as_slice(), &late), Err(ReportError::Late("analyse"))));
    assert!(folder.names().is_empty());
    let run = verdict::load(bytes.as_slice()).unwrap();
    let analysis = verdict::analyze(&run);
    for deadline in [past, Instant::now() + Duration::from_millis(2)] {
        let made = write(
            &run,
            &analysis,
            &ReportOptions { deadline: Some(deadline), ..ReportOptions::new(&folder.0) },
        );
        assert_eq!(made.late, Some("trace"));
        assert!(made.trace.is_none() && made.summary.is_some() && !made.is_complete());
        assert!(!made.line.is_empty());
        assert_eq!(json(made.summary.as_deref().unwrap())["trace"], serde_json::Value::Null);
    }
    assert!(folder.names().iter().all(|n| n.ends_with(".summary.json")), "{:?}", folder.names());
}

#[test]
fn without_a_directory_the_line_still_comes() {
    let bytes = million::recording(2_000);
    let made = report(bytes.as_slice(), &ReportOptions::new(Path::new("/nonexistent/x"))).unwrap();
    assert!(made.line.contains(" [GP"));
    assert!(!made.line.contains("Trace:"), "{}", made.line);
    assert_eq!(made.problems.len(), 2, "{:?}", made.problems);
    assert!(made.problems.iter().all(|p| p.contains("/nonexistent/x")), "{:?}", made.problems);
    let summary: serde_json::Value = serde_json::from_str(&made.summary_text).unwrap();
    assert_eq!(summary["host"], "bench");
}

#[test]
fn no_trace_where_none_is_asked_for() {
    let folder = Folder::new("summary");
    let options = ReportOptions { write_trace: false, ..ReportOptions::new(&folder.0) };
    let made = report(million::recording(2_000).as_slice(), &options).unwrap();
    assert!(made.trace.is_none() && made.is_complete());
    assert_eq!(folder.names().len(), 1);
}

#[test]
fn what_memory_has_no_room_for_is_said_and_stays_in_the_recording() {
    let folder = Folder::new("bounded");
    let bytes = million::recording(50_000);
    let options = ReportOptions { most_events: 30_000, ..ReportOptions::new(&folder.0) };
    let made = report(bytes.as_slice(), &options).unwrap();
    assert!((70_000..80_000).contains(&made.left_out), "{} of 100,000 left out", made.left_out);
    assert!(!made.is_complete(), "the recording must stay");
    let summary = json(made.summary.as_deref().unwrap());
    assert!(summary["evidence"].to_string().contains("(seen: last "), "{}", summary["evidence"]);
    assert_eq!(
        summary["verdict"]["cause"],
        json(report(bytes.as_slice(), &ReportOptions::new(&folder.0)).unwrap().summary.as_deref().unwrap())
            ["verdict"]["cause"]
    );
}

#[test]
fn with_little_time_less_is_replayed_and_the_verdict_is_the_same() {
    let run = verdict::load(million::recording(50_000).as_slice()).unwrap();
    let (all, short) = (verdict::analyze(&run), verdict::analyze_by(&run, Some(Instant::now())));
    assert!(all.model.ops > 40_000 && short.model.ops < 6_000, "{:?} {:?}", all.model, short.model);
    assert!(short.model.error() < 0.05, "{:?}", short.model);
    assert_eq!(short.verdict.cause, all.verdict.cause);
    assert!((short.cost.share - all.cost.share).abs() < 0.02, "{:?} {:?}", short.cost, all.cost);
}

#[test]
fn a_short_deadline_still_gives_line_and_summary() {
    let folder = Folder::new("short");
    let bytes = million::recording(400_000);
    // enough for the analysis and not for the writing: how much that is here and now, trying tells
    let (mut short, mut long) = (Duration::ZERO, Duration::from_secs(60));
    let mut late = 0;
    for _ in 0..40 {
        // what else ran meanwhile may have closed the gap: it is opened again
        if long.saturating_sub(short) < Duration::from_millis(20) {
            (short, long) = (short / 2, long * 2);
        }
        let time = (short + long) / 2;
        let begin = Instant::now();
        let options = ReportOptions { deadline: Some(begin + time), ..ReportOptions::new(&folder.0) };
        match report(bytes.as_slice(), &options) {
            Err(_) => short = time,
            Ok(made) if made.is_complete() => long = begin.elapsed().min(time),
            Ok(made) => {
                assert!(made.line.contains(" [GP"), "{}", made.line);
                assert!(made.summary.is_some(), "{:?}", made.late);
                if begin.elapsed() < time + Duration::from_secs(1) {
                    return;
                }
                // held up by what else ran, once or twice
                late += 1;
                assert!(late < 4, "{:?} of {time:?}", begin.elapsed());
            }
        }
    }
    panic!("no deadline between {short:?} and {long:?} left line and summary without a trace");
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_the_reason_and_one_way_out() {
    let bytes = million::recording(2_000);
    let made = report(bytes.as_slice(), &ReportOptions::new(Path::new("/nonexistent/x"))).unwrap();
    let line = made.unfinished(Some(Path::new("/tmp/gapprobe-7/run.gpr")), 2000);
    assert!(line.contains("; no trace in /nonexistent/x: No such file or directory"), "{line}");
    assert!(line.ends_with(". Next: gapprobe recover --dir /tmp /tmp/gapprobe-7/run.gpr"), "{line}");
    assert_eq!(line.matches("Next:").count(), 1, "one way out: {line}");
    assert!(line.starts_with(made.figures.trim_end_matches('.')) && line.lines().count() == 1, "{line}");
    // nowhere to record to either: what can be done is to run again
    let line = made.unfinished(None, 2000);
    assert!(line.contains("/nonexistent/x: No such file"), "{line}");
    assert!(
        line.ends_with(". Next: set GAPPROBE_DIR to a folder that can be written, and run again"),
        "{line}"
    );
}

#[test]
fn a_relative_folder_is_named_in_full() {
    let bytes = million::recording(2_000);
    let made = report(bytes.as_slice(), &ReportOptions::new(Path::new("no-such-folder"))).unwrap();
    let full = std::env::current_dir().unwrap().join("no-such-folder");
    assert!(made.problems[0].contains(full.to_str().unwrap()), "{:?}", made.problems);
}

#[test]
fn what_was_not_in_time_or_left_out_is_named_with_the_command_that_does_it() {
    let folder = Folder::new("unfinished");
    let bytes = million::recording(50_000);
    let recording = Path::new("/tmp/gapprobe-7/run.gpr");
    let run = verdict::load(bytes.as_slice()).unwrap();
    let analysis = verdict::analyze(&run);
    let options = ReportOptions { deadline: Some(Instant::now()), ..ReportOptions::new(&folder.0) };
    let line = write(&run, &analysis, &options).unfinished(Some(recording), 123);
    let expected = "; no trace: not ready within 123 ms (GAPPROBE_EXIT_MS). Next: gapprobe recover /tmp/gapprobe-7/run.gpr";
    assert!(line.ends_with(expected), "{line}");
    let options = ReportOptions { most_events: 30_000, ..ReportOptions::new(&folder.0) };
    let made = report(bytes.as_slice(), &options).unwrap();
    let line = made.unfinished(Some(recording), 123);
    let trace = made.trace.as_deref().unwrap().display();
    let expected = format!(
        "; {} older events not looked at. Next: gapprobe recover /tmp/gapprobe-7/run.gpr. Trace: {trace}",
        made.left_out
    );
    assert!(line.ends_with(&expected), "{line}");
    assert_eq!(line.matches("Next:").count(), 1, "{line}");
}

/// The trace is kept under a size; the recording then has what it has not, stays, and is what the
/// line sends to.
#[test]
fn a_trace_cut_to_its_size_leaves_the_recording_and_says_so() {
    let folder = Folder::new("cut-to-size");
    let bytes = million::recording(150_000);
    let options = ReportOptions { max_trace_bytes: 2_000_000, ..ReportOptions::new(&folder.0) };
    let mut made = report(bytes.as_slice(), &options).unwrap();
    assert!(made.is_cut_to_size() && !made.is_complete(), "{made:?}");
    let w = made.written.unwrap();
    let (has, all) = (w.ops + w.calls + w.ranges, w.ops + w.calls + w.ranges + w.left_out());
    let share = format!("the trace has {has} of {all} events, the newest whole");
    let recording = Path::new("/tmp/gapprobe-7/run.gpr");
    for taken_up in [false, true] {
        // `gapprobe run` does not remove it
        made.taken_up = taken_up;
        let line = made.unfinished(Some(recording), 123);
        let expected = format!("; {share}. Next: gapprobe analyze /tmp/gapprobe-7/run.gpr. Trace: ");
        assert!(line.contains(&expected), "{line}");
    }
    // and makes no second trace that would be cut as well
    let run = verdict::load(bytes.as_slice()).unwrap();
    let analysis = verdict::analyze(&run);
    assert!(earlier::has_trace_of(&run.header, &folder.0, &analysis));
    let other = Folder::new("cut-to-size-empty");
    assert!(!earlier::has_trace_of(&run.header, &other.0, &analysis));
}

/// Where `gapprobe run` takes the recording up, and removes it, the line sends nobody there.
#[test]
fn under_run_the_line_names_no_command_for_a_recording_that_goes() {
    let folder = Folder::new("taken-up");
    let bytes = million::recording(50_000);
    let options = ReportOptions { most_events: 30_000, ..ReportOptions::new(&folder.0) };
    let mut made = report(bytes.as_slice(), &options).unwrap();
    made.taken_up = true;
    let line = made.unfinished(Some(Path::new("/tmp/gapprobe-7/run.gpr")), 123);
    assert!(line.contains("; gapprobe run goes on with the recording /tmp/gapprobe-7/run.gpr"), "{line}");
    assert!(!line.contains("Next:"), "{line}");
}
