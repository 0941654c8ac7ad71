// SPDX-License-Identifier: Apache-2.0
//! GP139 THROTTLED: heat or the power supply holds the GPU's clock down.
//!
//! # What it means
//! A GPU that gets too hot, or whose server tells it to draw less power, runs slower than it
//! could, whatever runs on it. (Reaching its own power limit is normal for a busy GPU; the
//! evidence mentions it.)
//!
//! # How it is recognised
//! By NVML's readings: in at least half of them it names heat, the power brake or a hardware
//! slowdown as what holds the clocks down, and neither the power limit nor clocks that somebody
//! set; and the SM clock is 5% or more below its maximum.
//!
//! # How sure
//! The reason is the driver's own statement. NVML reports the clock once a second, and may be a
//! tenth too high (H200 under its power cap). The prediction has kernels run at the highest clock,
//! except for the part of the time in which, by the GPU's counters, memory is at work, which does
//! not gain; without counters that part is taken to be half. The confidence is medium with
//! counters, otherwise low.
//!
//! # Example
//! ```sh
//! # what holds the clocks down, and how hot it is
//! nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER
//! ```
//!
//! # What to change
//! Nothing in the program. For heat: airflow, dust, fans, coolant, a neighbour in the rack. For a
//! power brake or hardware slowdown: power supply, cables, the server's power policy. Use another
//! machine meanwhile; in a job of many GPUs the slowest holds up all.

use trace::event::Gauge;

use super::kernels::Kernels;
use super::Case;
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding};
use crate::run::Reading;

/// Stable code.
pub const CODE: &str = "GP139";
/// Name in the line.
pub const NAME: &str = "THROTTLED";

/// NVML's bits of what is no limit of the GPU's own (nvml.h, nvmlClocksEventReason*): a hardware
/// slowdown, heat by software and by hardware, the power brake.
const HELD: u64 = 0x08 | 0x20 | 0x40 | 0x80;
/// ... and of what holds it down beside those: clocks that were set, the power limit.
const OTHERWISE: u64 = 0x02 | 0x04;
/// Fewer readings are no picture.
const LEAST: usize = 5;
/// In so many of them, and so far down.
const OFTEN: f64 = 0.5;
const DOWN: f64 = 0.95;
/// Of a kernel's time, where counters do not tell how much of it is memory's.
const UNKNOWN: f64 = 0.5;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let of = |gauge: Gauge| {
        let fits = move |r: &&Reading| {
            r.gauge == gauge as u32 && u32::from(r.device) == case.device.ordinal && r.value > 0
        };
        case.run.readings.iter().filter(fits)
    };
    let steady = case.analysis.steady;
    let within = |r: &&Reading| (steady.start..=steady.end).contains(&r.span.end);
    let mean = |gauge: Gauge| {
        let all: Vec<f64> = of(gauge).filter(within).map(|r| r.value as f64).collect();
        (all.len() >= LEAST).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let clock = mean(Gauge::SmClockMhz)?;
    let highest = of(Gauge::SmClockMaxMhz).next_back()?.value as f64;
    let is_held = |r: &&Reading| r.value & HELD != 0 && r.value & OTHERWISE == 0;
    let held = of(Gauge::ThrottleReasons).filter(within).filter(is_held).count();
    let readings = of(Gauge::SmClockMhz).filter(within).count();
    let often = held as f64 / readings.max(1) as f64;
    if often < OFTEN || clock > highest * DOWN {
        return None;
    }
    let memory = case.device.counters.and_then(|c| c.own()?.memory);
    let gains = 1.0 - memory.unwrap_or(UNKNOWN).min(1.0);
    let rest = 1.0 - (1.0 - clock / highest) * gains;
    let seen = Fact::new(
        "heat or the power supply holds the clock down in {often} of the readings: {clock} of {highest} MHz",
    )
    .with("often", Figure::Share(often))
    .with("clock", clock.round() as u64)
    .with("highest", highest as u64);
    let mut f = Kernels::named(case, 0, |_| Some(rest))?.of_device((CODE, NAME), seen)?;
    f.confidence = f.confidence.min(if memory.is_some() { Confidence::Medium } else { Confidence::Low });
    f.advice = Advice::new(
        "look at cooling and power",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER says what holds the clock down: cooling, power supply, the server's policy",
    );
    Some(f)
}
