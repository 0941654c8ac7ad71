// SPDX-License-Identifier: Apache-2.0
//! By how much kernels take longer once the GPU no longer waits: a GPU whose average power reaches
//! its limit lowers its clock. The recording's own readings of power tell what computing draws; the
//! rest is the power limit's arithmetic.
//!
//! H200, limit 700 W (recordings of 2026-11-22, pairs of slow and mended form): bf16 matrix
//! products draw about 900 W while they run. In loops that compute a third to two thirds of the
//! time they take 7.41 to 7.48 ms a step, in the mended form 8.32 to 8.39 ms (1.12 to 1.13 times);
//! sqrt(892 W / 700 W) is 1.129. Small fp32 kernels draw about 630 W and take as long as before.

use trace::event::Gauge;
use trace::Kind;

use crate::run::{Device, Run, Span};

/// What NVML calls the power is the average of this time before (Ampere and newer), ns ...
const AVERAGED_NS: u64 = 1_000_000_000;
/// ... up to this long before it is read: the value is renewed every 100 ms. H200: what was read
/// first in programs that began between two readings fits 0.1 to 0.12 s.
const OLD_NS: u64 = 100_000_000;
/// The GPU lowers its clock this soon, ns. H200, full load after 0.2 s without (host_stall_50):
/// kernels take 1 % longer after 30 ms, 5 to 7 % after 50 to 80 ms, 10 % from 100 ms on.
const REACTS_NS: u64 = 100_000_000;
/// Kernels side by side are looked at together up to this length, ns.
const PIECE_NS: u64 = REACTS_NS / 20;
/// A window that computes less tells nothing of what computing draws.
const LEAST_BUSY: f64 = 0.1;
/// A GPU with full clocks that computes nothing draws this part of its limit at most (H200: 124 of
/// 700 W).
const IDLE_PART: f64 = 0.18;
/// Readings looked at, the newest.
const MOST_READINGS: usize = 64;
/// Beyond this no GPU was seen to go (see [`super::case::BUSIER_KERNELS`]).
const MOST_SLOWER: f64 = 1.0 + super::case::BUSIER_KERNELS;

/// Power, mW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Power {
    idle: f64,
    computing: f64,
    limit: f64,
    /// How many times as long the recorded kernels took as they would at full clocks: bursts reach
    /// the limit by themselves.
    recorded: f64,
}

impl Power {
    /// `None` where no reading tells it.
    pub(crate) fn of(run: &Run, ordinal: u32, steady: Span) -> Option<Power> {
        let of = |gauge: Gauge| {
            let fits = move |r: &&crate::run::Reading| {
                r.gauge == gauge as u32 && u32::from(r.device) == ordinal && r.value > 0
            };
            run.readings.iter().filter(fits)
        };
        let limit = of(Gauge::PowerLimitMw).next_back()?.value as f64;
        let least = of(Gauge::PowerMw).map(|r| r.value).min()? as f64;
        let idle = least.min(limit * IDLE_PART);
        let device = run.devices.iter().find(|d| d.ordinal == ordinal)?;
        let (mut above, mut busy) = (0.0f64, 0.0f64);
        for r in of(Gauge::PowerMw).rev().take(MOST_READINGS) {
            let to = r.span.end.saturating_sub(OLD_NS);
            let window = Span::new(to.saturating_sub(AVERAGED_NS), to);
            // half of it at least in the steps
            if window.clip(steady).ns() * 2 < AVERAGED_NS {
                continue;
            }
            let computed =
                kernels(device, window).iter().map(|s| s.ns()).sum::<u64>() as f64 / AVERAGED_NS as f64;
            if computed >= LEAST_BUSY {
                above += (r.value as f64 - idle).max(0.0);
                busy += computed;
            }
        }
        let mut power = Power { idle, computing: idle + above / busy.max(LEAST_BUSY), limit, recorded: 1.0 };
        power.recorded = power.recorded(&kernels(device, steady));
        (busy > 0.0).then_some(power)
    }

