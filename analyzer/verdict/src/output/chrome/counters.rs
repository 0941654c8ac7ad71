// SPDX-License-Identifier: Apache-2.0
//! Counter tracks: how busy a GPU is, how many launched operations wait for it, and what was
//! counted between windows. Sampled at even times, so that their number does not grow with the run;
//! exact figures are in the summary.

use std::io::Write;

use trace::event::Gauge;

use super::json::{put_micros, put_u64};
use super::output::Output;
use super::slices::Frame;
use super::WriteError;
use crate::analysis::{Analysis, DeviceAnalysis};
use crate::run::{Reading, Run, Span};

/// Samples of a counter at most.
const SAMPLES: u64 = 4000;
/// Time between two samples at least, ns.
const FINEST: u64 = 200_000;

/// Even pieces of a span.
struct Bins {
    span: Span,
    width: u64,
}

impl Bins {
    fn over(span: Span) -> Bins {
        Bins { span, width: span.ns().div_ceil(SAMPLES).max(FINEST) }
    }

    fn count(&self) -> usize {
        self.span.ns().div_ceil(self.width) as usize
    }

    /// The piece that holds `t`, within the span.
    fn of(&self, t: u64) -> usize {
        (t.clamp(self.span.start, self.span.end) - self.span.start).checked_div(self.width).unwrap_or(0)
            as usize
    }

    fn start(&self, bin: usize) -> u64 {
        self.span.start.saturating_add((bin as u64).saturating_mul(self.width))
    }
}

/// Writes the counters of all devices.
pub(super) fn write<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    run: &Run,
    analysis: &Analysis,
) -> Result<(), WriteError> {
    let readings = Newest(run);
    for (gauge, name, value) in BETWEEN {
        readings.write(out, frame, name, value, |r| r.gauge == gauge as u32)?;
    }
    for (i, device) in analysis.devices.iter().enumerate() {
        let ordinal = u64::from(device.ordinal);
        let bins = Bins::over(analysis.valid.clip(device.span));
        if bins.count() == 0 {
            continue;
        }
        let busy = busy(&bins, analysis, device);
        series(out, frame, b"GPU busy %", ordinal, &bins, &busy)?;
        if let Some(depths) = queue_depth(&bins, run, i) {
            series(out, frame, b"queue depth", ordinal, &bins, &depths)?;
        }
        for (gauge, name) in USED {
            let name = [format!("GPU {ordinal} ").as_bytes(), name].concat();
            let is_of_it = |r: &Reading| r.gauge == gauge as u32 && u64::from(r.device) == ordinal;
            readings.write(out, frame, &name, |r| (r.value + 50) / 100, is_of_it)?;
        }
    }
    Ok(())
}

/// The value that is shown of a reading.
type Shown = fn(&Reading) -> u64;

/// What was counted between windows, a reading each second: steps, launches, and the share of the
/// time in which a thread was in a synchronizing call (over 100 % where several were).
const BETWEEN: [(Gauge, &[u8], Shown); 3] = [
    (Gauge::StepNs, b"between windows: step us", |r| r.value / 1000),
    (Gauge::Launches, b"between windows: launches/s", |r| per_second(r, r.value)),
    (Gauge::SyncNs, b"between windows: in syncs %", |r| per_second(r, r.value) / 10_000_000),
];

/// What a GPU's own counters say.
const USED: [(Gauge, &[u8]); 3] = [
    (Gauge::TensorActive, b"tensor cores %"),
    (Gauge::DramActive, b"memory bandwidth %"),
    (Gauge::SmActive, b"multiprocessors %"),
];

/// The newest readings of a run.
struct Newest<'a>(&'a Run);

impl Newest<'_> {
    /// Those of the time from one moment to another, as a counter that is 0 between them.
    fn write<W: Write>(
        &self,
        out: &mut Output<W>,
        frame: Frame,
        name: &[u8],
        value: impl Fn(&Reading) -> u64,
        counts: impl Fn(&Reading) -> bool,
    ) -> Result<(), WriteError> {
        let most = self.0.readings.len().saturating_sub(super::facts::MOST_READINGS);
        let mut last_end = 0;
        for r in self.0.readings.iter().skip(most).filter(|r| counts(r)) {
            if last_end != 0 && last_end != r.span.start {
                point(out, frame, name, last_end, 0)?; // (a window lies between)
            }
            point(out, frame, name, r.span.start, value(r))?;
            last_end = r.span.end;
        }
        if last_end != 0 {
            point(out, frame, name, last_end, 0)?;
        }
        Ok(())
    }
}

