// SPDX-License-Identifier: Apache-2.0
//! GP102 LAUNCH by samples: its line, GP114 LAUNCH-OPTIMIZER and GP115 GRAPH-BREAKS, and programs
//! close by that are none of them.

use trace::event::sample::OUTER;
use verdict::analysis::{Bucket, Confidence};
use verdict::{Analysis, Run};

use super::program::Pose;
use super::{kept, run, time, verdict, Program};

const PACKAGES: &str = "/venv/lib/python3.11/site-packages";
/// Between two samples here: steps are short.
const TICK: u64 = 500_000;

fn stack(p: &mut Program, inner: &[(&str, &str, u32)]) -> u32 {
    let paths: Vec<String> = inner.iter().map(|f| f.1.replace('@', PACKAGES)).collect();
    let mut frames: Vec<(&str, &str, u32)> =
        inner.iter().zip(&paths).map(|(f, path)| (f.0, path.as_str(), f.2)).collect();
    frames.push(("<module>", "/job/gpt/train.py", 60));
    p.b.stack(&frames)
}

/// Samples of a thread that launches from `from` until now.
fn sampled(p: &mut Program, tid: u32, from: u64, stack: u32) {
    let mut at = from.next_multiple_of(TICK);
    while at < p.t {
        p.sample(tid, at, Pose::computing(stack));
        at += TICK;
    }
}

/// Tiny kernels below this stack, as many as make 1.8 ms of launching.
fn tiny(p: &mut Program, inner: &[(&str, &str, u32)]) {
    let from = p.t;
    p.forward(40, 1_000);
    let stack = stack(p, inner);
    sampled(p, p.tid, from, stack);
}

const STEP: (&str, &str, u32) = ("train_step", "/job/gpt/train.py", 17);

/// The verdict, its line (0: none), and its text.
#[track_caller]
fn says(found: &(Run, Analysis), cause: &str, line: u32) -> String {
    verdict(&found.1, cause);
    let v = &found.1.verdict;
    assert_eq!(v.site.as_ref().map_or(0, |s| s.line), line, "{}", v.text());
    v.text()
}

#[test]
fn the_line_in_which_most_launches_are_waited_for() {
    let found = run(|p| tiny(p, &[STEP]));
    let text = says(&found, "LAUNCH", 17);
    assert!(
        text.starts_with("gpt/train.py:17 in train_step: ") && text.ends_with(" samples there"),
        "{text}"
    );
    // two thirds in one line: the line, and how many
    let mut n = 0;
    let found = run(|p| {
        n += 1;
        tiny(p, &[("train_step", "/job/gpt/train.py", if n % 3 == 0 { 40 } else { 17 })]);
    });
    says(&found, "LAUNCH", 17);
}

/// Half of the waiting stands in no line, but all of it below one.
#[test]
fn the_line_below_which_launches_are_waited_for_all_over_a_model() {
    let mut n = 0;
    let found = run(|p| {
        n += 1;
        let function = format!("layer_{}", n % 5);
        let layer = (&*function, "/job/gpt/model.py", 100 + n % 5);
        // called from three places of the model, and by what a package does in between
        let call = ("Module._call_impl", "@/torch/nn/modules/module.py", 1790);
        let step = [("forward", "/job/gpt/model.py", 30 + n % 3), STEP, ("fit", "/job/gpt/train.py", 9)];
        tiny(p, &[&[layer, call], &step[..]].concat());
    });
    let text = says(&found, "LAUNCH", 17);
    assert!(
        text.starts_with("gpt/train.py:17 in train_step: ") && text.ends_with(" samples below it"),
        "{text}"
    );
}

#[test]
fn launches_all_over_the_program_have_no_line() {
    let mut n = 0;
    let found = run(|p| {
        n += 1;
        let function = format!("layer_{}", n % 5);
        tiny(p, &[(&function, "/job/gpt/model.py", 100 + n % 5)]);
    });
    let text = says(&found, "LAUNCH", 0);
    assert!(text.ends_with(" wait for their launch"), "{text}");
    // without samples neither
    says(&run(|p| p.forward(40, 1_000)), "LAUNCH", 0);
}

/// Where the GPU is busy while the host launches, the samples taken then are no votes: only those
/// taken while it waits.
#[test]
fn what_launches_ahead_of_the_gpu_is_not_waited_for() {
    let found = run(|p| {
        let from = p.t;
        for _ in 0..100 {
            p.launch("gemm_kernel", 264, 30_000);
        }
        let ahead = stack(p, &[("build", "/job/gpt/train.py", 9)]);
        sampled(p, p.tid, from, ahead);
        p.sync();
        for _ in 0..8 {
            tiny(p, &[STEP]);
        }
    });
    let launch = &found.1.devices[0].launch;
    assert_eq!(launch.site.as_ref().map(|s| s.0.line), Some(17), "{launch:?}");
    says(&found, "LAUNCH", 17);
}

