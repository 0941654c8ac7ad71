// SPDX-License-Identifier: Apache-2.0
//! What GPUs can do at most, and what part of it a program does.

use trace::define::STEP_TFLOP;

use super::{Analysis, DeviceAnalysis};
use crate::run::Run;

/// What a GPU can do at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// FLOP/s of bf16 or fp16 on tensor cores with 32-bit sums, without sparsity. TF32, where a GPU
    /// has it, is half of it.
    pub tensor_16_bit: f64,
    /// FLOP/s of float32 without tensor cores.
    pub fp32: f64,
    /// Bytes a second of its memory.
    pub memory: f64,
}

const fn peaks(tensor_16_bit: f64, fp32: f64, memory: f64) -> Peaks {
    Peaks { tensor_16_bit: tensor_16_bit * 1e12, fp32: fp32 * 1e12, memory: memory * 1e9 }
}

/// TFLOP/s, TFLOP/s, GB/s, by a part of the name that CUDA gives the device, in capitals: of
/// several that fit the first one. NVIDIA's data sheets of each (as of 2026-11; half of what they
/// say "with sparsity"; B200 and B300: an eighth of the HGX's, GB200 and GB300: a 72nd of NVL72's).
const OF_DEVICES: [(&str, Peaks); 30] = [
    ("GB300", peaks(2500.0, 80.0, 8000.0)),
    ("B300", peaks(2250.0, 75.0, 8000.0)),
    ("GB200", peaks(2500.0, 80.0, 8000.0)),
    ("B200", peaks(2250.0, 75.0, 8000.0)),
    ("H200 NVL", peaks(835.5, 60.0, 4800.0)),
    ("GH200 144G", peaks(989.5, 67.0, 4900.0)),
    ("GH200", peaks(989.5, 67.0, 4000.0)),
    ("H200", peaks(989.5, 67.0, 4800.0)),
    ("H100 NVL", peaks(835.5, 60.0, 3900.0)),
    ("H100 PCIE", peaks(756.0, 51.0, 2000.0)),
    ("H100", peaks(989.4, 67.0, 3350.0)),
    ("H800 PCIE", peaks(756.0, 51.0, 2000.0)),
    ("H800", peaks(989.4, 67.0, 3350.0)),
    ("H20", peaks(148.0, 44.0, 4000.0)),
    ("A100 SXM4 40GB", peaks(312.0, 19.5, 1555.0)),
    ("A100 PCIE 40GB", peaks(312.0, 19.5, 1555.0)),
    ("A100 80GB PCIE", peaks(312.0, 19.5, 1935.0)),
    ("A100", peaks(312.0, 19.5, 2039.0)),
    ("A800 SXM4 40GB", peaks(312.0, 19.5, 1555.0)),
    ("A800 80GB PCIE", peaks(312.0, 19.5, 1935.0)),
    ("A800", peaks(312.0, 19.5, 2039.0)),
    ("A40", peaks(149.7, 37.4, 696.0)),
    ("A30", peaks(165.0, 10.3, 933.0)),
    ("A10", peaks(125.0, 31.2, 600.0)),
    ("L40S", peaks(362.0, 91.6, 864.0)),
    ("L40", peaks(181.0, 90.5, 864.0)),
    ("L4", peaks(121.0, 30.3, 300.0)),
    ("V100 PCIE", peaks(112.0, 14.0, 900.0)),
    ("V100", peaks(125.0, 15.7, 900.0)),
    ("T4", peaks(65.0, 8.1, 320.0)),
];

/// Those of the device with this name; `None`: not known, or a slice of it (MIG, NVIDIA's vGPU:
/// `A100-1-5C`).
pub fn of_device(name: &str) -> Option<Peaks> {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name.split([' ', '-', '_']).collect();
    let is_profile = |word: &&str| {
        let size = word.strip_suffix(['A', 'B', 'C', 'Q']);
        size.is_some_and(|size| !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()))
    };
    if words.contains(&"MIG") || words.iter().any(is_profile) {
        return None;
    }
    // (the A100 is no A10)
    let fits = |known: &str| {
        let known: Vec<&str> = known.split(' ').collect();
        words.windows(known.len()).any(|part| part == known)
    };
    OF_DEVICES.iter().find(|(known, _)| fits(known)).map(|(_, peaks)| *peaks)
}

/// Model FLOPs utilization, and the peak that it is a share of, FLOP/s: the FLOPs of a step on one
/// GPU, as the user has given them (`GAPPROBE_STEP_TFLOP`, `analyze --step-tflop`), by the step's
/// mean time and the peak of the tensor cores in 16 bits (as PaLM's authors have it: Chowdhery et
/// al. 2022, appendix B). `None` where one of them is not known.
pub fn mfu(run: &Run, a: &Analysis, device: &DeviceAnalysis) -> Option<(f64, f64)> {
    let tera: f64 = run.definitions.attribute(STEP_TFLOP)?.parse().ok()?;
    let info = run.devices.iter().find(|d| d.ordinal == device.ordinal)?.info;
    let peak = of_device(run.definitions.string(info.name)?)?.tensor_16_bit;
    let step = a.steps.mean_ns;
    (step > 0.0 && tera > 0.0).then(|| (tera * 1e12 / (step * 1e-9) / peak, peak))
}

#[cfg(test)]
mod tests {
    use super::of_device;

    #[test]
    fn a_device_is_known_by_the_words_of_its_name() {
        for (name, tera) in [
            ("NVIDIA A100 80GB PCIe", Some(312.0)),
            ("NVIDIA H100 80GB HBM3", Some(989.4)),
            ("NVIDIA H100 PCIe", Some(756.0)),
            ("NVIDIA H100 NVL", Some(835.5)),
            ("NVIDIA H200", Some(989.5)),
            ("NVIDIA H200 NVL", Some(835.5)),
            ("NVIDIA GH200 480GB", Some(989.5)),
            ("NVIDIA A100-SXM4-80GB", Some(312.0)),
            ("NVIDIA A10", Some(125.0)),
            ("NVIDIA A10G", None),
            ("NVIDIA A100-1-5C", None),
            ("GRID A100D-80C", None),
            ("Tesla V100-SXM2-16GB", Some(125.0)),
            ("Tesla V100-PCIE-32GB", Some(112.0)),
            ("Tesla T4", Some(65.0)),
            ("NVIDIA L40S", Some(362.0)),
            ("NVIDIA B200", Some(2250.0)),
            ("NVIDIA RTX A4000", None),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
            ("Simulated GPU 0", None),
            ("", None),
        ] {
            assert_eq!(of_device(name).map(|peaks| peaks.tensor_16_bit / 1e12), tera, "{name}");
        }
        let memory = |name| of_device(name).map(|peaks| peaks.memory / 1e9);
        assert_eq!(memory("NVIDIA A100-SXM4-40GB"), Some(1555.0));
        assert_eq!(memory("NVIDIA A100-SXM4-80GB"), Some(2039.0));
    }
}
