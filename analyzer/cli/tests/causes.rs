// SPDX-License-Identifier: Apache-2.0
//! Each cause: a program that has it, and one close by that does not. Where there is a fix, the
//! fixed program is simulated too, and the promised step time is held against its true one. Here:
//! what the tests of all causes use.

mod kept;
mod program;

#[path = "causes/alignment.rs"]
mod alignment;
#[path = "causes/alloc.rs"]
mod alloc;
#[path = "causes/arrays.rs"]
mod arrays;
#[path = "causes/attention_unfused.rs"]
mod attention_unfused;
#[path = "causes/blocked.rs"]
mod blocked;
#[path = "causes/casts.rs"]
mod casts;
#[path = "causes/concurrent_work.rs"]
mod concurrent_work;
#[path = "causes/copy.rs"]
mod copy;
#[path = "causes/cost.rs"]
mod cost;
#[path = "causes/cpus.rs"]
mod cpus;
#[path = "causes/device.rs"]
mod device;
#[path = "causes/efficient.rs"]
mod efficient;
#[path = "causes/fp32_matmul.rs"]
mod fp32_matmul;
#[path = "causes/gil.rs"]
mod gil;
#[path = "causes/gpus.rs"]
mod gpus;
#[path = "causes/host.rs"]
mod host;
#[path = "causes/input.rs"]
mod input;
#[path = "causes/launch.rs"]
mod launch;
#[path = "causes/launch_lines.rs"]
mod launch_lines;
#[path = "causes/layout.rs"]
mod layout;
#[path = "causes/low_occupancy.rs"]
mod low_occupancy;
#[path = "causes/memory.rs"]
mod memory;
#[path = "causes/memory_bound.rs"]
mod memory_bound;
#[path = "causes/mixed.rs"]
mod mixed;
#[path = "causes/once.rs"]
mod once;
#[path = "causes/pace.rs"]
mod pace;
#[path = "causes/promises.rs"]
mod promises;
#[path = "causes/recompute.rs"]
mod recompute;
#[path = "causes/recorded.rs"]
mod recorded;
#[path = "causes/registry.rs"]
mod registry;
#[path = "causes/samples.rs"]
mod samples;
#[path = "causes/saves.rs"]
mod saves;
#[path = "causes/sites.rs"]
mod sites;
#[path = "causes/sync.rs"]
mod sync;
#[path = "causes/sync_calls.rs"]
mod sync_calls;
#[path = "causes/throttled.rs"]
mod throttled;
#[path = "causes/verdicts.rs"]
mod verdicts;
#[path = "causes/waits.rs"]
mod waits;
#[path = "causes/worker_waits.rs"]
mod worker_waits;

use program::Program;
use verdict::analysis::Bucket;
use verdict::{Analysis, Run};

const STEPS: usize = 30;

/// Runs `step` 30 times.
fn run(mut step: impl FnMut(&mut Program)) -> (Run, Analysis) {
    let mut p = Program::new();
    for _ in 0..STEPS {
        step(&mut p);
    }
    p.analyze()
}

/// Step time of a program, ns.
fn time(step: impl FnMut(&mut Program)) -> f64 {
    let (_, a) = run(step);
    assert!(a.steps.mean_ns > 0.0, "no steps found");
    a.steps.mean_ns
}

#[track_caller]
fn verdict(a: &Analysis, cause: &str) {
    let shares: Vec<String> = Bucket::ALL
        .iter()
        .filter_map(|b| Some(format!("{} {:.1}", b.key(), a.devices.first()?.buckets.share(*b) * 100.0)))
        .collect();
    assert_eq!(a.verdict.cause, cause, "{:?}\n{shares:?}\n{:#?}", a.verdict, a.findings);
    assert!(a.model.error() < 0.05, "the replay is off: {:?}", a.model);
}

/// The promise is kept within its ± and a tenth of the step.
#[track_caller]
fn kept(a: &Analysis, truth: f64) {
    let v = &a.verdict;
    let off = (v.promise.unwrap().ns() - truth).abs();
    assert!(
        off <= v.promise.unwrap().error_ns() + 0.1 * v.step_ns,
        "step {:.0} us, promised {:.0} ±{:.0}, the real fix gives {:.0}",
        v.step_ns / 1e3,
        v.promise.unwrap().ns() / 1e3,
        v.promise.unwrap().error_ns() / 1e3,
        truth / 1e3
    );
}
