// SPDX-License-Identifier: Apache-2.0
//! Purpose: the Python line at a CUDA call. A program that calls from everywhere Python code can
//! stand writes down itself where it stood (tests/victims/sites.py); every call's stack in the
//! recording is compared with that, frame by frame, for each CPython of this machine. A frame may
//! be unreadable where its code was deleted at once; none is wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::pythons::{pythons, READ};
use gapprobe_scenarios::{skipped, Recorded, Run, Victim};
use trace::call::Class;
use trace::{Kind, Language, Loss};

/// Older ones, that must be left alone.
const OLDER: [&str; 3] = ["2.7", "3.6", "3.7"];

fn victim(release: &str, python: &Path, words: &[&str]) -> Victim {
    let script = root().join("tests/victims/sites.py");
    let mut all = vec![script.to_str().expect("a path")];
    all.extend_from_slice(words);
    let victim = Victim::of(python, &all, release).env("SIM_TRUTH", "").env("PYTHONWARNINGS", "ignore");
    let truth = victim.folder.join("sites.json");
    victim.env("SITES_TRUTH", truth).env("SIM_LAUNCH_NS", "0")
}

type Frame = (Vec<u8>, Vec<u8>, u64);

fn bytes(hex: &serde_json::Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex");
    (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("hex")).collect()
}

/// What the program wrote down: by size of the memset, its stack.
fn truth(run: &Run) -> BTreeMap<u64, Vec<Frame>> {
    let text = std::fs::read_to_string(run.folder.join("sites.json")).expect("the truth");
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let stack = |number: &serde_json::Value| -> Vec<Frame> {
        let frames = all["stacks"][number.to_string()].as_array().expect("a stack");
        frames.iter().map(|f| (bytes(&f[0]), bytes(&f[1]), f[2].as_u64().expect("a line"))).collect()
    };
    let calls = all["calls"].as_object().expect("calls");
    calls.iter().map(|(size, number)| (size.parse().expect("a size"), stack(number))).collect()
}

/// The definitions hold text: bytes that are none were replaced when it was read.
fn shown(frame: &Frame) -> (String, String, u64) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (text(&frame.0), text(&frame.1), frame.2)
}

fn attribute(recorded: &Recorded, key: &str) -> String {
    let mut all = recorded.definitions.attributes().filter(|(k, _)| *k == key);
    all.next().map_or_else(|| "(none)".into(), |(_, v)| v.to_owned())
}

#[derive(Default, Debug)]
struct Tally {
    calls: usize,
    without: usize,
    frames: usize,
    unreadable: usize,
    /// Frames of code that was deleted and could be read all the same.
    deleted_and_read: usize,
}

