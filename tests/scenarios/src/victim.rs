// SPDX-License-Identifier: Apache-2.0
//! One run of one program in folders of its own.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::built::{built, preload, runtime};
use crate::{Recorded, Truth, CORES};

/// A program about to run: preloaded with gapprobe unless told otherwise.
pub struct Victim {
    /// What will be run; its environment holds nothing of the tester's own CUDA or gapprobe
    /// settings.
    pub command: Command,
    /// The run's folder: `out` (GAPPROBE_DIR and current directory), `tmp` (TMPDIR), stdout,
    /// stderr, `kept`.
    pub folder: PathBuf,
    limit: Duration,
}

impl Victim {
    /// A victim of the simulated driver: its name, then its arguments.
    pub fn sim(release: &str, words: &[&str]) -> Victim {
        Victim::of(built().sim.join(release).join(words[0]), &words[1..], release)
    }

    /// A victim of `tests/scenarios/victims`.
    pub fn ours(release: &str, words: &[&str]) -> Victim {
        Victim::of(built().victims.join(release).join(words[0]), &words[1..], release)
    }

    /// As [`Victim::sim`], with the run's folder in memory where /dev/shm is there: for bounds on
    /// the age of what is written, which a disk that others keep busy breaks (a header took 340 ms
    /// to reach one).
    pub fn sim_in_memory(release: &str, words: &[&str]) -> Victim {
        Victim::at(memory(), built().sim.join(release).join(words[0]), &words[1..], release)
    }

    /// As [`Victim::ours`], with the run's folder in memory.
    pub fn ours_in_memory(release: &str, words: &[&str]) -> Victim {
        Victim::at(memory(), built().victims.join(release).join(words[0]), &words[1..], release)
    }

    /// Any program, with the libraries of `release` in reach.
    pub fn of(program: impl AsRef<std::ffi::OsStr>, words: &[&str], release: &str) -> Victim {
        Victim::at(&built().scratch, program, words, release)
    }

