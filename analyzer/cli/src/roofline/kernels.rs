// SPDX-License-Identifier: Apache-2.0
//! Work of PyTorch's elementwise kernels, by their names and grids.

use super::Work;

/// How many numbers of a tensor a thread takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Four: before 2.6. Its names say `at::detail::Array`.
    Older,
    /// Eight (`elems_per_thread` in ATen/native/cuda/CUDALoops.cuh of 2.11): from the release on
    /// that has kernels which read eight at once.
    Newer,
}

impl Release {
    /// By the names of a run's kernels; `None`: they do not tell.
    pub fn of<'n>(mut names: impl Iterator<Item = &'n str>) -> Option<Release> {
        names.find_map(|name| match at_once(name)? {
            8 => Some(Release::Newer),
            _ if name.contains("6detail5Array") || name.contains("detail::Array") => Some(Release::Older),
            _ => None,
        })
    }
}

/// How many numbers of a tensor are read or written at once.
fn at_once(name: &str) -> Option<u64> {
    after(name, "vectorized_elementwise_kernelILi").or_else(|| after(name, "vectorized_elementwise_kernel<"))
}

fn after(name: &str, mark: &str) -> Option<u64> {
    let (_, rest) = name.split_once(mark)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..digits)?.parse().ok()
}

/// Of a launch of `blocks` blocks of `threads` threads; `None`: the name does not tell it.
///
/// `vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, std::array<char*, 3>>` reads or writes
/// three tensors of float32. Where several types are in it they convert, or compare.
pub fn work(name: &str, release: Release, blocks: u64, threads: u64) -> Option<Work> {
    at_once(name)?;
    let name = &*name.replace("(unsigned long)", ""); // (before a template's number)
    let marks = ["rrayIPcLm", "rrayIPcLi", "rray<char*, "];
    let tensors = marks.iter().find_map(|mark| after(name, mark))?;
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // (`bE_`: the lambda takes a mask last)
    let others = ["bool", "bE_St", "bE_N", "ompare", "double", "long", "copy_kernel"];
    if is(&others) && !is(&["direct_copy_kernel"]) {
        return None;
    }
    let width = match is(&["BFloat16", "Half"]) {
        true => 2,
        false if is(&["float", "If", "Ulf"]) => 4,
        false => return None,
    };
    let a_thread = if release == Release::Newer { 8 } else { 4 };
    let numbers = blocks.checked_mul(threads)?.checked_mul(a_thread)?;
    Some(Work { flops: 0.0, bytes: numbers as f64 * (tensors * width) as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)";
    const SIGMOID: &str = "_ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_15sigmoid_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE0_clEvENKUlvE2_clEvEUlN3c108BFloat16EE_St5arrayIPcLm2EEEEviT0_T1_";
    const FILL: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)";
    const NARROW: &str = "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_";
    const MASKED: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_43_GLOBAL__N__dropout22masked_scale_kernelIbffEEvRNS_6TensorEENKUlvE_clEvEUlfbE_St5arrayIPcLm3EEEEviT0_T1_";

    #[test]
    fn bytes_of_names_as_recordings_have_them() {
        let bytes = |name, release| work(name, release, 1000, 128).map(|w| w.bytes);
        assert_eq!(bytes(ADD, Release::Newer), Some(1000.0 * 128.0 * 8.0 * 12.0));
        let as_cupti_has_it = ADD.replace("3ul", "(unsigned long)3");
        assert_eq!(work(&as_cupti_has_it, Release::Newer, 1000, 128), work(ADD, Release::Newer, 1000, 128));
        assert_eq!(bytes(SIGMOID, Release::Newer), Some(1000.0 * 128.0 * 8.0 * 4.0));
        assert_eq!(bytes(FILL, Release::Older), Some(1000.0 * 128.0 * 4.0 * 4.0));
        for none in [
            NARROW,
            MASKED,
            "nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN",
            "",
            "vectorized_elementwise_kernel<4",
        ] {
            assert_eq!(bytes(none, Release::Newer), None, "{none}");
        }
    }

    #[test]
    fn the_release_is_known_by_what_only_some_have() {
        let of = |names: &[&'static str]| Release::of(names.iter().copied());
        assert_eq!(of(&["nvjet", ADD, SIGMOID]), Some(Release::Newer));
        assert_eq!(of(&[FILL]), Some(Release::Older));
        assert_eq!(of(&[ADD]), None);
    }
}
