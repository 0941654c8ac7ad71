// SPDX-License-Identifier: Apache-2.0
// WARM
//! Launches that were captured as nodes of CUDA graphs: where each was called, and of which node of
//! PyTorch's backward pass it was. Their kernels run when the events of the capture may be gone
//! from the recording, so this is part of a kernel's definition, and launches that are alike in it
//! share one.
//!
//! A launch's event says that it was captured. The node that was evaluated meanwhile, an event of
//! its thread, comes behind it; what made that node has come before.

use std::collections::{HashMap, VecDeque};

use trace::define::CapturedLaunch;
use trace::event::{CAPTURED, IN_NODE};
use trace::{Event, Loss};

use crate::platform::losses;
use crate::store::Store;

/// Launches remembered: as many as nodes are (`cupti/graph_nodes.rs`).
const MOST: usize = 262_144;
/// Launches that wait for their node's event at most: the first pass of a checkpoint that is
/// computed again is within one.
const MOST_IN_NODES: usize = 16_384;
/// Nodes of the forward pass remembered (16 bytes each): until the backward pass of their step,
/// which evaluates them in another order.
const MADE: usize = 65_536;

/// Belongs to the drain thread.
#[derive(Default)]
pub(crate) struct CapturedLaunches {
    /// By correlation id.
    known: HashMap<u32, CapturedLaunch>,
    /// Their ids, the oldest first.
    order: VecDeque<u32>,
    /// Thread, begin and id of those whose node's event has not come.
    in_nodes: VecDeque<(u32, u64, u32)>,
    made: Made,
}

/// Stacks of nodes, each at the place of its number; empty before the first.
#[derive(Default)]
struct Made(Vec<(u64, u32)>);

/// A node by its number and PyTorch's number of the thread that made it: no node is 0 (see
/// `torch::Nodes`).
fn key(event: &Event) -> u64 {
    u64::from(event.correlation) << 32 | u64::from(event.b)
}

impl Made {
    fn put(&mut self, key: u64, stack: u32) {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); MADE]; // (zeroed memory: what is not used is not touched)
        }
        if let Some(place) = self.0.get_mut(key as usize % MADE) {
            *place = (key, stack);
        }
    }

    fn stack(&self, key: u64) -> u32 {
        let place = self.0.get(key as usize % MADE);
        place.filter(|(known, _)| *known == key).map_or(0, |(_, stack)| *stack)
    }
}

impl CapturedLaunches {
    /// A call of this thread, which has the id of its stack.
    pub(crate) fn launched(&mut self, tid: u32, event: &Event) {
        if event.flags & CAPTURED == 0 {
            return;
        }
        let id = event.correlation;
        let launch = CapturedLaunch { stack: event.c, ..CapturedLaunch::default() };
        if self.known.insert(id, launch).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MOST {
            self.order.pop_front().and_then(|oldest| self.known.remove(&oldest));
            losses::add(Loss::CallerDropped, 1);
        }
        if event.flags & IN_NODE != 0 {
            self.in_nodes.push_back((tid, event.start, id));
            if self.in_nodes.len() > MOST_IN_NODES {
                self.in_nodes.pop_front();
                losses::add(Loss::CallerDropped, 1);
            }
        }
    }

    /// A node of PyTorch's was made: a [`trace::Kind::ForwardNode`].
    pub(crate) fn made(&mut self, event: &Event) {
        self.made.put(key(event), event.c);
    }

    /// This thread has evaluated a node: a [`trace::Kind::BackwardNode`]. (Of nodes within each
    /// other the innermost comes first.)
    pub(crate) fn evaluated(&mut self, tid: u32, event: &Event) {
        if self.in_nodes.is_empty() {
            return;
        }
        let (known, made) = (&mut self.known, self.made.stack(key(event)));
        self.in_nodes.retain(|(thread, start, id)| {
            let is_of_it = *thread == tid && (event.start..event.end).contains(start);
            if let Some(launch) = known.get_mut(id).filter(|_| is_of_it) {
                (launch.node, launch.evaluated, launch.made) = (event.a, event.c, made);
            }
            !is_of_it
        });
    }

    /// Id of the definition of the launch with this correlation id; 0: nothing is known of it, or
    /// there is no room.
    pub(crate) fn definition(&mut self, launch: u32, store: &mut Store) -> u32 {
        let known = self.known.get(&launch).filter(|known| known.stack | known.node != 0);
        let Some(launch) = known else { return 0 };
        store.captured(*launch).unwrap_or_else(|| {
            losses::add(Loss::CallerDropped, 1);
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Kind;

    fn launch(id: u32, start: u64, flags: u8) -> Event {
        Event { correlation: id, flags, c: 100 + id, ..Event::new(Kind::Call, start, start + 5) }
    }

    fn node(kind: Kind, (start, end): (u64, u64), number: u32, stack: u32, name: u32) -> Event {
        Event { correlation: 1, a: name, b: number, c: stack, ..Event::new(kind, start, end) }
    }

    #[test]
    fn a_captured_launch_has_its_stack_and_the_innermost_node_around_it() {
        let mut all = CapturedLaunches::default();
        all.made(&node(Kind::ForwardNode, (1, 1), 41, 7, 0));
        all.made(&node(Kind::ForwardNode, (2, 2), 42, 8, 0));
        all.launched(5, &launch(1, 10, CAPTURED));
        all.launched(5, &launch(2, 11, 0));
        for (id, tid, at) in [(3, 6, 21), (4, 6, 31), (5, 6, 41), (6, 7, 31)] {
            all.launched(tid, &launch(id, at, CAPTURED | IN_NODE));
        }
        all.evaluated(6, &node(Kind::BackwardNode, (30, 40), 42, 0, 90));
        all.evaluated(6, &node(Kind::BackwardNode, (20, 50), 41, 77, 91));
        all.evaluated(6, &node(Kind::BackwardNode, (10, 60), 42, 78, 92));
        let of = |id| {
            all.known
                .get(&id)
                .map(|CapturedLaunch { stack, node, evaluated, made }| [*stack, *node, *evaluated, *made])
        };
        assert_eq!(of(1), Some([101, 0, 0, 0]));
        assert_eq!(of(2), None);
        assert_eq!(of(3), Some([103, 91, 77, 7]));
        assert_eq!(of(4), Some([104, 90, 0, 8]));
        assert_eq!(of(5), Some([105, 91, 77, 7]));
        assert_eq!(of(6), Some([106, 0, 0, 0]), "another thread's node");
        assert_eq!(all.in_nodes, [(7, 31, 6)]);
    }

    #[test]
    fn of_too_many_the_oldest_are_dropped_and_counted() {
        let (mut all, most) = (CapturedLaunches::default(), MOST as u32);
        let before = losses::get(Loss::CallerDropped);
        (1..=most + 3).for_each(|id| all.launched(5, &launch(id, u64::from(id), CAPTURED)));
        assert_eq!((all.known.len(), all.order.len()), (MOST, MOST));
        assert!(!all.known.contains_key(&3) && all.known.contains_key(&4));
        assert!(losses::get(Loss::CallerDropped) >= before + 3);
    }
}
