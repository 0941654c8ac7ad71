// SPDX-License-Identifier: Apache-2.0
//! What is kept of earlier runs: traces and summaries in a directory of results (as the user asked,
//! else all of them), recordings of dead processes in a private folder ([`RECORDINGS`]). The oldest
//! go first, after a report was written: at a program's exit, or in the command; processes that
//! come at the same time leave it to one of them (a lock on the directory). Never touched: files of
//! another user, of other hosts, of a process that lives or of which nobody can tell from here, a
//! recording that somebody reads, and whatever is not named as ours are. Cold; bounded by
//! [`MAX_ENTRIES`] entries and the caller's deadline.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use trace::header::HEADER_BYTES;
use trace::place::RECORDING;
use trace::Header;

use crate::liveness::{user, Life};
use crate::procfs::{boot_id, Stat};
use crate::writer_lock;

/// Entries of a directory looked at, of those that are named as ours are.
const MAX_ENTRIES: usize = 10_000;

/// Limits on what is kept; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// Bytes on disk of all together.
    pub bytes: Option<u64>,
    /// Time since it was written.
    pub age: Option<Duration>,
}

/// Recordings that nobody recovered, where the user sets nothing: a week, 4 GB (about 40 killed
/// runs).
pub const RECORDINGS: Keep = Keep { bytes: Some(4 << 30), age: Some(Duration::from_secs(7 * 24 * 3600)) };

impl Keep {
    /// The user's limits (`GAPPROBE_KEEP_MB`, `GAPPROBE_KEEP_DAYS`; 0 or `None`: not set).
    pub fn new(mb: Option<u64>, days: Option<u64>) -> Keep {
        let set = |n: Option<u64>| n.filter(|n| *n > 0);
        let seconds = |days: u64| Duration::from_secs(days.saturating_mul(24 * 3600));
        Keep { bytes: set(mb).map(|mb| mb.saturating_mul(1 << 20)), age: set(days).map(seconds) }
    }

    /// These for recordings: what the user did not set is as ever.
    pub fn of_recordings(self) -> Keep {
        Keep { bytes: self.bytes.or(RECORDINGS.bytes), age: self.age.or(RECORDINGS.age) }
    }
}

/// Locks an open file or directory without waiting; `false` where another process has it.
pub type Lock = fn(&File) -> bool;

/// What belongs together: one recording, or trace and summary of one run.
#[derive(Default)]
struct Kept {
    paths: Vec<PathBuf>,
    bytes: u64,
    written: Option<SystemTime>,
    /// It may go.
    spare: bool,
}

impl Kept {
    fn add(&mut self, path: PathBuf, file: &Metadata) {
        self.paths.push(path);
        self.bytes += file.blocks() * 512;
        self.written = self.written.max(file.modified().ok());
    }
}

/// Removes the oldest traces and summaries beyond the limits; those named `own` stay. Returns how
/// many files went.
pub fn results(
    directory: &Path,
    own: &str,
    host: &str,
    keep: Keep,
    lock: Lock,
    deadline: Option<Instant>,
) -> usize {
    if keep == Keep::default() {
        return 0;
    }
    within(directory, keep, lock, deadline, |entry, file, all| {
        let name = entry.file_name();
        let Some(stem) = name.to_str().and_then(stem) else { return };
        let Some((of, pid)) = host_and_pid(stem) else { return };
        let kept = all.entry(stem.to_owned()).or_insert_with(Kept::default);
        kept.spare = stem != own && of == host && (pid == std::process::id() || Stat::of(pid).is_none());
        kept.add(entry.path(), file);
    })
}

/// Removes the oldest recordings of dead processes beyond the limits. Returns how many went.
pub fn recordings(folder: &Path, keep: Keep, lock: Lock, deadline: Option<Instant>) -> usize {
    within(folder, keep, lock, deadline, |entry, file, all| {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != RECORDING) {
            return;
        }
        let mut bytes = [0; HEADER_BYTES];
        let Ok(mut open) = File::open(&path) else { return };
        let header = open.read_exact(&mut bytes).ok().and_then(|()| Header::decode(&bytes).ok());
        // of this host: what another one's processes do is not known here, and they may live
        let is_here = |h: &Header| {
            boot_id().is_some_and(|id| id == h.boot_id) || host_name().is_some_and(|n| n == h.host)
        };
        let dead = header.is_some_and(|h| is_here(&h) && writer_lock::life(&open, &h) == Life::Ended);
        if !dead || !lock(&open) {
            return; // nor does it count: beside many that live the first that dies would be gone at once
        }
        let mut kept = Kept { spare: true, ..Kept::default() };
        kept.add(path.clone(), file);
        all.insert(path.to_string_lossy().into_owned(), kept);
    })
}

