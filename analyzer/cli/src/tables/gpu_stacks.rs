// SPDX-License-Identifier: Apache-2.0
//! Time of GPU operations by what launched them, as stacks for flame graphs: the ranges around the
//! call; the frames it was made from (in a backward pass of PyTorch's those of the forward pass it
//! belongs to), their module, then the type of the autograd node; the operators around it, or where
//! no range tells them the outermost one (`Run::operator`); kernel or copy. What was launched
//! without any of them stands under its thread's name. Of a kernel of a CUDA graph the ranges are
//! those around the graph's launch, all else is of the launch that was captured.

use std::cmp::Reverse;
use std::iter::Peekable;
use std::vec::IntoIter;

use foldhash::{HashMap, HashMapExt};
use trace::define::InModule;
use trace::{FrameInfo, Kind};
use verdict::analysis::idle_stacks::{frame_name, without_number};
use verdict::run::autograd::{type_name, Origin, Work};
use verdict::run::{Call, Op, Range, RangeKind, Run, Thread};
use verdict::text::kernel_name::demangled;
use verdict::timeline::Observed;

use super::ranges::MOST_LEVELS;
use super::Source;
use crate::kernel_class::{class_of, KernelClass};

/// Operations of one name that were launched from one place.
pub(crate) struct GpuStack<'a> {
    /// Index of the device.
    pub(crate) device: usize,
    /// What launched them, outermost first, without the operation.
    pub(crate) launcher: Vec<&'a str>,
    /// Whether that is more than a thread's name, or nothing.
    pub(crate) is_known: bool,
    /// The operation.
    pub(crate) operation: &'a str,
    /// A kernel's class; `None` of copies and memsets.
    pub(crate) class: Option<KernelClass>,
    /// Their time in what was observed, ns; those that overlap add up.
    pub(crate) ns: u64,
}

/// Calls `visit` for each stack, in no order, with its time in what `counts` observed.
pub(crate) fn gpu_stacks(source: &Source<'_>, counts: &Observed, mut visit: impl FnMut(GpuStack<'_>)) {
    let run = source.run;
    let mut stacks = Stacks::new(source);
    for (index, thread) in run.threads.iter().enumerate() {
        let mut open = Open::new(thread);
        for (i, call) in thread.calls.iter().enumerate() {
            let mut last: Option<(u32, Launcher)> = None;
            for (device, op) in source.launched(run.flat(index, i)) {
                let (ns, Some(origin)) = (counts.measure(op.span()), run.origin(op)) else { continue };
                if ns > 0 {
                    let known = last.take().filter(|(captured, _)| *captured == op.captured);
                    let (captured, launcher) =
                        known.unwrap_or_else(|| (op.captured, stacks.launcher(&origin, open.at(call))));
                    stacks.add(device, &launcher, &origin, op, ns);
                    last = Some((captured, launcher));
                }
            }
        }
    }
    let nobody = stacks.nobody();
    for (device, op) in source.ops().filter(|(_, op)| run.call(op.call).is_none()) {
        let ns = counts.measure(op.span());
        match run.origin(op) {
            Some(origin) => {
                let launcher = stacks.launcher(&origin, &[]);
                stacks.add(device, &launcher, &origin, op, ns);
            }
            None => stacks.sum((device, nobody, op), ns),
        }
    }
    stacks.sums.iter().filter(|(_, ns)| **ns > 0).for_each(|(&key, &ns)| {
        if let Some(stack) = stacks.stack(key, ns) {
            visit(stack);
        }
    });
}

/// What launched something, as far as the operation does not matter.
struct Launcher {
    /// Numbers of texts, outermost first.
    frames: Vec<u32>,
    /// The operators are among the frames.
    has_operator: bool,
}