/// Compares every call of the recording with the truth.
fn compare(label: &str, run: &Run) -> Tally {
    let (truth, recorded) = (truth(run), run.recorded());
    assert_eq!(attribute(&recorded, "python.sites"), "on", "{label}");
    let sizes: HashMap<u32, u64> = recorded
        .of(Kind::Memset)
        .map(|(_, e)| (e.correlation, u64::from(e.a) | u64::from(e.b) << 32))
        .collect();
    let (mut tally, mut seen) = (Tally::default(), HashSet::new());
    for (_, event) in recorded.of(Kind::Call) {
        let Some(expected) = sizes.get(&event.correlation).and_then(|size| truth.get(size)) else { continue };
        tally.calls += 1;
        seen.insert(sizes[&event.correlation]);
        let string = |id: u32| recorded.definitions.string(id).unwrap_or("").to_owned();
        let found: Vec<(String, String, u64)> = recorded
            .definitions
            .stack(event.c)
            .map(|f| (string(f.file), string(f.function), u64::from(f.line)))
            .collect();
        if found.is_empty() {
            tally.without += 1;
            continue;
        }
        let all =
            || format!("{label}: {found:#?} is not {:#?}", expected.iter().map(shown).collect::<Vec<_>>());
        assert_eq!(found.len(), expected.len(), "{}", all());
        for (found, expected) in found.iter().zip(expected) {
            tally.frames += 1;
            // (a module's code is gone once it is imported)
            let of_an_import = !expected.0.ends_with(b"sites.py") && expected.1 == b"<module>";
            let deleted =
                of_an_import || expected.0.starts_with(b"gen_") || expected.0.as_slice() == b"<string>";
            if found.1 == "<unreadable>" && found.0.is_empty() {
                assert!(deleted, "unreadable, but alive: {}", all());
                tally.unreadable += 1;
            } else {
                assert_eq!(*found, shown(expected), "{}", all());
                tally.deleted_and_read += usize::from(deleted);
            }
        }
    }
    // (a stack that is refused counts once, however many calls of the same round had its id
    // already) (and one that the drain thread put off may have no later call that would define it)
    let counted = recorded.loss(Loss::SiteDropped) + tally.calls as u64 / 5;
    assert!(tally.without as u64 <= counted, "{label}: {tally:?} {:?}", recorded.losses());
    let missing: Vec<_> = truth.iter().filter(|(size, _)| !seen.contains(size)).collect();
    assert!(
        missing.len() as u64 <= recorded.loss(Loss::HostRingFull),
        "{label}: not recorded: {missing:?} {:?}",
        recorded.losses()
    );
    assert_eq!(recorded.loss(Loss::FrameUnreadable) > 0, tally.unreadable > 0, "{label}: {tally:?}");
    tally
}

/// greenlet for this Python, from PyPI; `None` where it cannot be had.
fn greenlet(version: &str, python: &Path) -> Option<PathBuf> {
    let folder = built().scratch.join(format!("greenlet-{version}"));
    if !folder.join("greenlet").is_dir() {
        // its own pip; one without (Debian's packages) has another's
        let asked = |python: &Path, more: &[&str]| {
            let mut pip = Command::new(python);
            pip.args(["-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:", "--target"]);
            let done = pip.arg(&folder).args(more).arg("greenlet").output();
            done.is_ok_and(|d| d.status.success())
        };
        let other = ["--python-version", version, "--implementation", "cp"];
        if !asked(python, &[]) && !asked(Path::new("python3"), &other) {
            skipped(format!("no greenlet for Python {version} from PyPI"));
            return None;
        }
    }
    Some(folder)
}

#[test]
fn every_call_has_the_stack_it_was_made_from() {
    for (version, python) in pythons(&READ) {
        let greenlet = greenlet(version, &python);
        // (a drain thread that a busy machine does not run may drop stacks that are new: counted,
        // see `compare`)
        let is_whole = (0..4).any(|_| {
            let mut victim = victim(if version == "3.9" { "11.8" } else { "13.0" }, &python, &["all"]);
            if let Some(folder) = &greenlet {
                victim = victim.env("SITES_GREENLET", folder);
            }
            let run = victim.limit(Duration::from_secs(120)).run();
            assert_eq!(run.ending(), 0, "{version}: {}", run.stderr);
            assert!(run.others().is_empty(), "{version}: {}", run.stderr);
            assert_eq!(run.stdout.contains("greenlets"), greenlet.is_some(), "{version}: {}", run.stdout);
            let tally = compare(version, &run);
            println!("{version}: {tally:?}, {}", attribute(&run.recorded(), "python.check"));
            assert!(attribute(&run.recorded(), "python.version").starts_with(version.trim_end_matches('t')));
            assert!(tally.deleted_and_read > 15, "{version}: {tally:?}");
            tally.without <= 100
        });
        assert!(is_whole, "{version}: more than 100 calls without a stack, four times");
    }
}