fn host_name() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|n| n.trim_end().to_owned())
}

fn within(
    directory: &Path,
    keep: Keep,
    lock: Lock,
    deadline: Option<Instant>,
    sort: impl Fn(&DirEntry, &Metadata, &mut BTreeMap<String, Kept>),
) -> usize {
    let late = || deadline.is_some_and(|d| Instant::now() >= d);
    let Ok(locked) = File::open(directory) else { return 0 };
    if late() || !lock(&locked) {
        return 0; // another process is at it
    }
    let (user, mut all) = (user(), BTreeMap::new());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named_as_ours = |e: &DirEntry| {
        let name = e.file_name();
        name.as_encoded_bytes().starts_with(b"gapprobe-")
            || Path::new(&name).extension().is_some_and(|e| e == RECORDING)
    };
    for entry in entries.take_while(|_| !late()).filter(named_as_ours).take(MAX_ENTRIES) {
        let ours = entry.metadata().ok().filter(|m| m.is_file() && Some(m.uid()) == user);
        if let Some(file) = ours {
            sort(&entry, &file, &mut all);
        }
    }
    if late() {
        return 0; // of what was not looked at something may be older
    }
    let mut all: Vec<Kept> = all.into_values().collect();
    all.sort_by_key(|k| k.written);
    let mut bytes: u64 = all.iter().map(|k| k.bytes).sum();
    let now = SystemTime::now();
    let mut gone = 0;
    for kept in all.iter().filter(|k| k.spare) {
        let age = kept.written.and_then(|w| now.duration_since(w).ok()).unwrap_or_default();
        if late() || (keep.bytes.is_none_or(|most| bytes <= most) && keep.age.is_none_or(|most| age <= most))
        {
            continue;
        }
        bytes -= kept.bytes;
        gone += kept.paths.iter().filter(|p| fs::remove_file(p).is_ok()).count();
    }
    gone
}

/// Is this the name of a trace that a run, `recover` or `capture` wrote?
pub fn is_trace(name: &str) -> bool {
    name.ends_with(".json.gz") && stem(name).is_some()
}

/// `gapprobe-<host>-<pid>-<date>-<time>-<random>` of the name of a trace or summary.
fn stem(name: &str) -> Option<&str> {
    let stem = name.strip_suffix(".summary.json").or_else(|| name.strip_suffix(".json.gz"))?;
    host_and_pid(stem).map(|_| stem)
}

