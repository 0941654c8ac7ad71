// SPDX-License-Identifier: Apache-2.0
//! Purpose: steps that the host marks are those of the GPU, also where the host is far ahead of it:
//! in a short capture the host sets all its marks while the GPU works on the first steps, and waits
//! at the end. The truth is the GPU time that the program queues in a step.

use trace::{Event, Kind};
use verdict::analysis::{Bucket, StepSource};

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
        assert_eq!(verdict::analyze(&run).verdict.cause, "GPU-BOUND");
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

/// Synchronized steps of 10 ms, 2 ms of them idle, and what others do at the same time.
fn beside(mut other: impl FnMut(&mut Program, u32)) -> (verdict::Run, verdict::Analysis) {
    let mut p = Program::new();
    p.noise = 0;
    p.b.device(1, "SIM H200", 132);
    for step in 0..40 {
        let begin = p.t;
        other(&mut p, step);
        for _ in 0..16 {
            p.launch("layer_gemm", 264, KERNEL);
        }
        p.sync();
        p.t = p.t.max(begin + 10_000_000);
        let end = std::mem::replace(&mut p.t, begin);
        p.mark(step, end);
        p.t = end;
    }
    p.analyze()
}

#[track_caller]
fn ten_ms(a: &verdict::Analysis, count: usize) {
    assert_eq!(a.steps.steps.len(), count);
    a.steps.steps.iter().for_each(|s| assert_eq!(s.span.ns(), 10_000_000, "{s:?}"));
}

#[test]
fn kernels_on_a_side_stream_hold_no_step_up_however_long() {
    // a checkpoint's broadcast, 49 of every 50 ms, launched in front of the step's own
    let (_, a) = beside(|p, step| {
        if step % 5 == 0 {
            p.launch_on(9, "ncclDevKernel_Broadcast", 8, 49_000_000);
        }
    });
    ten_ms(&a, 40);
    // one that never ends while the program runs
    let (_, a) = beside(|p, step| {
        if step == 0 {
            p.launch_on(9, "persistent_kernel", 8, 500_000_000);
        }
    });
    ten_ms(&a, 40);
}

#[test]
fn another_threads_work_on_another_gpu_is_not_this_ones() {
    let (_, a) = beside(|p, step| {
        if step % 10 == 0 {
            let (tid, t) = (p.tid, p.t);
            (p.tid, p.device) = (200, 1);
            for _ in 0..40 {
                p.launch("rollout_kernel", 264, 2_400_000); // a tenth more than fits
            }
            (p.tid, p.device, p.t) = (tid, 0, t);
        }
    });
    ten_ms(&a, 40);
}

/// The host names all steps within milliseconds; they run one behind the other.
fn ahead(steps: u32, mut stream: impl FnMut(u32) -> u32, mut more: impl FnMut(&mut Program, u32)) -> Program {
    let mut p = Program::new();
    p.noise = 0;
    let mut marks = Vec::new();
    for step in 0..steps {
        let begin = p.t;
        // the stream of the step before is waited for
        let (own, other) = (stream(step), stream(step.wrapping_sub(1)));
        if own != other {
            p.wait(own, other, 1_000);
        }
        for _ in 0..KERNELS {
            p.launch_on(own, "layer_gemm", 264, KERNEL);
        }
        more(&mut p, step);
        p.think(100_000);
        marks.push((begin, p.t));
    }
    for (step, (begin, end)) in (0..).zip(marks) {
        p.t = begin;
        p.mark(step, end);
    }
    p
}

#[test]
fn steps_that_take_turns_on_two_streams_follow_each_other() {
    let (_, a) = ahead(30, |step| 7 + step % 2, |_, _| ()).analyze();
    assert_eq!(a.steps.steps.len(), 30);
    about(a.steps.mean_ns as u64, STEP);
}

#[test]
fn an_evaluation_with_more_work_than_the_training_is_not_the_measure() {
    let evaluation = |p: &mut Program, step| {
        if step == 19 {
            (0..100).for_each(|_| p.launch_on(9, "evaluation_kernel", 264, 5_000_000));
        }
    };
    let (_, a) = ahead(20, |_| 7, evaluation).analyze();
    assert!(a.steps.steps.len() >= 19);
    a.steps.steps.iter().take(19).for_each(|s| about(s.span.ns(), STEP));
}

#[test]
fn steps_whose_work_is_not_in_the_recording_are_none() {
    // the recording ends while the GPU is at step 6.5 of 20
    let p = ahead(20, |_| 7, |_, _| ());
    let (mut run, _) = p.analyze();
    let stream = &mut run.devices[0].streams[0];
    let end = stream.ops[0].start + (6.5 * STEP) as u64;
    stream.ops.retain(|o| o.end < end);
    let a = verdict::analyze(&run);
    assert_eq!(a.steps.steps.len(), 6);
    a.steps.steps.iter().for_each(|s| about(s.span.ns(), STEP));
}
