// SPDX-License-Identifier: Apache-2.0
//! What outweighs steps and what does not: a period must explain most of the computing, not of the
//! time that copies and collectives take, which wait for disks and for other ranks.

use super::program::Program;

/// Forty steps of about 3 ms behind a start and in front of an end.
#[track_caller]
fn forty(start: impl FnOnce(&mut Program), end: impl FnOnce(&mut Program)) {
    let mut p = Program::new();
    start(&mut p);
    for _ in 0..40 {
        p.train_step(6, 40_000);
        p.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 24, 100_000);
    }
    p.sync();
    end(&mut p);
    p.sync();
    let (_, a) = p.analyze();
    let n = a.steps.steps.len();
    assert!(n.abs_diff(40) <= 1, "{n} of 40");
    let longest = a.steps.steady().iter().map(|s| s.span.ns()).max().unwrap_or(0);
    assert!(longest < 2 * a.steps.median_ns, "a step of {longest} ns among those of {}", a.steps.median_ns);
}

/// Fifty copies of 100 MB, 1 s.
fn weights(p: &mut Program, to_device: bool) {
    for _ in 0..50 {
        p.copy(7, to_device, 100_000_000, true);
    }
}

#[test]
fn steps_between_loading_and_saving_a_model() {
    forty(|p| weights(p, true), |p| weights(p, false));
}

/// The other ranks wait in a collective until the first has saved the model.
#[test]
fn steps_before_a_long_wait_for_another_rank() {
    forty(
        |_| (),
        |p| {
            for _ in 0..60 {
                p.launch("elementwise_kernel<average>", 100, 4_000);
            }
            p.launch("ncclDevKernel_AllReduce_Sum_u8_RING_LL", 1, 2_000_000_000);
        },
    );
}
