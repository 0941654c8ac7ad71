// SPDX-License-Identifier: Apache-2.0
//! The CPythons of this machine: pyenv's, those that `scripts/cpython` unpacked, the system's.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::built::root;
use crate::{skipped, thorough};

/// The versions whose frames are read, the newest last; "3.13t" is free-threaded.
pub const READ: [&str; 9] = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13t", "3.13", "3.14", "3.15"];

/// A python of this version.
pub fn python(version: &str) -> Option<PathBuf> {
    let home = std::env::var_os("PYENV_ROOT").map_or_else(|| PathBuf::from("/root/.pyenv"), PathBuf::from);
    let mut found: Vec<PathBuf> = std::fs::read_dir(home.join("versions"))
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy();
            let (number, own) = (version.trim_end_matches('t'), name.trim_end_matches('t'));
            own.starts_with(&format!("{number}.")) && name.ends_with('t') == version.ends_with('t')
        })
        .map(|p| p.join(if version == "2.7" { "bin/python" } else { "bin/python3" }))
        .filter(|p| p.is_file())
        .collect();
    found.sort();
    let tools = std::env::var_os("GAPPROBE_TOOLS").map_or_else(|| root().join(".tools"), PathBuf::from);
    let name = format!("python{version}");
    let others =
        [tools.join(format!("cpython/{version}/usr/bin/{name}")), PathBuf::from("/usr/bin").join(&name)];
    found.pop().or_else(|| others.into_iter().find(|p| p.is_file()))
}

/// The pythons of `versions` that are here, the first and the last of them unless it is
/// [`thorough`]; those that are not here are named. `GAPPROBE_PYTHONS="3.14 3.15"`: these only.
pub fn pythons(versions: &[&'static str]) -> Vec<(&'static str, PathBuf)> {
    let only = std::env::var("GAPPROBE_PYTHONS").unwrap_or_default();
    let is_wanted = |v: &&&str| only.is_empty() || only.split_whitespace().any(|o| o == **v);
    let all = versions.iter().filter(is_wanted).filter_map(|v| {
        let found = python(v);
        if found.is_none() {
            skipped(format!("no Python {v} on this machine, its frames were not compared"));
        }
        Some((*v, found?))
    });
    let mut all: Vec<_> = all.collect();
    if only.is_empty() && !thorough() && all.len() > 2 {
        all.drain(1..all.len() - 1);
    }
    all
}

/// The interpreter that has a PyTorch without CUDA, where `scripts/cpu-torch` finds or installs
/// one; else the reason is said once, with `what` it was for.
pub fn with_torch(what: &str) -> Option<&'static PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PYTHON.get_or_init(|| {
        let output = Command::new(root().join("scripts/cpu-torch")).output().expect("scripts/cpu-torch");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            skipped(format!("{what}: {}", text(&output.stderr)));
            return None;
        }
        Some(PathBuf::from(text(&output.stdout)))
    });
    found.as_ref()
}
