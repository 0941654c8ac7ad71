// SPDX-License-Identifier: Apache-2.0
//! GP102 LAUNCH: the GPU is faster than the host can launch.
//!
//! # What it means
//! The program is launch-bound. Kernels finish before the host has launched the next one. The GPU
//! waits between kernels for Python, for the framework's dispatch and for the launch call.
//!
//! # How it is recognised
//! When the GPU fell idle, the launch call of the next kernel had not returned and no blocking call
//! had drained the queue. The host took a usual time since its last launch: up to 150 µs, or 5
//! times the run's median (then at most 1 ms). Longer times are GP105 HOST. So are shorter ones in
//! which samples show a function of the program that hardly ever launches.
//! The line is the one with at least half of the stack samples (of 5 or more, about every 10 ms)
//! taken while the GPU waited for a launch. For autograd's threads it is the line that calls
//! `backward()`. If no line has half, it is a function, or a line that calls the code with at least
//! half; else none. In another tool's trace without stacks it is a named range and the operator.
//! GP114 LAUNCH-OPTIMIZER and GP115 GRAPH-BREAKS are kinds of LAUNCH.
//!
//! # How sure
//! Launch times are exact where the calls were recorded. The line rests on samples; the text says
//! on how many. The prediction is what CUDA graphs of the whole step would reach. It keeps waits,
//! host work over 2 ms, and `foreach` optimizers, which `reduce-overhead` does not capture. Parts
//! that cannot be captured (changing shapes, data-dependent control flow) win nothing. Recording
//! slows launches: LAUNCH is named only if it wins enough without that (docs/run-cost.md).
//!
//! # Example
//! ```python
//! # slow: Python launches every kernel
//! optimizer = torch.optim.AdamW(model.parameters())
//! # fixed: forward and backward are CUDA graphs, the optimizer is a few kernels
//! optimizer = torch.optim.AdamW(model.parameters(), fused=True)
//! model = torch.compile(model, mode="reduce-overhead")
//! ```
//!
//! # What to change
//! Launch less often: `torch.compile(mode="reduce-overhead")` or `torch.cuda.graph` (its optimizer
//! needs `capturable=True`), `fused=True` optimizers (else `foreach=True`), larger batches, fused
//! layers, fewer small tensor operations. In JAX: more of the step in one `jax.jit`, `lax.scan`
//! over several steps.

use super::shown::Shown;
use super::{graph_breaks, launch_optimizer, Case};
use crate::analysis::{Advice, Bucket, Confidence, Fact, Finding};
use crate::gaps::sample_index::LEAST_SAMPLES;
use crate::replay::{Fix, CAPTURABLE_NS};
use crate::run::Recorder;
use crate::timeline::buckets::NOTICED_SHARE;
use trace::Kind;

/// Stable code.
pub const CODE: &str = "GP102";
/// Name in the line.
pub const NAME: &str = "LAUNCH";
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = waits(case, (CODE, NAME))?;
    match kind(case).filter(|k| !k.leaves_too_little(&f)) {
        // it has a name of its own; what else waits has no line
        Some(kind) => (kind.part < 1.0).then(|| part_of(case, f, 1.0 - kind.part)),
        None => {
            place(case, &mut f);
            Some(f)
        }
    }
}

fn kind(case: &Case) -> Option<Shown> {
    let stood = &case.device.launch;
    if stood.samples < LEAST_SAMPLES {
        return None;
    }
    let [single, together, other] = stood.optimizer;
    let optimizer = single + together + other;
    let (code, n) = match () {
        () if optimizer * 2 >= stood.samples && single * 2 >= optimizer => {
            (launch_optimizer::CODE, optimizer)
        }
        // what it costs is not only what stands behind the break
        () if stood.falls_apart() => (graph_breaks::CODE, stood.samples),
        () => return None,
    };
    Some(Shown::new(code, n, stood.samples))
}

/// The finding where samples show that it is this kind of it, without a line ([`place`]).
pub(super) fn of_kind(case: &Case, cause: (&'static str, &'static str), advice: Advice) -> Option<Finding> {
    let kind = kind(case).filter(|k| k.code == cause.0)?;
    let all = waits(case, cause)?;
    if kind.leaves_too_little(&all) {
        return None;
    }
    let mut f = part_of(case, all, kind.part);
    f.advice = advice;
    if case.device.launch.samples < 2 * LEAST_SAMPLES {
        f.confidence = f.confidence.min(Confidence::Medium);
    }
    Some(f)
}

