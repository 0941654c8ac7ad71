// SPDX-License-Identifier: Apache-2.0
//! Which line of the program the verdict names, and when it names none.

use super::{run, verdict, Program};

const TORCH: &str = "/venv/lib/python3.11/site-packages/torch";

/// From now on the program stands in `file`:`line`.
fn at(p: &mut Program, function: &str, line: u32) {
    p.site = p.b.stack(&[(function, "/job/gpt/train.py", line), ("<module>", "/job/gpt/train.py", 200)]);
}

fn item_at(p: &mut Program, line: u32) {
    at(p, "train_step", line);
    p.item();
    p.site = 0;
}

/// A GPT whose kernels are longer than their launches, and that waits after each block: in this line (0: not known).
fn blocks(p: &mut Program, lines: &[u32]) {
    p.launch("embedding_kernel", 512, 14_000);
    for &line in lines {
        for name in ["layer_norm_kernel", "gemm_a_kernel", "flash_kernel", "gemm_b_kernel"] {
            p.launch(name, 264, 14_000);
        }
        match line {
            0 => p.item(),
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
    assert!(v.text.starts_with("gpt/train.py:88 in train_step: cuda"), "{}", v.text);
    assert!(v.text.ends_with("drains the queue 12 times a step"), "{}", v.text);
    assert_eq!(run_.call(v.call).map(|(_, c)| c.site != 0), Some(true), "the call shown is one of that line");
}

/// One line waits eleven times a step, another once: the first is named, with its own count.
#[test]
fn the_worst_of_two_lines_is_named_and_counted_alone() {
    let (_, a) = run(|p| blocks(p, &[88, 88, 88, 88, 88, 88, 88, 88, 88, 88, 140, 88]));
    verdict(&a, "SYNC");
    let text = &a.verdict.text;
    assert!(text.contains("train.py:88") && text.contains("11 times a step"), "{text}");
    assert!(!text.contains("more line"), "a tenth of the cost is not about the same: {text}");
}

#[test]
fn lines_of_about_the_same_cost_are_counted() {
    let (_, a) = run(|p| blocks(p, &[88, 89, 90, 91, 88, 89, 90, 91, 88, 89, 90, 91]));
    verdict(&a, "SYNC");
    assert!(a.verdict.text.ends_with("; and 3 more lines"), "{}", a.verdict.text);
}

/// Where most of the waiting comes from lines that are not known, the one that is known is not named.
#[test]
fn a_line_that_stands_for_less_than_half_is_not_named() {
    let (_, a) = run(|p| blocks(p, &[88, 0, 0, 88, 0, 0, 88, 0, 0, 88, 0, 0]));
    verdict(&a, "SYNC");
    assert_eq!(a.verdict.site, None);
    assert!(a.verdict.text.starts_with("cuda"), "{}", a.verdict.text);
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
    assert!(a.verdict.text.starts_with("gpt/train.py:31 in fetch: pageable copies"), "{}", a.verdict.text);
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
    let text = &a.verdict.text;
    assert!(text.starts_with("gpt/train.py:95 in train_step via empty_cache: cudaFree"), "{text}");
}

/// What is read again from our own trace has the same lines, and the trace says them in its slices.
#[test]
fn the_trace_has_stack_line_and_advice() {
    let (run_, a) = run(|p| blocks(p, &[88; 12]));
    let options = analyzer::chrome::ChromeOptions::default();
    let (bytes, _) = analyzer::chrome::write(&run_, &a, Vec::new(), &options).unwrap();
    let path = std::env::temp_dir().join(format!("gapprobe-sites-{}.json.gz", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let again = analyzer::formats::read(&path, &analyzer::formats::Progress::default());
    std::fs::remove_file(&path).unwrap();
    let again = again.unwrap_or_else(|e| panic!("{e}")).run;
    let b = analyzer::analyze(&again);
    assert_eq!((&b.verdict.site, &b.verdict.text), (&a.verdict.site, &a.verdict.text));
    let options = analyzer::chrome::ChromeOptions::default();
    let (bytes, _) = analyzer::chrome::write(&again, &b, Vec::new(), &options).unwrap();
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
    analyzer::export::folded(&run_, &a, &mut folded).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert!(folded.contains("SYNC;<module> (train.py:200);train_step (train.py:88);cuda"), "{folded}");
    let source = analyzer::tables::Source::new(&run_, analyzer::tables::NameStyle::Short);
    let table = analyzer::tables::find("syncs").unwrap().table(&source);
    let mut csv = Vec::new();
    analyzer::tables::write(&table, 0, analyzer::tables::Format::Csv, &mut csv).unwrap();
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
    let input = analyzer::formats::read(&path, &analyzer::formats::Progress::default());
    std::fs::remove_file(&path).unwrap();
    let input = input.unwrap_or_else(|e| panic!("{e}"));
    let source = analyzer::tables::Source::new(&input.run, analyzer::tables::NameStyle::Short);
    let overview = analyzer::overview::Overview { file: "x", input: &input, source: &source };
    let screen = analyzer::overview::screen(&overview, Some(200));
    let said = screen.lines().find(|l| l.contains("gpt/monitor.py:9 in watch")).expect("the line");
    assert!(said.contains("30 calls") && said.contains("costs 0"), "{said}");
}
