// SPDX-License-Identifier: Apache-2.0
//! Time as a tree of frames, from the outermost down: what a flame graph draws. Each node has its
//! time by `N` kinds, whose largest gives it its colour.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{json, Map, Value};

/// Frames of a stack at most; what is deeper is left out.
pub(super) const MOST_FRAMES: usize = 48;
/// Nodes at most: below ever larger shares of the whole, nodes are summed up with their parent's
/// others.
const MOST_NODES: usize = 1_200;
/// The smallest such share that is tried: one 2000th, less than half a pixel.
const FINEST_SHARE: u64 = 2_000;

/// A frame, its time by kind, ns, and what was called from it.
pub(super) struct Tree<const N: usize> {
    ns: [u64; N],
    inside: BTreeMap<String, Tree<N>>,
}

impl<const N: usize> Default for Tree<N> {
    fn default() -> Tree<N> {
        Tree { ns: [0; N], inside: BTreeMap::new() }
    }
}

impl<const N: usize> Tree<N> {
    pub(super) fn add(&mut self, kind: usize, ns: u64) {
        if let Some(sum) = self.ns.get_mut(kind) {
            *sum = sum.saturating_add(ns);
        }
    }

    /// The frame of this name inside, with so much more time.
    pub(super) fn enter(&mut self, name: String, kind: usize, ns: u64) -> &mut Tree<N> {
        let inside = self.inside.entry(name).or_default();
        inside.add(kind, ns);
        inside
    }

    /// ns by kind.
    pub(super) fn parts(&self) -> &[u64] {
        &self.ns
    }

    fn total(&self) -> u64 {
        self.ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    fn count(&self, least: u64) -> usize {
        let inside = self.inside.values().filter(|n| n.total() >= least);
        1 + inside.map(|n| n.count(least)).sum::<usize>()
    }

    fn written(&self, name: &str, key: &str, least: u64) -> Value {
        let mut inside: Vec<(&String, &Tree<N>)> =
            self.inside.iter().filter(|(_, n)| n.total() >= least).collect();
        inside.sort_by_key(|(name, n)| (Reverse(n.total()), name.as_str()));
        let inside: Vec<Value> = inside.iter().map(|(name, n)| n.written(name, key, least)).collect();
        let most = (0..N).max_by_key(|&kind| (self.ns.get(kind), Reverse(kind)));
        let mut node = json!({"name": name, "ns": self.total(), "inside": inside});
        if let Some(node) = node.as_object_mut() {
            node.insert(key.to_owned(), json!(most));
        }
        node
    }

    /// The root under this name, and what is left out of it. A node's largest kind stands under
    /// `key`.
    pub(super) fn figures(&self, name: &str, key: &str) -> Map<String, Value> {
        let all = self.total();
        let mut share = FINEST_SHARE;
        while self.count(all / share) > MOST_NODES && share > 1 {
            share /= 2;
        }
        let least = all / share;
        let mut figures = Map::new();
        figures.insert("root".to_owned(), self.written(name, key, least));
        figures.insert("left_out_below_ns".to_owned(), json!(least));
        figures.insert("nodes_left_out".to_owned(), json!(self.count(0) - self.count(least)));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_nodes_are_left_out_where_there_are_too_many() {
        let mut root = Tree::<2>::default();
        for n in 0..5_000u64 {
            let ns = 1 + n % 100;
            root.add(0, ns);
            root.enter(format!("f{n}"), 0, ns).enter("g".to_owned(), 1, ns);
        }
        let f = root.figures("all", "kind");
        let shown = f["root"]["inside"].as_array().map_or(0, Vec::len);
        assert!(shown < MOST_NODES, "{shown}");
        assert_eq!(f["root"]["ns"], 5_000 / 100 * (1..=100).sum::<u64>());
        assert_eq!(f["nodes_left_out"], 10_000 - 2 * shown);
        assert_eq!((&f["root"]["kind"], root.parts()[1]), (&json!(0), 0));
    }

    #[test]
    fn times_beyond_64_bits_are_no_reason_to_end() {
        let mut root = Tree::<1>::default();
        root.enter("a".to_owned(), 0, u64::MAX);
        root.enter("a".to_owned(), 0, 5);
        root.add(0, u64::MAX);
        assert_eq!(root.figures("all", "kind")["root"]["inside"][0]["ns"], u64::MAX);
    }
}
