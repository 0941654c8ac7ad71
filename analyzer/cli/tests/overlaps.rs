// SPDX-License-Identifier: Apache-2.0
//! Random operations that overlap, touch and lie inside each other on the streams of several
//! devices, written in each format in many ways: what the analysis says of every device is what a
//! timeline with one cell a nanosecond says.

#[path = "overlaps/chrome.rs"]
mod chrome;
#[path = "nsys/fixture.rs"]
#[allow(dead_code, reason = "the writer of it is used here")]
mod fixture;
#[path = "overlaps/timeline.rs"]
mod timeline;

use fixture::{export, Op, Schema, What, Workload};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use timeline::{truth, Figures};
use trace::build::Builder;
use trace::event::Copy;
use trace::{Event, Kind};
use verdict::Run;

/// An operation, as all formats can hold it. Times ns, from the begin of the trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) device: u32,
    pub(crate) stream: u32,
    pub(crate) what: Kind,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// One line an operation where a test fails.
impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Work { device, stream, what, start, end } = self;
        write!(f, "GPU {device} stream {stream}: {what:?} {start}..{end}")
    }
}

fn work() -> impl Strategy<Value = Vec<Work>> {
    // close together many touch and repeat; far apart there are gaps of all lengths
    let times = prop_oneof![
        3 => (0..120u64, 0..12u64),
        3 => (0..4_000u64, 0..300u64),
        1 => (0..4_000u64, Just(0)),
        1 => (0..60_000u64, 0..9_000u64),
    ];
    let what = proptest::sample::select(vec![Kind::Kernel, Kind::Memcpy, Kind::Memset]);
    let one = (0..3u32, 0..4u32, what, times);
    let one = one.prop_map(|(device, stream, what, (start, length))| {
        let end = start + length;
        Work { device, stream, what, start, end }
    });
    proptest::collection::vec(one, 1..60)
}

/// In an order of the file's own: 0 keeps it (and is what a failure shrinks to).
fn shuffled(work: &[Work], seed: u64) -> Vec<Work> {
    let mut keyed: Vec<(u64, Work)> = Vec::new();
    for (n, w) in (0u64..).zip(work) {
        let mixed = (n + 1).wrapping_mul(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        keyed.push((mixed >> 20, *w));
    }
    keyed.sort_by_key(|k| k.0);
    keyed.into_iter().map(|k| k.1).collect()
}

/// What the analysis says.
fn said(run: &Run) -> Vec<Figures> {
    let devices = verdict::analyze(run).devices;
    let mut all: Vec<Figures> = devices
        .iter()
        .map(|d| Figures {
            device: d.ordinal,
            busy: d.busy_ns,
            idle: d.idle_ns,
            gaps: d.gaps,
            max_gap: d.max_gap_ns,
        })
        .collect();
    all.sort_by_key(|d| d.device);
    all
}

fn recording(work: &[Work]) -> Vec<u8> {
    let mut b = Builder::new();
    let kernel = b.kernel("k", 128, 32);
    for w in work {
        let mut e = Event::new(w.what, 1_000_000 + w.start, 1_000_000 + w.end);
        match w.what {
            Kind::Kernel => e.a = kernel,
            Kind::Memcpy => {
                (e.a, e.b) = Copy { bytes: 8, direction: 1, source: 1, destination: 3, peer: false }.pack();
            }
            _ => {}
        }
        b.on_stream(w.device, 1, w.stream, e);
    }
    b.finish()
}

/// `zero`: the export's time of the work's time 0. A row from 0 to 0 has no time, so no work may
/// lie there.
fn nsys(work: &[Work], schema: Schema, zero: i64) -> fixture::Kept {
    let mut w = Workload::default();
    for (op, correlation) in work.iter().zip(1..) {
        let what = match op.what {
            Kind::Kernel => What::Kernel("void k(int)", 4, 32),
            Kind::Memcpy => What::Copy(64, 1, 0, 2),
            _ => What::Memset(64),
        };
        let (start, end) = (zero + op.start as i64, zero + op.end as i64);
        let (device, stream) = (op.device, op.stream);
        w.ops.push(Op { pid: 100, device, stream, start, end, correlation, graph: 0, node: 0, what });
    }
    export(&w, schema, |_| ())
}

fn the_same_each_time(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(2026), failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(the_same_each_time(800))]

    #[test]
    fn of_torch_profilers_json(work in work(), form in chrome::form(), order in prop_oneof![Just(0), any::<u64>()]) {
        let text = chrome::text(&shuffled(&work, order), &form);
        let read = formats::kineto::read_in_blocks(text.as_bytes(), form.block, &Default::default());
        let kineto = read.expect("a trace");
        prop_assert_eq!(kineto.refused.lost(), 0);
        prop_assert_eq!(said(&kineto.run), truth(&work), "{}", text);
    }

    #[test]
    fn of_recordings(work in work(), order in any::<u64>()) {
        let bytes = recording(&shuffled(&work, order));
        let run = verdict::load(bytes.as_slice()).expect("a recording");
        prop_assert_eq!(said(&run), truth(&work));
    }
}

proptest! {
    #![proptest_config(the_same_each_time(150))]

    #[test]
    fn of_nsys_exports(
        work in work(),
        old in any::<bool>(),
        zero in proptest::sample::select(vec![5_000, -1_000_000, 1 << 50]),
        order in prop_oneof![Just(0), any::<u64>()],
    ) {
        let schema = if old { Schema::Old } else { Schema::New };
        let file = nsys(&shuffled(&work, order), schema, zero);
        let input = formats::read(&file.0, &Default::default()).expect("an export");
        prop_assert_eq!(input.refused.lost(), 0);
        prop_assert_eq!(said(&input.run), truth(&work));
    }
}