fn host_and_pid(stem: &str) -> Option<(&str, u32)> {
    let mut parts = stem.strip_prefix("gapprobe-")?.rsplitn(5, '-');
    let (random, time, date) = (parts.next()?, parts.next()?, parts.next()?);
    let digits =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (pid, host) = (parts.next()?.parse().ok()?, parts.next()?);
    (digits(random, 4) && digits(time, 6) && digits(date, 8)).then_some((host, pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::own;
    use trace::place::Owner;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    /// No process has it: pid_max is 2^22 at most.
    const DEAD: u32 = i32::MAX as u32;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("gapprobe-retention-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of an earlier run
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn file(path: &Path, kib: usize, days: u32) {
        fs::write(path, vec![7; kib << 10]).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - DAY * days).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Trace and summary of a run on `host`.
    fn run(dir: &Path, host: &str, pid: u32, number: u32, days: u32) -> String {
        let stem = format!("gapprobe-{host}-{pid}-20261122-00{number:04}-00ff");
        file(&dir.join(format!("{stem}.json.gz")), 96, days);
        file(&dir.join(format!("{stem}.summary.json")), 4, days);
        stem
    }

    #[test]
    fn files_of_others_do_not_hide_those_that_are_to_go() {
        let dir = folder("crowd");
        for n in 0..=MAX_ENTRIES {
            fs::write(dir.join(format!("theirs-{n}")), "").unwrap();
        }
        for n in 0..4 {
            run(&dir, "a-b", DEAD, n, 9);
        }
        let keep = Keep::new(None, Some(7));
        assert_eq!(results(&dir, "", "a-b", keep, |_| true, None), 8);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_oldest_results_go_first_and_nothing_that_is_not_ours() {
        let dir = folder("results");
        let runs: Vec<String> = (0..6).map(|n| run(&dir, "a-b", DEAD, n, 6 - n)).collect();
        let living = run(&dir, "a-b", 1, 10, 90);
        let other = run(&dir, "c", DEAD, 11, 90);
        for mine in
            ["gapprobe-notes.json.gz", "gapprobe-a-b-1-2-3-4.json.gz", "model.summary.json", "x.json.gz"]
        {
            file(&dir.join(mine), 500, 90);
        }
        fs::create_dir(dir.join("gapprobe-a-b-1-20261122-000000-00ff.json.gz")).unwrap();
        std::os::unix::fs::symlink("x.json.gz", dir.join("gapprobe-a-b-7-20261122-000000-00ff.json.gz"))
            .unwrap();
        let before = names(&dir);
        assert_eq!(results(&dir, "", "a-b", Keep::default(), |_| true, None), 0);
        assert_eq!(
            results(&dir, "", "a-b", Keep::new(None, Some(9)), |_| true, None),
            0,
            "none of them is so old"
        );
        let gone = |before: &[String]| {
            let after = names(&dir);
            before.iter().filter(|n| !after.contains(n)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(gone(&before), Vec::<String>::new());
        // by age: the two of five days and more
        assert_eq!(results(&dir, "", "a-b", Keep::new(None, Some(5)), |_| true, None), 4);
        let expected = |stems: &[String]| {
            let files = |s: &String| [format!("{s}.json.gz"), format!("{s}.summary.json")];
            stems.iter().flat_map(files).collect::<Vec<_>>()
        };
        assert_eq!(gone(&before), expected(&runs[..2]));
        // by size: six runs of some 100 KiB are there; room for four, of which two cannot go
        let keep = Keep { bytes: Some(420 << 10), age: None };
        assert_eq!(results(&dir, "", "a-b", keep, |_| false, None), 0, "another process is at it");
        assert_eq!(results(&dir, "", "a-b", keep, |_| true, Some(Instant::now())), 0, "no time left");
        assert_eq!(results(&dir, &runs[2], "a-b", keep, |_| true, None), 4);
        let stays: Vec<String> = vec![runs[2].clone(), runs[5].clone(), living, other];
        for name in expected(&stays) {
            assert!(dir.join(&name).exists(), "{name}");
        }
        assert_eq!(gone(&before), expected(&[&runs[..2], &runs[3..5]].concat()));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn recordings_of_the_dead_go_and_those_of_the_living_and_those_that_are_read_stay() {
        let dir = folder("recordings");
        let recording = |name: &str, owner: Owner, days: u32| {
            let header = Header {
                pid: owner.pid,
                process_start: owner.start,
                pid_namespace: owner.namespace,
                boot_id: owner.boot,
                ..Header::default()
            };
            let path = dir.join(name);
            fs::write(&path, [&header.encode()[..], &[0; 8192]].concat()).unwrap();
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(SystemTime::now() - DAY * days)
                .unwrap();
        };
        let dead = Owner { pid: DEAD, ..own() };
        recording("living.gpr", own(), 90);
        recording("container.gpr", Owner { namespace: own().namespace + 1, ..own() }, 90);
        recording("old.gpr", dead, 8);
        recording("young.gpr", dead, 6);
        recording("younger.gpr", dead, 1);
        file(&dir.join("no.gpr"), 100, 90);
        file(&dir.join("gapprobe-crashed-00"), 1, 90);
        assert_eq!(
            recordings(&dir, RECORDINGS, |f| f.metadata().is_ok_and(|m| m.is_dir()), None),
            0,
            "they are read"
        );
        assert_eq!(recordings(&dir, RECORDINGS, |_| true, None), 1);
        assert!(!dir.join("old.gpr").exists());
        assert_eq!(recordings(&dir, Keep { bytes: Some(0), age: None }, |_| true, None), 2);
        assert_eq!(names(&dir), ["container.gpr", "gapprobe-crashed-00", "living.gpr", "no.gpr"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
