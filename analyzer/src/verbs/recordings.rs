// SPDX-License-Identifier: Apache-2.0
//! Recordings on disk: the private folder they lie in, opening one, finding those of ended processes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trace::header::{state, HEADER_BYTES};
use trace::{Header, OpenError, Recording, Source};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::process::{life, user_id, Life};

/// File name ending of recordings.
const ENDING: &str = "gpr";

/// A recording in a file. The length is taken once: a growing file is read as far as it was.
pub(crate) struct FileSource {
    file: File,
    length: u64,
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        self.file.read_exact_at(out, offset).is_ok()
    }
}

impl FileSource {
    /// Opens the file.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(path: &Path) -> io::Result<FileSource> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        Ok(FileSource { file, length: meta.len() })
    }
}

/// A recording found, its header read.
pub(crate) struct Found {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its header.
    pub(crate) header: Header,
    /// Whether its process lives.
    pub(crate) life: Life,
    /// Last written.
    pub(crate) modified: SystemTime,
}

/// The header of the recording at `path`.
///
/// # Errors
/// [`Exit::Unreadable`], naming the file and the place in it.
pub(crate) fn look(path: &Path) -> Result<(FileSource, Found), Failure> {
    let named =
        |e: &dyn std::fmt::Display| Failure::new(Exit::Unreadable, format!("{}: {e}", path.display()));
    let source = FileSource::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => named(&"no such file").hint("gapprobe recover --list shows what there is"),
        io::ErrorKind::PermissionDenied => {
            named(&e).hint("a recording belongs to the user whose program it recorded")
        }
        _ => named(&e),
    })?;
    let mut bytes = [0; HEADER_BYTES];
    let header = if source.read_at(0, &mut bytes) {
        Header::decode(&bytes).map_err(OpenError::Header)
    } else {
        Err(OpenError::TooShort(source.len()))
    };
    let header = header.map_err(|e| {
        named(&e).hint(match e {
            OpenError::TooShort(_) => "the disk was full, or the program ended before its first write",
            OpenError::Header(_) => {
                "recordings are files *.gpr; a trace (.json.gz) is opened with https://ui.perfetto.dev"
            }
        })
    })?;
    let modified = fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let life = life(&header);
    Ok((source, Found { path: path.to_owned(), header, life, modified }))
}

impl Found {
    /// Trace and line were already written from it.
    pub(crate) fn is_reported(&self) -> bool {
        self.header.state == state::REPORTED
    }

    /// `python train.py (host node1, pid 17)`.
    pub(crate) fn title(&self) -> String {
        let h = &self.header;
        let command = if h.command.is_empty() { "unknown command" } else { &h.command };
        let end = command.char_indices().nth(60).map_or(command.len(), |(i, _)| i);
        let dots = if end < command.len() { "…" } else { "" };
        let rank = if h.rank > 0 { format!(", rank {}", h.rank - 1) } else { String::new() };
        format!("{}{dots} (host {}, pid {}{rank})", &command[..end], h.host, h.pid)
    }
}

/// Whether the recording carries the attribute `run.id` with this value.
pub(crate) fn has_run_id(source: &FileSource, id: &str) -> bool {
    Recording::open(source).is_ok_and(|r| r.definitions.attributes().any(|(k, v)| k == "run.id" && v == id))
}

/// The folder recordings are written to: `${TMPDIR:-/tmp}/gapprobe-<uid>`.
pub(crate) fn private_folder() -> PathBuf {
    let temporary = std::env::var_os("TMPDIR").filter(|v| !v.is_empty()).unwrap_or_else(|| "/tmp".into());
    PathBuf::from(temporary).join(format!("gapprobe-{}", user_id()))
}

/// What is wrong with a private folder: another user could have put files there.
pub(crate) fn distrust(folder: &Path) -> Option<String> {
    let meta = fs::symlink_metadata(folder).ok()?;
    let wrong = if meta.is_symlink() {
        "is a symbolic link".to_owned()
    } else if !meta.is_dir() {
        "is not a directory".to_owned()
    } else if meta.uid() != user_id() {
        format!("belongs to user {}, not to you", meta.uid())
    } else if meta.mode() & 0o077 != 0 {
        format!("is open to other users (mode {:o})", meta.mode() & 0o7777)
    } else {
        return None;
    };
    Some(format!("{} {wrong}", folder.display()))
}

/// All recordings of a folder, newest first. Files that are none are passed over.
///
/// # Errors
/// Where the folder cannot be read; a missing one is empty.
pub(crate) fn list(folder: &Path) -> Result<Vec<Found>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::new(Exit::Problem, format!("{}: {e}", folder.display()))),
    };
    let mut found: Vec<Found> = entries
        .flatten()
        .filter(|e| e.path().extension() == Some(OsStr::new(ENDING)))
        .filter(|e| e.file_type().is_ok_and(|t| t.is_file()))
        .filter_map(|e| look(&e.path()).ok())
        .map(|(_, found)| found)
        .collect();
    found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.path.cmp(&a.path)));
    Ok(found)
}
