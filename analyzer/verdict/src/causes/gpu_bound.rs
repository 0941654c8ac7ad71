// SPDX-License-Identifier: Apache-2.0
//! GP190 GPU-BOUND: the GPU computes nearly all the time.
//!
//! # What it means
//! There is little idle time to win back. Faster steps need faster or fewer kernels.
//!
//! # How it is recognised
//! Computing kernels run for at least 85% of the time after warm-up, and no cause of idle time is
//! worth 10% of it. Or they would without the cost of recording: the line then has both figures.
//!
//! With several GPUs no fix is worth more than what the one that computes most leaves of a step. If
//! that GPU computes 85% of the time, it is named, whatever the GPU with most idle time waits for.
//!
//! A single launch can have a quarter of all kernel time among 10 steps or more (without steps:
//! 1,000 kernels). It may be a kernel that hung, or an autotuner's trial. The line says so, and the
//! mean step is then not a typical one.
//!
//! # How sure
//! That the GPU computes is exact. The confidence is medium where:
//! - the 85% are an estimate without the cost of recording (docs/run-cost.md),
//! - another GPU is named: that this one's steps depend on it is inferred,
//! - a single launch has a quarter of all kernel time,
//! - another tool's trace is idle for more than half of its whole length, which the line says.
//!
//! Running kernels do not have to use the chip well. On Hopper and newer the line says how busy the
//! tensor cores were and how much of the memory bandwidth was used, by the device's own counters.
//! See GP103 SMALL-KERNELS, too, and use a kernel profiler for the largest ones.
//!
//! # Example
//! ```sh
//! # which lines and modules take the time, which kernels
//! gapprobe stats trace.json.gz -r gpu_lines -r gpu_modules
//! gapprobe stats trace.json.gz -r cuda_gpu_kern_sum --limit 10 --names short
//! # one step in detail
//! gapprobe report trace.json.gz
//! ```
//!
//! # What to change
//! Look at the largest kernels: lower precision (bf16, fp8), fused attention, `torch.compile`,
//! larger matrix products, less work. Where another GPU computes and this one waits: equal work for
//! both.

use std::collections::BTreeMap;

use trace::Kind;

use super::{memory_bound, Case};
use crate::analysis::{Bucket, DeviceAnalysis, Fact, Figure};
use crate::sites::Sites;

/// Stable code.
pub const CODE: &str = "GP190";
/// Name in the line.
pub const NAME: &str = "GPU-BOUND";

/// What was seen, with small kernels where there are many.
pub(super) fn seen(device: &DeviceAnalysis) -> Vec<Fact> {
    let compute = Figure::Share(device.buckets.share(Bucket::Compute));
    let mut seen = vec![Fact::new("kernels compute {compute} of the time").with("compute", compute)];
    let small = device.small.share;
    if small >= super::SMALL_SHARE {
        seen.push(Fact::new(", {small} of it in small ones, see GP103").with("small", Figure::Share(small)));
    }
    seen
}

/// How well the GPU was used meanwhile, by its own counters.
pub(super) fn used(device: &DeviceAnalysis) -> Option<Fact> {
    let counters = device.counters.as_ref()?.own()?;
    Some(
        Fact::new(", its tensor cores are {tensor} busy, {memory} of its memory bandwidth is used")
            .with("tensor", Figure::Share(counters.tensor?))
            .with("memory", Figure::Share(counters.memory?)),
    )
}

/// A line is told from this share of the GPU's work on, where at least this much of all has one.
const LARGE_SHARE: f64 = 0.1;
const KNOWN_SHARE: f64 = 0.5;