    fn at(base: &Path, program: impl AsRef<std::ffi::OsStr>, words: &[&str], release: &str) -> Victim {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("gapprobe-run-{}-{serial}", std::process::id()));
        // (of a test of yesterday that was killed, and whose process id comes round)
        let _ = std::fs::remove_dir_all(&folder);
        for part in ["out", "tmp", "kept"] {
            std::fs::create_dir_all(folder.join(part)).expect("the run's folder");
        }
        let mut command = Command::new(program);
        command.args(words);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let foreign = ["GAPPROBE", "CUDA_", "NSYS", "SIM_", "LD_", "NV", "CARGO", "RUST"];
            if foreign.iter().any(|f| text.starts_with(f)) {
                command.env_remove(&name);
            }
        }
        command
            .env("LD_LIBRARY_PATH", built().sim.join(release))
            .env("LD_PRELOAD", preload())
            .env("TMPDIR", folder.join("tmp"))
            .env("GAPPROBE_DIR", folder.join("out"))
            .env("SIM_TRUTH", folder.join("truth.%p"))
            .current_dir(folder.join("out"))
            .stdin(Stdio::null());
        if runtime().is_some() {
            command.env("GAPPROBE_EXIT_MS", "30000"); // a sanitizer makes us some ten times as slow
        }
        Victim { command, folder, limit: Duration::from_secs(60) }
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Victim {
        self.command.env(name, value);
        self
    }

    /// Recorded whole, whatever it costs, by the ways of a run that has a budget, as the first
    /// seconds of any run are.
    pub fn whole(self) -> Victim {
        self.env("GAPPROBE_TEST_FREE_MS", "3600000")
    }

    /// With a management library for the GPUs (victims/libnvidia-ml.c) that behaves so.
    pub fn with_nvml(self, mode: &str) -> Victim {
        let folder = self.folder.join("nvml");
        std::fs::create_dir_all(&folder).expect("folder");
        let library = built().victims.join("13.0/libnvidia-ml.so");
        std::os::unix::fs::symlink(library, folder.join("libnvidia-ml.so.1")).expect("link");
        let path = format!("{}:{}", built().sim.join("13.0").display(), folder.display());
        self.env("LD_LIBRARY_PATH", path).env("FAKE_NVML", mode)
    }

    /// Without gapprobe.
    pub fn alone(mut self) -> Victim {
        self.command.env_remove("LD_PRELOAD");
        self
    }

    /// Loaded by the driver only (`CUDA_INJECTION64_PATH`), not preloaded.
    pub fn injected(mut self) -> Victim {
        self.command.env("CUDA_INJECTION64_PATH", &built().library);
        match runtime() {
            Some(runtime) => self.command.env("LD_PRELOAD", runtime),
            None => self.command.env_remove("LD_PRELOAD"),
        };
        self
    }

    /// Longest time the run may take (60 s); then it is killed and the test fails.
    pub fn limit(mut self, limit: Duration) -> Victim {
        self.limit = limit;
        self
    }

    /// Starts it. stdout and stderr go to files, unless the command's were set before by `f`.
    pub fn start_with(mut self, f: impl FnOnce(&mut Command)) -> Running {
        let output = |name: &str| Stdio::from(File::create(self.folder.join(name)).expect("output file"));
        self.command.stdout(output("stdout")).stderr(output("stderr"));
        f(&mut self.command);
        let began = Instant::now();
        let child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command));
        // stdout and stderr of the command stay open in it otherwise: a reader of a pipe would
        // never see its end
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        Running { child, folder: self.folder, began, limit: self.limit }
    }

    /// As [`Victim::start_with`].
    pub fn start(self) -> Running {
        self.start_with(|_| ())
    }

    /// Runs it to its end.
    pub fn run(self) -> Run {
        let _shared = CORES.read().unwrap_or_else(|e| e.into_inner());
        self.start().finish()
    }

    /// Runs it to its end while the caller holds [`CORES`] for writing.
    pub fn run_alone_on_the_cores(self) -> Run {
        self.start().finish()
    }
}

/// A folder in memory, where there is one.
fn memory() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        &built().scratch
    }
}

