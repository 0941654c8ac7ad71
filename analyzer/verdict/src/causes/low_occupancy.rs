// SPDX-License-Identifier: Apache-2.0
//! GP138 LOW-OCCUPANCY: kernels with too little work for the whole GPU.
//!
//! # What it means
//! A GPU has more than a hundred multiprocessors. A kernel with fewer blocks than that leaves the
//! others idle while it runs. A matrix product of few rows keeps all of them waiting for memory:
//! it reads all weights for little arithmetic (low arithmetic intensity). Occupancy here is that
//! of the whole GPU (Waves in `stats -r cuda_gpu_kern_sum`), not that of one multiprocessor by its
//! warps (Occup), which may be full.
//!
//! # How it is recognised
//! Either by the grid: kernels of 20 us and more with blocks for at most half of the
//! multiprocessors, where no second stream has kernels (recurrent layers and collectives, which
//! are made that way, do not count). Or, where products take most of the time, by the GPU's
//! counters: the tensor cores are busy for at most half of the time, and at least seven tenths of
//! the memory bandwidth are used.
//!
//! # How sure
//! Grid, time and counters are exact. For few blocks, the prediction spreads them over all
//! multiprocessors, and has them take half as long again as that would. For products, the evidence
//! says what a row takes in a batch several times as large, with the tensor cores at seven tenths
//! of their peak; that step is longer, so no step time is predicted. Whether the program can give
//! a kernel more work is not known: the confidence is low.
//!
//! # Example
//! ```python
//! # slow: one block a row, eight rows
//! total = torch.logsumexp(scores, -1)
//! # fixed: in pieces first
//! total = torch.logsumexp(torch.logsumexp(scores.view(8, 1024, -1), -1), -1)
//! ```
//!
//! # What to change
//! A larger batch, as far as memory allows (the evidence says how full it is). All rows, heads or
//! experts at once (`torch.bmm`, grouped products) instead of one after the other. Split long
//! rows; in kernels of your own, split the loop that one block runs. Several small models on one
//! GPU.

use trace::Kind;

use super::kernel_names::{is_fp32_product, is_of_few_blocks, is_product, is_unaligned};
use super::kernels::{as_kernel, Kernels};
use super::recompute::fullest;
use super::Case;
use crate::analysis::{Advice, Bucket, Confidence, Fact, Figure, Finding};
use crate::timeline::kernels::classify;

/// Stable code.
pub const CODE: &str = "GP138";
/// Name in the line.
pub const NAME: &str = "LOW-OCCUPANCY";

/// A shorter kernel waits for other things, ns.
const LEAST_NS: u64 = 20_000;
/// Blocks for so many of the multiprocessors at most are few.
const FEW: f64 = 0.5;
/// Spread over all of them they take so many times what that would.
const SPREAD: f64 = 1.5;
/// Products take this part of the computing, and use so much of the memory bandwidth, at least, and
/// of the tensor cores at most.
const PRODUCTS: f64 = 0.6;
const MEMORY: f64 = 0.7;
const TENSOR: f64 = 0.5;
/// Less than this is the work of other pipes.
const LEAST_TENSOR: f64 = 0.02;
/// What large products reach of the tensor cores (H200, bfloat16: 0.7 to 0.93 by the size).
const REACHED: f64 = 0.7;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let mut f = few_blocks(case).or_else(|| few_rows(case))?;
    f.confidence = Confidence::Low;
    let full = fullest(case);
    f.facts.add(
        full.map(|full| {
            Fact::new("the GPU's memory is at most {full} full").with("full", Figure::Share(full))
        }),
    );
    Some(f)
}

fn few_blocks(case: &Case) -> Option<Finding> {
    if case.device.counters.is_some_and(|c| c.own().is_none()) {
        return None; // another process may use the rest
    }
    let device = case.recorded_device()?;
    let all = f64::from(device.info.multiprocessors);
    let mut computing = device.streams.iter().filter(|s| s.ops.iter().any(|op| op.kind == Kind::Kernel));
    let (stream, None) = (computing.next()?, computing.next()) else { return None };
    let is_few = |op: &&crate::run::Op| {
        let name = || case.run.definitions.kernel_name(op.a);
        op.kind == Kind::Kernel
            && op.b > 0
            && f64::from(op.b) <= all * FEW
            && op.span().ns() >= LEAST_NS
            && !classify(name()).collective
            && !is_of_few_blocks(name())
            && !is_of_steps(case, op)
    };
    // no faster than its memory traffic
    let floor = case.memory_floor().unwrap_or(0.0);
    let spread = stream.ops.iter().filter(is_few).map(|op| {
        let kernel = as_kernel(op);
        (kernel, (kernel.ns as f64 * (SPREAD * f64::from(op.b) / all).max(floor)) as u64)
    });
    let few = Kernels::these(case, spread)?;
    let seen = Fact::new("kernels with blocks for at most half of the multiprocessors run {often} and take {share} of the time")
        .with("often", case.rhythm(few.count))
        .with("share", Figure::Share(few.share()));
    let mut f = few.finding((CODE, NAME), seen)?;
    f.advice = Advice::new(
        "more blocks at once",
        "work on more at once (rows, heads, experts in one call), or split what one block does",
    );
    Some(f)
}

/// Was it put on the GPU by an operator that does one step after another?
fn is_of_steps(case: &Case, op: &crate::run::Op) -> bool {
    case.run.operator_of(op).is_some_and(|o| ["rnn", "lstm", "gru"].iter().any(|word| o.name.contains(word)))
}

fn few_rows(case: &Case) -> Option<Finding> {
    let counters = case.device.counters.as_ref()?.own()?;
    let (tensor, memory) = (counters.tensor?, counters.memory?);
    // (on tensor cores, and by no kernel that is slow for a reason of its own)
    let is_one = |name: &str| is_product(name) && !is_fp32_product(name) && !is_unaligned(name);
    let products = Kernels::named(case, 0, |name| is_one(name).then_some(0.0))?.share();
    let (low, high) = (LEAST_TENSOR * products, TENSOR * products);
    let compute = case.share(&[Bucket::Compute]);
    if products < PRODUCTS * compute || memory < MEMORY * compute || !(low..=high).contains(&tensor) {
        return None;
    }
    let rest = tensor / products / REACHED;
    let products = Kernels::named(case, 0, |name| is_one(name).then_some(rest))?;
    let seen = Fact::new("products wait for memory: they take {share} of the time, the tensor cores are {tensor} busy, {memory} of the memory bandwidth is used; in a batch several times as large each row takes {rest} of its time")
        .with("share", Figure::Share(products.share()))
        .with("tensor", Figure::Share(tensor))
        .with("memory", Figure::Share(memory))
        .with("rest", Figure::Share(rest));
    let mut f = products.finding((CODE, NAME), seen)?;
    f.why = "products of few rows wait for memory";
    // (a larger batch makes a longer step, of more rows)
    f.promise = None;
    f.advice = Advice::new(
        "a larger batch",
        "give each product more rows: a larger batch, as far as memory allows, or several requests at once",
    );
    Some(f)
}
