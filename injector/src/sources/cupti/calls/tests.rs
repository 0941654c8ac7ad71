// SPDX-License-Identifier: Apache-2.0
//! One call is one event, however its records lie in the buffers and however late a buffer comes
//! back.

use std::collections::{BTreeMap, VecDeque};

use cupti_sys::record::Api;
use trace::call;
use trace::define::TrackInfo;
use trace::reader::{Recording, Track};
use trace::{Event, Header, Kind, Total};

use super::super::decode::{Decoder, Sink};
use super::Edges;
use crate::sources::captured_launches::CapturedLaunches;
use crate::sources::marks::program::Capture;
use crate::store::image::Image;
use crate::store::Store;

const SECOND: u64 = 1_000_000_000;
const CUDA_LAUNCH_KERNEL: u32 = 211;
const CU_LAUNCH_KERNEL: u32 = 307;

/// An API record and its domain.
type Record = (bool, Api);

/// The record of a call of the runtime (`true`) or the driver.
fn record(runtime: bool, thread: u32, correlation: u32, start: u64, end: u64) -> Record {
    let cbid = if runtime { CUDA_LAUNCH_KERNEL } else { CU_LAUNCH_KERNEL };
    (runtime, Api { cbid, start, end, thread, correlation, ..Api::default() })
}

/// The two records of a launch that begins at `start`, in the order in which the calls return.
fn launch(thread: u32, correlation: u32, start: u64) -> [Record; 2] {
    [
        record(false, thread, correlation, start + 500, start + 2500),
        record(true, thread, correlation, start, start + 3000),
    ]
}

struct Reader {
    decoder: Decoder,
    store: Store,
}

impl Reader {
    fn new() -> Reader {
        Reader { decoder: Decoder::new(None), store: Store::new(Image::map(64 * 32 * 1024).unwrap()) }
    }

    /// Reads one buffer.
    fn buffer(&mut self, records: &[Record]) {
        let (capture, launches) = (&Capture::default(), &mut CapturedLaunches::default());
        let mut sink = Sink { store: &mut self.store, capture, launches, now: 0 };
        for (runtime, r) in records {
            self.decoder.call(*runtime, r, &mut sink);
        }
        self.decoder.end_of_reading(&mut sink);
    }

    /// What is stored: (thread, correlation, start, domain) of each call, sorted.
    fn calls(self) -> Vec<(u32, u32, u64, u8)> {
        let header = Header { segments: self.store.image.segments(), ..Header::default() };
        self.store.image.put_header(&header.encode());
        let mut recording = Recording::open(&self.store.image).unwrap();
        let mut calls = Vec::new();
        recording.for_each_event(&self.store.image, |track, e| {
            assert_eq!(e.kind, Kind::Call);
            let Track::Of(TrackInfo::Thread { tid, .. }) = track else { panic!("a call on {track:?}") };
            calls.push((tid, e.correlation, e.start, (e.a >> 24) as u8));
        });
        let launches = self.decoder.totals.get(Total::Launches as usize).copied();
        assert_eq!(launches, Some(calls.len() as u64), "what is counted is what is stored");
        calls.sort_unstable();
        calls
    }
}

/// What is stored of buffers read one after another.
fn read(buffers: &[&[Record]]) -> Vec<(u32, u32, u64, u8)> {
    let mut reader = Reader::new();
    for records in buffers {
        reader.buffer(records);
    }
    reader.calls()
}

#[test]
fn of_two_records_in_one_buffer_the_outer_call_is_kept() {
    let [inner, outer] = launch(7, 1, 1000);
    for records in [[inner, outer], [outer, inner]] {
        assert_eq!(read(&[&records]), [(7, 1, 1000, call::RUNTIME)]);
    }
}

#[test]
fn a_call_of_the_driver_alone_or_of_the_runtime_alone_is_kept() {
    let [inner, outer] = launch(7, 1, 1000);
    assert_eq!(read(&[&[inner]]), [(7, 1, 1500, call::DRIVER)]);
    assert_eq!(read(&[&[outer]]), [(7, 1, 1000, call::RUNTIME)]);
}

