// SPDX-License-Identifier: Apache-2.0
// WARM
//! Launches that were captured as nodes of CUDA graphs: where each was called, and of which node of
//! PyTorch's backward pass it was. Their kernels run when the events of the capture may be gone
//! from the recording, so this is part of a kernel's definition, and launches that are alike in it
//! share one.
//!
//! A launch's event says that it was captured. The node that was evaluated meanwhile, an event of
//! its thread, comes behind it: until then nothing is said of the launch. What made that node is an
//! event of another thread, which may be drained later.

use std::collections::{HashMap, VecDeque};

use trace::define::CapturedLaunch;
use trace::event::{CAPTURED, IN_NODE};
use trace::{Event, Loss};

use crate::platform::losses;
use crate::store::Store;

/// Launches remembered (some 80 bytes each): half as many as nodes (`cupti/graph_nodes.rs`), for
/// each has one that was captured and one that is played.
const MOST: usize = 131_072;
/// So many are looked at for one that was never played.
const LOOKS: usize = 8;
/// Launches that wait for their node's event at most: torch.compile's backward pass is one node.
const MOST_IN_NODES: usize = 16_384;
/// They wait for so long, ns: the event of a node that throws never comes.
const LONGEST: u64 = 60_000_000_000;
/// Nodes of the forward pass remembered (16 bytes each): until the backward pass of their step,
/// which evaluates them in another order.
const MADE: usize = 65_536;

/// Belongs to the drain thread.
#[derive(Default)]
pub(crate) struct CapturedLaunches {
    /// By correlation id.
    known: HashMap<u32, Known>,
    /// Their ids, the oldest first.
    order: VecDeque<u32>,
    /// Thread, begin and id of those whose node's event has not come.
    in_nodes: VecDeque<(u32, u64, u32)>,
    made: Made,
}

/// What is known of a launch.
struct Known {
    launch: CapturedLaunch,
    /// The node that was evaluated, as [`Made`] has it; 0: none was.
    node: u64,
    stands: Stands,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// No kernel of it was seen.
    Unused,
    /// Its node's event has not come.
    InNode,
    /// It has this definition; 0: there is nothing to say, or no room.
    Defined(u32),
}

/// Stacks of nodes, each at a place that its number and thread make; empty before the first.
#[derive(Default)]
struct Made(Vec<(u64, u32)>);

/// A node by its number and PyTorch's number of the thread that made it: no node is 0 (see
/// `torch::Nodes`).
fn key(event: &Event) -> u64 {
    u64::from(event.correlation) << 32 | u64::from(event.b)
}

impl Made {
    /// (Each thread counts from 0.)
    fn place(key: u64) -> usize {
        let (thread, number) = ((key >> 32) as u32, key as u32);
        number.wrapping_add(thread.wrapping_mul(0x9e37_79b1)) as usize % MADE
    }

