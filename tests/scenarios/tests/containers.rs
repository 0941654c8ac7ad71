// SPDX-License-Identifier: Apache-2.0
//! Purpose: in containers as they are: `/tmp` that runs nothing or takes nothing, a root that takes
//! nothing, no `/proc`, a user namespace. The program is as without us, the recording goes where it
//! can, what cannot be had is said, and `gapprobe doctor` names it. Each in a namespace of its own
//! (`unshare`).

use std::process::{Command, Output};

use gapprobe_scenarios::built::{built, preload, root};

/// How a container is made: `unshare`'s options, then what root does in it.
struct Container {
    options: &'static [&'static str],
    mounts: &'static str,
}

const ALL_READ_ONLY: &str =
    "mount -o remount,bind,ro / && mount -t tmpfs -o ro t /tmp && mount -t tmpfs -o ro t /dev/shm \
     && mount -t tmpfs -o ro t /var/tmp && mount -t tmpfs -o ro t /run";

fn container(options: &'static [&'static str], mounts: &'static str) -> Container {
    Container { options, mounts }
}

impl Container {
    /// Runs `command`, a shell's, in the container, in a folder of its own that can be written
    /// where anything can.
    fn run(&self, name: &str, command: &str) -> Output {
        let folder = built().scratch.join(format!("container-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let script = format!("{} && cd {} && {command}", self.mounts, folder.display());
        let mut unshare = Command::new("unshare");
        unshare.args(self.options).args(["sh", "-c", &script]).env_remove("TMPDIR");
        let output = unshare.env("LD_LIBRARY_PATH", built().sim.join("13.0")).output().expect("unshare");
        std::fs::remove_dir_all(&folder).expect("it goes again");
        output
    }

    /// What a program says on stderr under us there; it ends well, and prints what it prints
    /// without.
    fn record(&self, name: &str) -> String {
        let program = root().join("tests/victims/train.py");
        let train = format!("python3 -B {} --mode sync --steps 60", program.display());
        let preload = preload();
        let with = self.run(name, &format!("LD_PRELOAD='{}' {train}", preload.to_str().expect("UTF-8")));
        let alone = self.run(name, &train);
        let stderr = String::from_utf8_lossy(&with.stderr).into_owned();
        assert!(with.status.success() && alone.status.success(), "{name}: {stderr}");
        assert_eq!(with.stdout, alone.stdout, "{name}");
        assert!(stderr.starts_with("gapprobe: GPU idle ") && stderr.contains("[GP101]"), "{name}: {stderr}");
        assert!(!stderr.contains("lost"), "{name}: nothing is missing: {stderr}");
        stderr
    }

    /// What `gapprobe doctor` says of `subject` there; "" where nothing is wrong with it.
    fn doctor(&self, name: &str, subject: &str) -> String {
        let installed = built().scratch.join(format!("doctor-{name}-{}", std::process::id()));
        let output = self.run(name, &format!("{} doctor", built().installed(&installed).display()));
        std::fs::remove_dir_all(&installed).expect("it goes again");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = |l: &&str| l.starts_with("problem") || l.starts_with("note");
        let line = text.lines().filter(wrong).find(|l| l.split_whitespace().nth(1) == Some(subject));
        line.unwrap_or("").to_owned()
    }
}

#[test]
fn a_tmp_that_runs_nothing_takes_the_recording() {
    let container = container(&["-m"], "mount -t tmpfs -o noexec t /tmp");
    assert!(container.record("noexec").contains(" Trace: "));
    assert_eq!(container.doctor("noexec", "recording"), "");
}

#[test]
fn where_tmp_takes_nothing_the_trace_is_made_and_doctor_says_what_is_missing() {
    let container = container(&["-m"], "mount -t tmpfs -o ro t /tmp");
    assert!(container.record("ro-tmp").contains(" Trace: "));
    assert!(container.doctor("ro-tmp", "recording").contains("/tmp: Read-only file system"));
}

#[test]
fn where_nothing_can_be_written_the_line_says_so_with_the_way_out() {
    let container = container(&["-m"], ALL_READ_ONLY);
    let line = container.record("ro");
    assert!(line.contains("Read-only file system") && line.contains("Next: set GAPPROBE_DIR"), "{line}");
    assert!(container.doctor("ro", "traces").contains("Read-only file system"));
}

#[test]
fn without_proc_the_program_is_recorded_and_doctor_names_it() {
    let container = container(&["-m"], "umount -l /proc");
    assert!(container.record("no-proc").contains(" Trace: "));
    assert!(container.doctor("no-proc", "proc").contains("/proc is not mounted"));
    assert_eq!(container.doctor("no-proc", "library"), "", "the command finds its library");
}

#[test]
fn in_a_user_namespace_and_one_of_processes_all_is_as_outside() {
    for (name, container) in [
        ("user", container(&["-U", "-r", "-m"], "true")),
        ("pid", container(&["-p", "-f", "-m"], "mount -t proc proc /proc")),
    ] {
        assert!(container.record(name).contains(" Trace: "), "{name}");
        assert_eq!(container.doctor(name, "recording"), "", "{name}");
    }
}
