// SPDX-License-Identifier: Apache-2.0
//! The calls of PyTorch's backward pass, by the lines of the forward one.
//!
//! A call made while a node of the autograd graph was evaluated is of the line that made the node:
//! the engine's threads run no Python. Where a line of the program was called within the node (a
//! backward of its own, a checkpoint that is computed again) that one is nearer. Where modules were
//! that have none (a checkpoint of a `Sequential`), it is of that line and of the innermost of
//! those modules: of both stacks, joined. What has none of these is nobody's.

use std::collections::HashMap;

use trace::define::MAX_FRAMES;
use trace::{Definitions, FrameInfo, Language};

use crate::run::autograd::InBackward;
use crate::run::{Span, Thread};
use crate::sites::{calls_module, is_users};

/// A node was evaluated, see [`trace::Kind::BackwardNode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BackwardNode {
    /// From and to.
    pub(super) span: Span,
    /// Which one it was.
    pub(super) origin: Origin,
    /// Where the thread stood as it began: stack id, 0 where it ran no Python.
    pub(super) stack: u32,
    /// Mangled name of its type, a string id; 0: nothing is known of it but its number.
    pub(super) kind: u32,
}

/// What tells a node from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Origin {
    /// PyTorch's number of the thread that made it; 0: not known.
    pub(super) thread: u32,
    /// Its sequence number; `u32::MAX`: it has none (it sums up a parameter's gradients).
    pub(super) number: u32,
}

/// The nodes of a recording.
#[derive(Default)]
pub(super) struct Nodes {
    /// Stacks of the forward pass.
    pub(super) made: HashMap<Origin, u32>,
    /// By thread id.
    pub(super) evaluated: HashMap<u32, Vec<BackwardNode>>,
}

impl Nodes {
    /// Tells a thread's calls, which stand in the order of their begin, of the nodes they were made
    /// in.
    pub(super) fn tell(&mut self, thread: &mut Thread, definitions: &mut Definitions) {
        let Some(nodes) = self.evaluated.get_mut(&thread.tid) else { return };
        nodes.sort_by_key(|n| (n.span.start, std::cmp::Reverse(n.span.end)));
        let mut rest = nodes.iter().peekable();
        let mut open: Vec<&BackwardNode> = Vec::new();
        let mut known: HashMap<[u32; 3], u32> = HashMap::new();
        for call in &thread.calls {
            while let Some(node) = rest.next_if(|n| n.span.start <= call.start) {
                open.retain(|o| o.span.end > node.span.start);
                open.push(node);
            }
            open.retain(|o| o.span.end > call.start);
            let Some(node) = open.last() else { continue };
            let made = self.made.get(&node.origin).copied().unwrap_or(0);
            let of = [call.site, node.stack, made];
            let stack = match node.kind {
                0 => 0, // where it began is not known
                _ => *known.entry(of).or_insert_with(|| of_node(definitions, of)),
            };
            thread.backward.push(InBackward { start: call.start, stack, node: node.kind });
        }
    }
}

/// The stack that work is of which was launched from `site` within a node that began in `outer` and
/// was made in `made`.
pub(super) fn of_node(definitions: &mut Definitions, [site, outer, made]: [u32; 3]) -> u32 {
    let inner = within(definitions, site, outer);
    let text = |id| definitions.string(id).unwrap_or("");
    let is_programs = |f: &FrameInfo| f.language == Language::Python && is_users(text(f.file));
    let mut called = inner.iter().filter_map(|f| definitions.frame(*f));
    if called.clone().any(is_programs) {
        return site;
    }
    if !called.any(|f| calls_module(definitions, f)) {
        return made;
    }
    // (with what the line calls before any module: `checkpoint`)
    let is = |what: &dyn Fn(&FrameInfo) -> bool, f: &u32| definitions.frame(*f).is_some_and(what);
    let made = definitions.frames(made);
    let line = made.iter().position(|f| is(&is_programs, f)).unwrap_or(0);
    let is_module = |f: &FrameInfo| calls_module(definitions, f);
    let called = made.iter().take(line).rposition(|f| is(&is_module, f)).map_or(0, |module| module + 1);
    let joined: Vec<u32> = inner.iter().chain(made.iter().skip(called)).copied().collect();
    definitions.add_stack(&joined, site)
}

