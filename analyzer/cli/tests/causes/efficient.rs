// SPDX-License-Identifier: Apache-2.0
//! GP193 EFFICIENT: a GPU that computes all the time, whose tensor cores or memory are at work by
//! its counters; and what is close by: little of both, no counters, a cause of slow kernels.

use super::fp32_matmul::{layers, FFMA};
use super::low_occupancy::products;
use super::{run, verdict};

#[test]
fn tensor_cores_or_memory_well_used() {
    let (run_, a) = products(7_200, 3_000);
    verdict(&a, "EFFICIENT");
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(
        line.starts_with("gapprobe: GPU-bound and well used: kernels run >99% of the time, tensor cores 72%"),
        "{line}"
    );
    assert!(line.ends_with("[GP193]"), "{line}");
    assert!(a.findings.iter().all(|f| f.win.share() < 0.05), "{:?}", a.findings);
}

#[test]
fn little_of_both_no_counters_and_slow_kernels() {
    verdict(&products(5_500, 6_500).1, "GPU-BOUND");
    let (_, a) = run(|p| p.launch("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", 132, 9_000_000));
    assert!(a.verdict.code != "GP193", "{:?}", a.verdict);
    let (_, a) = run(|p| layers(p, 20, FFMA));
    verdict(&a, "FP32-MATMUL");
}
