// SPDX-License-Identifier: Apache-2.0
//! GP134 LAYOUT: images are turned over between layouts around convolutions.
//!
//! # What it means
//! The tensor cores take images pixel by pixel, all channels of one together (NHWC). PyTorch keeps
//! them channel by channel (NCHW) unless it is told otherwise, so cuDNN copies inputs, weights and
//! results of each convolution into the other layout and back.
//!
//! # How it is recognised
//! By the names of the kernels that do nothing else, `nchwToNhwc` and `nhwcToNchw`: of the former
//! there are more, for they turn weights over, too.
//!
//! # How sure
//! Number and time of these kernels are exact. The prediction leaves them out; that convolutions
//! and norms get faster as well is not promised. Where a layer has no kernel for `channels_last`
//! (group norms), PyTorch turns the image over itself: the confidence is medium at most, and low
//! beside those. One-dimensional convolutions have no such layout.
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
//! (of volumes: `channels_last_3d`).
//! Operations that change the layout back (`view`, `reshape`, some norms) are found by
//! `x.is_contiguous(memory_format=torch.channels_last)`. JAX: `dimension_numbers` with `NHWC`.

use super::kernels::Kernels;
use super::Case;
use crate::analysis::{Advice, Bound, Confidence, Fact, Figure, Finding};
use crate::replay::Kernel;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP134";
/// Name in the line.
pub const NAME: &str = "LAYOUT";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let turned = Kernels::named(case, 0, |name| is_to(name) || is_back(name))?;
    let lost = turned.share();
    // a layer turns its input and its weights over, and its result back: a program in channels_last
    // whose layer is taken channel by channel does the opposite
    let count = |is: fn(&str) -> bool| Kernels::named(case, 0, is).map_or(0, |kernels| kernels.count);
    if lost < NOTICED_SHARE || count(is_to) <= count(is_back) {
        return None;
    }
    let takes = |k: Kernel| if turned.has(k) { 0 } else { k.ns };
    let most = Bound::kernels(&case.device.buckets, lost);
    let mut f = case.finding((CODE, NAME), lost, case.win_of_kernels(&takes, most));
    // group norms take images channel by channel alone, and turn them over themselves
    let groups = Kernels::named(case, 0, |name| name.contains("RowwiseMoments")).is_some();
    f.confidence = f.confidence.min(if groups { Confidence::Low } else { Confidence::Medium });
    f.advice = Advice::new(
        "use channels_last",
        "keep model and inputs in memory_format=torch.channels_last, so that cuDNN has nothing to turn over",
    );
    f.count = turned.count;
    f.facts.say(
        Fact::new("kernels that turn images over between layouts run {often} and take {share} of the time")
            .with("often", case.rhythm(turned.count))
            .with("share", Figure::Share(lost)),
    );
    if let Some(site) = turned.line() {
        f.place(site);
    }
    Some(f)
}

/// A kernel of cuDNN's that puts the channels of a pixel together and does nothing else, by its
/// (mangled or plain) name.
fn is_to(name: &str) -> bool {
    name.to_ascii_lowercase().contains("nchwtonhwc")
}

/// The opposite.
fn is_back(name: &str) -> bool {
    name.to_ascii_lowercase().contains("nhwctonchw")
}

#[cfg(test)]
mod tests {
    use super::{is_back, is_to};

    /// cuDNN's, versions 8 and 9.
    #[test]
    fn layouts_by_name() {
        for name in [
            "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>",
            "_ZN5cudnn3ops16nhwcToNchwKernelI13__nv_bfloat16S2_fLb1ELb0EL21cudnnKernelDataType_t0EEEvNS0_19nhwc2nchw_params_tIT1_EEPKT_PT0_",
        ] {
            assert!(is_to(name) != is_back(name), "{name}");
        }
        for name in [
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_kernel__5x_cudnn",
            "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel__5x_cudnn",
            "",
        ] {
            assert!(!is_to(name) && !is_back(name), "{name}");
        }
    }
}