/// The frames of this stack within the `outer` one, innermost first.
fn within(definitions: &Definitions, stack: u32, outer: u32) -> &[u32] {
    let all = definitions.frames(stack);
    if stack == 0 || stack == outer || all.len() >= MAX_FRAMES {
        return &[]; // (what both have may be cut off)
    }
    let of = |id: &u32| definitions.frame(*id).map(|f| (f.file, f.function));
    let outer = definitions.frames(outer).iter().rev();
    // (the line of the last one that both have may be another)
    let common = all.iter().rev().zip(outer).take_while(|(inner, outer)| of(inner) == of(outer)).count();
    all.get(..all.len() - common).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Call, Run};
    use trace::define::{Definition, InModule};

    fn origin(number: u32) -> Origin {
        Origin { thread: 1, number }
    }

    fn evaluated(start: u64, end: u64, number: u32, stack: u32) -> BackwardNode {
        BackwardNode { span: Span::new(start, end), origin: origin(number), stack, kind: 9 }
    }

    /// Stacks by their ids: a file and functions in it, innermost first.
    fn definitions() -> Definitions {
        const TORCH: &str = "/usr/lib/python3/dist-packages/torch/utils/checkpoint.py";
        let files = [(1, "/home/me/train.py"), (2, "/home/me/own.py"), (3, TORCH)];
        let mut all = Definitions::default();
        for (id, file) in files {
            all.insert(id, Definition::String(file.as_bytes()));
            let frame = FrameInfo { language: Language::Python, function: id, file: id, line: id };
            all.insert(10 + id, Definition::Frame(frame));
        }
        for (id, frames) in [(33, &[11][..]), (44, &[12]), (70, &[11]), (71, &[12, 11]), (72, &[13, 11])] {
            let bytes: Vec<u8> = frames.iter().flat_map(|f: &u32| f.to_le_bytes()).collect();
            all.insert(id, Definition::Stack(&bytes));
        }
        all
    }

    /// Stack and node of calls at these times with these stacks of their own, by the nodes of their
    /// thread.
    fn told<const N: usize>(nodes: Vec<BackwardNode>, calls: [(u64, u32); N]) -> [(u32, Option<u32>); N] {
        let call = |(start, site)| Call {
            start,
            end: start + 1,
            correlation: 1,
            packed: 0,
            result: 0,
            site,
            class: None,
            flags: 0,
        };
        let mut thread = Thread { tid: 7, calls: calls.map(call).to_vec(), ..Thread::default() };
        let made = HashMap::from([(origin(5), 50), (origin(6), 60)]);
        Nodes { made, evaluated: HashMap::from([(7, nodes)]) }.tell(&mut thread, &mut definitions());
        let run = Run { threads: vec![thread], ..Run::default() };
        calls.map(|c| {
            let work = run.work(0, &call(c));
            (work.stack, work.node)
        })
    }

    #[test]
    fn a_call_is_of_the_line_that_made_the_node_it_was_made_in() {
        let nested =
            || vec![evaluated(100, 200, 6, 0), evaluated(120, 140, 5, 0), evaluated(300, 310, u32::MAX, 0)];
        let calls = [(5, 33), (110, 0), (130, 0), (150, 0), (160, 44), (200, 0), (305, 0)];
        let expected = [
            (33, None),
            (60, Some(9)),
            (50, Some(9)), // the inner node
            (60, Some(9)), // the outer one again
            (44, Some(9)), // the program was called within it
            (0, None),     // behind both
            (0, Some(9)),  // no forward has made it
        ];
        assert_eq!(told(nested(), calls), expected);
        assert_eq!(told(nested().into_iter().rev().collect(), calls), expected, "in any order");
    }

    /// A checkpoint of a `Sequential`: its modules are called within the node, no line is.
    #[test]
    fn modules_within_a_node_are_of_the_line_that_made_it() {
        let mut all = definitions();
        all.insert(4, Definition::String(b"/usr/lib/python3/dist-packages/torch/nn/modules/module.py"));
        all.insert(5, Definition::String(b"Module._call_impl"));
        let call = FrameInfo { language: Language::Python, function: 5, file: 4, line: 1 };
        all.insert(14, Definition::Frame(call));
        for (id, frames) in [(80, &[14_u32, 13][..]), (90, &[14, 13, 11])] {
            let bytes: Vec<u8> = frames.iter().flat_map(|f| f.to_le_bytes()).collect();
            all.insert(id, Definition::Stack(&bytes));
        }
        all.insert(80, Definition::InModule(InModule { path: 1, class: 2 }));
        let joined = of_node(&mut all, [80, 0, 90]);
        let [called, line] = [[14, 13], [13, 11]];
        assert_eq!(all.frames(joined), [called, line].concat(), "within the node, and the line that made it");
        assert_eq!(all.in_module(joined), all.in_module(80));
        assert_eq!(of_node(&mut all, [90, 90, 70]), 70, "nothing was called within it");
        let of_no_line = of_node(&mut all, [80, 0, 0]);
        assert_eq!(all.frames(of_no_line), [14, 13]);
    }

    #[test]
    fn where_the_thread_stood_before_the_node_is_no_line_of_the_nodes() {
        // by the thread that called backward()
        let calls = [(150, 70), (151, 71), (152, 72)];
        let expected = [(50, Some(9)), (71, Some(9)), (50, Some(9))]; // the last: Python of the framework's alone
        assert_eq!(told(vec![evaluated(100, 200, 5, 70)], calls), expected);
        let unknown = BackwardNode { kind: 0, ..evaluated(100, 200, 5, 0) };
        assert_eq!(told(vec![unknown], [(150, 70)]), [(0, Some(0))]);
    }
}
