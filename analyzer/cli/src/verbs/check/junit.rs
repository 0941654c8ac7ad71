// SPDX-License-Identifier: Apache-2.0
//! JUnit's XML as Jenkins and GitLab read it: a suite a trace, a test a condition. One that cannot
//! be judged is skipped.

use std::fmt::Write;

use cli::compare::gate::{Answer, Judged};
use verdict::text::escape::visible;

use super::{name, Checked};

/// The document.
pub(super) fn suites(o: &Checked<'_>) -> String {
    let count = |answer: Answer| o.judged.iter().filter(|j| j.result == answer).count();
    let (failed, skipped) = (count(Answer::Failed), count(Answer::Unjudged));
    let suite = escaped(&visible(&format!("gapprobe check {}", o.side.name)));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    let _ = writeln!(
        out,
        "  <testsuite name=\"{suite}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\">",
        o.judged.len()
    );
    o.judged.iter().for_each(|j| case(&mut out, o, j));
    out.push_str("  </testsuite>\n</testsuites>");
    out
}

fn case(out: &mut String, o: &Checked<'_>, judged: &Judged) {
    let text = escaped(&visible(&judged.text));
    let _ = write!(out, "    <testcase classname=\"gapprobe.check\" name=\"{}\"", escaped(&name(judged)));
    let _ = match judged.result {
        Answer::Ok => writeln!(out, "/>"),
        Answer::Unjudged => writeln!(out, ">\n      <skipped>{text}</skipped>\n    </testcase>"),
        Answer::Failed => {
            let (kind, verdict) = (escaped(&o.title()), escaped(&o.sentence()));
            let place = o.place().map(|(file, line)| escaped(&format!("\n{file}:{line}")));
            writeln!(
                out,
                ">\n      <failure type=\"{kind}\" message=\"{text}\">{verdict}{}</failure>\n    </testcase>",
                place.unwrap_or_default()
            )
        }
    };
}

/// Text without hidden characters, of which XML has no control character at all.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
