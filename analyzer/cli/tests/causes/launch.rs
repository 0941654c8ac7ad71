// SPDX-License-Identifier: Apache-2.0
//! GP102 LAUNCH, GP103 SMALL-KERNELS, GP104 KERNEL-GAP.

use verdict::analysis::{Bucket, Confidence};

use super::{kept, run, time, verdict};

#[test]
fn tiny_kernels_launched_one_by_one_are_launch() {
    let (_, a) = run(|p| p.train_step(12, 2_000));
    verdict(&a, "LAUNCH");
    let mut nodes: Vec<(&str, u64)> = vec![("embedding", 1_000)];
    for _ in 0..12 {
        for k in [500, 2_000, 2_000, 500, 2_000, 2_000, 500, 4_000, 2_000, 500] {
            nodes.push(("node", k));
        }
    }
    nodes.extend([("n", 2_000); 7]);
    kept(&a, time(|p| p.graph(1, &nodes)));
}

/// Launched ahead, the device comes to a memset and from it half a microsecond later than from
/// kernel to kernel.
#[test]
fn memsets_among_tiny_kernels_are_not_promised_the_pace_of_kernels() {
    let (_, kernels) = run(|p| {
        p.launch("embedding", 4, 1_500);
        (0..200).for_each(|_| p.launch("k", 4, 1_500));
    });
    let (_, memsets) = run(|p| {
        p.launch("embedding", 4, 1_500);
        for _ in 0..100 {
            p.launch("k", 4, 1_500);
            p.memset(1_500);
        }
    });
    for a in [&kernels, &memsets] {
        verdict(a, "LAUNCH");
    }
    let more = memsets.verdict.promise.unwrap().ns() - kernels.verdict.promise.unwrap().ns();
    assert!((90_000.0..110_000.0).contains(&more), "{more} ns a step more for 200 gaps");
}

#[test]
fn the_same_kernels_when_long_are_gpu_bound() {
    let (_, a) = run(|p| p.train_step(12, 200_000));
    verdict(&a, "GPU-BOUND");
    assert!(a.devices[0].buckets.share(Bucket::Launch) < 0.01);
}

#[test]
fn a_graph_of_tiny_kernels_waits_for_nothing() {
    let nodes: Vec<(&str, u64)> = (0..600).map(|i| (["a", "b", "c"][i % 3], 1_500)).collect();
    let (_, a) = run(|p| p.graph(1, &nodes));
    verdict(&a, "SMALL-KERNELS");
    let b = &a.devices[0].buckets;
    assert!(b.share(Bucket::KernelGap) > 0.3);
    for none in [Bucket::Sync, Bucket::Host, Bucket::DeviceWait, Bucket::Unexplained] {
        assert_eq!(b.get(none), 0, "{none:?}");
    }
    assert!(a.verdict.confidence < Confidence::High);
}

#[test]
fn a_graph_of_long_kernels_is_gpu_bound() {
    let nodes: Vec<(&str, u64)> = (0..100).map(|i| (["a", "b", "c"][i % 3], 90_000)).collect();
    let (_, a) = run(|p| p.graph(1, &nodes));
    verdict(&a, "GPU-BOUND");
}
