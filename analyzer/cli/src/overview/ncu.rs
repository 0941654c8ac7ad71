// SPDX-License-Identifier: Apache-2.0
//! The command of the vendor's kernel profiler for the kernel that a GPU-bound program spends most
//! time in. Nsight Compute takes one launch of it, from the middle of the run; the others choose
//! kernels by name. Those for Intel and Gaudi stand in their documents; they were not run here.

use formats::vendors;
use formats::vendors::Vendor;
use trace::Kind;
use verdict::analysis::Analysis;
use verdict::causes::is_computing;
use verdict::run::Run;
use verdict::text::kernel_name::demangled;

use super::rows::Rows;
use crate::tables::Source;

/// `ncu --kernel-name ... --launch-skip N --launch-count 1 COMMAND`, and the like of other vendors;
/// `None` where the verdict is neither GPU-BOUND nor EFFICIENT, and without kernels that have a
/// name. `source`: the run's tables, with short names.
pub fn command(source: &Source<'_>, analysis: &Analysis) -> Option<String> {
    let run = source.run;
    if !is_computing(analysis.verdict.code) {
        return None;
    }
    let top = Rows::of(source, "cuda_gpu_kern_sum")?;
    let name = top.iter().next()?.text("name").to_owned();
    let function = Some(base(&name)).filter(|function| !function.is_empty())?;
    let program = match run.header.command.as_str() {
        "" => "python train.py",
        command => command,
    };
    Some(match vendors::of(run) {
        Vendor::Nvidia => {
            let before = launched_before_the_middle(run, analysis, &function);
            format!("ncu --kernel-name {function} --launch-skip {before} --launch-count 1 {program}")
        }
        Vendor::Amd => format!("rocprof-compute profile --name gapprobe --kernel {function} -- {program}"),
        Vendor::Intel => format!("unitrace --metric-query --include-kernels {function} {program}"),
        // its profiler takes all of them
        Vendor::Habana => format!("hl-prof-config -g 1-20 && HABANA_PROFILE=1 {program}"),
    })
}

/// ncu counts launches of kernels whose base name matches, in the order of their launching.
fn launched_before_the_middle(run: &Run, analysis: &Analysis, function: &str) -> usize {
    let steady = analysis.steady;
    let middle = steady.start + steady.ns() / 2;
    let same = |id: u32| base(&demangled(run.definitions.kernel_name(id))) == function;
    let mut known: std::collections::HashMap<u32, bool> = std::collections::HashMap::new();
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    ops.filter(|op| op.kind == Kind::Kernel && op.start < middle)
        .filter(|op| *known.entry(op.a).or_insert_with(|| same(op.a)))
        .count()
}

/// A function's own name as ncu matches it (`--kernel-name-base function`): without return type,
/// namespaces, template arguments and parameters.
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
