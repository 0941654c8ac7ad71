// SPDX-License-Identifier: Apache-2.0
//! A recording as an open file: only a regular one, opened without waiting. It may grow, and shall
//! not shrink.

use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use spool::liveness::Life;
use spool::writer_lock;
use trace::{Header, Source};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::process::{self, Claim};

/// A recording in a file.
pub(crate) struct FileSource {
    path: PathBuf,
    file: File,
    /// How long it was when it was opened.
    opened: u64,
    /// Device and inode.
    identity: (u64, u64),
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.file.metadata().map_or(self.opened, |m| m.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        self.file.read_exact_at(out, offset).is_ok()
    }
}

impl FileSource {
    /// Opens the file. What is no regular file is not even opened: that can wait for ever, or move
    /// a tape.
    ///
    /// # Errors
    /// [`Exit::Unreadable`], naming the file, what is wrong with it, and what to do.
    pub(crate) fn open(path: &Path) -> Result<FileSource, Failure> {
        let wrong = |e: io::Error| system(path, &e);
        regular(path, fs::metadata(path).map_err(wrong)?.file_type())?;
        let file = process::open_at_once(path).map_err(wrong)?;
        // the name may stand for something else by now
        let meta = file.metadata().map_err(wrong)?;
        regular(path, meta.file_type())?;
        Ok(FileSource { path: path.to_owned(), file, opened: meta.len(), identity: (meta.dev(), meta.ino()) })
    }

    /// Is that the same file?
    pub(crate) fn is(&self, other: &fs::Metadata) -> bool {
        (other.dev(), other.ino()) == self.identity
    }

    /// Is its process still there?
    pub(crate) fn life(&self, header: &Header) -> Life {
        writer_lock::life(&self.file, header)
    }

    /// Claims the recording for this process until the source is dropped; `false` where another
    /// process reports it just now, or has done so and removed it.
    pub(crate) fn claim(&self) -> bool {
        let still = || fs::metadata(&self.path).is_ok_and(|m| self.is(&m));
        process::claim(&self.file) == Claim::Ours && still()
    }

    /// Whether the file is at least as long as when it was opened.
    ///
    /// # Errors
    /// Somebody cut it while it was read: what was read is not to be trusted.
    pub(crate) fn check_length(&self) -> Result<(), Failure> {
        let now = self.file.metadata().map_or(0, |m| m.len());
        if now >= self.opened {
            return Ok(());
        }
        let (path, before) = (self.path.display(), self.opened);
        Err(Failure::new(
            Exit::Unreadable,
            format!("{path}: shrank while it was read, from {before} bytes to {now}"),
        )
        .hint(format!("somebody else writes to it: find out who (fuser {path}), then recover it again")))
    }
}

fn regular(path: &Path, kind: FileType) -> Result<(), Failure> {
    let what = match kind {
        k if k.is_file() => return Ok(()),
        k if k.is_dir() => "a directory",
        k if k.is_fifo() => "a pipe",
        k if k.is_socket() => "a socket",
        k if k.is_block_device() || k.is_char_device() => "a device",
        _ => "no regular file",
    };
    let failure =
        Failure::new(Exit::Unreadable, format!("{}: {what}; a recording is a regular file", path.display()));
    Err(failure.hint(match kind.is_fifo() {
        true => "write what comes out of it to a file first: zcat run.gpr.gz > run.gpr",
        false => "gapprobe recover --list shows what there is",
    }))
}

fn system(path: &Path, e: &io::Error) -> Failure {
    let named =
        |what: &dyn std::fmt::Display| Failure::new(Exit::Unreadable, format!("{}: {what}", path.display()));
    match e.kind() {
        io::ErrorKind::NotFound => {
            let failure = named(&"no such file").hint("gapprobe recover --list shows what there is");
            match path.to_str().filter(|name| name.parse::<u32>().is_ok()) {
                Some(pid) => failure.hint(format!("of a process that runs: gapprobe capture {pid}")),
                None => failure,
            }
        }
        io::ErrorKind::PermissionDenied => {
            named(e).hint("a recording belongs to the user whose program it recorded")
        }
        _ => named(e).hint("gapprobe recover --list shows what there is"),
    }
}

#[cfg(test)]
mod tests {
    use trace::build::Builder;
    use trace::reader::Problems;
    use trace::{Event, Kind, Recording};

    use super::*;

    fn file(name: &str, bytes: usize) -> PathBuf {
        let path = std::env::temp_dir().join(format!("gapprobe-source-{name}-{}", std::process::id()));
        fs::write(&path, vec![7; bytes]).unwrap();
        path
    }

    #[test]
    fn a_file_that_shrinks_gives_no_bytes_beyond_its_end_and_is_named() {
        let path = file("shrinks", 9000);
        let source = FileSource::open(&path).unwrap();
        let mut out = [0; 100];
        assert!(source.read_at(8900, &mut out) && out == [7; 100]);
        source.check_length().unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert!(!source.read_at(8900, &mut out));
        let failure = source.check_length().unwrap_err();
        assert_eq!(failure.exit, Exit::Unreadable);
        assert!(failure.what.ends_with("from 9000 bytes to 4096"), "{}", failure.what);
        // one that grows has what it has now
        let source = FileSource::open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(9000).unwrap();
        source.check_length().unwrap();
        assert_eq!(source.len(), 9000);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_recording_that_grew_since_it_was_opened_is_not_cut_off() {
        let grown = |events: u64| {
            let mut b = Builder::new();
            (0..events).for_each(|i| b.on_stream(0, 1, 7, Event::new(Kind::Memset, i, i + 1)));
            b.finish()
        };
        let path = file("grows", 0);
        fs::write(&path, grown(100)).unwrap();
        let source = FileSource::open(&path).unwrap();
        fs::write(&path, grown(5000)).unwrap();
        let mut recording = Recording::open(&source).unwrap();
        let mut events = 0;
        recording.for_each_event(&source, |_, _| events += 1);
        assert_eq!((events, recording.problems), (5000, Problems::default()));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_recording_is_claimed_once() {
        let path = file("claim", 10);
        let (first, second) = (FileSource::open(&path).unwrap(), FileSource::open(&path).unwrap());
        assert!(first.claim() && !second.claim());
        drop(first);
        assert!(second.claim(), "the first gave it back");
        let third = FileSource::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        drop(second);
        assert!(!third.claim(), "reported and removed");
        fs::write(&path, "another").unwrap();
        assert!(!third.claim(), "another file under its name");
        fs::remove_file(&path).unwrap();
    }
}
