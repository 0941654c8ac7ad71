// SPDX-License-Identifier: Apache-2.0
//! Lines whose value the host needs at once, because it decides how the next kernel is launched: a
//! boolean mask, `nonzero()`, `unique()`. Nobody can read such a value later; the wait can be
//! overlapped with other work, or several be batched.
//!
//! The rule, which only speaks where the recording shows it. Of the times the program waits at this
//! line:
//! 1. the call waits for a small copy to the host, made by itself or by the call before it at the
//!    same line;
//! 2. the next launch follows within [`LAUNCH_STRETCH_NS`], on the same thread, and is always of
//!    the same kernel;
//! 3. what was launched before the wait was the same as at other times, kernels and grids ([`SAME`]
//!    launches);
//! 4. and still that kernel's grid varies: at least [`GRIDS`] different ones in at least [`TIMES`]
//!    times.
//!
//! At least half of the times must be such. A host that draws the size at random right behind the
//! wait looks the same: then no promise is made of a line that could have been moved, which harms
//! less than the contrary. Values that only decide which branch is taken, or what is fetched next,
//! leave no such trace; neither does a mask that is the same in each step.

use std::collections::{HashMap, HashSet};

use trace::call::Class;
use trace::Kind;

use crate::analysis::Fact;
use crate::gaps::{LAUNCH_STRETCH_NS, SMALL_COPY_BYTES};
use crate::run::{Call, Device, Op, Run};
use crate::sites::{Site, Sites};

/// Launches before the wait that are compared.
const SAME: usize = 4;
/// Times that make a sample.
const TIMES: usize = 8;
/// Different grids that make it vary: two can be a last, smaller batch and the others.
const GRIDS: usize = 3;
/// Calls looked at for the next launch.
const LOOK_AHEAD: usize = 8;

/// What is said of such a line.
pub(super) const HERE: Fact = Fact::new("needed: the next launch depends on the value");
/// ... of one that was just spoken of.
pub(super) const THERE: Fact = Fact::new(", needed: the next launch depends on the value");

/// The rule of the module's head.
pub(super) fn is_needed(run: &Run, device: &Device, line: &Site) -> bool {
    let first = first_ops(run, device);
    let mut sites = Sites::new(run);
    let (mut all, mut groups) = (0usize, HashMap::<(Vec<(u32, u32)>, u32), Vec<u32>>::new());
    for (t, thread) in run.threads.iter().enumerate() {
        let op = |i: usize| first.get(run.flat(t, i) as usize).copied().flatten();
        for (i, call) in
            thread.calls.iter().enumerate().filter(|(_, c)| c.class == Some(Class::Sync) || is_copy(c))
        {
            let here = sites.of(call.site).and_then(|s| sites.get(s)) == Some(line);
            if !here
                || (is_copy(call) && thread.calls.get(i + 1).is_some_and(|c| c.class == Some(Class::Sync)))
            {
                continue; // a copy with a synchronize behind it is seen there
            }
            all += 1;
            let at = if is_copy(call) { Some(i) } else { i.checked_sub(1) };
            let copied = at.filter(|&at| {
                let same =
                    |c: &Call| c.site == call.site || run.python_stack(c.site) == run.python_stack(call.site);
                thread.calls.get(at).is_some_and(same) && op(at).is_some_and(brings_value)
            });
            let next = (i + 1..=i + LOOK_AHEAD).find_map(|n| Some((thread.calls.get(n)?, kernel(op(n)?)?)));
            let (Some(at), Some((launch, next))) = (copied, next) else { continue };
            if launch.start.saturating_sub(call.end) <= LAUNCH_STRETCH_NS {
                let before = (0..at).rev().filter_map(|n| kernel(op(n)?)).take(SAME).collect();
                groups.entry((before, next.0)).or_default().push(next.1);
            }
        }
    }
    let varies =
        |grids: &&Vec<u32>| grids.len() >= TIMES && grids.iter().collect::<HashSet<_>>().len() >= GRIDS;
    let such: usize = groups.values().filter(varies).map(Vec::len).sum();
    such > 0 && such * 2 >= all
}

fn is_copy(c: &Call) -> bool {
    c.class == Some(Class::Copy)
}

/// A few bytes to the host.
fn brings_value(op: &Op) -> bool {
    let copy = op.copy();
    op.is_copy_to_host() && copy.bytes <= SMALL_COPY_BYTES
}

/// Name and grid of a kernel.
fn kernel(op: &Op) -> Option<(u32, u32)> {
    (op.kind == Kind::Kernel).then_some((op.a, op.b))
}

/// By flat call number: the first op it launched.
fn first_ops<'a>(run: &Run, device: &'a Device) -> Vec<Option<&'a Op>> {
    let mut first: Vec<Option<&Op>> = vec![None; run.threads.iter().map(|t| t.calls.len()).sum()];
    for op in device.streams.iter().flat_map(|s| &s.ops) {
        if let Some(slot) = first.get_mut(op.call as usize).filter(|s| s.is_none()) {
            *slot = Some(op);
        }
    }
    first
}