/// The stacks so far. Texts, launchers and operations are numbered, each once.
struct Stacks<'s, 'a> {
    source: &'s Source<'a>,
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
    /// The frames of a call stack and its module.
    of_stack: HashMap<u32, Vec<u32>>,
    of_range: HashMap<u32, u32>,
    /// By call stack, node and kernel (`None`: a copy or memset).
    of_operator: HashMap<(u32, u32, Option<u32>), Option<u32>>,
    launchers: Vec<(Vec<u32>, bool)>,
    by_frames: HashMap<Vec<u32>, u32>,
    of_kernel: HashMap<u32, (u32, KernelClass)>,
    /// By device, launcher, and text and class of the operation, ns.
    sums: HashMap<(usize, u32, u32, Option<KernelClass>), u64>,
}

impl<'s, 'a> Stacks<'s, 'a> {
    fn new(source: &'s Source<'a>) -> Stacks<'s, 'a> {
        Stacks {
            source,
            texts: Vec::new(),
            numbers: HashMap::new(),
            of_stack: HashMap::new(),
            of_range: HashMap::new(),
            of_operator: HashMap::new(),
            launchers: Vec::new(),
            by_frames: HashMap::new(),
            of_kernel: HashMap::new(),
            sums: HashMap::new(),
        }
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Number of a text of the run.
    fn string(&mut self, id: u32) -> u32 {
        let text = self.source.run.definitions.string(id).unwrap_or("(no name)");
        self.number(text)
    }

    fn range(&mut self, name: u32) -> u32 {
        if let Some(&known) = self.of_range.get(&name) {
            return known;
        }
        let text = self.source.run.definitions.string(name).unwrap_or("(no name)");
        let number = self.number(&without_number(text));
        self.of_range.insert(name, number);
        number
    }

    /// Appends the frames of a call stack and its module.
    fn frames(&mut self, stack: u32, to: &mut Vec<u32>) {
        if let Some(known) = self.of_stack.get(&stack) {
            to.extend(known);
            return;
        }
        let run = self.source.run;
        let frames: Vec<&FrameInfo> = run.definitions.stack(stack).collect();
        let mut numbers: Vec<u32> = frames.iter().rev().map(|f| self.number(&frame_name(run, f))).collect();
        let module = run.definitions.in_module(stack);
        numbers.extend(module.map(|m| self.number(&module_name(run, m))));
        to.extend(&numbers);
        self.of_stack.insert(stack, numbers);
    }

    /// `around`: the ranges around its call, outermost first.
    fn launcher(&mut self, origin: &Origin, around: &[&Range]) -> Launcher {
        let run = self.source.run;
        let Work { stack, node } = origin.work;
        let named = |kind: RangeKind| around.iter().filter(move |r| r.kind == kind).map(|r| r.name);
        let mut frames: Vec<u32> = named(RangeKind::User).map(|name| self.range(name)).collect();
        match stack {
            0 => frames.extend(named(RangeKind::Python).map(|name| self.string(name))),
            stack => self.frames(stack, &mut frames),
        }
        // (torch.profiler's range of it is one of those around)
        if let Some(node) = node.filter(|_| !run.foreign) {
            let text = run.definitions.string(node).unwrap_or("(no name)");
            frames.push(self.number(type_name(text)));
        }
        let before = frames.len();
        frames.extend(named(RangeKind::Operator).map(|name| self.string(name)));
        let has_operator = frames.len() > before;
        Launcher { frames, has_operator }
    }

    /// Number of the outermost operator's text, where it is known.
    fn operator(&mut self, origin: &Origin, op: &Op) -> Option<u32> {
        let run = self.source.run;
        let key = (origin.site, origin.work.node.unwrap_or(0), (op.kind == Kind::Kernel).then_some(op.a));
        let is_by_time = run.operators.are_by_time();
        if let Some(&known) = self.of_operator.get(&key).filter(|_| !is_by_time) {
            return known;
        }
        let number = run.operator(origin, op).map(|o| self.number(o.name));
        self.of_operator.insert(key, number);
        number
    }

    fn add(&mut self, device: usize, launcher: &Launcher, origin: &Origin, op: &Op, ns: u64) {
        let operator = if launcher.has_operator { None } else { self.operator(origin, op) };
        let number = match (operator, launcher.frames.as_slice()) {
            (None, []) => {
                let thread = origin.launched.and_then(|(thread, _)| self.source.run.threads.get(thread));
                let name = self.source.string(thread.map_or(0, |t| t.name));
                let unnamed = || format!("thread {}", thread.map_or(0, |t| t.tid));
                let text = if name.is_empty() { unnamed() } else { name.to_owned() };
                let thread = self.number(&text);
                self.numbered(&[thread], false)
            }
            (None, frames) => self.numbered(frames, true),
            (Some(operator), frames) => self.numbered(&[frames, &[operator]].concat(), true),
        };
        self.sum((device, number, op), ns);
    }

    /// The launcher of what no call is known of.
    fn nobody(&mut self) -> u32 {
        let text = self.number("unattributed");
        self.numbered(&[text], false)
    }

    fn numbered(&mut self, frames: &[u32], is_known: bool) -> u32 {
        if let Some(&known) = self.by_frames.get(frames) {
            return known;
        }
        let number = self.launchers.len() as u32;
        self.launchers.push((frames.to_vec(), is_known));
        self.by_frames.insert(frames.to_vec(), number);
        number
    }

    fn sum(&mut self, (device, launcher, op): (usize, u32, &Op), ns: u64) {
        let (text, class) = self.operation(op);
        let sum = self.sums.entry((device, launcher, text, class)).or_default();
        *sum = sum.saturating_add(ns);
    }

    /// Text and class of an operation.
    fn operation(&mut self, op: &Op) -> (u32, Option<KernelClass>) {
        let source = self.source;
        if op.kind != Kind::Kernel {
            let is_graph = !matches!(op.kind, Kind::Memcpy | Kind::Memset);
            return (self.number(&source.operation(op)), is_graph.then_some(KernelClass::Other));
        }
        if let Some(&(text, class)) = self.of_kernel.get(&op.a) {
            return (text, Some(class));
        }
        let class = class_of(&demangled(source.run.definitions.kernel_name(op.a)));
        let text = self.number(&source.operation(op));
        self.of_kernel.insert(op.a, (text, class));
        (text, Some(class))
    }

    fn stack(&self, key: (usize, u32, u32, Option<KernelClass>), ns: u64) -> Option<GpuStack<'_>> {
        let (device, launcher, operation, class) = key;
        let text = |number: u32| self.texts.get(number as usize).map(String::as_str);
        let (frames, is_known) = self.launchers.get(launcher as usize)?;
        let launcher = frames.iter().filter_map(|&f| text(f)).collect();
        Some(GpuStack { device, launcher, is_known: *is_known, operation: text(operation)?, class, ns })
    }
}

