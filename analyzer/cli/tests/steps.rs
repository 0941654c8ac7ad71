// SPDX-License-Identifier: Apache-2.0
//! Found steps equal true steps ±1, marks hidden; without a stable period there are none.

#[path = "steps/ahead.rs"]
mod ahead;
#[path = "steps/behind.rs"]
mod behind;
#[path = "steps/clock.rs"]
mod clock;
#[path = "steps/doubt.rs"]
mod doubt;
#[path = "steps/graphs.rs"]
mod graphs;
#[path = "steps/holes.rs"]
mod holes;
#[path = "steps/last.rs"]
mod last;
#[path = "steps/named.rs"]
mod named;
#[path = "steps/nothing.rs"]
mod nothing;
#[path = "steps/parts.rs"]
mod parts;
mod program;
#[path = "steps/recorded.rs"]
mod recorded;
#[path = "steps/weight.rs"]
mod weight;
#[path = "steps/windows.rs"]
mod windows;

use program::Program;
use verdict::analysis::StepSource;

fn found(p: Program) -> (usize, u32) {
    let (_, a) = p.analyze();
    assert!(matches!(a.steps.source, StepSource::Period | StepSource::None));
    for w in a.steps.steps.windows(2) {
        assert!(w[0].span.end <= w[1].span.start, "steps overlap");
    }
    (a.steps.steps.len(), a.steps.micro)
}

#[track_caller]
fn about(found: usize, truth: usize) {
    assert!(found.abs_diff(truth) <= 1, "found {found} steps of {truth}");
}

/// A logging copy, an extra reduction now and then.
fn noise(p: &mut Program) {
    match p.random(12) {
        0 => p.item(),
        1 => p.launch("isfinite_reduce_kernel", 1, 4_000),
        _ => {}
    }
}

#[test]
fn twelve_equal_layers_are_one_step() {
    for scale in [2_000, 60_000] {
        let mut p = Program::new();
        for _ in 0..60 {
            p.train_step(12, scale);
            noise(&mut p);
        }
        let (n, micro) = found(p);
        about(n, 60);
        assert_eq!(micro, 1, "layers are no micro-steps");
    }
}

#[test]
fn four_steps_are_enough() {
    let mut p = Program::new();
    for _ in 0..4 {
        p.train_step(12, 20_000);
    }
    about(found(p).0, 4);
}

#[test]
fn gradient_accumulation_is_counted_as_micro_steps() {
    for parts in [2, 4, 8, 16] {
        let mut p = Program::new();
        for _ in 0..40 {
            for _ in 0..parts {
                p.forward(6, 20_000);
                p.backward(6, 20_000);
            }
            p.optimizer(20_000);
            noise(&mut p);
        }
        let (n, micro) = found(p);
        about(n, 40);
        assert_eq!(micro, parts, "micro-steps");
    }
}

#[test]
fn an_evaluation_every_fifty_steps_is_no_step() {
    for (batches, own_kernel) in [(10, false), (10, true), (30, true), (3, true)] {
        let mut p = Program::new();
        for i in 1..=312 {
            p.train_step(4, 10_000);
            noise(&mut p);
            if i % 50 == 0 {
                for _ in 0..batches {
                    p.forward(4, 10_000);
                    if own_kernel {
                        p.launch("argmax_kernel", 10, 5_000);
                    }
                }
                p.item();
            }
        }
        about(found(p).0, 312);
    }
}

#[test]
fn a_parameter_is_no_step() {
    // foreach=False: the optimizer's launches outnumber everything else
    for parameters in [20, 80, 200] {
        let mut p = Program::new();
        for _ in 0..25 {
            p.forward(8, 3_000);
            p.backward(8, 3_000);
            for _ in 0..parameters {
                for k in [
                    "mul_kernel",
                    "lerp_kernel",
                    "addcmul_kernel",
                    "sqrt_kernel",
                    "div_kernel",
                    "addcdiv_kernel",
                ] {
                    p.launch(k, 8, 1_500);
                }
            }
        }
        about(found(p).0, 25);
    }
}

#[test]
fn generation_with_changing_lengths_counts_tokens() {
    let mut p = Program::new();
    let mut tokens = 0;
    for _ in 0..12 {
        let length = 20 + p.random(120);
        p.copy(7, true, 4096, false); // the prompt
        for i in 0..length {
            tokens += 1;
            p.forward(12, 2_000 + i * 20);
            p.launch("argmax_kernel", 1, 3_000);
            if i > 60 {
                p.launch("split_kv_combine_kernel", 16, 3_000); // long contexts take another path
            }
            p.item();
        }
    }
    about(found(p).0, tokens);
}

