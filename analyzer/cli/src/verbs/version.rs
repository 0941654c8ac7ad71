// SPDX-License-Identifier: Apache-2.0
//! `gapprobe --version`: what this command, and the library that it injects, were built from.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::{json, Value};
use spool::elf::{self, Head, SHT_NOTE};
use trace::header::{VERSION_MAJOR, VERSION_MINOR};

use crate::verbs::exit::Exit;
use crate::verbs::{run, talk};
use crate::Outcome;

/// Version of the keys of `--json`.
const VERSION_VERSION: u32 = 1;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// scripts/build tells it.
const COMMIT: Option<&str> = option_env!("GAPPROBE_COMMIT");

/// Bytes of a table of notes, at most.
const MAX_NOTES: u64 = 4096;

/// Prints it.
pub(crate) fn print(as_json: bool) -> Outcome {
    match as_json {
        true => talk::print_json(format!("{:#}", object()))?,
        false => talk::print(format!("gapprobe {VERSION}"))?,
    }
    Ok(Exit::Ok)
}

/// Keys are part of the interface: added, not renamed.
fn object() -> Value {
    let library = run::beside().map(|path| {
        let text = build_note(&path).unwrap_or_default();
        let (version, commit) = text.split_once(' ').unwrap_or((&text, ""));
        json!({
            "file": path.display().to_string(),
            "version": (!version.is_empty()).then_some(version),
            "commit": (!commit.is_empty()).then_some(commit),
        })
    });
    json!({
        "version_version": VERSION_VERSION,
        "version": VERSION,
        "commit": COMMIT.filter(|commit| !commit.is_empty()),
        "recording": format!("{VERSION_MAJOR}.{VERSION_MINOR}"),
        "library": library,
    })
}

/// Version and commit as the library's file has them, without loading it.
fn build_note(library: &Path) -> Option<String> {
    let file = File::open(library).ok()?;
    let head = Head::read(&file)?;
    let (_, count) = head.sections()?;
    let sections = (0..count).filter_map(|n| head.section(&file, n));
    sections.filter(|s| s.kind == SHT_NOTE && s.length <= MAX_NOTES).find_map(|section| {
        let mut notes = vec![0; section.length as usize];
        file.read_exact_at(&mut notes, section.at).ok()?;
        let text = elf::note(&notes, elf::BUILD_NOTE)?;
        Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    })
}
