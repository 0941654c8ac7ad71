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
use trace::{Definition, Definitions, FrameInfo, Language};

use crate::run::autograd::InBackward;
use crate::run::{RangeKind, Run, Span, Thread};
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
    /// The last end of it and of all before it, see [`Nodes::sort`].
    pub(super) latest: u64,
}

/// What tells a node from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(super) struct Origin {
    /// PyTorch's number of the thread that made it; 0: not known.
    pub(super) thread: u32,
    /// Its sequence number; `u32::MAX`: it has none (it sums up a parameter's gradients).
    pub(super) number: u32,
}

/// Where a node was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Made {
    /// Thread id.
    pub(super) thread: u32,
    pub(super) at: u64,
    pub(super) stack: u32,
}

/// Checkpoints within each other are followed so far.
const MOST_WITHIN: u32 = 8;

/// The nodes of a recording.
#[derive(Default)]
pub(super) struct Nodes {
    /// In the forward pass, or within another node's evaluation (a checkpoint that is computed
    /// again).
    pub(super) made: HashMap<Origin, Made>,
    /// By thread id.
    pub(super) evaluated: HashMap<u32, Vec<BackwardNode>>,
}

impl Nodes {
    /// Tells a thread's calls, which stand in the order of their begin, of the nodes they were made
    /// in.
    ///
    /// [`Nodes::sort`] comes first.
    pub(super) fn tell(&self, thread: &mut Thread, definitions: &mut Definitions) {
        if self.evaluated.is_empty() {
            return; // (no PyTorch, or its nodes are not told)
        }
        let nodes = self.evaluated.get(&thread.tid).map_or(&[][..], Vec::as_slice);
        let mut engines: HashMap<u32, bool> = HashMap::new();
        let mut rest = nodes.iter().peekable();
        let mut open: Vec<&BackwardNode> = Vec::new();
        let mut known: HashMap<[u32; 3], u32> = HashMap::new();
        let mut by_origin: HashMap<Origin, u32> = HashMap::new();
        for call in &thread.calls {
            while let Some(node) = rest.next_if(|n| n.span.start <= call.start) {
                open.retain(|o| o.span.end > node.span.start);
                open.push(node);
            }
            open.retain(|o| o.span.end > call.start);
            let Some(node) = open.last() else {
                if *engines.entry(call.site).or_insert_with(|| is_engines(definitions, call.site)) {
                    thread.backward.push(InBackward { start: call.start, stack: 0, node: 0 });
                }
                continue;
            };
            let made = *by_origin
                .entry(node.origin)
                .or_insert_with(|| self.stack_of(node.origin, definitions, MOST_WITHIN));
            let of = [call.site, node.stack, made];
            let stack = match node.kind {
                0 => 0, // where it began is not known
                _ => *known.entry(of).or_insert_with(|| of_node(definitions, of)),
            };
            thread.backward.push(InBackward { start: call.start, stack, node: node.kind });
        }
    }

    /// In the order of their begin, the outer one first.
    pub(super) fn sort(&mut self) {
        for nodes in self.evaluated.values_mut() {
            nodes.sort_by_key(|n| (n.span.start, std::cmp::Reverse(n.span.end)));
            let mut latest = 0;
            for node in nodes {
                latest = node.span.end.max(latest);
                node.latest = latest;
            }
        }
    }

    /// The stack that a node's work is of; 0: not known. One that was made while another was
    /// evaluated is of what that is of, as a call there would be.
    fn stack_of(&self, origin: Origin, definitions: &mut Definitions, most: u32) -> u32 {
        let Some(made) = self.made.get(&origin) else { return 0 };
        let Some(outer) = self.around(made).filter(|outer| outer.kind != 0 && outer.origin != origin) else {
            return made.stack;
        };
        let outer_made = match most {
            0 => 0,
            most => self.stack_of(outer.origin, definitions, most - 1),
        };
        of_node(definitions, [made.stack, outer.stack, outer_made])
    }

    /// The innermost node that was evaluated where and when this one was made.
    fn around(&self, made: &Made) -> Option<&BackwardNode> {
        let nodes = self.evaluated.get(&made.thread)?;
        let (before, _) = nodes.split_at(nodes.partition_point(|n| n.span.start <= made.at));
        before.iter().rev().take_while(|n| n.latest > made.at).find(|n| n.span.end > made.at)
    }
}

/// Was it called by the engine, in a node that is not told: one that had begun before the window,
/// or did not end (it raised)?
fn is_engines(definitions: &Definitions, stack: u32) -> bool {
    definitions.stack(stack).any(|f| {
        let [file, function] = [f.file, f.function].map(|id| definitions.string(id).unwrap_or(""));
        (file.ends_with("torch/autograd/graph.py") && function == "_engine_run_backward")
            || (file.ends_with("torch/autograd/function.py") && function == "BackwardCFunction.apply")
    })
}

/// What the ranges of torch.profiler are called in which a node is evaluated; its type follows.
const EVALUATED: &str = "autograd::engine::evaluate_function: ";
/// Ids of the types' names, above those of traces.
const TYPES: u32 = 3 << 30;

