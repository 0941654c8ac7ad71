// SPDX-License-Identifier: Apache-2.0
//! Purpose: a torch.profiler trace with `with_stack=True` says in which line of the program the
//! time goes, as a recording of ours does: in the verdict, in folded stacks, in our own trace of
//! it. A framework's line is not the user's, and without a stack there is no line.

mod made;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cli::export;
use formats::Input;
use made::Trace;
use verdict::output::chrome;
use verdict::Analysis;

fn read(name: &str, bytes: &[u8]) -> (Input, Analysis) {
    let path: PathBuf = std::env::temp_dir().join(format!("gapprobe-stack-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let input = formats::read(&path, &Default::default()).unwrap();
    std::fs::remove_file(path).unwrap();
    let a = verdict::analyze(&input.run);
    (input, a)
}

fn case() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/with_stack.json")).unwrap()
}

fn site(a: &Analysis) -> String {
    a.verdict.site.as_ref().map_or_else(String::new, ToString::to_string)
}

fn folded(input: &Input, a: &Analysis) -> String {
    let mut out = Vec::new();
    export::folded(&input.run, a, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What goes on around the calls of a step, and how long the host is away behind it, in
/// microseconds.
#[derive(Clone, Copy, Default)]
struct Around<'a> {
    /// Python functions around the wait at the end of a step and what follows, outermost first.
    functions: &'a [&'a str],
    /// Thread of these; the calls are made on thread 1.
    under: u32,
    /// Further ranges around them: category and name.
    ranges: &'a [(&'a str, &'a str)],
    /// There is no wait, only a host that is away.
    away: u64,
}

/// 40 steps of 10 kernels, and a value is read behind them.
fn training(around: Around<'_>) -> String {
    let mut out = String::from("{\"traceEvents\":[");
    let (mut t, mut n) = (1_000_000u64, 0);
    let mut event = |cat: &str, name: &str, tid: u32, ts: u64, dur: u64, args: &str| {
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(
            out,
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}},"#
        );
    };
    for _ in 0..40 {
        let begin = t;
        for k in 0..10 {
            n += 1;
            let on = format!("\"device\":0,\"stream\":7,\"correlation\":{n}");
            event("cuda_runtime", "cudaLaunchKernel", 1, t, 5, &format!("\"correlation\":{n}"));
            event("kernel", &format!("layer{k}"), 7, begin + 10 + k * 61, 60, &on);
            t += 20;
        }
        let mut end = begin + 640;
        if around.away == 0 {
            n += 1;
            let on = format!("\"device\":0,\"stream\":7,\"correlation\":{n},\"bytes\":4");
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, begin + 625, 2, &on);
            event("cuda_runtime", "cudaMemcpyAsync", 1, t + 20, 4, &format!("\"correlation\":{n}"));
            event("cuda_runtime", "cudaStreamSynchronize", 1, t + 25, end - t - 25, "\"correlation\":0");
        }
        end += around.away;
        let functions = around.functions.iter().map(|f| ("python_function", *f));
        for (depth, (cat, name)) in (0u64..).zip(around.ranges.iter().copied().chain(functions)) {
            let tid = if cat == "python_function" { around.under } else { 1 };
            event(cat, name, tid, t + depth, end + 20 - 2 * depth - t, "");
        }
        t = end + if around.away == 0 { 200 } else { 30 };
    }
    out.push_str("{}]}");
    out
}

/// Python functions around the wait, on the thread that waits.
fn within(functions: &[&str]) -> String {
    training(Around { functions, under: 1, ..Around::default() })
}

#[test]
fn the_line_that_reads_a_value_is_the_site() {
    let (input, a) = read("case", &case());
    assert_eq!(a.verdict.cause, "SYNC");
    assert_eq!(site(&a), "train.py:42 in log_loss via Tensor.item");
    assert!(a.verdict.text().contains("train.py:42 in log_loss"), "{}", a.verdict.text());
    let folded = folded(&input, &a);
    let line = folded.lines().find(|l| l.contains("cudaStreamSynchronize")).unwrap_or_default();
    assert!(line.contains("log_loss (train.py:42);"), "{folded}");
    assert_eq!(line.matches("log_loss").count(), 1, "as a frame, and not as a range, too: {line}");
}

