// SPDX-License-Identifier: Apache-2.0
//! What was lost of a run, for those who print figures of it and no verdict: no analysis is needed
//! for it.

use serde_json::{Map, Value};
use trace::Loss;

use verdict::analysis::Analysis;
use verdict::load::missing_kernels;
use verdict::output::{line, summary};
use verdict::run::Run;

/// Losses of a run.
pub struct Lost<'a> {
    run: &'a Run,
    counted: Analysis,
}

impl<'a> Lost<'a> {
    /// Counts them: O(events).
    pub fn of(run: &'a Run) -> Lost<'a> {
        let losses = Loss::ALL.iter().map(|&l| (l, run.header.loss(l))).filter(|l| l.1 > 0).collect();
        Lost {
            run,
            counted: Analysis { losses, unanswered: missing_kernels::count(run), ..Analysis::default() },
        }
    }

    /// `losses 17 (cupti_dropped)`, as the line has it; `None` where nothing was lost.
    pub fn text(&self) -> Option<String> {
        Some(line::losses(self.run, &self.counted)).filter(|l| l != "0").map(|l| format!("losses {l}"))
    }

    /// Every loss by name, as in the summary.
    pub fn json(&self) -> Map<String, Value> {
        summary::losses(self.run, &self.counted)
    }
}
