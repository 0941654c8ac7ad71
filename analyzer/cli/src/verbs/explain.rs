// SPDX-License-Identifier: Apache-2.0
//! `gapprobe explain CODE`: what a verdict means, how it is recognised, what to change. The text of
//! a cause is the documentation of its file; the settings come from the table every part reads.

use std::fmt::Write;

use trace::loss::Severity;
use trace::setting::SETTINGS;
use trace::Loss;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::talk;
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe explain GP101        what the code in the line means
  gapprobe explain SYNC         the same by name
  gapprobe explain              all codes
  gapprobe explain settings     the GAPPROBE_* variables
  gapprobe explain losses       the names behind `losses` in the line";

/// Explain a code of the line, the settings, or the names of losses
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// A code (GP101), its name (SYNC), `settings` or `losses`; nothing lists the codes
    topic: Option<String>,
    /// As Markdown (docs/settings.md and docs/losses.md are made so)
    #[arg(long, hide = true)]
    markdown: bool,
}

/// Prints the text.
pub(crate) fn run(args: &Args) -> Outcome {
    let text = match args.topic.as_deref() {
        None => codes(),
        Some(t) if t.eq_ignore_ascii_case("settings") => {
            if args.markdown {
                settings_page()
            } else {
                settings()
            }
        }
        Some(t) if t.eq_ignore_ascii_case("losses") => match args.markdown {
            true => losses_page(),
            false => losses(),
        },
        Some(t) => cause(t)?,
    };
    talk::print(text.trim_end())?;
    Ok(Exit::Ok)
}

/// The variables, for a terminal.
fn settings() -> String {
    let mut text = String::new();
    for s in SETTINGS.iter().filter(|s| !s.internal) {
        let default = if s.default.is_empty() { "none" } else { s.default };
        let _ = writeln!(text, "{} (default {default}, since {})\n    {}", s.name, s.since, s.meaning);
    }
    text
}

/// The variables as docs/settings.md.
fn settings_page() -> String {
    let mut text = String::from(
        "<!-- Made by scripts/dev/settings from trace/src/setting.rs: change it there. -->\n\
         # Settings\n\n\
         gapprobe is set by environment variables. `gapprobe run` has options for the most used ones. A value that\n\
         makes no sense is named in one line on stderr, and the default holds (of `GAPPROBE` itself: off).\n\n\
         | variable | default | since | meaning |\n|---|---|---|---|\n",
    );
    for s in SETTINGS.iter().filter(|s| !s.internal) {
        let default = if s.default.is_empty() { String::new() } else { format!("`{}`", s.default) };
        let _ =
            writeln!(text, "| `{}` | {default} | {} | {} |", s.name, s.since, s.meaning.replace('|', "\\|"));
    }
    text
}

/// The counters of losses, for a terminal.
fn losses() -> String {
    let mut text = String::new();
    for l in Loss::ALL {
        let _ = writeln!(text, "{} ({})\n    {}", l.key(), severity(*l), l.sentence());
    }
    text
}

/// The counters of losses as docs/losses.md.
fn losses_page() -> String {
    let mut text = String::from(
        "<!-- Made by scripts/dev/settings from trace/src/loss.rs: change it there. -->\n\
         # Losses\n\n\
         What can be missing from a recording, or go wrong while it is made. The line has the sum of all and the name of the\n\
         most frequent (`losses 182 (mirror_write)`), the summary each. *data*: operations or calls are\n\
         missing, and figures around them may be off (too much of it, and the verdict is INCONCLUSIVE). *note*: no operation of\n\
         a GPU and no call is missing.\n\n\
         | name | | so many ... |\n|---|---|---|\n",
    );
    for l in Loss::ALL {
        let _ = writeln!(text, "| `{}` | {} | {} |", l.key(), severity(*l), l.sentence().replace('|', "\\|"));
    }
    text
}

fn severity(loss: Loss) -> &'static str {
    match loss.severity() {
        Severity::Note => "note",
        Severity::Data => "data",
    }
}

/// All codes, one a line.
fn codes() -> String {
    let mut text = String::new();
    let width = verdict::causes::ALL.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for cause in verdict::causes::ALL {
        let _ = writeln!(text, "{}  {:<width$} {}", cause.code, cause.name, cause.title());
    }
    text
}

/// The text of one cause, by code or name.
fn cause(topic: &str) -> Result<String, Failure> {
    verdict::causes::find(topic).map(|c| c.doc()).ok_or_else(|| {
        let known: Vec<&str> = verdict::causes::ALL.iter().map(|c| c.code).collect();
        Failure::new(Exit::WrongUse, format!("no code {topic:?}"))
            .hint(format!("one of {}, their names (SYNC), settings, or losses", known.join(", ")))
    })
}
