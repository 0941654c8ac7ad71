// SPDX-License-Identifier: Apache-2.0
//! Recordings that lie: nothing panics, nothing takes long, buckets still sum.

mod program;

use program::Program;
use proptest::prelude::*;
use trace::build::Builder;
use trace::{Event, Kind};

fn survive(bytes: &[u8]) {
    let Ok(run) = verdict::load(bytes) else { return };
    let a = verdict::analyze(&run);
    for d in &a.devices {
        assert_eq!(d.buckets.total(), d.wall_ns);
    }
    let line = verdict::output::sentence::line(&run, &a, Some("x"));
    assert!(line.contains(" [GP") && !line.contains('\n'), "{line}");
}

#[test]
fn a_recording_cut_or_damaged_anywhere_is_survived() {
    let mut p = Program::new();
    for _ in 0..6 {
        p.train_step(3, 20_000);
        p.item();
        p.free(100_000);
    }
    let bytes = p.finish();
    for cut in (0..bytes.len()).step_by(4093) {
        survive(&bytes[..cut]);
    }
    let mut random = 7u64;
    for _ in 0..150 {
        let mut damaged = bytes.clone();
        for _ in 0..30 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (random >> 20) as usize % damaged.len();
            damaged[at] = (random >> 12) as u8;
        }
        survive(&damaged);
    }
}

fn any_event() -> impl Strategy<Value = (u8, Event)> {
    let time = prop_oneof![0..2_000_000u64, Just(0), Just(u64::MAX), Just(u64::MAX - 5), any::<u64>()];
    let kind = proptest::sample::select(vec![1u8, 2, 3, 4, 5, 16, 32, 33, 48, 49, 50]);
    let small = prop_oneof![0..4u32, any::<u32>()];
    (0..4u8, kind, time.clone(), time, small.clone(), small, any::<u32>(), any::<u8>(), 0..12u8).prop_map(
        |(track, kind, start, length, correlation, a, b, flags, x)| {
            let mut e = Event::new(Kind::from_u8(kind).expect("listed"), start, start.saturating_add(length));
            (e.correlation, e.a, e.b, e.flags, e.x, e.c) = (correlation, a, b, flags, x, b ^ a);
            (track, e)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_events_are_survived(
        events in proptest::collection::vec(any_event(), 0..120),
        times in proptest::collection::vec(prop_oneof![Just(0u64), any::<u64>(), 0..3_000_000u64], 6),
        totals in any::<u64>(),
    ) {
        let mut b = Builder::new();
        b.kernel("gemm", 1, 1);
        for (track, e) in events {
            match track {
                0 => b.on_stream(e.a % 3, 1, e.b % 3, e),
                1 => b.on_stream(0, 0, 0, e),
                2 => b.on_thread(e.b % 3, e),
                _ => b.on_recorder(e),
            }
        }
        b.header.valid_from = times[0] / 2;
        b.header.gpu_complete_to = times[1];
        b.header.host_complete_to = times[2];
        b.header.start_monotonic = times[3];
        b.header.first_use = times[4];
        b.header.exit_monotonic = times[5];
        b.header.launch_cost_ns = totals as u32;
        b.header.totals = [totals; 64];
        b.header.losses = [totals; 64];
        survive(&b.finish());
    }
}

#[test]
fn a_bounded_load_keeps_the_newest_and_says_so() {
    let build = || {
        let mut p = Program::new();
        for _ in 0..60 {
            p.train_step(6, 20_000);
            p.t += 5_000_000;
        }
        p.b.header.totals[trace::Total::Launches as usize] = p.launches;
        p
    };
    let bytes = build().finish();
    let all = verdict::load(bytes.as_slice()).expect("a recording");
    let run = verdict::load_newest(bytes.as_slice(), all.events / 2).expect("a recording");
    let kept: usize = run.devices.iter().map(|d| d.ops()).sum::<usize>()
        + run.threads.iter().map(|t| t.calls.len()).sum::<usize>();
    assert!(kept as u64 <= all.events / 2 && kept as u64 > all.events / 3, "{kept} of {}", all.events);
    let a = verdict::analyze(&run);
    assert!(a.coverage.overwritten && a.valid.start > all.header.start_monotonic);
    assert_eq!(a.verdict.cause, "HOST");
    // half of the steps seen, all of them known
    assert!(a.steps.steps.len().abs_diff(30) <= 2, "{}", a.steps.steps.len());
    assert!(a.coverage.steps_run.abs_diff(60) <= 1, "{:?}", a.coverage);
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(line.contains(" of about ") && line.contains("(seen: last "), "{line}");
}
