// SPDX-License-Identifier: Apache-2.0
//! The summary that a process wrote at its end without a trace: what is made of its recording later
//! takes its place, if it holds as much, and is not written otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trace::Header;

use super::names::prefix;
use crate::analysis::Analysis;
use crate::causes::inconclusive;
use crate::run::Run;

/// Summaries are some ten KB.
const MOST_BYTES: u64 = 16 << 20;

/// A summary that has no trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Earlier {
    /// Where it is.
    pub path: PathBuf,
    /// Its line.
    pub line: String,
    code: String,
    text: String,
    events: u64,
}

/// The summary of this recording's process in `directory`, if it wrote one and no trace.
pub fn find(header: &Header, directory: &Path) -> Option<Earlier> {
    let prefix = prefix(header, None);
    let entries = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let named = |name: &str| name.starts_with(&prefix) && name.ends_with(".summary.json");
    let mut found = entries.filter(|e| e.file_name().to_str().is_some_and(named));
    found.find_map(|e| read(e.path()))
}

/// Did this recording's process write a trace into `directory` of as much as was read of the
/// recording now?
pub fn has_trace_of(header: &Header, directory: &Path, now: &Analysis) -> bool {
    let prefix = prefix(header, None);
    let Ok(entries) = fs::read_dir(directory) else { return false };
    let named = |name: &str| name.starts_with(&prefix) && name.ends_with(".summary.json");
    let mut found = entries.filter_map(Result::ok).filter(|e| e.file_name().to_str().is_some_and(named));
    found.any(|e| {
        let Some(summary) = parse(&e.path()) else { return false };
        let events = summary.pointer("/coverage/events").and_then(Value::as_u64);
        let trace = summary.get("trace").and_then(Value::as_str);
        trace.is_some_and(|t| directory.join(t).is_file()) && events.is_some_and(|n| n >= now.events)
    })
}

fn read(path: PathBuf) -> Option<Earlier> {
    let summary = parse(&path)?;
    let text = |at: &str| summary.pointer(at).and_then(Value::as_str).map(str::to_owned);
    if !summary.get("trace")?.is_null() {
        return None;
    }
    Some(Earlier {
        line: text("/line")?,
        code: text("/verdict/code")?,
        text: text("/verdict/text")?,
        events: summary.pointer("/coverage/events")?.as_u64()?,
        path,
    })
}

fn parse(path: &Path) -> Option<Value> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MOST_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

impl Earlier {
    /// Does it tell more than what was read of the recording now?
    pub fn tells_more_than(&self, run: &Run, now: &Analysis) -> bool {
        let unsure = now.verdict.inconclusive.is_some() && self.code != inconclusive::CODE;
        unsure || now.events < self.events || run.problems.damaged() > 0
    }

    /// Does it give the same verdict?
    pub fn agrees_with(&self, summary: &str) -> bool {
        let Ok(now) = serde_json::from_str::<Value>(summary) else { return false };
        let same = |at: &str, was: &str| now.pointer(at).and_then(Value::as_str) == Some(was);
        same("/verdict/code", &self.code) && same("/verdict/text", &self.text)
    }
}
