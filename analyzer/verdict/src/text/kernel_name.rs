// SPDX-License-Identifier: Apache-2.0
//! Kernel names for people: demangled, and short enough to tell slices apart.

use std::fmt::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Longest name on a slice, bytes.
const SHORT: usize = 96;
/// Longest full name, bytes: substitutions can make a name of 4 KiB demangle to gigabytes.
const FULL: usize = 4096;

/// A writer that refuses to grow past its limit.
struct Limited {
    text: String,
    limit: usize,
}

impl Write for Limited {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        if self.text.len() + s.len() > self.limit {
            return Err(std::fmt::Error);
        }
        self.text.push_str(s);
        Ok(())
    }
}

/// `name` as C++ source would have it; unchanged where it is no C++ symbol, is cut, or is too long.
pub fn demangled(name: &str) -> String {
    if !name.starts_with("_Z") {
        return name.to_owned();
    }
    // a name comes from a foreign program: a fault in the parser must not cost the report
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let symbol = cpp_demangle::Symbol::new(name).ok()?;
        let mut out = Limited { text: String::new(), limit: FULL };
        symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default()).ok()?;
        Some(out.text)
    }));
    parsed.ok().flatten().unwrap_or_else(|| name.to_owned())
}

/// A symbol for people, of C++ or Rust, with the distance behind it that it may have
/// (`_ZN3foo4stepEi+0x1c`).
pub(crate) fn symbol(name: &str) -> String {
    let (stem, behind) = match name.rfind("+0x") {
        Some(at) => name.split_at(at),
        None => (name, ""),
    };
    let rust =
        catch_unwind(AssertUnwindSafe(|| Some(format!("{:#}", rustc_demangle::try_demangle(stem).ok()?))));
    let text = rust.ok().flatten().unwrap_or_else(|| demangled(stem));
    text + behind
}

/// A demangled name without return type, parameters, namespaces and lambdas, cut to 96 bytes: `void
/// at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int, ...)`
/// becomes `vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>`.
pub fn shortened(full: &str) -> String {
    let mut out = String::with_capacity(SHORT + 4);
    let mut word = 0; // where the identifier being written begins
    let named = without_parameters(full);
    // where C++ shows a return type it shows parameters too; any other name keeps its spaces
    let mut rest = if named.len() < full.len() { without_return_type(named) } else { full };
    while let Some(c) = rest.chars().next() {
        if out.len() > 2 * SHORT {
            break;
        }
        if let Some(after) = rest.strip_prefix("::operator()").or_else(|| after_lambda(rest)) {
            rest = after;
        } else if c == '(' {
            rest = after_group(rest, '(', ')');
            rest = rest.strip_prefix(" const").unwrap_or(rest);
        } else if let Some(after) = rest.strip_prefix("::") {
            // after a template (`Outer<int>::run`) the qualifier tells kernels apart: it stays
            if out.ends_with('>') {
                out.push_str("::");
            } else {
                out.truncate(word);
            }
            word = out.len();
            rest = after;
        } else {
            if c == '>' && out.ends_with(' ') {
                out.pop(); // `> >` is `>>` since C++11
            }
            out.push(c);
            if !(c.is_alphanumeric() || c == '_') {
                word = out.len();
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    if out.trim().is_empty() {
        out = if full.trim().is_empty() { "(no name)".to_owned() } else { full.to_owned() };
    }
    if out.len() > SHORT {
        let mut end = SHORT - '…'.len_utf8();
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push('…');
    }
    out
}

/// What follows `::{lambda(...)#1}` at the front of `text`.
fn after_lambda(text: &str) -> Option<&str> {
    text.strip_prefix("::").filter(|t| t.starts_with('{')).map(|t| after_group(t, '{', '}'))
}

/// What follows the bracketed group at the front of `text`; nothing where it is never closed.
fn after_group(text: &str, open: char, close: char) -> &str {
    let mut depth = 0u32;
    for (i, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return &text[i + c.len_utf8()..];
            }
        }
    }
    ""
}

/// `full` up to the parenthesis that opens the outermost parameter list; all of it where there is
/// none.
fn without_parameters(full: &str) -> &str {
    let mut depth = 0i32;
    let mut previous = ' ';
    for (i, c) in full.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if previous != '-' => depth -= 1,
            '(' if depth <= 0
                && i > 0
                && !full[i..].starts_with("(anonymous namespace)")
                && !full[..i].ends_with("operator") =>
            {
                return &full[..i];
            }
            _ => {}
        }
        previous = c;
    }
    full
}

/// `name` without a return type: what follows the last space outside templates.
fn without_return_type(name: &str) -> &str {
    let mut depth = 0i32;
    let mut start = 0;
    for (i, c) in name.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ' ' if depth <= 0 && !name[..i].ends_with("operator") => start = i + 1,
            _ => {}
        }
    }
    match &name[start..] {
        "" => name,
        rest => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_kernel_names_become_short_and_stay_apart() {
        for (mangled, expected) in [
            ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
             "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3>>"),
            ("_Z6vecAddPfS_S_i", "vecAdd"),
            ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("_ZN12_GLOBAL__N_16kernelEv", "kernel"),
        ] {
            assert_eq!(shortened(&demangled(mangled)), expected);
        }
        let copy = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)\
            ::{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)";
        assert_eq!(
            shortened(copy),
            "unrolled_elementwise_kernel<direct_copy_kernel_cuda, array<char*, 2ul>, 4>"
        );
        assert_eq!(shortened("two words"), "two words");
        assert_eq!(shortened("void a::B<int>::run<c::D>(int, a::E) const"), "B<int>::run<D>");
        assert_eq!(
            shortened("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        );
    }

    #[test]
    fn names_of_any_shape_are_bounded_and_never_empty() {
        for name in
            ["", "_Z", "(", "<unknown>", "a b c ", "::", ">>>", "x::", "ä::ü<ö>(", &"<(:: ä".repeat(900)]
        {
            let short = shortened(&demangled(name));
            assert!(short.len() <= SHORT + 4, "{short}");
            assert!(!short.trim().is_empty(), "{name:?}");
        }
        // 200 nested pairs of the type before: 2^200 characters if written out
        let mut bomb = String::from("_Z1fI1a");
        for _ in 0..200 {
            bomb.push_str("St4pairI");
        }
        bomb.push_str("S0_S0_E");
        assert!(demangled(&bomb).len() <= FULL);
        let cut = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunc";
        assert_eq!(demangled(cut), cut);
    }
}
