// SPDX-License-Identifier: Apache-2.0
//! Purpose: steps that the host marks are those of the GPU, also where the host is far ahead of it: in a short capture
//! the host sets all its marks while the GPU works on the first steps, and waits at the end. The truth is the GPU time
//! that the program queues in a step.

use analyzer::analysis::{Bucket, StepSource};
use trace::{Event, Kind};

use super::program::Program;

const STEPS: u32 = 12;
const KERNELS: u64 = 20;
const KERNEL: u64 = 500_000;
/// A step's work on the GPU, ns: ten milliseconds and the spacing of the kernels.
const STEP: f64 = (KERNELS * (KERNEL + super::program::SPACING)) as f64;

struct Shape {
    /// The host waits for the GPU in every step.
    waits: bool,
    /// A copy of so many bytes runs beside the steps from the third on.
    beside: u64,
    /// GPUs, the second with twice the work.
    devices: u32,
    ranges: bool,
}

const PLAIN: Shape = Shape { waits: false, beside: 0, devices: 1, ranges: false };

fn program(shape: &Shape) -> (Program, Vec<(u64, u64)>) {
    let mut p = Program::new();
    p.noise = 0;
    if shape.devices > 1 {
        p.b.device(1, "SIM H200", 132);
    }
    let mut marks = Vec::new();
    for step in 0..STEPS {
        let begin = p.t;
        if step == 3 && shape.beside > 0 {
            p.copy(9, false, shape.beside, false);
        }
        for k in 0..KERNELS {
            for device in 0..shape.devices {
                p.device = device;
                let name = ["layer_a_gemm", "layer_b_gemm"][k as usize % 2];
                p.launch(name, 264, KERNEL * u64::from(device + 1));
            }
        }
        p.device = 0;
        if shape.waits {
            p.sync();
        }
        p.think(200_000);
        marks.push((begin, p.t));
    }
    if !shape.waits {
        p.sync();
    }
    for (step, &(begin, end)) in (0..).zip(&marks) {
        if shape.ranges {
            let name = p.b.string(&format!("ProfilerStep#{step}"));
            let mut range = Event::new(Kind::Range, begin, end);
            range.a = name;
            p.b.on_thread(p.tid, range);
        } else {
            p.t = begin;
            p.mark(step, end);
        }
    }
    (p, marks)
}

#[track_caller]
fn about(found: u64, truth: f64) {
    let off = (found as f64 / truth - 1.0).abs();
    assert!(off < 0.03, "{:.3} ms, in truth {:.3}", found as f64 / 1e6, truth / 1e6);
}

#[test]
fn a_host_that_is_ahead_does_not_shorten_steps() {
    for (ranges, source) in [(false, StepSource::Marks), (true, StepSource::Ranges)] {
        let (p, marks) = program(&Shape { ranges, ..PLAIN });
        let (run, a) = p.analyze();
        assert_eq!((a.steps.source, a.steps.steps.len()), (source, STEPS as usize));
        assert!(marks[1].1 - marks[1].0 < 1_000_000, "in truth the host takes less than a millisecond");
        about(a.steps.median_ns, STEP);
        for (step, host) in a.steps.steps.iter().zip(&marks) {
            about(step.span.ns(), STEP);
            assert_eq!(step.host.start, host.0, "what lies on the host is found by the host's time");
        }
        assert_eq!(analyzer::analyze(&run).verdict.cause, "GPU-BOUND");
        let busy = a.devices[0].buckets.share(Bucket::Compute);
        assert!(busy > 0.98, "{busy}");
    }
}

#[test]
fn where_the_gpu_keeps_up_steps_are_the_marks_to_the_nanosecond() {
    let (p, marks) = program(&Shape { waits: true, ..PLAIN });
    let (_, a) = p.analyze();
    let spans: Vec<(u64, u64)> = a.steps.steps.iter().map(|s| (s.span.start, s.span.end)).collect();
    assert_eq!(spans, marks);
}

#[test]
fn what_runs_beside_the_steps_holds_none_up() {
    // 200 ms at 25 bytes a nanosecond: most of the run
    for waits in [true, false] {
        let (p, _) = program(&Shape { waits, beside: 5_000_000_000, ..PLAIN });
        let (_, a) = p.analyze();
        assert_eq!(a.steps.steps.len(), STEPS as usize);
        a.steps.steps.iter().skip(1).for_each(|s| assert!(s.span.ns() < 11_000_000, "{s:?}"));
    }
}

#[test]
fn a_step_is_done_when_the_slowest_gpu_is() {
    let (p, _) = program(&Shape { devices: 2, ..PLAIN });
    let (_, a) = p.analyze();
    about(a.steps.median_ns, 2.0 * STEP);
}

#[test]
fn marks_of_a_capture_that_begins_behind_the_launches_are_put_off_as_well() {
    let (p, marks) = program(&PLAIN);
    let (run, _) = p.analyze();
    let mut run = run;
    // the calls of the first half are not in the file
    let half = marks[STEPS as usize / 2].0;
    let lost: Vec<u32> =
        (0..).zip(&run.threads[0].calls).filter(|(_, c)| c.start < half).map(|(i, _)| i).collect();
    for op in run.devices.iter_mut().flat_map(|d| &mut d.streams).flat_map(|s| &mut s.ops) {
        if lost.contains(&op.call) {
            op.call = analyzer::run::NONE;
        }
    }
    let a = analyzer::analyze(&run);
    a.steps.steps.iter().skip(STEPS as usize / 2 + 1).for_each(|s| about(s.span.ns(), STEP));
}
