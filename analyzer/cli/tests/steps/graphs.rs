// SPDX-License-Identifier: Apache-2.0
//! Steps of programs that warm up eagerly and then launch CUDA graphs: a graph launch is one launch
//! and as much work as the fifteen hundred launches of an eager step.

use verdict::analysis::StepSource;
use verdict::Analysis;

use super::program::Program;

/// One kernel of a step: name, blocks, ns.
type Kernel = (String, u32, u64);

/// Twelve layers as PyTorch launches them: `small` elementwise kernels of a few us around each
/// matrix product.
fn pass(direction: &str, products: usize, small: usize) -> Vec<Kernel> {
    const SMALL: [&str; 7] = ["layer_norm", "gelu", "elementwise_add", "copy_", "softmax", "cat", "reduce"];
    let mut kernels = vec![(format!("embedding_{direction}"), 512, 20_000)];
    for _ in 0..12 {
        for product in 0..products {
            kernels.push((
                format!("nvjet_{}_{direction}", ["qkv", "out", "up", "down"][product % 4]),
                132,
                180_000,
            ));
            for s in 0..small {
                kernels.push((format!("{}_{direction}", SMALL[(product + s) % SMALL.len()]), 264, 9_000));
            }
        }
    }
    kernels.push((format!("loss_{direction}"), 132, 400_000));
    kernels
}

/// 12 x 4 x 9 launches.
fn forward() -> Vec<Kernel> {
    pass("forward", 4, 8)
}

/// 12 x 8 x 10 launches.
fn backward() -> Vec<Kernel> {
    pass("backward", 8, 9)
}

/// The fused AdamW and what clears the gradients.
fn optimizer() -> Vec<Kernel> {
    let mut kernels = vec![("multi_tensor_apply_kernel<FusedAdamMathFunctor>".to_owned(), 1000, 150_000); 12];
    kernels.extend(vec![("fill_kernel<zero>".to_owned(), 64, 3_000); 20]);
    kernels
}

fn eager(p: &mut Program, parts: &[&[Kernel]]) {
    for (name, blocks, ns) in parts.iter().copied().flatten() {
        p.launch(name, *blocks, *ns);
    }
}

/// What a capture leaves: launch calls without operations of the device.
fn captured(p: &mut Program, launches: usize) {
    for _ in 0..launches {
        p.think(5_000);
        p.call_without_work();
    }
}

fn graph(p: &mut Program, id: u32, parts: &[&[Kernel]]) {
    let nodes: Vec<(&str, u64)> = parts.iter().copied().flatten().map(|k| (k.0.as_str(), k.2)).collect();
    p.graph(id, &nodes);
}

/// The inputs of a step, 64 kB to the device.
fn inputs(p: &mut Program) {
    p.copy(7, true, 65_536, false);
}

/// The steps of the longer phase are found, or all; and no step swallows others.
#[track_caller]
fn holds(p: Program, eager: usize, replays: usize) {
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Period);
    let n = a.steps.steps.len();
    let either = [eager.max(replays), eager + replays].iter().any(|truth| n.abs_diff(*truth) <= 1);
    assert!(either, "found {n} of {replays} graph steps after {eager} eager ones");
    let longest = longest(&a);
    assert!(longest < 2.5, "a step is {longest:.1} steps long");
}

/// The longest step that counts, in median steps.
fn longest(a: &Analysis) -> f64 {
    let longest = a.steps.steady().iter().map(|s| s.span.ns()).max().unwrap_or(0);
    longest as f64 / a.steps.median_ns.max(1) as f64
}

/// tests/gpu/programs/gpt_bound.py, fixed form: an H200 run of it was called "HOST, 4 steps found"
/// of 100.
#[test]
fn a_graph_of_the_whole_step_after_eager_warm_up() {
    let (f, b, o) = (forward(), backward(), optimizer());
    for warm_up in [3, 5, 20] {
        let mut p = Program::new();
        for _ in 0..200 {
            p.launch("normal_kernel<init>", 100, 5_000); // the model
        }
        for _ in 0..warm_up {
            inputs(&mut p);
            eager(&mut p, &[&f, &b, &o]);
        }
        p.sync();
        captured(&mut p, 1_400);
        for _ in 0..100 {
            inputs(&mut p);
            graph(&mut p, 3, &[&f, &b, &o]);
        }
        p.sync();
        holds(p, warm_up, 100);
    }
}

/// The same without copies; the frame adds the loss up after each replay.
#[test]
fn a_graph_and_a_sum_of_losses() {
    let (f, b, o) = (pass("forward", 2, 4), pass("backward", 4, 4), optimizer());
    let mut p = Program::new();
    for _ in 0..5 {
        eager(&mut p, &[&f, &b, &o]);
    }
    p.sync();
    for _ in 0..100 {
        graph(&mut p, 3, &[&f, &b, &o]);
        p.launch("elementwise_add_forward", 1, 2_000);
    }
    p.item();
    holds(p, 5, 100);
}

#[test]
fn a_graph_of_forward_and_backward_with_an_eager_optimizer() {
    let (f, b, o) = (pass("forward", 2, 4), pass("backward", 4, 4), optimizer());
    for warm_up in [3, 5, 20] {
        let mut p = Program::new();
        for _ in 0..warm_up {
            inputs(&mut p);
            eager(&mut p, &[&f, &b, &o]);
        }
        p.sync();
        captured(&mut p, 1_400);
        for i in 0..100 {
            inputs(&mut p);
            graph(&mut p, 3, &[&f, &b]);
            eager(&mut p, &[&o]);
            if i % 10 == 9 {
                p.item(); // the loss, logged
            }
        }
        p.sync();
        holds(p, warm_up, 100);
    }
}

