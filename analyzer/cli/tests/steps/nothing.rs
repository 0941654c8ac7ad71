// SPDX-License-Identifier: Apache-2.0
//! Programs without steps: launches drawn at random, and one kernel over and over.

use verdict::analysis::{StepSource, Steps};

use super::program::Program;

const FAMILIES: [&str; 6] = [
    "gemm_nn_kernel",
    "gemm_nt_kernel",
    "gemm_tn_kernel",
    "gemm_tt_kernel",
    "gemv_n_kernel",
    "gemv_t_kernel",
];

fn steps(p: Program) -> Steps {
    p.analyze().1.steps
}

#[track_caller]
fn none(p: Program) {
    let steps = steps(p);
    assert_eq!((steps.source, steps.steps.len()), (StepSource::None, 0));
}

#[test]
fn kernels_drawn_at_random_are_no_steps() {
    for families in 2..=6 {
        for (seed, grids) in [(1, 1), (2, 1), (3, 1), (4, 4), (5, 4)] {
            let mut p = Program::new();
            p.random(seed);
            for _ in 0..seed {
                p.random(2);
            }
            for _ in 0..5_000 {
                let name = FAMILIES[p.random(families) as usize];
                let blocks = 16 << (2 * p.random(grids));
                p.launch(name, blocks as u32, 20_000);
            }
            let found = steps(p).steps.len();
            assert_eq!(found, 0, "{families} families, {grids} grids, seed {seed}");
        }
    }
}

/// Names that differ in their numbers alone are one family.
#[test]
fn variants_of_one_kernel_at_random_are_no_steps() {
    let mut p = Program::new();
    for _ in 0..5_000 {
        let variant = p.random(6);
        p.launch(&format!("kernel_{variant}"), 100, 20_000);
    }
    none(p);
}

#[test]
fn one_kernel_over_and_over_is_no_step() {
    let mut p = Program::new();
    for _ in 0..5_000 {
        p.launch("stencil_kernel", 100, 20_000);
    }
    p.sync();
    none(p);
}

/// What happens once an iteration, beside the kernel, makes the iteration a step.
#[test]
fn one_kernel_and_a_wait_or_a_copy_is_a_step() {
    for what in ["sync", "copy", "item"] {
        let mut p = Program::new();
        for _ in 0..300 {
            if what == "copy" {
                p.copy(7, true, 4_096, false);
            }
            p.launch("stencil_kernel", 100, 20_000);
            match what {
                "sync" => p.sync(),
                "item" => p.item(),
                _ => {}
            }
        }
        let n = steps(p).steps.len();
        assert!(n.abs_diff(300) <= 1, "{n} steps of 300 with a {what} each");
    }
}

/// A wait now and then is none of a step: the stretches between are of any length.
#[test]
fn one_kernel_and_a_wait_at_random_is_no_step() {
    let mut p = Program::new();
    for _ in 0..5_000 {
        p.launch("stencil_kernel", 100, 20_000);
        if p.random(40) == 0 {
            p.sync();
        }
    }
    none(p);
}
