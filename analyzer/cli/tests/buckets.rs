// SPDX-License-Identifier: Apache-2.0
//! Buckets sum to the wall time exactly, and what is busy equals brute force, on random overlapping
//! streams.

use proptest::prelude::*;
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::event::Copy;
use trace::{Event, Kind};
use verdict::analysis::{Analysis, Bucket, Buckets};

#[derive(Clone, Debug)]
struct RandomOp {
    stream: u32,
    start: u64,
    length: u64,
    kind: u8,
    /// Launch call: begin before the op, length; 0: not recorded.
    lead: u64,
    call: u64,
    graph: bool,
}

fn ops() -> impl Strategy<Value = Vec<RandomOp>> {
    let op = (0..3u32, 0..4_000u64, 0..300u64, 0..4u8, 0..500u64, 0..400u64, any::<bool>());
    let op = op.prop_map(|(stream, start, length, kind, lead, call, graph)| RandomOp {
        stream,
        // tens of microseconds: gaps on both sides of every limit
        start: 1_000_000 + start * 500,
        length: length * 200,
        kind,
        lead: lead * 100,
        call: call * 100,
        graph,
    });
    proptest::collection::vec(op, 1..80)
}

/// Random blocking calls: (class, begin, length).
fn calls() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    let call = (5..8u8, 0..4_000u64, 0..500u64);
    proptest::collection::vec(call.prop_map(|(c, s, l)| (c, 1_000_000 + s * 500, l * 500)), 0..12)
}

fn build(ops: &[RandomOp], calls: &[(u8, u64, u64)], blind: &[(u64, u64)]) -> Vec<u8> {
    let mut b = Builder::new();
    let (gemm, nccl) = (b.kernel("gemm", 128, 32), b.kernel("ncclDevKernel_AllReduce", 128, 32));
    for (i, o) in ops.iter().enumerate() {
        let correlation = 1 + if o.graph { 0 } else { i as u32 };
        let mut e = Event::new(Kind::Kernel, o.start, o.start + o.length);
        e.correlation = correlation;
        match o.kind {
            0 | 1 => e.a = if o.kind == 0 { gemm } else { nccl },
            2 => {
                e.kind = Kind::Memcpy;
                let c = Copy { bytes: o.length * 10, direction: 1, source: 1, destination: 3, peer: false };
                (e.a, e.b) = c.pack();
            }
            _ => e.kind = Kind::Memset,
        }
        e.flags = u8::from(o.graph && o.kind == 0);
        b.on_stream(0, 1, o.stream, e);
        if o.call > 0 {
            let mut c = Event::new(Kind::Call, o.start - o.lead, o.start - o.lead + o.call);
            c.correlation = correlation;
            c.x = if o.kind == 2 { Class::Copy } else { Class::Launch } as u8;
            c.a = pack(RUNTIME, 211);
            b.on_thread(10 + o.stream, c);
        }
    }
    for &(class, start, length) in calls {
        let mut c = Event::new(Kind::Call, start, start + length);
        c.x = class;
        c.a = pack(RUNTIME, 131);
        b.on_thread(10, c);
    }
    for &(from, to) in blind {
        let mut e = Event::new(Kind::Unobserved, from, to);
        e.a = 1;
        b.on_recorder(e);
    }
    b.finish()
}

