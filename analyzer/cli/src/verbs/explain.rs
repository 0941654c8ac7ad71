// SPDX-License-Identifier: Apache-2.0
//! `gapprobe explain TOPIC...`: what a verdict means, how it is recognised, what to change. The
//! text of a cause is the documentation of its file; the settings come from the table every part
//! reads.

use std::fmt::Write;

use serde_json::{json, Map, Value};
use trace::loss::Severity;
use trace::setting::SETTINGS;
use trace::Loss;
use verdict::causes;
use verdict::causes::Cause;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::talk;
use crate::Outcome;

/// Version of the keys of `--json`.
const EXPLAIN_VERSION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  gapprobe explain GP101        what the code in the line means
  gapprobe explain SYNC HOST    the same by name, of several
  gapprobe explain --list       all codes
  gapprobe explain settings     the GAPPROBE_* variables
  gapprobe explain losses       the names behind `losses` in the line
  gapprobe explain --json SYNC | jq .topics[0].example";

/// Explain a code of the line, the settings, or the names of losses
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Codes (GP101), their names (SYNC), `settings` or `losses`; nothing lists the codes
    #[arg(value_name = "TOPIC")]
    topics: Vec<String>,
    /// List the codes
    #[arg(long, conflicts_with = "topics")]
    list: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
    /// As Markdown (docs/settings.md and docs/losses.md are made so)
    #[arg(long, hide = true)]
    markdown: bool,
}

/// What can be explained.
enum Topic {
    Cause(&'static Cause),
    Settings,
    Losses,
}

impl Topic {
    fn find(topic: &str) -> Result<Topic, Failure> {
        if topic.eq_ignore_ascii_case("settings") {
            return Ok(Topic::Settings);
        }
        if topic.eq_ignore_ascii_case("losses") {
            return Ok(Topic::Losses);
        }
        causes::find(topic).map(Topic::Cause).ok_or_else(|| {
            let known: Vec<&str> = causes::ALL.iter().map(|c| c.code).collect();
            Failure::new(Exit::WrongUse, format!("no code {topic:?}"))
                .hint(format!("one of {}, their names (SYNC), settings, or losses", known.join(", ")))
        })
    }

    fn text(&self, markdown: bool) -> String {
        match (self, markdown) {
            (Topic::Cause(cause), _) => cause.doc(),
            (Topic::Settings, false) => settings(),
            (Topic::Settings, true) => settings_page(),
            (Topic::Losses, false) => losses(),
            (Topic::Losses, true) => losses_page(),
        }
    }

    /// What it is; keys are part of the interface: added, not renamed.
    fn object(&self) -> Map<String, Value> {
        let (code, name, title) = match self {
            Topic::Cause(cause) => (Some(cause.code), cause.name, cause.title()),
            Topic::Settings => (None, "settings", "the GAPPROBE_* variables"),
            Topic::Losses => (None, "losses", "the counters of what is missing"),
        };
        [("code", json!(code)), ("name", json!(name)), ("title", json!(title))]
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect()
    }

    /// The same with its text.
    fn whole(&self) -> Map<String, Value> {
        let (mut object, text) = (self.object(), self.text(false));
        object.insert("example".to_owned(), json!(example(&text)));
        object.insert("text".to_owned(), json!(text.trim_end()));
        object
    }
}

/// The code of a page's example.
fn example(page: &str) -> Option<&str> {
    let (_, block) = page.split_once("```")?.1.split_once('\n')?;
    Some(block.split_once("```")?.0)
}

/// Prints the text.
pub(crate) fn run(args: &Args) -> Outcome {
    let topics = args.topics.iter().map(|t| Topic::find(t)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let all = [Topic::Settings, Topic::Losses].into_iter();
        let topics: Vec<_> = match topics.as_slice() {
            [] => causes::ALL.iter().map(Topic::Cause).chain(all).map(|t| t.object()).collect(),
            topics => topics.iter().map(Topic::whole).collect(),
        };
        let object = json!({"explain_version": EXPLAIN_VERSION, "topics": topics});
        talk::print_json(format!("{object:#}"))?;
        return Ok(Exit::Ok);
    }
    let texts: Vec<String> = match topics.as_slice() {
        [] => vec![codes()],
        topics => topics.iter().map(|t| t.text(args.markdown)).collect(),
    };
    talk::print(texts.join("\n").trim_end())?;
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
    let width = causes::ALL.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for cause in causes::ALL {
        let _ = writeln!(text, "{}  {:<width$} {}", cause.code, cause.name, cause.title());
    }
    text
}
