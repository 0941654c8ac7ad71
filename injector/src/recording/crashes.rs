// SPDX-License-Identifier: Apache-2.0
// COLD
//! After a crash under us the next start of that job stays off. No signal handler tells of one, and
//! a process that is gone does not tell SIGSEGV from SIGKILL or `os._exit`. Two things are known
//! for certain:
//!
//! * `gapprobe run` is the parent, and told by the kernel: it leaves a file
//!   `gapprobe-crashed-<job>`.
//! * While we attach (in `cuInit`, and while recording begins: some 20 ms, in which only our code
//!   and CUPTI's runs on that thread) a file of ours says so. A process that ends in there leaves
//!   it behind. Once may be a kill that came at that moment; twice in a row, at different times, is
//!   taken for a crash. Nothing else counts: under plain LD_PRELOAD a program that crashes later is
//!   recorded again the next time.
//!
//! Both are forgotten after a day, and where a start of the job ends in order (`GAPPROBE=1` makes
//! one).

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use spool::liveness::{life, Life};
use trace::place::{self, Owner};
use trace::setting;

use crate::platform::{environment, identity};
use crate::recording;

/// Deaths closer to each other are those of one start: a job of several processes that was killed.
const APART: Duration = Duration::from_secs(10);
/// So many starts in a row have to die.
const DEATHS: usize = 2;
/// Entries of a private folder looked at.
const MAX_ENTRIES: usize = 1000;

/// Which job this process is a start of: program, arguments, directory, rank. FNV-1a, 64 bits.
pub(crate) fn job() -> u64 {
    static JOB: OnceLock<u64> = OnceLock::new();
    *JOB.get_or_init(|| {
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let arguments = fs::read("/proc/self/cmdline").unwrap_or_default();
        let directory = identity::started_in().map_or(&[][..], |d| d.as_os_str().as_bytes());
        let rank = identity::ranks().0.map_or(0, |r| r + 1).to_le_bytes();
        let parts = [program.as_os_str().as_bytes(), &arguments, directory, &rank];
        let bytes = parts.into_iter().flat_map(|p| p.iter().chain(&[0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
    })
}

/// Our private folders that are there and nobody else's.
fn folders() -> impl Iterator<Item = PathBuf> {
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::geteuid() };
    let ours = move |m: fs::Metadata| m.is_dir() && m.uid() == uid && m.mode() & 0o077 == 0;
    recording::folders::private_directories().filter(move |f| fs::symlink_metadata(f).is_ok_and(ours))
}

/// How long ago a file was written; `None` where it is not there, or of the future.
fn age(path: &Path) -> Option<Duration> {
    let file = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    SystemTime::now().duration_since(file.modified().ok()?).ok()
}

/// The files in `folder` that starts of any job left while they were attached to: path, process,
/// job.
fn left_in(folder: &Path) -> Vec<(PathBuf, Owner, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).filter_map(Result::ok);
    let left = entries.filter_map(|e| {
        let (owner, job) = place::parse_attaching(e.file_name().to_str()?)?;
        (life(&owner) == Life::Ended).then(|| (e.path(), owner, job))
    });
    left.collect()
}

/// Why this start has to stay without gapprobe, as the end of a sentence.
pub(crate) fn why_off() -> Option<String> {
    let mut deaths = Vec::new();
    for folder in folders() {
        let crashed = folder.join(place::crashed(job()));
        match age(&crashed) {
            Some(age) if age < place::CRASH_COUNTS => {
                let signal = fs::read_to_string(&crashed).ok()?.trim().parse().ok()?;
                return Some(format!("died of {} under gapprobe {}", name(signal), ago(age)));
            }
            Some(_) => {
                let _ = fs::remove_file(&crashed); // or another start did
            }
            None => {}
        }
        for (path, owner, of) in left_in(&folder) {
            let age = age(&path).filter(|a| {
                *a < place::CRASH_COUNTS && owner.boot == spool::procfs::boot_id().unwrap_or_default()
            });
            match age {
                Some(age) if of == job() => deaths.push(age),
                Some(_) => {}
                None => {
                    let _ = fs::remove_file(path); // or another start did
                }
            }
        }
    }
    deaths.sort_unstable();
    let newest = deaths.first().copied()?;
    let mut starts = 1;
    let mut last = newest;
    for age in deaths {
        if age.saturating_sub(last) >= APART {
            starts += 1;
            last = age;
        }
    }
    (starts >= DEATHS).then(|| {
        format!("ended {starts} times in a row while gapprobe was attaching, the last time {}", ago(newest))
    })
}

fn ago(age: Duration) -> String {
    match age.as_secs() / 60 {
        0 => "just now".to_owned(),
        minutes @ 1..=119 => format!("{minutes} min ago"),
        minutes => format!("{} h ago", minutes / 60),
    }
}

fn name(signal: i32) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGFPE => "SIGFPE".to_owned(),
        other => format!("signal {other}"),
    }
}

/// The file that says that we attach, and whether it is there.
struct Marker {
    path: OnceLock<CString>,
    is_there: AtomicBool,
}

static MARKER: Marker = Marker { path: OnceLock::new(), is_there: AtomicBool::new(false) };

/// Says, for as long as the value lives, that we attach.
pub(crate) struct Attaching;

/// We begin to attach.
pub(crate) fn attaching() -> Attaching {
    let name = place::attaching(&recording::folders::owner(), job());
    for folder in recording::folders::private_directories() {
        let Ok(file) = CString::new(folder.join(&name).as_os_str().as_bytes()) else { continue };
        // an empty file, made without being opened: a program whose streams are closed would write
        // into it. Never over what is there, link or not SAFETY: a C string and numbers.
        let make = || unsafe { libc::mknod(file.as_ptr(), libc::S_IFREG | 0o600, 0) } == 0;
        if recording::folders::open_private(&folder).is_none() || !make() {
            continue;
        }
        let _ = MARKER.path.set(file); // the same every time, but where a folder went meanwhile
        MARKER.is_there.store(true, Ordering::Release);
        break;
    }
    Attaching
}

impl Drop for Attaching {
    fn drop(&mut self) {
        not_attaching();
        if let Some(folder) =
            MARKER.path.get().and_then(|f| Path::new(OsStr::from_bytes(f.to_bytes())).parent())
        {
            let _ = fs::remove_dir(folder); // it stays while it holds anything
        }
    }
}

/// We do not attach any more, or the program ends in order while we do. Allocates nothing: the exit
/// handler asks.
pub(crate) fn not_attaching() {
    if let (true, Some(file)) = (MARKER.is_there.swap(false, Ordering::AcqRel), MARKER.path.get()) {
        // SAFETY: a C string.
        unsafe { libc::unlink(file.as_ptr()) };
    }
}

/// This start has been attached to: deaths before it were not in a row.
pub(crate) fn attached() {
    let mine = |(_, _, of): &(PathBuf, Owner, u64)| *of == job();
    for (path, ..) in folders().flat_map(|f| left_in(&f)).filter(mine) {
        let _ = fs::remove_file(path); // or another start did
    }
}

/// This start ended in order.
pub(crate) fn ended_in_order() {
    for folder in folders() {
        let _ = fs::remove_file(folder.join(place::crashed(job()))); // seldom there
    }
}

/// For the `gapprobe run` around us, where there is one: CUDA was used here, so that it need not
/// say that it was not.
pub(crate) fn cuda_was_used() {
    let Some(mark) = environment::text(setting::RUN_ID).and_then(place::run_mark) else { return };
    for folder in folders() {
        let _ = fs::remove_file(folder.join(&mark)); // another process did: fine
    }
}
