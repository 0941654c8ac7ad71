// SPDX-License-Identifier: Apache-2.0
//! Purpose: where there is no Python, the function that called CUDA. Programs that call from every
//! place where a stack can be tell by the size of their memsets which function each call came from;
//! every call of the recording is compared with that, for the memset and for the wait that follows
//! it. A call may be without its caller where that is counted; none has a wrong one.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{cases, Run, Victim};
use trace::call::Class;
use trace::reader::Track;
use trace::{Kind, Language, Loss};
use verdict::run::Run as Loaded;

const RELEASE: &str = "13.0";

fn named(recording: &[u8]) -> Loaded {
    let mut loaded = verdict::load(recording).expect("a recording");
    verdict::symbols::name_with_lines(&mut loaded, None);
    loaded
}

/// The calls of a run by what is known of their callers.
#[derive(Default, Debug)]
struct Tally {
    right: usize,
    without: usize,
    /// Only the module.
    module: usize,
    /// With file and line.
    lines: usize,
    sizes: HashMap<u64, usize>,
}

/// Holds every call against the function that its memset names; `shown`: the name of function N.
fn compare(run: &Run, shown: impl Fn(u64) -> String) -> Tally {
    let recorded = run.recorded();
    let bytes = std::fs::read(&run.recordings()[0]).expect("the recording");
    let loaded = named(&bytes);
    let sizes: HashMap<u32, u64> = recorded
        .of(Kind::Memset)
        .map(|(_, e)| (e.correlation, u64::from(e.a) | u64::from(e.b) << 32))
        .collect();
    let mut by_thread: HashMap<u32, Vec<_>> = HashMap::new();
    for (track, event) in recorded.of(Kind::Call) {
        if let Track::Of(trace::TrackInfo::Thread { tid, .. }) = track {
            by_thread.entry(*tid).or_default().push(*event);
        }
    }
    let mut tally = Tally::default();
    for calls in by_thread.values_mut() {
        calls.sort_by_key(|e| e.start);
        let mut number = None;
        for call in calls {
            number = sizes.get(&call.correlation).copied().or(number.filter(|_| call.x == Class::Sync as u8));
            let Some(number) = number else { continue };
            tally.see(&loaded, call.c, &shown(number));
            *tally.sizes.entry(number).or_default() += 1;
        }
    }
    let counted = recorded.loss(Loss::CallerUnknown) + recorded.loss(Loss::CallerDropped);
    assert!(tally.without as u64 <= counted, "{tally:?} {:?}", recorded.losses());
    tally
}

impl Tally {
    fn see(&mut self, loaded: &Loaded, stack: u32, expected: &str) {
        let frames: Vec<_> = loaded.definitions.stack(stack).collect();
        let Some(frame) = frames.first() else {
            self.without += 1;
            return;
        };
        let text = |id| loaded.definitions.string(id).unwrap_or("");
        assert_eq!((frames.len(), frame.language), (1, Language::Caller), "{}", text(frame.function));
        if frame.function == 0 {
            self.module += 1;
            return;
        }
        let mut sites = verdict::sites::Sites::new(loaded);
        let site = sites.of(stack).expect("a site");
        let site = sites.get(site).expect("a site");
        let function = site.function.split("+0x").next().unwrap_or("");
        assert_eq!(function, expected, "{site}");
        self.lines += usize::from(frame.line > 0);
        self.right += 1;
    }
}

fn ended_well(run: &Run) {
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "done\n"), "{}", run.stderr);
    assert!(run.others().is_empty(), "{}", run.stderr);
}

fn of_c(number: u64) -> String {
    format!("function_{number}")
}

/// As they come: every call, in every release's driver.
#[test]
fn each_call_has_the_function_that_made_it() {
    for &release in cases(&["13.0", "12.4", "11.8", "12.9", "13.5"]) {
        let run = Victim::ours(release, &["callers", "two", "200"]).run();
        ended_well(&run);
        let tally = compare(&run, of_c);
        assert_eq!((tally.right, tally.without, tally.module), (400, 0, 0), "{release}: {tally:?}");
        assert_eq!(tally.lines, 400, "{release}: it has debug information");
        assert_eq!(tally.sizes, HashMap::from([(1, 200), (2, 200)]));
    }
}

