// SPDX-License-Identifier: Apache-2.0
//! Purpose: what looks at a growing recording count adds up to what was recorded, however often and
//! when they come: no stretch is counted twice or left out, unobserved time is in none, and the
//! shares are those that the analysis of the whole recording finds.

use cli::live::ledger::{Ledger, STEP_BOUNDS};
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::event::Unobserved;
use trace::header::{state, HEADER_BYTES};
use trace::{Event, Header, Kind, Total};
use verdict::analysis::Bucket;

#[path = "chrome/million.rs"]
mod million;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// When recording begins.
const BEGIN: u64 = 1000 * S;
/// 30 ms of a kernel, 10 ms in which the host computes after it has waited for it.
const STEP: u64 = 40 * MS;
const BUSY: u64 = 30 * MS;

/// Steps one after the other, without marks.
struct Steps {
    b: Builder,
    kernel: u32,
    correlation: u32,
}

impl Steps {
    fn new() -> Steps {
        let mut b = Builder::new();
        let h = &mut b.header;
        (h.state, h.start_monotonic, h.first_use) = (state::RECORDING, BEGIN, BEGIN);
        h.start_realtime = 1_795_000_000 * S;
        b.device(0, "SIM", 132);
        let kernel = b.kernel("_Z4gemmPfS_S_", 256, 64);
        Steps { b, kernel, correlation: 0 }
    }

    /// All that end by `to`.
    fn fill(&mut self, from: u64, to: u64) {
        for at in (from..to.saturating_sub(STEP - 1)).step_by(STEP as usize) {
            self.step(0, at, BUSY);
        }
    }

    fn step(&mut self, device: u32, at: u64, busy: u64) {
        self.correlation += 1;
        let call = |start, end, cbid, class: Class, correlation| {
            let mut e = Event::new(Kind::Call, start, end);
            (e.a, e.x, e.correlation) = (pack(RUNTIME, cbid), class as u8, correlation);
            e
        };
        self.b.on_thread(100, call(at, at + 5_000, 211, Class::Launch, self.correlation));
        let mut op = Event::new(Kind::Kernel, at + 10_000, at + 10_000 + busy);
        (op.a, op.b, op.correlation) = (self.kernel, 1024, self.correlation);
        self.b.on_stream(device, 1, 7, op);
        self.b.on_thread(100, call(at + 6_000, at + 15_000 + busy, 131, Class::Sync, 0));
    }

    fn unobserved(&mut self, from: u64, to: u64) {
        let mut e = Event::new(Kind::Unobserved, from, to);
        e.a = Unobserved::Window as u32;
        self.b.on_recorder(e);
    }

    fn finish(self) -> Growing {
        Growing(self.b.finish())
    }
}

/// A recording of which more and more is complete.
struct Growing(Vec<u8>);

impl Growing {
    /// As it is once all up to `to` is complete.
    fn complete_to(&mut self, to: u64, shape: impl FnOnce(&mut Header)) -> Header {
        let bytes = self.0[..HEADER_BYTES].try_into().unwrap();
        let mut header = Header::decode(bytes).unwrap();
        (header.gpu_complete_to, header.host_complete_to, header.last_write) = (to, to, to);
        shape(&mut header);
        self.0[..HEADER_BYTES].copy_from_slice(&header.encode());
        header
    }

    fn look(&mut self, ledger: &mut Ledger, to: u64) {
        let header = self.complete_to(to, |_| ());
        ledger.advance(self.0.as_slice(), &header, 1.0).unwrap();
    }
}

fn seconds(ledger: &Ledger, bucket: Bucket) -> f64 {
    ledger.devices[&0].buckets.get(bucket) as f64 / 1e9
}

fn total(ledger: &Ledger) -> u64 {
    ledger.devices[&0].buckets.total()
}

