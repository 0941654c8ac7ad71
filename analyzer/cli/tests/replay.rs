// SPDX-License-Identifier: Apache-2.0
//! What a fix would win, held against the truth: random programs on a simulated machine, slow and
//! mended, both played by `replay/truth.rs`. The slow form's recording is analysed; what the replay
//! says of the fix is held against the time that the mended form takes.

#[path = "replay/acts.rs"]
mod acts;
#[path = "made/mod.rs"]
mod made;
#[path = "replay/programs.rs"]
mod programs;
#[path = "replay/truth.rs"]
mod truth;

use acts::{Act, Machine};
use programs::{machine, of_two_sites, of_two_waits, of_values, program, Fault, Program, Random};
use truth::{simulate, Simulated};
use verdict::analysis::Bucket;
use verdict::causes::GPU_BOUND_SHARE;
use verdict::gaps::HostView;
use verdict::replay::{Fix, Fixes, Prepared};
use verdict::{Analysis, Run};

/// Of them 48 are looked at: what happens in every second or third step happens in as many of them
/// as it should.
const STEPS: usize = 61;
/// A saving is right within this share of itself, or of the slow step: what the recording tells of
/// the steps.
const OF_SAVING: f64 = 0.05;
const OF_STEP: f64 = 0.01;

fn fix_of(fault: Fault) -> Fix {
    match fault {
        Fault::Waits => Fix::Sync,
        Fault::Launches => Fix::Launch,
        Fault::Elsewhere => Fix::Host,
        Fault::Fetching => Fix::Input,
        Fault::Pageable => Fix::Copy,
        Fault::Allocations => Fix::Alloc,
        Fault::Streams => Fix::DeviceWait,
    }
}

fn play(p: &Program) -> Simulated {
    simulate(p.machine, &p.steps)
}

/// A recording, analysed and ready to be replayed.
struct Recorded {
    run: Run,
    a: Analysis,
    prepared: Prepared,
}

impl Recorded {
    fn of(s: &Simulated) -> Recorded {
        let run: Run = verdict::load(s.recording.as_slice()).expect("a recording");
        assert_eq!(run.problems.damaged(), 0);
        let a = verdict::analyze(&run);
        let device = &run.devices[0];
        let prepared =
            Prepared::new(&run, device, &HostView::new(&run, device), &[], (a.steps.steady(), a.steady));
        Recorded { run, a, prepared }
    }

    /// What is left of the step with these fixes, as a share.
    fn left(&self, fixes: &[Fix]) -> f64 {
        self.prepared.play(Fixes::of(fixes)) as f64 / self.prepared.play(Fixes::default()) as f64
    }
}

/// One prediction and the truth, ns a step.
struct Case {
    seed: u64,
    what: String,
    slow: f64,
    said: f64,
    truth: f64,
}

impl Case {
    fn off(&self) -> f64 {
        (self.said - self.truth).abs()
    }

    fn is_within(&self, of_saving: f64, of_step: f64) -> bool {
        self.off() <= (of_saving * (self.slow - self.truth).abs()).max(of_step * self.slow)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [slow, said, truth] = [self.slow, self.said, self.truth].map(|ns| ns / 1e6);
        write!(
            f,
            "seed {} {}: {slow:.3} ms a step, {said:.3} said, {truth:.3} in truth ",
            self.seed, self.what
        )?;
        let (saving, step) = ((truth - said) / (slow - truth) * 100.0, (truth - said) / slow * 100.0);
        write!(f, "({saving:+.1}% of the saving, {step:+.1}% of the step)")
    }
}

#[track_caller]
fn all_right(cases: &[Case]) {
    let wrong: Vec<String> =
        cases.iter().filter(|c| !c.is_within(OF_SAVING, OF_STEP)).map(Case::to_string).collect();
    let said = wrong.join("\n");
    assert!(wrong.is_empty(), "{} of {}\n{said}", wrong.len(), cases.len());
    // a test of programs in which nothing is to be won would be none
    let worth = cases.iter().filter(|c| c.slow - c.truth > 0.1 * c.slow).count();
    assert!(worth * 5 >= cases.len(), "{worth} of {} programs have something to win", cases.len());
}

/// Programs with this fault and up to two others.
fn cases(fault: Fault, seeds: std::ops::Range<u64>) -> Vec<Case> {
    let mut out = Vec::new();
    for seed in seeds {
        let mut r = Random::new(seed * 31 + fault as u64);
        let mut faults = vec![fault];
        for _ in 0..r.of(0, 2) {
            let other = Fault::ALL[r.of(0, 6) as usize];
            if !faults.contains(&other) {
                faults.push(other);
            }
        }
        let slow = program(&mut r, &faults, STEPS);
        let simulated = play(&slow);
        let recorded = Recorded::of(&simulated);
        out.push(Case {
            seed,
            what: format!("{fault:?} of {faults:?}"),
            slow: simulated.step(),
            said: simulated.step() * recorded.left(&[fix_of(fault)]),
            truth: play(&slow.mended(&[fault])).step(),
        });
    }
    out
}

