// SPDX-License-Identifier: Apache-2.0
//! What GPUs can do at most, and what part of it a program does.

use trace::define::STEP_TFLOP;

use super::{Analysis, DeviceAnalysis};
use crate::run::Run;

/// FLOP/s of bf16 or fp16 on tensor cores with 32-bit sums, without sparsity, by a part of the
/// name that CUDA gives the device, in capitals: of several that fit the first one. NVIDIA's data
/// sheets of each (as of 2026-11; half of what they say "with sparsity"; B200: an eighth of HGX
/// B200's, GB200: a 72nd of NVL72's).
const TENSOR_16_BIT: [(&str, f64); 21] = [
    ("GB200", 2500e12),
    ("B200", 2250e12),
    ("H200 NVL", 835.5e12),
    ("GH200", 989.5e12),
    ("H200", 989.5e12),
    ("H100 NVL", 835.5e12),
    ("H100 PCIE", 756e12),
    ("H100", 989.4e12),
    ("H800 PCIE", 756e12),
    ("H800", 989.4e12),
    ("H20", 148e12),
    ("A100", 312e12),
    ("A800", 312e12),
    ("A40", 149.7e12),
    ("A30", 165e12),
    ("A10", 125e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("L4", 121e12),
    ("V100", 125e12),
    ("T4", 65e12),
];

/// FLOP/s that this device's tensor cores do at most in bf16 or fp16; `None`: not known.
pub fn tensor_16_bit(device: &str) -> Option<f64> {
    let name = device.to_ascii_uppercase();
    let words: Vec<&str> = name.split([' ', '-', '_']).collect();
    // (the A100 is no A10)
    let fits = |known: &str| {
        let known: Vec<&str> = known.split(' ').collect();
        words.windows(known.len()).any(|part| part == known)
    };
    TENSOR_16_BIT.iter().find(|(known, _)| fits(known)).map(|(_, peak)| *peak)
}

/// Model FLOPs utilization: the FLOPs of a step on one GPU, as the user has given them
/// (GAPPROBE_STEP_TFLOP), by the step's mean time and the peak of the tensor cores in 16 bits (as
/// PaLM's authors have it: Chowdhery et al. 2022, appendix B); `None` where one of them is not
/// known.
pub fn mfu(run: &Run, a: &Analysis, device: &DeviceAnalysis) -> Option<f64> {
    let tera: f64 = run.definitions.attribute(STEP_TFLOP)?.parse().ok()?;
    let info = run.devices.iter().find(|d| d.ordinal == device.ordinal)?.info;
    let peak = tensor_16_bit(run.definitions.string(info.name)?)?;
    let step = a.steps.mean_ns;
    (step > 0.0 && tera > 0.0).then(|| tera * 1e12 / (step * 1e-9) / peak)
}

#[cfg(test)]
mod tests {
    use super::tensor_16_bit;

    #[test]
    fn a_device_is_known_by_the_words_of_its_name() {
        for (name, tera) in [
            ("NVIDIA H100 80GB HBM3", Some(989.4)),
            ("NVIDIA H100 PCIe", Some(756.0)),
            ("NVIDIA H100 NVL", Some(835.5)),
            ("NVIDIA H200", Some(989.5)),
            ("NVIDIA H200 NVL", Some(835.5)),
            ("NVIDIA GH200 480GB", Some(989.5)),
            ("NVIDIA A100-SXM4-80GB", Some(312.0)),
            ("NVIDIA A10", Some(125.0)),
            ("NVIDIA A10G", None),
            ("Tesla V100-SXM2-16GB", Some(125.0)),
            ("Tesla T4", Some(65.0)),
            ("NVIDIA L40S", Some(362.0)),
            ("NVIDIA B200", Some(2250.0)),
            ("NVIDIA RTX A4000", None),
            ("Simulated GPU 0", None),
            ("", None),
        ] {
            assert_eq!(tensor_16_bit(name).map(|peak| peak / 1e12), tera, "{name}");
        }
    }
}
