// SPDX-License-Identifier: Apache-2.0
//! Purpose: wherever TMPDIR and GAPPROBE_DIR point, and however short the time at the exit:
//! recording and results are where the line or `gapprobe recover` says, and nothing half is left.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use gapprobe_scenarios::built::{built, shared_library};
use gapprobe_scenarios::{thorough, Run, Victim};

/// The command in the folders of `run`, with the same idea of where recordings lie.
fn gapprobe(run: &Run, tmpdir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(&built().command);
    command.args(words).current_dir(run.folder.join("out"));
    command.env("TMPDIR", tmpdir).env("GAPPROBE_TEST_ROOT", root(&run.folder)).env_remove("GAPPROBE_DIR");
    command.output().expect("the command")
}

fn root(folder: &Path) -> PathBuf {
    folder.join("tmp/root")
}

/// Names in a folder that are there although nobody finished them.
fn half_files(run: &Run) -> Vec<PathBuf> {
    let half = |p: &PathBuf| p.extension().is_some_and(|e| e == "part" || e == "new");
    run.left_anywhere().into_iter().filter(half).collect()
}

/// A library under which writing to an unfinished result takes longer than any exit may: a disk
/// that hangs.
fn slow_disk() -> PathBuf {
    let code = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
ssize_t write(int fd, const void *bytes, size_t count) {
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/thread-self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    name[length > 0 ? length : 0] = 0;
    if (strstr(name, ".part")) sleep(20);
    return ((ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write"))(fd, bytes, count);
}
"#;
    shared_library("slow_disk", code)
}

/// One line, which names a command; that command makes trace and summary.
fn is_finished_as_the_line_says(run: &Run) {
    let lines = run.lines();
    assert_eq!(lines.len(), 1, "{}", run.stderr);
    let (_, next) = lines[0].split_once("Next: gapprobe ").expect("what to do");
    let words: Vec<&str> = next.split(". Trace").next().unwrap_or("").split(' ').collect();
    let output = gapprobe(run, &run.folder.join("tmp"), &words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" [GP"), "{output:?}");
    assert!(run.left_recordings().is_empty(), "recovered, nothing was lost");
}

#[test]
fn a_report_cut_in_the_middle_of_a_write_leaves_no_half_file() {
    let slow = slow_disk();
    for fault in ["", "flush=hang"] {
        let mut victim = Victim::sim("13.0", &["loop", "100", "100", "5"]).env("GAPPROBE_EXIT_MS", "1500");
        let preload = std::env::join_paths([built().library.clone(), slow.clone()]).expect("no colons");
        victim.command.env("LD_PRELOAD", preload);
        let run = victim.env("SIM_FAULT", fault).run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 10000\n"), "{}", run.stderr);
        assert!(run.wall < Duration::from_secs(10), "the disk held the program up: {:?}", run.wall);
        assert_eq!(half_files(&run), Vec::<PathBuf>::new(), "{fault}: {}", run.stderr);
        assert!(run.lines()[0].contains("not ready within 1500 ms"), "{}", run.stderr);
        is_finished_as_the_line_says(&run);
    }
    let _ = std::fs::remove_file(slow); // in the target folder
}

#[test]
fn a_report_cut_anywhere_leaves_no_half_file_and_names_what_finishes_it() {
    let mut cut = 0;
    let moments: &[u64] =
        if thorough() { &[30, 60, 90, 120, 160, 200, 250, 300, 400] } else { &[30, 120, 300] };
    for &ms in moments {
        let victim = Victim::sim("13.0", &["loop", "200", "400", "0"]);
        let run = victim.env("GAPPROBE_EXIT_MS", ms.to_string()).run();
        assert_eq!(run.ending(), 0, "{}", run.stderr);
        assert_eq!(half_files(&run), Vec::<PathBuf>::new(), "{ms} ms: {}", run.stderr);
        if run.left_recordings().is_empty() {
            continue; // in time
        }
        cut += 1;
        is_finished_as_the_line_says(&run);
    }
    assert!(cut > 0, "no deadline of these cut a report: make the run longer");
}

#[test]
fn a_missing_folder_is_named_with_the_reason_and_a_command_that_works() {
    for bad in ["/nonexistent-gapprobe/out", "/dev/null/out"] {
        let run = Victim::sim("13.0", &["loop", "10", "20", "20"]).env("GAPPROBE_DIR", bad).run();
        let lines = run.lines();
        assert_eq!((run.ending(), lines.len()), (0, 1), "{}", run.stderr);
        let reason = if bad.starts_with("/dev") { "Not a directory" } else { "No such file or directory" };
        assert!(lines[0].contains(&format!("no trace in {bad}: {reason}")), "{}", lines[0]);
        assert_eq!(lines[0].matches("Next:").count(), 1, "{}", lines[0]);
        is_finished_as_the_line_says(&run);
    }
}

#[test]
fn a_recording_that_was_removed_right_before_the_end_is_there_where_the_line_says_so() {
    let victim = Victim::ours("13.0", &["adverse", "removes"]);
    let mut running = victim.env("GAPPROBE_DIR", "/nonexistent-gapprobe/out").start();
    // (without a look at it meanwhile, which would leave the recording a second name)
    assert!(running.child.wait().is_ok());
    let run = running.finish();
    let lines = run.lines();
    assert_eq!((run.ending(), lines.len()), (0, 1), "{}", run.stderr);
    assert!(lines[0].contains("no trace in ") && lines[0].contains("gapprobe recover "), "{}", lines[0]);
    is_finished_as_the_line_says(&run);
}

#[test]
fn where_tmpdir_cannot_be_used_the_recording_is_in_the_fallback_and_recover_finds_it() {
    for tmpdir in ["relative", "/proc/1/task", "/nonexistent-gapprobe", ""] {
        let mut victim = Victim::sim("13.0", &["ways_out", "sigkill", "5000", "0"]).env("TMPDIR", tmpdir);
        let root = root(&victim.folder);
        std::fs::create_dir_all(&root).expect("root");
        victim.command.env("GAPPROBE_TEST_ROOT", &root);
        let run = victim.run();
        assert_eq!(run.ending(), 1009, "{}", run.stderr);
        let left = run.left_recordings();
        assert!(left.len() == 1 && left[0].starts_with(&root), "TMPDIR={tmpdir}: {left:?}");
        let output = gapprobe(&run, Path::new(tmpdir), &["recover"]);
        assert!(output.status.success(), "TMPDIR={tmpdir}: {output:?}");
        assert!(run.left_recordings().is_empty() && half_files(&run).is_empty());
        assert_eq!(run.left().len(), 2, "trace and summary: {:?}", run.left());
    }
}

#[test]
fn what_a_process_killed_in_its_first_moments_left_goes_with_the_next_one() {
    let folder = {
        let victim = Victim::sim("13.0", &["ways_out", "hang", "10"]);
        let folder = victim.folder.clone();
        let mut running = victim.start();
        let seen =
            running.wait_for(|f| std::fs::read_dir(f.join("tmp")).is_ok_and(|mut d| d.next().is_some()));
        assert!(seen);
        running.signal(libc::SIGKILL);
        let run = running.finish();
        assert_eq!(run.ending(), 1009);
        // whether its first write was done is chance: put what it would have left had it not been
        let private = std::fs::read_dir(folder.join("tmp")).expect("tmp").flatten().next().expect("private");
        let owner = trace::place::Owner { pid: i32::MAX as u32, start: 1, ..trace::place::Owner::default() };
        let name = trace::place::unfinished_recording("gapprobe-x-1-1-1.gpr", &owner);
        std::fs::write(private.path().join(name), "").expect("leftover");
        let part = trace::place::unfinished_result("gapprobe-x-1-1-1.json.gz", &owner);
        std::fs::write(folder.join("out").join(&part), "").expect("leftover");
        let then = std::time::SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
        let file = std::fs::File::options().write(true).open(folder.join("out").join(part)).expect("part");
        file.set_modified(then).expect("time");
        assert!(half_files(&run).len() >= 2, "these two, and the process's own where it came so far");
        let next = Victim::sim("13.0", &["loop", "10", "20", "20"]);
        let next = next.env("TMPDIR", folder.join("tmp")).env("GAPPROBE_DIR", folder.join("out")).run();
        assert_eq!(next.ending(), 0, "{}", next.stderr);
        assert_eq!(half_files(&run), Vec::<PathBuf>::new());
        folder
    };
    assert!(!folder.exists());
}
