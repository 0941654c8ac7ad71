// SPDX-License-Identifier: Apache-2.0
//! Purpose: CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH that are taken by another tool's
//! library (victims/libothertool.c): it is initialised and gets its events as without us, one line
//! says that we stay off, or what is missing; GAPPROBE_FORCE=1 records in its place. And a second
//! copy of our own library, preloaded too or named there: one of the two records, all of it.

use std::path::PathBuf;

use gapprobe_scenarios::built::{built, preload, shared_library};
use gapprobe_scenarios::{Run, Victim};

const LOOP: [&str; 4] = ["loop", "20", "50", "20"];
const KERNELS: usize = 1000;

fn tool() -> PathBuf {
    built().victims.join("13.0/libothertool.so")
}

/// The program with the tool alone, and with us preloaded.
fn both(victim: impl Fn() -> Victim) -> (Run, Run) {
    let (alone, with) = (victim().alone().run(), victim().run());
    assert_eq!(alone.ending(), 0, "{} {}", alone.stdout, alone.stderr);
    assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{}", with.stderr);
    assert!(with.others().is_empty(), "{}", with.stderr);
    (alone, with)
}

#[test]
fn another_tools_library_in_cudas_place_stays_and_one_line_says_so() {
    for cupti in [false, true] {
        let victim = || Victim::sim("13.0", &LOOP).env("CUDA_INJECTION64_PATH", tool());
        let (alone, with) = both(|| if cupti { victim().env("OTHERTOOL", "cupti") } else { victim() });
        let kernels = if cupti { KERNELS } else { 0 };
        let said = format!("tool: initialised 1, objects 0, pushes 0, kernels {kernels}, other records 0\n");
        assert_eq!(alone.stdout, format!("launched {KERNELS}\n{said}"));
        let lines = with.lines();
        assert_eq!(lines.len(), 1, "{}", with.stderr);
        assert!(lines[0].contains("CUDA_INJECTION64_PATH is taken by /"), "{lines:?}");
        assert!(with.left_anywhere().is_empty(), "{:?}", with.left_anywhere());
    }
}

/// The driver says nothing of a library that it cannot find; nothing records then, and a user waits
/// for a line.
#[test]
fn a_library_in_cudas_place_that_is_not_there_is_named_in_one_line() {
    let victim = || Victim::sim("13.0", &LOOP).env("CUDA_INJECTION64_PATH", "/nowhere/libtool.so");
    let (_, with) = both(victim);
    let line = "gapprobe: not recording: CUDA_INJECTION64_PATH names /nowhere/libtool.so, which is not there: unset it";
    assert_eq!(with.lines(), [line], "{}", with.stderr);
    assert!(with.left_anywhere().is_empty(), "{:?}", with.left_anywhere());
    // `gapprobe run` does not say beside it that nobody used CUDA
    let library = built().library.to_string_lossy().into_owned();
    let program = built().sim.join("13.0/loop").to_string_lossy().into_owned();
    let run =
        Victim::of(&built().command, &["run", "--lib", &library, "--", &program, "20", "50", "20"], "13.0")
            .alone()
            .env("CUDA_INJECTION64_PATH", "/nowhere/libtool.so")
            .run();
    assert_eq!((run.ending(), run.stderr.trim_end()), (0, line));
    // a program that has the driver, and calls nothing of it
    let loaded = "import ctypes; ctypes.CDLL('libcuda.so.1')";
    let run = Victim::of("/usr/bin/env", &["python3", "-c", loaded], "13.0")
        .env("CUDA_INJECTION64_PATH", "/nowhere/libtool.so")
        .run();
    assert_eq!((run.ending(), run.stderr.as_str()), (0, ""));
}

#[test]
fn a_program_that_uses_no_gpu_beside_it_says_nothing() {
    let run = Victim::of("/bin/sh", &["-c", "echo $CUDA_INJECTION64_PATH"], "13.0")
        .env("CUDA_INJECTION64_PATH", tool());
    let run = run.run();
    assert_eq!((run.ending(), run.stderr.as_str()), (0, ""));
    assert_eq!(run.stdout.trim(), tool().to_string_lossy(), "and its children have the tool's");
}