/// This part of a finding, 0 to 1.
fn part_of(case: &Case, all: Finding, part: f64) -> Finding {
    let f = case.finding((all.code, all.cause), all.charged * part, all.win.part(part));
    Finding { facts: all.facts, advice: all.advice, call: all.call, count: all.count, ..f }
}

/// All of the waiting for launches. The replay makes each stretch of launches one graph
/// ([`Fix::Launch`]); host stretches up to [`CAPTURABLE_NS`] (guards of a compiled region) go with
/// it, up to as much again as LAUNCH itself.
fn waits(case: &Case, cause: (&'static str, &'static str)) -> Option<Finding> {
    let share = case.share(&[Bucket::Launch]);
    if share < NOTICED_SHARE {
        return None;
    }
    // host stretches that a graph would hold too, but only where launching itself is the larger
    // part: a loop that waits 1 ms for its input in every step is not launch-bound
    let stretches = case.touches(&[Bucket::Host]).at_most(case.short_host_share(CAPTURABLE_NS).min(share));
    let win = case.win(&[Fix::Launch], case.touches(&[Bucket::Launch]).and(stretches));
    let mut f = case.finding(cause, share, win);
    f.advice = match case.run.recorder {
        Recorder::Xla => Advice::new(
            "more of the step in one jax.jit",
            "more of the step in one jax.jit (lax.scan over several steps), larger batch",
        ),
        _ => Advice::new(
            "CUDA graphs or torch.compile",
            "CUDA graphs or torch.compile(mode=\"reduce-overhead\"), fused optimizer, larger batch",
        ),
    };
    let (waiting, kernels) = (waiting(case), case.device.kernels);
    let steps = case.analysis.steps.steady().len() as u64;
    let per = |n: u64| n.saturating_add(steps / 2).checked_div(steps).unwrap_or(n);
    let wait = match steps {
        0 => Fact::new("{waiting} of {kernels} kernels wait for their launch"),
        _ => Fact::new("{waiting} of {kernels} kernels a step wait for their launch"),
    };
    f.facts.say(wait.with("waiting", per(waiting)).with("kernels", per(kernels)));
    if let Some(top) = case.top(Bucket::Launch) {
        f.call = top.flat;
        f.count = top.calls;
    }
    Some(f)
}

/// Puts the line in front of the text: that of the launching calls where they carry one, else what
/// samples show (at least half of [`LEAST_SAMPLES`] or more: line, function, or innermost line
/// above), else the named range.
pub(super) fn place(case: &Case, f: &mut Finding) {
    // (launches are all over a program: the line that has most of them may have a tenth)
    if let Some(spot) = case.spot(Bucket::Launch).filter(|spot| spot.is_most) {
        f.facts.add(spot.rest());
        f.count = spot.calls;
        return spot.into(f);
    }
    if let Some(site) = case.below(Bucket::Launch) {
        f.facts.say(Fact::new(", most of them launched below it"));
        return f.place(site);
    }
    let stood = &case.device.launch;
    let there = stood.site.as_ref().map(|s| (s, Fact::new("{there} of {samples} samples there")));
    let below = || Some((stood.below.as_ref()?, Fact::new("{there} of {samples} samples below it")));
    if let Some(((site, n), samples)) = there.or_else(below) {
        f.facts.say(samples.with("there", *n).with("samples", stood.samples));
        f.place(site.clone());
    }
    case.name_by_range(f, Bucket::Launch);
}

/// Kernels of the steady span in front of which the GPU was idle until they were launched.
fn waiting(case: &Case) -> u64 {
    let device = case.device;
    let Some(index) = case.run.devices.iter().position(|d| d.ordinal == device.ordinal) else { return 0 };
    let slices = device.slices.iter().filter(|s| s.bucket == Bucket::Launch);
    let mut last = None;
    let mut count = 0;
    for s in slices.filter(|s| case.analysis.counts.measure(s.span()) > 0) {
        let this = (s.after_stream, s.after);
        let op = case.run.op(index, s.after_stream, s.after).filter(|o| o.kind == Kind::Kernel);
        // one gap may have several slices; an operation behind the span is not among its kernels
        let counts = op.is_some_and(|o| case.analysis.counts.contains(o.start)) && last != Some(this);
        count += u64::from(counts);
        last = Some(this);
    }
    count
}
