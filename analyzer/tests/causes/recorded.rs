// SPDX-License-Identifier: Apache-2.0
//! What recording itself does to a step (docs/run-cost.md): CUPTI slows a host that launches, and neither waits nor the GPU. That the cause named is
//! that of a step which nobody records: `sync_bool_mask` and `sync_eval_metric` of tests/gpu/recordings (`scripts/test labelled`).

use super::run;

#[test]
fn the_cost_of_recording_is_what_the_step_takes_longer() {
    let launching = run(|p| p.forward(60, 1_000)).1;
    assert!((0.2..0.3).contains(&launching.cost.share), "{:?}", launching.cost);
    // behind a full queue it costs nothing, and beside a long stretch of Python next to nothing
    let ahead = run(|p| p.forward(60, 60_000)).1;
    assert!(ahead.cost.share < 0.01, "{:?}", ahead.cost);
    let python = run(|p| {
        p.forward(6, 60_000);
        p.t += 10_000_000;
    });
    assert!(python.1.cost.share < 0.02, "{:?}", python.1.cost);
}

#[test]
fn no_more_than_was_recorded_costs_anything() {
    let (mut run, a) = run(|p| p.forward(60, 1_000));
    run.header.totals[trace::Total::Launches as usize] = 1_800;
    run.header.totals[trace::Total::LaunchesBetween as usize] = 9 * 1_800;
    let windows = analyzer::analyze(&run);
    let between = 9.0 * 1_800.0 * trace::total::LEFT_BEHIND_NS as f64 / windows.coverage.run_ns as f64;
    let part = (windows.cost.share - between) / a.cost.share;
    assert!((0.09..0.11).contains(&part), "{:?} {:?}", windows.cost, a.cost);
}
