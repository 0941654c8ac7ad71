// SPDX-License-Identifier: Apache-2.0
//! Purpose: what recording cost is what the process measured of itself, with its interval, wherever
//! it is said; where it measured nothing, it is a range that is said not to be measured, and never
//! nothing where anything was launched.

use trace::Total;
use verdict::analysis::Cost;
use verdict::output::line;
use verdict::{Analysis, Run};

use super::{run, Program};

/// As the process measured: steps are longer by this, at least and at most, a share of others.
fn measured(mut run: Run, [mean, least, most]: [f64; 3]) -> (Run, Analysis) {
    let totals = [(Total::LongerPpm, mean), (Total::LongerLeastPpm, least), (Total::LongerMostPpm, most)];
    for (total, share) in totals {
        run.header.totals[total as usize] = (share * 1e6) as u64;
    }
    let a = verdict::analyze(&run);
    (run, a)
}

fn launching() -> (Run, Analysis) {
    run(|p| p.forward(60, 1_000))
}

fn is(cost: &Cost, [share, least, most]: [f64; 3]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() < 1e-4;
    near(cost.share, share) && near(cost.least, least) && near(cost.most, most)
}

#[test]
fn what_the_process_measured_is_the_cost_with_its_interval() {
    let (run, a) = measured(launching().0, [0.25, 0.20, 0.30]);
    assert!(a.cost.measured && is(&a.cost, [0.2, 0.1667, 0.2308]), "{:?}", a.cost);
    let line = line::evidence(&run, &a).join("; ");
    assert!(line.contains("; cost 20.0% (16.7 to 23.1); losses 0"), "{line}");
    let summary = verdict::output::summary::summary(&run, &a, &verdict::output::summary::Around::default());
    assert_eq!(summary["cost"]["measured"], true);
    assert!((summary["cost"]["most"].as_f64().unwrap() - 0.2308).abs() < 1e-4, "{}", summary["cost"]);
}

/// One switch of a busy host tells little: the middle is small, and it may be much.
#[test]
fn what_is_known_to_more_than_a_twentieth_only_is_said_as_what_it_may_be() {
    let said = |[mean, least, most]: [f64; 3]| {
        let (run, a) = measured(launching().0, [mean, least, most]);
        let sentence = verdict::output::sentence::sentence(&run, &a);
        sentence.split_once("recording cost ").map(|(_, cost)| cost.to_owned())
    };
    assert_eq!(said([0.0, 0.0, 0.11]).as_deref(), Some("up to 10%"));
    assert_eq!(said([0.25, 0.20, 0.30]).as_deref(), Some("20%"));
    assert_eq!(said([0.02, 0.01, 0.03]), None);
}

#[test]
fn of_a_run_of_which_a_tenth_was_recorded_a_tenth_lost_it() {
    let (mut run, _) = launching();
    run.header.totals[Total::Launches as usize] = 1_800;
    run.header.totals[Total::LaunchesBetween as usize] = 9 * 1_800;
    // of ten steps of 100 one takes 125
    let (_, a) = measured(run, [0.25, 0.20, 0.30]);
    assert!(is(&a.cost, [25.0 / 1025.0, 20.0 / 1020.0, 30.0 / 1030.0]), "{:?}", a.cost);
}

#[test]
fn steps_that_nobody_records_are_as_long_as_was_measured() {
    let win = |longer: f64| {
        let (_, a) = measured(launching().0, [longer, longer - 0.01, longer + 0.01]);
        let launch = a.findings.iter().find(|f| f.cause == "LAUNCH");
        launch.expect("it launches").unrecorded_win
    };
    // the slower the host is for being recorded, the less is left for a fix of its launches to win
    let wins = [0.05, 0.25, 0.5].map(win);
    assert!(wins[0] > wins[1] && wins[1] > wins[2], "{wins:?}");
}

#[test]
fn a_run_that_measured_nothing_has_a_range_and_says_so() {
    let (run, a) = launching();
    let Cost { share, least, most, measured, .. } = a.cost;
    assert!(!measured && least > 0.05 && least < share && share < most && most <= 0.3, "{:?}", a.cost);
    let line = line::evidence(&run, &a).join("; ");
    assert!(line.contains(" to ") && line.contains("% (not measured); losses"), "{line}");
}

#[test]
fn what_launches_is_never_said_to_cost_nothing() {
    // behind a full queue
    let (run, a) = run(|p| p.forward(60, 60_000));
    assert!(a.cost.least < 0.005 && a.cost.most >= 0.01, "{:?}", a.cost);
    let line = line::evidence(&run, &a).join("; ");
    assert!(line.contains("; cost at most ") && line.contains("% (not measured); losses"), "{line}");
}

#[test]
fn nodes_of_graphs_are_in_the_range() {
    let graphs = |p: &mut Program| {
        p.graph(1, &[("tiny_kernel", 2_000); 300]);
        p.sync();
    };
    let (mut run, few) = run(graphs);
    let replays = run.threads.iter().flat_map(|t| &t.calls).filter(|c| c.is_launch()).count() as u64;
    run.header.totals[Total::GraphLaunches as usize] = replays;
    run.header.totals[Total::Kernels as usize] = 300 * replays;
    let many = verdict::analyze(&run);
    assert!(many.cost.most > 0.15 && many.cost.most > few.cost.most, "{:?} {:?}", many.cost, few.cost);
}
