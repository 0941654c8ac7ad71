// SPDX-License-Identifier: Apache-2.0
//! Each cause of the registry has a recording that triggers it and one close by that does not: a
//! row here, without which a new cause fails. Real recordings (an H200's) where there are some,
//! else programs of the tests beside.

use verdict::causes;
use verdict::causes::ALL;
use verdict::{Analysis, Run};

use super::program::Pose;
use super::samples::{stack, standing, PREPARE};
use super::{
    alignment, attention_unfused, casts, device, fp32_matmul, input, kept, launch_lines, layout,
    low_occupancy, memory, memory_bound, recompute, run, throttled, verdicts,
};

/// How a cause is said.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Said {
    /// It is what the line names.
    Named,
    /// By its page it is never named, and stands beside what is.
    Beside,
}
use Said::{Beside, Named};

/// Where a recording comes from.
#[derive(Clone, Copy)]
enum Recording {
    /// A program of `tests/gpu/programs/causes`.
    Labelled(&'static str),
    /// One of `analyzer/cli/tests/recordings`.
    Own(&'static str),
    Built(fn() -> (Run, Analysis)),
}
use Recording::{Built, Labelled, Own};

impl Recording {
    fn analysis(self) -> Analysis {
        match self {
            Labelled(name) => kept::recording(&format!("tests/gpu/recordings/{name}")).1,
            Own(name) => kept::recording(&format!("analyzer/cli/tests/recordings/{name}")).1,
            Built(made) => made().1,
        }
    }
}

struct Pair {
    cause: &'static str,
    said: Said,
    has_it: Recording,
    /// And the cause is neither named there nor among what would win enough to be.
    close_by: Recording,
}

const fn pair(cause: &'static str, said: Said, has_it: Recording, close_by: Recording) -> Pair {
    Pair { cause, said, has_it, close_by }
}

const PAIRS: &[Pair] = &[
    // values read after every layer; one read in a step that waits for its launches anyway
    pair("SYNC", Named, Labelled("sync_item_layers.slow"), Labelled("ok_item_launch.slow")),
    // tiny kernels one by one; the same in a CUDA graph
    pair("LAUNCH", Named, Labelled("launch_tiny.slow"), Labelled("ok_graph.slow")),
    pair("SMALL-KERNELS", Named, Built(|| graph(600, 1_500, 0)), Built(|| graph(100, 90_000, 0))),
    // many kernels of next to nothing beside large ones; a tenth of them
    pair("KERNEL-GAP", Named, Built(|| graph(300, 150, 220_000)), Built(|| graph(30, 1_500, 220_000))),
    pair("HOST", Named, Labelled("host_python.slow"), Labelled("ok_thread.slow")),
    pair("COPY", Named, Labelled("copy_pageable.slow"), Labelled("ok_pageable_hidden.slow")),
    pair(
        "COMM",
        Named,
        Built(|| run(|p| device::data_parallel(p, 4_000_000))),
        Built(|| run(|p| device::data_parallel(p, 60_000))),
    ),
    pair("ALLOC", Named, Labelled("alloc_empty_cache.slow"), Labelled("alloc_empty_cache.fixed")),
    pair(
        "DEVICE-WAIT",
        Named,
        Built(|| run(|p| device::signalled(p, 1_500_000))),
        Built(|| run(|p| device::signalled(p, 50_000))),
    ),
    // workers that wait for something unknown; one that is enough
    pair("INPUT", Named, Built(|| input::with_workers(4, 200, 0, 0)), Labelled("ok_one_worker.slow")),
    pair("INPUT-MAIN", Named, Labelled("loader_no_workers.slow"), Labelled("loader_no_workers.fixed")),
    // two workers that compute; eight
    pair("INPUT-WORKERS", Named, Labelled("loader_two_workers.slow"), Labelled("loader_two_workers.fixed")),
    // four that wait for a store; that have it read many samples at once
    pair("INPUT-STORAGE", Named, Labelled("loader_slow_reads.slow"), Labelled("loader_slow_reads.fixed")),
    // products in float32 all the time; one among twenty of the tensor cores'
    pair(
        "FP32-MATMUL",
        Named,
        Built(|| run(|p| fp32_matmul::layers(p, 20, fp32_matmul::FFMA))),
        Built(|| run(fp32_matmul::few)),
    ),
    // a quarter of the step; the same kernels of a backward pass within a checkpoint's
    pair("RECOMPUTE", Named, Built(|| run(recompute::quarter)), Built(|| run(recompute::not_again))),
    pair("LAYOUT", Named, Built(|| run(layout::turned)), Built(|| run(layout::once))),
    pair(
        "ATTENTION-UNFUSED",
        Named,
        Built(|| run(attention_unfused::in_pieces)),
        Built(|| run(attention_unfused::others)),
    ),
    // products four times of five; one small one
    pair("ALIGNMENT", Named, Built(|| run(alignment::odd)), Built(|| run(alignment::small_head))),
    pair(
        "MEMORY-BOUND",
        Named,
        Built(|| run(memory_bound::written_out)),
        Built(|| run(memory_bound::loop_over_tensors)),
    ),
    // tensor cores at work for most of the time; for half of it
    pair(
        "EFFICIENT",
        Named,
        Built(|| low_occupancy::products(7_200, 3_000)),
        Built(|| low_occupancy::products(5_500, 3_000)),
    ),
    // heat; the power limit
    pair("THROTTLED", Named, Built(throttled::hot), Built(throttled::full)),
    pair("LOW-OCCUPANCY", Named, Built(|| run(low_occupancy::few)), Built(|| run(low_occupancy::enough))),
    pair("LAUNCH-OPTIMIZER", Named, Labelled("launch_optimizer.slow"), Labelled("launch_optimizer.fixed")),
    pair("GRAPH-BREAKS", Named, Labelled("launch_graph_breaks.slow"), Built(|| run(launch_lines::compiled))),
    pair("INPUT-COLLATE", Named, Labelled("loader_hf_collate.slow"), Labelled("loader_hf_collate.fixed")),
    // the thread that pins is busy; it waits itself
    pair(
        "INPUT-PIN",
        Named,
        Built(|| input::with_pinning(200, input::pins)),
        Built(|| input::with_pinning(200, input::waits_for_batches)),
    ),
    // an allocation fails and is made again behind the frees; none fails
    pair(
        "ALLOC-FRAGMENTED",
        Named,
        Built(|| run(|p| memory::allocates(p, 2, 4, 0))),
        Built(|| run(|p| memory::allocates(p, 0, 4, 0))),
    ),
    pair(
        "MEMORY-GROWTH",
        Beside,
        Built(|| memory::used(|step| 10_000 + 100 * step)),
        Built(|| memory::used(|step| 10_000 + 300 * step.min(8))),
    ),
    pair("GC", Named, Labelled("host_gc.slow"), Labelled("ok_gc_frozen.slow")),
    pair("GIL", Named, Labelled("host_gil.slow"), Labelled("ok_thread.slow")),
    pair("FILE-IO", Named, Labelled("host_checkpoint.slow"), Labelled("host_checkpoint.fixed")),
    pair("LOGGING", Named, Labelled("host_log_flush.slow"), Labelled("ok_log_rarely.slow")),
    // it compiles, or runs what was compiled
    pair(
        "COMPILE",
        Named,
        Built(|| below(&[("_compile", "@/_dynamo/convert_frame.py", 9), COMPILED, PREPARE])),
        Built(|| below(&[COMPILED, PREPARE])),
    ),
    pair("CPU-STARVED", Named, Built(|| waits_for_a_cpu(900)), Built(|| waits_for_a_cpu(300))),
    // clock_nanosleep; ioctl
    pair("SLEEP", Named, Built(|| blocked(&[PREPARE], 230)), Built(|| blocked(&[PREPARE], 16))),
    // a lock of Python's; `backward()` that waits for autograd's own thread
    pair("LOCK", Named, Built(|| blocked_below(CONDITION, 202)), Built(|| blocked_below(BACKWARD, 202))),
    // recvfrom; ioctl
    pair("NETWORK", Named, Built(|| blocked(&[PREPARE], 45)), Built(|| blocked(&[PREPARE], 16))),
    pair("NATIVE-CPU", Named, Labelled("host_native.slow"), Labelled("host_native.fixed")),
    // the last allocation fails; a program that goes on behind it
    pair("OUT-OF-MEMORY", Beside, Built(|| memory::fails(0)), Built(|| memory::fails(3))),
    // kernels that convert types; kernels that copy in one type
    pair(
        "CASTS",
        Named,
        Built(|| run(|p| casts::layers(p, 20, [casts::TO_BF16, casts::TO_FLOAT]))),
        Built(|| run(|p| casts::layers(p, 20, [casts::PLAIN, casts::PLAIN]))),
    ),
    pair("GPU-BOUND", Named, Own("own_gpt_item_fixed"), Own("own_gpt_item")),
    // many small reasons; one of them alone
    pair("MIXED", Named, Built(|| run(verdicts::many_reasons)), Built(|| run(verdicts::one_reason))),
    // a server without requests; a training loop that awaits its own tasks
    pair(
        "NO-WORK",
        Named,
        Built(|| blocked(&[SELECTOR], 232)),
        Built(|| blocked(&[SELECTOR, ("BaseEventLoop._run_once", "%/asyncio/base_events.py", 1898)], 232)),
    ),
    // another process has the GPU; nobody has
    pair("INCONCLUSIVE", Named, Own("own_mlp_eager_shared"), Own("own_mlp_eager_fixed")),
];

/// A graph of `count` kernels of `ns` each, behind one of `large`.
fn graph(count: usize, ns: u64, large: u64) -> (Run, Analysis) {
    let large = (large > 0).then_some(("gemm", large));
    let nodes: Vec<_> = large.into_iter().chain((0..count).map(|i| (["a", "b", "c"][i % 3], ns))).collect();
    run(|p| p.graph(1, &nodes))
}

type Frame = (&'static str, &'static str, u32);
const COMPILED: Frame = ("_fn", "@/_dynamo/eval_frame.py", 700);
const CONDITION: Frame = ("Condition.wait", "%/threading.py", 355);
const BACKWARD: Frame = ("_engine_run_backward", "@/autograd/graph.py", 823);
const SELECTOR: Frame = ("EpollSelector.select", "%/selectors.py", 468);

fn below(inner: &[Frame]) -> (Run, Analysis) {
    standing(|p| Pose::computing(stack(p, inner)))
}

fn blocked(inner: &[Frame], syscall: u32) -> (Run, Analysis) {
    standing(|p| Pose::blocked(stack(p, inner), syscall))
}

fn blocked_below(frame: Frame, syscall: u32) -> (Run, Analysis) {
    blocked(&[frame, PREPARE], syscall)
}

fn waits_for_a_cpu(run_queue: u32) -> (Run, Analysis) {
    standing(|p| Pose { on_cpu: 1000 - run_queue, run_queue, ..Pose::computing(stack(p, &[PREPARE])) })
}

fn has_finding(a: &Analysis, cause: &str) -> bool {
    a.findings.iter().any(|f| f.cause == cause)
}

/// It is said of this recording, or would be if nothing else were.
fn accused(a: &Analysis, pair: &Pair) -> bool {
    let wins = |f: &verdict::analysis::Finding| f.unrecorded_win >= causes::NAMED_WIN;
    match pair.said {
        Beside => has_finding(a, pair.cause),
        Named => a.verdict.cause == pair.cause || a.findings.iter().any(|f| f.cause == pair.cause && wins(f)),
    }
}

#[test]
fn each_cause_has_a_recording_that_triggers_it_and_one_close_by_that_does_not() {
    let mut wrong = Vec::new();
    for c in ALL {
        let rows: Vec<&Pair> = PAIRS.iter().filter(|p| p.cause == c.name).collect();
        let [pair] = rows[..] else {
            wrong.push(format!("{} {}: {} pairs of recordings, not one", c.code, c.name, rows.len()));
            continue;
        };
        if pair.said == Beside && !c.doc().contains("beside") {
            wrong.push(format!("{}: its page does not say that it stands beside the verdict", c.name));
        }
        let (with, without) = (pair.has_it.analysis(), pair.close_by.analysis());
        let told = |a: &Analysis| {
            let others: Vec<String> =
                a.findings.iter().map(|f| format!("{} {:.3}", f.cause, f.unrecorded_win)).collect();
            format!("{} ({}) of {others:?}", a.verdict.cause, a.verdict.text())
        };
        let triggered = match pair.said {
            Named => with.verdict.cause == c.name && with.verdict.code == c.code,
            Beside => has_finding(&with, c.name) && with.verdict.cause != c.name,
        };
        if !triggered {
            wrong.push(format!("{} is not {:?} of its own recording: {}", c.name, pair.said, told(&with)));
        }
        if accused(&without, pair) {
            wrong.push(format!("{} is said of the one close by: {}", c.name, told(&without)));
        }
    }
    let gone = PAIRS.iter().filter(|p| causes::find(p.cause).is_none()).map(|p| p.cause.to_owned());
    wrong.extend(gone.map(|name| format!("{name} is no cause")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