#[test]
fn a_graph_a_step() {
    let nodes: Vec<(&str, u64)> = (0..100).map(|i| (["a", "b", "c"][i % 3], 2_000)).collect();
    let mut p = Program::new();
    for _ in 0..50 {
        p.graph(3, &nodes);
    }
    about(found(p).0, 50);
}

#[test]
fn two_optimizers_are_one_step() {
    let mut p = Program::new();
    for _ in 0..50 {
        // a GAN: discriminator, then generator
        for name in ["disc", "gen"] {
            for layer in 0..8 {
                p.launch(&format!("conv_{name}_{}", ["a", "b", "c"][layer % 3]), 300, 20_000);
            }
            p.launch("adam_kernel", 100, 10_000);
        }
        p.launch("generator_only_upsample", 300, 20_000);
    }
    about(found(p).0, 50);
}

#[test]
fn launches_without_a_period_are_no_steps() {
    let mut p = Program::new();
    for _ in 0..3_000 {
        let name = format!(
            "kernel_{}",
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"][p.random(11) as usize]
        );
        p.launch(&name, 100, 20_000);
    }
    assert_eq!(found(p).0, 0);
}

#[test]
fn random_operations_with_an_equal_end_are_no_steps() {
    let mut p = Program::new();
    for _ in 0..2_000 {
        match p.random(8) {
            0 => p.launch("gemm_nn", 100, 20_000),
            1 => p.launch("softmax", 100, 20_000),
            2 => p.launch("relu", 100, 20_000),
            3 => {
                p.launch("reduce_kernel<sum>", 100, 20_000);
                p.launch("direct_copy", 100, 20_000);
            }
            4 => p.launch("direct_copy", 100, 20_000),
            5 => p.launch("scan_kernel", 100, 20_000),
            6 => {
                for k in ["sort_histogram", "sort_onesweep", "sort_onesweep", "gather_sorted"] {
                    p.launch(k, 100, 20_000);
                }
            }
            _ => {
                p.launch("sin", 100, 20_000);
                p.launch("add", 100, 20_000);
            }
        }
        for k in ["abs", "reduce_kernel<amax>", "clamp", "div"] {
            p.launch(k, 100, 5_000);
        }
    }
    assert_eq!(found(p).0, 0);
}

#[test]
fn a_first_step_that_makes_the_optimizers_state_counts() {
    let mut p = Program::new();
    for _ in 0..300 {
        p.launch("normal_kernel<init>", 100, 5_000); // the model
    }
    for i in 0..40 {
        p.forward(8, 3_000);
        p.backward(8, 3_000);
        for _ in 0..60 {
            if i == 0 {
                p.launch("fill_kernel<zeros>", 8, 1_000);
                p.launch("fill_kernel<zeros>", 8, 1_000);
            }
            for k in
                ["mul_kernel", "lerp_kernel", "addcmul_kernel", "sqrt_kernel", "div_kernel", "addcdiv_kernel"]
            {
                p.launch(k, 8, 1_500);
            }
        }
        p.launch("add_kernel<double>", 1, 1_000); // the frame's own sum of the loss
    }
    p.item();
    about(found(p).0, 40);
}

#[test]
fn marks_without_a_length_end_at_the_next() {
    let mut p = Program::new();
    for i in 0..30 {
        let now = p.t;
        p.mark(i, now);
        p.train_step(6, 20_000);
    }
    let (_, a) = p.analyze();
    assert_eq!((a.steps.source, a.steps.steps.len()), (StepSource::Marks, 30));
}

#[test]
fn growing_work_is_no_step() {
    let mut p = Program::new();
    for i in 1..60 {
        p.launch("begin_kernel", 100, 20_000);
        for _ in 0..i * 3 {
            let name = ["x", "y", "z", "v", "w"][p.random(5) as usize];
            p.launch(name, 100, 20_000);
        }
    }
    assert_eq!(found(p).0, 0);
}

#[test]
fn a_slow_start_is_warm_up() {
    let mut p = Program::new();
    for i in 0..40 {
        if i < 3 {
            p.t += 200_000_000; // compiling
        }
        p.train_step(6, 20_000);
    }
    let (_, a) = p.analyze();
    about(a.steps.steps.len(), 40);
    assert!((2..=3).contains(&a.steps.warm_up), "{}", a.steps.warm_up);
    let worst = &a.devices[0];
    assert!(worst.wall_ns < 200_000_000, "the compile time is not in the figures: {}", worst.wall_ns);
}

#[test]
fn marks_come_before_everything() {
    let mut p = Program::new();
    for i in 0..30 {
        let begin = p.t;
        p.train_step(6, 20_000);
        let end = p.t;
        p.t = begin;
        p.mark(i, end);
        p.t = end;
    }
    let (_, a) = p.analyze();
    assert_eq!(a.steps.source, StepSource::Marks);
    about(a.steps.steps.len(), 30);
    assert_eq!(a.steps.steps[3].number, 3);
}

