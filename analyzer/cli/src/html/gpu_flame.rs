// SPDX-License-Identifier: Apache-2.0
//! The device's time by what launched its work, over what counts: the stacks that
//! `gapprobe export` folds (`tables/gpu_stacks.rs`). Operations that overlap add up.

use serde_json::{json, Value};

use super::names::clean;
use super::tree::{Tree, MOST_FRAMES};
use super::Shown;
use crate::tables::{gpu_stacks, KernelClass, NameStyle, Source};

/// Kinds of work in the page's order: class of the kernel (`None`: copies and memsets), key (a
/// colour of `page/page.css`), name.
const KINDS: [(Option<KernelClass>, &str, &str); 10] = [
    (Some(KernelClass::Gemm), "gemm", KernelClass::Gemm.label()),
    (Some(KernelClass::Attention), "attention", KernelClass::Attention.label()),
    (Some(KernelClass::Conv), "conv", KernelClass::Conv.label()),
    (Some(KernelClass::Reduce), "reduce", KernelClass::Reduce.label()),
    (Some(KernelClass::Elementwise), "elementwise", KernelClass::Elementwise.label()),
    (Some(KernelClass::Cast), "cast", KernelClass::Cast.label()),
    (Some(KernelClass::Optimizer), "optimizer", KernelClass::Optimizer.label()),
    (Some(KernelClass::Comm), "collective_only", KernelClass::Comm.label()),
    (Some(KernelClass::Other), "other", "other kernels"),
    (None, "copy_only", "copies and memsets"),
];

/// Key and name of each; nodes and `parts` have this order.
pub(super) fn legend() -> Value {
    KINDS.iter().map(|(_, key, name)| json!({"key": key, "name": name})).collect()
}

/// The tree; `null` where the device did nothing.
pub(super) fn figures(shown: Shown<'_>) -> Option<Value> {
    let source = Source::new(shown.run, NameStyle::Short);
    let mut root = Tree::<{ KINDS.len() }>::default();
    let mut known: u64 = 0;
    gpu_stacks(&source, &shown.analysis.counts, |stack| {
        if stack.device != shown.index {
            return;
        }
        let kind = KINDS.iter().position(|k| k.0 == stack.class).unwrap_or(0);
        root.add(kind, stack.ns);
        known = known.saturating_add(u64::from(stack.is_known) * stack.ns);
        let mut node = &mut root;
        for frame in short(&stack.launcher) {
            node = node.enter(clean(frame), kind, stack.ns);
        }
        node.enter(clean(stack.operation), kind, stack.ns);
    });
    let parts = root.parts().to_vec();
    if parts.iter().all(|ns| *ns == 0) {
        return None;
    }
    let mut figures = root.figures("GPU time", "class");
    figures.insert("parts".to_owned(), json!(parts));
    figures.insert("known_ns".to_owned(), json!(known));
    Some(Value::Object(figures))
}

/// The frames, of a deep stack without its middle: where the program begins says what it does, and
/// where it ends what it launched.
fn short<'a>(frames: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let half = MOST_FRAMES / 2;
    let is_deep = frames.len() > MOST_FRAMES;
    let (first, rest) = frames.split_at(if is_deep { half } else { frames.len() });
    let last = rest.get(rest.len().saturating_sub(half - 1)..).unwrap_or(&[]);
    let between = is_deep.then_some("…");
    first.iter().copied().chain(between).chain(last.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_stack_is_without_its_middle() {
        let names: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        let frames: Vec<&str> = names.iter().map(String::as_str).collect();
        let deep: Vec<&str> = short(&frames).collect();
        assert_eq!(deep.len(), MOST_FRAMES);
        assert_eq!((deep[23], deep[24], deep[25], deep[47]), ("23", "…", "37", "59"));
        assert_eq!(short(&frames[..MOST_FRAMES]).collect::<Vec<_>>(), frames[..MOST_FRAMES]);
    }
}
