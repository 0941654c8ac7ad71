// SPDX-License-Identifier: Apache-2.0
//! Purpose: every stack that is sampled of a thread that runs on is one that the program has had,
//! frame by frame and line by line, held against its own `sys._getframe`; also where the inner
//! frames moved and only the outer ones were kept. Quick calls in all combinations, threads that
//! come and go, generators, C in between, recursion, a fork, the interpreter's end.
//!
//! Nothing proves a stack that was read while it moved (`injector/src/sampler/stack.rs`), and this
//! program does nothing but move: one wrong of all may be. Beside a whole run of the tests on two
//! cores there was one twice in some forty runs, of 28,000 samples each.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::{Run, Victim};
use trace::event::sample;
use trace::Total;

use super::sampled::{fine, pythons, samples, Sampled};

/// Function, and functions and lines of its callers.
type Stack = (String, Vec<(String, u32)>);

fn truth(run: &Run) -> HashSet<Stack> {
    let text = std::fs::read_to_string(run.folder.join("truth.json")).expect("the truth");
    serde_json::from_str::<Vec<Stack>>(&text).expect("JSON").into_iter().collect()
}

/// What of a sample is the program's own: without the functions of others (and the noting itself)
/// that it called.
fn own(s: &Sampled) -> &[(String, String, u32)] {
    let noting = s.frames.iter().rposition(|f| f.0 == "note").map_or(0, |n| n + 1);
    let foreign = s.frames[noting..].iter().take_while(|f| !f.1.ends_with("/stacks.py")).count();
    &s.frames[noting + foreign..]
}

#[test]
fn every_sampled_stack_is_one_that_the_program_had() {
    let seconds = std::env::var("GAPPROBE_STRESS_S").unwrap_or_else(|_| "2".into());
    let limit = Duration::from_secs(120 + 4 * seconds.parse::<u64>().expect("GAPPROBE_STRESS_S: seconds"));
    let script = root().join("tests/scenarios/victims/stacks.py");
    let folder = root().join("tests/victims");
    let (mut outer_at_all, mut wrong_at_all) = (0, 0);
    for python in pythons() {
        let name = python.display();
        let words = [&*script.to_string_lossy(), &*folder.to_string_lossy(), &seconds, "../truth.json"];
        let victim = Victim::of(&python, &words, "13.0").env("GAPPROBE_SAMPLE_HZ", "1000");
        let run = victim.limit(limit).run();
        let recorded = fine(&run, &python);
        let (truth, all) = (truth(&run), samples(&recorded));
        let (mut checked, mut outer, mut wrong) = (0, 0, BTreeMap::new());
        for s in &all {
            // a stack of the 64 innermost frames: what called the outermost of them is not known
            let (Some((first, callers)), true) = (own(s).split_first(), s.frames.len() < 64) else {
                continue;
            };
            let callers: Vec<(String, u32)> = callers.iter().map(|f| (f.0.clone(), f.2)).collect();
            checked += 1;
            outer += u32::from(s.event.x & sample::OUTER != 0);
            if !truth.contains(&(first.0.clone(), callers.clone())) {
                *wrong.entry((s.event.x, first.clone(), callers)).or_insert(0) += 1;
            }
        }
        let moved = recorded.total(Total::SamplesMoved);
        println!(
            "{name}: {checked} of {} checked, {outer} outer, {moved} moved, {} wrong",
            all.len(),
            wrong.len()
        );
        wrong_at_all += wrong.values().sum::<u32>();
        assert!(wrong_at_all <= 1, "{name}: {wrong_at_all} wrong so far, the last of {checked}: {wrong:?}");
        assert!(checked > 200, "{name}: {checked} checked, {outer} outer");
        outer_at_all += outer;
        assert_eq!(
            recorded.total(Total::SamplesOuter),
            all.iter().filter(|s| s.event.x & sample::OUTER != 0).count() as u64,
            "{name}"
        );
    }
    assert!(outer_at_all > 0, "no stack moved while it was read: nothing was shown of those");
}
