// SPDX-License-Identifier: Apache-2.0
//! What Perfetto is to show of a trace, and the URL that says so: the why-idle track and the steps
//! pinned, the worst steady step in view. The URL's parameters are documented:
//! <https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui>.

use cli::tables::steps;
use percent_encoding::{utf8_percent_encode, AsciiSet, NON_ALPHANUMERIC};
use serde_json::json;
use verdict::analysis::Analysis;
use verdict::run::{Run, Span};

/// What RFC 3986 never encodes.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Names of tracks to pin, as a regular expression of JavaScript: those of
/// `verdict::output::chrome`, behind which Perfetto puts a number.
const PINNED: &str = "^(steps|(GPU \\d+ )?why idle)( |$)";

/// Beside the step so much of it is shown, in parts.
const MARGIN: u64 = 20;

/// What is in view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct View {
    /// From where to where, in the run's time.
    pub(super) shown: Span,
    /// The step's number, as the trace names it.
    pub(super) step: u32,
}

/// The worst steady step; `None` without steps.
pub(super) fn of(run: &Run, analysis: &Analysis) -> Option<View> {
    let worst = steps::worst(run, analysis)?;
    // Perfetto takes no view beyond the trace; all of these are in it
    let all = analysis.steps.all();
    let (begin, end) = (all.first()?.span.start, all.iter().map(|s| s.span.end).max()?);
    let margin = worst.span.ns() / MARGIN;
    let from = worst.span.start.saturating_sub(margin).max(begin);
    let to = worst.span.end.saturating_add(margin).min(end);
    Some(View { shown: Span::new(from, to), step: worst.number })
}

/// A name or value in a URL.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The URL of the page `ui` that fetches the trace from `file` and shows `view`; `zero`: the run's
/// time of the trace's stamp 0.
pub(super) fn url(ui: &str, file: &str, view: Option<View>, zero: u64) -> String {
    let pin = json!([{"id": "dev.perfetto.PinTracksByRegex", "args": [PINNED]}]).to_string();
    let mut url = format!("{ui}/#!/?url={}&startupCommands={}", encoded(file), encoded(&pin));
    if let Some(View { shown, .. }) = view {
        let at = |time: u64| time.saturating_sub(zero);
        url += &format!("&visStart={}&visEnd={}", at(shown.start), at(shown.end));
    }
    url
}
