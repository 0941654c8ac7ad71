// SPDX-License-Identifier: Apache-2.0
//! Recordings on disk: the private folders they lie in, opening one (`source.rs`), finding those of
//! ended processes.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use spool::leftovers;
use spool::liveness::Life;
use spool::retention;
use spool::retention::{Keep, Lock};
use trace::header::{state, HeaderError, HEADER_BYTES, MAGIC, STATE_AT};
use trace::{place, setting, Header, OpenError, Recording, Source};
use verdict::text::escape::word;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::living;
use crate::verbs::process::{self, user_id, Claim};
use crate::verbs::talk;

mod source;

pub(crate) use source::FileSource;

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
    let source = FileSource::open(path)?;
    let mut bytes = [0; HEADER_BYTES];
    let header = if source.read_at(0, &mut bytes) {
        Header::decode(&bytes).map_err(OpenError::Header)
    } else {
        Err(too_short(&source))
    };
    let header = header.map_err(|e| {
        named(&e).hint(match e {
            OpenError::TooShort(_) => "the disk was full, or the program ended before its first write",
            OpenError::Header(_) => {
                "recordings are files *.gpr; a trace (.json.gz) is shown by gapprobe analyze and gapprobe open"
            }
        })
    })?;
    let modified = fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let life = source.life(&header);
    Ok((source, Found { path: path.to_owned(), header, life, modified }))
}

/// Of a file without room for a header: the begin of a recording, or none at all.
fn too_short(source: &FileSource) -> OpenError {
    let magic = MAGIC.to_le_bytes();
    let mut begin = vec![0; (source.len() as usize).min(magic.len())];
    match source.read_at(0, &mut begin) && !magic.starts_with(&begin) {
        true => OpenError::Header(HeaderError::NotARecording),
        false => OpenError::TooShort(source.len()),
    }
}

impl Found {
    /// What can be made of it has been made: it is not looked for again. Where the file cannot be
    /// written it is.
    pub(crate) fn note_reported(&self) {
        // (that its process was killed stays told)
        let state = if self.header.is_unfinished() { state::REPORTED_UNFINISHED } else { state::REPORTED };
        if let Ok(file) = fs::OpenOptions::new().write(true).open(&self.path) {
            let _ = file.write_all_at(&state.to_le_bytes(), STATE_AT as u64);
        }
    }

    /// Trace and line were already written from it.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self.header.state, state::REPORTED | state::REPORTED_UNFINISHED)
    }

    /// Its process has said its line, and could not write all that belongs to it.
    pub(crate) fn is_spoken(&self) -> bool {
        self.header.state == state::LINE_SAID
    }

    /// Looks again: whether its process lives, then what its header says by now. The last word of
    /// one that has ended is in it.
    pub(crate) fn look_again(&mut self, source: &FileSource) {
        self.life = source.life(&self.header);
        self.header = living::header_now(source).unwrap_or_else(|| self.header.clone());
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

/// Whether the recording carries the attribute [`trace::define::RUN`] with this value.
pub(crate) fn has_run_id(source: &FileSource, id: &str) -> bool {
    Recording::open(source)
        .is_ok_and(|r| r.definitions.attributes().any(|(k, v)| k == trace::define::RUN && v == id))
}

/// The recording's attribute of this name.
pub(crate) fn attribute(source: &FileSource, key: &str) -> Option<String> {
    let recording = Recording::open(source).ok()?;
    let found = recording.definitions.attributes().find(|(k, _)| *k == key).map(|(_, v)| v.to_owned());
    found
}

/// The folders the library may have recorded to, in its order. All of them are looked into: why it
/// passed one over (a network file system, no right to write) may be known to its process alone.
pub(crate) fn private_folders() -> Vec<PathBuf> {
    let (tmpdir, test_root) = (std::env::var_os("TMPDIR"), std::env::var_os(setting::TEST_ROOT));
    let roots = place::roots(tmpdir.as_deref(), test_root.as_deref());
    roots.iter().map(|root| place::folder(root, user_id())).collect()
}

/// What the user wants kept of earlier results and recordings.
pub(crate) fn keep() -> Keep {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.trim().parse().ok());
    Keep::new(number(setting::KEEP_MB), number(setting::KEEP_DAYS))
}

/// A file or directory is ours for as long as it is open.
pub(crate) const LOCK: Lock = |file| process::claim(file) == Claim::Ours;

/// Removes recordings beyond the limits, and says so.
pub(crate) fn keep_within_limits() {
    let folders = private_folders().into_iter().filter(|f| f.is_dir() && distrust(f).is_none());
    let gone: usize = folders.map(|f| retention::recordings(&f, keep().of_recordings(), LOCK, None)).sum();
    if gone > 0 {
        talk::say(format!(
            "gapprobe: removed {gone} recording(s) that nobody recovered (GAPPROBE_KEEP_MB, GAPPROBE_KEEP_DAYS)"
        ));
    }
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

/// What lies in one or more folders.
#[derive(Default)]
pub(crate) struct Listing {
    /// Recordings, newest first.
    pub(crate) found: Vec<Found>,
    /// Files that end as recordings do and cannot be read as such.
    pub(crate) unreadable: Vec<Failure>,
    /// Private folders that cannot be read, or that others could have put files into: not looked
    /// at.
    pub(crate) not_looked_at: Vec<Failure>,
}

/// Everything in one folder.
///
/// # Errors
/// Where the folder cannot be read; a missing one is empty.
pub(crate) fn list(folder: &Path) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(listing)
        }
        Err(e) => return Err(Failure::new(Exit::Problem, format!("{}: {e}", folder.display()))),
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let recording = path.extension() == Some(OsStr::new(place::RECORDING));
        if !recording || !entry.file_type().is_ok_and(|t| t.is_file()) {
            continue;
        }
        match look(&path) {
            Ok((_, found)) => listing.found.push(found),
            Err(_) if !path.exists() => {} // reported meanwhile
            Err(failure) => listing.unreadable.push(failure),
        }
    }
    listing.sort();
    Ok(listing)
}

/// Everything in the private folders, after leftovers of dead processes were removed from them.
pub(crate) fn list_private() -> Listing {
    let mut all = Listing::default();
    for folder in private_folders() {
        if let Some(why) = distrust(&folder) {
            all.not_looked_at.push(
                Failure::new(Exit::Problem, format!("{why}: not used")).hint(format!(
                    "look what it is, then remove it: rm -r {}",
                    word(&folder.to_string_lossy())
                )),
            );
            continue;
        }
        leftovers::recordings(&folder, None);
        match list(&folder) {
            Ok(mut one) => {
                all.found.append(&mut one.found);
                all.unreadable.append(&mut one.unreadable);
            }
            Err(failure) => all.not_looked_at.push(failure),
        }
    }
    all.sort();
    all
}

impl Listing {
    fn sort(&mut self) {
        self.found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.path.cmp(&a.path)));
        self.unreadable.sort_by(|a, b| a.what.cmp(&b.what));
    }
}