/// torch cuts off what `sys.path` has in front of a file: a package's must not look like the
/// user's.
#[test]
fn a_frameworks_line_is_not_the_users() {
    let functions = [
        "/home/me/run.py(1): <module>",
        "lib/loop.py(30): fit",
        "transformers/trainer.py(2000): training_step",
        "nn.Module: Model_0",
        "torch/nn/modules/module.py(1751): _call_impl",
        "contextlib.py(80): inner",
        "torch/_tensor.py(1000): __float__",
        "<built-in method item of Tensor object at 0x7f3a>",
    ];
    let (input, a) = read("framework", within(&functions).as_bytes());
    assert_eq!(a.verdict.cause, "SYNC", "{}", a.verdict.text());
    assert_eq!(site(&a), "lib/loop.py:30 in fit via training_step");
    assert!(folded(&input, &a).contains("fit (loop.py:30);training_step (trainer.py:2000);_call_impl"));
}

/// Where the launching thread has no Python (autograd's), nothing is made up.
#[test]
fn without_a_stack_there_is_no_line() {
    let (_, a) = read(
        "other",
        training(Around { functions: &["train.py(42): log_loss"], under: 2, ..Around::default() }).as_bytes(),
    );
    assert_eq!(a.verdict.cause, "SYNC", "{}", a.verdict.text());
    assert_eq!(a.verdict.site, None);
    let (_, a) = read("none", within(&[]).as_bytes());
    assert_eq!((a.verdict.cause, &a.verdict.site), ("SYNC", &None));
}

/// Names of others: no brackets, an emptied file, a line that is no number, one that hides.
#[test]
fn odd_names_are_no_frames_and_harm_nothing() {
    for name in
        ["", "f", "(): ", "a.py(x): f", "a.py(99999999999): f", "<", "<>", "<built-in method >", "\u{202e}"]
    {
        let (_, a) = read("odd", within(&["train.py(7): main", name]).as_bytes());
        assert!(site(&a).starts_with("train.py:7 in main"), "{name}: {}", site(&a));
    }
}

/// Time without any call has a line, too: of the function that the host was in.
#[test]
fn a_host_that_computes_is_where_its_function_is() {
    let functions = ["run.py(1): <module>", "train.py(50): augment", "numpy/core/numeric.py(9): cross"];
    let away = Around { functions: &functions, under: 1, away: 3_000, ..Around::default() };
    let (_, a) = read("away", training(away).as_bytes());
    assert_eq!(
        (a.verdict.cause, site(&a).as_str()),
        ("HOST", "train.py:50 in augment"),
        "{}",
        a.verdict.text()
    );
    let loader = [("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")];
    let functions =
        ["train.py(3): main", "torch/utils/data/dataloader.py(700): __next__", "data.py(9): __getitem__"];
    let fetching = Around { functions: &functions, ranges: &loader, ..away };
    let (_, a) = read("fetching", training(fetching).as_bytes());
    assert_eq!(a.verdict.cause, "INPUT", "{}", a.verdict.text());
    assert_eq!(site(&a), "data.py:9 in __getitem__");
}

