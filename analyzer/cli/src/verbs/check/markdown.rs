// SPDX-License-Identifier: Apache-2.0
//! Markdown for a page that people read beside the log: $GITHUB_STEP_SUMMARY, a merge request's
//! comment.

use std::fmt::Write;

use verdict::text::escape::visible;

use super::{name, Checked};

/// The sentence, the conditions as a table, and what the verdict rests on.
pub(super) fn summary(o: &Checked<'_>) -> String {
    let mut out = format!("### gapprobe check: {}\n\n{}\n\n", o.all().words(), plain(&o.sentence()));
    out.push_str("| condition | result | found |\n|---|---|---|\n");
    for j in o.judged {
        let (name, text) = (plain(&name(j)), plain(&visible(&j.text)));
        let _ = writeln!(out, "| {name} | {} | {text} |", j.result.words());
    }
    let _ = writeln!(out, "\nEvidence ({}):\n", plain(&o.title()));
    for said in o.evidence() {
        let _ = writeln!(out, "- {}", plain(&said));
    }
    let trace = plain(&visible(&o.side.name));
    let _ = write!(out, "\nTrace: {trace}");
    out
}

/// Text of which Markdown and HTML take nothing for their own.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\`*_{}[]<>|~&".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_what_they_are_in_a_table() {
        assert_eq!(plain("gemm<float, a|b>, x_y*"), r"gemm\<float, a\|b\>, x\_y\*");
    }
}
