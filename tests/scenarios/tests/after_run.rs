// SPDX-License-Identifier: Apache-2.0
//! Purpose: what `gapprobe run` says and does behind a command: once for each process, of its end
//! only what is known, and a verdict that the process gave itself is not replaced by a worse one.

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::small_disk::SmallDisk;
use gapprobe_scenarios::{skipped, Run, Victim};

/// `gapprobe run` of a shell's script; `$SIM` names the folder of the simulated driver's victims,
/// `$OURS` that of ours.
fn run(script: &str) -> Run {
    let library = built().library.to_string_lossy().into_owned();
    let words = ["run", "--lib", &library, "--", "bash", "-c", script];
    let victim = Victim::of(&built().command, &words, "13.0").alone();
    victim.env("SIM", built().sim.join("13.0")).env("OURS", built().victims.join("13.0")).run()
}

fn summaries(run: &Run) -> usize {
    run.left().iter().filter(|p| p.to_string_lossy().ends_with(".summary.json")).count()
}

/// The one verdict.
fn verdict(run: &Run) -> &str {
    let lines: Vec<&str> = run.stderr.lines().filter(|l| l.contains(" [GP")).collect();
    assert_eq!((lines.len(), summaries(run)), (1, 1), "{} {:?}", run.stderr, run.left());
    lines[0]
}

#[test]
fn a_verdict_whose_trace_could_not_be_written_stays_the_only_one() {
    // neither the recording nor the trace fits, the summary does
    let run = run("unset SIM_TRUTH; ulimit -f 100; exec $SIM/loop 300 100 10 200");
    let line = verdict(&run);
    assert!(line.contains("no trace in "), "{line}");
    assert_eq!(run.left_recordings().len(), 1, "what the line names is there");
    assert!(line.contains(&*run.left_recordings()[0].to_string_lossy()), "{line}");
    assert_ne!(run.summary().expect("a summary")["verdict"]["code"], "GP199");
}

#[test]
fn a_verdict_that_found_no_folder_is_not_said_again() {
    let run = run("export GAPPROBE_DIR=$GAPPROBE_DIR/gone; exec $SIM/loop 300 100 10 200");
    let lines: Vec<&str> = run.stderr.lines().filter(|l| l.contains(" [GP")).collect();
    assert!(lines.len() == 1 && lines[0].contains("no trace in "), "{}", run.stderr);
    // `run` itself has another folder, into which all of it goes
    assert_eq!((summaries(&run), run.left_recordings().len()), (1, 0), "{:?}", run.left());
    assert!(run.stderr.contains("gapprobe: wrote "), "{}", run.stderr);
}

#[test]
fn a_run_that_cannot_write_either_says_what_to_do() {
    let library = built().library.to_string_lossy().into_owned();
    let loops = built().sim.join("13.0/loop").to_string_lossy().into_owned();
    for quiet in [&[][..], &["--quiet"]] {
        let words = [&["run", "--lib", &library], quiet, &["--", &loops, "300", "100", "10", "200"]].concat();
        let run = Victim::of(&built().command, &words, "13.0")
            .alone()
            .env("GAPPROBE_DIR", "/nonexistent/folder")
            .run();
        let told = run.stderr.lines().last().unwrap_or_default().to_owned();
        assert!(told.starts_with("gapprobe: no trace in /nonexistent/folder: "), "{}", run.stderr);
        let (_, next) = told.split_once("Next: gapprobe recover --dir ").expect("what to do");
        assert!(next.contains(".gpr"), "{next}");
        assert_eq!((run.ending(), run.left_recordings().len()), (0, 1), "{}", run.stderr);
    }
}

#[test]
fn only_who_was_killed_is_said_to_have_been() {
    for (script, ending, words) in [
        ("exec $SIM/ways_out _exit4 3000", 4, "ended without exit handlers"),
        ("$SIM/ways_out sigkill 3000; exit 7", 7, "ended without exit handlers"),
        ("exec $SIM/ways_out sigkill 3000", 137, "killed by signal 9"),
        ("exec $SIM/ways_out sigterm 3000", 143, "killed by signal 15"),
    ] {
        let run = run(script);
        assert_eq!(run.ending(), ending, "{script}: {}", run.stderr);
        let line = verdict(&run);
        assert!(line.contains(words), "{script}: {line}");
        let coverage = &run.summary().expect("a summary")["coverage"];
        let signal = (ending > 128).then(|| ending - 128);
        assert_eq!((&coverage["killed"], coverage["signal"].as_i64()), (&true.into(), signal.map(i64::from)));
    }
}

#[test]
fn a_process_that_is_still_being_taken_down_is_waited_for() {
    for _ in 0..3 {
        let run = run("$SIM/loop 20000 100 10 200 >/dev/null & sleep 0.6; kill -9 $!");
        assert!(verdict(&run).contains("without exit handlers"), "{}", run.stderr);
        assert!(!run.stderr.contains("still go"), "{}", run.stderr);
        assert_eq!(run.left_recordings().len(), 0);
    }
}

#[test]
fn a_process_that_goes_on_is_not_waited_for() {
    let run = run("$SIM/loop 600 100 10 1000 >/dev/null 2>&1 & sleep 0.4");
    assert!(
        run.stderr.contains("gapprobe: 1 recorded process of this run still goes on; later: "),
        "{}",
        run.stderr
    );
    assert!(run.wall.as_millis() < 5000, "{:?}", run.wall);
}

#[track_caller]
fn does_not_say_that_nothing_was_recorded(script: &str) {
    let run = run(script);
    assert!(!run.stderr.contains("nothing was recorded"), "{script}: {}", run.stderr);
}

