// SPDX-License-Identifier: Apache-2.0
//! Kernels of CUDA graphs and the launches that they were captured from.

use std::collections::HashMap;

use trace::{KernelInfo, Kind};

use super::autograd::of_node;
use crate::run::autograd::{Captured, Work};
use crate::run::Run;

/// Gives each of them the id of that launch. The recorder defines a kernel once for each: here they
/// get one id again.
pub(super) fn find(run: &mut Run) {
    let launches: Vec<_> = run.definitions.captured_launches().map(|(id, launch)| (id, *launch)).collect();
    let mut known: HashMap<[u32; 3], u32> = HashMap::new();
    for (id, launch) in launches {
        let of = [launch.stack, launch.evaluated, launch.made];
        let work = match launch.node {
            0 => Work { stack: launch.stack, node: None },
            node => {
                let stack = *known.entry(of).or_insert_with(|| of_node(&mut run.definitions, of));
                Work { stack, node: Some(node) }
            }
        };
        run.captured.insert(id, Captured { work, site: launch.stack });
    }

    let mut kernels: Vec<(u32, &KernelInfo)> = run.definitions.kernels().collect();
    if kernels.iter().all(|(_, kernel)| kernel.captured == 0) {
        return;
    }
    kernels.sort_unstable_by_key(|(id, kernel)| (kernel.captured != 0, *id));
    let mut first: HashMap<KernelInfo, u32> = HashMap::new();
    let mut nodes: HashMap<u32, (u32, u32)> = HashMap::new();
    for (id, kernel) in kernels {
        let stands_for = *first.entry(KernelInfo { captured: 0, ..*kernel }).or_insert(id);
        if kernel.captured != 0 {
            nodes.insert(id, (stands_for, kernel.captured));
        }
    }
    let ops = run.devices.iter_mut().flat_map(|d| &mut d.streams).flat_map(|s| &mut s.ops);
    for op in ops.filter(|op| op.kind == Kind::Kernel) {
        if let Some(&(kernel, launch)) = nodes.get(&op.a) {
            op.a = kernel;
            op.captured = if op.is_graph_node() { launch } else { 0 };
        }
    }
}
