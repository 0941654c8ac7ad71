// SPDX-License-Identifier: Apache-2.0
//! Which line of the program the verdict names, and when it names none.

use verdict::analysis::Confidence;
use verdict::causes::lines::Lines;

use super::{run, time, verdict, Program};

const TORCH: &str = "/venv/lib/python3.11/site-packages/torch";

/// No line: nobody waits.
const QUIET: u32 = u32::MAX;

/// From now on the program stands in `file`:`line`.
fn at(p: &mut Program, function: &str, line: u32) {
    p.site = p.b.stack(&[(function, "/job/gpt/train.py", line), ("<module>", "/job/gpt/train.py", 200)]);
}

fn item_at(p: &mut Program, line: u32) {
    at(p, "train_step", line);
    p.item();
    p.site = 0;
}

/// A GPT whose kernels are longer than their launches, and that waits after each block: in this
/// line (0: not known).
fn blocks(p: &mut Program, lines: &[u32]) {
    p.launch("embedding_kernel", 512, 14_000);
    for &line in lines {
        for name in ["layer_norm_kernel", "gemm_a_kernel", "flash_kernel", "gemm_b_kernel"] {
            p.launch(name, 264, 14_000);
        }
        match line {
            0 => p.item(),
            // the value comes into pinned memory, and nobody waits
            QUIET => p.copy(7, false, 4, false),
            line => item_at(p, line),
        }
    }
    p.optimizer(14_000);
}

#[test]
fn sync_names_the_line_that_drains_the_queue() {
    let (run_, a) = run(|p| blocks(p, &[88; 12]));
    verdict(&a, "SYNC");
    let v = &a.verdict;
    let site = v.site.as_ref().expect("a site");
    assert_eq!(
        (site.path.as_str(), site.line, site.function.as_str()),
        ("/job/gpt/train.py", 88, "train_step")
    );
    assert!(v.text().starts_with("gpt/train.py:88 in train_step: cuda"), "{}", v.text());
    assert!(v.text().ends_with("drains the queue 12 times a step"), "{}", v.text());
    assert_eq!(run_.call(v.call).map(|(_, c)| c.site != 0), Some(true), "the call shown is one of that line");
}

/// One line waits eleven times a step, another once: the first is named, with its own count.
#[test]
fn the_worst_of_two_lines_is_named_and_counted_alone() {
    let (_, a) = run(|p| blocks(p, &[88, 88, 88, 88, 88, 88, 88, 88, 88, 88, 140, 88]));
    verdict(&a, "SYNC");
    let text = &a.verdict.text();
    assert!(text.contains("train.py:88") && text.contains("11 times a step"), "{text}");
    assert!(!text.contains("more line"), "a tenth of the cost is not about the same: {text}");
}

#[test]
fn lines_of_about_the_same_cost_are_counted() {
    let (_, a) = run(|p| blocks(p, &[88, 89, 90, 91, 88, 89, 90, 91, 88, 89, 90, 91]));
    verdict(&a, "SYNC");
    assert!(a.verdict.text().ends_with("; only together with 3 more lines"), "{}", a.verdict.text());
    let (_, a) = run(|p| blocks(p, &[88, 90, 88, 90, 88, 90, 88, 90]));
    assert!(a.verdict.text().contains("; only together with gpt/train.py:"), "{}", a.verdict.text());
}

/// Where most of the waiting comes from lines that are not known, the one that is known is not
/// named.
#[test]
fn a_line_that_stands_for_less_than_half_is_not_named() {
    let (_, a) = run(|p| blocks(p, &[88, 0, 0, 88, 0, 0, 88, 0, 0, 88, 0, 0]));
    verdict(&a, "SYNC");
    assert_eq!(a.verdict.site, None);
    assert!(a.verdict.text().starts_with("cuda"), "{}", a.verdict.text());
}

