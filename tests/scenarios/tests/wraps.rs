// SPDX-License-Identifier: Apache-2.0
//! Purpose: correlation ids are 32 bits and come round in a long run. Around that moment every
//! kernel is recorded with its id and its launch, none twice, and the report finds the steps that
//! it finds in the same program far from it. (A whole long run, and its memory: `cargo bench -p
//! gapprobe-scenarios --bench billion`.)

use std::collections::HashMap;

use gapprobe_scenarios::{Run, Victim};
use trace::call::Class;

/// Fewer than the buffers hold, however late the drain thread comes.
const PLAIN: u64 = 40_000;
const NODES: u64 = 40_000;

fn from(correlation: u32) -> Run {
    let victim = Victim::ours("13.0", &["billion", &PLAIN.to_string(), &NODES.to_string()]);
    // (a busy machine takes its time for what is delivered at exit: it is waited for)
    let victim = victim.env("GAPPROBE_EXIT_MS", "30000");
    let run = victim.env("SIM_CORRELATION", correlation.to_string()).run();
    assert_eq!((run.ending(), run.launched()), (0, PLAIN + NODES), "{}", run.stderr);
    run
}

#[test]
fn correlation_ids_come_round_and_nothing_is_lost_or_made_up() {
    let run = from(u32::MAX - PLAIN as u32 / 2);
    let (truth, recorded) = (run.truth(), run.recorded());
    assert_eq!(recorded.losses(), [], "{}", run.stderr);
    let mut have: HashMap<(u32, u64, u64), i64> = HashMap::new();
    for (_, k) in recorded.kernels() {
        *have.entry((k.correlation, k.start, k.end)).or_default() += 1;
    }
    for k in truth.kernels() {
        *have.entry((k.correlation, k.start, k.end)).or_default() -= 1;
    }
    assert!(have.values().all(|n| *n == 0), "kernels that are missing or made up");
    assert_eq!(truth.kernels().count() as u64, PLAIN + NODES);
    let ids: Vec<u32> = truth.kernels().map(|k| k.correlation).collect();
    assert!(ids.contains(&u32::MAX) && ids.contains(&1) && !ids.contains(&0), "they came round");
    let launches: HashMap<u32, u64> =
        recorded.calls(Class::Launch).iter().map(|(_, c)| (c.correlation, c.start)).collect();
    for k in truth.kernels().filter(|k| k.graph == 0) {
        assert!(launches.get(&k.correlation).is_some_and(|at| *at <= k.start), "the launch of {k:?}");
    }
    // launches and kernels were joined: the steps are found, as far from there (the verdict is of
    // the two runs' times)
    let (here, far) = (run.summary().expect("a summary"), from(1).summary().expect("a summary"));
    for part in ["/losses", "/steps/count"] {
        assert!(here.pointer(part).is_some(), "{part} of {here}");
        assert_eq!(here.pointer(part), far.pointer(part), "{part}");
    }
}
