// SPDX-License-Identifier: Apache-2.0
//! Did the command use CUDA at all? The library says nothing where it did not, and leaves nothing. So the run leaves an empty file in each
//! private folder (`trace::place::run_mark`), and the first process that records, or says why it does not, takes it away
//! (`injector/src/crashes.rs`). Where all are still there, and no summary came from elsewhere, there was nothing to record. In all doubt
//! nothing is said.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trace::place;
use trace::setting::{self, Switch};

use super::{loads, Args, LIBRARY};
use crate::verbs::{recordings, recover};

/// What tells of CUDA while the command runs.
pub(super) struct Watch {
    library: PathBuf,
    marks: Vec<Mark>,
    results: PathBuf,
    summaries: BTreeSet<OsString>,
}

impl Watch {
    /// Before the command, of the run `id`. `None`: nothing will be said, for the library is to be quiet, or off, or is not ours; or no
    /// mark can be left.
    pub(super) fn begin(args: &Args, library: &Path, id: &str) -> Option<Watch> {
        let value = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let is_on = match Switch::of(std::env::var_os(setting::SWITCH).as_ref().map(|v| v.as_bytes())) {
            Switch::Unset | Switch::On => true,
            Switch::Off | Switch::Neither => false,
        };
        let quiet = args.quiet || value(setting::QUIET).is_some_and(|v| v == "1");
        // lists of programs; a run around this one, which says it
        let others = [setting::ALLOW, setting::DENY, setting::RUN_ID];
        let is_ours = library.file_name().is_some_and(|n| n == LIBRARY);
        if !is_on || quiet || !is_ours || others.into_iter().any(|name| value(name).is_some()) {
            return None;
        }
        let name = place::run_mark(id)?;
        let folders = recordings::private_folders();
        let marks: Vec<Mark> = folders.iter().filter_map(|folder| Mark::leave(folder, &name)).collect();
        let results = args.dir.clone().unwrap_or_else(recover::default_directory);
        let summaries = summaries(&results);
        (!marks.is_empty()).then(|| Watch { library: library.to_owned(), marks, results, summaries })
    }

    /// After the command: no process of it in which gapprobe is on used CUDA.
    pub(super) fn saw_nothing(&self) -> bool {
        self.marks.iter().all(|mark| mark.0.symlink_metadata().is_ok())
            && summaries(&self.results).is_subset(&self.summaries)
            && loads(&self.library).is_some_and(|taken| taken.is_ok())
    }
}

fn summaries(folder: &Path) -> BTreeSet<OsString> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.file_name());
    names.filter(|n| n.as_bytes().ends_with(b".summary.json")).collect()
}

/// A file that goes with the run, as does its folder where it is empty then.
struct Mark(PathBuf);

impl Mark {
    /// `None` where the library would not look either: a folder that cannot be made, or in which others can write.
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
