// SPDX-License-Identifier: Apache-2.0
//! Purpose: what stands at the edges of other tools' traces is no cost of the program's: a kernel
//! from before the first call, the profiler's own stop, a front without GPU work.

mod made;

use made::{case, line, read, Trace};
use verdict::analysis::Bucket;

/// A kernel from before the profiler's begin makes no launching of the fetching behind it.
#[test]
fn the_first_gap_is_what_the_host_did_in_it() {
    let (_, with) = read(&case("first_gap_input.json"));
    let (_, without) = read(&case("first_gap_input_reference.json"));
    for a in [&with, &without] {
        let b = &a.devices[0].buckets;
        assert!(b.share(Bucket::Input) > 0.95 && b.share(Bucket::Launch) < 0.01, "{b:?}");
        assert_eq!(a.verdict.cause, "INPUT");
    }
    let apart = (with.verdict.promise.unwrap().ns() - without.verdict.promise.unwrap().ns()).abs();
    assert!(
        apart < 0.5e6,
        "{} and {}",
        with.verdict.promise.unwrap().ns(),
        without.verdict.promise.unwrap().ns()
    );
}

/// The same where the host fetches nothing that is named: it is elsewhere, and does not launch.
#[test]
fn an_unnamed_first_gap_is_the_hosts() {
    for (pause, bucket) in [(40_000, Bucket::Host), (40, Bucket::Launch)] {
        let mut t = Trace::new();
        t.kernel_of("from_before", 50, 0x7000_0000);
        t.t += 53 + pause;
        for _ in 0..12 {
            t.layers(4, 100);
            t.synchronize();
        }
        let (_, a) = t.read();
        let first = a.devices[0].slices.first().expect("a gap");
        assert_eq!((first.bucket, (first.end - first.start) / 1_000 >= pause), (bucket, true), "{first:?}");
    }
}

/// The profiler's own stop, 80 ms inside of the last step's mark, is no cost of the program's. What
/// the other steps have behind their work, too, stays.
#[test]
fn time_behind_the_last_operation_is_not_the_hosts() {
    for logging in [0, 1_000] {
        for stop in [0, 80_000] {
            let mut t = Trace::new();
            for n in 0..5 {
                let from = t.t;
                t.layers(10, 200);
                t.t = t.free + 5;
                t.t += logging + if n == 4 { stop } else { 0 };
                t.range(&format!("ProfilerStep#{n}"), from);
            }
            let (_, a) = t.read();
            let host = a.devices[0].buckets.get(Bucket::Host) / 1_000;
            assert_eq!(a.steps.steps.len(), 5);
            assert!(host.abs_diff(5 * logging) < 100, "{host} us for {logging} a step, stop {stop}");
        }
    }
}

/// Nothing ran on the GPU in the first half of the file: it is in no share, so it is said.
#[test]
fn an_idle_front_is_said() {
    for front in [0, 60_000] {
        let mut t = Trace::new();
        t.call("cudaGetDeviceCount", 5);
        t.t += front;
        for _ in 0..12 {
            t.layers(4, 200);
            t.kernel("adam", 1_000);
            t.synchronize();
        }
        let (input, a) = t.read();
        let said = line(&input, &a);
        assert_eq!(said.contains("the first 60 ms without GPU work not counted"), front > 0, "{said}");
    }
}