/// `blocks.3.up: Linear`; `(outermost): Net`.
fn module_name(run: &Run, module: InModule) -> String {
    let path = run.definitions.string(module.path).unwrap_or("(outermost)");
    match run.definitions.string(module.class) {
        Some(class) => format!("{path}: {class}"),
        None => path.to_owned(),
    }
}

/// The ranges of a thread that are open when a call is made; calls are asked for in order.
struct Open<'a> {
    ranges: Peekable<IntoIter<&'a Range>>,
    open: Vec<&'a Range>,
}

impl<'a> Open<'a> {
    fn new(thread: &'a Thread) -> Open<'a> {
        let mut ranges: Vec<&Range> = thread.ranges.iter().filter(|r| !thread.is_left_open(r)).collect();
        // of two that begin together the longer is around the other
        ranges.sort_by_key(|r| (r.span.start, Reverse(r.span.end), r.depth));
        Open { ranges: ranges.into_iter().peekable(), open: Vec::new() }
    }

    /// Those around it, outermost first.
    fn at(&mut self, call: &Call) -> &[&'a Range] {
        while let Some(range) = self.ranges.next_if(|r| r.span.start <= call.start) {
            // what has ended when another begins is never asked for again: the list stays as long
            // as the nesting
            self.open.retain(|o| o.span.end > range.span.start);
            // (work stays linear, and stacks can be read)
            if self.open.len() < MOST_LEVELS as usize {
                self.open.push(range);
            }
        }
        self.open.retain(|o| o.span.end > call.start);
        &self.open
    }
}
