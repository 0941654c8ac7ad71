// SPDX-License-Identifier: Apache-2.0
//! Purpose: what stands at the edges of other tools' traces is no cost of the program's: a kernel from
//! before the first call.

mod made;

use analyzer::analysis::Bucket;
use made::{case, read, Trace};

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
    let apart = (with.verdict.predicted_ns - without.verdict.predicted_ns).abs();
    assert!(apart < 0.5e6, "{} and {}", with.verdict.predicted_ns, without.verdict.predicted_ns);
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
