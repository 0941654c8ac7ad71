// SPDX-License-Identifier: Apache-2.0
//! Time of GPU operations as folded stacks, one a line with its microseconds: device, then what
//! launched them (`tables/gpu_stacks.rs`), kernel or copy.

use std::collections::BTreeMap;
use std::io::{self, Write};

use verdict::analysis::Analysis;
use verdict::run::Run;

use super::folded::{clean, write_stacks};
use crate::tables::{gpu_stacks, NameStyle, Source};

/// Writes the stacks of the steady state, by name.
pub fn gpu_folded(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let source = Source::new(run, NameStyle::Short);
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    gpu_stacks(&source, &analysis.counts, |s| {
        let ordinal = run.devices.get(s.device).map_or(0, |d| d.ordinal);
        let mut stack = format!("GPU {ordinal}");
        for frame in s.launcher.iter().chain([&s.operation]) {
            stack.push(';');
            stack.push_str(&clean(frame));
        }
        let sum = stacks.entry(stack).or_default();
        *sum = sum.saturating_add(s.ns);
    });
    write_stacks(stacks, out)
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