#[test]
fn two_records_in_two_buffers_are_one_call_whichever_is_read_first() {
    let [inner, outer] = launch(7, 2, 10_000);
    let (before, after) = (launch(7, 1, 1000), launch(7, 3, 20_000));
    let first: Vec<_> = before.into_iter().chain([inner]).collect();
    let second: Vec<_> = [outer].into_iter().chain(after).collect();
    for buffers in [[&first[..], &second[..]], [&second[..], &first[..]]] {
        let correlations: Vec<_> = read(&buffers).iter().map(|c| c.1).collect();
        assert_eq!(correlations, [1, 2, 3]);
    }
    // and where the two are alone in their buffers
    for buffers in [[&[inner][..], &[outer][..]], [&[outer][..], &[inner][..]]] {
        assert_eq!(read(&buffers).len(), 1);
    }
}

#[test]
fn a_buffer_that_comes_back_long_after_those_that_followed_it() {
    let calls: Vec<_> = (0..3000u32).map(|i| launch(7, i + 1, 1000 + u64::from(i) * 10_000)).collect();
    let mut reader = Reader::new();
    // each buffer begins with the second record of a call: the first buffer of all is the last to
    // come back
    for pair in calls.windows(2) {
        reader.buffer(&[pair[0][1], pair[1][0]]);
    }
    reader.buffer(&[calls[0][0]]);
    let stored: Vec<_> = reader.calls().iter().map(|c| c.1).collect();
    let twice: Vec<_> = stored.windows(2).filter(|w| w[0] == w[1]).collect();
    assert_eq!((stored.len(), twice), (3000, vec![]));
}

#[test]
fn threads_that_share_a_buffer_do_not_part_each_others_calls() {
    let [a_inner, a_outer] = launch(7, 1, 1000);
    let [b_inner, b_outer] = launch(8, 2, 1100);
    assert_eq!(
        read(&[&[a_inner, b_inner, b_outer, a_outer]]),
        [(7, 1, 1000, call::RUNTIME), (8, 2, 1100, call::RUNTIME)]
    );
    for buffers in [[[a_inner, b_inner], [b_outer, a_outer]], [[b_outer, a_outer], [a_inner, b_inner]]] {
        assert_eq!(read(&[&buffers[0], &buffers[1]]).len(), 2);
    }
}

#[test]
fn a_runtime_call_with_several_driver_calls_in_it_is_one() {
    let parts =
        [record(false, 7, 5, 2000, 3000), record(false, 7, 5, 3500, 4000), record(true, 7, 5, 1000, 9000)];
    assert_eq!(read(&[&parts]), [(7, 5, 1000, call::RUNTIME)]);
    for cut in 1..3 {
        assert_eq!(read(&[&parts[..cut], &parts[cut..]]).len(), 1, "cut after {cut}");
        assert_eq!(read(&[&parts[cut..], &parts[..cut]]).len(), 1, "cut after {cut}, second half first");
    }
    assert_eq!(read(&[&parts[..1], &parts[1..2], &parts[2..]]).len(), 1, "three buffers");
}

#[test]
fn a_correlation_id_that_comes_round_again_is_a_new_call() {
    // 2^32 calls at ten million a second
    let later = 430 * SECOND;
    let (old, new) = (launch(7, 9, 1000), launch(7, 9, 1000 + later));
    let both = [(7, 9, 1000, call::RUNTIME), (7, 9, 1000 + later, call::RUNTIME)];
    assert_eq!(read(&[&old, &new]), both, "in two buffers");
    assert_eq!(read(&[&[old, new].concat()]), both, "one after the other");
    let stored = read(&[&[old[0]], &[old[1], new[0]], &[new[1]]]);
    assert_eq!(stored.len(), 2, "each of them parted: {stored:?}");
}

#[test]
fn a_launch_that_compiles_for_minutes_first_is_one() {
    let parts = [record(false, 7, 5, 299 * SECOND, 300 * SECOND), record(true, 7, 5, SECOND, 301 * SECOND)];
    for (first, second) in [(0, 1), (1, 0)] {
        assert_eq!(read(&[&[parts[first]], &[parts[second]]]).len(), 1);
        assert_eq!(read(&[&[parts[first], parts[second]]]), [(7, 5, SECOND, call::RUNTIME)]);
    }
}

