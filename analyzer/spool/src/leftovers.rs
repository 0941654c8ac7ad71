// SPDX-License-Identifier: Apache-2.0
//! Unfinished files that nobody will finish: who removes them, and when.
//!
//! - A trace or summary being written is `.<name>.<owner>.part`. Whoever writes it removes it where
//!   it fails (`fresh.rs`). Where the process ends while a thread still writes,
//!   `report::remove_unfinished` does, before it ends.
//! - What a killed process left is removed by the next report written into the same directory
//!   ([`results`], at the end of every report: in a recorded process at its exit, in `gapprobe
//!   recover` and `run`).
//! - A recording without a header yet is `<name>.gpr.<owner>.new`. What a process that died in its
//!   first milliseconds left is removed by the next recorded process of this user that ends and by
//!   `gapprobe recover` and `run` ([`recordings`]); if the header is there and only the renaming is
//!   missing, it becomes a recording.
//!
//! Never touched: a file of another user, of a process that lives, or of which nobody can tell from
//! here. Cold; bounded by [`MAX_ENTRIES`] entries and the caller's deadline, for a directory of
//! results is the user's own and may be on a network.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use trace::header::HEADER_BYTES;
use trace::place::{parse_unfinished, NEW, PART, RECORDING, RUN_MARK};
use trace::Header;

use crate::liveness::{life, user, Life};
use crate::procfs::{boot_id, pid_namespace};
use crate::writer_lock;

/// Entries of a directory looked at: a readdir of so many takes a few milliseconds on a local disk.
const MAX_ENTRIES: usize = 10_000;
/// An unfinished file whose process cannot be asked about (another host's, another container's) is
/// a leftover when nobody wrote to it for so long: writing a trace takes seconds.
const LONG_AGO: Duration = Duration::from_secs(24 * 3600);

/// Removes traces and summaries that were never finished from a directory of results.
pub fn results(directory: &Path, deadline: Option<Instant>) {
    let (here, user) = ((boot_id(), pid_namespace()), user());
    each(directory, deadline, |entry, name| {
        if !name.starts_with(".gapprobe-") {
            return;
        }
        let Some((_, owner)) = parse_unfinished(name, PART) else { return };
        // the directory may be shared with other hosts: another boot id does not mean that this one
        // was booted since
        let left = match owner {
            Some(o) if (Some(o.boot), o.namespace) == here => life(&o) == Life::Ended,
            _ => is_old(entry),
        };
        // (pids and start times of another namespace of time say that it is over)
        let is_left = left && !writer_lock::is_held_at(&entry.path());
        if is_left && entry.metadata().is_ok_and(|m| Some(m.uid()) == user) {
            let _ = fs::remove_file(entry.path()); // somebody else did: fine
        }
    });
}

/// Removes recordings that never got a header from a private folder (on a local disk), and gives
/// those their name that only lack it.
pub fn recordings(folder: &Path, deadline: Option<Instant>) {
    each(folder, deadline, |entry, name| {
        if name.starts_with(RUN_MARK) && is_old(entry) {
            let _ = fs::remove_file(entry.path()); // of a `gapprobe run` that was killed
            return;
        }
        let Some((recording, owner)) = parse_unfinished(name, NEW) else { return };
        if Path::new(recording).extension() != Some(OsStr::new(RECORDING)) {
            return;
        }
        let left = match owner {
            Some(o) => life(&o) == Life::Ended,
            None => is_old(entry),
        };
        if !left || writer_lock::is_held_at(&entry.path()) {
            return;
        }
        let (path, named) = (entry.path(), folder.join(recording));
        if header(&path).is_some() && fs::hard_link(&path, named).is_err() {
            return; // it holds something and has no other name: it stays
        }
        let _ = fs::remove_file(path); // somebody else did: fine
    });
}

/// Calls `f` for the regular files of a directory.
fn each(directory: &Path, deadline: Option<Instant>, f: impl Fn(&DirEntry, &str)) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().take(MAX_ENTRIES) {
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return;
        }
        let name = entry.file_name();
        match name.to_str() {
            Some(name) if entry.file_type().is_ok_and(|t| t.is_file()) => f(&entry, name),
            _ => {}
        }
    }
}

fn is_old(entry: &DirEntry) -> bool {
    let modified = entry.metadata().and_then(|m| m.modified());
    modified.is_ok_and(|m| SystemTime::now().duration_since(m).is_ok_and(|age| age > LONG_AGO))
}

/// Whether a recording can be made of the file at `path`.
pub fn has_header(path: &Path) -> bool {
    header(path).is_some()
}

