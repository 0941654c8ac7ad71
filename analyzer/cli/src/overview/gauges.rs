// SPDX-License-Identifier: Apache-2.0
//! What the device says of itself (NVML) beside what it did: "100 % utilised" may be a device that
//! waits, and clocks may be held down. Memory that grows step by step is in the verdict's own words
//! (`causes/memory_growth.rs`); here for programs. Of recordings that have readings; others say
//! nothing here.

use serde_json::{json, Value};
use trace::event::Gauge;

use verdict::analysis::{peaks, Analysis, Counters, DeviceAnalysis};
use verdict::causes::memory::Growth;
use verdict::run::{Reading, Run, Span};

/// Fewer readings than this are no picture.
const LEAST: usize = 5;
/// NVML's utilisation from here on reads as "the GPU is full".
const FULL_PCT: f64 = 90.0;
/// ... and is not what ran where it is so much above the share of the time in which anything did,
/// percent.
const FAR_ABOVE: f64 = 20.0;
/// A device that is full and draws less than this part of its limit is not.
const LOW_POWER: f64 = 0.5;
/// The share of the time with a kernel running is worth setting against the utilisation below this.
const NOT_FULL: f64 = 0.9;
/// A reason for low clocks in this share of the readings is named.
const OFTEN: f64 = 0.1;
/// A pipe that is at work less is not named.
const AT_WORK: f64 = 0.1;
/// A link with less traffic is not named, bytes a second.
const FAST: f64 = 1e9;
/// NVML's bits that hold clocks down although there is work; the numbers are NVML's ABI (nvml.h,
/// nvmlClocksEventReason*).
const REASONS: [(u64, &str); 5] = [
    (0x04, "the power cap"),
    (0x20, "heat (software)"),
    (0x40, "heat (hardware)"),
    (0x80, "the power brake"),
    (0x08, "a hardware slowdown"),
];

/// Why a device that has counters has none here, and the first of those that do (Hopper).
const TOO_SHORT: &str = "no whole second of the steps that count was read; a longer run has them";
const HAS_COUNTERS: u32 = 9;

/// Means over the steady state; `None`: no readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Gauges {
    /// NVML's GPU utilisation, percent.
    utilization: Option<f64>,
    /// W.
    power: Option<f64>,
    power_limit: Option<f64>,
    /// MHz.
    clock: Option<f64>,
    clock_max: Option<f64>,
    /// Why clocks are held down, and the share of readings that say so, 0 to 1; most first.
    held_down: Vec<(&'static str, f64)>,
    /// Bytes a step, and first and last figure: device memory, memory of the process.
    device_grows: Option<Growth>,
    host_grows: Option<Growth>,
    counters: Option<Counters>,
    /// Why there are none.
    no_counters: Option<String>,
    /// Model FLOPs utilization, and the peak that it is a share of, FLOP/s.
    mfu: Option<(f64, f64)>,
    /// Processes with a context on the device.
    processes: Option<u64>,
}

/// Were NVML's counters to be had, and the steps that count too short for them?
fn too_short(run: &Run, device: &DeviceAnalysis) -> Option<&'static str> {
    let info = &run.devices.iter().find(|d| d.ordinal == device.ordinal)?.info;
    let is_read = run.readings.iter().any(|r| r.gauge == Gauge::PowerLimitMw as u32);
    (device.counters.is_none() && is_read && info.compute_major >= HAS_COUNTERS).then_some(TOO_SHORT)
}

impl Gauges {
    /// Of the device that the line is about.
    pub(super) fn of(run: &Run, a: &Analysis, device: &DeviceAnalysis) -> Gauges {
        let steady = a.steady;
        let of = |gauge: Gauge, ordinal: u32| -> Vec<&Reading> {
            let fits = |r: &&Reading| r.gauge == gauge as u32 && u32::from(r.device) == ordinal;
            run.readings.iter().filter(fits).filter(|r| within(r, steady)).collect()
        };
        let mean = |gauge: Gauge, unit: f64| {
            let all = of(gauge, device.ordinal);
            let sum: f64 = all.iter().map(|r| r.value as f64).sum();
            (all.len() >= LEAST).then(|| sum / all.len() as f64 / unit)
        };
        // limits are read seldom
        let last = |gauge: Gauge, unit: f64| {
            let fits = |r: &&Reading| r.gauge == gauge as u32 && u32::from(r.device) == device.ordinal;
            run.readings.iter().rfind(fits).map(|r| r.value as f64 / unit)
        };
        let reasons = of(Gauge::ThrottleReasons, device.ordinal);
        let share = |bit: u64| {
            let set = reasons.iter().filter(|r| r.value & bit != 0).count();
            if reasons.len() < LEAST {
                0.0
            } else {
                set as f64 / reasons.len() as f64
            }
        };
        let mut held_down: Vec<(&str, f64)> =
            REASONS.iter().map(|&(bit, name)| (name, share(bit))).filter(|r| r.1 >= OFTEN).collect();
        held_down.sort_by(|x, y| y.1.total_cmp(&x.1));
        Gauges {
            utilization: mean(Gauge::Utilization, 1.0),
            power: mean(Gauge::PowerMw, 1e3),
            power_limit: last(Gauge::PowerLimitMw, 1e3),
            clock: mean(Gauge::SmClockMhz, 1.0),
            clock_max: last(Gauge::SmClockMaxMhz, 1.0),
            held_down,
            device_grows: Growth::of(run, a, Gauge::MemoryUsed, device.ordinal),
            host_grows: Growth::of(run, a, Gauge::ResidentBytes, 0),
            counters: device.counters,
            no_counters: Counters::why_none(run, device.ordinal)
                .or_else(|| too_short(run, device))
                .map(str::to_owned),
            mfu: peaks::mfu(run, a, device),
            processes: last(Gauge::Processes, 1.0).map(|n| n as u64),
        }
    }