/// Nanosecond by nanosecond would take long: by every interval between two times at which anything
/// changes.
fn brute_force(ops: &[RandomOp], blind: &[(u64, u64)], from: u64, to: u64) -> (Buckets, u64) {
    let mut cuts: Vec<u64> = ops.iter().flat_map(|o| [o.start, o.start + o.length]).collect();
    cuts.extend(blind.iter().flat_map(|b| [b.0, b.1]));
    cuts.extend([from, to]);
    cuts.retain(|c| (from..=to).contains(c));
    cuts.sort_unstable();
    cuts.dedup();
    let (mut buckets, mut idle) = (Buckets::default(), 0);
    for w in cuts.windows(2) {
        if blind.iter().any(|b| b.0 <= w[0] && w[1] <= b.1) {
            continue;
        }
        let runs = |kinds: &[u8]| {
            ops.iter().any(|o| kinds.contains(&o.kind) && o.start <= w[0] && w[1] <= o.start + o.length)
        };
        let ns = w[1] - w[0];
        match () {
            () if runs(&[0, 3]) => buckets.add(Bucket::Compute, ns),
            () if runs(&[2]) => buckets.add(Bucket::Copy, ns),
            () if runs(&[1]) => buckets.add(Bucket::Comm, ns),
            () => idle += ns,
        }
    }
    (buckets, idle)
}

fn analyze(bytes: &[u8]) -> Analysis {
    let run = verdict::load(bytes).expect("a recording");
    verdict::analyze(&run)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_nanosecond_is_in_one_bucket(
        ops in ops(), calls in calls(), blind in proptest::collection::vec((0..4_000u64, 1..600u64), 0..3)
    ) {
        let blind: Vec<(u64, u64)> = blind.iter().map(|b| (1_000_000 + b.0 * 500, 1_000_000 + (b.0 + b.1) * 500)).collect();
        let a = analyze(&build(&ops, &calls, &blind));
        let d = &a.devices[0];
        // what counts: the steps, and what lies between two of them (beside an unobserved span) is
        // none
        let mut not: Vec<(u64, u64)> = blind.clone();
        not.extend(a.steps.steady().windows(2).map(|w| (w[0].span.end, w[1].span.start)).filter(|h| h.0 < h.1));
        let (truth, idle) = brute_force(&ops, &not, a.steady.start, a.steady.end);
        prop_assert_eq!(d.buckets.total(), d.wall_ns);
        for b in [Bucket::Compute, Bucket::Copy, Bucket::Comm] {
            prop_assert_eq!(d.buckets.get(b), truth.get(b), "{:?}", b);
        }
        prop_assert_eq!(d.buckets.idle(), idle);
        // the whole file, as a plain union
        let (whole, gaps) = brute_force(&ops, &[], d.span.start, d.span.end);
        prop_assert_eq!((d.busy_ns, d.idle_ns), (whole.total(), gaps));
        // slices: in order, disjoint, and as long as the idle time they stand for
        prop_assert!(d.slices.windows(2).all(|w| w[0].end <= w[1].start), "{:?}", d.slices);
        let inside: u64 = d.slices.iter().map(|s| a.counts.measure(s.span())).sum();
        prop_assert_eq!(inside, idle);
        prop_assert!(d.slices.iter().all(|s| s.bucket.is_gap()));
    }
}

#[test]
fn a_lapped_stream_makes_no_idle_time_before_the_valid_span() {
    // stream 1 is busy all the time, of which only the last tenth is left; stream 2 is sparse and
    // whole
    let op =
        |stream, start, length| RandomOp { stream, start, length, kind: 0, lead: 0, call: 0, graph: false };
    let mut ops: Vec<RandomOp> = (900..1000).map(|i| op(1, 1_000_000 + i * 10_000, 9_000)).collect();
    ops.extend((0..10).map(|i| op(2, 1_000_000 + i * 1_000_000, 5_000)));
    let mut bytes = build(&ops, &[], &[]);
    let mut header = trace::Header::decode(bytes[..4096].try_into().expect("4 KiB")).expect("a header");
    header.valid_from = 1_000_000 + 900 * 10_000;
    bytes[..4096].copy_from_slice(&header.encode());
    let a = analyze(&bytes);
    let d = &a.devices[0];
    // 100 kernels of 9 us every 10 us; the last gap is behind the last op
    assert_eq!((d.busy_ns, d.idle_ns), (900_000, 99_000));
    assert_eq!(d.buckets.idle(), 99_000);
}
