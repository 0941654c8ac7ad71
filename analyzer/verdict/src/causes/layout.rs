// SPDX-License-Identifier: Apache-2.0
//! GP134 LAYOUT: tensors are copied from one memory layout to another.
//!
//! # What it means
//! Tensor cores read images pixel by pixel, with all channels of a pixel together (NHWC). By
//! default PyTorch stores them channel by channel (NCHW), so cuDNN copies the inputs, weights and
//! results of each convolution into the other layout and back. `transpose(...).contiguous()` makes
//! such a copy too, although the next operation might accept the tensor as it is.
//!
//! # How it is recognised
//! By the names of kernels that do nothing else: `nchwToNhwc` and `nhwcToNchw` (more of the
//! former, since weights are converted too), or PyTorch's copy kernel for non-contiguous tensors,
//! in the forward pass. Where operators are known, only copies that `contiguous()` asked for
//! count.
//!
//! # How sure
//! The number and time of these kernels are exact. The prediction leaves them out, and has batch
//! norms between convolutions take three quarters of their time (measured on an H200: 0.54). Slow
//! batch norms are no evidence by themselves: a gradient in the other layout slows them too. The
//! confidence is medium at most; it is low beside group norms, which convert the image themselves,
//! and for `contiguous()`, which may be needed.
//!
//! # Example
//! ```python
//! # slow: model(images)
//! # fixed: once
//! model = model.to(memory_format=torch.channels_last)
//! # and for each batch
//! images = images.to(memory_format=torch.channels_last)
//! ```
//!
//! # What to change
//! `memory_format=torch.channels_last` for the model and its inputs, in bfloat16 or under autocast
//! (`channels_last_3d` for volumes; sequences have no such format).
//! `is_contiguous(memory_format=...)` finds what changes it back. JAX: `dimension_numbers` with
//! `NHWC`. For `contiguous()`: matmul and `F.linear` accept transposed inputs.

use super::kernel_names::{is_from_channels_last, is_norm_by_channel, is_strided_copy, is_to_channels_last};
use super::kernels::{as_kernel, Kernels};
use super::{Case, MINOR_WIN, NAMED_WIN};
use crate::analysis::{Advice, Confidence, Fact, Figure, Finding};
use crate::run::operators::Operator;

/// Stable code.
pub const CODE: &str = "GP134";
/// Name in the line.
pub const NAME: &str = "LAYOUT";

/// What is left of the time of batch norms, which are faster pixel by pixel (H200, bfloat16,
/// 2026-11-29: 0.54).
const NORM: f64 = 0.75;

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    images(case).or_else(|| copies(case))
}

/// Images around convolutions.
fn images(case: &Case) -> Option<Finding> {
    let is_turned = |name: &str| is_to_channels_last(name) || is_from_channels_last(name);
    let turned = Kernels::named(case, 0, |name| is_turned(name).then_some(0.0))?;
    // a layer turns its input and its weights over, and its result back: a program in channels_last
    // whose layer is taken channel by channel does the opposite
    let count = |is: fn(&str) -> bool| {
        Kernels::named(case, 0, |name| is(name).then_some(0.0)).map_or(0, |kernels| kernels.count)
    };
    if count(is_to_channels_last) <= count(is_from_channels_last) {
        return None;
    }
    let turned = turned.but(is_of_one_dimension)?;
    if turned.share() < NAMED_WIN {
        return None;
    }
    let rest = |name: &str| match is_turned(name) {
        true => Some(0.0),
        false => is_norm_by_channel(name).then_some(NORM),
    };
    let seen =
        Fact::new("kernels that convert images between layouts run {often} and take {share} of the time")
            .with("often", case.rhythm(turned.count))
            .with("share", Figure::Share(turned.share()));
    let norms = Kernels::named(case, 0, |name| is_norm_by_channel(name).then_some(NORM));
    let mut f = Kernels::named(case, 0, rest)?.but(is_of_one_dimension)?.finding((CODE, NAME), seen)?;
    f.facts.add(norms.map(|norms| {
        Fact::new("batch norms of images in that layout take {share} of it")
            .with("share", Figure::Share(norms.share()))
    }));
    // group norms take images channel by channel alone, and turn them over themselves
    let is_group_norm = |name: &str| name.contains("RowwiseMoments").then_some(0.0);
    let groups = Kernels::named(case, 0, is_group_norm).is_some();
    // (where neither operator nor line says so, they may be sequences)
    let names: Vec<&str> = operators(case, &turned).map(|operator| operator.name).collect();
    let is_unknown =
        case.run.foreign && names.iter().all(|name| !name.contains("conv2d") && !name.contains("conv3d"));
    f.confidence = f.confidence.min(if groups || is_unknown { Confidence::Low } else { Confidence::Medium });
    f.advice = match names.iter().any(|name| name.contains("conv3d")) {
        false => Advice::new(
            "use channels_last",
            "keep model and inputs in memory_format=torch.channels_last, so that cuDNN has nothing to convert",
        ),
        true => Advice::new(
            "use channels_last_3d",
            "keep model and inputs in memory_format=torch.channels_last_3d, so that cuDNN has nothing to convert",
        ),
    };
    Some(f)
}

/// Is it a sequence that this operator turns over? Those have no channels_last.
fn is_of_one_dimension(operator: &str) -> bool {
    operator.contains("conv1d") || operator.contains("conv_transpose1d")
}

fn operators<'k, 'a>(
    case: &Case<'a>,
    kernels: &'k Kernels<'k, 'a>,
) -> impl Iterator<Item = Operator<'a>> + use<'k, 'a> {
    let run = case.run;
    kernels.ops().filter_map(|op| run.operator_of(op))
}

/// Tensors that are put in another order.
fn copies(case: &Case) -> Option<Finding> {
    let run = case.run;
    let all = Kernels::named(case, 0, |name| is_strided_copy(name).then_some(0.0))?;
    // what the program asks for by name, where that is known, in its forward pass: what a view's
    // gradient or a cache of keys needs is no choice
    let asked = all.ops().filter(|op| {
        let Some(origin) = run.origin(op).filter(|origin| origin.work.node.is_none()) else { return false };
        run.operator(&origin, op).is_none_or(|operator| operator.name.contains("contiguous"))
    });
    let copies = Kernels::these(case, asked.map(|op| (as_kernel(op), 0)))?;
    let seen = Fact::new("copies that reorder tensors run {often} and take {share} of the time")
        .with("often", case.rhythm(copies.count))
        .with("share", Figure::Share(copies.share()));
    let mut f = copies.finding((CODE, NAME), seen).filter(|f| f.win.share() >= MINOR_WIN)?;
    f.confidence = Confidence::Low;
    f.advice = Advice::new(
        "avoid contiguous copies",
        "let each operation take what the one before returns (F.linear and matmul accept transposed inputs), instead of transpose(...).contiguous()",
    );
    Some(f)
}
