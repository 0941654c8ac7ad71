// SPDX-License-Identifier: Apache-2.0
//! Files that verbs write: their default names, and that no other file is lost by them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use verdict::text::escape::word;

use crate::verbs::exit::{Exit, Failure};

/// Endings that say what kind of file a trace is, not which.
const KINDS: [&str; 8] = [".gz", ".json", ".gpr", ".gprec", ".sqlite", ".nsys-rep", ".pt", ".trace"];

/// Before anything is read: is there a file of this name that must stay? Only regular files are
/// ever replaced (a rename over /dev/null would take it from the whole machine), and never one of
/// the `inputs`.
///
/// # Errors
/// [`Exit::Problem`] where it must stay, [`Exit::WrongUse`] where it is no file, or an input.
pub(crate) fn is_free(output: &Path, force: bool, inputs: &[&Path]) -> Result<(), Failure> {
    let wrong = |what: &str| Failure::new(Exit::WrongUse, format!("{} is {what}", output.display()));
    let Ok(there) = output.symlink_metadata() else { return Ok(()) };
    if there.is_dir() {
        return Err(wrong("a directory").hint("-o takes the file's own name"));
    }
    if !force {
        return Err(taken(output));
    }
    if !there.is_file() {
        return Err(
            wrong("no regular file, and would be replaced").hint("-o names a file that gapprobe may make")
        );
    }
    let same =
        |input: &&Path| input.metadata().is_ok_and(|i| (i.dev(), i.ino()) == (there.dev(), there.ino()));
    if inputs.iter().any(same) {
        return Err(wrong("the trace itself").hint("-o names another file"));
    }
    Ok(())
}

fn taken(output: &Path) -> Failure {
    Failure::new(Exit::Problem, format!("{} is there already", output.display()))
        .hint("--force replaces it, -o names another")
}

/// Is `directory`, named by `option`, one? What is not there can be made; what is there and is none
/// cannot.
///
/// # Errors
/// [`Exit::Problem`], with the way out.
pub(crate) fn is_directory(directory: &Path, option: &str) -> Result<(), Failure> {
    let shown = directory.display();
    let another = format!("{option} names a directory");
    let (what, hint) = match directory.metadata() {
        Ok(there) if there.is_dir() => return Ok(()),
        Ok(there) if there.is_file() => (format!("{shown} is a file, not a directory"), another),
        Ok(_) => (format!("{shown} is not a directory"), another),
        Err(_) if directory.is_symlink() => {
            (format!("{shown} is a link that leads to no directory"), another)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let make = format!("mkdir -p {}", word(&directory.to_string_lossy()));
            (format!("{shown} is not there"), make)
        }
        Err(e) => (format!("{shown}: {e}"), another),
    };
    Err(Failure::new(Exit::Problem, format!("{option}: {what}")).hint(hint))
}

/// Can files be written into `directory`, named by `option`? Tried with a page of a file, which is
/// removed: root may write by all rights, and not on a disk that is full or mounted read-only.
///
/// # Errors
/// [`Exit::Problem`], with the way out.
pub(crate) fn takes_files(directory: &Path, option: &str) -> Result<(), Failure> {
    try_file(directory).map_err(|e| {
        let shown = directory.display();
        let advice = match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!(
                    "make room (df -h {}), or {option} names another directory",
                    word(&directory.to_string_lossy())
                )
            }
            _ => format!("{option} names a directory that you can write"),
        };
        Failure::new(Exit::Problem, format!("{option}: {shown} cannot be written: {e}")).hint(advice)
    })
}

/// Writes a page of a file into `directory`, and removes it.
pub(crate) fn try_file(directory: &Path) -> io::Result<()> {
    let temporary = directory.join(format!(".gapprobe-{}.tmp", std::process::id()));
    let written = File::create_new(&temporary).and_then(|mut file| file.write_all(&[0; 4096]));
    let _ = fs::remove_file(&temporary); // it may not be there
    written
}

/// The file's name without its folder.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// `trace.json.gz` as `trace`.
pub(crate) fn stem(path: &Path) -> String {
    let mut name = name(path);
    while let Some(shorter) = KINDS.iter().find_map(|k| name.strip_suffix(k)).filter(|s| !s.is_empty()) {
        name = shorter.to_owned();
    }
    name
}

/// Whole or not at all: `fill` writes under a temporary name beside it first. Without `force` never
/// in place of another file. What is new is this user's alone, as the traces are that it is made
/// of; what is replaced keeps its mode.
///
/// # Errors
/// [`Exit::Problem`], with what to do about it.
pub(crate) fn write(
    output: &Path,
    force: bool,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Failure> {
    whole(output, force, fill).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => taken(output),
        _ => Failure::new(Exit::Problem, format!("cannot write {}: {e}", output.display()))
            .hint("-o names another place"),
    })
}

fn whole(output: &Path, force: bool, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = output.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let mut file = private(&temporary)?;
    let result = fill(&mut file).and_then(|()| {
        if let (true, Ok(replaced)) = (force, output.symlink_metadata()) {
            let _ = file.set_permissions(replaced.permissions()); // a file system without modes
        }
        publish(&temporary, output, force)
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one to tell
    }
    result
}

fn publish(temporary: &Path, output: &Path, force: bool) -> io::Result<()> {
    if !force {
        // takes the name, or fails where it is taken
        private(output)?;
    }
    fs::rename(temporary, output)
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}
