// SPDX-License-Identifier: Apache-2.0
//! Phases of a step: known by ranges, by autograd's thread, by kernels; left out where they are not
//! sure; remarks only with evidence. The expected times are summed up here from the kernels' names,
//! which the analyzer does not go by.

mod program;

use cli::phases::{By, Kind, Phase, Phases};
use program::{Pose, Program};
use trace::Event;
use verdict::run::{Run, Span};
use verdict::Analysis;

const STEPS: usize = 30;
const MS: u64 = 1_000_000;
const MAIN: u32 = 100;
const ENGINE: u32 = 101;
const BACKWARD: [&str; 5] =
    ["_nt", "gelu_backward", "flash_bwd", "layer_norm_backward", "embedding_backward"];
const UPDATE: &str = "multi_tensor_apply";

fn named_engine() -> Program {
    let mut p = Program::new();
    p.b.name_thread(MAIN, "python3");
    p.b.name_thread(ENGINE, "pt_autograd_0");
    p
}

fn run(mut p: Program, mut step: impl FnMut(&mut Program)) -> (Run, Analysis, Option<Phases>) {
    for _ in 0..STEPS {
        step(&mut p);
    }
    let (run, a) = p.analyze();
    let phases = Phases::of(&run, &a);
    if let Some(p) = &phases {
        let wall = a.devices[a.worst.unwrap()].wall_ns;
        let sum = p.parts.iter().map(Phase::ns).sum::<u64>() + p.other.ns();
        assert_eq!((sum, p.wall_ns), (wall, wall), "the parts and the rest are all of the time");
    }
    (run, a, phases)
}

/// Time of the steps that count in kernels with one of these in their names; each has the GPU to
/// itself here.
fn busy(run: &Run, a: &Analysis, of: impl Fn(&str) -> bool) -> u64 {
    let ops = run.devices[0].streams.iter().flat_map(|s| &s.ops);
    let named = ops.filter(|o| o.kind == trace::Kind::Kernel && of(run.definitions.kernel_name(o.a)));
    named.map(|o| a.counts.measure(o.span())).sum()
}

fn is_backward(name: &str) -> bool {
    BACKWARD.iter().any(|b| name.contains(b))
}

fn range(p: &mut Program, name: &str, from: u64) {
    let mut e = Event::new(trace::Kind::Range, from, p.t);
    e.a = p.b.string(name);
    p.b.on_thread(p.tid, e);
}

fn known(phases: &Phases) -> Vec<(Kind, By)> {
    phases.parts.iter().map(|p| (p.kind, p.by)).collect()
}

#[test]
fn without_ranges_by_autograds_thread_and_the_optimizers_kernels() {
    let (run, a, phases) = run(named_engine(), |p| p.train_step(6, 40_000));
    let phases = phases.expect("phases");
    let expected =
        [(Kind::Forward, By::Between), (Kind::Backward, By::Thread), (Kind::Optimizer, By::Kernels)];
    assert_eq!(known(&phases), expected);
    let of = |kind| phases.get(kind).unwrap().busy_ns;
    assert_eq!(of(Kind::Backward), busy(&run, &a, is_backward));
    assert_eq!(of(Kind::Optimizer), busy(&run, &a, |n| n.contains(UPDATE)));
    // behind the last step nothing follows: what is launched there (cleared gradients) is no
    // forward
    let rest = busy(&run, &a, |n| !is_backward(n) && !n.contains(UPDATE));
    assert_eq!(of(Kind::Forward) + phases.other.busy_ns, rest);
    assert!(phases.other.busy_ns < 12_000, "{phases:?}");
    assert_eq!(phases.remarks, [""; 0], "two for one is usual");
}

#[test]
fn a_second_thread_that_launches_is_not_backward_by_that_alone() {
    let nameless = || Program::new();
    let (.., phases) = run(nameless(), |p| p.train_step(6, 40_000));
    assert_eq!(phases, None, "nothing says whose thread it is");
    // inference: no backward, whatever the kernels are called
    let (.., phases) = run(named_engine(), |p| {
        p.forward(6, 40_000);
        p.optimizer(10_000);
    });
    assert_eq!(phases, None);
}

