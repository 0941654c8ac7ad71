// SPDX-License-Identifier: Apache-2.0
//! PyTorch's operators: by which one a line of the program, or a node of the backward pass, put a
//! kernel on the GPU (`symbols/operators.rs` finds it).

use std::collections::HashMap;

use trace::{FrameInfo, Kind};

use super::autograd::Origin;
use super::{Op, RangeKind, Run, Span, Thread};

/// A line and what it put on the GPU, by numbers of [`Operators::texts`].
type Way = (u32, u32, u32);

/// The outermost operators by the ways that lead to what they put on the GPU.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    texts: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
    /// Operator and nodes. `None`: there are several, or none is known.
    by_way: HashMap<Way, Option<(u32, u32)>>,
    /// Stacks whose frames another one has, too: that one stands in the ways.
    alike: HashMap<u32, u32>,
    /// In torch.profiler's traces: the outermost operators of each thread (by its index), by time,
    /// with the string ids of their names.
    by_time: Vec<Vec<(Span, u32)>>,
}

/// What put a kernel on the GPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Operator<'a> {
    /// `aten::linear`; of a kernel of torch.compile all that went into it: `aten::add+aten::relu`.
    pub name: &'a str,
    /// Of a kernel of torch.compile the nodes of the compiled graph that it came from; else "".
    pub nodes: &'a str,
}

impl Operators {
    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(text.into());
        self.texts.insert(text.into(), number);
        number
    }

    /// From the Python stack with this id (0: none), or a node of this type ("": none), this kernel
    /// ("": a copy or memset) was put on the GPU by an operator; `None`: which is not known.
    pub fn add(&mut self, stack: u32, node: &str, kernel: &str, operator: Option<Operator<'_>>) {
        let way = (stack, self.text(node), self.text(kernel));
        let operator = operator.map(|o| (self.text(o.name), self.text(o.nodes)));
        let known = self.by_way.entry(way).or_insert(operator);
        if *known != operator {
            *known = None;
        }
    }

    /// A stack with the frames of another one, which is used in [`Operators::add`].
    pub fn add_alike(&mut self, stack: u32, other: u32) {
        self.alike.insert(stack, other);
    }

    /// The stack that stands in the ways for this one.
    pub fn stands_for(&self, stack: u32) -> u32 {
        self.alike.get(&stack).copied().unwrap_or(stack)
    }

    /// Is the time of a launch asked for, and not its way alone?
    pub fn are_by_time(&self) -> bool {
        !self.by_time.is_empty()
    }

    /// What put it there, of such a way; `None`: there are several, or none is known.
    pub fn of(&self, stack: u32, node: &str, kernel: &str) -> Option<Operator<'_>> {
        let way = (self.stands_for(stack), *self.texts.get(node)?, *self.texts.get(kernel)?);
        self.operator((*self.by_way.get(&way)?)?)
    }

    /// All ways that have one: stack, type of the node, kernel, operator.
    pub fn each(&self) -> impl Iterator<Item = (u32, &str, &str, Operator<'_>)> {
        self.by_way.iter().filter_map(|(way, operator)| {
            Some((way.0, self.name(way.1)?, self.name(way.2)?, self.operator((*operator)?)?))
        })
    }

    fn operator(&self, (name, nodes): (u32, u32)) -> Option<Operator<'_>> {
        Some(Operator { name: self.name(name)?, nodes: self.name(nodes)? })
    }

    fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(|name| &**name)
    }
}