/// Threads, generators, C in between, recursion, greenlets, forks, dying code and the interpreter's
/// end; each call held against `sys._getframe`.
#[test]
fn threads_recursion_and_dying_code_for_a_while() {
    let seconds = std::env::var("GAPPROBE_STRESS_S").unwrap_or_else(|_| "2".into());
    let limit = Duration::from_secs(120 + 4 * seconds.parse::<u64>().expect("GAPPROBE_STRESS_S: seconds"));
    for (version, python) in pythons(&READ) {
        let stressed = |greenlet: Option<PathBuf>| {
            let mut victim = victim("13.0", &python, &["stress", &seconds]).env("GAPPROBE_MAX_MB", "1024");
            if let Some(folder) = &greenlet {
                victim = victim.env("SITES_GREENLET", folder);
            }
            let label = format!("{version}, greenlets {}", greenlet.is_some());
            let run = victim.limit(limit).run();
            assert_eq!(run.ending(), 0, "{label}: {}", run.stderr);
            assert!(run.others().is_empty(), "{label}: {}", run.stderr);
            let tally = compare(&label, &run);
            println!("{label}: {tally:?}");
            assert!(tally.calls > 500 && tally.without <= tally.calls / 2, "{label}: {tally:?}");
        };
        stressed(None);
        if let Some(folder) = greenlet(version, &python) {
            stressed(Some(folder));
        }
    }
}

/// A program started by a relative path that goes elsewhere before it uses the GPU: its line is
/// told from where it was started.
#[test]
fn a_relative_path_is_told_from_where_the_program_was_started() {
    let program = "import os, sys\nos.chdir('/')\nwith open(sys.argv[1]) as file: text = file.read()\n\
                   sys.argv[1:] = ['--mode', 'sync', '--steps', '60']\n\
                   exec(compile(text, 'src/deep/train.py', 'exec'))\n";
    let train = root().join("tests/victims/train.py");
    for (version, python) in pythons(&READ) {
        let victim = Victim::of(&python, &["src/main.py", &train.to_string_lossy()], "13.0");
        let out = victim.folder.join("out");
        std::fs::create_dir(out.join("src")).expect("folder");
        std::fs::write(out.join("src/main.py"), program).expect("program");
        let run = victim.run();
        assert_eq!(run.ending(), 0, "{version}: {}", run.stderr);
        let started_in = PathBuf::from(attribute(&run.recorded(), "cwd"));
        assert_eq!(started_in, out.canonicalize().expect("path"), "{version}");
        let site = &run.summary().expect("a summary")["verdict"]["site"];
        assert_eq!(site["file"], "src/deep/train.py", "{version}: {}", run.stderr);
    }
}

#[test]
fn older_pythons_are_left_alone_and_it_is_said() {
    let script = "import ctypes\nlibrary = ctypes.CDLL('libcudart.so')\n\
                  for n in range(100): library.cudaDeviceSynchronize()\nprint('done')\n";
    for (version, python) in pythons(&OLDER) {
        let run = Victim::of(&python, &["-c", script], "13.0").run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "done\n"), "{version}: {}", run.stderr);
        let recorded = run.recorded();
        let said = attribute(&recorded, "python.sites");
        assert!(said.starts_with("off: Python ") && said.contains("older"), "{version}: {said}");
        // what called CUDA is machine code of ctypes
        let mut frames = recorded.of(Kind::Call).flat_map(|(_, e)| recorded.definitions.stack(e.c));
        assert!(frames.all(|f| f.language == Language::Caller), "{version}");
    }
}

/// Free-threaded builds from 3.14 on. Where none is here, one with a lock says of itself that it is
/// one: what is told there, in the interpreter's table of offsets, is what counts.
#[test]
fn free_threaded_pythons_from_3_14_on_are_left_alone_and_it_is_said() {
    let script = "import ctypes, time\nlibrary = ctypes.CDLL('libcudart.so')\n\
                  table = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, '_PyRuntime'))\n\
                  ctypes.c_uint64.from_address(table + 16).value = 1\n\
                  for n in range(100): library.cudaDeviceSynchronize(); time.sleep(0.005)\nprint('done')\n";
    for (version, python) in pythons(&["3.14", "3.15", "3.14t", "3.15t"]) {
        let run = Victim::of(&python, &["-c", script], "13.0").run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "done\n"), "{version}: {}", run.stderr);
        let recorded = run.recorded();
        let said = attribute(&recorded, "python.sites");
        assert!(said.starts_with("off: Python 3.1") && said.contains("free-threaded"), "{version}: {said}");
        let mut frames = recorded.of(Kind::Call).flat_map(|(_, e)| recorded.definitions.stack(e.c));
        assert!(frames.all(|f| f.language == Language::Caller), "{version}");
        assert!(recorded.of(Kind::Sample).all(|(_, e)| e.a == 0), "{version}");
    }
}