    /// See the field. `computing`: when any kernel ran, in order.
    fn recorded(&self, computing: &[Span]) -> f64 {
        let (mut slowed, mut all) = (0.0, 0.0);
        let (mut from, mut sum) = (0, 0);
        for s in computing {
            sum += s.ns();
            let begin = s.end.saturating_sub(REACTS_NS);
            while let Some(old) = computing.get(from).filter(|o| o.end <= begin) {
                sum -= old.ns();
                from += 1;
            }
            let before = computing.get(from).map_or(0, |o| begin.saturating_sub(o.start));
            slowed += self.slowed((sum - before) as f64 / REACTS_NS as f64) * s.ns() as f64;
            all += s.ns() as f64;
        }
        if all > 0.0 {
            slowed / all
        } else {
            1.0
        }
    }

    /// How many times as long kernels take that compute this share of the time as they take where
    /// the limit is not reached. Near the limit power goes with the square of the clock or more;
    /// the time of kernels with its inverse or less.
    fn slowed(&self, busy: f64) -> f64 {
        let asked = self.idle + busy.clamp(0.0, 1.0) * (self.computing - self.idle);
        (asked / self.limit).max(1.0).sqrt()
    }

    /// How many times as long they take, once they compute this share of the time, as was recorded.
    pub(crate) fn slower(&self, busy: f64) -> f64 {
        (self.slowed(busy) / self.recorded).clamp(1.0, MOST_SLOWER)
    }
}

/// When any kernel ran within the window, in order.
fn kernels(device: &Device, window: Span) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for stream in &device.streams {
        let from = stream.ops.partition_point(|o| o.start < window.start.saturating_sub(AVERAGED_NS));
        let inside = stream.ops.iter().skip(from).take_while(|o| o.start < window.end);
        let kernels = inside.filter(|o| o.kind == Kind::Kernel).map(|o| o.span().clip(window));
        spans.extend(kernels.filter(|s| s.ns() > 0));
    }
    spans.sort_unstable_by_key(|s| s.start);
    let mut union: Vec<Span> = Vec::new();
    for s in spans {
        let done = union.last().map_or(0, |last| last.end);
        match union.last_mut().filter(|last| s.start <= done && last.ns() < PIECE_NS) {
            Some(last) => last.end = done.max(s.end),
            None if s.end > done => union.push(Span::new(s.start.max(done), s.end)),
            None => {}
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Power = Power { idle: 124e3, computing: 900e3, limit: 700e3, recorded: 1.0 };
    const MS: u64 = 1_000_000;

    /// Kernels of `on` ms, each `every` ms.
    fn loops(on: u64, every: u64) -> Vec<Span> {
        (0..400).map(|n| Span::new(n * every * MS, (n * every + on) * MS)).collect()
    }

    #[test]
    fn what_asks_for_more_than_the_limit_takes_longer() {
        assert_eq!(H200.slower(0.5), 1.0);
        let all = H200.slower(0.98);
        assert!((all - 1.127).abs() < 0.01, "{all}");
        assert_eq!(Power { computing: 650e3, ..H200 }.slower(1.0), 1.0);
        assert_eq!(Power { computing: 5e6, ..H200 }.slower(1.0), MOST_SLOWER);
    }

    #[test]
    fn what_the_recording_took_longer_already_is_not_added_again() {
        assert_eq!(H200.recorded(&loops(4, 10)), 1.0);
        // the same share of the time, in bursts of 200 ms
        let burst =
            |n: u64| (0..50).map(move |k| Span::new((n * 500 + k * 4) * MS, (n * 500 + k * 4 + 4) * MS));
        let bursts = H200.recorded(&(0..40).flat_map(burst).collect::<Vec<_>>());
        // none for 74 ms, half of it for 26, all of it for 100
        assert!((1.07..1.085).contains(&bursts), "{bursts}");
        assert!(Power { recorded: bursts, ..H200 }.slower(1.0) < 1.06);
    }
}
