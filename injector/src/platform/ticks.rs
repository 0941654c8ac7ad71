// SPDX-License-Identifier: Apache-2.0
// HOT (keeping the line: WARM)
//! The same clock as `clock::monotonic`, read at about half its cost, for what the program's
//! threads stamp.
//!
//! The kernel's clock_gettime is the CPU's time stamp counter and a line through it, behind a fence
//! and a lock's count: 24 to 35 ns. Here the drain thread keeps a line of its own, measured against
//! the kernel's clock in each of its rounds (5 to 50 ms), and a reader takes the counter (11.5 ns)
//! and the line. Only where the kernel itself goes by that counter, which it does if it is the same
//! on all cores and never stops; a line that is off by more than [`WORST`] when it is measured is
//! thrown away, one that was not measured for [`HOLDS`] is not used. Then, and before there is one,
//! it is the kernel's clock that is read.
//!
//! The line never steps: a new one begins where the old one is and turns towards the kernel's
//! clock. So stamps by lines never run backward; from a line to the kernel's clock they may, by
//! what the line is off, [`WORST`] at most. How far that is: `tests::it_is_the_kernels_clock`.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__cpuid, _rdtsc};

use crate::platform::clock;
use crate::ring::latest::{Latest, WORDS};

/// How far a line may be off when it is measured, ns: more is a clock that was set about, or a
/// machine that moved.
const WORST: u64 = 1_000;
/// How long a line is used, ns: twenty rounds.
const HOLDS: u64 = 1_000_000_000;
/// What a line is off is made good in this time, ns: two rounds at the longest. A rate that the
/// kernel changes by 5 millionths, more than a clock that is disciplined usually needs, is half a
/// microsecond off until it is learnt; faster turns end the line.
const TURNS: u64 = 100_000_000;
/// The rate is measured over at least this, ns, and at most four times as much.
const BASE: u64 = 250_000_000;
/// A reading of both clocks that took longer says nothing, ns.
const SLOWEST_PAIR: u64 = 1_000;
/// Fraction bits of [`Line`]'s slope.
const FRACTION: u32 = 32;

/// CLOCK_MONOTONIC, ns.
#[inline]
pub(crate) fn now() -> u64 {
    LINE.read().and_then(|words| Line::of(words).at(counter())).unwrap_or_else(clock::monotonic)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: an instruction that every x86-64 processor has; the kernel's clock uses it too (no
    // line without: `is_usable`).
    unsafe { _rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> u64 {
    0
}

/// Written by one thread at a time: the recorder's lock is held.
static LINE: Latest = Latest::new();

/// From the counter to ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Line {
    from: u64,
    ns: u64,
    /// ns a tick, with [`FRACTION`] bits behind the point.
    slope: u64,
    /// Ticks from `from` on for which it holds; 0: there is no line.
    holds: u64,
}

impl Line {
    #[inline]
    fn of([from, ns, slope, holds]: [u64; WORDS]) -> Line {
        Line { from, ns, slope, holds }
    }

    #[inline]
    fn at(&self, counter: u64) -> Option<u64> {
        // a counter a little behind (another core took it before the line was written) is far ahead
        // here
        let ticks = counter.wrapping_sub(self.from);
        (ticks < self.holds)
            .then(|| self.ns.wrapping_add(((u128::from(ticks) * u128::from(self.slope)) >> FRACTION) as u64))
    }
}

/// A reading of both clocks: the counter, and the kernel's ns.
type Pair = (u64, u64);

/// Keeps the line; belongs to the recorder.
#[derive(Default)]
pub(crate) struct Keeper {
    /// May there be a line? Asked once.
    usable: Option<bool>,
    /// The rate is measured from `base`, and later from `next`.
    base: Option<Pair>,
    next: Option<Pair>,
    drawn: Line,
}

impl Keeper {
    /// Measures the line and draws it anew. Once a round.
    pub(crate) fn keep(&mut self) {
        if !*self.usable.get_or_insert_with(is_usable) {
            return;
        }
        if let Some(pair) = read_pair() {
            let new = self.next_line(pair);
            if new != self.drawn {
                self.drawn = new;
                LINE.write([new.from, new.ns, new.slope, new.holds]);
            }
        }
    }

    /// The line from this reading on.
    fn next_line(&mut self, (counter, ns): Pair) -> Line {
        let base = *self.base.get_or_insert((counter, ns));
        let (ticks, span) = (counter.wrapping_sub(base.0), ns.saturating_sub(base.1));
        if span < BASE {
            return self.drawn;
        }
        let slope = ((u128::from(span) << FRACTION) / u128::from(ticks.max(1))) as u64;
        let holds = ((u128::from(HOLDS) << FRACTION) / u128::from(slope.max(1))) as u64;
        // from here the rate is measured next, so that it is of the last second
        if span >= 2 * BASE {
            let next = *self.next.get_or_insert((counter, ns));
            if ns.saturating_sub(next.1) >= 2 * BASE {
                (self.base, self.next) = (Some(next), Some((counter, ns)));
            }
        }
        let Some(told) = self.drawn.at(counter) else {
            return Line { from: counter, ns, slope, holds };
        };
        if told.abs_diff(ns) > WORST {
            *self = Keeper { usable: self.usable, base: Some((counter, ns)), ..Keeper::default() };
            return self.drawn; // none
        }
        // at most a thousandth of a percent of the rate
        let turn = i128::from(ns) - i128::from(told);
        let slope = i128::from(slope) + i128::from(slope) * turn / i128::from(TURNS);
        Line { from: counter, ns: told, slope: slope as u64, holds }
    }
}

/// Both clocks at one moment: the closest of three readings. `None` where each was interrupted.
fn read_pair() -> Option<Pair> {
    let one = |_| {
        let (begin, before) = (clock::monotonic(), counter());
        let ns = clock::monotonic();
        let (after, end) = (counter(), clock::monotonic());
        (end.saturating_sub(begin), (before.wrapping_add(after.wrapping_sub(before) / 2), ns))
    };
    let (took, pair) = (0..3).map(one).min_by_key(|(took, _)| *took)?;
    (took <= SLOWEST_PAIR).then_some(pair)
}

/// Does the kernel go by the counter, and does that never stop? COLD.
#[cfg(target_arch = "x86_64")]
fn is_usable() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let cpuid = |leaf| __cpuid(leaf);
    cpuid(0x8000_0000).eax >= POWER
        && cpuid(POWER).edx & INVARIANT != 0
        && std::fs::read(SOURCE).is_ok_and(|name| name.trim_ascii() == b"tsc")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_usable() -> bool {
    false
}

#[cfg(test)]
mod tests;