/// Samples of the main thread while the other one launches.
fn sampled(frame: (&'static str, &'static str)) -> Option<Phases> {
    let mut p = Program::new();
    let user = ("train", "/home/u/train.py", 12);
    let stack = p.b.stack(&[(frame.0, frame.1, 825), user]);
    let other = p.b.stack(&[user]);
    run(p, |p| {
        p.forward(6, 400_000);
        p.sample(MAIN, p.t, Pose::computing(other));
        let begin = p.t;
        p.backward(6, 400_000);
        p.sample(MAIN, (begin + p.t) / 2, Pose { stack, ..Pose::default() });
        p.sample(ENGINE, (begin + p.t) / 2, Pose::default());
        p.optimizer(40_000);
    })
    .2
}

#[test]
fn without_a_name_samples_of_who_waits_for_it_say_so() {
    let found = sampled(("_engine_run_backward", "/usr/lib/python3/site-packages/torch/autograd/graph.py"));
    let found = found.expect("phases");
    assert_eq!(found.get(Kind::Backward).map(|b| b.by), Some(By::Thread));
    assert_eq!(sampled(("decode", "/usr/lib/python3/site-packages/nvidia/dali/pipeline.py")), None);
}

#[test]
fn named_ranges_come_first_and_another_threads_launches_inside_backward_are_its_work() {
    let (run, a, phases) = run(Program::new(), |p| {
        let from = p.t;
        p.t += 5 * MS;
        range(p, "data_loading", from);
        let from = p.t;
        p.forward(6, 40_000);
        range(p, "forward", from);
        let from = p.t;
        p.backward(6, 40_000);
        range(p, "backward", from);
        let from = p.t;
        p.optimizer(20_000);
        range(p, "optimizer_step", from);
    });
    let phases = phases.expect("phases");
    assert_eq!(known(&phases), Kind::ALL.map(|k| (k, By::Ranges)));
    let of = |kind| phases.get(kind).unwrap();
    let loss = |n: &str| n.contains("nll_loss_backward");
    assert_eq!(of(Kind::Backward).busy_ns, busy(&run, &a, |n| is_backward(n) || loss(n)));
    assert_eq!(
        of(Kind::Optimizer).busy_ns,
        busy(&run, &a, |n| n.contains(UPDATE) || n.contains("zero_grad"))
    );
    assert_eq!((phases.other.busy_ns, of(Kind::Dataload).busy_ns), (0, 0));
    // the GPU is still at work for the first of it
    let (fetched, steps) = (of(Kind::Dataload).host_ns.unwrap(), phases.steps as u64);
    assert!((steps - 1) * 5 * MS <= fetched && fetched <= (steps + 1) * 5 * MS, "{fetched}");
    assert!((steps * MS..fetched).contains(&of(Kind::Dataload).idle_ns), "{phases:?}");
}

#[test]
fn an_optimizers_range_around_the_closure_does_not_swallow_backward() {
    let (run, a, phases) = run(named_engine(), |p| {
        let from = p.t;
        p.forward(6, 40_000);
        p.backward(6, 40_000);
        p.optimizer(20_000);
        range(p, "Optimizer.step#AdamW.step", from);
    });
    let phases = phases.expect("phases");
    let of = |kind| phases.get(kind).unwrap().busy_ns;
    assert_eq!(of(Kind::Backward), busy(&run, &a, is_backward));
    assert_eq!(of(Kind::Optimizer), busy(&run, &a, |n| n.contains(UPDATE) || n.contains("zero_grad")));
    assert_eq!(of(Kind::Forward), phases.wall_busy() - of(Kind::Backward) - of(Kind::Optimizer));
}

trait Busy {
    fn wall_busy(&self) -> u64;
}

impl Busy for Phases {
    fn wall_busy(&self) -> u64 {
        self.parts.iter().map(|p| p.busy_ns).sum::<u64>() + self.other.busy_ns
    }
}