    /// Sentences for the screen.
    pub(super) fn sentences(&self, busy: f64) -> Vec<String> {
        let mut out = Vec::new();
        let mut parts = Vec::new();
        if let Some(u) = self.utilization {
            parts.push(format!("utilisation {u:.0}%"));
        }
        match (self.power, self.power_limit) {
            (Some(p), Some(limit)) => parts.push(format!("{p:.0} of {limit:.0} W")),
            (Some(p), None) => parts.push(format!("{p:.0} W")),
            _ => {}
        }
        match (self.clock, self.clock_max) {
            (Some(c), Some(max)) => parts.push(format!("{c:.0} of {max:.0} MHz")),
            (Some(c), None) => parts.push(format!("{c:.0} MHz")),
            _ => {}
        }
        if !parts.is_empty() {
            let mut text = format!("NVML: {}", parts.join(", "));
            if self.utilization.is_some() {
                text.push_str(&format!("; something ran on the GPU {:.0}% of the time", busy * 100.0));
            }
            let low = matches!((self.power, self.power_limit), (Some(p), Some(l)) if p < l * LOW_POWER);
            let full = self.utilization.is_some_and(|u| u >= FULL_PCT);
            let above = self.utilization.is_some_and(|u| u - busy * 100.0 >= FAR_ABOVE);
            if above || full && busy < NOT_FULL {
                text.push_str(": NVML counts periods in which any kernel ran, however short or small");
            } else if full && low {
                text.push_str(
                    ": what runs leaves most of the GPU unused (small kernels, or such as wait for memory)",
                );
            }
            out.push(format!("{text}."));
        }
        out.extend(self.used());
        if let Some((mfu, peak)) = self.mfu {
            let of = if mfu > 1.0 {
                "more than there is: see how the step's FLOPs were counted"
            } else {
                "by the step's FLOPs"
            };
            out.push(format!("MFU {:.0}% of {:.1} TFLOP/s in 16 bits, {of}.", mfu * 100.0, peak * 1e-12));
        }
        if !self.held_down.is_empty() {
            let of = |r: &(&str, f64)| format!("{} in {:.0}% of the readings", r.0, r.1 * 100.0);
            out.push(format!(
                "Clocks held down by {}.",
                self.held_down.iter().map(of).collect::<Vec<_>>().join(", ")
            ));
        }
        out
    }

    /// How well the units of the GPU were used.
    fn used(&self) -> Option<String> {
        let Some(c) = self.counters else {
            return self.no_counters.as_ref().map(|why| format!("GPU counters: {why}."));
        };
        let share = |share: Option<f64>, name: &str| share.map(|s| format!("{name} {:.0}%", s * 100.0));
        let at_work = |s: Option<f64>, name| share(s.filter(|s| *s >= AT_WORK), name);
        let rate = |rate: Option<f64>, name: &str| {
            rate.filter(|r| *r >= FAST).map(|r| format!("{name} {:.1} GB/s", r * 1e-9))
        };
        let parts = [
            share(c.tensor, "tensor cores"),
            share(c.memory, "memory bandwidth"),
            share(c.sm, "multiprocessors"),
            share(c.occupancy, "occupancy"),
            at_work(c.fp32, "FP32 pipe"),
            at_work(c.fp16, "FP16 pipe"),
            at_work(c.fp64, "FP64 pipe"),
            at_work(c.integer, "integer pipe"),
            rate(c.pcie_received, "PCIe in"),
            rate(c.pcie_sent, "PCIe out"),
            rate(c.nvlink_received, "NVLink in"),
            rate(c.nvlink_sent, "NVLink out"),
        ];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let others = c.processes.filter(|n| *n > 1);
        let others = others.map(|n| {
            format!("; {n} processes use the GPU and all count in these figures, so no verdict rests on them")
        });
        Some(format!("GPU counters: {text}{}.", others.unwrap_or_default()))
    }

