// SPDX-License-Identifier: Apache-2.0
//! When the launching threads fetch data, as far as named ranges tell: PyTorch's profiler names the
//! iteration over a DataLoader by itself, NVTX and `gapprobe_range` by the program's word. Without
//! any such range: as far as samples tell (`sample_index.rs`).

use super::host::HostView;
use super::sample_index::LEAST_SAMPLES;
use std::collections::HashMap;

use crate::run::{Range, RangeKind, Run, Sample, Span, Thread};
use crate::sites::workers::{pins, Pinning};
use crate::timeline::buckets::{Bucket, IdleSlice};
use crate::timeline::Observed;

/// Ranges that begin so (any case) are a loader's: torch.profiler's own
/// (`enumerate(DataLoader)#..`), Lightning's
/// (`[pl][profile][_TrainingEpochLoop].train_dataloader_next`).
const PREFIXES: [&str; 1] = ["enumerate(dataloader)"];
/// Ranges that end so.
const SUFFIXES: [&str; 2] = ["dataloader_next", "dataloader.__next__"];
/// Ranges that people call exactly so.
const NAMES: [&str; 14] = [
    "data",
    "dataload",
    "data_load",
    "data_loading",
    "data loading",
    "dataloader",
    "load_data",
    "get_data",
    "fetch",
    "fetch_data",
    "data_fetch",
    "get_batch",
    "next_batch",
    "batch_fetch",
];

/// Does a range of this name fetch data?
pub fn is_input(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase();
    NAMES.contains(&name.as_str())
        || PREFIXES.iter().any(|p| name.starts_with(p))
        || SUFFIXES.iter().any(|s| name.ends_with(s))
}

/// Fetching of a whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fetched {
    /// Time in it, ns, over all threads.
    pub ns: u64,
    /// Of it, while the device was idle; by samples: as much of it as of the moments in which they
    /// were taken. `None`: too few of them.
    pub exposed_ns: Option<u64>,
    /// `ns` is all of it; else (by samples, of which many could not be read) there is more.
    pub complete: bool,
    /// By workers of a PyTorch DataLoader, or by the thread itself; `None` where the names do not
    /// tell.
    pub workers: Option<bool>,
}

/// Fetching inside `span` on any thread; `idle`: the device's idle time.
pub fn all(run: &Run, span: Span, idle: &[IdleSlice]) -> Fetched {
    let names = names(run);
    let fetching = Fetching::of(ranges(&names, run.threads.iter()).map(|r| r.span));
    let named =
        |part: &str| names.iter().any(|&n| run.definitions.string(n).is_some_and(|n| n.contains(part)));
    let sampled =
        names.is_empty().then(|| super::sample_index::fetching(run)).filter(|s| !s.spans.is_empty());
    let (by, complete) = sampled.as_ref().map_or((None, true), |s| (s.workers, s.complete));
    // a sample's span is the time since the one before, in which its thread may have been
    // elsewhere: only the moment itself is known
    let moments = sampled.as_ref().map(|s| moments(&s.spans, span, idle));
    let fetching = sampled.map_or(fetching, |s| Fetching::of(s.spans.into_iter()));
    let workers = match (named("_MultiProcessing"), named("_SingleProcess")) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => by,
    };
    let ns = fetching.within(span.start, span.end);
    let exposed_ns = match moments {
        None => {
            let exposed = idle.iter().map(|s| s.span().clip(span)).map(|s| fetching.within(s.start, s.end));
            Some(exposed.sum())
        }
        Some((all, _)) if all < LEAST_SAMPLES => None,
        Some((all, exposed)) => Some((ns as f64 * f64::from(exposed) / f64::from(all)) as u64),
    };
    Fetched { ns, exposed_ns, complete, workers }
}

/// How many of the samples were taken inside `span`, and how many of these while the device was
/// idle.
fn moments(samples: &[Span], span: Span, idle: &[IdleSlice]) -> (u32, u32) {
    let inside = samples.iter().map(|s| s.end).filter(|at| (span.start..span.end).contains(at));
    inside.fold((0, 0), |(all, exposed), at| {
        let next = idle.partition_point(|i| i.end <= at);
        (all + 1, exposed + u32::from(idle.get(next).is_some_and(|i| i.start <= at)))
    })
}

/// The threads of DataLoaders that pin batches, while the device waited for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pinned {
    /// Samples of them.
    pub samples: u32,
    /// In which they receive a batch or pin it, rather than wait for the workers.
    pub busy: u32,
}