#[test]
fn a_graph_of_each_direction() {
    let (f, b, o) = (pass("forward", 2, 4), pass("backward", 4, 4), optimizer());
    for eager_optimizer in [false, true] {
        for warm_up in [3, 5, 20] {
            let mut p = Program::new();
            for _ in 0..warm_up {
                inputs(&mut p);
                eager(&mut p, &[&f, &b, &o]);
            }
            p.sync();
            captured(&mut p, 1_400);
            for _ in 0..100 {
                inputs(&mut p);
                graph(&mut p, 3, &[&f]);
                p.launch("nll_loss_outside", 1, 4_000);
                graph(&mut p, 4, &[&b]);
                if eager_optimizer {
                    eager(&mut p, &[&o]);
                }
            }
            p.sync();
            holds(p, warm_up, 100);
        }
    }
}

#[test]
fn a_graph_a_micro_step_and_an_eager_optimizer() {
    let (f, b, o) = (pass("forward", 2, 4), pass("backward", 4, 4), optimizer());
    for warm_up in [3, 5, 20] {
        let mut p = Program::new();
        for _ in 0..warm_up {
            for _ in 0..4 {
                inputs(&mut p);
                eager(&mut p, &[&f, &b]);
            }
            eager(&mut p, &[&o]);
        }
        p.sync();
        captured(&mut p, 1_400);
        for _ in 0..60 {
            for _ in 0..4 {
                inputs(&mut p);
                graph(&mut p, 3, &[&f, &b]);
            }
            eager(&mut p, &[&o]);
        }
        p.sync();
        let (_, a) = p.analyze();
        let n = a.steps.steps.len();
        assert!([60, 60 + warm_up].iter().any(|t| n.abs_diff(*t) <= 1), "found {n} of 60, {warm_up} eager");
        assert_eq!(a.steps.micro, 4, "micro-steps");
        assert!(longest(&a) < 2.5, "a step is {:.1} steps long", longest(&a));
    }
}

/// Fused by a compiler, a step is a few long nodes in place of thousands of short kernels.
#[test]
fn a_graph_with_far_fewer_kernels_than_the_eager_step() {
    let short: Vec<Kernel> =
        (0..3_000).map(|i| (["add", "mul", "norm", "gelu", "copy"][i % 5].to_owned(), 264, 4_000)).collect();
    let fused: Vec<Kernel> = (0..7).map(|_| ("triton_fused".to_owned(), 264, 1_500_000)).collect();
    let mut p = Program::new();
    for _ in 0..5 {
        inputs(&mut p);
        eager(&mut p, &[&short, &optimizer()]);
    }
    p.sync();
    for _ in 0..100 {
        inputs(&mut p);
        graph(&mut p, 3, &[&fused]);
    }
    p.sync();
    holds(p, 5, 100);
}

/// GAPPROBE_GRAPH=graph: one record a launch, nothing of its nodes.
#[test]
fn graphs_whose_nodes_are_not_recorded() {
    let (f, b, o) = (pass("forward", 2, 4), pass("backward", 4, 4), optimizer());
    let ns = [&f, &b, &o].iter().copied().flatten().map(|k| k.2 + 500).sum();
    let mut p = Program::new();
    for _ in 0..5 {
        inputs(&mut p);
        eager(&mut p, &[&f, &b, &o]);
    }
    p.sync();
    for _ in 0..100 {
        inputs(&mut p);
        p.graph_as_one(3, ns);
    }
    p.sync();
    holds(p, 5, 100);
}

/// Inference with a graph for each batch size: a request more or less makes no other period.
#[test]
fn a_graph_a_batch_size() {
    let layers = |kernel: &str| -> Vec<Kernel> {
        (0..300).map(|i| (format!("{}_{kernel}", ["norm", "gemm", "attention"][i % 3]), 132, 6_000)).collect()
    };
    let sizes = [layers("a"), layers("b"), layers("c"), layers("d")];
    let mut p = Program::new();
    for _ in 0..200 {
        inputs(&mut p);
        let size = p.random(20) as usize / 5;
        graph(&mut p, 3 + size as u32, &[&sizes[size]]);
        for k in ["softmax", "cumsum", "random_from_to", "argmax"] {
            p.launch(k, 8, 5_000);
        }
        if p.random(7) == 0 {
            p.launch("penalties", 8, 5_000);
        }
        p.item();
    }
    holds(p, 0, 200);
}

/// Other work behind the last step is not part of it, as the start-up before the first one is not.
#[test]
fn a_few_replays_behind_many_eager_steps() {
    let (f, b, o) = (pass("forward", 2, 2), pass("backward", 2, 4), optimizer());
    let mut p = Program::new();
    for _ in 0..60 {
        inputs(&mut p);
        eager(&mut p, &[&f, &b, &o]);
    }
    p.sync();
    for _ in 0..9 {
        inputs(&mut p);
        graph(&mut p, 3, &[&f, &b, &o]);
    }
    p.sync();
    holds(p, 60, 9);
}