/// tests/gpu/programs/shapes.py, `generate`: greedy decoding with a cache, as PyTorch launches it.
#[test]
fn decoding_with_a_cache_counts_tokens_or_requests() {
    let mut p = Program::new();
    let (mut tokens, mut requests) = (0, 0);
    for _ in 0..25 {
        requests += 1;
        let new = 10 + p.random(31);
        p.launch("random_from_to_kernel", 1, 2_000);
        for i in 0..new {
            tokens += 1;
            let prefill = i == 0;
            p.launch("vectorized_gather_kernel", 8, 2_000);
            p.launch("elementwise_kernel<add>", 8, 2_000);
            for _ in 0..12 {
                p.launch("layer_norm_kernel", 8, 2_000);
                p.launch(if prefill { "nvjet_hgemm_tn" } else { "gemvx_kernel" }, 32, 4_000);
                if !prefill {
                    p.launch("CatArrayBatchedCopy", 8, 2_000 + i * 30);
                    p.launch("CatArrayBatchedCopy", 8, 2_000 + i * 30);
                }
                p.launch(if prefill { "flash_fwd_kernel" } else { "flash_fwd_splitkv_kernel" }, 8, 5_000);
                if i > 25 {
                    p.launch("flash_fwd_splitkv_combine_kernel", 8, 2_000);
                }
                p.launch(if prefill { "nvjet_hgemm_tn" } else { "gemvx_kernel" }, 32, 4_000);
                p.launch("elementwise_kernel<add>", 8, 2_000);
                p.launch("layer_norm_kernel", 8, 2_000);
                p.launch(if prefill { "nvjet_hgemm_tn" } else { "gemvx_kernel" }, 32, 4_000);
                p.launch("gelu_kernel", 8, 2_000);
                p.launch(if prefill { "nvjet_hgemm_tn" } else { "gemvx_kernel" }, 32, 4_000);
                p.launch("elementwise_kernel<add>", 8, 2_000);
            }
            p.launch("layer_norm_kernel", 8, 2_000);
            p.launch("nvjet_hgemm_nn", 32, 4_000);
            p.launch("reduce_kernel<argmax>", 1, 4_000);
            p.item();
        }
    }
    let n = found(p).0;
    assert!(
        n.abs_diff(tokens) <= 1 || n.abs_diff(requests) <= 1,
        "{n} found; {tokens} tokens, {requests} requests"
    );
}

/// The same, `accumulate`, with the few kernels of a fused optimizer.
#[test]
fn accumulation_with_a_fused_optimizer() {
    let mut p = Program::new();
    for _ in 0..90 {
        for _ in 0..4 {
            p.launch("CompareEq_slice_copy", 8, 2_000);
            p.forward(12, 3_000);
            p.launch("elementwise_kernel<div>", 1, 1_000);
            p.backward(12, 3_000);
        }
        for _ in 0..3 {
            p.launch("multi_tensor_apply_kernel<FusedAdam>", 100, 9_000);
        }
    }
    let (n, micro) = found(p);
    about(n, 90);
    assert_eq!(micro, 4);
}

/// tests/gpu/programs/shapes.py, `accumulate`, on the H200: the first backward pass sets the
/// gradients, the others add to them, a launch a parameter.
#[test]
fn the_first_micro_step_may_be_shorter() {
    for parts in [3, 4, 8] {
        let mut p = Program::new();
        for _ in 0..20 {
            for part in 0..parts {
                p.forward(6, 3_000);
                p.backward(6, 3_000);
                for _ in 0..if part > 0 { 24 } else { 0 } {
                    p.launch("elementwise_kernel<accumulate>", 8, 2_000);
                }
            }
            for _ in 0..5 {
                p.launch("multi_tensor_apply_kernel<FusedAdam>", 100, 9_000);
            }
        }
        let (n, micro) = found(p);
        about(n, 20);
        assert_eq!(micro, parts);
    }
}

/// tests/victims/loop.c: 50 steps of 100 launches, a synchronize and a pause after each; four
/// kernels take turns.
#[test]
fn a_tile_of_kernels_is_no_step_where_the_loop_synchronizes() {
    for kernels in [1, 4, 10] {
        let mut p = Program::new();
        for _ in 0..50 {
            for i in 0..100 {
                p.launch(
                    ["gemm_forward", "layer_norm", "gelu", "gemm_backward", "a", "b", "c", "d", "e", "f"]
                        [i % kernels],
                    100,
                    20_000,
                );
            }
            p.sync();
            p.t += 500_000;
        }
        about(found(p).0, 50);
    }
}
