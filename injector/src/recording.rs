// SPDX-License-Identifier: Apache-2.0
// WARM
//! The mirror: what of the image survives SIGKILL. `pwrite` of the changed parts into a file in a private directory
//! on a local disk, payload before header, so that a file cut at any moment is a valid recording.
//!
//! Without a file (no directory, full disk, `ulimit -f`) recording goes on in memory: only a killed run loses it.

use std::ffi::{CString, OsStr};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use analyzer::visible::visible;

use trace::header::{state, STATE_AT};
use trace::segment::{SegmentHeader, SEGMENT_HEADER_BYTES, TRACK_DEFINITIONS};
use trace::{place, setting, Header, Loss};

use crate::store::image::Image;
use crate::store::{Mirrored, Store};
use crate::{environment, identity, losses};

/// The file and what it holds so far.
pub(crate) struct Mirror {
    file: ManuallyDrop<OwnedFd>,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Where it is, for the `recover` command in the line.
    pub(crate) path: PathBuf,
    /// The name it has until its header is written: a file that ends in .gpr is a recording.
    unfinished: Option<PathBuf>,
    in_file: Vec<Mirrored>,
    /// What the header last said of a file that held everything: GPU and host complete to, ns.
    whole_to: (u64, u64),
    /// Bytes written.
    pub(crate) bytes: u64,
}

/// File systems where a write may wait for another machine.
const NETWORK: &[u64] = &[
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x517b,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0x6b41_4653,
];

fn is_network(path: &Path) -> bool {
    let Ok(c) = CString::new(path.as_os_str().as_bytes()) else { return true };
    let mut s = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a C string and a statfs buffer.
    if unsafe { libc::statfs(c.as_ptr(), s.as_mut_ptr()) } != 0 {
        return true;
    }
    // SAFETY: zeroed and then filled by statfs.
    let kind = unsafe { s.assume_init() }.f_type as u64;
    NETWORK.contains(&kind)
}

/// The private folders a recording may be made in, in the order to try: `gapprobe-<uid>` in each root of
/// [`trace::place::roots`] that is on a local disk.
pub(crate) fn private_directories() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| environment::get(name).map(OsStr::from_bytes);
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    let local = place::roots(variable("TMPDIR"), variable(setting::TEST_ROOT))
        .into_iter()
        .filter(|root| !is_network(root));
    local.map(move |root| place::folder(&root, uid))
}

/// This process, as it is told in the names of its files: one it has not finished, its control socket.
pub(crate) fn owner() -> place::Owner {
    place::Owner {
        pid: std::process::id(),
        start: identity::process_start(),
        namespace: identity::pid_namespace(),
        boot: identity::boot_id(),
    }
}

/// Makes a private folder with mode 0700 and opens it; `None` where it cannot be, is a link, not ours, or open to others. What
/// is made in it is made through this descriptor: whoever may rename things in its parent cannot put another folder there.
pub(crate) fn open_private(directory: &Path) -> Option<std::fs::File> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    let _ = std::fs::DirBuilder::new().mode(0o700).create(directory); // exists already: checked below
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = std::fs::File::options().read(true).custom_flags(flags).open(directory).ok()?;
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    let is_ours = folder.metadata().is_ok_and(|m| m.uid() == uid && m.mode() & 0o077 == 0);
    is_ours.then_some(folder)
}

/// Where the recording of this process is, once it has its name, and that as it may be shown.
static PATH: OnceLock<(PathBuf, String)> = OnceLock::new();

/// Where the recording of this process is: readable without the recorder's lock.
pub(crate) fn path() -> Option<&'static Path> {
    PATH.get().map(|(path, _)| path.as_path())
}

/// As [`path`], for a line on stderr.
pub(crate) fn shown_path() -> Option<&'static [u8]> {
    PATH.get().map(|(_, shown)| shown.as_bytes())
}

impl Mirror {
    /// Creates the file, never over an existing one, in the first private folder that takes it.
    pub(crate) fn create(name: &str, segments: u32) -> Option<Mirror> {
        private_directories().find_map(|directory| {
            // once more: a process that ends may have removed the empty directory in between
            Mirror::create_in(&directory, name, segments)
                .or_else(|| Mirror::create_in(&directory, name, segments))
        })
    }

    fn create_in(directory: &Path, name: &str, segments: u32) -> Option<Mirror> {
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
        let in_file = vec![Mirrored::default(); segments as usize];
        // never closed: by the time it could be, the number may be the program's
        let file = ManuallyDrop::new(file);
        Some(Mirror {
            file,
            identity,
            path,
            unfinished: Some(unfinished),
            in_file,
            whole_to: (0, 0),
            bytes: 0,
        })
    }