/// Without Python functions the operator is named, and what the program calls the part it is in.
#[test]
fn without_a_stack_the_operator_and_the_range_are_named() {
    let item = [("cpu_op", "aten::item"), ("cpu_op", "aten::_local_scalar_dense")];
    let (_, a) = read("operator", training(Around { ranges: &item, ..Around::default() }).as_bytes());
    assert_eq!((a.verdict.cause, site(&a).as_str()), ("SYNC", "aten::item"), "{}", a.verdict.text());
    assert!(a.verdict.text().contains("aten::item: cudaStreamSynchronize"), "{}", a.verdict.text());
    let ranges =
        [&[("user_annotation", "ProfilerStep#3"), ("user_annotation", "evaluate")][..], &item].concat();
    let (input, a) = read("range", training(Around { ranges: &ranges, ..Around::default() }).as_bytes());
    assert_eq!(site(&a), "evaluate via aten::item", "{}", a.verdict.text());
    let said = verdict::output::summary::summary(
        &input.run,
        &a,
        &verdict::output::summary::Around { line: "", trace: None, written: None },
    );
    assert_eq!(said["verdict"]["site"]["function"], "evaluate");
    assert!(said["verdict"]["site"]["file"].is_null() && said["verdict"]["site"]["line"].is_null());
}

/// A loop that never waits for the GPU: the host is away for `away` us in a range, and `between` us
/// pass before each launch, inside of a range and of an operator.
fn without_waits(away: u64, between: u64, names: [&str; 3]) -> String {
    let mut t = Trace::new();
    let [meanwhile, part, operator] = names;
    for _ in 0..40 {
        let begin = t.t;
        if away > 0 {
            t.t += away;
            t.range(meanwhile, begin + 5);
        }
        let forward = t.t;
        for kernel in ["gemm", "bias", "softmax", "norm"].into_iter().cycle().take(12) {
            let from = t.t;
            t.t += between;
            t.kernel(kernel, 20);
            t.event("cpu_op", operator, 1, (from, t.t - from), "");
        }
        t.range(part, forward);
    }
    t.text()
}

/// HOST is in the range that the host was in, not in that of the launch that ends it; LAUNCH in
/// that of the launches.
#[test]
fn without_a_stack_host_and_launch_have_the_range_too() {
    let (_, a) = read("host", without_waits(5_000, 0, ["augment", "forward", "aten::mm"]).as_bytes());
    assert_eq!((a.verdict.cause, site(&a).as_str()), ("HOST", "augment"), "{}", a.verdict.text());
    assert!(a.verdict.text().starts_with("augment: the launching thread"), "{}", a.verdict.text());
    let (_, a) = read("launch", without_waits(0, 60, ["", "forward", "aten::mm"]).as_bytes());
    let found = (a.verdict.cause, site(&a));
    assert_eq!(found, ("LAUNCH", "forward via aten::mm".to_owned()), "{}", a.verdict.text());
    // steps are no place, and where nothing is named nothing is made up
    let (_, a) = read("step", without_waits(5_000, 0, ["ProfilerStep#1", "", ""]).as_bytes());
    assert_eq!((a.verdict.cause, &a.verdict.site), ("HOST", &None), "{}", a.verdict.text());
}

/// Launches come from all over a program: no line of the four has half of them, and what stands
/// further in is a package's, or made by torch.compile.
#[test]
fn launches_of_many_lines_have_the_line_that_they_have_in_common() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/launch_of_many_lines.json");
    let (_, a) = read("lines", &std::fs::read(path).unwrap());
    assert_eq!((a.verdict.cause, site(&a).as_str()), ("LAUNCH", "train.py:82 in train_step"));
    let text = &a.verdict.text();
    assert!(text.starts_with("train.py:82 in train_step: 8 of 8 kernels a step"), "{text}");
    assert!(text.contains("most of them launched below it"), "{text}");
}

/// Our own trace of it has the stacks, too.
#[test]
fn our_trace_of_it_keeps_the_line() {
    let (input, a) = read("kept", &case());
    let (out, _) = chrome::write(&input.run, &a, Vec::new(), &chrome::ChromeOptions::default()).unwrap();
    let (_, again) = read("again", &out);
    assert_eq!(again.verdict.site, a.verdict.site);
    assert!((again.verdict.promise.unwrap().ns() - a.verdict.promise.unwrap().ns()).abs() < 1e3);
}
