// SPDX-License-Identifier: Apache-2.0
// HOT (`changed`: once for each node that is captured or instantiated; it faults its memory in),
// WARM (`captured`), COLD (`prepare`)
//! From which launch a node of a CUDA graph was captured. The record of a graph's kernel has the
//! correlation id of the graph's launch, which is one line of the program for all of them. But
//! CUPTI calls back for each node that a captured launch makes, during that launch, and for each
//! node of an executable graph, naming the node that it was copied from. So the node in a record
//! leads to the captured launch, whose event says that it was captured
//! (`sources/captured_launches.rs`).

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use cupti_sys::bindings::{CUgraphNode, CUpti_GraphData, CUpti_ResourceData};
use cupti_sys::{cbid, Cupti};
use trace::Loss;

use super::{arbiter, callbacks, session};
use crate::platform::{losses, memory, thread_block};

/// Nodes that are remembered: 4 MB, of which a program without graphs touches nothing. Graphs for
/// 64 batch sizes with 1,000 kernels each take half of it.
const NODES: usize = 262_144;
/// Places a node may stand at.
const WAYS: usize = 8;
/// CU_GRAPH_NODE_TYPE_KERNEL.
const KERNEL: u32 = 0;
/// No node's id.
const TAKEN: u64 = u64::MAX;

/// All-zero is free.
#[repr(C)]
struct Node {
    /// CUPTI's id; 0: none, [`TAKEN`]: being written.
    id: AtomicU64,
    /// Correlation id of the launch, below half of the id's hash: a place that changes hands while
    /// it is read tells no launch of another node.
    launch: AtomicU64,
}

static MEMORY: AtomicPtr<[Node; NODES]> = AtomicPtr::new(std::ptr::null_mut());

/// Memory for them, not touched. COLD, before the first callback.
pub(super) fn prepare() {
    if MEMORY.load(Ordering::Relaxed).is_null() {
        if let Some(memory) = memory::map(size_of::<[Node; NODES]>(), false) {
            MEMORY.store(memory.as_ptr().cast(), Ordering::Release);
        }
    }
}

fn nodes() -> Option<Nodes<'static>> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never
    // unmapped; zero is valid for all of it.
    unsafe { MEMORY.load(Ordering::Acquire).as_ref() }.map(|all| Nodes(all))
}

/// CUPTI's callback of a node that was made (in the call that makes it) or copied into an
/// executable graph; `data` is what it hands over.
///
/// # Safety
/// `data` is CUPTI's of that callback.
pub(super) unsafe fn changed(id: u32, data: *const std::ffi::c_void) {
    let (Some(session), Some(nodes)) = (session::get(), nodes()) else { return };
    if arbiter::is_finalized() {
        return;
    }
    // SAFETY: for this domain CUPTI passes a CUpti_ResourceData that lives for the callback
    // (documented; layout the same from 11.8 to 13.5, held by cupti-sys's tests).
    let Some(resource) = (unsafe { data.cast::<CUpti_ResourceData>().as_ref() }) else { return };
    // SAFETY: of these two it points to a CUpti_GraphData (as above).
    let graph = unsafe { resource.resourceDescriptor.cast::<CUpti_GraphData>().as_ref() };
    let Some(graph) = graph.filter(|graph| graph.nodeType == KERNEL) else { return };
    let number = |node| number(&session.cupti, node);
    let launch = match id {
        cbid::resource::GRAPHNODE_CLONED => number(graph.originalNode).map_or(0, |from| nodes.launch(from)),
        // (outside of windows an old id may stand there)
        _ if callbacks::are_on() => thread_block::with(|block| {
            let launch = block.outer.get();
            block.captured.set(launch != 0);
            launch
        }),
        _ => 0,
    };
    if let Some(node) = number(graph.node) {
        nodes.put(node, launch);
    }
}