/// That nothing was recorded is said where no process used CUDA, and where none has the library;
/// not where one of them recorded, or said by itself why it did not.
#[test]
fn a_run_without_cuda_says_that_nothing_was_recorded() {
    let said = "gapprobe: nothing was recorded: no process with gapprobe in it made a CUDA context \
                (gapprobe doctor looks for what is amiss)";
    for script in ["exit 5", "env -u LD_PRELOAD true; exit 5"] {
        let run = run(script);
        assert_eq!((run.ending(), run.stderr.trim_end()), (5, said), "{script}");
        assert!(run.left_anywhere().is_empty(), "{:?}", run.left_anywhere());
    }
    let goes_on = run("sleep 2 > /dev/null 2>&1 & exit 5");
    let so_far = "gapprobe: nothing was recorded so far; 1 process of this run goes on";
    assert!(goes_on.stderr.starts_with(so_far), "{}", goes_on.stderr);
    for script in [
        "exec $SIM/loop 10 20 20",
        "bash -c '$SIM/loop 10 20 20; exit 0' | cat",
        "$SIM/loop 10 20 20 & $SIM/loop 10 20 20; wait",
        "mkdir elsewhere; cd elsewhere; exec $SIM/loop 10 20 20",
        "GAPPROBE_QUIET=1 $SIM/loop 10 20 20",
        "GAPPROBE_CUPTI=/nowhere $SIM/loop 10 20 20",
        "NSYS_PROFILING_SESSION_ID=17 $SIM/loop 10 20 20",
    ] {
        does_not_say_that_nothing_was_recorded(script);
    }
}

#[test]
fn a_run_that_is_switched_off_says_so() {
    let off = |script: &str, value: &str| {
        let library = built().library.to_string_lossy().into_owned();
        let words = ["run", "--lib", &library, "--", "bash", "-c", script];
        let victim = Victim::of(&built().command, &words, "13.0").alone().env("GAPPROBE", value);
        victim.env("SIM", built().sim.join("13.0")).run()
    };
    for value in ["0", "off"] {
        let run = off("exec $SIM/loop 10 20 20", value);
        let said = format!("gapprobe: nothing was recorded: GAPPROBE={value} switches gapprobe off");
        assert_eq!((run.ending(), run.stderr.trim_end()), (0, said.as_str()));
        assert!(run.left_anywhere().is_empty(), "{:?}", run.left_anywhere());
    }
    let on = off("GAPPROBE=1 exec $SIM/loop 10 20 20", "0");
    assert!(on.stderr.contains(" [GP"), "{}", on.stderr);
}

/// A process whose recording no file took ended without its report: what it did is lost, and that
/// is said. Who said its line is not named.
#[test]
fn a_recording_that_was_in_memory_alone_is_said_to_be_lost() {
    // no header, then nothing but the header
    for (limit, end) in [(0, "sigkill"), (4, "sigkill"), (0, "_exit4")] {
        let run = run(&format!(
            "unset SIM_TRUTH; trap '' XFSZ; ulimit -f {limit}; exec $SIM/ways_out {end} 3000 >/dev/null"
        ));
        let said = "gapprobe: nothing was recorded of process ";
        assert!(run.stderr.starts_with(said) && run.stderr.lines().count() == 1, "{end}: {}", run.stderr);
        assert!(
            run.stderr.contains(" holds nothing (") && run.stderr.contains("ulimit -f"),
            "{}",
            run.stderr
        );
        assert!(run.left().is_empty(), "{:?}", run.left());
    }
    for script in [
        "unset SIM_TRUTH; ulimit -f 0; exec $SIM/loop 10 20 20 >/dev/null",
        "unset SIM_TRUTH; (ulimit -f 0; exec $SIM/loop 10 20 20 >/dev/null)",
        "$SIM/loop 10 20 20 & $SIM/loop 10 20 20; wait",
    ] {
        does_not_say_that_nothing_was_recorded(script);
    }
}

#[test]
fn where_the_disk_is_full_a_killed_run_says_so_and_what_to_do() {
    let at = built().scratch.join(format!("full-run-{}", std::process::id()));
    let Some(disk) = SmallDisk::mount(at, 64 << 10) else {
        skipped("no tmpfs can be mounted here (needs root)");
        return;
    };
    std::fs::write(disk.0.join("fill"), vec![1; 64 << 10]).expect("a full disk");
    let folder = disk.0.display().to_string();
    let library = built().library.to_string_lossy().into_owned();
    let killed = built().sim.join("13.0/ways_out").to_string_lossy().into_owned();
    let words = ["run", "--lib", &library, "--", &killed, "sigkill", "3000"];
    let run = Victim::of(&built().command, &words, "13.0").alone().env("TMPDIR", &disk.0).run();
    assert_eq!(run.ending(), 137, "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    for part in ["nothing was recorded of process ", "No space left on device", "make room (df -h ", &folder]
    {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
}

#[test]
fn where_no_folder_can_be_had_a_killed_run_says_so() {
    let library = built().library.to_string_lossy().into_owned();
    for (end, said) in [("kill -9 $$", true), ("exit 3", false)] {
        let words = ["run", "--lib", &library, "--", "bash", "-c", end];
        let run = Victim::of(&built().command, &words, "13.0").alone();
        let run = run.env("TMPDIR", "/proc/1/task").env("GAPPROBE_TEST_ROOT", "/proc/1/fd").run();
        let told = run
            .stderr
            .starts_with("gapprobe: nothing was recorded: the command was killed, and there is no folder");
        assert_eq!((told, run.stderr.lines().count()), (said, usize::from(said)), "{end}: {}", run.stderr);
    }
}