fn per_second(r: &Reading, n: u64) -> u64 {
    (n as f64 * 1e9 / r.span.ns().max(1) as f64) as u64
}

fn point<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    name: &[u8],
    at: u64,
    value: u64,
) -> Result<(), WriteError> {
    out.number(b"{\"ph\":\"C\",\"pid\":", u64::from(frame.pid));
    out.put(b",\"ts\":");
    put_micros(&mut out.block, at.saturating_sub(frame.base));
    out.put(b",\"name\":\"");
    out.put(name);
    out.number(b"\",\"args\":{\"value\":", value);
    out.put(b"}");
    out.end()
}

/// Percent of each piece in which the device ran something: what is neither idle nor unobserved.
fn busy(bins: &Bins, analysis: &Analysis, device: &DeviceAnalysis) -> Vec<u64> {
    let mut off = vec![0u64; bins.count()];
    let idle = device.slices.iter().map(|s| s.span());
    for span in idle.chain(analysis.blind.iter().map(|b| b.span)) {
        let span = span.clip(bins.span);
        if span.ns() == 0 {
            continue;
        }
        for (bin, ns) in off.iter_mut().enumerate().take(bins.of(span.end) + 1).skip(bins.of(span.start)) {
            let piece = Span::new(bins.start(bin), bins.start(bin + 1));
            *ns = ns.saturating_add(span.clip(piece).ns());
        }
    }
    let width = |bin: usize| Span::new(bins.start(bin), bins.start(bin + 1).min(bins.span.end)).ns().max(1);
    let percent = |bin: usize, ns: u64| (1.0 - ns.min(width(bin)) as f64 / width(bin) as f64) * 100.0;
    off.iter().enumerate().map(|(bin, &ns)| percent(bin, ns).round() as u64).collect()
}

/// Operations launched and not started at the end of each piece; `None` where no launch times are
/// known.
fn queue_depth(bins: &Bins, run: &Run, device: usize) -> Option<Vec<u64>> {
    let mut change = vec![0i64; bins.count() + 1];
    let mut any = false;
    for op in run.devices.get(device)?.streams.iter().flat_map(|s| &s.ops) {
        // graph nodes are not launched one by one
        let Some((_, call)) = run.call(op.call).filter(|_| !op.is_graph_node()) else { continue };
        if call.start < op.start && op.start > bins.span.start && call.start < bins.span.end {
            change[bins.of(call.start)] += 1;
            change[bins.of(op.start)] -= 1;
            any = true;
        }
    }
    let mut depth = 0;
    any.then(|| {
        change.iter().take(bins.count()).map(|c| {
            depth += c;
            depth.max(0) as u64
        })
    })
    .map(Iterator::collect)
}

fn series<W: Write>(
    out: &mut Output<W>,
    frame: Frame,
    name: &[u8],
    device: u64,
    bins: &Bins,
    values: &[u64],
) -> Result<(), WriteError> {
    let mut last = None;
    let end = values.len().saturating_sub(1);
    for (bin, &v) in values.iter().enumerate() {
        if last == Some(v) && bin != end {
            continue;
        }
        last = Some(v);
        out.number(b"{\"ph\":\"C\",\"pid\":", u64::from(frame.pid));
        out.put(b",\"ts\":");
        put_micros(&mut out.block, bins.start(bin).saturating_sub(frame.base));
        out.put(b",\"name\":\"GPU ");
        put_u64(&mut out.block, device);
        out.put(b" ");
        out.put(name.strip_prefix(b"GPU ").unwrap_or(name));
        out.number(b"\",\"args\":{\"value\":", v);
        out.put(b"}");
        out.end()?;
    }
    Ok(())
}
