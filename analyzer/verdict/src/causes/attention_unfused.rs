// SPDX-License-Identifier: Apache-2.0
//! GP135 ATTENTION-UNFUSED: attention is computed in pieces that go through memory.
//!
//! # What it means
//! Queries times keys, a mask, a softmax, a dropout, times values: each of these operations writes
//! and reads a matrix as large as the square of the sequence length. Fused attention (flash) never
//! writes it.
//!
//! # How it is recognised
//! By the order of kernels on a stream: a softmax between two matrix products, with nothing in
//! between but elementwise kernels of about its length (scale, mask, dropout, conversion), all in
//! one step; likewise in the backward pass. Not counted: the softmax of a loss (log_softmax), over
//! the channels of an image, below 10 us, or followed by a choice (a router's); products with
//! weights (`linear`, `mm`, convolutions). Both products are called from one function of the
//! program; for `bmm`, `baddbmm` and `matmul` one file is enough.
//!
//! # How sure
//! Kernels and times are exact. That they are an attention follows from their order, and whether a
//! fused kernel accepts this mask or bias is not known: the confidence is medium at most. It is
//! low without operators and lines, and where scaled_dot_product_attention itself computes in
//! pieces. The prediction leaves out all but the two products. These no longer write and read that
//! matrix, and take 0.7 of their time (H200, bfloat16: 0.87 with a bias, 0.49 to 0.64 without, 0.3
//! under a causal mask), or what is left of it without the softmax's if that is more.
//!
//! # Example
//! ```python
//! # slow
//! p = torch.softmax(q @ k.transpose(-2, -1) / d**0.5 + mask, -1)
//! y = p @ v
//! # fixed
//! y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
//! ```
//!
//! # What to change
//! `torch.nn.functional.scaled_dot_product_attention`, in bfloat16 or float16 for its fastest form;
//! `is_causal=True` rather than a mask; transformers: `attn_implementation="sdpa"` or
//! `"flash_attention_2"`. A bias of another form, or scores capped by tanh: FlexAttention. JAX:
//! `jax.nn.dot_product_attention`.
//!
//! Where scaled_dot_product_attention computes in pieces (its `MATH` backend):
//! `torch.nn.attention.sdpa_kernel` with the others alone fails and says what each wants.

use std::collections::HashMap;

use trace::Kind;

use super::kernel_names::{is_attention, is_convolution, is_product};
use super::kernels::{as_kernel, goes_on_or_ends, Kernels};
use super::Case;
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding};
use crate::run::Op;
use crate::sites::Sites;

/// Stable code.
pub const CODE: &str = "GP135";
/// Name in the line.
pub const NAME: &str = "ATTENTION-UNFUSED";

/// Elementwise kernels between a product and the softmax at most: scale, bias, mask, conversions,
/// dropout.
const BETWEEN: usize = 6;

/// What the fused kernel takes, of the two products' time, see the page.
const PRODUCTS: f64 = 0.7;
/// A shorter softmax is of no matrix that is worth fusing, ns.
const LEAST_NS: u64 = 10_000;
/// An elementwise kernel on the same matrix takes so many times as long as its softmax at most.
const MOST_TIMES: u64 = 3;

/// What a kernel is in an attention.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Product,
    Softmax,
    Elementwise,
    Other,
}

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let device = case.recorded_device()?;
    let definitions = &case.run.definitions;
    let parts: HashMap<u32, Part> =
        definitions.kernels().map(|(id, _)| (id, part_of(definitions.kernel_name(id)))).collect();
    if !parts.values().any(|part| *part == Part::Softmax) {
        return None;
    }
    let (mut found, mut by_order_alone, mut is_capped, mut is_of_fused) = (Vec::new(), false, false, false);
    let mut products = Products { case, sites: Sites::new(case.run) };
    for stream in &device.streams {
        let ops: Vec<&Op> = stream.ops.iter().filter(|op| goes_on_or_ends(op)).collect();
        let part = |op: &Op| match op.kind {
            Kind::Kernel => parts.get(&op.a).copied().unwrap_or(Part::Other),
            _ => Part::Other,
        };
        for (at, op) in ops.iter().enumerate() {
            let ns = op.span().ns();
            let is_seen = || case.analysis.counts.measure(op.span()) > 0;
            if part(op) != Part::Softmax || ns < LEAST_NS || !is_seen() {
                continue;
            }
            let is_own = is_fused_ones(case, op);
            // (what is much longer works on more than the softmax does; the fused function asks
            // which rows are masked altogether)
            let part = |op: &Op| match part(op) {
                Part::Elementwise if op.span().ns() > ns.saturating_mul(MOST_TIMES) => Part::Other,
                Part::Other if is_own && is_fused_ones(case, op) => Part::Elementwise,
                part => part,
            };
            let (before, after) = ops.split_at(at);
            let before = between(before.iter().rev().copied(), &part);
            let after = between(after.iter().skip(1).copied(), &part);
            let (Some((before, first)), Some((after, second))) = (before, after) else { continue };
            if case.step_of(first) != case.step_of(second) {
                continue;
            }
            match products.are_of_attention([first, second]) {
                Some(true) => {}
                Some(false) => continue,
                None => by_order_alone = true,
            }
            is_of_fused |= is_own;
            is_capped |= before.iter().any(|op| is_tanh(case, op));
            let pieces = before.into_iter().chain(after).chain([*op]);
            found.extend(pieces.map(|op| (as_kernel(op), 0)));
            // (what they no longer write and read is no longer than the softmax, which does both)
            let fused = |op: &Op| {
                let took = op.span().ns();
                ((took as f64 * PRODUCTS) as u64).max(took.saturating_sub(ns))
            };
            found.extend([first, second].map(|op| (as_kernel(op), fused(op))));
        }
    }
    let pieces = Kernels::these(case, found.into_iter())?;
    let seen = Fact::new("kernels of unfused attention run {often} and take {share} of the time")
        .with("often", case.rhythm(pieces.count))
        .with("share", Figure::Share(pieces.share()));
    let mut f = pieces.finding((CODE, NAME), seen)?;
    if by_order_alone || is_capped || is_of_fused {
        f.confidence = Confidence::Low;
    }
    f.advice = match () {
        () if is_of_fused => Advice::new(
            "why scaled_dot_product_attention takes no fused kernel",
            "scaled_dot_product_attention computes it in pieces: torch.nn.attention.sdpa_kernel without MATH says why (float32, the heads' width, a mask that needs a gradient)",
        ),
        () if !is_capped => Advice::new(
            "scaled_dot_product_attention",
            "use torch.nn.functional.scaled_dot_product_attention, which never writes the matrix between the two products",
        ),
        // (scaled_dot_product_attention has no cap)
        () => Advice::new(
            "FlexAttention with the cap as its score_mod",
            "use torch.nn.attention.flex_attention with a score_mod that caps by tanh, which never writes the matrix between the two products",
        ),
    };
    Some(f)
}

