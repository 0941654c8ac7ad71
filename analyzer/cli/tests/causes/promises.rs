// SPDX-License-Identifier: Apache-2.0
//! What is promised, held against the mended program: graphs and what no graph holds, rows of small
//! copies, copies to pageable memory, a library's thread that copies, collectives.

use trace::event::PAYLOAD;
use trace::{Event, Kind};
use verdict::Analysis;

use super::program::Pose;
use super::{run, time, verdict, Program, STEPS};

/// Of what the fix saves.
const OFF: f64 = 0.15;

/// What is promised is saved, and no more than a twentieth less.
#[track_caller]
fn saves(a: &Analysis, fixed: f64) {
    let v = &a.verdict;
    let (said, saved) = (v.step_ns - v.promise.unwrap().ns(), v.step_ns - fixed);
    let off = said / saved - 1.0;
    let us = |ns: f64| ns / 1e3;
    let words = format!("{:.0} us said, {:.0} saved of {:.0}: {off:+.2}", us(said), us(saved), us(v.step_ns));
    assert!(v.promise.is_some() && (-OFF..0.05).contains(&off), "{words}\n{v:?}");
}

const NODES: usize = 200;

/// Asked for one value at a time: the graph's launch is waited for, but not until it returns.
#[test]
fn a_graphs_first_node_does_not_wait_for_all_of_its_launch() {
    let (_, a) = run(|p| {
        (0..NODES).for_each(|n| p.launch(["a", "b", "c"][n % 3], 4, 1_500));
        p.item();
    });
    verdict(&a, "LAUNCH");
    let nodes: Vec<(&str, u64)> = (0..NODES).map(|_| ("node", 1_500)).collect();
    saves(
        &a,
        time(|p| {
            p.graph(1, &nodes);
            p.item();
        }),
    );
}

const OF_LISTS: &str =
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<3>>";
const OF_FUSED: &str =
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>";

/// `update`: a kernel of the optimizer, in front of which the host gathers its tensors.
fn trained(p: &mut Program, update: &str, captured: bool) {
    let nodes: Vec<(&str, u64)> = (0..NODES).map(|_| ("node", 1_500)).collect();
    match captured {
        true => p.graph(1, &nodes),
        false => (0..NODES).for_each(|n| p.launch(["a", "b", "c"][n % 3], 4, 1_500)),
    }
    for _ in 0..12 {
        p.think(60_000);
        p.launch(update, 64, 4_000);
    }
}

#[test]
fn an_optimizer_that_no_graph_holds_is_not_promised_away() {
    let (_, a) = run(|p| trained(p, OF_LISTS, false));
    verdict(&a, "LAUNCH");
    saves(&a, time(|p| trained(p, OF_LISTS, true)));
    let (_, fused) = run(|p| trained(p, OF_FUSED, false));
    let more = a.verdict.promise.unwrap().ns() - fused.verdict.promise.unwrap().ns();
    assert!(more > 500_000.0, "a fused one can be captured: {more}");
}

/// `[t.to(device) for t in batch]`, in front of a step that the GPU takes longer for than the host.
fn handed_over(p: &mut Program, one_by_one: bool) {
    p.site = p.b.stack(&[("step", "train.py", 7), ("<module>", "train.py", 40)]);
    match one_by_one {
        true => {
            for _ in 0..300 {
                p.copy(7, true, 8_000, true);
                p.sync();
            }
        }
        false => p.copy(7, true, 300 * 8_000, false),
    }
    p.site = 0;
    (0..20).for_each(|n| p.launch(["a", "b"][n % 2], 264, 100_000));
}

#[test]
fn small_copies_in_a_row_are_promised_as_one() {
    let (_, a) = run(|p| handed_over(p, true));
    verdict(&a, "SYNC");
    assert!(a.verdict.advice.long.contains("together"), "{}", a.verdict.advice.long);
    saves(&a, time(|p| handed_over(p, false)));
}

/// `[s.cpu() for s in statistics]`; mended, they are fetched at once, and waited for.
fn fetched(p: &mut Program, one_by_one: bool) {
    (0..20).for_each(|n| p.launch(["a", "b"][n % 2], 264, 100_000));
    p.launch("loss", 264, 50_000);
    p.site = p.b.stack(&[("step", "train.py", 7), ("<module>", "train.py", 40)]);
    for _ in 0..if one_by_one { 200 } else { 1 } {
        p.item();
    }
    p.site = 0;
}

#[test]
fn values_that_are_fetched_in_a_row_are_waited_for_once() {
    let (_, a) = run(|p| fetched(p, true));
    verdict(&a, "SYNC");
    saves(&a, time(|p| fetched(p, false)));
}

#[test]
fn small_copies_with_work_between_them_are_not_one() {
    let (_, a) = run(|p| {
        p.site = p.b.stack(&[("step", "train.py", 7), ("<module>", "train.py", 40)]);
        for _ in 0..40 {
            p.launch("layer", 264, 30_000);
            p.item();
        }
    });
    verdict(&a, "SYNC");
    assert!(!a.verdict.advice.long.contains("together"), "{}", a.verdict.advice.long);
}

