// SPDX-License-Identifier: Apache-2.0
//! Time of GPU operations as folded stacks, one a line with its microseconds. A stack is device,
//! the ranges around the call that launched it, the frames it was made from (in a backward pass of
//! PyTorch's those of the forward pass it belongs to, then the type of the autograd node), the
//! operators around it, kernel or copy. What was launched without any of them stands under its
//! thread's name.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::iter::Peekable;
use std::vec::IntoIter;

use trace::FrameInfo;
use verdict::analysis::idle_stacks::{frame_name, without_number};
use verdict::analysis::Analysis;
use verdict::run::autograd::{type_name, Work};
use verdict::run::{Call, Op, Range, RangeKind, Run, Thread};

use super::folded::{clean, write_stacks};
use crate::tables::{NameStyle, Source, MOST_LEVELS};

/// Writes the stacks of the steady state, by name.
pub fn gpu_folded(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let source = Source::new(run, NameStyle::Short);
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |device: usize, launcher: &str, op: &Op| {
        let ordinal = run.devices.get(device).map_or(0, |d| d.ordinal);
        let ns = analysis.counts.measure(op.span());
        if ns > 0 {
            let stack = format!("GPU {ordinal};{launcher};{}", clean(&source.operation(op)));
            let sum = stacks.entry(stack).or_default();
            *sum = sum.saturating_add(ns);
        }
    };
    for (index, thread) in run.threads.iter().enumerate() {
        let mut open = Open::new(thread);
        for (i, call) in thread.calls.iter().enumerate() {
            let mut launcher = None;
            for (device, op) in source.launched(run.flat(index, i)) {
                add(
                    device,
                    launcher.get_or_insert_with(|| open.around(run, call, run.work(index, call))),
                    op,
                );
            }
        }
    }
    for (device, op) in source.ops().filter(|(_, op)| run.call(op.call).is_none()) {
        add(device, "unattributed", op);
    }
    write_stacks(stacks, out)
}

/// The ranges of a thread that are open when a call is made; calls are asked for in order.
struct Open<'a> {
    thread: &'a Thread,
    ranges: Peekable<IntoIter<&'a Range>>,
    open: Vec<&'a Range>,
}

impl<'a> Open<'a> {
    fn new(thread: &'a Thread) -> Open<'a> {
        let mut ranges: Vec<&Range> = thread.ranges.iter().filter(|r| !thread.is_left_open(r)).collect();
        // of two that begin together the longer is around the other
        ranges.sort_by_key(|r| (r.span.start, Reverse(r.span.end), r.depth));
        Open { thread, ranges: ranges.into_iter().peekable(), open: Vec::new() }
    }

    /// What launched it, outermost first.
    fn around(&mut self, run: &Run, call: &Call, work: Work) -> String {
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
        let text = |id: u32| run.definitions.string(id).unwrap_or("(no name)");
        let named = |kind: RangeKind| self.open.iter().filter(move |r| r.kind == kind);
        let mut stack: Vec<String> = named(RangeKind::User).map(|r| without_number(text(r.name))).collect();
        match work.stack {
            0 => stack.extend(named(RangeKind::Python).map(|r| text(r.name).to_owned())),
            site => {
                let frames: Vec<&FrameInfo> = run.definitions.stack(site).collect();
                stack.extend(frames.iter().rev().map(|f| frame_name(run, f)));
            }
        }
        stack.extend(work.node.map(|node| type_name(text(node)).to_owned()));
        stack.extend(named(RangeKind::Operator).map(|r| text(r.name).to_owned()));
        if stack.is_empty() {
            let name = run.definitions.string(self.thread.name).unwrap_or("");
            let unnamed = || format!("thread {}", self.thread.tid);
            stack.push(if name.is_empty() { unnamed() } else { name.to_owned() });
        }
        stack.iter().map(|frame| clean(frame)).collect::<Vec<_>>().join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::build::Builder;
    use trace::call::{pack, Class, RUNTIME};
    use trace::{Event, Kind};

    #[test]
    fn a_kernel_stands_under_what_launched_it() {
        let mut b = Builder::new();
        b.on_recorder(Event::clock_pair(1, 1));
        let mut range = Event::new(Kind::Range, 100_000, 300_000);
        range.a = b.string("forward; all");
        b.on_thread(5, range);
        let kernel = b.kernel("void gemm<float>(float*)", 32, 16);
        // a node that thread 5 made and thread 7 evaluates
        let mut node = Event::new(Kind::ForwardNode, 90_000, 90_000);
        (node.b, node.c, node.correlation) = (3, b.stack(&[("forward", "/home/me/net.py", 12)]), 1);
        b.on_thread(5, node);
        let mut node = Event::new(Kind::BackwardNode, 135_000, 150_000);
        (node.a, node.b, node.correlation) = (b.string("N5torch14AddmmBackward0E"), 3, 1);
        b.on_thread(7, node);
        // in the range, behind it, on another thread, without a call, and in the node
        let launches = [(5, 110_000, 1), (5, 310_000, 2), (6, 120_000, 3), (0, 130_000, 4), (7, 140_000, 5)];
        for (tid, at, correlation) in launches {
            let mut call = Event::new(Kind::Call, at, at + 5_000);
            (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
            if tid > 0 {
                b.on_thread(tid, call);
            }
            let start = 400_000 + u64::from(correlation) * 50_000;
            let mut op = Event::new(Kind::Kernel, start, start + 10_000 * u64::from(correlation));
            (op.a, op.b, op.correlation) = (kernel, 1, correlation);
            b.on_stream(0, 1, 7, op);
        }
        let run = verdict::load(b.finish().as_slice()).expect("a recording");
        let mut out = Vec::new();
        gpu_folded(&run, &verdict::analyze(&run), &mut out).expect("memory");
        let expected = "GPU 0;forward (net.py:12);AddmmBackward0;gemm<float> 50\n\
                        GPU 0;forward_ all;gemm<float> 10\n\
                        GPU 0;thread 5;gemm<float> 20\n\
                        GPU 0;thread 6;gemm<float> 30\n\
                        GPU 0;unattributed;gemm<float> 40\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