#[test]
fn looks_of_any_length_add_up_to_one() {
    let mut steps = Steps::new();
    steps.fill(BEGIN, BEGIN + 60 * S);
    let mut recording = steps.finish();
    let end = BEGIN + 60 * S;
    let mut once = Ledger::default();
    recording.look(&mut once, end);
    // up to the last kernel's end: whose the time after it is, the next one tells
    assert_eq!(total(&once), 60 * S - (STEP - 10_000 - BUSY));
    assert!((seconds(&once, Bucket::Compute) - 45.0).abs() < 0.1);
    for every in [S / 9, S + 7 * MS, 15 * S] {
        let (mut ledger, mut at, mut before) = (Ledger::default(), BEGIN, 0);
        while at < end {
            at = (at + every).min(end);
            recording.look(&mut ledger, at);
            let now = ledger.devices.get(&0).map_or(0, |d| d.buckets.total());
            assert!(now >= before && now <= at - BEGIN, "{every}: it only grows");
            before = now;
        }
        assert_eq!(total(&ledger), total(&once), "{every}");
        for bucket in Bucket::ALL {
            let (many, one) = (seconds(&ledger, bucket), seconds(&once, bucket));
            assert!((many - one).abs() < 0.3, "{every}: {bucket:?}: {many} s, at once {one} s");
        }
        let (many, one) = (ledger.steps as i64, once.steps as i64);
        assert!((many - 1500).abs() <= 10 && (one - 1500).abs() <= 3, "{every}: {many} and {one} steps");
        assert!(
            (ledger.step_times.ns as f64 / ledger.step_times.count() as f64 - 4e7).abs() < 4e5,
            "{every}"
        );
    }
}

#[test]
fn unobserved_time_is_in_no_counter_and_shares_are_those_of_the_analysis() {
    let mut steps = Steps::new();
    for window in 0..60 {
        let at = BEGIN + window * 60 * S;
        steps.fill(at, at + 2 * S);
        steps.unobserved(at + 2 * S, at + 60 * S);
    }
    let mut recording = steps.finish();
    let mut ledger = Ledger::default();
    for window in 0..60 {
        let at = BEGIN + window * 60 * S;
        for to in [at + S, at + 2 * S] {
            recording.look(&mut ledger, to);
            recording.look(&mut ledger, to); // nothing is new
        }
    }
    let seen = 60 * 2 * S;
    assert!(total(&ledger).abs_diff(seen) < 12 * MS, "{} s of 120", total(&ledger) as f64 / 1e9);
    let run = verdict::load(recording.0.as_slice()).unwrap();
    let whole = verdict::analyze(&run).devices[0].buckets;
    let sums = ledger.devices[&0].buckets;
    let idle = |b: &verdict::analysis::Buckets| b.idle() as f64 / b.total() as f64;
    assert!((idle(&sums) - idle(&whole)).abs() < 0.01, "{} and {}", idle(&sums), idle(&whole));
}

#[test]
fn a_program_that_hangs_is_idle_once_nothing_comes_for_long() {
    let mut steps = Steps::new();
    steps.fill(BEGIN, BEGIN + 20 * S);
    let mut recording = steps.finish();
    let mut ledger = Ledger::default();
    recording.look(&mut ledger, BEGIN + 20 * S);
    let before = total(&ledger);
    recording.look(&mut ledger, BEGIN + 25 * S);
    assert_eq!(total(&ledger), before, "the next kernel may come, and tell why so late");
    recording.look(&mut ledger, BEGIN + 80 * S);
    let idle = (total(&ledger) - before) as f64 / 1e9;
    assert!((idle - 50.0).abs() < 0.1, "{idle} s of the 60 of which 10 may still be told");
}

#[test]
fn more_events_than_a_look_takes_are_counted_in_parts() {
    let mut recording = Growing(million::recording(200_000));
    let header = Header::decode(recording.0[..HEADER_BYTES].try_into().unwrap()).unwrap();
    let mut ledger = Ledger::default();
    recording.look(&mut ledger, header.gpu_complete_to);
    let run = verdict::load(recording.0.as_slice()).unwrap();
    assert!(run.events > 2 * cli::live::MOST_EVENTS, "{} events", run.events);
    let ops = run.devices[0].ops() as u64;
    assert_eq!(ledger.devices[&0].ops, ops);
    let all = verdict::analyze(&run);
    let (sums, whole) = (ledger.devices[&0].buckets, all.devices[0].busy_ns);
    assert_eq!(sums.total() - sums.idle(), whole);
}

