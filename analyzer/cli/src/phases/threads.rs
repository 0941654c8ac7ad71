// SPDX-License-Identifier: Apache-2.0
//! Which threads are PyTorch's autograd engine's. It computes gradients of a GPU on a thread of its
//! own, which has no Python frames, while the thread that called `backward()` waits.

use trace::event::sample::HOLDS_GIL;
use verdict::run::{Run, Span, Thread};

use super::calls::Launch;
use super::{names, Kind};

/// PyTorch names them since 2.5 (torch/csrc/autograd/engine.cpp, `Engine::thread_init`).
const NAME: &str = "pt_autograd_";
/// A node that torch.profiler shows on its thread, before 2.0 without any other sign of the engine.
const NODE: &str = "torch::autograd::AccumulateGrad";
/// Who waits stands in one of these functions, of a file in torch/autograd/.
const WAITING: [&str; 3] = ["_engine_run_backward", "backward", "grad"];
/// Without the name: so many samples of waiting threads at least (as for all that samples say,
/// `gaps/sample_index.rs`) ...
const LEAST_SAMPLES: u32 = verdict::gaps::sample_index::LEAST_SAMPLES;
/// ... and no more than this part of them anywhere else.
const ELSEWHERE: f64 = 0.1;

/// By thread: is it the engine's? `launches`: of all threads, by begin.
pub(super) fn autograd(run: &Run, launches: &[Launch]) -> Vec<bool> {
    let mut found: Vec<bool> = run.threads.iter().map(|t| is_named(run, t)).collect();
    if found.contains(&true) {
        return found;
    }
    let mut nodes = run.threads.iter().map(|t| has_nodes(run, t));
    let launches_beside = |of: &[bool]| launches.iter().any(|l| of.get(l.thread) == Some(&false));
    found = nodes.by_ref().collect();
    if found.contains(&true) && launches_beside(&found) {
        return found;
    }
    found.fill(false);
    for (index, is) in found.iter_mut().enumerate() {
        *is = is_waited_for(run, index, launches);
    }
    found
}

fn is_named(run: &Run, thread: &Thread) -> bool {
    run.definitions.string(thread.name).is_some_and(|n| n.contains(NAME))
}

/// It has nodes of the engine that every model ends in, and nothing of a program's own.
fn has_nodes(run: &Run, thread: &Thread) -> bool {
    let of = |names: &dyn Fn(&str) -> bool| {
        thread.ranges.iter().any(|r| run.definitions.string(r.name).is_some_and(names))
    };
    of(&|n| n.starts_with(NODE)) && !of(&|n| names::kind(n).is_some_and(|k| k != Kind::Backward))
}

/// Threads with Python frames stand in `backward()` while this one, which never has any, launches.
fn is_waited_for(run: &Run, index: usize, launches: &[Launch]) -> bool {
    let Some(thread) = run.threads.get(index) else { return false };
    let python = thread.samples.iter().any(|s| s.stack != 0 || s.bits & HOLDS_GIL != 0)
        || thread.calls.iter().any(|c| run.python_stack(c.site) != 0);
    if python || thread.samples.is_empty() {
        return false;
    }
    let runs: Vec<Span> = launches
        .chunk_by(|a, b| (a.thread == index) == (b.thread == index))
        .filter(|c| c.first().is_some_and(|l| l.thread == index))
        .filter_map(|c| Some(Span::new(c.first()?.span.start, c.last()?.span.end)))
        .collect();
    let inside = |at: u64| {
        let i = runs.partition_point(|r| r.start <= at);
        i.checked_sub(1).and_then(|i| runs.get(i)).is_some_and(|r| at < r.end)
    };
    let (mut waiting, mut elsewhere) = (0u32, 0u32);
    for other in launches_and_python(run, launches) {
        for s in other.samples.iter().filter(|s| s.stack != 0 && inside(s.span.end)) {
            match waits(run, s.stack) {
                true => waiting += 1,
                false => elsewhere += 1,
            }
        }
    }
    waiting >= LEAST_SAMPLES && f64::from(elsewhere) <= ELSEWHERE * f64::from(waiting + elsewhere)
}

/// Threads that launch and have Python frames.
fn launches_and_python<'a>(run: &'a Run, launches: &[Launch]) -> impl Iterator<Item = &'a Thread> {
    let mut launching = vec![false; run.threads.len()];
    for l in launches {
        if let Some(is) = launching.get_mut(l.thread) {
            *is = true;
        }
    }
    run.threads.iter().zip(launching).filter(|(_, launches)| *launches).map(|(t, _)| t)
}

fn waits(run: &Run, stack: u32) -> bool {
    let text = |id| run.definitions.string(id).unwrap_or("");
    run.definitions.stack(stack).any(|f| {
        let function = text(f.function);
        text(f.file).contains("torch/autograd/")
            && WAITING.contains(&function.rsplit('.').next().unwrap_or(function))
    })
}