/// The off switch: no frame is read, at a call or in a sample, and nothing of the interpreter is
/// touched.
#[test]
fn switched_off_no_frame_is_read() {
    let script = "import ctypes, time\nlibrary = ctypes.CDLL('libcudart.so')\n\
                  for n in range(100): library.cudaDeviceSynchronize(); time.sleep(0.01)\nprint('done')\n";
    for (version, python) in pythons(&READ) {
        let run = Victim::of(&python, &["-c", script], "13.0").env("GAPPROBE_SITES", "0").run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "done\n"), "{version}: {}", run.stderr);
        let recorded = run.recorded();
        assert_eq!(attribute(&recorded, "python.sites"), "off: GAPPROBE_SITES=0", "{version}");
        assert!(recorded.of(Kind::Call).count() >= 100, "{version}");
        assert!(recorded.of(Kind::Call).all(|(_, e)| e.c == 0), "{version}");
        let samples: Vec<_> = recorded.of(Kind::Sample).collect();
        assert!(samples.len() > 20 && samples.iter().all(|(_, e)| e.a == 0), "{version}: {}", samples.len());
    }
}

/// The loop of C that Python stands around, `depth` frames deep.
fn below_python(python: &Path, words: &[&str], preload: bool) -> Victim {
    let library = built().victims.join("13.0/libfrom_python.so");
    let script = root().join("tests/victims/depth.py");
    let mut all = vec![script.to_str().expect("a path"), library.to_str().expect("a path")];
    all.extend_from_slice(words);
    let victim = Victim::of(python, &all, "13.0").env("SIM_TRUTH", "").env("SIM_LAUNCH_NS", "0");
    let both = format!("{} {}", built().library.display(), library.display());
    if preload {
        victim.env("LD_PRELOAD", both)
    } else {
        victim
    }
}

fn number(run: &Run, before: &str) -> f64 {
    let found = run.stdout.split(before).nth(1).and_then(|rest| rest.split_whitespace().next());
    found
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("{before:?} in {:?} {}", run.stdout, run.stderr))
}

#[test]
#[ignore = "scripts/test thorough: 10 s a Python, alone on the cores"]
fn timed_a_call_site_allocates_nothing_faults_nothing_and_costs_little() {
    let _alone = gapprobe_scenarios::CORES.write().unwrap_or_else(|e| e.into_inner());
    for (version, python) in pythons(&READ) {
        let run = below_python(&python, &["allocations", "20"], true).run_alone_on_the_cores();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "allocations 0\n"), "{version}: {}", run.stderr);
        let recorded = run.recorded();
        let deep = recorded.calls(Class::Sync).into_iter().filter(|(_, e)| {
            recorded.definitions.stack(e.c).count() >= 20 // it was walking
        });
        assert!(deep.count() >= 2000, "{version}");
        let run = below_python(&python, &["faults", "20"], false).run_alone_on_the_cores();
        let faults: Vec<u64> = run.stdout.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        assert_eq!(faults.iter().min(), Some(&0), "{version}: {} {}", run.stdout, run.stderr);
        // the target is 100 ns on a quiet machine (`cargo bench`); here anything may run beside
        let is_cheap = (0..6).any(|_| {
            let run = below_python(&python, &["cost", "20"], false).run_alone_on_the_cores();
            print!("{version}: {}", run.stdout);
            number(&run, "walk ") < 200.0
        });
        assert!(is_cheap, "{version}: 200 ns and more, six times");
    }
}