    /// For programs; `null` without readings.
    pub(super) fn json(&self) -> Value {
        if *self == Gauges::default() {
            return Value::Null;
        }
        let grows =
            |g: Option<Growth>| g.map(|g| json!({"bytes_a_step": g.a_step, "from": g.from, "to": g.to}));
        json!({
            "utilization_pct": self.utilization,
            "power_w": self.power,
            "power_limit_w": self.power_limit,
            "sm_clock_mhz": self.clock,
            "sm_clock_max_mhz": self.clock_max,
            "clocks_held_down": self.held_down.iter().map(|r| json!({"by": r.0, "share": r.1})).collect::<Vec<_>>(),
            "counters_missing": self.no_counters,
            "mfu": self.mfu.map(|m| m.0),
            "processes": self.processes,
            "gpu_memory_grows": grows(self.device_grows),
            "host_memory_grows": grows(self.host_grows),
        })
    }
}

fn within(r: &Reading, steady: Span) -> bool {
    r.span.start >= steady.start && r.span.start < steady.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict::analysis::Steps;

    const STEP: u64 = 10_000_000;

    /// One reading of each gauge a step; the value by the step's number.
    fn gauges(steps: u64, of: &[(Gauge, &dyn Fn(u64) -> u64)]) -> Gauges {
        let mut run = Run::default();
        for n in 0..steps {
            for (gauge, value) in of {
                let at = n * STEP;
                run.readings.push(Reading {
                    span: Span::new(at, at),
                    gauge: *gauge as u32,
                    device: 0,
                    value: value(n),
                });
            }
        }
        let steady = Span::new(0, steps * STEP);
        let device = DeviceAnalysis::default();
        let a = Analysis {
            steady,
            steps: Steps { mean_ns: STEP as f64, ..Steps::default() },
            ..Analysis::default()
        };
        Gauges::of(&run, &a, &device)
    }

    #[test]
    fn full_by_nvml_and_half_empty() {
        let full = gauges(
            20,
            &[
                (Gauge::Utilization, &|_| 100),
                (Gauge::PowerMw, &|_| 210_000),
                (Gauge::PowerLimitMw, &|_| 700_000),
                (Gauge::SmClockMhz, &|_| 1980),
            ],
        );
        let said = full.sentences(0.45);
        assert_eq!(
            said,
            ["NVML: utilisation 100%, 210 of 700 W, 1980 MHz; something ran on the GPU 45% of the time: NVML counts \
              periods in which any kernel ran, however short or small."]
        );
        let used = gauges(
            20,
            &[
                (Gauge::Utilization, &|_| 99),
                (Gauge::PowerMw, &|_| 650_000),
                (Gauge::PowerLimitMw, &|_| 700_000),
            ],
        );
        assert!(used.sentences(0.97)[0].ends_with("97% of the time."), "{:?}", used.sentences(0.97));
        // busy all the time and cool: little of the GPU is at work
        assert!(full.sentences(0.97)[0].contains("most of the GPU unused"), "{:?}", full.sentences(0.97));
        // far from full, and further from what NVML says
        let third = gauges(20, &[(Gauge::Utilization, &|_| 31)]);
        assert!(third.sentences(0.04)[0].contains("NVML counts"), "{:?}", third.sentences(0.04));
        assert!(third.sentences(0.25)[0].ends_with("25% of the time."), "{:?}", third.sentences(0.25));
        assert!(gauges(20, &[]).sentences(0.5).is_empty());
        assert!(gauges(3, &[(Gauge::Utilization, &|_| 100)]).sentences(0.5).is_empty(), "three readings");
    }

    #[test]
    fn clocks_that_are_held_down() {
        let said =
            |reasons: &dyn Fn(u64) -> u64| gauges(20, &[(Gauge::ThrottleReasons, reasons)]).sentences(0.5);
        assert_eq!(said(&|n| if n < 15 { 0x4 } else { 0x40 }), [
            "Clocks held down by the power cap in 75% of the readings, heat (hardware) in 25% of the readings."
        ]);
        // idle, application clocks, sync boost: nothing is wrong
        assert!(said(&|_| 0x1 | 0x2 | 0x10).is_empty());
        assert!(said(&|n| u64::from(n == 3) * 4).is_empty(), "once");
    }

    #[test]
    fn memory_that_grows_and_memory_that_fills_up() {
        let of = |bytes: &dyn Fn(u64) -> u64| gauges(30, &[(Gauge::MemoryUsed, bytes)]).device_grows;
        let g = of(&|n| 3_000_000_000 + n * 20_000_000).expect("growth");
        assert_eq!((g.a_step.round(), g.from, g.to), (20e6, 3e9, 3.58e9));
        assert_eq!(of(&|n| 3_000_000_000 + n.min(9) * 60_000_000), None, "a cache that is full");
        assert_eq!(of(&|n| 3_000_000_000 + n % 5 * 500_000_000), None, "to and fro");
        assert_eq!(of(&|n| 3_000_000_000 + n * 1000), None, "nothing to speak of");
        let host = gauges(30, &[(Gauge::ResidentBytes, &|n| 1_000_000_000 + n * 5_000_000)]);
        assert_eq!(host.json()["host_memory_grows"]["bytes_a_step"].as_f64().map(f64::round), Some(5e6));
    }
}
