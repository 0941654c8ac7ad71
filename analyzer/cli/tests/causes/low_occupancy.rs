// SPDX-License-Identifier: Apache-2.0
//! GP138 LOW-OCCUPANCY: kernels of few blocks, products of few rows by the GPU's counters, and what
//! is close by: several streams, short kernels, products that keep the tensor cores at work.

use trace::event::Gauge;
use trace::{Event, Kind};
use verdict::analysis::Confidence;
use verdict::run::Run;
use verdict::Analysis;

use super::{run, verdict, Program};

const SCAN: &str = "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float>>";
const GEMM: &str = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT";

/// Ten kernels of so many blocks.
fn kernels(p: &mut Program, blocks: u32, ns: u64) {
    (0..10).for_each(|_| p.launch(SCAN, blocks, ns));
    p.optimizer(25_000);
}

pub(super) fn few(p: &mut Program) {
    kernels(p, 8, 400_000);
}

pub(super) fn enough(p: &mut Program) {
    kernels(p, 128, 400_000);
}

/// Products all the time, and the counters' shares of 10,000.
pub(super) fn products(tensor: u64, memory: u64) -> (Run, Analysis) {
    let mut p = Program::new();
    for _ in 0..120 {
        (0..20).for_each(|_| p.launch(GEMM, 132, 900_000));
        p.optimizer(25_000);
    }
    for (gauge, value) in
        [(Gauge::SmActive, 9_000), (Gauge::TensorActive, tensor), (Gauge::DramActive, memory)]
    {
        let mut e = Event::new(Kind::Gauge, 1_100_000_000, 2_500_000_000);
        (e.a, e.b) = (gauge as u32, value as u32);
        p.b.on_recorder(e);
    }
    p.analyze()
}

#[test]
fn kernels_of_few_blocks() {
    let (run_, a) = run(few);
    verdict(&a, "LOW-OCCUPANCY");
    assert_eq!(a.verdict.confidence, Confidence::Low);
    let line = ::verdict::output::sentence::line(&run_, &a, None);
    assert!(line.contains("maybe kernels leave much of the GPU idle"), "{line}");
    // eight of 132 blocks, half as long again
    let left = a.verdict.promise.map_or(0.0, |p| p.ns()) / a.verdict.step_ns;
    assert!((0.08..0.15).contains(&left), "{left}");
}

#[test]
fn products_of_few_rows() {
    let (_, a) = products(2_100, 8_000);
    verdict(&a, "LOW-OCCUPANCY");
    assert!(a.verdict.promise.is_none(), "a larger batch makes a longer step");
    assert!(a.findings[0].win.share() > 0.6, "0.21 of 0.7 is left: {:?}", a.findings);
    assert!(
        a.verdict.text().contains("in a batch several times as large each row takes 30% of its time"),
        "{}",
        a.verdict.text()
    );
    assert!(a.verdict.text().contains("80% of the memory bandwidth"), "{}", a.verdict.text());
    // they keep the tensor cores at work; they wait for something else; other pipes compute
    for (tensor, memory) in [(7_000, 8_000), (2_100, 6_000), (0, 8_000)] {
        let (_, a) = products(tensor, memory);
        assert!(a.findings.iter().all(|f| f.cause != "LOW-OCCUPANCY"), "{tensor}: {:?}", a.findings);
    }
}

#[test]
fn enough_blocks_short_kernels_and_several_streams() {
    verdict(&run(enough).1, "GPU-BOUND");
    // made so: a recurrent layer
    let (_, a) = run(|p| (0..10).for_each(|_| p.launch("RNN_blockPersist_fp_LSTM<float>", 8, 400_000)));
    assert!(a.findings.iter().all(|f| f.cause != "LOW-OCCUPANCY"), "{:?}", a.findings);
    for (stream, ns) in [(8, 400_000), (7, 15_000)] {
        let (_, a) = run(|p| {
            kernels(p, 8, ns);
            p.launch_on(stream, GEMM, 132, 300_000);
        });
        assert!(a.findings.iter().all(|f| f.cause != "LOW-OCCUPANCY"), "{stream}: {:?}", a.findings);
    }
}