/// A program that runs.
pub struct Running {
    /// The process.
    pub child: Child,
    /// Its folder.
    pub folder: PathBuf,
    began: Instant,
    limit: Duration,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that was not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until `what` holds; `false` where the program ended or the limit passed before.
    pub fn wait_for(&mut self, mut what: impl FnMut(&Path) -> bool) -> bool {
        loop {
            self.keep_recordings();
            if what(&self.folder) {
                return true;
            }
            if self.child.try_wait().expect("wait").is_some() || self.began.elapsed() > self.limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The recording is removed once trace and summary are written: a second link keeps it for the
    /// test.
    fn keep_recordings(&self) {
        let Ok(directories) = std::fs::read_dir(self.folder.join("tmp")) else { return };
        for directory in directories.filter_map(Result::ok) {
            let Ok(files) = std::fs::read_dir(directory.path()) else { continue };
            for file in files.filter_map(Result::ok) {
                if file.path().extension().is_some_and(|e| e == "gpr") {
                    let kept = self.folder.join("kept").join(file.file_name());
                    if !kept.exists() {
                        let _ = std::fs::hard_link(file.path(), kept); // gone meanwhile: the test will miss it
                    }
                }
            }
        }
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Run {
        let status = loop {
            self.keep_recordings();
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if self.began.elapsed() > self.limit {
                let wchan = std::fs::read_to_string(format!("/proc/{}/stack", self.child.id()));
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("still running after {:?}: {wchan:?} {}", self.limit, self.folder.display());
            }
            std::thread::sleep(Duration::from_micros(500));
        };
        let wall = self.began.elapsed();
        let read = |name: &str| {
            String::from_utf8_lossy(&std::fs::read(self.folder.join(name)).unwrap_or_default()).into_owned()
        };
        Run { status, wall, stdout: read("stdout"), stderr: read("stderr"), folder: self.folder.clone() }
    }
}

/// Of a test that fails in between nothing goes on: one that launches for ever fills the disk with
/// what it says it did (59 GB once).
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a run left behind. Its folder is removed with it, unless the test fails.
pub struct Run {
    /// Exit status.
    pub status: ExitStatus,
    /// From start to end.
    pub wall: Duration,
    /// Everything it printed.
    pub stdout: String,
    /// Everything it complained.
    pub stderr: String,
    /// Its folder.
    pub folder: PathBuf,
}

impl Run {
    /// Exit code, or 1000 + the signal that killed it.
    pub fn ending(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 1000 + self.status.signal().unwrap_or(0))
    }

    /// Lines of stderr that are gapprobe's.
    pub fn lines(&self) -> Vec<&str> {
        self.stderr.lines().filter(|l| l.starts_with("gapprobe")).collect()
    }

    /// Lines of stderr that are not gapprobe's.
    pub fn others(&self) -> Vec<&str> {
        self.stderr.lines().filter(|l| !l.starts_with("gapprobe")).collect()
    }

    /// "launched N" of the victims' stdout.
    pub fn launched(&self) -> u64 {
        let word = self.stdout.lines().find_map(|l| l.strip_prefix("launched "));
        let word =
            word.unwrap_or_else(|| panic!("no \"launched N\" in {:?}, {:?}", self.stdout, self.stderr));
        word.trim().parse().expect("a number")
    }

    /// Recordings that were made.
    pub fn recordings(&self) -> Vec<PathBuf> {
        files(&self.folder.join("kept"))
    }

    /// The one recording of the run.
    pub fn recorded(&self) -> Recorded {
        let found = self.recordings();
        assert_eq!(found.len(), 1, "one recording: {found:?}; stderr: {}", self.stderr);
        Recorded::read(&found[0])
    }

    /// Recordings that are still where gapprobe wrote them.
    pub fn left_recordings(&self) -> Vec<PathBuf> {
        let all = files_below(&self.folder.join("tmp"));
        all.into_iter().filter(|p| p.extension().is_some_and(|e| e == "gpr")).collect()
    }

    /// Files in GAPPROBE_DIR, which is the current directory too.
    pub fn left(&self) -> Vec<PathBuf> {
        files(&self.folder.join("out"))
    }

    /// Everything under TMPDIR and GAPPROBE_DIR.
    pub fn left_anywhere(&self) -> Vec<PathBuf> {
        let mut all = files_below(&self.folder.join("tmp"));
        all.extend(files_below(&self.folder.join("out")));
        all
    }

    /// The summary, where one was written.
    pub fn summary(&self) -> Option<serde_json::Value> {
        let is_summary = |p: &&PathBuf| p.to_string_lossy().ends_with(".summary.json");
        let bytes = std::fs::read(self.left().iter().find(is_summary)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// What the summary says that the verdict rests on.
    pub fn evidence(&self) -> String {
        let summary = self.summary().expect("a summary");
        let said = summary["evidence"].as_array().expect("a list").iter().filter_map(|said| said.as_str());
        said.collect::<Vec<_>>().join("; ")
    }

    /// The truths of all programs of the run that used the driver.
    pub fn truths(&self) -> Vec<Truth> {
        files(&self.folder)
            .iter()
            .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("truth.")))
            .map(|p| Truth::read(p))
            .collect()
    }

    /// The truth of the program itself (not of its children); empty where it was killed before the
    /// driver began.
    pub fn truth(&self) -> Truth {
        let mut all = self.truths();
        all.sort_by_key(|t| std::cmp::Reverse(t.ops.len()));
        all.into_iter().next().unwrap_or_default()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder); // left-overs are in the target folder
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut all: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_file()).collect();
    all.sort();
    all
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = files(folder);
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for directory in entries.map(|e| e.path()).filter(|p| p.is_dir()) {
        all.extend(files_below(&directory));
    }
    all
}
