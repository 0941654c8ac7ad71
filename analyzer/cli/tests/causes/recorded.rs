// SPDX-License-Identifier: Apache-2.0
//! What recording itself does to a step (docs/run-cost.md): CUPTI slows a host that launches, and
//! neither waits nor the GPU. That the cause named is that of a step which nobody records:
//! `sync_bool_mask` and `sync_eval_metric` of tests/gpu/recordings (`scripts/test labelled`).

use trace::header::sources::WAITS_BY_CALLS;
use trace::Total;
use verdict::replay::{RECORDER_SLOWS, RECORDER_SLOWS_WITH_WAITS};
use verdict::Analysis;

use super::program::Program;
use super::{run, verdict};

/// The same program, recorded and not: what goes with its launches takes longer while it is
/// recorded.
fn both(step: impl Fn(&mut Program)) -> (Analysis, Analysis) {
    let recorded = run(|p| {
        p.slowed = RECORDER_SLOWS_WITH_WAITS.by;
        step(p);
    });
    (recorded.1, run(step).1)
}

/// What the fix of a cause wins: of the step as it was recorded, and of one that nobody records.
fn wins(a: &Analysis, cause: &str) -> (f64, f64) {
    let f = a
        .findings
        .iter()
        .find(|f| f.cause == cause)
        .unwrap_or_else(|| panic!("no {cause}: {:#?}", a.findings));
    (f.win.share(), f.unrecorded_win)
}

/// Layers whose launches the GPU waits for, then larger ones that fill the queue, which the wait at
/// the step's end drains. Unrecorded the host would be as fast as the GPU but for that wait;
/// recorded it is slower anyway.
fn drained(p: &mut Program) {
    p.forward(50, 2_000);
    p.forward(97, 20_000);
    p.item();
    p.think(1_250_000);
}

/// Short layers with a wait behind each few.
fn waiting(p: &mut Program, waits: bool) {
    for _ in 0..6 {
        p.forward(4, 12_000);
        if waits {
            p.item();
        }
    }
}

#[test]
fn what_a_fix_wins_is_what_it_wins_of_the_program_that_nobody_records() {
    type Form = fn(&mut Program);
    let programs: [(&str, Form, Form); 3] = [
        ("SYNC", drained, |p| {
            p.forward(50, 2_000);
            p.forward(97, 20_000);
            p.think(1_250_000);
        }),
        ("SYNC", |p| waiting(p, true), |p| waiting(p, false)),
        (
            "HOST",
            |p| {
                p.forward(30, 3_000);
                p.t += 1_500_000;
            },
            |p| p.forward(30, 3_000),
        ),
    ];
    for (cause, slow, fixed) in programs {
        let (recorded, alone) = both(slow);
        let (step, truth) = (alone.steps.mean_ns, 1.0 - run(fixed).1.steps.mean_ns / alone.steps.mean_ns);
        let cost = 1.0 - step / recorded.steps.mean_ns;
        assert!((recorded.cost.share - cost).abs() < 0.02, "{cause}: {:?}, {cost:.3} true", recorded.cost);
        let (_, said) = wins(&recorded, cause);
        assert!((said - truth).abs() < 0.03, "{cause}: {said:.3} said, {truth:.3} true");
    }
}

#[test]
fn a_recording_without_cuptis_records_of_waits_slows_the_program_less() {
    let step: fn(&mut Program) = |p| p.forward(60, 1_000);
    let (with, alone) = both(step);
    let without = run(|p| {
        p.b.header.sources |= WAITS_BY_CALLS;
        p.slowed = RECORDER_SLOWS.by;
        step(p);
    });
    for recorded in [&with, &without.1] {
        let cost = 1.0 - alone.steps.mean_ns / recorded.steps.mean_ns;
        assert!((recorded.cost.share - cost).abs() < 0.02, "{:?}, {cost:.3} true", recorded.cost);
    }
    assert!(without.1.cost.share < 0.75 * with.cost.share, "{:?} {:?}", without.1.cost, with.cost);
}

#[test]
fn the_cause_named_is_that_of_the_step_which_nobody_records() {
    let (recorded, alone) = both(drained);
    let [launch, sync] = ["LAUNCH", "SYNC"].map(|cause| wins(&recorded, cause));
    assert!(launch.0 > 1.3 * sync.0 && sync.1 > 1.3 * launch.1, "no such program: {launch:?} {sync:?}");
    verdict(&alone, "SYNC");
    verdict(&recorded, "SYNC");
}

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

/// Twenty times as many launches between windows as in them, in the time of the recording ten times
/// over.
#[test]
fn of_a_run_with_windows_only_the_recorded_part_lost_anything() {
    let cost = |scale: u64| {
        let (mut run, a) = run(|p| p.forward(60, scale));
        let launches = run.devices.iter().map(|d| d.ops() as u64).sum::<u64>();
        run.header.totals[Total::Launches as usize] = launches;
        run.header.totals[Total::LaunchesBetween as usize] = 20 * launches;
        run.header.totals[Total::Windows as usize] = 21;
        run.header.launch_cost_ns = 4_600;
        run.header.exit_monotonic = run.header.first_use + 10 * a.coverage.run_ns;
        verdict::analyze(&run).cost
    };
    let (launching, ahead) = (cost(1_000), cost(60_000));
    // a quarter of one step in 21
    assert!((0.01..0.02).contains(&launching.share), "{launching:?}");
    assert!(ahead.share < 0.001, "the GPU is the limit: {ahead:?}");
    assert!(
        launching.attached_most > 0.05,
        "what CUPTI takes by being attached is a figure of its own: {launching:?}"
    );
}

#[test]
fn no_more_than_was_recorded_costs_anything() {
    let (mut run, a) = run(|p| p.forward(60, 1_000));
    run.header.totals[trace::Total::Launches as usize] = 1_800;
    run.header.totals[trace::Total::LaunchesBetween as usize] = 9 * 1_800;
    let windows = verdict::analyze(&run);
    let between = |each: u64| 9.0 * 1_800.0 * each as f64 / windows.coverage.run_ns as f64;
    // a tenth of the steps, and the others are shorter
    let part = windows.cost.share / a.cost.share;
    assert!((0.10..0.14).contains(&part), "{:?} {:?}", windows.cost, a.cost);
    assert!((windows.cost.attached_most / between(trace::total::LEFT_BEHIND_FIRST_NS) - 1.0).abs() < 0.01);
    // a second window leaves more behind
    run.header.totals[trace::Total::Windows as usize] = 2;
    let again = verdict::analyze(&run);
    let more = again.cost.attached_most - windows.cost.attached_most;
    let expected = between(trace::total::LEFT_BEHIND_NS - trace::total::LEFT_BEHIND_FIRST_NS);
    assert!((more / expected - 1.0).abs() < 0.01, "{more} {expected}");
    // half of the launches are graphs, of two nodes each
    run.header.totals[trace::Total::Launches as usize] = 900;
    run.header.totals[trace::Total::GraphLaunches as usize] = 900;
    run.header.totals[trace::Total::Kernels as usize] = 900 + 900 * 2;
    let graphs = verdict::analyze(&run);
    let more = graphs.cost.attached_most - again.cost.attached_most;
    assert!((more / between(1200) - 1.0).abs() < 0.01, "{more} {:?}", graphs.cost);
}