#[test]
fn with_nothing_changed_the_step_is_given_back() {
    for seed in 0..60 {
        let mut r = Random::new(seed);
        let faults: Vec<Fault> = Fault::ALL.into_iter().filter(|_| r.one_in(3)).collect();
        let simulated = play(&program(&mut r, &faults, STEPS));
        let recorded = Recorded::of(&simulated);
        let (found, truth) = (recorded.a.steps.mean_ns, simulated.step());
        assert!(
            (found - truth).abs() < 0.02 * truth,
            "seed {seed} {faults:?}: step {found}, in truth {truth}"
        );
        assert!(recorded.a.model.error() < 0.01, "seed {seed} {faults:?}: {:?}", recorded.a.model);
    }
}

/// A host that launches graphs runs further ahead than one that launches their kernels one by one
/// (seen on an H100: 64 graph launches of 150 nodes, 49 ms), and what then holds it up, holds up
/// nobody.
#[test]
fn a_host_as_far_ahead_as_recorded_hides_as_long_a_pause() {
    let mut r = Random::new(7);
    let m = machine(&mut r);
    let kernel = |ns| Act::Launch { stream: 7, kernel: 0, ns };
    let busy: Vec<Act> = (0..150).map(|_| kernel(4_000)).collect();
    let step = |n: usize| {
        let pause = if n % 40 == 39 { 12_000_000 } else { 20_000 };
        vec![Act::Graph(busy.clone()), Act::Think(pause), kernel(4_000)]
    };
    let steps: Vec<Vec<Act>> = (0..200).map(step).collect();
    let recorded = Recorded::of(&simulate(m, &steps));
    assert!(recorded.a.model.error() < 0.01, "{:?}", recorded.a.model);
}

/// An allocation that returned while what was launched before it was not done waited for nothing,
/// whatever ended beside it (seen on an H100: CuPy allocates behind each product, and three of 63
/// calls were taken to wait for it).
#[test]
fn an_allocation_beside_a_busy_device_does_not_wait() {
    let mut r = Random::new(7);
    let m = Machine { launch: 1_500, ..machine(&mut r) };
    let kernel = |ns| Act::Launch { stream: 7, kernel: 0, ns };
    let light = || (0..300).flat_map(|_| [kernel(1_300), Act::Think(300)]);
    let step = || light().chain([kernel(500_000), Act::Malloc(8_000)]).collect();
    let recorded = Recorded::of(&simulate(m, &(0..STEPS).map(|_| step()).collect::<Vec<_>>()));
    assert!(recorded.a.model.error() < 0.002, "{:?}", recorded.a.model);
}

macro_rules! held_against_the_mended_form {
    ($($name:ident $fault:ident;)*) => {$(
        #[test]
        fn $name() {
            all_right(&cases(Fault::$fault, 0..60));
        }
    )*};
}

held_against_the_mended_form! {
    what_waits_cost Waits;
    what_launching_costs Launches;
    what_host_stretches_cost Elsewhere;
    what_fetching_costs Fetching;
    what_pageable_copies_cost Pageable;
    what_allocations_cost Allocations;
    what_waits_between_streams_cost Streams;
}

/// Nobody waits for the values of one line of the program any more; the other lines go on waiting.
#[test]
fn what_the_waits_of_one_site_cost() {
    let mut cases = Vec::new();
    for seed in 0..60 {
        let mut r = Random::new(seed * 31 + 11);
        let slow = of_two_sites(&mut r, STEPS);
        let simulated = play(&slow);
        let recorded = Recorded::of(&simulated);
        let base = recorded.prepared.play(Fixes::default()) as f64;
        for (&site, calls) in &simulated.sites {
            let here =
                |flat: u32| recorded.run.call(flat).is_some_and(|(_, c)| calls.contains(&c.correlation));
            let left = recorded.prepared.play_at(Fixes::of(&[Fix::Sync]), &here) as f64 / base;
            cases.push(Case {
                seed,
                what: format!("site {site} of {}", simulated.sites.len()),
                slow: simulated.step(),
                said: simulated.step() * left,
                truth: play(&slow.without_site(site)).step(),
            });
        }
    }
    assert!(cases.len() >= 100, "{} sites", cases.len());
    all_right(&cases);
}

