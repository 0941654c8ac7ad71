// SPDX-License-Identifier: Apache-2.0
//! Purpose: what the program does with its own threads and libraries costs it no more with us
//! inside. Loading a library that uses the GPU in its constructor does not wait for us; our threads
//! do not stay on the one CPU, or in the real-time class, of the thread that launches; a fork makes
//! none of our memory fault on the program's thread; the environment may change while we read it.

use gapprobe_scenarios::{Run, Victim, CORES};

fn numbers(run: &Run, before: &str) -> Vec<i64> {
    let lines = run.stdout.lines().filter_map(|l| l.strip_prefix(before));
    lines.map(|l| l.split(' ').next().unwrap_or("").parse().expect("a number")).collect()
}

#[test]
fn a_gpu_used_in_the_constructor_of_a_library_that_is_loaded() {
    let library = gapprobe_scenarios::built::built().victims.join("13.0/libat_load.so");
    let path = library.to_str().expect("a path");
    let run = Victim::ours("13.0", &["adverse", "library", path]).run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    // it was the whole 2 s that we wait for our thread
    assert!(numbers(&run, "loading took ")[0] < 1500, "{}", run.stdout);
    assert_eq!(run.recorded().kernels().len(), 420, "what the constructor did is recorded: {}", run.stderr);
}

#[test]
fn an_environment_that_is_replaced_while_we_read_it() {
    for round in 0..10 {
        let run = Victim::ours("13.0", &["environment"]).run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{round}: {}", run.stderr);
        assert_eq!(run.recorded().kernels().len(), 200, "{round}: as GAPPROBE_DIR says: {}", run.stderr);
    }
}

#[test]
fn our_threads_run_where_the_process_may_and_not_where_its_thread_is_bound() {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for way in ["place", "realtime"] {
        let run = Victim::ours("13.0", &["adverse", way]).run();
        assert_eq!(run.ending(), 0, "{way}: {}", run.stderr);
        if run.stdout == "not allowed\n" {
            println!("SKIPPED: no real-time class here (needs root)");
            continue;
        }
        let ours: Vec<&str> = run.stdout.lines().filter(|l| l.starts_with("gapprobe")).collect();
        assert!(ours.len() >= 4, "{way}: {}", run.stdout);
        for line in ours {
            assert!(line.ends_with(&format!("cpus {available} class 0")), "{way}: {line}");
        }
        let own = run.stdout.lines().find(|l| l.starts_with("adverse")).expect("its main thread");
        let kept = if way == "place" { "cpus 1 class 0".into() } else { format!("cpus {available} class 1") };
        assert!(own.ends_with(&kept), "{way}: the program's thread is where it was: {own}");
    }
}

#[test]
fn timed_a_fork_makes_no_page_of_ours_fault_on_the_programs_thread() {
    let _alone = CORES.write().unwrap_or_else(|e| e.into_inner());
    let run = || Victim::ours("13.0", &["adverse", "faults"]).env("SIM_TRUTH", "");
    let (alone, with) = (run().alone().run_alone_on_the_cores(), run().run_alone_on_the_cores());
    assert_eq!((alone.ending(), with.ending()), (0, 0), "{}", with.stderr);
    let least = |run: &Run| numbers(run, "faults ").into_iter().min().expect("three");
    // 2,000 launches are 100 KB of records and rings: 160 faults and more where each page was
    // copied
    assert!(least(&with) < least(&alone) + 40, "{}\nalone: {}", with.stdout, alone.stdout);
}