#[test]
fn a_stack_of_frameworks_alone_names_no_line() {
    let (_, a) = run(|p| {
        p.site = p.b.stack(&[("run", &format!("{TORCH}/autograd/graph.py"), 3)]);
        blocks(p, &[0; 12]);
    });
    verdict(&a, "SYNC");
    assert_eq!(a.verdict.site, None);
}

#[test]
fn copy_and_alloc_have_their_lines() {
    let (_, a) = run(|p| {
        at(p, "fetch", 31);
        p.copy(7, true, 30_000_000, true);
        p.train_step(6, 20_000);
    });
    verdict(&a, "COPY");
    assert!(
        a.verdict.text().starts_with("gpt/train.py:31 in fetch: pageable copies"),
        "{}",
        a.verdict.text()
    );
    let (_, a) = run(|p| {
        p.train_step(6, 30_000);
        p.site = p.b.stack(&[
            ("empty_cache", &format!("{TORCH}/cuda/memory.py"), 218),
            ("train_step", "/job/gpt/train.py", 95),
        ]);
        for _ in 0..4 {
            p.free(400_000);
        }
    });
    verdict(&a, "ALLOC");
    let text = &a.verdict.text();
    assert!(text.starts_with("gpt/train.py:95 in train_step via empty_cache: cudaFree"), "{text}");
}

