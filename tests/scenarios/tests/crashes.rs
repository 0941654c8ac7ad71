// SPDX-License-Identifier: Apache-2.0
//! Purpose: after a crash under gapprobe the next starts of that job run without, with one line,
//! until a day is over or the user says otherwise. Only where the crash is certain: `gapprobe run`
//! saw the signal, or starts ended again and again while gapprobe was attaching. SIGKILL, SIGTERM,
//! `_exit` and other jobs change nothing.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gapprobe_scenarios::built::{built, shared_library};
use gapprobe_scenarios::{Run, Victim};

use super::adversity::without_cupti;

/// Folders that starts of a job share.
struct Job {
    folder: PathBuf,
}

impl Job {
    fn new(name: &str) -> Job {
        let folder = built().scratch.join(format!("job-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("tmp")).expect("a folder");
        Job { folder }
    }

    fn ends(&self, way: &str) {
        std::fs::write(self.folder.join("way"), way).expect("a file");
    }

    /// The job's start, the folders set.
    fn of(&self, mut victim: Victim) -> Victim {
        victim.command.current_dir(&self.folder);
        victim.env("TMPDIR", self.folder.join("tmp"))
    }

    fn start(&self) -> Victim {
        self.of(Victim::ours("13.0", &["crashes"]))
    }

    /// Under `gapprobe run`: `program` and its arguments.
    fn under_run(&self, program: &[&str]) -> Victim {
        let library = built().library.to_string_lossy().into_owned();
        let words = [&["run", "--lib", &library, "--"], program].concat();
        self.of(Victim::of(&built().command, &words, "13.0").alone())
    }

    /// Files of ours that name a crash or a start under way.
    fn told(&self) -> Vec<PathBuf> {
        let folders = std::fs::read_dir(self.folder.join("tmp")).expect("tmp").filter_map(Result::ok);
        let files =
            folders.flat_map(|f| std::fs::read_dir(f.path()).into_iter().flatten().filter_map(Result::ok));
        let told = |p: &PathBuf| p.extension().is_none_or(|e| e != "gpr");
        files.map(|f| f.path()).filter(told).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> String {
    built().victims.join("13.0/crashes").to_string_lossy().into_owned()
}

fn age(path: &Path, by: Duration) {
    let file = std::fs::File::options().write(true).open(path).expect("a file");
    file.set_modified(SystemTime::now() - by).expect("a time");
}

/// It ran without gapprobe, and one line says why.
fn is_off(run: &Run, why: &str) {
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 100\n"), "{}", run.stderr);
    let lines = run.lines();
    assert!(lines.len() == 1 && run.others().is_empty(), "{}", run.stderr);
    assert!(lines[0].contains("not recording") && lines[0].contains(why), "{lines:?}");
    assert!(lines[0].contains("GAPPROBE=1"), "how to switch it on: {lines:?}");
    assert!(run.truth().cupti.is_empty(), "CUPTI is not touched");
}

fn is_on(run: &Run) {
    assert!(run.summary().is_some() && run.lines().iter().any(|l| l.contains(" [GP")), "{}", run.stderr);
}

const DAY: Duration = Duration::from_secs(24 * 3600);

#[test]
fn a_crash_that_run_saw_keeps_the_next_starts_off() {
    for (way, status, signal) in [("segv", 139, "SIGSEGV"), ("abort", 134, "SIGABRT")] {
        let job = Job::new(way);
        job.ends(way);
        let run = job.under_run(&[&program()]).run();
        assert_eq!((run.ending(), run.stdout.as_str()), (status, "launched 100\n"), "{}", run.stderr);
        assert!(
            run.stderr.contains(&format!("died of {signal}")) && run.stderr.contains("GAPPROBE=1"),
            "{}",
            run.stderr
        );
        assert_eq!(job.told().len(), 1, "{:?}", job.told());
        job.ends("");
        is_off(&job.start().run(), &format!("died of {signal} under gapprobe"));
        is_off(&job.under_run(&[&program()]).run(), signal);
        is_on(&job.of(Victim::ours("13.0", &["crashes", "other job"])).run());
        // the user's word, and a day
        let told = job.told();
        age(&told[0], DAY + Duration::from_secs(60));
        is_on(&job.start().run());
        assert!(job.told().is_empty(), "{:?}", job.told());
    }
}

#[test]
fn a_start_that_the_user_asked_for_and_that_ends_in_order_ends_it() {
    let job = Job::new("forced");
    job.ends("segv");
    // a shell tells the signal of its last command by its status
    let run = job.under_run(&["sh", "-c", &format!("{}; exit $?", program())]).run();
    assert_eq!(run.ending(), 139, "{}", run.stderr);
    job.ends("");
    is_off(&job.start().run(), "SIGSEGV");
    is_on(&job.start().env("GAPPROBE", "1").run());
    is_on(&job.start().run());
}

#[test]
fn what_others_did_to_it_and_its_own_way_out_change_nothing() {
    for (way, status, run_status) in
        [("sigkill", 1009, 137), ("sigterm", 1015, 143), ("_exit", 4, 4), ("segv", 1011, 0)]
    {
        let job = Job::new(way);
        job.ends(way);
        for _ in 0..3 {
            let run = job.start().run();
            assert_eq!((run.ending(), run.stderr.as_str()), (status, ""), "{way}");
        }
        if run_status != 0 {
            let run = job.under_run(&[&program()]).run();
            assert_eq!(run.ending(), run_status, "{way}: {}", run.stderr);
        }
        assert!(job.told().is_empty(), "{way}: {:?}", job.told());
        job.ends("");
        is_on(&job.start().run());
    }
}

/// A libcupti that ends whoever loads it.
fn deadly() -> PathBuf {
    shared_library(
        "libcupti-deadly",
        "#include <signal.h>\n__attribute__((constructor)) static void end(void) { raise(SIGSEGV); }\n",
    )
}

#[test]
fn starts_that_end_while_they_are_attached_to_twice_in_a_row() {
    let (job, deadly) = (Job::new("attaching"), deadly());
    let dies = || {
        let run = job.start().env("LD_LIBRARY_PATH", without_cupti()).env("GAPPROBE_CUPTI", &deadly).run();
        assert_eq!((run.ending(), run.stderr.as_str()), (1011, ""), "it is tried");
    };
    dies();
    dies();
    assert_eq!(job.told().len(), 2);
    dies(); // one moment, one start: a job of several processes may have been killed
    for told in job.told() {
        age(&told, Duration::from_secs(100));
    }
    is_on(&job.start().run()); // not in a row
    assert!(job.told().is_empty(), "{:?}", job.told());
    dies();
    age(&job.told()[0], Duration::from_secs(100));
    dies();
    is_off(&job.start().run(), "ended 2 times in a row while gapprobe was attaching");
    is_on(&job.of(Victim::ours("13.0", &["crashes", "other job"])).run());
    for told in job.told() {
        age(&told, DAY + Duration::from_secs(60));
    }
    is_on(&job.start().run());
}

#[test]
fn run_tells_the_signal_of_a_start_that_died_while_it_was_attached_to() {
    let job = Job::new("attached-under-run");
    let victim = job.under_run(&[&program()]);
    let run = victim.env("LD_LIBRARY_PATH", without_cupti()).env("GAPPROBE_CUPTI", deadly()).run();
    assert_eq!(run.ending(), 139, "{}", run.stderr);
    is_off(&job.start().run(), "died of SIGSEGV");
}