/// What those threads did in the INPUT time of a device.
pub fn pinned(run: &Run, slices: &[IdleSlice], counts: &Observed) -> Pinned {
    let waits = |s: &&IdleSlice| s.bucket == Bucket::Input && counts.measure(s.span()) > 0;
    let idle: Vec<&IdleSlice> = slices.iter().filter(waits).collect();
    let mut known: HashMap<u32, Option<Pinning>> = HashMap::new();
    let mut found = Pinned::default();
    let waited = |s: &&Sample| {
        let next = idle.partition_point(|i| i.end <= s.span.end);
        idle.get(next).is_some_and(|i| i.start <= s.span.end)
    };
    for s in run.threads.iter().flat_map(|t| &t.samples).filter(|s| s.stack != 0).filter(waited) {
        let Some(doing) = *known.entry(s.stack).or_insert_with(|| pins(run, s.stack)) else { continue };
        found.samples += 1;
        found.busy += u32::from(doing.is_busy(s));
    }
    found
}

/// Ranges that fetch data, of some threads.
fn ranges<'a>(
    names: &'a [u32],
    threads: impl Iterator<Item = &'a Thread>,
) -> impl Iterator<Item = &'a Range> {
    let fetches = |r: &Range| r.kind != RangeKind::Python && names.binary_search(&r.name).is_ok();
    threads.flat_map(move |t| t.ranges.iter().filter(move |r| fetches(r) && !t.is_left_open(r)))
}

/// Ids of the names, sorted.
fn names(run: &Run) -> Vec<u32> {
    let all = run.threads.iter().flat_map(|t| &t.ranges).map(|r| r.name);
    let mut ids: Vec<u32> = all.collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|&id| run.definitions.string(id).is_some_and(is_input));
    ids
}

/// Does a range of this name wait for workers, rather than fetch by itself? Then what ends it is
/// theirs to say.
fn is_paced(name: &str) -> bool {
    name.contains("_MultiProcessing")
}

/// Disjoint spans, and how long they are up to each.
#[derive(Clone, Debug, Default)]
pub struct Fetching {
    spans: Vec<Span>,
    before: Vec<u64>,
    /// The batches come from workers at their own pace: a host that asks earlier waits longer.
    pub paced: bool,
}

impl Fetching {
    /// Of the threads that launch to a device.
    pub fn new(run: &Run, host: &HostView) -> Fetching {
        let threads = host.threads.iter().filter_map(|&t| run.threads.get(t));
        let names = names(run);
        let paced = names.iter().any(|&n| run.definitions.string(n).is_some_and(is_paced));
        Fetching { paced, ..Fetching::of(ranges(&names, threads).map(|r| r.span)) }
    }

    fn of(spans: impl Iterator<Item = Span>) -> Fetching {
        let mut spans: Vec<Span> = spans.collect();
        spans.sort_unstable();
        spans.dedup_by(|next, kept| {
            let joins = next.start <= kept.end;
            kept.end = if joins { kept.end.max(next.end) } else { kept.end };
            joins
        });
        let mut sum = 0;
        let before = spans
            .iter()
            .map(|s| {
                sum += s.ns();
                sum - s.ns()
            })
            .collect();
        Fetching { spans, before, paced: false }
    }

    /// ns of fetching in [`from`, `to`).
    pub fn within(&self, from: u64, to: u64) -> u64 {
        self.up_to(to).saturating_sub(self.up_to(from))
    }

    fn up_to(&self, at: u64) -> u64 {
        let Some(last) = self.spans.partition_point(|s| s.start <= at).checked_sub(1) else { return 0 };
        let (Some(s), Some(b)) = (self.spans.get(last), self.before.get(last)) else { return 0 };
        b + s.ns().min(at - s.start)
    }
}

#[cfg(test)]
mod tests {
    use trace::event::OPEN_ENDED;

    use super::*;

    #[test]
    fn names_of_loaders_and_of_other_things() {
        for name in [
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
            "Data_Load",
            "next_batch",
        ] {
            assert!(is_input(name), "{name}");
        }
        for name in
            ["forward", "ProfilerStep#3", "data_parallel", "update", "DataParallel.forward", "metadata"]
        {
            assert!(!is_input(name), "{name}");
        }
    }

    #[test]
    fn a_range_whose_end_was_forgotten_does_not_last_to_the_end_of_the_run() {
        let of = |ranges: &[(u64, u64, u8)]| {
            let kind = RangeKind::User;
            let range = |&(start, end, flags)| Range {
                span: Span::new(start, end),
                name: 1,
                flags,
                kind,
                ..Range::default()
            };
            let thread = Thread { ranges: ranges.iter().map(range).collect(), ..Thread::default() };
            Fetching::of(super::ranges(&[1], [thread].iter()).map(|r| r.span)).within(0, 1000)
        };
        assert_eq!(of(&[(0, 10, 0), (20, 1000, OPEN_ENDED), (100, 110, 0)]), 20);
        assert_eq!(of(&[(0, 10, 0), (20, 1000, OPEN_ENDED)]), 990, "there it stands");
    }

    #[test]
    fn time_within_spans() {
        let f =
            Fetching { spans: vec![Span::new(10, 20), Span::new(30, 40)], before: vec![0, 10], paced: false };
        assert_eq!(
            (f.within(0, 10), f.within(0, 15), f.within(12, 35), f.within(20, 30), f.within(0, 99)),
            (0, 5, 13, 0, 20)
        );
    }
}
