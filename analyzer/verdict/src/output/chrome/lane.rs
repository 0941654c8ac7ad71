// SPDX-License-Identifier: Apache-2.0
//! Lanes: Perfetto drops a slice that begins inside another of its track and ends after it, without
//! a word. So each track has as many lanes as its slices need; a slice goes to the first one it
//! fits.

/// Lanes of a track at most. A GPU runs at most 128 kernels at a time, a thread crosses few ranges:
/// more at one moment come from damaged recordings only. They go to the last lane, where a viewer
/// drops them; without a limit they would cost time by the square of their number.
const MAX_LANES: usize = 256;

/// Lanes whose slices never touch one another (GPU work of one stream).
#[derive(Clone, Default)]
pub(super) struct Flat {
    ends: Vec<u64>,
}

impl Flat {
    /// The lane of the next slice; slices come by rising start.
    pub(super) fn place(&mut self, start: u64, end: u64) -> usize {
        let free = self.ends.iter().position(|&e| e <= start);
        let lane = free.unwrap_or(self.ends.len()).min(MAX_LANES - 1);
        match self.ends.get_mut(lane) {
            Some(e) => *e = end,
            None => self.ends.push(end),
        }
        lane
    }

    /// Lanes in use so far.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }
}

/// Lanes whose slices may stand inside one another, whole (calls and ranges of a thread).
#[derive(Clone, Default)]
pub(super) struct Nested {
    open: Vec<Vec<u64>>,
}

impl Nested {
    /// The lane of the next slice; slices come by rising start, of equal starts the longer first.
    pub(super) fn place(&mut self, start: u64, end: u64) -> usize {
        for (lane, open) in self.open.iter_mut().enumerate() {
            while open.last().is_some_and(|&e| e <= start) {
                open.pop();
            }
            if open.last().is_none_or(|&e| end <= e) {
                open.push(end);
                return lane;
            }
        }
        if self.open.len() < MAX_LANES {
            self.open.push(vec![end]);
        }
        self.open.len() - 1
    }

    /// Lanes in use so far.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_work_of_a_stream_gets_a_second_lane_and_returns_to_the_first() {
        let mut lanes = Flat::default();
        let placed: Vec<_> = [(0, 10), (10, 20), (15, 30), (20, 25), (26, 27), (30, 40)]
            .map(|(s, e)| lanes.place(s, e))
            .into();
        assert_eq!(placed, [0, 0, 1, 0, 0, 0]);
        assert_eq!(lanes.count(), 2);
    }

    #[test]
    fn nonsense_is_bounded() {
        let (mut flat, mut nested) = (Flat::default(), Nested::default());
        for i in 0..100_000 {
            assert!(flat.place(i, 1_000_000 + i) < MAX_LANES);
            assert!(nested.place(i, 1_000_000 + i) < MAX_LANES);
        }
        assert_eq!((flat.count(), nested.count()), (MAX_LANES, MAX_LANES));
    }

    #[test]
    fn calls_nest_in_one_lane_and_cross_into_another() {
        let mut lanes = Nested::default();
        let placed: Vec<_> = [(0, 100), (10, 20), (20, 100), (50, 120), (100, 110), (119, 130)]
            .map(|(s, e)| lanes.place(s, e))
            .into();
        assert_eq!(placed, [0, 0, 0, 1, 0, 0]);
        assert_eq!(lanes.count(), 2);
    }
}
