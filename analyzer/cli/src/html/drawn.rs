// SPDX-License-Identifier: Apache-2.0
//! Thousands of slices as some that can be seen: what is shorter than a resolution and closer
//! together than it becomes one run. What is longer keeps its place, name and length. The
//! resolution is the finest that keeps within a bound.

use verdict::run::Span;

/// Finest resolution, ns.
const FINEST: u64 = 250;

/// A slice, or several that are drawn as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// From the begin of the first to the latest end.
    pub(super) span: Span,
    /// Time inside of the slices, ns (overlaps counted twice).
    pub(super) inside: u64,
    /// How many slices.
    pub(super) count: u32,
    /// What the longest of them is: two numbers of the caller's.
    pub(super) what: (usize, usize),
    /// Length of the longest, ns.
    longest: u64,
}

impl Item {
    /// One slice.
    pub(super) fn new(span: Span, what: (usize, usize)) -> Item {
        Item { span, inside: span.ns(), count: 1, what, longest: span.ns() }
    }

    fn join(&mut self, other: &Item) {
        self.span.end = self.span.end.max(other.span.end);
        self.inside = self.inside.saturating_add(other.inside);
        self.count += other.count;
        if other.longest > self.longest {
            (self.longest, self.what) = (other.longest, other.what);
        }
    }
}

/// The rows (each by start) with `most` items in all, if that many are enough to show a row as one;
/// and the resolution, ns, 0 where every slice is itself.
pub(super) fn thin(mut rows: Vec<Vec<Item>>, most: usize) -> (Vec<Vec<Item>>, u64) {
    let mut resolution = 0;
    while rows.iter().map(Vec::len).sum::<usize>() > most.max(rows.len()) {
        resolution = if resolution == 0 { FINEST } else { resolution * 2 };
        rows = rows.iter().map(|r| joined(r, resolution)).collect();
    }
    (rows, resolution)
}

fn joined(row: &[Item], resolution: u64) -> Vec<Item> {
    let mut out: Vec<Item> = Vec::with_capacity(row.len() / 2);
    for item in row {
        match out.last_mut() {
            Some(last)
                if last.longest < resolution
                    && item.longest < resolution
                    && item.span.start.saturating_sub(last.span.end) < resolution =>
            {
                last.join(item);
            }
            _ => out.push(*item),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_stay_as_they_are_many_become_runs_and_long_ones_stay_themselves() {
        let short = |i: u64| Item::new(Span::new(i * 1_000, i * 1_000 + 500), (i as usize % 3, 0));
        let few: Vec<Item> = (0..10).map(short).collect();
        assert_eq!(thin(vec![few.clone()], 10), (vec![few], 0));

        let mut many: Vec<Item> = (0..5_000).map(short).collect();
        many.push(Item::new(Span::new(5_000_000, 9_000_000), (7, 1)));
        let (rows, resolution) = thin(vec![many], 50);
        let row = &rows[0];
        assert!(resolution > 500 && row.len() <= 50, "{resolution} {}", row.len());
        assert_eq!(row.iter().map(|i| u64::from(i.count)).sum::<u64>(), 5_001);
        assert_eq!(row.iter().map(|i| i.inside).sum::<u64>(), 5_000 * 500 + 4_000_000);
        let long = row.last().copied().unwrap_or(row[0]);
        assert_eq!((long.count, long.what, long.span), (1, (7, 1), Span::new(5_000_000, 9_000_000)));
    }

    #[test]
    fn however_scattered_it_ends() {
        let far: Vec<Item> =
            (0..3_000).map(|i| Item::new(Span::new(i << 40, (i << 40) + (1 << 39)), (0, 0))).collect();
        let (rows, _) = thin(vec![far, Vec::new()], 1);
        assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
    }
}