/// Values are fetched and the host works on them: from pinned memory they come sooner, and are
/// waited for as before; work that goes elsewhere takes its copy along.
#[test]
fn what_values_that_the_host_works_on_cost() {
    let (mut pinned, mut elsewhere) = (Vec::new(), Vec::new());
    for seed in 0..40 {
        let mut r = Random::new(seed * 31 + 14);
        let slow = of_values(&mut r, STEPS);
        let simulated = play(&slow);
        let recorded = Recorded::of(&simulated);
        let case = |fault: Fault| Case {
            seed,
            what: format!("{fault:?}"),
            slow: simulated.step(),
            said: simulated.step() * recorded.left(&[fix_of(fault)]),
            truth: play(&slow.mended(&[fault])).step(),
        };
        pinned.push(case(Fault::Pageable));
        elsewhere.push(case(Fault::Elsewhere));
    }
    all_right(&pinned);
    all_right(&elsewhere);
}

/// Two fixes together: what is won is not the sum of what each wins.
#[test]
fn what_two_fixes_win_together() {
    let mut cases = Vec::new();
    for seed in 0..200 {
        let mut r = Random::new(seed * 31 + 12);
        let kinds: Vec<Fault> = Fault::ALL.into_iter().filter(|&f| f != Fault::Streams).collect();
        let first = kinds[r.of(0, kinds.len() as u64 - 1) as usize];
        let second = kinds[r.of(0, kinds.len() as u64 - 1) as usize];
        if first == second {
            continue;
        }
        let slow = program(&mut r, &[first, second], STEPS);
        let simulated = play(&slow);
        let recorded = Recorded::of(&simulated);
        cases.push(Case {
            seed,
            what: format!("{first:?} and {second:?}"),
            slow: simulated.step(),
            said: simulated.step() * recorded.left(&[fix_of(first), fix_of(second)]),
            truth: play(&slow.mended(&[first, second])).step(),
        });
    }
    all_right(&cases);
}

/// Where no single fix wins enough and two together do, the line says which two, and what they win.
#[test]
fn two_waits_in_a_row_are_named_together() {
    let mut seen = 0;
    for seed in 0..40 {
        let mut r = Random::new(seed * 31 + 13);
        let slow = of_two_waits(&mut r, STEPS);
        let simulated = play(&slow);
        let step = simulated.step();
        let win = |faults: &[Fault]| 1.0 - play(&slow.mended(faults)).step() / step;
        let (one, other) = (win(&[Fault::Waits]), win(&[Fault::Allocations]));
        let both = win(&[Fault::Waits, Fault::Allocations]);
        if one.max(other).max(win(&[Fault::Launches])) > 0.09 || both < 0.11 {
            continue;
        }
        let a = Recorded::of(&simulated).a;
        if a.devices[0].buckets.share(Bucket::Compute) >= GPU_BOUND_SHARE {
            continue;
        }
        seen += 1;
        let v = &a.verdict;
        assert_eq!(v.cause, "MIXED", "seed {seed}: {one:.3} {other:.3} {both:.3} {v:?}");
        let pair = ["SYNC + ALLOC together", "ALLOC + SYNC together"];
        assert!(pair.iter().any(|p| v.text().contains(p)), "seed {seed}: {}", v.text());
        let said = 1.0 - v.promise.unwrap().ns() / v.step_ns;
        assert!(
            (said - both).abs() <= (OF_SAVING * both).max(OF_STEP),
            "seed {seed}: {said:.3}, {both:.3} in truth"
        );
    }
    assert!(seen >= 10, "{seen} programs");
}

/// A kernel that was launched on an idle device and began late: its stream waits for an event, of
/// before the trace or of another process. No fix wins that time.
#[test]
fn a_wait_for_what_is_not_recorded_is_won_by_no_fix() {
    let mut t = made::Trace::new();
    for _ in 0..30 {
        t.layers(2, 20);
        t.synchronize();
        t.call("cudaStreamWaitEvent", 2);
        t.free = t.t + 5_000;
        t.kernel("late", 20);
        t.synchronize();
    }
    let (input, a) = t.read();
    let (run, device) = (&input.run, &input.run.devices[0]);
    let prepared = Prepared::new(run, device, &HostView::new(run, device), &[], (a.steps.steady(), a.steady));
    let now = prepared.play(Fixes::default());
    for fix in [Fix::Sync, Fix::Host, Fix::Launch, Fix::DeviceWait] {
        let then = prepared.play(Fixes::of(&[fix]));
        assert!(then * 20 >= now * 19, "{fix:?}: {now} -> {then} ns");
    }
}
