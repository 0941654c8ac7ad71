// SPDX-License-Identifier: Apache-2.0
//! GP106 COPY: pageable copies that hold the host, pinned ones that hold nobody.

use super::{kept, program, run, time, verdict, Program};

#[test]
fn pageable_copies_every_step_are_copy() {
    let step = |p: &mut Program| {
        p.copy(7, true, 30_000_000, true);
        p.train_step(6, 20_000);
    };
    let (_, a) = run(step);
    verdict(&a, "COPY");
    assert!(
        a.verdict.text().contains("pageable") && a.verdict.text().contains("MB a step"),
        "{}",
        a.verdict.text()
    );
    kept(
        &a,
        time(|p| {
            p.copy(20, true, 30_000_000, false);
            p.train_step(6, 20_000);
        }),
    );
}

/// `x.to(device)` as PyTorch does it: the copy's call returns a little before the copy is done,
/// then a synchronize.
fn to_device(p: &mut Program, bytes: u64) {
    p.copy(7, true, bytes, true);
    p.t -= program::RETURN + 40_000;
    let (tid, end) = (p.tid, p.t);
    p.shorten_last_call(tid, end);
    p.sync();
}

#[test]
fn the_synchronize_behind_a_pageable_copy_is_part_of_it() {
    let (_, a) = run(|p| {
        to_device(p, 30_000_000);
        p.train_step(6, 40_000);
    });
    verdict(&a, "COPY");
    kept(
        &a,
        time(|p| {
            p.copy(20, true, 30_000_000, false);
            p.train_step(6, 40_000);
        }),
    );
}

#[test]
fn pinned_copies_on_a_side_stream_are_not() {
    let (_, a) = run(|p| {
        p.copy(20, true, 30_000_000, false);
        p.train_step(6, 100_000);
    });
    verdict(&a, "GPU-BOUND");
}
