// SPDX-License-Identifier: Apache-2.0
//! Idle time of each stream as Holistic Trace Analysis sorts it, beside our causes for the same
//! time (docs/hta.md).
//!
//! ```text
//! HTA ...            what `get_idle_time_breakdown` of HTA 0.5.0 prints for the file, its faults included
//! Intervals, Time    the same rule, exactly: every operation of the file, in ns, a stream's time by union
//! Mostly             the two largest parts of that Time by our causes; elsewhere: another stream of the device is busy
//! Sync ... Not Seen  all of them; their sum is Time
//! ```
//! The rule: an interval lies between two operations that follow each other on a stream. Host wait:
//! the call that launched the second begins after the first ended. Else kernel wait: it is shorter
//! than 30 µs. Else other. The whole interval goes to one of them; our causes split it.
//!
//! Where the two differ, HTA's way is kept in its own columns only: it reads times rounded inward
//! to whole µs; it leaves the last `ProfilerStep` out, and with it operations whose call is not in
//! the file; operations of one stream that overlap count as negative idle time; streams of the same
//! number on several devices are one to it (its figures stand at the first). Not here: opinions.
//! Linear in operations and idle slices, after a sort.

use foldhash::{HashMap, HashMapExt};
use verdict::analysis::{Bucket, Buckets, IdleSlice};
use verdict::run::{Op, Run, Span, Stream};
use verdict::timeline::Observed;

use super::table::{naming, ns, number, percent_of, row, text, Cell, Column, Row, Unit};
use super::{Report, Source};

/// An interval below this is a kernel wait, µs: HTA's `consecutive_kernel_delay`. Its help calls
/// the 30 nanoseconds; it holds them against times of the file, which are in µs.
pub const DELAY_US: u32 = 30;

/// The release whose figures the columns `HTA ...` give.
pub const VERSION: &str = "0.5.0";

/// The table.
pub static REPORT: Report = Report {
    name: "hta",
    title: "Idle Time as Holistic Trace Analysis Sorts It",
    what: "idle time of each stream by HTA's host_wait, kernel_wait, other, and by our causes",
    needs: "two operations on a stream",
    usual: false,
    shown: 0,
    columns: &COLUMNS,
    rows,
    each: None,
};

const FIRST: [Column; 9] = [
    naming("DevId", "device"),
    number("Stream", "stream"),
    text("Category", "category"),
    number("HTA Idle us", "hta_idle_us"),
    Column {
        name: "HTA Ratio",
        unit: Unit::None,
        key: "hta_ratio",
        decimals: 2,
        text: false,
        part: false,
        spare: false,
        names: false,
    },
    ns("Time", "time_ns"),
    text("Mostly", "mostly"),
    number("HTA Intervals", "hta_intervals"),
    number("Intervals", "intervals"),
];

/// Our causes of idle time; keys are those of the summary.
const CAUSES: [(Bucket, Column); 9] = [
    (Bucket::Sync, ns("Sync", "sync_ns")),
    (Bucket::Launch, ns("Launch", "launch_ns")),
    (Bucket::KernelGap, ns("Kernel Gap", "kernel_gap_ns")),
    (Bucket::DeviceWait, ns("Device Wait", "device_wait_ns")),
    (Bucket::Host, ns("Host", "host_ns")),
    (Bucket::Input, ns("Input", "input_ns")),
    (Bucket::CopyWait, ns("Copy Wait", "copy_wait_ns")),
    (Bucket::Alloc, ns("Alloc", "alloc_ns")),
    (Bucket::Unexplained, ns("Unexplained", "unexplained_ns")),
];

/// The stream is idle and the device is not; nobody saw it.
const LAST: [Column; 2] = [ns("Other Streams", "other_streams_ns"), ns("Not Seen", "not_seen_ns")];

static COLUMNS: [Column; FIRST.len() + CAUSES.len() + LAST.len()] = {
    let mut all = [FIRST[0]; FIRST.len() + CAUSES.len() + LAST.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < FIRST.len() {
            FIRST[i]
        } else if i < FIRST.len() + CAUSES.len() {
            CAUSES[i - FIRST.len()].1
        } else {
            LAST[i - FIRST.len() - CAUSES.len()]
        };
        i += 1;
    }
    all
};

/// HTA's names for what an interval is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Category {
    HostWait,
    KernelWait,
    Other,
}

