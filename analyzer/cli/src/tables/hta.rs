// SPDX-License-Identifier: Apache-2.0
//! Idle time of each stream by the rule of Holistic Trace Analysis, beside our causes for the same
//! time (docs/hta.md).
//!
//! ```text
//! Time, Intervals    every operation of the file, in ns, a stream's time by union of intervals
//! Mostly             its two largest parts by our causes; elsewhere: another stream is busy
//! Sync ... Not Seen  all of them; their sum is Time
//! ```
//! The rule: an interval lies between two operations that follow each other on a stream. Host wait:
//! the call that launched the second begins after the first ended. Else kernel wait: it is shorter
//! than 30 µs. Else other. The whole interval goes to one of them; our causes split it. Linear in
//! operations and idle slices.

use verdict::analysis::{Bucket, Buckets, IdleSlice};
use verdict::run::{Run, Span, Stream};
use verdict::timeline::Observed;

use super::table::{naming, ns, number, percent_of, row, text, Cell, Column, Row};
use super::{Report, Source};

/// An interval below this is a kernel wait, ns: HTA's `consecutive_kernel_delay`. (Its help says 30
/// nanoseconds; it holds them against times of the file, which are in µs.)
pub const DELAY_NS: u64 = 30_000;

/// The table.
pub static REPORT: Report = Report {
    name: "hta",
    title: "Idle Time by the Rule of Holistic Trace Analysis",
    what: "idle time of each stream by HTA's host_wait, kernel_wait, other, and by our causes",
    needs: "two operations on a stream",
    usual: false,
    shown: 0,
    columns: &COLUMNS,
    rows,
    each: None,
};

const FIRST: [Column; 6] = [
    naming("DevId", "device"),
    number("Stream", "stream"),
    text("Category", "category"),
    ns("Time", "time_ns"),
    text("Mostly", "mostly"),
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

    /// Of idle time in front of an operation. `launch`: when the call that launched it began;
    /// unknown is no host wait.
    fn of(idle: Span, launch: Option<u64>) -> Category {
        if launch.is_some_and(|launch| launch > idle.start) {
            Category::HostWait
        } else if idle.ns() < DELAY_NS {
            Category::KernelWait
        } else {
            Category::Other
        }
    }
}

/// One category of a stream.
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
        let words: Vec<String> = large.map(|p| format!("{} {:.0}%", p.1, percent(p.0))).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// The three categories of a stream. `slices`: the idle time of its device, by time.
fn exact(run: &Run, stream: &Stream, slices: &[IdleSlice], observed: &Observed) -> [Exact; 3] {
    let mut all = [Exact::default(); 3];
    let mut reach: Option<u64> = None;
    let mut first = 0; // slices before this one end before every interval to come
    for op in &stream.ops {
        let idle = reach.filter(|&r| r < op.start).map(|r| Span::new(r, op.start));
        reach = reach.max(Some(op.end));
        let Some(idle) = idle else { continue };
        let category = Category::of(idle, run.call(op.call).map(|(_, call)| call.start));
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
    let mut rows = Vec::new();
    for (d, device) in run.devices.iter().enumerate() {
        let slices = analysis.devices.get(d).map_or(&[][..], |a| &a.slices);
        for stream in device.streams.iter().filter(|s| s.ops.len() > 1) {
            for ((_, name), e) in Category::ALL.into_iter().zip(exact(run, stream, slices, &observed)) {
                let mut cells = row![device.ordinal, stream.stream, name];
                cells.extend(row![e.ns, e.mostly().as_deref(), e.intervals]);
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
        let of = |ns: u64, launch| Category::of(Span::new(100, 100 + ns), launch);
        assert_eq!(of(1, Some(101)), Category::HostWait);
        assert_eq!(of(1, Some(100)), Category::KernelWait, "at the end is not after it");
        assert_eq!(of(29_999, Some(100)), Category::KernelWait);
        assert_eq!(of(30_000, Some(100)), Category::Other, "30 are not less than 30");
        assert_eq!(of(30_000, None), Category::Other, "no call, no host wait");
        assert_eq!(of(1_000_000, Some(101)), Category::HostWait, "however long");
    }
}
