// SPDX-License-Identifier: Apache-2.0
//! What holds for any trace that was read, however odd.

use formats::{Format, Input};

/// Busy and idle are the span, buckets are the wall time, the line is one line, and too much lost
/// is no verdict.
pub fn check(input: &Input) {
    let run = &input.run;
    let analysis = verdict::analyze(run);
    for d in &analysis.devices {
        assert_eq!(d.busy_ns + d.idle_ns, d.span.ns());
        assert_eq!(d.buckets.total(), d.wall_ns, "device {}", d.ordinal);
        assert!(d.max_gap_ns <= d.idle_ns && (d.idle_ns > 0) == (d.gaps > 0), "device {}", d.ordinal);
    }
    let line = verdict::output::sentence::line(run, &analysis, None);
    assert!(!line.trim().is_empty() && line.chars().all(|c| !c.is_control()), "{line:?}");
    let r = &input.refused;
    if input.format != Format::Recording {
        assert_eq!(run.problems.damaged(), r.lost());
    }
    // losses beyond 0.1 % of the events
    if r.cut || r.damaged || r.lost() * 999 > analysis.events {
        assert!(line.contains("[GP199]"), "{r:?} of {}: {line}", analysis.events);
    }
}