/// Each launch by itself: one kernel is launched by two functions (and its blocks say by which),
/// another one through a function of its own name, as compilers make one for each kernel.
#[test]
fn each_launch_has_the_function_that_made_it() {
    for &release in cases(&["13.0", "12.4", "11.8"]) {
        let run = Victim::ours(release, &["callers", "launches", "200"]).whole().run();
        ended_well(&run);
        let recorded = run.recorded();
        let loaded = named(&std::fs::read(&run.recordings()[0]).expect("the recording"));
        let mut tally = Tally::default();
        for op in loaded.devices[0].streams.iter().flat_map(|s| &s.ops).filter(|o| o.kind == Kind::Kernel) {
            let (_, call) = loaded.call(op.call).expect("its launch");
            let number = match loaded.definitions.kernel_name(op.a) {
                "stubbed" => 2,
                "shared" => loaded.definitions.kernel(op.a).expect("a kernel").block[0],
                name => name.trim_start_matches("kernel_").parse().expect("a number"),
            };
            tally.see(&loaded, call.site, &format!("launch_{number}"));
        }
        assert_eq!(recorded.losses().len(), 0, "{release}: {:?}", recorded.losses());
        assert_eq!(tally.right + tally.without, 1000, "{release}: {tally:?}");
        assert!(tally.without <= 100, "{release}: until the ways are learnt: {tally:?}");
    }
}

#[test]
fn functions_of_rust_have_their_names() {
    let run = Victim::ours(RELEASE, &["callers_rust"]).run();
    ended_well(&run);
    let tally = compare(&run, |n| match n {
        11 => "callers_rust::layers::function_11".into(),
        _ => "<callers_rust::layers::Twelve as callers_rust::layers::Layer>::wait".into(),
    });
    assert_eq!((tally.right, tally.without), (400, 0), "{tally:?}");
}

#[test]
fn recursion_threads_coroutines_handlers_and_forks_make_no_wrong_caller() {
    for words in [
        &["callers", "recursion", "150"][..],
        &["callers", "coroutine", "150"],
        &["callers", "handler", "150"],
        &["callers", "fork", "150"],
        &["callers", "threads", "16", "100"],
    ] {
        let run = Victim::ours(RELEASE, words).run();
        ended_well(&run);
        let tally = compare(&run, of_c);
        println!("{words:?}: {tally:?}");
        assert!(tally.right >= 100 && tally.module == 0, "{words:?}: {tally:?}");
        // (threads that begin all at once, and a program that is slow since it forked, may find no
        // copy free while the first ways are learnt)
        let may_miss = ["threads", "fork"].contains(&words[1]);
        assert!(may_miss || (tally.right >= 300 && tally.without == 0), "{words:?}: {tally:?}");
        assert!(tally.sizes.len() >= 2, "{words:?}: {tally:?}");
    }
}

/// Threads beyond the pool of rings share one, in which nothing can stand in front of an event:
/// they have no caller.
#[test]
fn more_threads_than_rings() {
    let run = Victim::ours(RELEASE, &["callers", "threads", "60", "30"]).run();
    ended_well(&run);
    let recorded = run.recorded();
    assert!(recorded.loss(Loss::ThreadOverflow) > 0, "{:?}", recorded.losses());
    let with = recorded.calls(Class::Sync).iter().filter(|(_, e)| e.c != 0).count();
    // (so many threads at once may find no copy free while the first ways are learnt)
    let dropped = recorded.loss(Loss::CallerDropped) as usize;
    assert!(with > 0 && with + dropped >= 30 * 40, "{with} {:?}", recorded.losses());
}

/// Two plugins that the loader puts at one place in turn, faster than the recorder looks.
#[test]
fn a_plugin_is_not_taken_for_the_one_that_was_there_before() {
    let folder = built().victims.join(RELEASE);
    let [a, b] = ["libcallers_a.so", "libcallers_b.so"].map(|n| folder.join(n).display().to_string());
    let run = Victim::ours(RELEASE, &["callers", "plugins", &a, &b, "96"]).run();
    ended_well(&run);
    let tally = compare(&run, of_c);
    println!("{tally:?} {:?}", run.recorded().losses());
    assert_eq!(tally.sizes.len(), 2, "{tally:?}");
    assert!(tally.right > 20 && tally.without > 0, "some are certain, and some cannot be: {tally:?}");
}

/// A runtime linked into the program: its own functions are not the caller. Without symbols only
/// the module is known.
#[test]
fn a_runtime_linked_into_the_program_is_not_the_caller() {
    let run = Victim::ours(RELEASE, &["callers_linked_in", "200"]).run();
    ended_well(&run);
    let tally = compare(&run, of_c);
    assert_eq!((tally.right, tally.without, tally.module), (400, 0, 0), "{tally:?}");
    assert_eq!(tally.lines, 0, "it has no debug information");

    let stripped = built().scratch.join("callers_stripped");
    let program = built().victims.join(RELEASE).join("callers_linked_in");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(program).status().expect("strip");
    assert!(strip.success());
    let run = Victim::of(&stripped, &["200"], RELEASE).run();
    ended_well(&run);
    let tally = compare(&run, of_c);
    assert_eq!((tally.right, tally.without, tally.module), (0, 0, 400), "{tally:?}");
}