impl Run {
    /// The outermost operator of PyTorch's that put `op`, which goes back to this, on the GPU.
    pub fn operator(&self, origin: &Origin, op: &Op) -> Option<Operator<'_>> {
        let (stack, node, kernel) = self.way(origin, op);
        let of_way = self.operators.of(stack, self.text(node), kernel);
        of_way.or_else(|| self.operator_at(origin.launched?)).or_else(|| of_xla(kernel))
    }

    /// The same, where nothing else is asked of what `op` goes back to.
    pub fn operator_of(&self, op: &Op) -> Option<Operator<'_>> {
        self.operator(&self.origin(op)?, op)
    }

    /// Stack, type of the node and kernel of such an operation.
    fn way(&self, origin: &Origin, op: &Op) -> (u32, Option<u32>, &str) {
        let kernel = if op.kind == Kind::Kernel { self.definitions.kernel_name(op.a) } else { "" };
        (self.python_stack(origin.site), origin.work.node, kernel)
    }

    fn text(&self, node: Option<u32>) -> &str {
        node.and_then(|node| self.definitions.string(node)).unwrap_or("")
    }

    fn operator_at(&self, (thread, time): (usize, u64)) -> Option<Operator<'_>> {
        let spans = self.operators.by_time.get(thread)?;
        let last = spans.partition_point(|(span, _)| span.start <= time).checked_sub(1)?;
        let (_, name) = spans.get(last).filter(|(span, _)| span.end > time)?;
        Some(Operator { name: self.definitions.string(*name)?, nodes: "" })
    }

    /// A launch that is captured in a CUDA graph comes once, right behind many others, from a stack
    /// of its own: the recorder may have missed its way. It gets the operator that all other ways
    /// have from the same line to the same kernel. Stacks are of the same line if they are equal
    /// from the innermost frame to the first one outside of installed packages.
    pub(crate) fn take_operators_of_captures(&mut self) {
        let mut captured: HashMap<Way, (u32, &str, &str)> = HashMap::new();
        for op in self.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
            let Some(origin) = self.origin(op).filter(|_| op.captured != 0) else { continue };
            let (stack, node, kernel) = self.way(&origin, op);
            let way = (self.operators.stands_for(stack), node.unwrap_or(0), op.a);
            captured.entry(way).or_insert((way.0, self.text(node), kernel));
        }
        if captured.is_empty() {
            return;
        }
        let line = |stack: u32| -> Option<Vec<FrameInfo>> {
            let mut frames: Vec<FrameInfo> = self.definitions.stack(stack).copied().collect();
            let is_installed = |f: &FrameInfo| {
                let file = self.definitions.string(f.file).unwrap_or("");
                file.starts_with('<')
                    || ["-packages/", "/torch/", "/triton/"].iter().any(|p| file.contains(p))
            };
            let own = frames.iter().position(|f| !is_installed(f))?;
            frames.truncate(own + 1);
            Some(frames)
        };
        let all = &self.operators;
        type OfLine = (Vec<FrameInfo>, u32, u32);
        let mut by_line: HashMap<OfLine, Option<(u32, u32)>> = HashMap::new();
        for (&(stack, node, kernel), operator) in &all.by_way {
            let Some(line) = line(stack) else { continue };
            let known = by_line.entry((line, node, kernel)).or_insert(*operator);
            if known != operator {
                *known = None;
            }
        }
        let mut found = Vec::new();
        for (stack, node, kernel) in captured.into_values() {
            let (Some(&node), Some(&kernel)) = (all.texts.get(node), all.texts.get(kernel)) else { continue };
            let of_line = || by_line.get(&(line(stack)?, node, kernel)).copied().flatten();
            let way = (stack, node, kernel);
            if let Some(operator) = of_line().filter(|_| !all.by_way.contains_key(&way)) {
                found.push((way, Some(operator)));
            }
        }
        self.operators.by_way.extend(found);
    }

    /// Takes the outermost operators from the ranges of a trace of torch.profiler's. (What has no
    /// namespace of an operator's, and the engine's own ranges around a node, are none.)
    pub fn take_operators(&mut self) {
        let is_operator = |name: u32| {
            let name = self.definitions.string(name).unwrap_or("");
            let of_the_engine = name.starts_with("autograd::") || name.starts_with("torch::");
            name.split_once("::").is_some_and(|(space, _)| !space.contains(['.', ' '])) && !of_the_engine
        };
        let outermost = |thread: &Thread| {
            let all = thread.ranges.iter().filter(|r| r.kind == RangeKind::Operator && is_operator(r.name));
            let mut all: Vec<(Span, u32)> = all.map(|r| (r.span, r.name)).collect();
            all.sort_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
            let mut end = 0;
            all.retain(|(span, _)| {
                let is_outermost = span.start >= end;
                end = if is_outermost { span.end } else { end };
                is_outermost
            });
            all
        };
        self.operators.by_time = self.threads.iter().map(outermost).collect();
    }
}

