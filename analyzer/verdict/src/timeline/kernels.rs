// SPDX-License-Identifier: Apache-2.0
//! What a kernel's name tells: collective or not, optimizer or not, and which family of variants it
//! belongs to.
//!
//! Names are the mangled ones of the recording; substrings survive mangling. What causes of kernels
//! judge by is in `causes/kernel_names.rs`; the classes in the tables (`kernel_class.rs` of `cli`)
//! are for reading alone.

use std::collections::HashMap;

use trace::Kind;

use crate::run::Run;

/// Substrings (lower case) of kernels that move data between ranks.
const COLLECTIVE_NAMES: &[&str] = &[
    "nccl",
    "nvshmem",
    "deep_ep",
    "deepep",
    "rccl",
    "oneccl",
    "hccl",
    "cross_device_reduce",
    "allreduce",
    "all_reduce",
    "allgather",
    "all_gather",
    "multimem_all",
    "reducescatter",
    "reduce_scatter",
    "alltoall",
    "all_to_all",
    "userbuffers",
    "mscclpp",
    "pplx",
    "uccl",
    "moea2a",
    "hybrid_ep",
    "epdispatch",
    "epcombine",
    // PyTorch's own
    "symmetric_memory",
    "wait_signal",
];

/// Substrings (lower case) of kernels that update weights.
const OPTIMIZER_NAMES: &[&str] = &[
    "multi_tensor_apply",
    "adam",
    "sgd",
    "lamb_",
    "adagrad",
    "rmsprop",
    "addcdiv",
    "optimizer",
    "lion_",
    "muon",
];

/// What is known of one kernel definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelFacts {
    /// Moves data between ranks.
    pub collective: bool,
    /// Updates weights.
    pub optimizer: bool,
    /// Hash of the name without its digits: tile sizes and vector widths of one kernel's variants
    /// fall together.
    pub family: u64,
}

impl Default for KernelFacts {
    fn default() -> KernelFacts {
        KernelFacts { collective: false, optimizer: false, family: FNV_OFFSET }
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Facts by kernel definition id, for the kernels that occur.
#[derive(Clone, Debug, Default)]
pub struct KernelTable {
    facts: HashMap<u32, KernelFacts>,
}

impl KernelTable {
    /// Looks at every kernel definition that an op refers to, once.
    pub fn new(run: &Run) -> KernelTable {
        let mut facts = HashMap::new();
        let mut last = None;
        for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
            if op.kind == Kind::Kernel && last != Some(op.a) {
                last = Some(op.a);
                facts.entry(op.a).or_insert_with(|| classify(run.definitions.kernel_name(op.a)));
            }
        }
        KernelTable { facts }
    }

    /// Facts of one kernel (the default for an id that is not defined).
    pub fn get(&self, id: u32) -> KernelFacts {
        self.facts.get(&id).copied().unwrap_or_default()
    }

    /// Ids of the collectives, sorted (usually none or few: cheaper to search than the table).
    pub fn collectives(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.facts.iter().filter(|f| f.1.collective).map(|f| *f.0).collect();
        ids.sort_unstable();
        ids
    }
}

/// Judges one (mangled) name.
pub fn classify(name: &str) -> KernelFacts {
    let lower = name.to_ascii_lowercase();
    let has = |list: &[&str]| list.iter().any(|n| lower.contains(n));
    let mut family = FNV_OFFSET;
    for b in lower.bytes().filter(|b| !b.is_ascii_digit()) {
        family = (family ^ u64::from(b)).wrapping_mul(FNV_PRIME);
    }
    // (so Inductor names what goes into a kernel, and others what reduces within a block)
    let is_within = lower.starts_with("triton_") || has(&["blockallreduce", "warpallreduce"]);
    let collective = has(COLLECTIVE_NAMES) && !is_within;
    KernelFacts { collective, optimizer: has(OPTIMIZER_NAMES) && !has(&["hadamard"]), family }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_of_one_kernel_are_one_family() {
        let a = classify("sm80_xmma_gemm_bf16_128x64_tn");
        assert_eq!(a, classify("sm80_xmma_gemm_bf16_256x128_tn"));
        assert_ne!(a.family, classify("sm80_xmma_gemm_bf16_128x64_nn").family);
    }

    #[test]
    fn collectives_and_optimizers_are_known_by_name() {
        assert!(
            classify("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)").collective
        );
        assert!(classify("_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelIN").optimizer);
        for name in [
            "void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8, false>(c10::BFloat16**)",
            "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0, __nv_bfloat16, 8, true>",
            "void kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
        ] {
            assert!(classify(name).collective, "{name}");
        }
        for name in ["triton_poi_fused_all_gather_into_tensor_0", "BlockAllReduceSoftmax"] {
            assert!(!classify(name).collective, "{name}");
        }
        assert!(!classify("void fast_hadamard_transform_kernel<32, 12, c10::BFloat16>").optimizer);
        let gemm = classify("nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN");
        assert!(!gemm.collective && !gemm.optimizer);
    }
}
