// SPDX-License-Identifier: Apache-2.0
//! Idle time as folded stacks, one a line with its microseconds: what flamegraph.pl, speedscope and
//! inferno read. A stack is device, cause, the ranges around the blamed call, the frames it was
//! made from, the call.

use std::collections::BTreeMap;
use std::io::{self, Write};

use verdict::analysis::idle_stacks::{frame_name, idle_stacks, without_number};
use verdict::analysis::Analysis;
use verdict::run::Run;
use verdict::text::escape::is_hidden;

/// Writes the stacks of the steady state, by name.
pub fn folded(run: &Run, analysis: &Analysis, out: &mut dyn Write) -> io::Result<()> {
    let steady = &analysis.counts;
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for d in &analysis.devices {
        idle_stacks(run, d, steady, |idle| {
            let mut stack = format!("GPU {};{}", d.ordinal, idle.bucket.label());
            if let Some((_, call)) = idle.blamed {
                for frame in idle.ranges() {
                    stack.push(';');
                    stack.push_str(&clean(&without_number(
                        run.definitions.string(frame.name).unwrap_or("(no name)"),
                    )));
                }
                for f in run.definitions.stack(idle.stack).rev() {
                    stack.push(';');
                    stack.push_str(&clean(&frame_name(run, f)));
                }
                stack.push(';');
                stack.push_str(&clean(run.call_name(call)));
            }
            *stacks.entry(stack).or_default() += idle.ns;
        });
    }
    write_stacks(stacks, out)
}

/// Stacks with their ns.
pub(super) fn write_stacks(stacks: BTreeMap<String, u64>, out: &mut dyn Write) -> io::Result<()> {
    for (stack, ns) in stacks {
        // whole microseconds: the readers take integers
        let us = ns.saturating_add(500) / 1000;
        if us > 0 {
            writeln!(out, "{stack} {us}")?;
        }
    }
    Ok(())
}

/// A frame: the separator and what cannot be seen cannot stand in it.
pub(super) fn clean(name: &str) -> String {
    name.chars().map(|c| if c == ';' || is_hidden(c) { '_' } else { c }).collect()
}