    /// Gives the file its name, once its header is there (the directory is ours alone; `create` saw the name free).
    fn publish(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            if std::fs::rename(&unfinished, &self.path).is_err() {
                losses::add(Loss::MirrorWrite, 1);
                self.path = unfinished;
            }
            let _ = PATH.set((self.path.clone(), visible(&self.path.to_string_lossy()).into_owned()));
        }
    }

    fn write(&mut self, image: &Image, offset: usize, length: usize) -> bool {
        let mut done = 0;
        while done < length {
            let from = image.address(offset + done);
            // SAFETY: the range lies inside the image, which is never unmapped; only its lock holder, us, writes it.
            let n = unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    from.cast(),
                    length - done,
                    (offset + done) as libc::off_t,
                )
            };
            match usize::try_from(n) {
                Ok(n) if n > 0 => done += n,
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => {
                    losses::add(Loss::MirrorWrite, 1);
                    return false;
                }
            }
        }
        self.bytes += length as u64;
        true
    }

    fn write_bytes(&mut self, bytes: &[u8], offset: usize) -> bool {
        // SAFETY: a valid buffer.
        let n = unsafe {
            libc::pwrite(self.file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset as libc::off_t)
        };
        let whole = usize::try_from(n) == Ok(bytes.len());
        if !whole {
            losses::add(Loss::MirrorWrite, 1);
        }
        self.bytes += bytes.len() as u64;
        whole
    }

    fn segment(&mut self, image: &Image, index: u32, now: &SegmentHeader) -> bool {
        let had = self.in_file.get(index as usize).copied().unwrap_or_default();
        let unit = if now.track == TRACK_DEFINITIONS { 1 } else { trace::event::EVENT_BYTES };
        let offset = Image::offset(index);
        let mut from = had.used;
        if had.generation != now.generation {
            // the file's old content goes: first a header that says so, then the new payload
            let odd = SegmentHeader { generation: now.generation.wrapping_sub(1), used: 0, ..*now };
            let bytes: Vec<u8> = odd.encode().iter().flat_map(|w| w.to_le_bytes()).collect();
            if !self.write_bytes(&bytes, offset) {
                return false;
            }
            from = 0;
        }
        let payload = offset + SEGMENT_HEADER_BYTES;
        let (begin, end) = (from as usize * unit, now.used as usize * unit);
        if end > begin && !self.write(image, payload + begin, end - begin) {
            return false;
        }
        let bytes: Vec<u8> = now.encode().iter().flat_map(|w| w.to_le_bytes()).collect();
        if !self.write_bytes(&bytes, offset) {
            return false;
        }
        if let Some(m) = self.in_file.get_mut(index as usize) {
            *m = Mirrored { generation: now.generation, used: now.used };
        }
        true
    }

    /// Is the descriptor still our file? A program that closes all descriptors (a daemon) and opens its own files gets
    /// our number: it must not be written to.
    fn is_ours(&self) -> bool {
        identity_of(self.file.as_raw_fd()) == Some(self.identity)
    }

    /// Brings the file up to date: changed segments, then the header. `false` where something could not be written; the
    /// header then promises no more than the file held before.
    pub(crate) fn update(&mut self, store: &mut Store, header: &Header) -> bool {
        if !self.is_ours() {
            losses::add(Loss::MirrorWrite, 1);
            return false;
        }
        let image = store.image;
        let mut fine = true;
        for index in store.take_dirty() {
            let Some(now) = store.standing(index) else { continue };
            if !fine || !self.segment(&image, index, &now) {
                fine = false;
                store.mark_again(index);
            }
        }
        if fine {
            self.whole_to = (header.gpu_complete_to, header.host_complete_to);
        }
        let (gpu_complete_to, host_complete_to) = self.whole_to;
        let header = Header { gpu_complete_to, host_complete_to, ..header.clone() };
        if !self.write_bytes(&header.encode(), 0) {
            return false;
        }
        self.publish();
        fine
    }

    /// Notes in the file that the line was said: who finds it has more to add, or nothing to say. Only the state: the image's memory
    /// may have been given back. A file without a header is none to find, and tells of a process that said nothing: it goes.
    pub(crate) fn note_spoken(&mut self) {
        if self.unfinished.is_some() {
            self.remove();
        } else if self.is_ours() {
            self.write_bytes(&state::SPOKEN.to_le_bytes(), STATE_AT);
        }
    }

    /// Where the recording is, if there is one to recover.
    pub(crate) fn found_at(&self) -> Option<&Path> {
        self.unfinished.is_none().then_some(self.path.as_path())
    }

    /// Deletes the file: trace and summary are written.
    pub(crate) fn remove(&self) {
        for path in [Some(&self.path), self.unfinished.as_ref()].into_iter().flatten() {
            let _ = std::fs::remove_file(path); // gone already is fine
            if let Some(directory) = self.path.parent() {
                let _ = std::fs::remove_dir(directory); // the last one out; it stays while it holds other recordings
            }
        }
    }
}

