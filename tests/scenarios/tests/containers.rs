// SPDX-License-Identifier: Apache-2.0
//! Purpose: in containers as they are: `/tmp` that runs nothing or takes nothing, a root that takes
//! nothing, no `/proc`, a user namespace. The program is as without us, the recording goes where it
//! can, what cannot be had is said, and `gapprobe doctor` names it. Each in a namespace of its own
//! (`unshare`).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

/// An image from scratch: the program, the driver's libraries, us, and what the loader needs for
/// them. No shell, no `/tmp`, no interpreter; `/proc`, as every runtime mounts it.
struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Image {
    fn new() -> Image {
        let image = Image(built().scratch.join(format!("image-{}", std::process::id())));
        let sim = built().sim.join("13.0");
        let files = ["loop", "libcudart.so.13", "libcuda.so.1", "libcupti.so.13"].map(|f| sim.join(f));
        let command = built().installed(&image.0);
        std::fs::create_dir_all(image.0.join("proc")).expect("a folder");
        for file in &files {
            let name = file.file_name().expect("a name");
            std::fs::copy(file, image.0.join(name)).expect("a copy");
        }
        let ours = [command, image.0.join("libgapprobe.so")];
        let needs = Command::new("ldd").args(&files).args(&ours).output().expect("ldd");
        for library in
            String::from_utf8_lossy(&needs.stdout).split_whitespace().filter(|w| w.starts_with("/lib"))
        {
            let to = image.0.join(&library[1..]);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            std::fs::copy(library, to).expect("a copy");
        }
        image
    }

    /// Runs a program of the image's, as its only file that can be run is run.
    fn run(&self, words: &[&str], preload: &str) -> Output {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().env("LD_LIBRARY_PATH", "/").env("LD_PRELOAD", preload);
        let path = |p: &Path| std::ffi::CString::new(p.as_os_str().as_encoded_bytes()).expect("a path");
        let (root, proc) = (path(&self.0), path(&self.0.join("proc")));
        // the child has one thread, and a namespace of its own from the first call on
        let enter = move || {
            let none = std::ptr::null::<libc::c_void>();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            let done = |result: i32| match result {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            };
            // SAFETY: takes a number.
            done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
            // SAFETY: C strings, a number, no data.
            done(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), none.cast(), private, none) })?;
            // SAFETY: C strings, a number, no data.
            done(unsafe { libc::mount(c"proc".as_ptr(), proc.as_ptr(), c"proc".as_ptr(), 0, none) })?;
            // SAFETY: a C string.
            done(unsafe { libc::chroot(root.as_ptr()) })?;
            // SAFETY: a C string.
            done(unsafe { libc::chdir(c"/".as_ptr()) })
        };
        // SAFETY: `enter` allocates nothing and takes no lock.
        unsafe { command.pre_exec(enter) };
        command.output().expect("it is entered")
    }
}

#[test]
fn in_an_image_without_a_shell_the_program_is_recorded_and_doctor_looks_around() {
    let image = Image::new();
    let words = ["/loop", "60", "10", "50"];
    let (alone, with) = (image.run(&words, ""), image.run(&words, "/libgapprobe.so"));
    let stderr = String::from_utf8_lossy(&with.stderr).into_owned();
    assert!(alone.status.success() && with.status.success(), "{stderr}");
    assert_eq!(with.stdout, alone.stdout, "{stderr}");
    assert!(stderr.starts_with("gapprobe: ") && stderr.contains(" Trace: "), "{stderr}");
    let doctor = image.run(&["/gapprobe", "doctor"], "");
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    for (is, what) in [
        ("ok", "cupti      13 (/libcupti.so.13)"),
        ("problem", "recording  /tmp: No such file or directory"),
        ("ok", "traces     /"),
        ("note", "library    /libgapprobe.so (not tried: no `true` here)"),
    ] {
        assert!(text.lines().any(|l| l.starts_with(is) && l.contains(what)), "{what}: {text}");
    }
}