/// `program`, with its symbols at the end of a table of `room` bytes.
fn with_symbols(program: &Path, room: u64) -> PathBuf {
    let mut bytes = std::fs::read(program).expect("a program");
    let word = |bytes: &[u8], at: usize, n: usize| {
        bytes[at..at + n].iter().rev().fold(0, |w, b| w << 8 | u64::from(*b))
    };
    let (sections, count) = (word(&bytes, 40, 8) as usize, word(&bytes, 60, 2) as usize);
    let mut all = (0..count).map(|n| sections + n * 64);
    let of_symbols = all.find(|at| word(&bytes, at + 4, 4) == 2).expect("symbols");
    let (at, length) = (word(&bytes, of_symbols + 24, 8), word(&bytes, of_symbols + 32, 8));
    let symbols = bytes[at as usize..(at + length) as usize].to_vec();
    let (begins, room) = ((bytes.len() as u64).next_multiple_of(8), room - room % 24);
    bytes[of_symbols + 24..of_symbols + 32].copy_from_slice(&begins.to_le_bytes());
    bytes[of_symbols + 32..of_symbols + 40].copy_from_slice(&room.to_le_bytes());
    let path = built().scratch.join(format!("callers_symbols_{}_{room}", std::process::id()));
    std::fs::copy(program, &path).expect("a copy that can be run");
    let file = std::fs::File::options().write(true).open(&path).expect("the copy");
    file.write_all_at(&bytes, 0).expect("written");
    file.write_all_at(&symbols, begins + room - length).expect("written behind a hole");
    path
}

/// As many symbols as can be read in time name the caller; of a module with more only the module is
/// known.
#[test]
fn a_table_of_symbols_that_is_too_large_is_not_read() {
    let program = built().victims.join(RELEASE).join("callers_linked_in");
    for (megabytes, right) in [(24, true), (64, false)] {
        let program = with_symbols(&program, megabytes << 20);
        let run = Victim::of(&program, &["200"], RELEASE).run();
        ended_well(&run);
        let tally = compare(&run, of_c);
        // (a drain thread that a busy machine does not run may drop the first calls' stacks:
        // counted, see `compare`)
        let (meant, other) = if right { (tally.right, tally.module) } else { (tally.module, tally.right) };
        assert!(meant >= 40 && meant + tally.without == 400 && other == 0, "{megabytes}: {tally:?}");
        std::fs::remove_file(&program).expect("removed");
    }
}

/// A file that is not the one that was loaded names nothing.
#[test]
fn a_module_that_was_built_anew_gives_no_names() {
    let copy = built().scratch.join(format!("callers_copy_{}", std::process::id()));
    std::fs::copy(built().victims.join(RELEASE).join("callers"), &copy).expect("copy");
    let run = Victim::of(&copy, &["two", "50"], RELEASE).run();
    ended_well(&run);
    assert_eq!(compare(&run, of_c).right, 100);
    let other = std::fs::copy(built().victims.join(RELEASE).join("hot_path"), &copy);
    other.expect("another program in its place");
    let loaded = named(&std::fs::read(&run.recordings()[0]).expect("the recording"));
    let names: Vec<&str> = loaded
        .threads
        .iter()
        .flat_map(|t| &t.calls)
        .flat_map(|c| loaded.site(c))
        .map(|f| loaded.definitions.string(f.function).unwrap_or(""))
        .collect();
    assert!(names.len() >= 100 && names.iter().all(|n| n.starts_with("0x")), "{names:?}");
    std::fs::remove_file(copy).expect("removed");
}

#[test]
fn switched_off_no_caller_is_looked_for() {
    let run = Victim::ours(RELEASE, &["callers", "two", "50"]).env("GAPPROBE_SITES", "0").run();
    ended_well(&run);
    let recorded = run.recorded();
    assert!(recorded.of(Kind::Call).count() >= 100);
    assert!(recorded.of(Kind::Call).all(|(_, e)| e.c == 0));
}

/// What the user sees: the function in the verdict of the process itself, and from the command its
/// line.
#[test]
fn the_verdict_names_the_function() {
    let run = Victim::ours(RELEASE, &["callers", "waits", "200"]).run();
    ended_well(&run);
    let line = run.stderr.as_str();
    assert!(line.contains("the host waits for the GPU (function_4+0x"), "{line}");
    assert!(line.contains(" in callers)"), "{line}");
    let verdict = run.summary().expect("a summary")["verdict"].clone();
    assert!(verdict["site"]["file"].as_str().is_some_and(|f| f.ends_with("13.0/callers")), "{verdict}");
    assert!(verdict["site"]["line"].is_null(), "{verdict}");
    let analyzed = Command::new(&built().command).arg("analyze").arg(&run.recordings()[0]).output();
    let text = String::from_utf8_lossy(&analyzed.expect("gapprobe").stdout).into_owned();
    assert!(text.contains("(victims/callers.c:") && text.contains(" in function_4: cudaStreamSyn"), "{text}");
}
