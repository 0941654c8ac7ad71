// SPDX-License-Identifier: Apache-2.0
//! One time order over several sorted lists, without copying them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Walks several lists, each sorted by `key`, in the order of the keys (equal keys: lower list
/// first). Yields (list, position, item). O(1) a step while one list leads, O(log lists) at a
/// change.
pub struct Merge<'a, T, K: Fn(&T) -> u64> {
    lists: Vec<&'a [T]>,
    key: K,
    heads: BinaryHeap<Reverse<(u64, usize, usize)>>,
    current: Option<(u64, usize, usize)>,
}

impl<'a, T, K: Fn(&T) -> u64> Merge<'a, T, K> {
    /// Starts at the front of every list.
    pub fn new(lists: Vec<&'a [T]>, key: K) -> Merge<'a, T, K> {
        let mut heads = BinaryHeap::with_capacity(lists.len());
        for (i, list) in lists.iter().enumerate() {
            if let Some(first) = list.first() {
                heads.push(Reverse((key(first), i, 0)));
            }
        }
        let current = heads.pop().map(|h| h.0);
        Merge { lists, key, heads, current }
    }
}

impl<'a, T, K: Fn(&T) -> u64> Iterator for Merge<'a, T, K> {
    type Item = (usize, usize, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        let (_, list, at) = self.current?;
        let items: &'a [T] = self.lists.get(list).copied()?;
        let item = items.get(at)?;
        self.current = match items.get(at + 1) {
            Some(next) => {
                let mine = ((self.key)(next), list, at + 1);
                match self.heads.peek() {
                    Some(Reverse(other)) if *other < mine => {
                        let other = *other;
                        self.heads.pop();
                        self.heads.push(Reverse(mine));
                        Some(other)
                    }
                    _ => Some(mine),
                }
            }
            None => self.heads.pop().map(|h| h.0),
        };
        Some((list, at, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_out_in_one_order() {
        let (a, b, c) = (vec![1u64, 4, 4, 9], vec![], vec![0, 4, 5, 5, 20]);
        let out: Vec<u64> = Merge::new(vec![&a[..], &b, &c], |x: &u64| *x).map(|(_, _, x)| *x).collect();
        assert_eq!(out, [0, 1, 4, 4, 4, 5, 5, 9, 20]);
        let at: Vec<(usize, usize)> =
            Merge::new(vec![&a[..], &c], |x: &u64| *x).map(|(l, i, _)| (l, i)).collect();
        assert_eq!(at[..5], [(1, 0), (0, 0), (0, 1), (0, 2), (1, 1)]);
    }
}