#[test]
fn edges_are_remembered_in_bounded_memory_the_newest_the_longest() {
    let mut edges = Edges::default();
    let kept = Edges::KEPT as u32;
    let call = |n: u32| {
        let mut e = Event::new(Kind::Call, u64::from(n) * 1000, u64::from(n) * 1000 + 500);
        e.correlation = n;
        e
    };
    for n in 0..10 * kept + 5 {
        assert!(edges.add(7, &call(n)), "{n} is new");
        assert!(edges.newer.len() + edges.older.len() <= 2 * Edges::KEPT);
    }
    assert!((9 * kept + 5..10 * kept + 5).all(|n| !edges.add(7, &call(n))), "the newest are known");
    assert!(edges.add(8, &call(10 * kept)), "of another thread");
    assert!(edges.add(7, &call(5)), "the oldest are forgotten");
}

#[test]
fn a_profiler_call_switches_once_however_its_records_come() {
    let of = |runtime, cbid, correlation, start| {
        let end = start + if runtime { 200 } else { 100 };
        (runtime, Api { cbid, start, end, thread: 7, correlation, ..Api::default() })
    };
    // cudaProfilerStop and cuProfilerStop, cudaProfilerStart and cuProfilerStart
    let stop = [of(false, 309, 1, 1050), of(true, 172, 1, 1000)];
    let start = [of(false, 308, 2, 5050), of(true, 171, 2, 5000)];
    let mut reader = Reader::new();
    for records in [&[stop[0]][..], &start[..], &[stop[1]][..]] {
        reader.buffer(records);
    }
    assert_eq!(
        reader.decoder.profiler_calls,
        [(1150, false), (5200, true)],
        "the late half of the stop is none"
    );
    assert_eq!(reader.calls(), []);
}

/// A small generator, so that a failure can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Threads that call at random; their records in the order CUPTI writes them, cut into buffers
/// anywhere, the buffers read in any order that a buffer of one thread may be late by.
#[test]
fn any_calls_in_any_buffers_in_any_order() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (mut correlation, mut wanted) = (0, Vec::new());
        let mut threads: BTreeMap<u32, Vec<Record>> = BTreeMap::new();
        let mut clock = 1000;
        for _ in 0..200 {
            let thread = 7 + random.below(3) as u32;
            correlation += 1 + random.below(3) as u32;
            clock += 10_000;
            let records = threads.entry(thread).or_default();
            let from = records.len();
            match random.below(4) {
                0 => records.push(record(false, thread, correlation, clock, clock + 3000)),
                1 => records.push(record(true, thread, correlation, clock, clock + 3000)),
                _ => records.extend(launch(thread, correlation, clock)),
            }
            if random.below(2) == 0 {
                records[from..].reverse();
            }
            wanted.push((thread, correlation));
        }
        let mut buffers: Vec<VecDeque<Record>> = Vec::new();
        for records in threads.into_values() {
            let mut rest: VecDeque<Record> = records.into();
            while !rest.is_empty() {
                let taken = (1 + random.below(20) as usize).min(rest.len());
                buffers.push(rest.drain(..taken).collect());
            }
        }
        let mut reader = Reader::new();
        while !buffers.is_empty() {
            let mut buffer = buffers.swap_remove(random.below(buffers.len() as u64) as usize);
            // some are read in place first, as far as they are complete
            if random.below(3) == 0 {
                let front = random.below(buffer.len() as u64) as usize;
                reader.buffer(&buffer.drain(..front).collect::<Vec<_>>());
            }
            reader.buffer(buffer.make_contiguous());
        }
        let mut stored: Vec<_> = reader.calls().iter().map(|c| (c.0, c.1)).collect();
        stored.sort_unstable();
        wanted.sort_unstable();
        let lost: Vec<_> = wanted.iter().filter(|c| !stored.contains(c)).collect();
        let twice: Vec<_> = stored.windows(2).filter(|w| w[0] == w[1]).collect();
        assert_eq!((lost, twice, stored.len()), (vec![], vec![], wanted.len()), "seed {seed}");
    }
}
