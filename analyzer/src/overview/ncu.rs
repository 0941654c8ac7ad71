// SPDX-License-Identifier: Apache-2.0
//! The Nsight Compute command for the kernel that a GPU-bound program spends most time in: one launch of it, from the
//! middle of the run.

use trace::Kind;

use super::rows::Rows;
use crate::analysis::Analysis;
use crate::causes::gpu_bound;
use crate::chrome::name::demangled;
use crate::tables::Source;

/// `ncu --kernel-name ... --launch-skip N --launch-count 1 COMMAND`; `None` where the verdict is not GPU-BOUND, and without
/// kernels. `source`: the run's tables, with short names.
pub fn command(source: &Source<'_>, analysis: &Analysis) -> Option<String> {
    let run = source.run;
    if analysis.verdict.code != gpu_bound::CODE {
        return None;
    }
    let top = Rows::of(source, "cuda_gpu_kern_sum")?;
    let name = top.iter().next()?.text("name").to_owned();
    let function = base(&name);
    // ncu counts launches of kernels whose base name matches, in the order of their launching
    let steady = analysis.steady;
    let middle = steady.start + steady.ns() / 2;
    let same = |id: u32| base(&demangled(run.definitions.kernel_name(id))) == function;
    let mut known: std::collections::HashMap<u32, bool> = std::collections::HashMap::new();
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let before = ops
        .filter(|op| op.kind == Kind::Kernel && op.start < middle)
        .filter(|op| *known.entry(op.a).or_insert_with(|| same(op.a)))
        .count();
    let program = match run.header.command.as_str() {
        "" => "python train.py",
        command => command,
    };
    Some(format!("ncu --kernel-name {function} --launch-skip {before} --launch-count 1 {program}"))
}

/// A function's own name as ncu matches it (`--kernel-name-base function`): without return type, namespaces, template
/// arguments and parameters.
fn base(name: &str) -> String {
    let mut depth = 0i32;
    let mut out = String::new();
    // "(anonymous namespace)::" is part of a path, not the parameters
    let name = name.replace("(anonymous namespace)::", "");
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 => break,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    let last = out.trim_end().rsplit([' ', ':']).next().unwrap_or("");
    last.chars().filter(|c| c.is_alphanumeric() || *c == '_' || *c == '$').collect()
}

#[cfg(test)]
mod tests {
    use super::base;

    #[test]
    fn names_as_ncu_matches_them() {
        for (whole, function) in [
            ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1>>(int, at::native::FillFunctor<int>)", "vectorized_elementwise_kernel"),
            ("nvjet_tst_128x152_64x6_1x2_h_bz_coopB_NNT", "nvjet_tst_128x152_64x6_1x2_h_bz_coopB_NNT"),
            ("void (anonymous namespace)::softmax_warp_forward<float, 8, true>(float*)", "softmax_warp_forward"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("", ""),
        ] {
            assert_eq!(base(whole), function, "{whole}");
        }
    }
}