#[test]
fn an_optimizer_that_is_not_known_leaves_forward_out_too() {
    let (run, a, phases) = run(named_engine(), |p| {
        p.forward(6, 40_000);
        p.backward(6, 40_000);
        for _ in 0..8 {
            p.launch("elementwise_kernel<mul>", 512, 20_000);
        }
    });
    let phases = phases.expect("phases");
    assert_eq!(known(&phases), [(Kind::Backward, By::Thread)]);
    assert_eq!(phases.get(Kind::Backward).unwrap().busy_ns, busy(&run, &a, is_backward));
}

#[test]
fn a_phase_of_few_steps_is_none() {
    let mut n = 0;
    let (.., phases) = run(named_engine(), |p| {
        n += 1;
        p.mark(n, 0);
        p.forward(6, 40_000);
        p.backward(6, 40_000);
        if n % 3 == 0 {
            p.optimizer(20_000);
        }
    });
    assert_eq!(phases.expect("phases").get(Kind::Optimizer), None);
}

/// Each step waits `syncs` times in forward, for layers as long as `scale`; the host then starts
/// anew.
fn waiting(syncs: usize, in_forward: bool) -> Vec<String> {
    let mut p = named_engine();
    let site = p.b.stack(&[("train_step", "/home/u/train.py", 88)]);
    p.site = site;
    let (_, a, phases) = run(p, |p| {
        for _ in 0..syncs {
            if in_forward {
                p.launch("gemm_bf16_128x64_tn", 132, 30_000);
                p.item();
                p.stand(150_000, Pose::default());
            }
        }
        p.forward(2, 400_000);
        p.backward(2, 100_000);
        p.optimizer(20_000);
        if !in_forward {
            p.item();
            p.stand(150_000 * syncs as u64, Pose::default());
        }
    });
    let _ = a;
    phases.expect("phases").remarks
}

#[test]
fn a_sync_in_forward_is_named_where_its_fix_wins() {
    let said = waiting(40, true);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("synchronize in forward at ") && said[0].contains("train.py:88"), "{said:?}");
    assert_eq!(waiting(40, false), [""; 0], "it stands behind the optimizer");
    // nothing to win: the queue is full behind it
    assert_eq!(waiting(0, true), [""; 0]);
}

/// Backward with forward's kernels in it again, or with as much other work.
fn backward_of(again: bool) -> (f64, Vec<String>) {
    let (.., phases) = run(named_engine(), |p| {
        p.forward(6, 40_000);
        p.tid = ENGINE;
        match again {
            true => p.forward(6, 40_000),
            false => (0..6).for_each(|_| p.launch("gemm_bf16_128x128_nt", 132, 300_000)),
        }
        p.tid = MAIN;
        p.backward(6, 60_000);
        p.optimizer(20_000);
    });
    let phases = phases.expect("phases");
    let of = |kind| phases.get(kind).unwrap().busy_ns as f64;
    (of(Kind::Backward) / of(Kind::Forward), phases.remarks)
}

#[test]
fn computing_again_is_asked_about_and_long_backward_alone_is_not() {
    let (ratio, said) = backward_of(true);
    assert!(ratio > 2.5, "{ratio}");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("activation checkpointing expected?"), "{said:?}");
    let (ratio, said) = backward_of(false);
    assert!(ratio > 2.5, "{ratio}");
    assert_eq!(said, [""; 0]);
}

#[test]
fn pieces_of_a_device_do_not_overlap() {
    let (run, a, _) = run(named_engine(), |p| p.train_step(3, 40_000));
    let pieces = cli::phases::pieces(&run, &a, 0);
    assert!(pieces.windows(2).all(|w| w[0].span.end <= w[1].span.start), "disjoint, by time");
    let all: u64 = pieces.iter().map(|p| a.counts.measure(p.span)).sum();
    assert_eq!(all, a.devices[0].wall_ns);
    assert_ne!(pieces[0].span, Span::default());
}
