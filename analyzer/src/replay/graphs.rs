// SPDX-License-Identifier: Apache-2.0
//! [`super::Fix::Launch`]: which launches go into one graph. One for each step, cut wherever the host is needed: by a call that
//! stays, by a copy to the host or from pageable memory, and by host work that is too long to be dispatch, or that fetches data.

use super::prepare::{Item, Prepared, Role};
use super::{Fixes, CAPTURABLE_NS};

/// What becomes of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Stays as it is: no launch, or alone between two calls that stay.
    None,
    /// The launch of a graph of so many nodes.
    First(u32),
    /// A node of the graph launched before.
    Inner,
}

impl Item {
    /// The host's time before it is dispatch, or little enough to go with a graph.
    pub(super) fn may_be_captured(&self) -> bool {
        self.pace.is_none() && (!self.long || (!self.fetch && self.think <= CAPTURABLE_NS))
    }
}

/// The launches found so far for a graph.
#[derive(Clone, Default)]
struct Open {
    items: Vec<u32>,
    nodes: u32,
}

impl Prepared {
    /// By item.
    pub(super) fn graphs(&self, fixes: Fixes, at: &dyn Fn(u32) -> bool) -> Vec<Part> {
        let mut parts = vec![Part::None; self.items.len()];
        let mut open: Vec<Open> = vec![Open::default(); self.chains.max(1)];
        for (n, item) in self.items.iter().enumerate() {
            let Some(open) = open.get_mut(usize::from(item.chain)) else { continue };
            let launch = item.role == Role::Launch && !item.for_host;
            if (launch && (item.first_of_step || !item.may_be_captured()))
                || (!launch && (item.for_host || !Prepared::is_left_out(item, fixes, at)))
            {
                close(open, &mut parts);
            }
            let to = self.items.get(n + 1).map_or(self.works.len() as u32, |i| i.first_op);
            if launch && to > item.first_op {
                open.items.push(n as u32);
                open.nodes += to - item.first_op;
            }
        }
        open.iter_mut().for_each(|open| close(open, &mut parts));
        parts
    }
}

fn close(open: &mut Open, parts: &mut [Part]) {
    if open.items.len() > 1 {
        for (i, &n) in open.items.iter().enumerate() {
            if let Some(part) = parts.get_mut(n as usize) {
                *part = if i == 0 { Part::First(open.nodes) } else { Part::Inner };
            }
        }
    }
    *open = Open::default();
}