/// What is read again from our own trace has the same lines, and the trace says them in its slices.
#[test]
fn the_trace_has_stack_line_and_advice() {
    let (run_, a) = run(|p| blocks(p, &[88; 12]));
    let options = verdict::output::chrome::ChromeOptions::default();
    let (bytes, _) = verdict::output::chrome::write(&run_, &a, Vec::new(), &options).unwrap();
    let path = std::env::temp_dir().join(format!("gapprobe-sites-{}.json.gz", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let again = formats::read(&path, &formats::Progress::default());
    std::fs::remove_file(&path).unwrap();
    let again = again.unwrap_or_else(|e| panic!("{e}")).run;
    let b = verdict::analyze(&again);
    assert_eq!((&b.verdict.site, &b.verdict.text()), (&a.verdict.site, &a.verdict.text()));
    let options = verdict::output::chrome::ChromeOptions::default();
    let (bytes, _) = verdict::output::chrome::write(&again, &b, Vec::new(), &options).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut text).unwrap();
    let slice = text.lines().find(|l| l.contains("\"cat\":\"idle\",\"name\":\"SYNC\"")).expect("a slice");
    for part in [
        "\"site\":\"gpt/train.py:88 in train_step\"",
        "\"stack\":\"train_step (/job/gpt/train.py:88) < <module> (/job/gpt/train.py:200)\"",
        "\"to change\":\"read the value later",
    ] {
        assert!(slice.contains(part), "{part}: {slice}");
    }
}

#[test]
fn folded_stacks_and_the_table_of_blocking_calls_have_the_lines() {
    let (run_, a) = run(|p| blocks(p, &[88; 12]));
    let mut folded = Vec::new();
    cli::export::folded(&run_, &a, &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert!(folded.contains("SYNC;<module> (train.py:200);train_step (train.py:88);cuda"), "{folded}");
    let source = cli::tables::Source::new(&run_, cli::tables::NameStyle::Short);
    let table = cli::tables::find("syncs").unwrap().table(&source);
    let mut csv = Vec::new();
    cli::tables::write(&table, 0, cli::tables::Format::Csv, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.lines().next().unwrap().ends_with(",Name,Site"), "{csv}");
    assert!(csv.contains(",gpt/train.py:88 in train_step"), "{csv}");
}

/// A wait that costs nothing is cleared by its line.
#[test]
fn a_suspect_that_costs_nothing_is_cleared_with_its_line() {
    let mut p = Program::new();
    for _ in 0..super::STEPS {
        let begin = p.t;
        for _ in 0..50 {
            p.launch("gemm_kernel", 264, 100_000);
        }
        let (end, tid) = (p.t, p.tid);
        (p.t, p.tid) = (begin + 50_000, 777); // a monitor waits while the others launch
        p.site = p.b.stack(&[("watch", "/job/gpt/monitor.py", 9)]);
        p.sync();
        (p.t, p.tid, p.site) = (end, tid, 0);
    }
    let path = std::env::temp_dir().join(format!("gapprobe-cleared-{}.gprec", std::process::id()));
    std::fs::write(&path, p.finish()).unwrap();
    let input = formats::read(&path, &formats::Progress::default());
    std::fs::remove_file(&path).unwrap();
    let input = input.unwrap_or_else(|e| panic!("{e}"));
    let source = cli::tables::Source::new(&input.run, cli::tables::NameStyle::Short);
    let overview = cli::overview::Overview { file: "x", input: &input, source: &source };
    let screen = cli::overview::screen(&overview, Some(200));
    let said = screen.lines().find(|l| l.contains("gpt/monitor.py:9 in watch")).expect("the line");
    assert!(said.contains("30 calls") && said.contains("costs 0"), "{said}");
}

/// What each line wins alone is what the program without its waits takes; the verdict's win is that
/// of all lines together.
#[test]
fn each_line_is_told_what_it_wins_alone() {
    let waits = [88, 88, 88, 140, 88, 88, 88, 88];
    let (run_, a) = run(|p| blocks(p, &waits));
    let lines = Lines::of(&run_, &a);
    let of = |line: u32| lines.lines.iter().find(|l| l.site.line == line).expect("the line");
    for gone in [88, 140] {
        let kept: Vec<u32> = waits.iter().map(|&w| if w == gone { QUIET } else { w }).collect();
        let truth = 1.0 - time(|p| blocks(p, &kept)) / a.steps.mean_ns;
        let said = of(gone).win.expect("a promise");
        assert!((said - truth).abs() < 0.02, "line {gone}: {said:.3} said, {truth:.3} in truth");
        assert!(!of(gone).needed);
    }
    assert!(lines.lines[0].site.line == 88 && lines.pair.is_none(), "{lines:?}");
}

/// Two lines, one right behind the other: without the one the program waits at the other.
#[test]
fn two_lines_that_stand_in_for_each_other_are_named_together() {
    let (run_, a) = run(|p| {
        for _ in 0..14 {
            p.launch("gemm_kernel", 132, 60_000);
        }
        item_at(p, 3);
        item_at(p, 9);
        tail(p);
    });
    let lines = Lines::of(&run_, &a);
    let win = |line: u32| lines.lines.iter().find(|l| l.site.line == line).and_then(|l| l.win);
    let (one, other) = (win(3).expect("a promise"), win(9).expect("a promise"));
    let pair = lines.pair.unwrap_or_else(|| panic!("{lines:?}"));
    assert!(one < 0.05 && other < 0.05 && pair.win > 0.1, "{lines:?}");
    let named = [lines.lines[pair.one].site.line, lines.lines[pair.other].site.line];
    assert!(named == [3, 9] || named == [9, 3], "{lines:?}");
}

/// What the line promises is what the lines win together that it names, and `analyze` says the
/// same.
#[test]
fn the_verdict_names_the_line_without_which_its_own_wins_nothing() {
    let step = |p: &mut Program, waits: &[u32]| {
        for _ in 0..14 {
            p.launch("gemm_kernel", 132, 60_000);
        }
        for &line in waits {
            at(p, "train_step", line);
            p.sync();
            p.site = 0;
        }
        p.think(300_000);
        tail(p);
    };
    let (run_, a) = run(|p| step(p, &[3, 9]));
    verdict(&a, "SYNC");
    let text = &a.verdict.text();
    assert!(
        text.contains("train.py:3 in train_step: cuda")
            && text.ends_with("; only together with gpt/train.py:9"),
        "{text}"
    );
    super::kept(&a, time(|p| step(p, &[])));
    let alone = Lines::of(&run_, &a).lines.iter().find(|l| l.site.line == 3).and_then(|l| l.win);
    assert!(alone.expect("a promise") < 0.05);
    // one more behind them: no two lines win it
    let (_, a) = run(|p| step(p, &[3, 9, 12]));
    verdict(&a, "SYNC");
    let text = &a.verdict.text();
    assert!(
        text.contains("; this line alone wins ") && text.ends_with("%, all that wait together the rest"),
        "{text}"
    );
    assert!(a.verdict.confidence < Confidence::High, "{:?}", a.verdict);
    // a single one
    let (_, a) = run(|p| step(p, &[3]));
    verdict(&a, "SYNC");
    assert!(a.verdict.text().ends_with("every step"), "{}", a.verdict.text());
    assert_eq!(a.verdict.confidence, Confidence::High, "{:?}", a.verdict);
}

/// A value that the next launch needs, read behind a wait that nobody needs: without the first the
/// program waits at the second.
#[test]
fn nothing_is_promised_where_the_other_line_is_needed() {
    let mut n = 0;
    let (_, a) = run(|p| {
        n += 1;
        for _ in 0..14 {
            p.launch("gemm_kernel", 132, 40_000);
        }
        at(p, "train_step", 11);
        p.sync();
        item_at(p, 15);
        p.launch("index_kernel", 40 + n * 7 % 11, 10_000);
        tail(p);
        tail(p);
    });
    assert_eq!(a.verdict.cause, "SYNC", "{:?}", a.verdict);
    let text = &a.verdict.text();
    assert!(text.contains("train.py:11") && text.contains("only together with gpt/train.py:15, "), "{text}");
    assert!(text.contains("needed: the next launch") && a.verdict.promise.is_none(), "{:?}", a.verdict);
}

/// Launches that the GPU waits for where the queue is empty.
fn tail(p: &mut Program) {
    for _ in 0..14 {
        p.launch("small_kernel", 132, 3_000);
    }
}

/// A program that reads how many elements a mask has, then launches a kernel of that size.
fn masked(p: &mut Program, blocks: u32) {
    for _ in 0..14 {
        p.launch("gemm_kernel", 132, 40_000);
    }
    item_at(p, 15);
    p.launch("index_kernel", blocks, 10_000);
    tail(p);
    tail(p);
}

#[test]
fn a_value_that_the_next_launch_needs_is_needed_and_nothing_is_promised() {
    let mut n = 0;
    let (run_, a) = run(|p| {
        n += 1;
        masked(p, 40 + n * 7 % 11);
    });
    assert_eq!(a.verdict.cause, "SYNC", "{:?}", a.verdict);
    assert!(
        a.verdict.text().contains("needed: the next launch depends on the value"),
        "{}",
        a.verdict.text()
    );
    assert_eq!(a.verdict.promise, None);
    let line = &Lines::of(&run_, &a).lines[0];
    assert!(line.needed && line.win.is_none(), "{line:?}");
}

/// The same where the size is always the same, and where all sizes vary, before the wait as well (a
/// batch of another length).
#[test]
fn what_does_not_follow_from_the_value_is_not_needed() {
    let (_, a) = run(|p| masked(p, 40));
    assert!(a.verdict.cause == "SYNC" && !a.verdict.text().contains("needed"), "{:?}", a.verdict);
    assert!(a.verdict.promise.is_some());
    let mut n = 0;
    let (_, a) = run(|p| {
        n += 1;
        let length = 100 + n * 7 % 11;
        for _ in 0..14 {
            p.launch("gemm_kernel", length, 40_000);
        }
        item_at(p, 15);
        p.launch("index_kernel", length, 10_000);
        tail(p);
    });
    assert!(!a.verdict.text().contains("needed"), "{:?}", a.verdict);
}
