// SPDX-License-Identifier: Apache-2.0
// WARM
//! The mirror: what of the image survives SIGKILL. `pwrite` of the changed parts into a file in a
//! private directory on a local disk, payload before header, so that a file cut at any moment is a
//! valid recording.
//!
//! Without a file (no directory, full disk, `ulimit -f`) recording goes on in memory: only a killed
//! run loses it. A disk that takes its time holds up the thread that writes (`recording/writer.rs`)
//! and nothing else.

pub(crate) mod crashes;
pub(crate) mod folders;
pub(crate) mod half_files;
pub(crate) mod writer;

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use verdict::text::escape::visible;

use trace::header::sources::WRITER_LOCK;
use trace::header::{state, HOLD_AT, LONGEST_HOLD, STATE_AT, VALID_FROM_AT};
use trace::segment::{SegmentHeader, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, TRACK_DEFINITIONS};
use trace::{place, Header, Loss};

use crate::platform::descriptors::{identity_of, out_of_the_way, status_of};
use crate::platform::{heap, losses};
use crate::store::image::{self, Image};
use crate::store::Snapshot;
use folders::{open_private, owner, private_directories};

/// The file and what it holds so far.
pub(crate) struct SpoolWriter {
    file: ManuallyDrop<OwnedFd>,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Where it is, for the `recover` command in the line.
    path: PathBuf,
    /// The name it has until its header is written: a file that ends in .gpr is a recording.
    unfinished: Option<PathBuf>,
    in_file: Vec<SpooledSegment>,
    /// What the header last said of a file that held everything: GPU and host complete to, ns.
    committed_to: (u64, u64),
    /// A segment on its way, as words and as bytes.
    copy: Vec<u64>,
    bytes_of_copy: Vec<u8>,
    /// Bytes written.
    bytes: u64,
    /// [`trace::header::sources::WRITER_LOCK`], where the lock is held and nothing but the
    /// process's end lets go of it.
    lock: u32,
}

/// What the file has of a segment.
#[derive(Clone, Copy, Default)]
struct SpooledSegment {
    generation: u32,
    /// Events, or bytes of definitions.
    used: u32,
}

/// What became of a segment.
enum Part {
    Written,
    /// Written anew since it stood like that: what it held is gone.
    Evicted,
    Failed,
}

/// Where the recording of this process is, once it has its name, and that as it may be shown.
static PATH: OnceLock<(PathBuf, String)> = OnceLock::new();

/// The folder that it is made in.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// The folder that the recording of this process is made in.
pub(crate) fn folder() -> Option<&'static Path> {
    FOLDER.get().map(PathBuf::as_path)
}

/// Where the recording of this process is: readable without the recorder's lock.
pub(crate) fn path() -> Option<&'static Path> {
    PATH.get().map(|(path, _)| path.as_path())
}

/// As [`path`], for a line on stderr.
pub(crate) fn shown_path() -> Option<&'static [u8]> {
    PATH.get().map(|(_, shown)| shown.as_bytes())
}

impl SpoolWriter {
    /// Creates the file, never over an existing one, in the first private folder that takes it.
    pub(crate) fn create(name: &str, segments: u32) -> Option<SpoolWriter> {
        private_directories().find_map(|directory| {
            // once more: a process that ends may have removed the empty directory in between
            SpoolWriter::create_in(&directory, name, segments)
                .or_else(|| SpoolWriter::create_in(&directory, name, segments))
        })
    }

    fn create_in(directory: &Path, name: &str, segments: u32) -> Option<SpoolWriter> {
        let folder = open_private(directory)?;
        let unfinished = place::unfinished_recording(name, &owner());
        let path = directory.join(name);
        if path.symlink_metadata().is_ok() {
            return None;
        }
        let c = CString::new(unfinished.as_bytes()).ok()?;
        let unfinished = directory.join(unfinished);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_RDWR;
        // SAFETY: an open folder, a C string; a mode for O_CREAT.
        let fd = unsafe { libc::openat(folder.as_raw_fd(), c.as_ptr(), flags, 0o600) };
        if fd < 0 {
            return None;
        }
        // SAFETY: a descriptor we just opened and nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = out_of_the_way(file);
        let identity = identity_of(file.as_raw_fd())?;
        let in_file = vec![SpooledSegment::default(); segments as usize];
        let _ = FOLDER.set(directory.to_owned());
        // never closed: by the time it could be, the number may be the program's
        let file = ManuallyDrop::new(file);
        Some(SpoolWriter {
            file,
            identity,
            path,
            unfinished: Some(unfinished),
            in_file,
            committed_to: (0, 0),
            copy: vec![0; SEGMENT_BYTES / 8],
            bytes_of_copy: vec![0; SEGMENT_BYTES],
            bytes: 0,
            lock: 0,
        })
    }