/// Device and inode of an open descriptor.
pub(crate) fn identity_of(fd: i32) -> Option<(u64, u64)> {
    let mut s = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a stat buffer; a closed descriptor fails without touching it.
    if unsafe { libc::fstat(fd, s.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed and then filled by fstat.
    let s = unsafe { s.assume_init() };
    Some((s.st_dev, s.st_ino))
}

/// Moves the descriptor away from the low numbers: programs that close and reuse 0 to 2, or count on small ones, are
/// not disturbed.
pub(crate) fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    // SAFETY: duplicates our own descriptor to the lowest free number from 300 on.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 300) };
    if high < 0 {
        return file;
    }
    // SAFETY: a descriptor we just made.
    unsafe { OwnedFd::from_raw_fd(high) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::define::TrackInfo;
    use trace::event::{Event, Kind};
    use trace::reader::Recording;

    #[test]
    fn a_descriptor_that_became_the_programs_is_not_written_to() {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let name = format!("test-taken-{}.gpr", std::process::id());
        let mut mirror = Mirror::create(&name, store.image.segments()).unwrap();
        let other = std::env::temp_dir().join(format!("gapprobe-test-taken-{}", std::process::id()));
        let file = std::fs::File::create(&other).unwrap();
        // SAFETY: puts the program's file under our number, as a program that closes and reopens everything does.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), mirror.file.as_raw_fd()) } >= 0);
        store.string(b"something to write");
        assert!(!mirror.update(&mut store, &Header::default()));
        assert_eq!(std::fs::metadata(&other).unwrap().len(), 0);
        std::fs::remove_file(&other).unwrap();
        mirror.remove();
    }

    #[test]
    fn after_each_update_the_file_is_a_recording_with_all_events_so_far() {
        let mut store = Store::new(Image::map(64 * 32 * 1024).unwrap());
        let name = format!("test-mirror-{}.gpr", std::process::id());
        let mut mirror = Mirror::create(&name, store.image.segments()).unwrap();
        let mut sent = 0u64;
        for round in 0..60 {
            for _ in 0..round * 97 {
                store.add(
                    TrackInfo::Stream { device: 0, context: 1, stream: 7 },
                    &Event::new(Kind::Kernel, sent * 10, sent * 10 + 5),
                );
                sent += 1;
            }
            store.string(format!("name {round}").as_bytes());
            let header = Header {
                segments: store.image.segments(),
                segments_used: store.begun(),
                valid_from: store.valid_from(),
                ..Header::default()
            };
            assert!(mirror.update(&mut store, &header));
            let bytes = std::fs::read(&mirror.path).unwrap();
            let mut r = Recording::open(bytes.as_slice()).unwrap();
            let mut newest = 0;
            let mut kept = 0u64;
            r.for_each_event(bytes.as_slice(), |_, e| {
                newest = newest.max(e.end);
                kept += u64::from(e.start >= store.valid_from());
            });
            assert_eq!(r.problems, Default::default());
            if sent > 0 {
                assert_eq!(newest, (sent - 1) * 10 + 5);
                assert_eq!(kept, sent - store.valid_from().div_ceil(10));
            }
        }
        assert!(store.valid_from() > 0, "the ring was lapped");
        mirror.remove();
        assert!(!mirror.path.exists());
    }

    #[test]
    fn an_unfinished_file_names_this_process_and_a_sweep_leaves_it_alone() {
        let name = format!("test-unfinished-{}.gpr", std::process::id());
        let mirror = Mirror::create(&name, 64).unwrap();
        let unfinished = mirror.unfinished.clone().unwrap();
        let shown = unfinished.file_name().unwrap().to_str().unwrap();
        let (recording, owner) = place::parse_unfinished(shown, place::NEW).unwrap();
        assert_eq!((recording, owner), (name.as_str(), Some(analyzer::alive::own())));
        analyzer::report::leftovers::recordings(unfinished.parent().unwrap(), None);
        assert!(unfinished.exists(), "its process lives");
        mirror.remove();
        assert!(!unfinished.exists());
    }
}
