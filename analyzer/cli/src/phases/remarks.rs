// SPDX-License-Identifier: Apache-2.0
//! What is odd about the phases, with its evidence. No remark without a figure of its own that
//! bears it out: a ratio alone accuses nobody.

use std::collections::HashMap;

use trace::Kind as Event;
use verdict::analysis::{Analysis, Finding};
use verdict::causes;
use verdict::run::{Device, Op, Run};

use super::calls::Calls;
use super::{Kind, Phases};

/// Backward computes two products where forward computes one (gradients of the input and of the
/// weights: Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1), so forward
/// takes half as long, with inputs that need no gradient as long. Twice as long as backward is far
/// above both. (H200, nothing waiting: GPTs 0.4 to 0.7, one layer on a fixed input 1.0.)
const FORWARD_FAR_ABOVE: f64 = 2.0;
/// A synchronize is worth a word where its fix wins this share of the step: below it the verdict
/// calls nothing even minor.
const LEAST_WIN: f64 = 0.05;
/// Backward is as long as this many forward passes without computing anything again: two products
/// for one, two and a half in attention (Dao 2023, "FlashAttention-2", section 3.1.2; GPTs on the
/// H200: 2.3). With full checkpointing it is one more (Chen et al. 2016, "Training Deep Nets with
/// Sublinear Memory Cost").
const BACKWARD_USUAL: f64 = 2.5;
/// Forward is computed again where at least this part of its kernels' time is run in backward by
/// the same kernels, each as often as in forward. (PyTorch programs on an H200 and a V100 without
/// checkpointing: at most 0.14.)
const LEAST_AGAIN: f64 = 0.5;

/// One sentence each.
pub(super) fn remarks(
    run: &Run,
    a: &Analysis,
    device: &Device,
    calls: &Calls,
    phases: &Phases,
) -> Vec<String> {
    let (Some(forward), Some(backward)) = (phases.get(Kind::Forward), phases.get(Kind::Backward)) else {
        return Vec::new();
    };
    let steps = phases.steps.max(1) as f64;
    let ms = |ns: u64| ns as f64 / steps / 1e6;
    let again = again(a, device, calls);
    let mut remarks = Vec::new();
    let far = forward.ns() as f64 / (backward.ns() as f64).max(1.0);
    let sync = a.findings.iter().find(|f| f.code == causes::sync::CODE && f.win.share() >= LEAST_WIN);
    if let Some(sync) = sync.filter(|f| far >= FORWARD_FAR_ABOVE && is_in_forward(run, calls, f)) {
        let site = sync.site.as_ref().map_or_else(
            || run.call(sync.call).map_or_else(String::new, |(_, c)| format!(" ({})", run.call_name(c))),
            |s| format!(" at {s}"),
        );
        remarks.push(format!(
            "forward takes {far:.1} times as long as backward ({:.2} of {:.2} ms a step idle): look at the synchronize in \
             forward{site}, without it the step would be {:.0} % shorter",
            ms(forward.idle_ns),
            ms(forward.ns()),
            sync.win.share() * 100.0
        ));
    }
    let ratio = backward.busy_ns as f64 / (forward.busy_ns as f64).max(1.0);
    if ratio > BACKWARD_USUAL && again >= LEAST_AGAIN {
        remarks.push(format!(
            "backward works {ratio:.1} times as long as forward ({:.2} to {:.2} ms a step; without computing again 2 to 2.5), \
             and the same kernels run {:.0} % of forward's work again in it: is activation checkpointing expected?",
            ms(backward.busy_ns),
            ms(forward.busy_ns),
            again * 100.0
        ));
    }
    remarks
}

/// The calls that the finding is of are made in forward.
fn is_in_forward(run: &Run, calls: &Calls, finding: &Finding) -> bool {
    run.call(finding.call).is_some_and(|(_, c)| calls.at(c.start) == Some(Kind::Forward))
}

/// The part of the time of forward's kernels that the same kernels are run for in backward again, 0
/// to 1.
fn again(a: &Analysis, device: &Device, calls: &Calls) -> f64 {
    let mut kernels: HashMap<(u32, u32), [(u64, u64); 2]> = HashMap::new();
    let counts = |op: &&Op| op.kind == Event::Kernel && a.counts.contains(op.start);
    for op in device.streams.iter().flat_map(|s| &s.ops).filter(counts) {
        let side = match calls.of(op) {
            Some(Kind::Forward) => 0,
            Some(Kind::Backward) => 1,
            _ => continue,
        };
        // the same kernel with the same grid
        let (count, ns) = &mut kernels.entry((op.a, op.b)).or_default()[side];
        *count += 1;
        *ns += op.span().ns();
    }
    let all: f64 = kernels.values().map(|k| k[0].1 as f64).sum();
    let again = kernels.values().map(|[f, b]| f.1 as f64 * (b.0 as f64 / f.0.max(1) as f64).min(1.0));
    if all > 0.0 {
        again.sum::<f64>() / all
    } else {
        0.0
    }
}
