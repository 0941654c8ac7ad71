// SPDX-License-Identifier: Apache-2.0
//! Steps whose kernels are not in the recording are no steps, and their time is none of any
//! figure's.

use super::program::Program;

const STEPS: u32 = 40;
/// The GPU's records of these steps are gone.
const GONE: std::ops::Range<u32> = 16..24;

/// A GPU-bound program that waits at the end of each step, with and without the kernels of
/// [`GONE`].
fn program(whole: bool) -> (verdict::Run, verdict::Analysis) {
    let mut p = Program::new();
    let mut begins = Vec::new();
    for step in 0..STEPS {
        begins.push(p.t);
        p.mark(step, 0);
        for _ in 0..40 {
            p.launch("gemm_kernel", 264, 150_000);
        }
        p.sync();
    }
    let mut run = verdict::load(p.finish().as_slice()).expect("a recording");
    if !whole {
        let gone = begins[GONE.start as usize]..begins[GONE.end as usize];
        for s in &mut run.devices[0].streams {
            s.ops.retain(|o| !gone.contains(&o.start));
        }
    }
    let a = verdict::analyze(&run);
    (run, a)
}

#[test]
fn time_of_steps_that_have_no_known_begin_is_in_no_figure() {
    let (_, whole) = program(true);
    assert_eq!((whole.steps.steps.len(), whole.steps.unplaced), (STEPS as usize, 0));
    let (run, a) = program(false);
    // the one in front of the hole has no known end
    let missing = GONE.len() + 1;
    assert_eq!((a.steps.steps.len(), a.steps.unplaced), (STEPS as usize - missing, missing));
    let steps: u64 = a.steps.steady().iter().map(|s| s.span.ns()).sum();
    let device = &a.devices[0];
    assert_eq!((device.wall_ns, device.buckets.total(), a.steps.steady_ns), (steps, steps, steps));
    let idle = |a: &verdict::Analysis| a.devices[0].buckets.idle() as f64 / a.devices[0].wall_ns as f64;
    assert!(
        (idle(&a) - idle(&whole)).abs() < 0.005,
        "{} of the time idle, in truth {}",
        idle(&a),
        idle(&whole)
    );
    let line = verdict::output::line::evidence(&run, &a).join("; ");
    assert!(line.contains("31 of 40 steps seen (9 have no known begin or end on the GPU)"), "{line}");
    assert!(!line.contains("SYNC"), "{line}");
}