/// PyTorch's products of several matrices each.
const BATCHED: [&str; 3] = ["aten::bmm", "aten::baddbmm", "aten::matmul"];

/// What is known of products.
struct Products<'c, 'a> {
    case: &'c Case<'a>,
    sites: Sites<'a>,
}

impl Products<'_, '_> {
    /// May a softmax between these be an attention's? `None`: neither operators nor lines tell.
    fn are_of_attention(&mut self, both: [&Op; 2]) -> Option<bool> {
        let run = self.case.run;
        let origins = both.map(|op| (op, run.origin(op)));
        let operators = origins.each_ref().map(|(op, origin)| run.operator(origin.as_ref()?, op));
        let is_of_weights = |name: &str| {
            name == "aten::mm" || ["linear", "addmm", "conv"].iter().any(|word| name.contains(word))
        };
        if operators.iter().flatten().any(|operator| is_of_weights(operator.name)) {
            return Some(false);
        }
        // (the function of scores and that of what they weigh may be two)
        let are_batched = operators.iter().all(|o| o.is_some_and(|o| BATCHED.contains(&o.name)));
        let lines = origins.each_ref().map(|(_, origin)| self.sites.of_kernel(origin.as_ref()?.work.stack));
        match lines.map(|line| self.sites.get(line?)) {
            [Some(one), Some(other)] => {
                Some(one.path == other.path && (are_batched || one.function == other.function))
            }
            _ => operators.iter().all(Option::is_some).then_some(true),
        }
    }
}

/// Was it put on the GPU by the fused function, which has computed it in pieces?
fn is_fused_ones(case: &Case, op: &Op) -> bool {
    case.run.operator_of(op).is_some_and(|operator| operator.name.contains("scaled_dot_product"))
}

/// By its name, or its operator's.
fn is_tanh(case: &Case, op: &Op) -> bool {
    let operator = case.run.operator_of(op).map_or("", |operator| operator.name);
    let names = [case.run.definitions.kernel_name(op.a), operator];
    names.iter().any(|name| name.contains("tanh"))
}

/// The elementwise kernels up to the next product, and that; `None`: something else comes first.
fn between<'a>(
    ops: impl Iterator<Item = &'a Op>,
    part: &impl Fn(&Op) -> Part,
) -> Option<(Vec<&'a Op>, &'a Op)> {
    let mut found = Vec::new();
    for op in ops {
        match part(op) {
            Part::Product => return Some((found, op)),
            Part::Elementwise if found.len() < BETWEEN => found.push(op),
            _ => return None,
        }
    }
    None
}

/// By its (mangled or plain) name.
fn part_of(name: &str) -> Part {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if is_product(&name) {
        return if is_convolution(&name) { Part::Other } else { Part::Product };
    }
    // (over the channels of an image; XLA's name for any norm; what draws numbers for a choice)
    let others = ["spatialsoftmax", "triton_softmax", "distribution_", "logsoftmax", "log_softmax", "reduce"];
    if is_attention(&name) || has(&others) {
        return Part::Other;
    }
    match () {
        () if has(&["softmax"]) => Part::Softmax,
        () if has(&["elementwise", "gather_kernel", "dropout", "triton_poi_", "triu_tril"]) => {
            Part::Elementwise
        }
        () => Part::Other,
    }
}