/// Autograd's thread has no frames: the line that waits in `backward()` speaks for it.
#[test]
fn launches_of_autograds_thread_are_of_the_line_that_waits_in_backward() {
    let engine = ("_engine_run_backward", "@/torch/autograd/graph.py", 823);
    let backward = ("Tensor.backward", "@/torch/_tensor.py", 581);
    let step = |p: &mut Program, inner: &[(&str, &str, u32)]| {
        let (from, main) = (p.t, p.tid);
        p.backward(40, 1_000);
        let waits = stack(p, inner);
        sampled(p, main, from, waits);
        sampled(p, main + 1, from, 0);
    };
    let text_of = run(|p| step(p, &[engine, backward, STEP]));
    let text = says(&text_of, "LAUNCH", 17);
    assert!(text.contains("via Tensor.backward"), "{text}");
    // the main thread does something else: who launches is not known
    says(&run(|p| step(p, &[STEP])), "LAUNCH", 0);
}

const OPTIMIZER: [(&str, &str, u32); 3] = [
    ("Adam.step", "@/torch/optim/adam.py", 248),
    ("Optimizer.profile_hook_step.<locals>.wrapper", "@/torch/optim/optimizer.py", 533),
    STEP,
];

/// Work of an optimizer on the GPU, ns: as much memory is moved in few launches as in many.
const UPDATE: u64 = 840_000;

/// Four layers forward, then an optimizer with `launches`, in this function.
fn optimizes(p: &mut Program, launches: u64, function: &str) {
    let from = p.t;
    p.forward(4, 30_000);
    let forward = stack(p, &[("train_step", "/job/gpt/train.py", 15)]);
    sampled(p, p.tid, from, forward);
    let from = p.t;
    for _ in 0..launches {
        p.launch("vectorized_elementwise_kernel<adam>", 16, UPDATE / launches);
    }
    let inner = [&[(function, "@/torch/optim/adam.py", 476)], &OPTIMIZER[..]].concat();
    let stack = stack(p, &inner);
    sampled(p, p.tid, from, stack);
}

#[test]
fn an_optimizer_that_takes_one_tensor_after_the_other() {
    let found = run(|p| optimizes(p, 700, "_single_tensor_adam"));
    let text = says(&found, "LAUNCH-OPTIMIZER", 17);
    assert!(text.contains("via Adam.step") && text.contains("without foreach or fused"), "{text}");
    assert!(found.1.verdict.advice.long.contains("fused=True"), "{}", found.1.verdict.advice.long);
    let launch =
        |a: &Analysis| a.findings.iter().find(|f| f.cause == "LAUNCH").map_or(0.0, |f| f.win.share());
    assert!(launch(&found.1) < 0.1, "one cause, one name: {:?}", found.1.findings);
    kept(&found.1, time(|p| optimizes(p, 8, "_multi_tensor_adam")));
    assert_eq!(verdict::causes::kind_of("GP114"), Some("GP102"));
}

/// Six tenths of the launches are the optimizer's: it is named with its part, and what is left
/// comes next.
#[test]
fn an_optimizer_beside_other_launches_has_its_part() {
    let found = run(|p| {
        for _ in 0..2 {
            tiny(p, &[("train_step", "/job/gpt/train.py", 15)]);
        }
        optimizes(p, 700, "_single_tensor_adam");
    });
    let text = says(&found, "LAUNCH-OPTIMIZER", 17);
    let a = &found.1;
    let of = |cause| a.findings.iter().find(|f| f.cause == cause).expect("a finding");
    let (optimizer, rest) = (of("LAUNCH-OPTIMIZER"), of("LAUNCH"));
    assert!(optimizer.win.share() > rest.win.share() && rest.win.share() > 0.2, "{optimizer:?} {rest:?}");
    let all = a.devices[0].buckets.share(Bucket::Launch);
    assert!((optimizer.charged + rest.charged - all).abs() < 0.01, "{all} {text}");
    assert_eq!((rest.site.as_ref(), a.verdict.then.map(|t| t.0)), (None, Some("LAUNCH")));
}

/// The same launches from an optimizer that has many tensors in each, or outside of any optimizer.
#[test]
fn optimizers_with_foreach_and_other_loops_are_launch() {
    says(&run(|p| optimizes(p, 700, "_multi_tensor_adam")), "LAUNCH", 17);
    says(&run(|p| optimizes(p, 700, "_fused_adam")), "LAUNCH", 17);
    let found = run(|p| {
        p.forward(4, 30_000);
        let from = p.t;
        for _ in 0..700 {
            p.launch("vectorized_elementwise_kernel<ema>", 16, 1_200);
        }
        let own = stack(p, &[("_single_tensor_ema", "/job/gpt/ema.py", 9)]);
        sampled(p, p.tid, from, own);
    });
    says(&found, "LAUNCH", 9);
}

const COMPILED: (&str, &str, u32) =
    ("_TorchDynamoContext.__call__.<locals>.compile_wrapper", "@/torch/_dynamo/eval_frame.py", 1024);
const RESUMED: (&str, &str, u32) = ("Net.torch_dynamo_resume_in_forward_at_88", "/job/gpt/model.py", 89);
const BEFORE: (&str, &str, u32) = ("Net.forward", "/job/gpt/model.py", 88);

