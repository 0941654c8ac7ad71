// SPDX-License-Identifier: Apache-2.0
//! The last line of a process whose report is not whole: the figures, what is missing and why, and
//! the one command that makes up for it. Words only.

use std::fmt::Write;
use std::path::Path;

use super::Report;
use crate::text::escape;
use crate::text::escape::visible;

impl Report {
    /// The command that writes trace and summary of this recording where this user can write: the
    /// folder of the private folder.
    pub fn next_elsewhere(recording: &Path) -> String {
        let word = |path: &Path| escape::word(&path.to_string_lossy()).into_owned();
        let folder = recording.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        format!("gapprobe recover --dir {} {}", word(folder), word(recording))
    }

    /// The line where [`Report::is_complete`] is not. `recording`: where the recording is, `None`
    /// where there is none; `exit_ms`: the time there was, ms (GAPPROBE_EXIT_MS).
    pub fn unfinished(&self, recording: Option<&Path>, exit_ms: u64) -> String {
        let word = |path: &Path| escape::word(&path.to_string_lossy()).into_owned();
        let mut out = self.figures.clone();
        let mut is_unwritable = false;
        let mut verb = "recover";
        if let Some(problem) = self.problems.first() {
            let _ = write!(out, "; {problem}");
            is_unwritable = true;
        } else if let Some(stage) = self.late {
            let _ = write!(out, "; no {stage}: not ready within {exit_ms} ms (GAPPROBE_EXIT_MS)");
        } else if self.left_out > 0 {
            let _ = write!(out, "; {} older events not looked at", self.left_out);
        } else if let Some(share) = self.share_in_the_trace() {
            let _ = write!(out, "; {share}");
            verb = "analyze"; // another trace would be as large
        }
        match (recording, is_unwritable) {
            (Some(file), _) if self.taken_up && verb == "recover" => {
                let _ = write!(out, "; gapprobe run goes on with the recording {}", word(file));
            }
            (Some(file), true) => {
                let _ = write!(out, ". Next: {}", Report::next_elsewhere(file));
            }
            (Some(file), false) => {
                let _ = write!(out, ". Next: gapprobe {verb} {}", word(file));
            }
            (None, _) if !self.problems.is_empty() => {
                out.push_str(". Next: set GAPPROBE_DIR to a folder that can be written, and run again");
            }
            (None, _) if self.late.is_some() => {
                out.push_str(". Next: raise GAPPROBE_EXIT_MS, and run again");
            }
            (None, _) => out.push_str(". Next: raise GAPPROBE_MAX_MB, and run again"),
        }
        if let Some(trace) = &self.trace {
            let _ = write!(out, ". Trace: {}", trace.display());
        }
        visible(&out).into_owned()
    }
}