fn mixed(id: u64) -> u64 {
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// CUPTI's id of a node.
fn number(cupti: &Cupti, node: CUgraphNode) -> Option<u64> {
    let mut number = 0;
    // SAFETY: a node that CUPTI has just named, and a valid out-pointer.
    let result = unsafe { cupti.get_graph_node_id?(node, &mut number) };
    (result.is_success() && ![0, TAKEN].contains(&number)).then_some(number)
}

/// The correlation id of the launch that was captured as this node; 0: none is known.
pub(super) fn captured(node: u64) -> u32 {
    nodes().filter(|_| node != 0).map_or(0, |nodes| nodes.launch(node))
}

#[derive(Clone, Copy)]
struct Nodes<'a>(&'a [Node]);

impl<'a> Nodes<'a> {
    fn places(self, id: u64) -> &'a [Node] {
        let from = mixed(id) as usize % (self.0.len() / WAYS).max(1) * WAYS;
        self.0.get(from..from + WAYS).unwrap_or(&[])
    }

    fn launch(self, id: u64) -> u32 {
        let place = self.places(id).iter().find(|node| node.id.load(Ordering::Acquire) == id);
        let launch = place.map_or(0, |node| node.launch.load(Ordering::Relaxed));
        if launch >> 32 == mixed(id) >> 32 {
            launch as u32
        } else {
            0
        }
    }

    /// Into its own place, a free one, or that of another node, which is then not known any more.
    /// (No two threads make or copy the same node.)
    fn put(self, id: u64, launch: u32) {
        let places = self.places(id);
        // (a load first: a mere look does not fault a page in)
        let taken = |node: &&Node, was| {
            let is_it = was != TAKEN && node.id.load(Ordering::Relaxed) == was;
            is_it && node.id.compare_exchange(was, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let own = places.iter().find(|node| taken(node, id));
        let place = match own {
            None if launch == 0 => return,
            None => places.iter().find(|node| taken(node, 0)),
            own => own,
        };
        let other = || {
            losses::add(Loss::CallerDropped, 1);
            places.get(id as usize % WAYS).filter(|node| taken(node, node.id.load(Ordering::Relaxed)))
        };
        let Some(place) = place.or_else(other) else { return };
        place.launch.store(mixed(id) >> 32 << 32 | u64::from(launch), Ordering::Relaxed);
        place.id.store(id, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(count: usize) -> Vec<Node> {
        (0..count).map(|_| Node { id: AtomicU64::new(0), launch: AtomicU64::new(0) }).collect()
    }

    #[test]
    fn a_node_leads_to_its_launch_until_another_takes_its_place() {
        let memory = empty(WAYS);
        let nodes = Nodes(&memory);
        let dropped = || losses::get(Loss::CallerDropped);
        let before = dropped();
        (1..=WAYS as u64).for_each(|id| nodes.put(id << 32 | id, id as u32 * 10));
        assert!((1..=WAYS as u64).all(|id| nodes.launch(id << 32 | id) == id as u32 * 10));
        assert_eq!(nodes.launch(77), 0);
        nodes.put(1 << 32 | 1, 5); // made anew
        assert_eq!((nodes.launch(1 << 32 | 1), dropped()), (5, before));
        nodes.put(1 << 32 | 1, 0); // made anew, outside of a launch
        nodes.put(78, 0); // as most nodes of a program that is not recorded: nothing to remember
        assert_eq!((nodes.launch(1 << 32 | 1), nodes.launch(78), dropped()), (0, 0, before));
        nodes.put(99, 7);
        assert_eq!((nodes.launch(99), dropped()), (7, before + 1));
        assert_eq!((1..=WAYS as u64).filter(|id| nodes.launch(id << 32 | id) != 0).count(), WAYS - 2);
    }

    #[test]
    fn of_a_place_that_changes_hands_no_launch_of_another_is_told() {
        let memory = empty(WAYS);
        let nodes = Nodes(&memory);
        let ids = 1..=64u64;
        std::thread::scope(|scope| {
            for part in 0..2 {
                let ids = ids.clone().filter(move |id| id % 2 == part);
                scope.spawn(move || {
                    (0..2000).for_each(|_| ids.clone().for_each(|id| nodes.put(id, id as u32)));
                });
            }
            for _ in 0..20_000 {
                for id in ids.clone() {
                    let launch = nodes.launch(id);
                    assert!(launch == 0 || launch == id as u32, "{id}: {launch}");
                }
            }
        });
    }
}
