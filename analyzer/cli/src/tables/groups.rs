// SPDX-License-Identifier: Apache-2.0
//! Values by what they belong to, and the rows most reports make of them.

use std::hash::Hash;

use foldhash::{HashMap, HashMapExt};

use super::stats::{Samples, Stats};
use super::table::{five, percent_of, row, Row};

/// Values by key.
#[derive(Debug)]
pub(super) struct Groups<K> {
    numbers: HashMap<K, usize>,
    samples: Vec<(K, Samples)>,
}

impl<K: Eq + Hash + Copy> Groups<K> {
    /// Nothing yet.
    pub(super) fn new() -> Groups<K> {
        Groups { numbers: HashMap::new(), samples: Vec::new() }
    }

    /// One more value of `key`; returns the number of the key's group, counted from 0 as they come.
    pub(super) fn add(&mut self, key: K, value: u64) -> usize {
        let number = *self.numbers.entry(key).or_insert_with(|| {
            self.samples.push((key, Samples::default()));
            self.samples.len() - 1
        });
        if let Some((_, s)) = self.samples.get_mut(number) {
            s.push(value);
        }
        number
    }

    /// The figures, by number.
    pub(super) fn stats(self) -> Vec<(K, Stats)> {
        self.samples.into_iter().filter_map(|(k, s)| Some((k, s.stats()?))).collect()
    }

    /// Rows of share, total, count, the five figures, and what `tail` says of a key; largest total
    /// first.
    pub(super) fn rows(self, mut tail: impl FnMut(K) -> Row) -> Vec<Row> {
        let stats = self.stats();
        let all: u128 = stats.iter().map(|(_, s)| s.total).sum();
        let rows = stats
            .into_iter()
            .map(|(key, s)| {
                let mut head = row![percent_of(s.total, all), s.total, s.count];
                head.extend(five(&s));
                (s.total, head, tail(key))
            })
            .collect();
        by_total(rows)
    }
}

/// Rows of (total, first cells, last cells), whole: the largest total first, equal ones in the
/// order of their last cells.
pub(super) fn by_total(mut rows: Vec<(u128, Row, Row)>) -> Vec<Row> {
    rows.sort_by(|a, b| {
        let cells = a.2.iter().zip(&b.2).map(|(a, b)| a.order(b));
        b.0.cmp(&a.0).then(cells.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then))
    });
    rows.into_iter().map(|(_, head, tail)| [head, tail].concat()).collect()
}
