// SPDX-License-Identifier: Apache-2.0
//! Operations whose launching call is not in another tool's trace, by their correlation ids: its
//! recorder lost the call, or somebody took it out. What looks like it and is no loss:
//!
//! - what was launched before the recording began. CUPTI gives the ids of a process in the order of
//!   its calls: such an id is below that of the first launching call in the file;
//! - the last call of each thread, under way when the recording ended: its id is above all of them.
//!   More such ids than there are launching threads are none of these;
//! - a trace without launching calls: they were not asked for (`sources::NO_LAUNCHES`).
//!
//! Operations whose id is 0, or that of several kernels of one launch that is no graph's, are
//! another matter ([`take_apart`]): their calls may all be there, only which is whose is not told.

use std::collections::HashSet;

use trace::call::Class;
use trace::Kind;

use verdict::run::{Device, Op, Run, Uncalled, NONE};

/// Ids further apart than this began anew at 2^32 somewhere between: they tell no order.
const MOST_APART: u32 = 1 << 31;

/// What the ids of a process's launching calls tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    first: u32,
    last: u32,
    /// The largest id of the process, its operations among them.
    most: u32,
    /// Threads that launch.
    threads: usize,
}

/// By process. To be asked once their ids are told apart.
/// `owners`: each thread's process; `streams`: each stream's process, device and place in it.
pub(super) fn launching(
    run: &Run,
    owners: &[u32],
    streams: impl Iterator<Item = (u32, usize, usize)>,
) -> Vec<Ids> {
    let processes = owners.iter().max().map_or(0, |&p| p as usize + 1);
    let none = Ids { first: u32::MAX, last: 0, most: u32::MAX, threads: 0 };
    let mut found = vec![none; processes];
    for (t, &process) in run.threads.iter().zip(owners) {
        let Some(of) = found.get_mut(process as usize) else { continue };
        let mut ids = t.calls.iter().filter(|c| c.launches() && c.correlation != 0).map(|c| c.correlation);
        let Some(id) = ids.next() else { continue };
        (of.first, of.last) =
            ids.fold((of.first.min(id), of.last.max(id)), |(a, b), id| (a.min(id), b.max(id)));
        of.threads += 1;
    }
    if processes > 1 {
        found.iter_mut().for_each(|of| of.most = of.last);
        for (process, device, stream) in streams {
            let ops = run.devices.get(device).and_then(|d| d.streams.get(stream)).map_or(&[][..], |s| &s.ops);
            if let Some(of) = found.get_mut(process as usize) {
                of.most = ops.iter().map(|o| o.correlation).fold(of.most, u32::max);
            }
        }
    }
    found.retain(|of| of.threads > 0 && of.last - of.first < MOST_APART);
    found
}

/// Takes operations from calls that cannot be known to be theirs, and counts them.
pub(super) fn take_apart(run: &mut Run) -> Uncalled {
    let mut found = Uncalled::default();
    let shared = shared(run);
    for op in run.devices.iter_mut().flat_map(|d| &mut d.streams).flat_map(|s| &mut s.ops) {
        let is_kernel = is_single(op);
        if op.correlation == 0 && !op.is_unified() || is_kernel && shared.contains(&op.correlation) {
            op.call = NONE;
            found.unidentified += 1;
            found.unidentified_kernels += u64::from(is_kernel);
        }
    }
    found
}

/// A kernel that is no graph's.
fn is_single(op: &Op) -> bool {
    op.kind == Kind::Kernel && op.graph == 0
}

/// Ids that several kernels of one device have, and a call that launches one.
fn shared(run: &Run) -> HashSet<u32> {
    let mut again: HashSet<u32> = HashSet::new();
    for Device { streams, .. } in &run.devices {
        let kernels = streams.iter().flat_map(|s| &s.ops).filter(|o| is_single(o) && o.correlation != 0);
        let mut ids: Vec<u32> = kernels.map(|o| o.correlation).collect();
        ids.sort_unstable();
        again.extend(ids.windows(2).filter_map(|w| match w {
            [a, b] if a == b => Some(*a),
            _ => None,
        }));
    }
    if again.is_empty() {
        return again;
    }
    let calls = run.threads.iter().flat_map(|t| &t.calls);
    let launch = calls.filter(|c| c.class == Some(Class::Launch) && again.contains(&c.correlation));
    let launch: HashSet<u32> = launch.map(|c| c.correlation).collect();
    let calls = run.threads.iter().flat_map(|t| &t.calls);
    let graphs = calls.filter(|c| c.class == Some(Class::GraphLaunch)).map(|c| c.correlation);
    let graphs: HashSet<u32> = graphs.collect();
    launch.difference(&graphs).copied().collect()
}

/// What a run lacks whose operations were joined to their calls, but for those that were taken
/// apart.
pub(super) fn count(run: &Run, launching: &[Ids], apart: Uncalled) -> Uncalled {
    let mut found = apart;
    if run.unjoined == 0 {
        return found;
    }
    let shared = if apart.unidentified > 0 { shared(run) } else { HashSet::new() };
    // a call of a class that we do not know is there
    let calls = || run.threads.iter().flat_map(|t| &t.calls);
    let there: HashSet<u32> = calls().map(|c| c.correlation).collect();
    let launch: HashSet<u32> = calls().filter(|c| c.launches()).map(|c| c.correlation).collect();
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let unjoined = ops.filter(|o| o.call == NONE && o.correlation != 0);
    let unjoined = unjoined.filter(|o| !is_single(o) || !shared.contains(&o.correlation));
    let (early, without): (Vec<&Op>, Vec<&Op>) = unjoined.partition(|o| there.contains(&o.correlation));
    found.early = early.iter().filter(|o| launch.contains(&o.correlation)).count() as u64;
    for of in launching {
        let behind = |o: &Op| o.correlation > of.last && o.correlation <= of.most;
        let late: HashSet<u32> = without.iter().filter(|o| behind(o)).map(|o| o.correlation).collect();
        let under_way = late.len() <= of.threads;
        let mut lost: HashSet<u32> = HashSet::new();
        for o in &without {
            let between = o.correlation > of.first && o.correlation < of.last;
            if between || (behind(o) && !under_way) {
                lost.insert(o.correlation);
                found.ops += 1;
                found.copies += u64::from(o.kind == Kind::Memcpy);
            }
        }
        found.calls += lost.len() as u64;
    }
    found
}
