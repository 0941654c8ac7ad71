// SPDX-License-Identifier: Apache-2.0
//! GP132 FP32-MATMUL: float32 products and convolutions leave the tensor cores idle.
//!
//! # What it means
//! The GPU computes on its slower units: float32 matrix products run on the ordinary FP32 pipes.
//! The tensor cores, some seven times as fast in TF32 and fifteen times in bfloat16 (H100), stay
//! idle. By default PyTorch uses TF32 for convolutions, but not for matrix products.
//!
//! # How it is recognised
//! By the names of cuBLAS, cuDNN and CUTLASS kernels, which tell the unit that computes: `ffma`,
//! `simt_sgemm`, `sgemm`, `scudnn`, Winograd and Fourier transforms. Only kernels of 20 us and
//! more count (shorter ones are limited by other things), on a GPU whose tensor cores are much
//! faster in TF32 (A100, H100, H200, B200, B300). If TF32 kernels take a tenth of that time or
//! more, TF32 is allowed, and nothing is said. In traces with operators, products of
//! decompositions (`linalg_`) do not count.
//!
//! # How sure
//! That these kernels do not use tensor cores is certain. How much faster they would be is an
//! estimate: products reach three quarters of the data sheet's TF32 rate (measured on an H200,
//! 2026-11-29: 0.84), transforms take 0.4 of their time (measured: 0.34), and nothing gets faster
//! than its memory traffic allows, where the GPU's counters tell that. Without counters, with
//! other processes' work in them, or with transforms the confidence is low, otherwise medium:
//! whether TF32 (10 bits of mantissa) is precise enough is for you to judge. bfloat16 wins more.
//! The replay shows what the step gains, as the host may be the next limit.
//!
//! # Example
//! ```python
//! # slow: y = x @ w, both in float32
//! # fixed: once, at the start
//! torch.set_float32_matmul_precision("high")
//! ```
//!
//! # What to change
//! `torch.set_float32_matmul_precision("high")` for products, `torch.backends.cudnn.allow_tf32 =
//! True` for convolutions; or train under `torch.autocast("cuda", torch.bfloat16)`, which saves
//! memory traffic as well. cuBLAS: `CUBLAS_TF32_TENSOR_OP_MATH`; CuPy: `CUPY_TF32=1`.

use super::kernel_names::{is_complex, is_convolution, is_fourier, is_fp32_product, is_tf32, is_transformed};
use super::kernels::Kernels;
use super::Case;
use crate::analysis::{peaks, Advice, Confidence, Fact, Figure, Finding};

/// Stable code.
pub const CODE: &str = "GP132";
/// Name in the line.
pub const NAME: &str = "FP32-MATMUL";

/// A shorter one is bound by its launch, its memory or its few blocks, ns.
const LEAST_NS: u64 = 20_000;
/// FLOP/s of the tensor cores in TF32 by those of the pipes for float32, by compute capability:
/// A100 156 and 19.5 TFLOP/s, H100 494.7 and 66.9, B200 and B300 1,125 and 75 (NVIDIA's data
/// sheets). Others have twice as many at most, GeForce as many.
const FASTER: [((u32, u32), f64); 4] = [((8, 0), 8.0), ((9, 0), 7.4), ((10, 0), 15.0), ((10, 3), 15.0)];
/// Of a device that is made slower (H20) this says nothing, FLOP/s in 16 bits.
const LEAST_PEAK: f64 = 300e12;
/// So much as is done without runs in TF32 where that is allowed.
const ALLOWED: f64 = 0.1;
/// The part of that which is reached, see the page.
const REACHED: f64 = 0.75;
/// What is left of a convolution by transforms, likewise.
const TRANSFORMED: f64 = 0.4;
/// What is won may be off by this part of the kernels' time: half to all of it reached.
const DOUBT: f64 = 0.1;

/// Linear algebra, whose products neither setting is for.
fn is_decomposition(operator: &str) -> bool {
    const WORDS: [&str; 8] =
        ["linalg_", "cholesky", "lu_factor", "lu_solve", "svd", "eig", "triangular_solve", "inverse"];
    WORDS.iter().any(|word| operator.contains(word))
}

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let info = case.recorded_device()?.info;
    let capability = (info.compute_major, info.compute_minor);
    let name = case.run.definitions.string(info.name).unwrap_or("");
    if peaks::of_device(name).is_some_and(|peaks| peaks.tensor_16_bit < LEAST_PEAK) {
        return None;
    }
    let (_, faster) = FASTER.iter().find(|(known, _)| *known == capability)?;
    // where much runs in TF32, it is allowed, and the others are the library's own choice
    let [products, convolutions] = [false, true].map(|conv| {
        let share = |is: fn(&str) -> bool| {
            let is_such = |name: &str| is(name) && is_convolution(name) == conv;
            Kernels::named(case, 0, |name| is_such(name).then_some(0.0)).map_or(0.0, |all| all.share())
        };
        let tf32 = share(is_tf32);
        tf32 > 0.0 && tf32 >= ALLOWED * share(is_fp32_product)
    });
    // (for convolutions PyTorch allows it by itself)
    let allowed = [products, convolutions || products];
    // no faster than its memory traffic
    let floor = case.memory_floor();
    let least = floor.unwrap_or(0.0);
    // (without a transform, products of complex numbers are the program's own)
    let has_fourier = Kernels::named(case, 0, |name| is_fourier(name).then_some(0.0)).is_some();
    let is_transformed = |name: &str| is_transformed(name) && (has_fourier || !is_complex(name));
    let transforms = Kernels::named(case, LEAST_NS, |name| is_transformed(name).then_some(0.0)).is_some();
    let rest = |name: &str| match () {
        () if allowed[usize::from(is_convolution(name))] => None,
        () if is_transformed(name) => Some(TRANSFORMED.max(least)),
        () => is_fp32_product(name).then_some((1.0 / (faster * REACHED)).max(least)),
    };
    let products = Kernels::named(case, LEAST_NS, rest)?.but(is_decomposition)?;
    let seen = Fact::new("float32 products without tensor cores run {often} and take {share} of the time")
        .with("often", case.rhythm(products.count))
        .with("share", Figure::Share(products.share()));
    let mut f = products.finding((CODE, NAME), seen)?;
    // (a transform may be cuDNN's own choice, though TF32 is allowed)
    let (sure, doubt) = match floor {
        Some(_) if !transforms => (Confidence::Medium, f.share * DOUBT),
        _ => (Confidence::Low, f.win.share() / 2.0),
    };
    f.confidence = f.confidence.min(sure);
    f.promise = f.promise.map(|p| p.give_or_take(p.error_ns() + case.step_ns() * doubt));
    f.advice = Advice::new(
        "allow TF32, or bf16 autocast",
        "allow TF32 (torch.set_float32_matmul_precision(\"high\"), torch.backends.cudnn.allow_tf32), or train under autocast in bfloat16",
    );
    if let Some(tensor) = case.device.counters.and_then(|c| c.own()?.tensor) {
        f.facts.say(Fact::new("tensor cores are {tensor} busy").with("tensor", Figure::Share(tensor)));
    }
    Some(f)
}
