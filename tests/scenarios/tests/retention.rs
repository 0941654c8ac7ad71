// SPDX-License-Identifier: Apache-2.0
//! Purpose: a directory that the jobs of a node share stays within `GAPPROBE_KEEP_MB` and
//! `GAPPROBE_KEEP_DAYS`, also where many end at the same time: the oldest traces go, each with its
//! summary; nobody else's files, and none of a process that lives. Recordings that nobody recovered
//! are bounded too; `gapprobe recover --all` makes something of each that is there. And where the
//! disk takes nothing (read-only, quota, another machine's) the program notices nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use gapprobe_scenarios::built::{built, shared_library};
use gapprobe_scenarios::small_disk::SmallDisk;
use gapprobe_scenarios::{skipped, Run, Running, Victim};

const LOOP: [&str; 4] = ["loop", "10", "20", "20"];
const DAY: Duration = Duration::from_secs(24 * 3600);

fn shared(name: &str) -> PathBuf {
    let folder = built().scratch.join(format!("kept-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn age(path: &Path, by: Duration) {
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(SystemTime::now() - by).expect("a time");
}

/// Files in a folder whose names end so, and their room on the disk.
fn files(folder: &Path, ending: &str) -> (Vec<PathBuf>, u64) {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
    let found: Vec<PathBuf> = entries.filter(|p| p.to_string_lossy().ends_with(ending)).collect();
    let room = found.iter().map(|p| p.metadata().map_or(0, |m| m.blocks() * 512)).sum();
    (found, room)
}

fn reports(run: &Run) {
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{}", run.stderr);
    assert!(run.lines().len() == 1 && run.lines()[0].contains(" [GP"), "{}", run.stderr);
}

#[test]
fn processes_that_end_together_keep_a_shared_directory_within_its_limits() {
    let folder = shared("together");
    let notes = folder.join("notes.summary.json");
    std::fs::write(&notes, vec![b'x'; 2 << 20]).expect("a file of the user's own");
    age(&notes, DAY * 900);
    // each makes a trace of some 20 KB and is given the size of a long run's
    for round in 0..6 {
        let start =
            || Victim::sim("13.0", &LOOP).env("GAPPROBE_DIR", &folder).env("GAPPROBE_KEEP_MB", "4").start();
        let running: Vec<Running> = (0..4).map(|_| start()).collect();
        running.into_iter().for_each(|r| reports(&r.finish()));
        let (traces, _) = files(&folder, ".json.gz");
        for trace in traces.iter().filter(|t| t.metadata().is_ok_and(|m| m.len() < 500_000)) {
            let mut bytes = std::fs::read(trace).expect("a trace");
            bytes.resize(500_000, 7);
            std::fs::write(trace, bytes).expect("a trace");
            let summary = trace.to_string_lossy().replace(".json.gz", ".summary.json");
            age(trace, DAY * (20 - round));
            age(Path::new(&summary), DAY * (20 - round));
        }
    }
    // one more sees what the last ones left
    reports(&Victim::sim("13.0", &LOOP).env("GAPPROBE_DIR", &folder).env("GAPPROBE_KEEP_MB", "4").run());
    let (traces, room) = files(&folder, ".json.gz");
    let (summaries, _) = files(&folder, ".summary.json");
    assert!(room <= 4 << 20, "{room} bytes of {} traces", traces.len());
    assert!(traces.len() >= 7, "no more went than had to: {traces:?}");
    assert_eq!(summaries.len(), traces.len() + 1, "a summary goes with its trace; the user's own stays");
    // by age, and only where somebody set it
    reports(&Victim::sim("13.0", &LOOP).env("GAPPROBE_DIR", &folder).run());
    assert_eq!(files(&folder, ".json.gz").0.len(), traces.len() + 1);
    reports(&Victim::sim("13.0", &LOOP).env("GAPPROBE_DIR", &folder).env("GAPPROBE_KEEP_DAYS", "10").run());
    let left = files(&folder, ".json.gz").0.len();
    assert_eq!(left, 3, "those of today: the three that were not made old");
    assert!(notes.exists());
    let _ = std::fs::remove_dir_all(&folder);
}

/// stderr of `gapprobe recover`, which takes the newest.
fn recover_newest(out: &Path, tmp: &Path) -> String {
    let mut command = Command::new(&built().command);
    command.arg("recover").env("TMPDIR", tmp).env("GAPPROBE_TEST_ROOT", tmp).current_dir(out);
    let output = command.output().expect("gapprobe");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn recordings_that_nobody_recovered_are_bounded_and_all_of_them_can_be_recovered() {
    let tmp = shared("recordings");
    let killed = |n: u32| {
        let victim = Victim::sim("13.0", &["ways_out", "sigkill", "5000", "0"]).env("TMPDIR", &tmp);
        let run = victim.env("GAPPROBE_MAX_MB", "64").run();
        assert_eq!(run.ending(), 1009, "{n}: {}", run.stderr);
    };
    (0..4).for_each(killed);
    let private = std::fs::read_dir(&tmp).expect("tmp").next().expect("a folder").expect("an entry").path();
    let (recordings, _) = files(&private, ".gpr");
    assert_eq!(recordings.len(), 4);
    let mut living = Victim::sim("13.0", &["ways_out", "hang", "100"]).env("TMPDIR", &tmp).start();
    assert!(living.wait_for(|_| files(&private, ".gpr").0.len() == 5));
    age(&recordings[0], DAY * 8);
    let own = files(&private, ".gpr").0.into_iter().find(|p| !recordings.contains(p)).expect("the fifth");
    reports(&Victim::sim("13.0", &LOOP).env("TMPDIR", &tmp).run());
    assert!(!recordings[0].exists() && recordings[1..].iter().all(|r| r.exists()), "a week");
    let out = shared("recovered");
    let recover = || {
        let mut command = Command::new(&built().command);
        command
            .args(["recover", "--all"])
            .env("TMPDIR", &tmp)
            .env("GAPPROBE_TEST_ROOT", &tmp)
            .current_dir(&out);
        command.output().expect("gapprobe")
    };
    let output = recover();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(files(&out, ".json.gz").0.len(), 3, "each of the dead");
    assert!(recordings.iter().all(|r| !r.exists()) && own.exists(), "and not of the one that runs");
    // so does the command
    killed(5);
    let late = |n: usize| {
        let all = files(&private, ".gpr").0.into_iter().filter(|p| *p != own);
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|p| p.metadata().and_then(|m| m.modified()).ok());
        assert_eq!(all.len(), n, "{all:?}");
        age(&all[0], DAY * 8);
        all.swap_remove(0)
    };
    killed(6);
    let by_command = late(2);
    let output = recover_newest(&out, &tmp);
    assert!(output.contains("removed 1 recording(s)"), "{output}");
    assert!(!by_command.exists() && own.exists());
    // and where every run is killed and nobody calls it, the next one that begins
    killed(7);
    let by_next = late(1);
    killed(8);
    assert!(!by_next.exists() && own.exists());
    living.signal(libc::SIGKILL);
    let _ = living.finish();
    for folder in [tmp, out] {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Runs with both folders there, in which nothing can be written. Status and output are the
/// program's; returns its one line.
fn nowhere_to_write(victim: Victim, what: &str) -> String {
    let run = victim.run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{what}: {}", run.stderr);
    assert!(run.lines().len() == 1 && run.others().is_empty(), "{what}: {}", run.stderr);
    assert!(run.wall < Duration::from_secs(5), "{what}: {:?}", run.wall);
    run.lines()[0].to_owned()
}

#[test]
fn a_disk_that_cannot_be_written() {
    let at = shared("read-only");
    let Some(disk) = SmallDisk::mount(at.clone(), 1 << 20) else {
        skipped("no tmpfs can be mounted here (needs root)");
        return;
    };
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status();
    assert!(remount.is_ok_and(|s| s.success()));
    let victim = Victim::sim("13.0", &LOOP).env("TMPDIR", &disk.0).env("GAPPROBE_TEST_ROOT", &disk.0);
    let line = nowhere_to_write(victim.env("GAPPROBE_DIR", &disk.0), "read-only");
    assert!(
        line.contains("Read-only file system") && line.contains(" ms/step [GP"),
        "the figures come from memory: {line}"
    );
}

/// A library under which the disk is another: `statfs` says NFS, or writes end in EDQUOT.
fn other_disk(name: &str, code: &str) -> PathBuf {
    let includes = ["errno.h", "string.h", "sys/vfs.h", "unistd.h", "sys/syscall.h"];
    let includes = includes.map(|file| format!("#include <{file}>\n")).concat();
    shared_library(name, &format!("#define _GNU_SOURCE\n{includes}{code}\n"))
}

fn under(library: &Path, mut victim: Victim) -> Victim {
    let preload = std::env::join_paths([library, built().library.as_path()]).expect("no colons");
    victim.command.env("LD_PRELOAD", preload);
    victim
}

#[test]
fn another_machines_disk_holds_no_recording_and_a_quota_ends_only_that() {
    let nfs = other_disk(
        "network_disk",
        "int statfs(const char *path, struct statfs *out) { int r = syscall(SYS_statfs, path, out); \
         if (strstr(path, \"network\")) out->f_type = 0x6969; return r; }",
    );
    let victim = Victim::sim("13.0", &["ways_out", "sigkill", "5000", "0"]);
    let (network, local) = (victim.folder.join("network"), victim.folder.join("tmp/local"));
    for folder in [&network, &local] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let run = under(&nfs, victim).env("TMPDIR", &network).env("GAPPROBE_TEST_ROOT", &local).run();
    assert_eq!(run.ending(), 1009, "{}", run.stderr);
    assert_eq!(
        std::fs::read_dir(&network).expect("a folder").count(),
        0,
        "not a file, for a moment or longer"
    );
    assert!(
        run.left_recordings().len() == 1 && run.left_recordings()[0].starts_with(&local),
        "{:?}",
        run.left_recordings()
    );
    // no room in the quota: recording goes on in memory
    let quota = other_disk(
        "quota",
        "static int full(void) { errno = EDQUOT; return -1; }\n\
         ssize_t pwrite(int f, const void *b, size_t n, off_t o) { (void)f, (void)b, (void)n, (void)o; return full(); }\n\
         ssize_t pwrite64(int f, const void *b, size_t n, off_t o) { (void)f, (void)b, (void)n, (void)o; return full(); }",
    );
    let run = under(&quota, Victim::sim("13.0", &LOOP)).run();
    reports(&run);
    let summary = run.summary().expect("trace and summary come from memory");
    assert!(summary["losses"]["mirror_write"].as_u64() > Some(0), "and it is counted: {}", summary["losses"]);
    assert!(run.left_recordings().is_empty(), "{:?}", run.left_recordings());
}