/// A compiled function that is whole, and launched kernel by kernel.
pub(super) fn compiled(p: &mut Program) {
    tiny(p, &[("Net.forward", "/job/gpt/model.py", 80), COMPILED, STEP]);
}

#[test]
fn pieces_of_a_compiled_function_that_broke() {
    let before = ("_fn", "@/torch/_dynamo/eval_frame.py", 700);
    for calls in [COMPILED, before] {
        let found = run(|p| tiny(p, &[RESUMED, ("Net.forward", "/job/gpt/model.py", 80), calls, STEP]));
        let text = says(&found, "GRAPH-BREAKS", 88);
        assert!(text.starts_with("gpt/model.py:88 in forward: "), "{text}");
        assert!(text.contains("; the graph breaks there; "), "{text}");
        assert!(found.1.verdict.confidence <= Confidence::Medium);
        // compiled as a whole, and still launched one by one
        says(&run(|p| tiny(p, &[("Net.forward", "/job/gpt/model.py", 80), calls, STEP])), "LAUNCH", 80);
    }
}

/// Many small pieces: most of the time stands before a break, or on the way to the next piece (seen
/// on the H200, and said to be LAUNCH without a line).
#[test]
fn a_third_behind_breaks_is_enough_inside_of_what_is_compiled() {
    let module = ("Module._call_impl", "@/torch/nn/modules/module.py", 1790);
    let pieces = |every: u32, calls: (&'static str, &'static str, u32)| {
        let mut n = 0;
        run(move |p| {
            n += 1;
            let inner = match n % every {
                0 => vec![RESUMED, BEFORE, module, calls, STEP],
                1 => vec![BEFORE, module, calls, STEP],
                _ => vec![module, calls, STEP],
            };
            tiny(p, &inner);
        })
    };
    let found = pieces(3, COMPILED);
    let text = says(&found, "GRAPH-BREAKS", 88);
    assert_eq!(found.1.verdict.site.as_ref().map(|s| &*s.function), Some("forward"), "{text}");
    // one of ten, or where nothing says that the rest is compiled
    verdict(&pieces(10, COMPILED).1, "LAUNCH");
    verdict(&pieces(3, ("fit", "/job/gpt/fit.py", 9)).1, "LAUNCH");
}

/// A short run whose inner frames move too fast for most samples (H100: 9 of 57 whole, 4 of them
/// behind a break; said to be LAUNCH without a line).
#[test]
fn of_few_samples_that_are_whole_a_third_behind_breaks_is_enough() {
    let module = ("Module._call_impl", "@/torch/nn/modules/module.py", 1790);
    let short = |behind: u32, before: u32| {
        let mut steps = 0..;
        run(move |p| {
            let n = steps.next().expect("endless");
            let (inner, bits) = match n {
                0..10 => (vec![module, COMPILED, STEP], OUTER), // the first steps are warm-up
                k if k < 10 + behind => (vec![RESUMED, BEFORE, module, COMPILED, STEP], 0),
                k if k < 10 + behind + before => (vec![BEFORE, module, COMPILED, STEP], 0),
                _ => (vec![module, COMPILED, STEP], OUTER),
            };
            let from = p.t;
            p.forward(40, 1_000);
            let (at, stack) = (from + TICK + 3_000, stack(p, &inner)); // between two kernels
            p.sample(p.tid, at, Pose { bits, ..Pose::computing(stack) });
        })
    };
    let found = short(4, 5);
    let text = says(&found, "GRAPH-BREAKS", 88);
    assert!(text.ends_with("; after a break in 4 of 9 samples that show all frames"), "{text}");
    // two of nine may be chance; and of four nothing is known
    for (behind, before) in [(2, 7), (3, 1)] {
        says(&short(behind, before), "LAUNCH", 17);
    }
}

/// A graph that breaks at `loss.backward()` or `opt.step()`: what these launch is no piece of it,
/// and the break cannot be taken out.
#[test]
fn what_a_break_calls_of_autograd_or_an_optimizer_is_no_piece() {
    let engine = ("_engine_run_backward", "@/torch/autograd/graph.py", 823);
    let backward = ("Tensor.backward", "@/torch/_tensor.py", 581);
    verdict(&run(|p| tiny(p, &[engine, backward, RESUMED, COMPILED, STEP])).1, "LAUNCH");
    let optimizer = [("_multi_tensor_adam", "@/torch/optim/adam.py", 476), OPTIMIZER[0], OPTIMIZER[1]];
    let found = run(|p| tiny(p, &[&optimizer[..], &[RESUMED, COMPILED, STEP]].concat()));
    verdict(&found.1, "LAUNCH");
}

/// The line to change is not in somebody else's package.
#[test]
fn a_break_in_a_package_is_told_and_the_line_is_the_programs() {
    let resumed =
        ("Attention.torch_dynamo_resume_in_forward_at_412", "@/transformers/models/gpt/modeling.py", 413);
    let found = run(|p| tiny(p, &[resumed, COMPILED, STEP]));
    let text = says(&found, "GRAPH-BREAKS", 17);
    assert!(text.contains("; the graph breaks at gpt/modeling.py:412; "), "{text}");
}