#[test]
fn a_gpu_used_in_passing_is_not_one_that_works() {
    let mut steps = Steps::new();
    steps.b.device(1, "SIM", 132);
    steps.step(1, BEGIN, MS);
    steps.fill(BEGIN + STEP, BEGIN + 20 * S);
    let mut recording = steps.finish();
    let mut ledger = Ledger::default();
    recording.look(&mut ledger, BEGIN + 20 * S);
    assert_eq!(ledger.working().map(|(ordinal, _)| ordinal).collect::<Vec<_>>(), [0]);
    assert_eq!(ledger.devices.len(), 2);
}

#[test]
fn steps_are_those_that_were_marked_else_counted_else_recorded() {
    let of = |counters: &[(Total, u64, u64)]| {
        let mut steps = Steps::new();
        steps.fill(BEGIN, BEGIN + 40 * S);
        let mut recording = steps.finish();
        let mut ledger = Ledger::default();
        for (look, to) in [BEGIN + 20 * S, BEGIN + 40 * S].into_iter().enumerate() {
            let header = recording.complete_to(to, |h| {
                for &(total, first, second) in counters {
                    h.totals[total as usize] = [first, second][look];
                }
            });
            ledger.advance(recording.0.as_slice(), &header, 1.0).unwrap();
        }
        ledger.steps
    };
    let recorded = of(&[]);
    assert!(recorded.abs_diff(1000) < 5, "{recorded}");
    assert_eq!(of(&[(Total::ClockSteps, 5000, 9000)]), 9000, "those between windows, too");
    assert_eq!(of(&[(Total::Steps, 500, 700), (Total::ClockSteps, 5000, 9000)]), 700);
    let learnt = of(&[(Total::ClockSteps, 0, 9000)]);
    assert!(learnt.abs_diff(1000) < 5, "what it counted before the last look nobody knows: {learnt}");
}

/// A `gapprobe metrics` that is started anew, and one that goes on.
#[test]
fn from_now_on_counts_what_comes_and_nothing_that_was() {
    let mut steps = Steps::new();
    steps.fill(BEGIN, BEGIN + 60 * S);
    let mut recording = steps.finish();
    let mut goes_on = Ledger::default();
    recording.look(&mut goes_on, BEGIN + 30 * S);
    let before = goes_on.clone();
    let now = recording.complete_to(BEGIN + 30 * S, |h| h.totals[Total::Steps as usize] = 700);
    let mut anew = Ledger::from_now(&now);
    recording.look(&mut anew, BEGIN + 30 * S);
    assert_eq!((anew.steps, anew.devices.len()), (0, 0));
    for to in [BEGIN + 45 * S, BEGIN + 60 * S] {
        let header = recording.complete_to(to, |h| h.totals[Total::Steps as usize] = 900);
        goes_on.advance(recording.0.as_slice(), &header, 1.0).unwrap();
        anew.advance(recording.0.as_slice(), &header, 1.0).unwrap();
    }
    assert_eq!(anew.steps, 200);
    assert!(total(&anew).abs_diff(total(&goes_on) - total(&before)) < STEP);
    assert!(anew.since >= before.since + 29 * S, "its counters begin there");
}

#[test]
fn a_step_lies_below_the_first_bound_that_it_does_not_exceed() {
    let mut steps = Steps::new();
    steps.fill(BEGIN, BEGIN + 20 * S);
    let mut recording = steps.finish();
    let mut ledger = Ledger::default();
    recording.look(&mut ledger, BEGIN + 20 * S);
    let at = STEP_BOUNDS.iter().position(|b| *b == 0.05).unwrap();
    assert_eq!(ledger.step_times.counts[at], ledger.step_times.count());
    assert!(ledger.step_times.count() > 490);
}