/// nsys of a program whose NVTX ranges it records, which is its default: a library of its own is
/// preloaded behind us, whose constructor runs before ours and starts threads (H200, 2026-11-28).
#[test]
fn a_tool_that_has_threads_before_us_stays_too_and_one_line_says_so() {
    let code = "#include <pthread.h>\n#include <unistd.h>\n\
        static void *rest(void *none) { for (;;) pause(); return none; }\n\
        __attribute__((constructor)) static void start(void) { pthread_t t; pthread_create(&t, 0, rest, 0); }\n";
    let early = shared_library("early_thread", code);
    let both_of_us = |force| {
        let preloaded = format!("{} {}", preload().to_string_lossy(), early.display());
        Victim::sim("13.0", &LOOP)
            .env("LD_PRELOAD", preloaded)
            .env("CUDA_INJECTION64_PATH", tool())
            .env("GAPPROBE_FORCE", force)
            .run()
    };
    let run = both_of_us("0");
    assert!(run.stdout.contains("tool: initialised 1,"), "{}", run.stdout);
    assert_eq!((run.ending(), run.lines().len()), (0, 1), "{}", run.stderr);
    assert!(run.lines()[0].contains("CUDA_INJECTION64_PATH is taken by /"), "{}", run.stderr);
    let run = both_of_us("1");
    assert_eq!((run.ending(), run.lines().len()), (0, 1), "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len(), KERNELS);
}

/// (Called in our turn, as it was until 2026-11-28, nsys records nothing of CUDA's either.)
#[test]
fn forced_we_record_in_its_place_and_so_do_children() {
    let program = built().sim.join("13.0/loop");
    let line = format!("{} 20 50 20; exec {0} 20 50 20", program.display());
    let run = Victim::of("/bin/sh", &["-c", &line], "13.0")
        .env("CUDA_INJECTION64_PATH", tool())
        .env("GAPPROBE_FORCE", "1")
        .run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 1000\nlaunched 1000\n"), "{}", run.stderr);
    assert!(run.lines().len() == 2 && run.others().is_empty(), "{}", run.stderr);
    assert_eq!(run.recordings().len(), 2);
    // ranges, too, where that tool does not want them
    let run = Victim::ours("13.0", &["nvtx_calls", "story"])
        .env("CUDA_INJECTION64_PATH", tool())
        .env("GAPPROBE_FORCE", "1")
        .run();
    assert_eq!((run.ending(), run.lines().len()), (0, 1), "{}", run.stderr);
    assert!(run.recorded().of(trace::Kind::Range).count() > 90);
}

#[test]
fn another_tools_library_in_nvtxs_place_has_the_ranges_and_one_line_says_so() {
    let victim = || Victim::ours("13.0", &["nvtx_calls", "story"]).env("NVTX_INJECTION64_PATH", tool());
    let (alone, with) = both(victim);
    assert!(alone.stdout.contains("objects 2,") && !alone.stdout.contains("pushes 0"), "{}", alone.stdout);
    let said: Vec<_> =
        with.lines().into_iter().filter(|l| l.contains("NVTX_INJECTION64_PATH is taken by /")).collect();
    assert_eq!((said.len(), with.lines().len()), (1, 2), "{}", with.stderr);
    assert_eq!(with.recorded().kernels().len(), 14, "everything else is recorded");
}

/// A copy of the library in a folder of its own.
fn copy() -> PathBuf {
    let folder = built().scratch.join(format!("second-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let copy = folder.join("libgapprobe.so");
    if !copy.exists() {
        let new = folder.join(format!("new-{:?}", std::thread::current().id()));
        std::fs::copy(&built().library, &new).expect("a copy");
        std::fs::rename(&new, &copy).expect("a name");
    }
    copy
}

#[test]
fn of_two_copies_of_us_one_records_everything() {
    let (own, second) = (preload().to_string_lossy().into_owned(), copy().to_string_lossy().into_owned());
    let link = copy().with_file_name("link.so");
    let _ = std::os::unix::fs::symlink(&built().library, &link); // it may be there
    let ways: [(&str, Vec<(&str, String)>); 6] = [
        ("preloaded twice", vec![("LD_PRELOAD", format!("{own} {second}"))]),
        ("the other way round", vec![("LD_PRELOAD", format!("{second} {own}"))]),
        ("by a link", vec![("LD_PRELOAD", format!("{own} {}", link.display()))]),
        ("inherited", vec![("CUDA_INJECTION64_PATH", second.clone())]),
        ("inherited by NVTX", vec![("NVTX_INJECTION64_PATH", second.clone())]),
        (
            "inherited by both",
            vec![("CUDA_INJECTION64_PATH", second.clone()), ("NVTX_INJECTION64_PATH", second.clone())],
        ),
    ];
    for (way, set) in ways {
        let with = |victim: Victim| set.iter().fold(victim, |v, (name, value)| v.env(name, value));
        let run = with(Victim::ours("13.0", &["nvtx_calls", "story"])).run();
        assert_eq!(run.stdout, "tables 1 1\ndepth -2\nlaunched 14\n", "{way}: {}", run.stderr);
        assert_eq!((run.ending(), run.lines().len(), run.others().len()), (0, 1, 0), "{way}: {}", run.stderr);
        let recorded = run.recorded();
        assert_eq!(recorded.kernels().len(), 14, "{way}");
        let ranges = recorded.of(trace::Kind::Range).count();
        assert!(ranges > 90, "{way}: {ranges} ranges");

        // the copy that a client of CUPTI reaches is the one that steps aside for it
        let run = with(Victim::ours("13.0", &["kineto_pauses", "300", "1"])).run();
        let profile = "profile 0: subscribe 0, kernels 300 of 300, copies 5 of 5, others 0\nlaunched 900\n";
        assert_eq!((run.ending(), run.stdout.as_str()), (0, profile), "{way}: {}", run.stderr);
        assert!(run.lines().len() == 1 && run.others().is_empty(), "{way}: {}", run.stderr);
        assert_eq!(run.recorded().off().len(), 1, "{way}");
    }
}

/// Under Nsight Compute nothing may be in `CUDA_INJECTION64_PATH`, which a shell that has us
/// preloaded hands down to it (H100, ncu 2025.3: "Another tool/injection might be loaded"). Neither
/// it nor what it starts has it, forced or not, and the program says that it is not recorded.
#[test]
fn a_launcher_that_wants_to_be_alone() {
    let ncu = built().victims.join("13.0/ncu");
    let program = built().sim.join("13.0/loop");
    let shown = "echo [$CUDA_INJECTION64_PATH$NVTX_INJECTION64_PATH]";
    let line = format!("{} sh -c '{shown}; exec {} 10 20 20'", ncu.display(), program.display());
    let settings = [
        ("SIGN", ""),
        ("SIGN", "NV_NSIGHT_INJECTION_PORT_BASE"),
        ("GAPPROBE_DENY", "ncu"),
        ("GAPPROBE_FORCE", "1"),
        ("GAPPROBE", "0"),
    ];
    for (name, value) in settings {
        let victim = || {
            let victim = Victim::of("/bin/sh", &["-c", &line], "13.0");
            if value.is_empty() {
                victim
            } else {
                victim.env(name, value)
            }
        };
        let (alone, with) = (victim().alone().run(), victim().run());
        assert_eq!(
            (alone.ending(), alone.stdout.starts_with("[]\n")),
            (0, true),
            "{} {}",
            alone.stdout,
            alone.stderr
        );
        assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{name}={value}: {}", with.stderr);
        let lines = with.lines();
        let told = usize::from(name != "GAPPROBE");
        assert_eq!(lines.len(), told, "{name}={value}: {}", with.stderr);
        let why = "not recording: Nsight Compute seems to be around";
        assert!(lines.iter().all(|l| l.contains(why)), "{name}={value}: {}", with.stderr);
        assert!(with.others().is_empty() && with.truth().cupti.is_empty(), "{name}={value}: {}", with.stderr);
        assert!(with.left_anywhere().is_empty(), "{name}={value}");
    }
}

/// What it started and left behind is recorded once it has ended: its sign is a process that is
/// there no more.
#[test]
fn what_outlives_a_launcher_is_recorded() {
    let run = Victim::sim("13.0", &["loop", "10", "20", "20"]).env("GAPPROBE_UNDER_NCU", "999999999").run();
    assert_eq!((run.ending(), run.lines().len()), (0, 1), "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len(), 200);
}