    /// Whoever finds the file is to tell by a lock whether this process lives. Where no descriptor
    /// of the program's leads to the file: one that it closes would let go of the lock.
    fn hold_lock(&mut self) {
        if spool::writer_lock::take(&*self.file) {
            self.lock = WRITER_LOCK;
        }
    }

    /// Gives the file its name, once its header is there (the directory is ours alone; `create` saw
    /// the name free).
    fn publish(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            if std::fs::rename(&unfinished, &self.path).is_err() {
                losses::add(Loss::MirrorWrite, 1);
                self.path = unfinished;
            }
            let _ = PATH.set((self.path.clone(), visible(&self.path.to_string_lossy()).into_owned()));
            if let Some((_, shown)) = PATH.get() {
                heap::recording_is_at(shown);
            }
        }
    }

    fn write(&mut self, bytes: &[u8], offset: usize) -> bool {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = (offset + done) as libc::off_t;
            // SAFETY: a valid buffer.
            let n = unsafe { libc::pwrite(self.file.as_raw_fd(), rest.as_ptr().cast(), rest.len(), at) };
            match usize::try_from(n) {
                Ok(n) if n > 0 => done += n,
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => {
                    losses::add(Loss::MirrorWrite, 1);
                    return false;
                }
            }
        }
        self.bytes += bytes.len() as u64;
        true
    }

    /// Brings one segment of the file to how it stood (`now`). Others write the image meanwhile:
    /// what is written is a copy that is known to be whole.
    fn segment(&mut self, image: &Image, index: u32, now: &SegmentHeader) -> Part {
        let had = self.in_file.get(index as usize).copied().unwrap_or_default();
        let is_new = had.generation != now.generation;
        let unit = if now.track == TRACK_DEFINITIONS { 1 } else { trace::event::EVENT_BYTES };
        let offset = Image::offset(index);
        let from = if is_new { 0 } else { had.used as usize * unit / 8 * 8 };
        let end = now.used as usize * unit;
        let words = end.div_ceil(8).saturating_sub(from / 8);
        let (mut copy, mut bytes) = (std::mem::take(&mut self.copy), std::mem::take(&mut self.bytes_of_copy));
        let is_whole = copy.get_mut(..words).is_some_and(|out| image.cells(index).copy(now, from / 8, out));
        let part = match is_whole {
            // the memory may have been given back since it was copied, or while
            true if image::is_given_back() => Part::Failed,
            true => {
                for (to, word) in bytes.chunks_exact_mut(8).zip(copy.iter().take(words)) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
                let payload = bytes.get(..end.saturating_sub(from)).unwrap_or(&[]);
                self.put_segment(offset, now, is_new, from, payload)
            }
            // it has no place in the file yet, and those behind it have: an empty one, not a file
            // that is cut
            false if had.generation == 0 => match self.put_header(offset, &SegmentHeader { used: 0, ..*now })
            {
                true => Part::Evicted,
                false => Part::Failed,
            },
            false => Part::Evicted,
        };
        (self.copy, self.bytes_of_copy) = (copy, bytes);
        if let (Part::Written, Some(m)) = (&part, self.in_file.get_mut(index as usize)) {
            *m = SpooledSegment { generation: now.generation, used: now.used };
        }
        part
    }

    fn put_segment(
        &mut self,
        offset: usize,
        now: &SegmentHeader,
        is_new: bool,
        from: usize,
        payload: &[u8],
    ) -> Part {
        // the file's old content goes: first a header that says so, then the new payload
        let odd = SegmentHeader { generation: now.generation.wrapping_sub(1), used: 0, ..*now };
        let done = (!is_new || self.put_header(offset, &odd))
            && self.write(payload, offset + SEGMENT_HEADER_BYTES + from)
            && self.put_header(offset, now);
        if done {
            Part::Written
        } else {
            Part::Failed
        }
    }

    fn put_header(&mut self, offset: usize, header: &SegmentHeader) -> bool {
        let bytes: Vec<u8> = header.encode().iter().flat_map(|w| w.to_le_bytes()).collect();
        self.write(&bytes, offset)
    }

    /// Is the descriptor still our file? Where the thread that writes has none of its own, a
    /// program that closes all descriptors (a daemon) and opens its own files gets our number: it
    /// must not be written to. (It may do so while an update is written.)
    fn is_ours(&self) -> bool {
        identity_of(self.file.as_raw_fd()) == Some(self.identity)
    }

    /// Lets go of the file, whose number must be this thread's own.
    fn close(self) {
        drop(ManuallyDrop::into_inner(self.file));
    }

    /// Has somebody removed it (a cleaner of /tmp)?
    fn is_removed(&self) -> bool {
        status_of(self.file.as_raw_fd()).is_some_and(|s| s.st_nlink == 0)
    }

    /// Brings the file to how the recording stood: changed segments, then the header. Where
    /// something could not be written the header promises no more than the file held before. The
    /// segments still to be written.
    pub(crate) fn update(&mut self, image: &Image, standing: &Snapshot) -> Vec<u32> {
        let all = || standing.segments.iter().map(|(index, _)| *index);
        if !self.is_ours() {
            losses::add(Loss::MirrorWrite, 1);
            return all().collect();
        }
        let left = self.segments(image, standing);
        let header = &standing.header;
        if left.is_empty() {
            self.committed_to = (header.gpu_complete_to, header.host_complete_to);
        }
        let (gpu_complete_to, host_complete_to) = self.committed_to;
        // what was gone from the image before it was copied is in no file either
        let valid_from = header.valid_from.max(image.valid_from());
        let sources = header.sources | self.lock;
        let header = Header { sources, gpu_complete_to, host_complete_to, valid_from, ..header.clone() };
        if image::is_given_back() {
            return left; // the copies may be of memory that is no more: the file stays at what it said
        }
        // (the last word of a file that others can find is theirs)
        let bytes = header.encode();
        let own = if self.unfinished.is_some() { bytes.len() } else { HOLD_AT };
        if self.write(bytes.get(..own).unwrap_or(&bytes), 0) {
            self.publish();
        }
        left
    }

    /// Until when a command wants recording to be held on, CLOCK_MONOTONIC ns; 0: none does, or
    /// what stands there is no such time.
    fn wanted_until(&self, now: u64) -> u64 {
        if !self.is_ours() {
            return 0;
        }
        let mut word = [0u8; 8];
        let (out, at) = (word.as_mut_ptr().cast(), HOLD_AT as libc::off_t);
        // SAFETY: a buffer and its length.
        let n = unsafe { libc::pread(self.file.as_raw_fd(), out, word.len(), at) };
        let until = u64::from_le_bytes(word);
        match n == 8 && until > now && until - now <= LONGEST_HOLD {
            true => until,
            false => 0,
        }
    }

    /// All but the header. Killed in it, or without the header, the file promises what it holds.
    fn segments(&mut self, image: &Image, standing: &Snapshot) -> Vec<u32> {
        let replaces = |(index, now): &(u32, SegmentHeader)| {
            let had = self.in_file.get(*index as usize).copied().unwrap_or_default();
            had.generation != 0 && had.generation != now.generation
        };
        let mut fails = false;
        if self.unfinished.is_none() && standing.segments.iter().any(replaces) {
            // what goes with a segment that is replaced is promised no longer, before it goes
            let valid_from = standing.header.valid_from.max(image.valid_from());
            fails = !self.write(&valid_from.to_le_bytes(), VALID_FROM_AT);
        }
        let mut left = Vec::new();
        for (index, now) in &standing.segments {
            fails =
                fails || writer::is_abandoned() || matches!(self.segment(image, *index, now), Part::Failed);
            if fails {
                left.push(*index);
            }
        }
        left
    }

    /// Notes in the file that the line was said: who finds it has more to add, or nothing to say. A
    /// file without a header is none to find, and tells of a process that said nothing: it goes.
    fn note_spoken(&mut self) {
        if self.unfinished.is_some() {
            self.remove();
        } else if self.is_ours() {
            self.write(&state::LINE_SAID.to_le_bytes(), STATE_AT);
        }
    }

    /// Deletes the file: trace and summary are written.
    fn remove(&self) {
        for path in [Some(&self.path), self.unfinished.as_ref()].into_iter().flatten() {
            let _ = std::fs::remove_file(path); // gone already is fine
            if let Some(directory) = self.path.parent() {
                let _ = std::fs::remove_dir(directory); // the last one out; it stays while it holds other recordings
            }
        }
    }
}

#[cfg(test)]
mod tests;
