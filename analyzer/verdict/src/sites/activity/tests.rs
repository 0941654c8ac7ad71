// SPDX-License-Identifier: Apache-2.0
//! What a thread does, by stacks and samples made up here.

use trace::build::Builder;

use super::*;
use crate::run::Span;

const TORCH: &str = "/venv/lib/python3.11/site-packages/torch";

fn said(frames: &[(&str, &str, u32)], change: impl Fn(&mut Sample)) -> Activity {
    let paths: Vec<String> = frames
        .iter()
        .map(|f| f.1.replace('@', "/venv/lib/python3.11/site-packages").replace('%', "/usr/lib/python3.11"))
        .collect();
    let frames: Vec<_> = frames.iter().zip(&paths).map(|(f, p)| (f.0, p.as_str(), f.2)).collect();
    let mut b = Builder::new();
    let stack = b.stack(&frames);
    let run = crate::load(b.finish().as_slice()).unwrap();
    let mut sample =
        Sample { span: Span::new(0, 1), stack, syscall: None, on_cpu: 1000, run_queue: 0, bits: 0 };
    change(&mut sample);
    doing(&sample, Frames::of(&run, stack), true)
}

fn blocked(n: u32) -> impl Fn(&mut Sample) {
    move |s| (s.syscall, s.on_cpu) = (Some(n), 0)
}

const LOOP: (&str, &str, u32) = ("<module>", "/job/train.py", 60);

#[test]
fn loaders() {
    let next = ("_BaseDataLoaderIter.__next__", "@/torch/utils/data/dataloader.py", 733);
    let single = ("_SingleProcessDataLoaderIter._next_data", "@/torch/utils/data/dataloader.py", 789);
    let get = ("_MultiProcessingDataLoaderIter._try_get_data", "@/torch/utils/data/dataloader.py", 1251);
    let item = ("ImageSet.__getitem__", "/job/data.py", 41);
    assert_eq!(said(&[item, single, next, LOOP], |_| ()), Activity::FetchesHere);
    assert_eq!(said(&[item, single, next, LOOP], blocked(0)), Activity::FetchesHere);
    assert_eq!(said(&[get, next, LOOP], blocked(7)), Activity::FetchesFromWorkers);
    assert_eq!(said(&[next, LOOP], |_| ()), Activity::Fetches);
    // without qualified names, up to Python 3.10
    let plain = ("_next_data", "@/torch/utils/data/dataloader.py", 600);
    let fetch = ("fetch", "@/torch/utils/data/_utils/fetch.py", 49);
    assert_eq!(said(&[item, fetch, plain, LOOP], |_| ()), Activity::FetchesHere);
    assert_eq!(
        said(&[("__getitem__", "@/datasets/arrow_dataset.py", 2800), LOOP], |_| ()),
        Activity::FetchesHere
    );
    assert_eq!(
        said(&[("__next__", "@/grain/_src/python/loader.py", 9), LOOP], blocked(202)),
        Activity::Fetches
    );
    // a user's own file of that name, and the loader being made
    assert_eq!(said(&[("__next__", "/job/data/dataloader.py", 9), LOOP], |_| ()), Activity::Computes);
    assert_eq!(
        said(&[("__init__", "@/torch/utils/data/dataloader.py", 9), LOOP], |_| ()),
        Activity::Computes
    );
}

#[test]
fn what_the_sample_says_comes_before_its_frames() {
    let log = ("info", "%/logging/__init__.py", 1500);
    assert_eq!(said(&[log, LOOP], |s| s.bits = COLLECTING), Activity::Collects);
    assert_eq!(said(&[log, LOOP], |s| s.bits = WAITS_GIL), Activity::WaitsForGil);
    assert_eq!(said(&[log, LOOP], |s| (s.on_cpu, s.run_queue) = (100, 900)), Activity::Starves);
    assert_eq!(said(&[log, LOOP], |_| ()), Activity::Logs);
}

#[test]
fn compiling_and_running_what_was_compiled() {
    let run = ("_fn", "@/torch/_dynamo/eval_frame.py", 700);
    assert_eq!(said(&[run, LOOP], |_| ()), Activity::Computes);
    assert_eq!(
        said(&[("run", "@/torch/_inductor/output_code.py", 5), run, LOOP], |_| ()),
        Activity::Computes
    );
    assert_eq!(
        said(&[("_compile", "@/torch/_dynamo/convert_frame.py", 9), run, LOOP], |_| ()),
        Activity::Compiles
    );
    let make = ("compile_fx_inner", "@/torch/_inductor/compile_fx.py", 9);
    assert_eq!(said(&[make, LOOP], |_| ()), Activity::Compiles);
}

#[test]
fn a_progress_bar_around_the_loop_is_no_logging() {
    let bar = ("tqdm.__iter__", "@/tqdm/std.py", 1181);
    assert_eq!(said(&[("batches", "/job/data.py", 7), bar, LOOP], |_| ()), Activity::Computes);
    assert_eq!(said(&[("tqdm.refresh", "@/tqdm/std.py", 1300), bar, LOOP], |_| ()), Activity::Logs);
}

#[test]
fn who_selects_sleeps_up_to_python_3_10() {
    let sleeps = |version: Option<&str>| {
        let mut b = Builder::new();
        version.iter().for_each(|v| b.attribute("python.version", v));
        sleeps_by_select(&crate::load(b.finish().as_slice()).unwrap())
    };
    assert_eq!(
        ["3.8.10", "3.10.4", "3.11.2", "3.14.0rc1"].map(|v| sleeps(Some(v))),
        [true, true, false, false]
    );
    assert!(sleeps(None), "not known");
    let sample =
        Sample { span: Span::new(0, 1), stack: 1, syscall: Some(270), on_cpu: 0, run_queue: 0, bits: 0 };
    assert_eq!(doing(&sample, Frames::User, false), Activity::Unknown);
}

#[test]
fn system_calls() {
    for (n, expected) in [
        (1, Activity::Writes),
        (74, Activity::Writes),
        (0, Activity::Reads),
        (45, Activity::Talks),
        (230, Activity::Sleeps),
        (270, Activity::Sleeps),
        (232, Activity::Idles),
        (288, Activity::Idles),
        (202, Activity::Waits),
        (9, Activity::Allocates),
        (16, Activity::Unknown),
        (7, Activity::Unknown),
    ] {
        assert_eq!(said(&[LOOP], blocked(n)), expected, "{n}");
    }
    let selector = ("SelectSelector.select", "%/selectors.py", 300);
    assert_eq!(said(&[selector, LOOP], blocked(270)), Activity::Idles);
    let engine = ("_engine_run_backward", "@/torch/autograd/graph.py", 823);
    assert_eq!(said(&[engine, LOOP], blocked(202)), Activity::Unknown, "autograd's thread works meanwhile");
    assert_eq!(said(&[LOOP], |s| s.on_cpu = 300), Activity::Unknown);
    let save = ("_save", &*format!("{TORCH}/serialization.py"), 900);
    assert_eq!(said(&[save, LOOP], blocked(1)), Activity::Saves);
    let load = ("load", &*format!("{TORCH}/serialization.py"), 1400);
    assert_eq!(said(&[load, LOOP], blocked(0)), Activity::Reads);
}
