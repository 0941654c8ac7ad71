// SPDX-License-Identifier: Apache-2.0
//! GP110 INPUT: the GPU waits for data.
//!
//! # What it means
//! The launching thread fetches the next batch while the GPU has nothing to do: it reads and decodes the data itself
//! (`num_workers=0`), or waits for workers that are too few or too slow.
//!
//! # How it is recognised
//! As HOST, and at least half of the stretch since the launch before lies in a range that fetches data: the iteration
//! over a DataLoader as torch.profiler names it, or a range that the program calls `data`, `dataload`, `next_batch` or
//! the like. How much of the fetching is hidden behind the GPU's work and how much is not is told in the text.
//!
//! # How sure
//! That the thread was in that range is exact. Why fetching takes so long (CPU, disk, network) is not known yet.
//!
//! # What to change
//! `DataLoader(..., num_workers=N, pin_memory=True, persistent_workers=True)`: N is the fetching time of a batch divided
//! by the step time without it, rounded up, and no more than the cores there are; beyond that decode on the GPU (DALI),
//! or cache decoded data.

use super::Case;
use crate::analysis::{Bucket, Finding};
use crate::gaps::input;
use crate::replay::Fix;

/// Stable code.
pub const CODE: &str = "GP110";
/// Name in the line.
pub const NAME: &str = "INPUT";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let share = case.share(&[Bucket::Input]);
    let win = case.stretch_win(Fix::Input, share)?;
    let mut f = case.finding((CODE, NAME), share.max(win), win);
    let steady = case.device.steady;
    let slices = case.device.slices.iter().filter(|s| s.bucket == Bucket::Input);
    let mut last = None;
    let mut longest = 0;
    for s in slices.filter(|s| s.span().clip(steady).ns() > 0) {
        f.count += u64::from(last != s.call());
        last = s.call();
        if s.end - s.start > longest {
            longest = s.end - s.start;
            f.call = s.call;
        }
    }
    let fetching = input::all(case.run, steady, &case.device.slices);
    let part = crate::analysis::share(fetching.exposed_ns.min(fetching.ns), fetching.ns) * 100.0;
    let steps = (case.analysis.steps.steady().len() as f64).max(1.0);
    f.text = format!(
        "fetching data takes {:.1} ms {}, hidden {:.0} %, exposed {part:.0} %{}",
        fetching.ns as f64 / 1e6 / steps,
        if case.analysis.steps.steady().is_empty() { "in all" } else { "a step" },
        100.0 - part,
        match fetching.workers {
            Some(true) => "; the workers are too few or too slow",
            Some(false) => "; no workers",
            None => "",
        }
    );
    f.fix = match fetching.workers {
        Some(true) => "more DataLoader workers, up to the cores there are, persistent_workers=True; else decode on the GPU or cache",
        _ => "DataLoader(num_workers=4 or more, pin_memory=True): fetch the next batch while the GPU works on this one",
    };
    Some(f)
}