/// Tells the calls of a foreign trace of the nodes they were made in, by torch.profiler's ranges.
/// (Which line made the node is not known.)
pub(super) fn tell_by_ranges(run: &mut Run) {
    let mut types: HashMap<u32, Option<u32>> = HashMap::new();
    let definitions = &mut run.definitions;
    for thread in &mut run.threads {
        let mut nodes = Vec::new();
        for range in thread.ranges.iter().filter(|r| r.kind == RangeKind::Operator) {
            let next = TYPES + types.len() as u32;
            let node = types.entry(range.name).or_insert_with(|| {
                let name = definitions.string(range.name)?.strip_prefix(EVALUATED)?.to_owned();
                definitions.insert(next, Definition::String(name.as_bytes()));
                Some(next)
            });
            nodes.extend(node.map(|node| (range.span, node)));
        }
        let mut nodes = nodes.into_iter().peekable();
        let mut last = None;
        for call in &thread.calls {
            while let Some(node) = nodes.next_if(|(span, _)| span.start <= call.start) {
                last = Some(node);
            }
            let Some((_, node)) = last.filter(|(span, _)| span.end > call.start) else { continue };
            thread.backward.push(InBackward { start: call.start, stack: call.site, node });
        }
    }
}

/// The stack that work is of which was launched from `site` within a node that began in `outer` and
/// was made in `made`.
pub(super) fn of_node(definitions: &mut Definitions, [site, outer, made]: [u32; 3]) -> u32 {
    let Some(inner) = within(definitions, site, outer) else { return 0 };
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

/// The frames of this stack within the `outer` one, innermost first; `None`: what both have is cut
/// off.
fn within(definitions: &Definitions, stack: u32, outer: u32) -> Option<&[u32]> {
    let all = definitions.frames(stack);
    if stack == 0 || stack == outer {
        return Some(&[]);
    }
    if all.len() >= MAX_FRAMES && outer != 0 {
        return None;
    }
    let of = |id: &u32| definitions.frame(*id).map(|f| (f.file, f.function));
    let outer = definitions.frames(outer).iter().rev();
    // (the line of the last one that both have may be another)
    let common = all.iter().rev().zip(outer).take_while(|(inner, outer)| of(inner) == of(outer)).count();
    Some(all.get(..all.len() - common).unwrap_or(&[]))
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
        BackwardNode { span: Span::new(start, end), origin: origin(number), stack, kind: 9, latest: 0 }
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

    fn call((start, site): (u64, u32)) -> Call {
        let (correlation, packed, result, class, flags) = (1, 0, 0, None, 0);
        Call { start, end: start + 1, correlation, packed, result, site, class, flags }
    }

    /// Stack and node of calls at these times with these stacks of their own, by the nodes of their
    /// thread.
    fn told<const N: usize>(nodes: Vec<BackwardNode>, calls: [(u64, u32); N]) -> [(u32, Option<u32>); N] {
        let mut thread = Thread { tid: 7, calls: calls.map(call).to_vec(), ..Thread::default() };
        let made = [(5, 50), (6, 60)].map(|(n, stack)| (origin(n), Made { thread: 1, at: 1, stack }));
        let mut all = Nodes { made: HashMap::from(made), evaluated: HashMap::from([(7, nodes)]) };
        all.sort();
        all.tell(&mut thread, &mut definitions());
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

    /// The engine calls what is in no node that is known: a window was opened within one.
    #[test]
    fn what_the_engine_calls_in_no_node_is_nobodys() {
        let mut all = definitions();
        let words = ["/usr/lib/python3/dist-packages/torch/autograd/graph.py", "_engine_run_backward"];
        for (id, word) in (4..).zip(words) {
            all.insert(id, Definition::String(word.as_bytes()));
        }
        let frame = FrameInfo { language: Language::Python, function: 5, file: 4, line: 1 };
        all.insert(14, Definition::Frame(frame));
        let bytes: Vec<u8> = [12_u32, 14, 11].iter().flat_map(|f| f.to_le_bytes()).collect();
        all.insert(80, Definition::Stack(&bytes));
        let mut thread = Thread { tid: 7, calls: vec![call((10, 80)), call((20, 70))], ..Thread::default() };
        let of = |tid| HashMap::from([(tid, vec![evaluated(100, 200, 5, 0)])]);
        Nodes { evaluated: of(8), ..Nodes::default() }.tell(&mut thread, &mut all);
        assert_eq!(thread.backward, [InBackward { start: 10, stack: 0, node: 0 }]);
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

    /// A checkpoint in its older form: its nodes are made while another is evaluated, and evaluated
    /// by a backward pass within it.
    #[test]
    fn a_node_that_was_made_within_another_is_of_the_line_that_made_that() {
        let nodes = vec![evaluated(100, 200, 5, 0), evaluated(150, 160, 9, 0)];
        let made = [(5, 1, 70), (9, 120, 72)];
        let made = made.map(|(n, at, stack)| (origin(n), Made { thread: 7, at, stack }));
        let mut all = Nodes { made: HashMap::from(made), evaluated: HashMap::from([(7, nodes)]) };
        all.sort();
        let of = |number| all.stack_of(origin(number), &mut definitions(), MOST_WITHIN);
        assert_eq!((of(5), of(9), of(77)), (70, 72, 0), "its own line");
        let Some(inner) = all.made.get_mut(&origin(9)) else { panic!("it is there") };
        inner.stack = 0;
        assert_eq!(all.stack_of(origin(9), &mut definitions(), MOST_WITHIN), 70, "none of its own");
    }

    /// What both stacks have is cut off: nothing is said.
    #[test]
    fn of_stacks_too_deep_to_compare_nothing_is_said() {
        let mut all = definitions();
        let deep: Vec<u8> = [11u32; MAX_FRAMES].iter().flat_map(|f| f.to_le_bytes()).collect();
        all.insert(95, Definition::Stack(&deep));
        assert_eq!(of_node(&mut all, [95, 70, 50]), 0);
        assert_eq!(of_node(&mut all, [95, 0, 50]), 95, "on a thread of the engine's");
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
