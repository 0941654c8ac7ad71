// SPDX-License-Identifier: Apache-2.0
//! Kernels of CUDA graphs and the launches that they were captured from.

use std::collections::HashMap;

use trace::call::Class;
use trace::{KernelInfo, Kind};

use crate::run::{Run, NONE};

/// A launch that may have been captured.
struct Launch {
    start: u64,
    flat: u32,
}

/// Gives each of them the number of that launch, whose correlation id is in its definition. The
/// recorder defines a kernel once for each node: here they get one id again.
pub(super) fn find(run: &mut Run) {
    let nodes = nodes(run);
    if nodes.is_empty() {
        return;
    }
    let launches = launches(run, &nodes);
    for op in run.devices.iter_mut().flat_map(|d| &mut d.streams).flat_map(|s| &mut s.ops) {
        let Some(&(kernel, launch)) = nodes.get(&op.a).filter(|_| op.kind == Kind::Kernel) else { continue };
        op.a = kernel;
        if op.is_graph_node() {
            let of = launches.get(&launch).map_or(&[][..], |l| l);
            let before = of.partition_point(|l| l.start <= op.start).checked_sub(1);
            op.captured = before.and_then(|n| of.get(n)).map_or(NONE, |l| l.flat);
        }
    }
}

/// By the id of a node's definition: the id that stands for its kernel, and the launch.
fn nodes(run: &Run) -> HashMap<u32, (u32, u32)> {
    let mut kernels: Vec<(u32, &KernelInfo)> = run.definitions.kernels().collect();
    if kernels.iter().all(|(_, kernel)| kernel.captured == 0) {
        return HashMap::new();
    }
    kernels.sort_unstable_by_key(|(id, kernel)| (kernel.captured != 0, *id));
    let mut first: HashMap<KernelInfo, u32> = HashMap::new();
    let mut nodes = HashMap::new();
    for (id, kernel) in kernels {
        let stands_for = *first.entry(KernelInfo { captured: 0, ..*kernel }).or_insert(id);
        if kernel.captured != 0 {
            nodes.insert(id, (stands_for, kernel.captured));
        }
    }
    nodes
}

/// By correlation id, in order of time: launches of kernels that ran nothing themselves.
fn launches(run: &Run, nodes: &HashMap<u32, (u32, u32)>) -> HashMap<u32, Vec<Launch>> {
    let mut launches: HashMap<u32, Vec<Launch>> = nodes.values().map(|node| (node.1, Vec::new())).collect();
    for (thread, &base) in run.threads.iter().zip(&run.call_base) {
        let calls = thread.calls.iter().zip(0u32..).filter(|(c, _)| c.class == Some(Class::Launch));
        for (call, n) in calls {
            if let Some(of) = launches.get_mut(&call.correlation) {
                of.push(Launch { start: call.start, flat: base.saturating_add(n) });
            }
        }
    }
    for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
        if let Some(of) = launches.get_mut(&op.correlation).filter(|_| !op.is_graph_node()) {
            of.retain(|l| l.flat != op.call);
        }
    }
    for of in launches.values_mut() {
        of.sort_unstable_by_key(|l| l.start);
    }
    launches
}