impl Category {
    const ALL: [(Category, &'static str); 3] = [
        (Category::HostWait, "host_wait"),
        (Category::KernelWait, "kernel_wait"),
        (Category::Other, "other"),
    ];

    /// Of an interval from `end` to `start`, in any unit in which `delay` is [`DELAY_US`].
    /// `launch`: when the call that launched what begins at `start` began; unknown is no host wait.
    fn of(end: i64, start: i64, launch: Option<i64>, delay: i64) -> Category {
        if launch.is_some_and(|launch| launch > end) {
            Category::HostWait
        } else if start - end < delay {
            Category::KernelWait
        } else {
            Category::Other
        }
    }
}

/// What HTA prints of one category.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Printed {
    us: i64,
    intervals: u64,
}

/// An operation as HTA reads it, whole µs.
#[derive(Clone, Copy)]
struct Rounded {
    start: i64,
    end: i64,
    launch: Option<i64>,
}

/// HTA's reading of a run.
struct Reader<'a> {
    run: &'a Run,
    /// The clock of the file less that of the run, ns: what is whole in µs depends on it.
    clock: i64,
    /// What was launched from here on is left out, with all that has no call, µs.
    until: Option<i64>,
}

impl<'a> Reader<'a> {
    fn new(run: &'a Run) -> Reader<'a> {
        let ns = |t: u64| i64::try_from(t).unwrap_or(i64::MAX);
        let clock = ns(run.header.start_realtime).saturating_sub(ns(run.header.start_monotonic));
        let mut reader = Reader { run, clock, until: None };
        reader.until = last_step(run).map(|t| reader.up(t));
        reader
    }

    fn ns(&self, t: u64) -> i64 {
        i64::try_from(t).unwrap_or(i64::MAX).saturating_add(self.clock)
    }

    /// A begin.
    fn up(&self, t: u64) -> i64 {
        self.ns(t).saturating_add(999).div_euclid(1_000)
    }

    /// An end.
    fn down(&self, t: u64) -> i64 {
        self.ns(t).div_euclid(1_000)
    }

    fn op(&self, op: &Op) -> Option<Rounded> {
        let launch = self.run.call(op.call).map(|(_, call)| self.up(call.start));
        let kept = self.until.is_none_or(|until| launch.is_some_and(|launch| launch < until));
        kept.then(|| Rounded { start: self.up(op.start), end: self.down(op.end), launch })
    }

    /// The three categories of a stream's operations; `None` where HTA knows nothing of it.
    fn print(&self, streams: &[&Stream]) -> Option<[Printed; 3]> {
        let mut ops: Vec<Rounded> =
            streams.iter().flat_map(|s| &s.ops).filter_map(|op| self.op(op)).collect();
        ops.sort_by_key(|o| o.start);
        let mut printed = [Printed::default(); 3];
        for (before, op) in ops.iter().zip(ops.get(1..)?) {
            let category = Category::of(before.end, op.start, op.launch, i64::from(DELAY_US));
            if let Some(p) = printed.get_mut(category as usize) {
                p.us += op.start - before.end;
                p.intervals += 1;
            }
        }
        (!ops.is_empty()).then_some(printed)
    }
}

/// Begin of the last `ProfilerStep`, on the host or, where the trace shows it there too, on the
/// GPU: HTA takes the later one. `None` where there is only one, or none: HTA then leaves nothing
/// out.
fn last_step(run: &Run) -> Option<u64> {
    let mut is_step: HashMap<u32, bool> = HashMap::new();
    let mut last = None;
    for range in run.threads.iter().flat_map(|t| &t.ranges) {
        let named = || run.definitions.string(range.name).is_some_and(|n| n.contains("ProfilerStep"));
        if *is_step.entry(range.name).or_insert_with(named) {
            last = last.max(Some(range.span.start));
        }
    }
    let names = is_step.values().filter(|&&step| step).count();
    last.max(run.last_gpu_step).filter(|_| names > 1)
}

/// The rule without HTA's faults.
#[derive(Clone, Copy, Default, Debug)]
struct Exact {
    ns: u64,
    intervals: u64,
    causes: Buckets,
    other_streams: u64,
    not_seen: u64,
}

impl Exact {
    /// Where most of it goes, in words: on a narrow terminal there is no room for a column a cause.
    fn mostly(&self) -> Option<String> {
        let causes = CAUSES.iter().map(|(bucket, _)| (self.causes.get(*bucket), bucket.label()));
        let mut parts: Vec<(u64, &str)> =
            causes.chain([(self.other_streams, "elsewhere"), (self.not_seen, "not seen")]).collect();
        parts.sort_by_key(|p| std::cmp::Reverse(p.0));
        let percent = |ns: u64| percent_of(ns.into(), self.ns.into());
        let large = parts.iter().take(2).filter(|p| percent(p.0) >= 0.5);
        let words: Vec<String> = large.map(|p| format!("{} {:.0} %", p.1, percent(p.0))).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// The three categories of a stream. `slices`: the idle time of its device, by time.
fn exact(run: &Run, stream: &Stream, slices: &[IdleSlice], observed: &Observed) -> [Exact; 3] {
    let signed = |t: u64| i64::try_from(t).unwrap_or(i64::MAX);
    let mut all = [Exact::default(); 3];
    let mut reach: Option<u64> = None;
    let mut first = 0; // slices before this one end before every interval to come
    for op in &stream.ops {
        let idle = reach.filter(|&r| r < op.start).map(|r| Span::new(r, op.start));
        reach = reach.max(Some(op.end));
        let Some(idle) = idle else { continue };
        let launch = run.call(op.call).map(|(_, call)| signed(call.start));
        let delay = i64::from(DELAY_US) * 1_000;
        let category = Category::of(signed(idle.start), signed(idle.end), launch, delay);
        let Some(e) = all.get_mut(category as usize) else { continue };
        e.ns += idle.ns();
        e.intervals += 1;
        let seen = observed.measure(idle);
        e.not_seen += idle.ns() - seen;
        let mut explained = 0;
        while slices.get(first).is_some_and(|s| s.end <= idle.start) {
            first += 1;
        }
        let rest = slices.get(first..).unwrap_or(&[]);
        for slice in rest.iter().take_while(|s| s.start < idle.end) {
            let part = observed.measure(slice.span().clip(idle));
            e.causes.add(slice.bucket, part);
            explained += part;
        }
        e.other_streams += seen.saturating_sub(explained);
    }
    all
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, analysis) = (source.run, source.analysis());
    let observed = Observed::new(analysis.valid, &run.blind);
    let reader = Reader::new(run);
    let mut same_number: HashMap<u32, Vec<&Stream>> = HashMap::new();
    for stream in run.devices.iter().flat_map(|d| &d.streams) {
        same_number.entry(stream.stream).or_default().push(stream);
    }
    let mut rows = Vec::new();
    for (d, device) in run.devices.iter().enumerate() {
        let slices = analysis.devices.get(d).map_or(&[][..], |a| &a.slices);
        for stream in device.streams.iter().filter(|s| s.ops.len() > 1) {
            let printed = same_number.remove(&stream.stream).and_then(|streams| reader.print(&streams));
            let all = printed.map_or(0, |p| p.iter().map(|p| p.us).sum());
            let exact = exact(run, stream, slices, &observed);
            for ((category, name), e) in Category::ALL.into_iter().zip(exact) {
                let hta = printed.and_then(|p| p.get(category as usize).copied());
                let ratio = hta.filter(|_| all != 0).map(|p| p.us as f64 / all as f64);
                let mut cells = row![device.ordinal, stream.stream, name];
                // HTA's own form: a float, for it may be negative
                cells.extend(row![hta.map(|p| p.us as f64), ratio, e.ns, e.mostly().as_deref()]);
                cells.extend(row![hta.map(|p| p.intervals), e.intervals]);
                cells.extend(CAUSES.iter().map(|(bucket, _)| Cell::from(e.causes.get(*bucket))));
                cells.extend(row![e.other_streams, e.not_seen]);
                rows.push(cells);
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_of_idle_time_has_its_column_once() {
        for bucket in Bucket::ALL {
            let of: Vec<&str> = CAUSES.iter().filter(|c| c.0 == bucket).map(|c| c.1.key).collect();
            let expected: &[String] = if bucket.is_gap() { &[format!("{}_ns", bucket.key())] } else { &[] };
            assert_eq!(of, expected);
        }
    }

    #[test]
    fn an_interval_is_what_the_rule_says_at_its_borders() {
        // in µs, the first operation ended at 100
        let of = |start, launch| Category::of(100, start, launch, 30);
        assert_eq!(of(101, Some(101)), Category::HostWait);
        assert_eq!(of(101, Some(100)), Category::KernelWait, "at the end is not after it");
        assert_eq!(of(129, Some(100)), Category::KernelWait);
        assert_eq!(of(130, Some(100)), Category::Other, "30 are not less than 30");
        assert_eq!(of(130, None), Category::Other, "no call, no host wait");
        assert_eq!(of(99, Some(50)), Category::KernelWait, "they overlap");
        assert_eq!(of(200, Some(101)), Category::HostWait, "however long");
    }
}
