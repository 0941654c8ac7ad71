// SPDX-License-Identifier: Apache-2.0
// WARM
//! How soon the next round must come, so that no thread's ring runs over: by how fast the fullest
//! one has filled of late, and shortly where that is not known, because recording has just begun.

use crate::sources::hostpool::{FOR_RANGES, RING_EVENTS};

/// Longest pause between two rounds, ms.
const LONGEST_MS: u64 = 50;
/// ... while something is recorded, or was a moment ago: a ring holds a burst of 320,000 calls a
/// second out of nowhere. (H100: a program that had waited for a GPU that it shares lost 3,000
/// calls in a pause of 50 ms.)
const LONGEST_ON_MS: u64 = 25;
/// Pause while a ring or the pool fills quickly, ms.
pub(super) const SHORTEST_MS: u64 = 5;
/// So long after recording begins, or goes on after as long, rounds follow each other that closely,
/// ns: how fast rings fill is not known yet, and a thread that launches 230,000 times a second
/// fills its own in 36 ms (H100: windows of 60 ms lost most of their calls).
const FRESH: u64 = 250_000_000;
/// What was known of the speed is forgotten at this pace, ns: at least four windows that come one
/// after the other are as fast as the last. (H100: 80 ms of every 325 recorded, 170,000 calls a
/// second; while the speed was the last round's, a window's first pause was that of the 245 quiet
/// ms before it, and it lost a fifth of its calls.)
const MEMORY: u64 = 1_000_000_000;

#[derive(Default)]
pub(super) struct Pace {
    /// Events a second of the ring that filled fastest of late.
    speed: u64,
    on_at: u64,
    fresh_until: u64,
    /// When the rings were emptied last, and the longest time between two such times, ns.
    emptied_at: u64,
    pub(super) longest: u64,
}

impl Pace {
    /// A round at `now`, in which something is recorded.
    pub(super) fn recording(&mut self, now: u64) {
        // (a program that switches all the time tells how fast its calls come)
        if now.saturating_sub(std::mem::replace(&mut self.on_at, now)) > FRESH {
            self.fresh_until = now + FRESH;
        }
    }

    /// The rings were emptied at `now`; in the fullest lay `most` events.
    pub(super) fn emptied(&mut self, now: u64, most: u64) {
        let before = std::mem::replace(&mut self.emptied_at, now);
        if before == 0 {
            return;
        }
        let pause = now.saturating_sub(before);
        self.longest = self.longest.max(pause);
        let remembered = self.speed - self.speed / MEMORY.div_ceil(pause.max(1)).max(1);
        let filled = match most {
            full if full >= FOR_RANGES => RING_EVENTS as u64 * 1000 / SHORTEST_MS, // how much more there would have been is not known
            found => found.saturating_mul(1_000_000_000) / pause.max(1_000_000), // (a round that was woken says little)
        };
        self.speed = remembered.max(filled);
    }

    /// Until the next round, ms: such that the fullest ring is a quarter full then; between the
    /// shortest and the longest pause, from when the rings were emptied (a round that decodes much
    /// takes 14 ms: H100).
    pub(super) fn pause_ms(&self, now: u64) -> u64 {
        let spent = now.saturating_sub(self.emptied_at) / 1_000_000;
        self.between_two(now).saturating_sub(spent).max(1)
    }

    fn between_two(&self, now: u64) -> u64 {
        if now < self.fresh_until {
            return SHORTEST_MS;
        }
        let is_on = now.saturating_sub(self.on_at) < FRESH;
        let longest = if is_on { LONGEST_ON_MS } else { LONGEST_MS };
        (RING_EVENTS as u64 / 4 * 1000 / self.speed.max(1)).clamp(SHORTEST_MS, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Rounds of a thread that makes `rate` calls a second while windows are open, `open` ms of
    /// `all`: the most that a ring had to hold.
    fn most(rate: u64, open: u64, all: u64) -> u64 {
        let (mut pace, mut now, mut emptied, mut worst) = (Pace::default(), 1000 * MS, 1000 * MS, 0);
        let is_open = |t: u64| (t / MS) % all < open;
        let calls = |from: u64, to: u64| {
            (from / MS..to / MS).filter(|ms| is_open(ms * MS)).count() as u64 * rate / 1000
        };
        for _ in 0..20_000 {
            if is_open(now) {
                pace.recording(now);
            }
            let found = calls(emptied, now);
            worst = worst.max(found);
            pace.emptied(now, found.min(RING_EVENTS as u64));
            emptied = now;
            // the next round, or the beginning of the next window, which wakes the thread
            let next = now + pace.pause_ms(now) * MS;
            let opens = (now / MS + 1..next / MS).find(|ms| ms % all == 0).map(|ms| ms * MS);
            now = opens.unwrap_or(next);
        }
        worst
    }

    #[test]
    fn no_ring_is_more_than_half_full_however_windows_follow_each_other() {
        for rate in [1_000, 100_000, 170_000, 230_000, 400_000] {
            for (open, all) in [(80, 325), (20, 80), (60, 1000), (10, 240), (10, 260), (200, 5000), (1, 1)] {
                let most = most(rate, open, all);
                assert!(most <= RING_EVENTS as u64 / 2, "{rate} calls/s, {open} of {all} ms: {most}");
            }
        }
    }

    #[test]
    fn rounds_are_seldom_where_little_comes() {
        let mut pace = Pace::default();
        pace.recording(1000 * MS);
        pace.emptied(1000 * MS, 0);
        assert_eq!(pace.pause_ms(1000 * MS), SHORTEST_MS);
        assert_eq!(pace.pause_ms(1003 * MS), SHORTEST_MS - 3, "what the round took counts");
        assert_eq!(pace.pause_ms(1030 * MS), 1);
        for at in 0..200 {
            pace.recording((1000 + at * 25) * MS);
            pace.emptied((1000 + at * 25) * MS, 100);
        }
        assert_eq!(pace.pause_ms(5975 * MS), LONGEST_ON_MS);
        assert!(LONGEST_ON_MS * 320 <= RING_EVENTS as u64);
        assert_eq!(pace.longest, 25 * MS);
        // fast, and then nothing for three seconds
        pace.emptied(6000 * MS, 2048);
        pace.emptied(6010 * MS, 2048);
        assert!(pace.pause_ms(6010 * MS) <= 10);
        for at in 1..=60 {
            pace.emptied((6010 + at * 50) * MS, 0);
        }
        assert_eq!(pace.pause_ms(9010 * MS), LONGEST_MS);
    }
}
