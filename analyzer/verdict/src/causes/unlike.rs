// SPDX-License-Identifier: Apache-2.0
//! Windows are taken for the run: are their steps like the others? A window that begins at each
//! thousandth step has each pause that comes every thousand steps, and one that does not has none
//! of them. Between windows steps are counted (`docs/windows.md`), so the mean of all steps is
//! known, and is held against the mean of those that were recorded.

use trace::event::Unobserved;
use trace::Total;

use crate::analysis::{Analysis, Fact, Figure, StepSource, Unlike};
use crate::run::{Run, Span};

/// The means may differ by this share of the recorded one. What recording makes steps longer is
/// allowed beside it.
const ALIKE: f64 = 0.15;
/// From this factor on what was recorded carries no verdict.
const FAR: f64 = 2.0;
/// Of fewer steps one long one makes the mean.
const LEAST_STEPS: u64 = 20;

/// `slowed`: by how much recording made the recorded steps longer, a share of them. `None` where
/// they are alike, where all was recorded, or where steps were not counted.
pub(super) fn unlike(run: &Run, a: &Analysis, slowed: f64) -> Option<Unlike> {
    let h = &run.header;
    let between = a.blind.iter().filter(|b| b.is_host_seen() || b.reason == Unobserved::Window as u32);
    let last = between.map(|b| b.span.end).max()?;
    let last = match h.total(Total::LastStepAt) {
        0 => last,
        // what follows it is no step: the program saves its model and comes down
        began => last.min(began + h.total(Total::ClockStepNs)),
    };
    if a.steps.source == StepSource::None || h.total(Total::StepsBetween) == 0 {
        return None;
    }
    // of an overwritten recording it is not known how many steps were before the first that is left
    let (span, steps) = match a.coverage.overwritten {
        true => (a.coverage.run_ns, a.coverage.steps_run),
        false => {
            let steps = a.coverage.steps_run.saturating_sub(a.steps.warm_up as u64);
            (Span::new(a.steady.start, last.max(a.steady.end)).ns(), steps)
        }
    };
    if steps < LEAST_STEPS {
        return None;
    }
    let (recorded, all) = (a.steps.mean_ns, span as f64 / steps as f64);
    let least = recorded * (1.0 - slowed.clamp(0.0, 0.9));
    let is_within = |by: f64, less: f64| all <= recorded * by && all >= least * less;
    (!is_within(1.0 + ALIKE, 1.0 - ALIKE)).then(|| Unlike {
        recorded_ns: recorded,
        all_ns: all,
        far: !is_within(FAR, 1.0 / FAR),
    })
}

impl Unlike {
    /// "recorded steps take 6.0 ms, those of the whole run 1.2 ms".
    pub fn fact(&self) -> Fact {
        Fact::new("recorded steps take {recorded}, those of the whole run {all}")
            .with("recorded", Figure::Time(self.recorded_ns))
            .with("all", Figure::Time(self.all_ns))
    }
}
