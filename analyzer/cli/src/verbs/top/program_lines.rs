// SPDX-License-Identifier: Apache-2.0
//! The lines of the program that a process's GPUs work for, below its rows and in JSON.

use cli::live::lines::Line;
use cli::terminal_width;
use serde_json::{json, Value};
use verdict::text::escape::visible;
use verdict::text::plural::counted;

use crate::verbs::watched::Watched;

/// Of a process, each in at most so many columns.
pub(super) fn texts(w: &Watched, most: Option<usize>) -> Vec<String> {
    let lines = w.figures.as_ref().map(|f| f.lines.as_deref());
    let texts = match lines {
        Some(Some([])) | None => vec!["-".to_owned()],
        Some(None) => vec!["no lines recorded".to_owned()],
        Some(Some(lines)) => lines.iter().map(text).collect(),
    };
    let fitting = |text: String| match most {
        Some(most) => terminal_width::middle(&text, most).into_owned(),
        None => text,
    };
    texts.iter().map(|text| fitting(format!("    {}", visible(text)))).collect()
}

/// `62% of its GPU time: net.py:12 in Net.forward (blocks.0.up and 11 other modules)`.
fn text(line: &Line) -> String {
    let place = line.line.as_deref().unwrap_or("unattributed");
    let module = match (line.module.as_deref(), line.modules) {
        (None, _) => String::new(),
        (Some(module), ..=1) => format!(" ({module})"),
        (Some(module), of) => format!(" ({module} and {})", counted(of as u64 - 1, "other module")),
    };
    format!("{:>3.0}% of its GPU time: {place}{module}", line.share * 100.0)
}

/// Keys are part of the interface: added, not renamed.
pub(super) fn objects(w: &Watched) -> Value {
    let one = |l: &Line| {
        json!({
            "line": l.line, "module": l.module, "modules": l.modules, "gpu_ns": l.gpu_ns, "share": l.share,
        })
    };
    let lines = w.figures.as_ref().and_then(|f| f.lines.as_ref());
    lines.map_or(Value::Null, |lines| lines.iter().map(one).collect())
}