fn header(path: &Path) -> Option<Header> {
    let mut bytes = [0; HEADER_BYTES];
    File::open(path).ok()?.read_exact(&mut bytes).ok()?;
    Header::decode(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::own;
    use std::path::PathBuf;
    use trace::place::{unfinished_recording, unfinished_result, Owner};

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("gapprobe-leftovers-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The process of this test, one that is dead, one of another container, one of another host.
    fn owners() -> [Owner; 4] {
        let own = own();
        [
            own,
            Owner { pid: i32::MAX as u32, ..own },
            Owner { namespace: own.namespace + 1, ..own },
            Owner { boot: [9; 16], ..own },
        ]
    }

    fn two_days_ago(path: &Path) {
        // (a socket cannot be opened to set its time)
        let set = std::process::Command::new("touch").args(["-d", "2 days ago"]).arg(path).status();
        assert!(set.unwrap().success());
    }

    #[test]
    fn parts_of_the_dead_go_and_those_that_may_be_of_the_living_stay() {
        let dir = folder("parts");
        let [own, dead, container, host] = owners();
        let part = |name: &str, o: &Owner| unfinished_result(name, o);
        let old = part("gapprobe-old.json.gz", &host);
        let all = [
            part("gapprobe-a.json.gz", &own),
            part("gapprobe-b.json.gz", &dead),
            part("gapprobe-c.json.gz", &container),
            part("gapprobe-d.json.gz", &host),
            old.clone(),
            ".gapprobe-nobody.json.gz.part".to_owned(),
            // the user's own
            format!(".mine.{dead}.part"),
            "gapprobe-x.json.gz".to_owned(),
        ];
        for name in &all {
            fs::write(dir.join(name), "x").unwrap();
        }
        two_days_ago(&dir.join(&old));
        // by its pid it is over: another namespace of time; it writes on
        let written = part("gapprobe-e.json.gz", &Owner { start: 6, ..dead });
        let writer = File::create(dir.join(&written)).unwrap();
        assert!(writer_lock::take(&writer));
        fs::create_dir(dir.join(part("gapprobe-folder", &dead))).unwrap();
        results(&dir, None);
        let left = names(&dir);
        for name in &all {
            let gone = *name == all[1] || *name == old;
            assert_eq!(left.contains(name), !gone, "{name}: {left:?}");
        }
        assert!(left.contains(&written), "somebody writes it: {left:?}");
        drop(writer);
        two_days_ago(&dir.join(&all[0]));
        two_days_ago(&dir.join(&all[5]));
        results(&dir, None);
        let left = names(&dir);
        assert!(left.contains(&all[0]), "of a living process, however old: {left:?}");
        assert!(!left.contains(&all[5]), "nobody's, and old: {left:?}");
        assert!(!left.contains(&written), "nobody writes it any more: {left:?}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn recordings_of_the_dead_without_a_header_go_and_one_with_a_header_gets_its_name() {
        let dir = folder("new");
        let [own, dead, container, _] = owners();
        let booted = Owner { boot: [9; 16], ..own };
        for (name, owner) in [("live", &own), ("dead", &dead), ("there", &container), ("booted", &booted)] {
            fs::write(dir.join(unfinished_recording(&format!("{name}.gpr"), owner)), "").unwrap();
        }
        let header = Header { pid: dead.pid, ..Header::default() };
        fs::write(dir.join(unfinished_recording("whole.gpr", &dead)), header.encode()).unwrap();
        fs::write(dir.join(unfinished_recording("zeros.gpr", &dead)), vec![0; 9000]).unwrap();
        fs::write(dir.join("notes.new"), "").unwrap();
        recordings(&dir, None);
        let mut expected = vec![
            unfinished_recording("live.gpr", &own),
            "notes.new".to_owned(),
            unfinished_recording("there.gpr", &container),
            "whole.gpr".to_owned(),
        ];
        expected.sort();
        assert_eq!(names(&dir), expected);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_part_of_another_user_stays() {
        let dir = folder("other-user");
        let [_, dead, ..] = owners();
        let part = dir.join(unfinished_result("gapprobe-b.json.gz", &dead));
        fs::write(&part, "x").unwrap();
        assert_eq!(crate::liveness::user(), fs::metadata(&part).ok().map(|m| m.uid()));
        if std::os::unix::fs::chown(&part, Some(65534), None).is_ok() {
            results(&dir, None);
            assert!(part.exists(), "not ours to remove");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_deadline_ends_the_search() {
        let dir = folder("late");
        let [_, dead, ..] = owners();
        fs::write(dir.join(unfinished_result("gapprobe-b.json.gz", &dead)), "x").unwrap();
        results(&dir, Some(Instant::now()));
        assert_eq!(names(&dir).len(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}
