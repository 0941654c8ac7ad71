// SPDX-License-Identifier: Apache-2.0
//! The command of the vendor's kernel profiler for the kernel that a GPU-bound program spends most
//! time in. Nsight Compute takes one launch of it, from the middle of the run, with all sections
//! that GP193 names; the others choose kernels by name. Those for Intel and Gaudi stand in their
//! documents; they were not run here.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use formats::vendors;
use formats::vendors::Vendor;
use trace::Kind;
use verdict::analysis::Analysis;
use verdict::causes::is_computing;
use verdict::run::{Op, Run, Span};
use verdict::text::kernel_name::demangled;

/// `ncu --set detailed --kernel-name ... --launch-skip N --launch-count 1 COMMAND`, and the like of
/// other vendors; `None` where the verdict is neither GPU-BOUND nor EFFICIENT, and without kernels
/// that have a name.
pub fn command(run: &Run, analysis: &Analysis) -> Option<String> {
    if !is_computing(analysis.verdict.code) {
        return None;
    }
    let names = names(run);
    let largest = largest(run, &names)?;
    let function = Some(base(largest)).filter(|function| !function.is_empty())?;
    let program = match run.header.command.as_str() {
        "" => "python train.py",
        command => command,
    };
    Some(match vendors::of(run) {
        Vendor::Nvidia => {
            let before = launched_before(run, analysis.steady, &names, largest);
            format!("ncu --set detailed --kernel-name {function} --launch-skip {before} --launch-count 1 {program}")
        }
        Vendor::Amd => format!("rocprof-compute profile --name gapprobe --kernel {function} -- {program}"),
        Vendor::Intel => format!("unitrace --metric-query --include-kernels {function} {program}"),
        // its profiler takes all of them
        Vendor::Habana => format!("hl-prof-config -g 1-20 && HABANA_PROFILE=1 {program}"),
    })
}

fn kernels(run: &Run) -> impl Iterator<Item = &Op> {
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    ops.filter(|op| op.kind == Kind::Kernel)
}

/// The whole names of all kernels.
fn names(run: &Run) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for op in kernels(run) {
        names.entry(op.a).or_insert_with(|| demangled(run.definitions.kernel_name(op.a)));
    }
    names
}

/// The one that takes most time in all, as in the table of kernels.
fn largest<'a>(run: &Run, names: &'a HashMap<u32, String>) -> Option<&'a str> {
    let mut by_name: HashMap<&str, u64> = HashMap::new();
    for op in kernels(run) {
        *by_name.entry(names.get(&op.a)?).or_default() += op.end - op.start;
    }
    by_name.into_iter().max_by_key(|(name, ns)| (*ns, Reverse(*name))).map(|(name, _)| name)
}

/// ncu counts launches of kernels whose base name matches, in the order of their launching: how
/// many there are before one of this very name in the middle of the steps that count.
fn launched_before(run: &Run, steady: Span, names: &HashMap<u32, String>, name: &str) -> usize {
    let middle = steady.start + steady.ns() / 2;
    let whole = |op: &Op| names.get(&op.a).map_or("", String::as_str);
    let mut starts: Vec<u64> = kernels(run).filter(|op| whole(op) == name).map(|op| op.start).collect();
    starts.sort_unstable();
    let Some(&at) = starts.iter().find(|at| **at >= middle).or(starts.last()) else { return 0 };
    let function = base(name);
    let same: HashSet<u32> = names.iter().filter(|(_, n)| base(n) == function).map(|(id, _)| *id).collect();
    kernels(run).filter(|op| op.start < at && same.contains(&op.a)).count()
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