    fn put(&mut self, key: u64, stack: u32) {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); MADE]; // (zeroed memory: what is not used is not touched)
        }
        if let Some(place) = self.0.get_mut(Made::place(key)) {
            *place = (key, stack);
        }
    }

    fn stack(&self, key: u64) -> u32 {
        let place = self.0.get(Made::place(key));
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
        let is_in_node = event.flags & IN_NODE != 0;
        let stands = if is_in_node { Stands::InNode } else { Stands::Unused };
        if self.known.insert(id, Known { launch, node: 0, stands }).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MOST {
            self.forget_one();
        }
        if is_in_node {
            self.in_nodes.push_back((tid, event.start, id));
            if self.in_nodes.len() > MOST_IN_NODES {
                if let Some((_, _, id)) = self.in_nodes.pop_front() {
                    self.give_up(id);
                }
            }
        }
    }

    /// Of the oldest the first that nobody has played, else the next.
    fn forget_one(&mut self) {
        let stands = |id| self.known.get(&id).map(|known| known.stands);
        for _ in 0..LOOKS {
            let oldest = self.order.front().copied();
            if !matches!(oldest.and_then(stands), Some(Stands::Defined(1..))) {
                break;
            }
            self.order.rotate_left(1);
        }
        self.order.pop_front().and_then(|oldest| self.known.remove(&oldest));
        losses::add(Loss::CallerDropped, 1);
    }

    /// Its node's event does not come.
    fn give_up(&mut self, id: u32) {
        let waits = |known: &&mut Known| known.stands == Stands::InNode;
        if let Some(known) = self.known.get_mut(&id).filter(waits) {
            known.stands = Stands::Defined(0);
            losses::add(Loss::CallerDropped, 1);
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
        while let Some(&(_, _, id)) = self.in_nodes.front().filter(|w| w.1 + LONGEST < event.start) {
            self.in_nodes.pop_front();
            self.give_up(id);
        }
        let (known, node) = (&mut self.known, key(event));
        let made = self.made.stack(node);
        self.in_nodes.retain(|(thread, start, id)| {
            let is_of_it = *thread == tid && (event.start..event.end).contains(start);
            if let Some(known) = known.get_mut(id).filter(|_| is_of_it) {
                let launch = &mut known.launch;
                (launch.node, launch.evaluated, launch.made) = (event.a, event.c, made);
                (known.node, known.stands) = (node, Stands::Unused);
            }
            !is_of_it
        });
    }

    /// Id of the definition of the launch with this correlation id (0: none); 0: nothing is known
    /// of it now, or there is no room.
    pub(crate) fn definition(&mut self, launch: u32, store: &mut Store) -> u32 {
        let Some(known) = self.known.get_mut(&launch).filter(|_| launch != 0) else { return 0 };
        match known.stands {
            Stands::InNode => 0,
            Stands::Defined(id) => id,
            Stands::Unused => {
                let launch = &mut known.launch;
                if launch.made == 0 && known.node != 0 {
                    launch.made = self.made.stack(known.node);
                }
                let id = match launch.stack | launch.node {
                    0 => 0,
                    _ => store.captured(*launch).unwrap_or_else(|| {
                        losses::add(Loss::CallerDropped, 1);
                        0
                    }),
                };
                known.stands = Stands::Defined(id);
                id
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::image::Image;
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
            all.known.get(&id).map(
                |Known { launch: CapturedLaunch { stack, node, evaluated, made }, .. }| {
                    [*stack, *node, *evaluated, *made]
                },
            )
        };
        assert_eq!(of(1), Some([101, 0, 0, 0]));
        assert_eq!(of(2), None);
        assert_eq!(of(3), Some([103, 91, 77, 7]));
        assert_eq!(of(4), Some([104, 90, 0, 8]));
        assert_eq!(of(5), Some([105, 91, 77, 7]));
        assert_eq!(of(6), Some([106, 0, 0, 0]), "another thread's node");
        assert_eq!(all.in_nodes, [(7, 31, 6)]);
    }

    /// Its node's event is on its way; what made the node is drained later still.
    #[test]
    fn nothing_is_said_of_a_launch_before_its_node_is_known() {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let mut all = CapturedLaunches::default();
        all.launched(6, &launch(3, 21, CAPTURED | IN_NODE));
        assert_eq!(all.definition(3, &mut store), 0);
        all.evaluated(6, &node(Kind::BackwardNode, (20, 50), 41, 77, 91));
        all.made(&node(Kind::ForwardNode, (1, 1), 41, 7, 0));
        let id = all.definition(3, &mut store);
        assert!(id != 0 && all.definition(3, &mut store) == id);
        let launch = CapturedLaunch { stack: 103, node: 91, evaluated: 77, made: 7 };
        assert_eq!(store.captured(launch), Some(id));
    }

    /// Each thread has its own numbers.
    #[test]
    fn nodes_of_two_threads_do_not_take_each_others_places() {
        let mut made = Made::default();
        let key = |thread: u64, number: u64| thread << 32 | number;
        (0..20_000).for_each(|n| made.put(key(1, n), n as u32));
        (0..20_000).for_each(|n| made.put(key(2, n), n as u32));
        assert!((0..20_000).all(|n| made.stack(key(1, n)) == n as u32 && made.stack(key(2, n)) == n as u32));
    }

    /// A node that throws leaves no event.
    #[test]
    fn a_launch_whose_node_never_ends_is_given_up_and_counted() {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let (mut all, before) = (CapturedLaunches::default(), losses::get(Loss::CallerDropped));
        all.launched(6, &launch(3, 21, CAPTURED | IN_NODE));
        let late = LONGEST + 100;
        all.evaluated(6, &node(Kind::BackwardNode, (late, late + 1), 41, 77, 91));
        assert_eq!((all.in_nodes.len(), all.definition(3, &mut store)), (0, 0));
        assert!(losses::get(Loss::CallerDropped) > before);
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