/// Results to the host, each waited for; to pageable memory the CPU copies once more behind the
/// transfer.
fn handed_back(p: &mut Program, pageable: bool) {
    (0..20).for_each(|n| p.launch(["a", "b"][n % 2], 264, 100_000));
    for _ in 0..24 {
        p.copy(7, false, 1_000_000, pageable);
        if pageable {
            p.t += 80_000;
            let (tid, end) = (p.tid, p.t);
            p.shorten_last_call(tid, end);
        }
        p.sync();
    }
}

#[test]
fn results_in_pinned_memory_are_there_as_soon_as_they_are_copied() {
    let (_, a) = run(|p| handed_back(p, true));
    verdict(&a, "COPY");
    saves(&a, time(|p| handed_back(p, false)));
}

/// Plain Python, then a batch that another thread copies for it, then launches. `python`: that
/// thread runs Python, too.
fn of_a_pool(p: &mut Program, computes: bool, python: bool) {
    let main = p.b.stack(&[("made", "train.py", 7), ("<module>", "train.py", 40)]);
    let other = p.b.stack(&[("prefetch", "load.py", 3)]);
    if computes {
        p.stand(16_000_000, Pose::computing(main));
    }
    p.tid = 300;
    if python {
        p.sample(300, p.t, Pose::blocked(other, 202));
    }
    p.copy(20, true, 10_000_000, false);
    p.tid = 100;
    p.think(100_000);
    p.wait(7, 20, 0);
    (0..12).for_each(|n| p.launch(["dot", "fusion", "reduce"][n % 3], 264, 500_000));
}

#[test]
fn what_a_librarys_thread_copies_comes_when_it_is_asked_for() {
    let (_, a) = run(|p| of_a_pool(p, true, false));
    verdict(&a, "HOST");
    saves(&a, time(|p| of_a_pool(p, false, false)));
}

/// It may be what the batch is waited for.
#[test]
fn what_a_thread_of_the_programs_own_copies_keeps_its_time() {
    let (_, a) = run(|p| of_a_pool(p, true, true));
    assert!(a.findings.iter().all(|f| f.cause != "HOST" || f.win.share() < 0.05), "{:?}", a.findings);
}

/// A collective of NCCL's, which says its bytes; 0: it does not.
fn all_reduce(p: &mut Program, bytes: u64, duration: u64) {
    let begin = p.t;
    p.launch_on(20, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 24, duration);
    let mut e = Event::new(Kind::Range, begin, p.t);
    (e.a, e.b) = (p.b.string("ncclAllReduce"), p.b.string("NCCL"));
    (e.flags, e.correlation, e.c) = (PAYLOAD, bytes as u32, (bytes >> 32) as u32);
    p.b.on_thread(p.tid, e);
}

/// Four layers' gradients, as large as each other, reduced once they are all there. `late`: what
/// the other rank comes later, ns.
fn reduced(p: &mut Program, compute: u64, late: u64, bytes: u64) {
    for n in 0..10 {
        p.launch(["gemm_a", "gemm_b"][n % 2], 264, compute / 10);
    }
    p.wait(20, 7, 0);
    for n in 0..4 {
        all_reduce(p, bytes, 500_000 + if n == 0 { late } else { 0 });
    }
    p.wait(7, 20, 0);
    p.launch("descend", 264, 300_000);
}

fn of_ranks(world: u32, late: u64, bytes: u64) -> Analysis {
    let mut p = Program::new();
    p.b.header.world_size = world;
    (0..STEPS).for_each(|_| reduced(&mut p, 5_000_000, late, bytes));
    p.analyze().1
}

#[test]
fn hiding_collectives_is_no_promise() {
    let a = of_ranks(2, 0, 1 << 27);
    verdict(&a, "COMM");
    assert_eq!(a.verdict.promise, None, "{}", a.verdict.text());
    assert!(a.verdict.text().contains("cannot be told"), "{}", a.verdict.text());
}

#[test]
fn of_two_ranks_half_of_what_one_comes_late_is_promised() {
    let a = of_ranks(2, 5_000_000, 1 << 27);
    verdict(&a, "COMM");
    assert!(
        a.verdict.text().contains("5.0 ms a step") && a.verdict.advice.long.contains("equal work"),
        "{:?}",
        a.verdict
    );
    saves(&a, time(|p| reduced(p, 7_500_000, 0, 1 << 27)));
}

#[test]
fn of_more_ranks_it_is_not_known_how_late_the_others_are() {
    let a = of_ranks(8, 5_000_000, 1 << 27);
    assert!(a.verdict.text().contains("comes late"), "{}", a.verdict.text());
    assert_eq!(a.verdict.promise, None, "{}", a.verdict.text());
}

#[test]
fn without_their_bytes_nobody_is_said_to_be_late() {
    let a = of_ranks(2, 5_000_000, 0);
    verdict(&a, "COMM");
    assert!(!a.verdict.text().contains("comes late"), "{}", a.verdict.text());
    assert_eq!(a.verdict.promise, None, "{}", a.verdict.text());
}
