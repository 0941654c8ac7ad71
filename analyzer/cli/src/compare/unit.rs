// SPDX-License-Identifier: Apache-2.0
//! Is a step of A the same unit as a step of B? Two layers' time against one's is no regression.
//!
//! ```text
//! marks or ranges in both           yes: the program says what a step is
//! the same work a step, or nearly   yes
//! other kernels                     no, but where the user vouches for the work: then by what a fix of kernels leaves alone
//!                                     as many steps in both runs, where those of a whole run are known, or
//!                                     as many bytes from the host a step
//!                                   never where a step gets twice, three times ... the bytes: that is what two steps get
//! ```
//! Units differ by whole factors (half a step, two steps, a layer), so equal to a tenth is equal.

use verdict::analysis::StepSource;

use super::side::Side;
use super::work::{near, Sameness, Work};

/// Steps and bytes this close together are as many.
const AS_MANY: f64 = 0.10;

/// A step is the same unit in both runs. `vouched`: the user says that it is the same work.
pub(crate) fn same_unit(a: &Side<'_>, b: &Side<'_>, work: &Work, vouched: bool) -> bool {
    let told = |s: &Side<'_>| matches!(s.analysis.steps.source, StepSource::Marks | StepSource::Ranges);
    if (told(a) && told(b)) || matches!(work.sameness, Sameness::Same | Sameness::Nearly) {
        return true;
    }
    let as_many = as_many_bytes(a, b) || (as_many_steps(a, b) && !multiple_of_bytes(a, b));
    vouched && !may_be_parts(a, b) && as_many
}

fn may_be_parts(a: &Side<'_>, b: &Side<'_>) -> bool {
    a.analysis.steps.may_be_parts || b.analysis.steps.may_be_parts
}

fn as_many_steps(a: &Side<'_>, b: &Side<'_>) -> bool {
    match (steps_of_run(a), steps_of_run(b)) {
        (Some(na), Some(nb)) => near((na as f64, nb as f64), AS_MANY),
        _ => false,
    }
}

/// Steps of the whole run, warm-up included; those that were overwritten as the run's count of
/// launches tells.
fn steps_of_run(s: &Side<'_>) -> Option<u64> {
    let c = &s.analysis.coverage;
    let known = s.run.missing.is_empty() && s.run.problems.cut_segments == 0;
    (known && (!c.overwritten || c.steps_estimated)).then_some(c.steps_run).filter(|n| *n > 0)
}

fn as_many_bytes(a: &Side<'_>, b: &Side<'_>) -> bool {
    let (x, y) = (a.bytes_from_host, b.bytes_from_host);
    x > 0.0 && y > 0.0 && near((x, y), AS_MANY)
}

/// Runs of one length in time may have as many steps because the one's unit is as much longer as
/// its steps are faster.
fn multiple_of_bytes(a: &Side<'_>, b: &Side<'_>) -> bool {
    let (x, y) = (a.bytes_from_host, b.bytes_from_host);
    let factor = x.max(y) / x.min(y);
    factor.is_finite() && factor.round() >= 2.0 && near((factor, factor.round()), AS_MANY)
}

/// Why the units are not known to be the same though the user vouches for the work.
pub(crate) fn why_not(a: &Side<'_>, b: &Side<'_>) -> String {
    if may_be_parts(a, b) {
        return "the steps found may be parts of a step".to_owned();
    }
    let steps = |s| steps_of_run(s).map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    format!("steps of the run {} -> {}, {}", steps(a), steps(b), super::words::from_host(a, b))
}

/// The steps of both get as many bytes from the host, or that cannot be told from them.
pub(crate) fn bytes_differ(a: &Side<'_>, b: &Side<'_>) -> bool {
    (a.bytes_from_host > 0.0 || b.bytes_from_host > 0.0) && !as_many_bytes(a, b)
}