/// What XLA calls a kernel of its own making: the fusion of HLO's operations
/// (`loop_multiply_fusion` of `loop_multiply_fusion_3`), or the only one (`wrapped_tanh`).
fn of_xla(kernel: &str) -> Option<Operator<'_>> {
    let numbered = kernel.rsplit_once('_').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
    let name = numbered.map_or(kernel, |(name, _)| name);
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let is_xlas = name.ends_with("_fusion") || name == "fusion" || name.starts_with("wrapped_");
    (is_name && is_xlas).then_some(Operator { name, nodes: "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::build::Builder;
    use trace::define::CapturedLaunch;
    use trace::event::GRAPH_NODE;
    use trace::Event;

    #[test]
    fn two_operators_of_one_way_are_none() {
        let operator = |name| Some(Operator { name, nodes: "" });
        let mut all = Operators::default();
        all.add(7, "", "gemm", operator("aten::linear"));
        all.add(7, "", "gemm", operator("aten::linear"));
        all.add(7, "", "add", operator("aten::add"));
        all.add(7, "", "add", operator("aten::add_"));
        all.add(7, "", "add", operator("aten::add"));
        all.add(0, "AddmmBackward0", "gemm", None);
        assert_eq!(all.of(7, "", "gemm"), operator("aten::linear"));
        assert_eq!(all.of(7, "", "add"), None);
        assert_eq!(all.of(0, "AddmmBackward0", "gemm"), None);
        assert_eq!(all.of(8, "", "gemm"), None);
        all.add_alike(8, 7);
        assert_eq!(all.of(8, "", "gemm"), operator("aten::linear"));
        assert_eq!(
            all.each().collect::<Vec<_>>(),
            [(7, "", "gemm", Operator { name: "aten::linear", nodes: "" })]
        );
    }

    #[test]
    fn kernels_that_xla_made_have_its_names() {
        for (kernel, name) in [
            ("loop_multiply_fusion_12", "loop_multiply_fusion"),
            ("input_multiply_reduce_fusion", "input_multiply_reduce_fusion"),
            ("wrapped_tanh", "wrapped_tanh"),
            ("fusion_7", "fusion"),
        ] {
            assert_eq!(of_xla(kernel), Some(Operator { name, nodes: "" }), "{kernel}");
        }
        for other in ["triton_poi_fused_add_0", "nvjet_sm90_tst_320x128", "_Z7wrapped_addv", "fused", ""] {
            assert_eq!(of_xla(other), None, "{other}");
        }
    }

    /// Captured from a stack of their own, whose ways were not seen: the line has launched "gemm"
    /// for one operator and "add" for two; another line has launched nothing else.
    #[test]
    fn a_captured_launch_has_the_operator_of_its_line_elsewhere() {
        let mut b = Builder::new();
        b.on_recorder(Event::clock_pair(1, 1));
        let line = ("forward", "/job/net.py", 12);
        let [first, second, captured] =
            [7, 8, 9].map(|outer| b.stack(&[line, ("main", "/job/train.py", outer)]));
        let other = b.stack(&[("forward", "/job/net.py", 13), ("main", "/job/train.py", 9)]);
        let launches = [(1, captured, "gemm"), (2, captured, "add"), (3, other, "gemm"), (4, 0, "gemm")];
        for (n, stack, name) in launches {
            let launch = b.captured(CapturedLaunch { stack, ..CapturedLaunch::default() });
            let kernel = b.graph_kernel(name, 32, 16, launch);
            let ran = Event::new(Kind::Kernel, 10_000 + 1_000 * n, 10_500 + 1_000 * n);
            b.on_stream(0, 1, 7, Event { a: kernel, b: 1, c: 4, correlation: 9, flags: GRAPH_NODE, ..ran });
        }
        let mut run = crate::load(b.finish().as_slice()).unwrap();
        let operator = |name| Some(Operator { name, nodes: "" });
        run.operators.add(first, "", "gemm", operator("aten::linear"));
        run.operators.add(second, "", "gemm", operator("aten::linear"));
        run.operators.add(first, "", "add", operator("aten::add"));
        run.operators.add(second, "", "add", operator("aten::add_"));
        run.take_operators_of_captures();
        let ops = run.devices[0].streams[0].ops.clone();
        let found: Vec<_> =
            ops.iter().map(|op| run.origin(op).and_then(|origin| run.operator(&origin, op))).collect();
        assert_eq!(found, [operator("aten::linear"), None, None, None]);
    }
}