/// The line that most of the GPU's work is for, forward and backward. Where no lines are known:
/// what gapprobe cannot tell without them.
pub(super) fn largest(case: &Case) -> Option<Fact> {
    let (run, counts) = (case.run, &case.analysis.counts);
    let device = run.devices.iter().find(|d| d.ordinal == case.device.ordinal)?;
    let mut sites = Sites::new(run);
    let links = memory_bound::links(&run.definitions);
    let (mut all, mut known, mut linked) = (0u64, 0u64, 0u64);
    let mut by_line: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for op in device.streams.iter().flat_map(|s| &s.ops) {
        let ns = counts.measure(op.span());
        all = all.saturating_add(ns);
        if op.kind == Kind::Kernel && links.get(&op.a).is_some_and(|link| link.is_pointwise) {
            linked = linked.saturating_add(ns);
        }
        let work = run.origin(op).map(|origin| origin.work).unwrap_or_default();
        if let Some(line) = sites.of_kernel(work.stack) {
            known = known.saturating_add(ns);
            let [whole, backward] = by_line.entry(line).or_default();
            *whole = whole.saturating_add(ns);
            *backward = backward.saturating_add(if work.node.is_some() { ns } else { 0 });
        }
    }
    let share = |ns: u64| ns as f64 / all.max(1) as f64;
    if known == 0 && share(linked) >= memory_bound::LEAST_WIN {
        let why = if run.foreign { "lines (with_stack=True)" } else { "lines of Python" };
        return Some(
            Fact::new("{linked} of the GPU's work is elementwise operations, norms and softmaxes; which of them could be fused (GP137) cannot be told without {why}")
                .with("linked", Figure::Share(share(linked)))
                .with("why", why),
        );
    }
    let (line, [whole, backward]) = by_line.into_iter().max_by_key(|(_, [whole, _])| *whole)?;
    if share(known) < KNOWN_SHARE || share(whole) < LARGE_SHARE {
        return None;
    }
    let fact = match backward {
        0 => Fact::new("{largest} of the GPU's work is for {line}"),
        _ => Fact::new("{largest} of the GPU's work is for {line}: {forward} forward, {backward} backward")
            .with("forward", Figure::Share(share(whole.saturating_sub(backward))))
            .with("backward", Figure::Share(share(backward))),
    };
    Some(
        fact.with("largest", Figure::Share(share(whole)))
            .with("line", Figure::Site(sites.get(line)?.clone())),
    )
}

/// Another GPU than the one with most idle time computes.
pub(super) fn computes(elsewhere: super::OtherDevice) -> Fact {
    Fact::new("GPU {gpu} computes {computes} of the time")
        .with("gpu", elsewhere.ordinal)
        .with("computes", Figure::Share(elsewhere.compute))
}

/// A single launch from this share of the time in kernels on, among at least so many steps (without
/// steps: kernels), is no step's usual work: a kernel that hung, an autotuner's trial.
const LONE_SHARE: f64 = 0.25;
const LONE_STEPS: usize = 10;
const LONE_KERNELS: u64 = 1_000;

/// The single launch that much of the computing is; `None` where there is none.
pub(super) fn lone(case: &Case) -> Option<Fact> {
    let steps = case.analysis.steps.steady().len();
    if steps < LONE_STEPS && (steps > 0 || case.device.kernels < LONE_KERNELS) {
        return None;
    }
    let device = case.recorded_device()?;
    let kernels = device.streams.iter().flat_map(|s| &s.ops).filter(|o| o.kind == Kind::Kernel);
    let counted = kernels.map(|o| (case.analysis.counts.measure(o.span()), o.a));
    let (all, longest) =
        counted.fold((0u64, (0, 0)), |(all, longest), one| (all.saturating_add(one.0), longest.max(one)));
    let share = crate::analysis::share(longest.0, all);
    (share >= LONE_SHARE).then(|| {
        let name = base_name(case.run.definitions.kernel_name(longest.1));
        Fact::new(", {single} of that in a single launch of {kernel}, {longest}")
            .with("single", Figure::Share(share))
            .with("kernel", name)
            .with("longest", Figure::Time(longest.0 as f64))
    })
}

/// Name of a kernel without its namespaces, template arguments and parameters.
fn base_name(name: &str) -> &str {
    const MAX_NAME_CHARS: usize = 40;
    let end = name.find(['<', '(']).unwrap_or(name.len());
    let plain = name.get(..end).unwrap_or(name);
    let plain = plain.rsplit([':', ' ']).next().unwrap_or(plain);
    match plain {
        "" => "a kernel",
        plain => plain
            .char_indices()
            .nth(MAX_NAME_CHARS)
            .map_or(plain, |(end, _)| plain.get(..end).unwrap_or(plain)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_are_named_in_a_word() {
        let name = "void at::native::vectorized_elementwise_kernel<4, at::native::f(int)>(int)";
        assert_eq!(super::base_name(name), "vectorized_elementwise_kernel");
        assert_eq!([super::base_name("spin"), super::base_name("(x)")], ["spin", "a kernel"]);
    }
}
