// SPDX-License-Identifier: Apache-2.0
//! How well a GPU's units were used, by its own counters (NVML's GPM): means over the readings of a
//! span. They are of the whole device, other processes' work included.

use trace::event::Gauge;

use crate::run::{Reading, Run, Span};

/// Readings of less time than this are no picture, ns: over shorter times GPM's figures are wrong
/// by whole multiples (H200, 2026-11-27).
const LEAST_NS: u64 = 900_000_000;
/// A reading counts if so much of it lies in the span.
const LEAST_WITHIN: f64 = 0.9;

/// Shares of the time, 0 to 1, and rates; `None`: not read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// What the readings are of, ns.
    pub ns: u64,
    /// Multiprocessors with a warp on them.
    pub sm: Option<f64>,
    /// Warps on the multiprocessors, of those that there is room for.
    pub occupancy: Option<f64>,
    /// Tensor cores at work: the share of their peak FLOP/s at the clock that the GPU had (HFU),
    /// whatever the precision; half of it where a kernel's instructions are of an older generation
    /// (H200, s1688: 29 % of the time, 14 % of the FLOPs).
    pub tensor: Option<f64>,
    /// Memory bandwidth in use.
    pub memory: Option<f64>,
    /// Pipes for 64-bit floating point at work.
    pub fp64: Option<f64>,
    /// The same for 32 bits.
    pub fp32: Option<f64>,
    /// The same for 16 bits, without tensor cores.
    pub fp16: Option<f64>,
    /// The same for integers.
    pub integer: Option<f64>,
    /// Sent by the device over PCIe, bytes a second.
    pub pcie_sent: Option<f64>,
    /// Received over PCIe, bytes a second.
    pub pcie_received: Option<f64>,
    /// Sent over NVLink, bytes a second.
    pub nvlink_sent: Option<f64>,
    /// Received over NVLink, bytes a second.
    pub nvlink_received: Option<f64>,
    /// Processes that have the device in use, as last read.
    pub processes: Option<u64>,
}

impl Counters {
    /// Those of the device with this ordinal; `None`: there are none of these spans, which are by
    /// time and do not overlap.
    pub fn of(run: &Run, ordinal: u32, within: &[Span]) -> Option<Counters> {
        let inside = |of: Span| -> u64 {
            let from = within.partition_point(|s| s.end <= of.start);
            let around = within.iter().skip(from).take_while(|s| s.start < of.end);
            around.map(|s| s.clip(of).ns()).sum()
        };
        let counts = |r: &&Reading| {
            u32::from(r.device) == ordinal
                && r.span.ns() > 0
                && inside(r.span) as f64 >= r.span.ns() as f64 * LEAST_WITHIN
        };
        let mean = |gauge: Gauge, unit: f64| {
            let all = run.readings.iter().filter(counts).filter(|r| r.gauge == gauge as u32);
            let sum = |(weighted, ns): (f64, u64), r: &Reading| {
                (weighted + r.value as f64 * r.span.ns() as f64, ns.saturating_add(r.span.ns()))
            };
            let (weighted, ns) = all.fold((0.0, 0), sum);
            (ns >= LEAST_NS).then(|| (weighted / ns as f64 / unit, ns))
        };
        let value = |gauge, unit| mean(gauge, unit).map(|(value, _)| value);
        let share = |gauge| value(gauge, 1e4);
        Some(Counters {
            ns: mean(Gauge::SmActive, 1.0)?.1,
            sm: share(Gauge::SmActive),
            occupancy: share(Gauge::SmOccupancy),
            tensor: share(Gauge::TensorActive),
            memory: share(Gauge::DramActive),
            fp64: share(Gauge::Fp64Active),
            fp32: share(Gauge::Fp32Active),
            fp16: share(Gauge::Fp16Active),
            integer: share(Gauge::IntegerActive),
            pcie_sent: value(Gauge::PcieSent, 1.0),
            pcie_received: value(Gauge::PcieReceived, 1.0),
            nvlink_sent: value(Gauge::NvlinkSent, 1.0),
            nvlink_received: value(Gauge::NvlinkReceived, 1.0),
            processes: run
                .readings
                .iter()
                .rfind(|r| r.gauge == Gauge::Processes as u32 && u32::from(r.device) == ordinal)
                .map(|r| r.value),
        })
    }

    /// What is this process's own; `None`: others have the device in use, too.
    pub fn own(&self) -> Option<&Counters> {
        self.processes.is_none_or(|n| n <= 1).then_some(self)
    }

    /// Why there are none, in the recorder's words; `None`: it does not say.
    pub fn why_none(run: &Run, ordinal: u32) -> Option<&str> {
        let device = format!("device {ordinal}: ");
        let said = run.definitions.attributes().filter(|(key, _)| *key == NONE);
        said.filter_map(|(_, why)| why.strip_prefix(device.as_str())).last()
    }
}

/// The attribute that says of which device there are no counters, and why.
const NONE: &str = "nvml.gpm";

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn reading(gauge: Gauge, from: u64, to: u64, value: u64) -> Reading {
        Reading { span: Span::new(from, to), gauge: gauge as u32, device: 0, value }
    }

    #[test]
    fn means_are_of_the_readings_within_by_their_time() {
        let mut run = Run::default();
        for (from, to, active) in
            [(0, SECOND, 9900), (SECOND, 2 * SECOND, 4000), (2 * SECOND, 4 * SECOND, 7000)]
        {
            run.readings.push(reading(Gauge::SmActive, from, to, active));
            run.readings.push(reading(Gauge::PcieSent, from, to, active));
        }
        run.readings.push(Reading { device: 1, ..reading(Gauge::SmActive, SECOND, 2 * SECOND, 1) });
        let found = Counters::of(&run, 0, &[Span::new(SECOND - 10, 4 * SECOND)]).unwrap();
        assert_eq!((found.ns, found.sm, found.pcie_sent), (3 * SECOND, Some(0.6), Some(6000.0)));
        assert_eq!((found.tensor, found.nvlink_sent), (None, None), "not read");
        let half = Span::new(SECOND / 2, SECOND * 3 / 2);
        assert_eq!(Counters::of(&run, 0, &[half]), None, "two halves of readings are none");
        assert_eq!(Counters::of(&run, 2, &[Span::new(0, 4 * SECOND)]), None);
        let parts =
            [Span::new(0, SECOND), Span::new(2 * SECOND, 3 * SECOND), Span::new(3 * SECOND, 9 * SECOND)];
        let found = Counters::of(&run, 0, &parts).unwrap();
        assert_eq!((found.ns, found.sm), (3 * SECOND, Some((9900.0 + 2.0 * 7000.0) / 3.0 / 1e4)));
    }
}
