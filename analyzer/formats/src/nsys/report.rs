// SPDX-License-Identifier: Apache-2.0
//! nsys's own report file (`.nsys-rep`, `.qdrep`): only nsys can read it. Where it is installed it
//! makes the export, else the message says how.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::scratch::Scratch;
use crate::ReadError;

/// How such a file begins.
pub(crate) const MAGIC: &[u8] = b"NVIDIA Tegra Profiler Report";

/// So much of what nsys says goes into the message, bytes from its end.
const MOST_SAID: usize = 800;

/// Has nsys export `report` into a file of `scratch`.
pub(super) fn export(report: &Path, scratch: &Scratch) -> Result<PathBuf, ReadError> {
    let Some(nsys) = find("nsys", std::env::var_os("PATH").as_deref()) else {
        return Err(ReadError::new(
            "an nsys report; nsys, which alone can read it, is not in PATH",
            by_hand(report),
        ));
    };
    let report_path = report.canonicalize().map_err(|e| ReadError::io(&e))?;
    let to = scratch.file("export.sqlite");
    let mut output = OsString::from("--output=");
    output.push(&to);
    let done = Command::new(&nsys)
        .args(["export", "--type=sqlite", "--force-overwrite=true"])
        .arg(output)
        .arg(&report_path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| ReadError::new(format!("{} cannot be run: {e}", nsys.display()), by_hand(report)))?;
    if done.status.success() && to.is_file() {
        return Ok(to);
    }
    let said = if done.stderr.trim_ascii().is_empty() { &done.stdout } else { &done.stderr };
    Err(ReadError::new(
        format!("{} export failed ({}): {}", nsys.display(), done.status, last(said)),
        "a report can only be read by an nsys at least as new as the one that wrote it: export it where it was recorded",
    ))
}

fn by_hand(report: &Path) -> String {
    format!(
        "export it where nsys is installed: nsys export --type sqlite -o {} {}",
        report.with_extension("sqlite").display(),
        report.display()
    )
}

/// A program, as the shell would find it.
fn find(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}

/// The end of what a program said, on one line.
fn last(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said.get(said.len().saturating_sub(MOST_SAID)..).unwrap_or(&[]));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines.join("; ")
}
