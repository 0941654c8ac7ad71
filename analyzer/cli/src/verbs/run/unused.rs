// SPDX-License-Identifier: Apache-2.0
//! Did the command use CUDA at all? The library says nothing where it did not, and leaves nothing.
//! So the run leaves an empty file in each private folder (`trace::place::run_mark`), and the first
//! process that records, or says why it does not, takes it away
//! (`injector/src/recording/crashes.rs`). Where all are still there, and no summary came from
//! elsewhere, there was nothing to record: so far, where processes of the run go on. In all doubt
//! nothing is said.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use spool::liveness;
use trace::place;
use trace::setting::{self, Switch};
use verdict::text::plural;

use super::{loads, lost, Args, LIBRARY};
use crate::verbs::{preloadable, recordings, recover};

/// What tells of CUDA while the command runs.
pub(super) struct Watch {
    library: PathBuf,
    marks: Vec<Mark>,
    results: PathBuf,
    summaries: BTreeSet<OsString>,
}

impl Watch {
    /// Before the command, of the run `id`. `None`: nothing will be said, for the library is to be
    /// quiet, or says it itself, or is not ours.
    pub(super) fn begin(args: &Args, library: &Path, id: &str) -> Option<Watch> {
        let value = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let quiet = args.quiet || value(setting::QUIET).is_some_and(|v| v == "1");
        let is_ours = library.file_name().is_some_and(|n| n == LIBRARY);
        // a run around this one says it; a switch that is neither on nor off the library names
        if switch() == Switch::Neither || quiet || !is_ours || value(setting::RUN_ID).is_some() {
            return None;
        }
        let name = place::run_mark(id)?;
        let folders = recordings::private_folders();
        let marks: Vec<Mark> = folders.iter().filter_map(|folder| Mark::leave(folder, &name)).collect();
        let results = args.dir.clone().unwrap_or_else(recover::default_directory);
        let summaries = summaries(&results);
        Some(Watch { library: library.to_owned(), marks, results, summaries })
    }

    /// After the command: no process of it in which gapprobe is on used CUDA.
    pub(super) fn saw_nothing(&self) -> bool {
        !self.marks.is_empty()
            && self.marks.iter().all(|mark| mark.0.symlink_metadata().is_ok())
            && !self.has_results()
            && loads(&self.library).is_some_and(|taken| taken.is_ok())
    }

    /// After the command: what it recorded is gone with it, for no file took it.
    pub(super) fn lost(&self, status: &ExitStatus) -> Option<String> {
        match self.marks.is_empty() {
            true if self.has_results() || switch() == Switch::Off => None,
            true => lost::nowhere(status),
            false => lost::why(),
        }
    }

    fn has_results(&self) -> bool {
        !summaries(&self.results).is_subset(&self.summaries)
    }
}

/// What the command's environment says of gapprobe as a whole.
fn switch() -> Switch {
    Switch::of(std::env::var_os(setting::SWITCH).as_ref().map(|v| v.as_bytes()))
}

/// Processes that have this run's number in their environment and go on behind the command.
fn go_on(id: &str) -> u64 {
    let told = format!("{}={id}", setting::RUN_ID);
    let is_of_it = |pid: &u32| {
        // (of a zombie, or another user's, nothing can be read)
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|b| *b == 0).any(|v| v == told.as_bytes()) && !liveness::is_ending(*pid)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_of_it).count() as u64
}

/// Nothing was recorded of the run `id`: why, as far as it is known.
pub(super) fn why(command: &OsStr, id: &str) -> String {
    let left = go_on(id);
    if left > 0 && switch() != Switch::Off {
        let (these, go) = (plural::of(left, "process", "processes"), plural::of(left, "goes", "go"));
        return format!(
            "gapprobe: nothing was recorded so far; {left} {these} of this run {go} on (gapprobe ps shows those that are recorded)"
        );
    }
    if switch() == Switch::Off {
        let value = std::env::var_os(setting::SWITCH).unwrap_or_default();
        let value = value.to_string_lossy();
        return format!(
            "gapprobe: nothing was recorded: {}={} switches gapprobe off",
            setting::SWITCH,
            value.trim()
        );
    }
    let value = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let (allow, deny) = (value(setting::ALLOW), value(setting::DENY));
    let names = names(command);
    let bytes: Vec<&[u8]> = names.iter().map(|n| n.as_bytes()).collect();
    let shown = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let called = match &names[..] {
        [called, file] if called != file => {
            format!("{} ({})", called.to_string_lossy(), file.to_string_lossy())
        }
        _ => names.first().map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
    };
    let of = |list: &Option<OsString>| list.as_ref().map(|v| v.as_bytes().to_vec());
    let (allow, deny) = (of(&allow), of(&deny));
    let list = setting::kept_out(allow.as_deref(), deny.as_deref(), &bytes);
    let why = match (list.filter(|_| !bytes.is_empty()), deny.as_deref()) {
        (Some((name @ setting::DENY, value)), _) => {
            format!("{name}={} keeps gapprobe out of {called}", shown(value))
        }
        (Some((name, value)), _) => format!(
            "{name}={} does not name {called}, and nothing that it names made a CUDA context",
            shown(value)
        ),
        (None, Some(value)) => {
            format!("{NO_CUDA}; {}={} keeps it out of what it names", setting::DENY, shown(value))
        }
        (None, None) => format!("{NO_CUDA} (gapprobe doctor looks for what is amiss)"),
    };
    format!("gapprobe: nothing was recorded: {why}")
}

const NO_CUDA: &str = "no process with gapprobe in it made a CUDA context";

/// What the command's program is called by, and what its file is called: the two names that the
/// lists know it by.
fn names(command: &OsStr) -> Vec<OsString> {
    let path = std::env::var("PATH").unwrap_or_default();
    let found = preloadable::find(&command.to_string_lossy(), &path)
        .and_then(|file| preloadable::resolve(&file, &path).ok());
    let Some((program, _)) = found else { return Vec::new() };
    let file = program.canonicalize().unwrap_or_else(|_| program.clone());
    [&program, &file].into_iter().filter_map(|p| p.file_name()).map(OsStr::to_owned).collect()
}

fn summaries(folder: &Path) -> BTreeSet<OsString> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.file_name());
    names.filter(|n| n.as_bytes().ends_with(b".summary.json")).collect()
}

/// A file that goes with the run, as does its folder where it is empty then.
struct Mark(PathBuf);

impl Mark {
    /// `None` where the library would not look either: a folder that cannot be made, or in which
    /// others can write.
    fn leave(folder: &Path, name: &str) -> Option<Mark> {
        let _ = DirBuilder::new().mode(0o700).create(folder); // there already: looked at below
        if recordings::distrust(folder).is_some() {
            return None;
        }
        let mark = Mark(folder.join(name));
        File::options().write(true).create_new(true).mode(0o600).open(&mark.0).ok().map(|_| mark)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // gone already is fine
        if let Some(folder) = self.0.parent() {
            let _ = fs::remove_dir(folder); // it stays while it holds anything
        }
    }
}
