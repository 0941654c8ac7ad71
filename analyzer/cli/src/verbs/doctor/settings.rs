// SPDX-License-Identifier: Apache-2.0
//! The `GAPPROBE_*` variables of this environment: values that make no sense, by the rules of their
//! table, and slips in names. What the recorder says of them it says once CUDA is used.

use std::os::unix::ffi::OsStrExt;

use trace::setting::{self, SETTINGS};

use super::{problem, Finding};

/// One finding for each; `GAPPROBE` itself has its own check.
pub(super) fn check() -> Vec<Finding> {
    let values = SETTINGS.iter().filter(|s| s.name != setting::SWITCH).filter_map(|s| {
        let value = std::env::var_os(s.name)?;
        let is = s.rule.complaint(value.as_bytes())?;
        let holds = match s.default {
            "" => "is as if it were not set".to_owned(),
            default => format!("counts as {default}"),
        };
        let text = format!("{}={} is {is}: it {holds}", s.name, value.to_string_lossy());
        Some(problem(
            "settings",
            text,
            format!("unset {}, or set what gapprobe explain settings says", s.name),
        ))
    });
    let names = std::env::vars_os().filter_map(|(name, _)| {
        let name = name.into_string().ok()?;
        let meant = setting::meant_by(&name)?;
        Some(problem("settings", format!("{name} is no setting, {meant} is"), format!("unset {name}")))
    });
    values.chain(names).collect()
}
