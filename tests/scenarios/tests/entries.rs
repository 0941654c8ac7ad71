// SPDX-License-Identifier: Apache-2.0
//! Purpose: a panic in any function that C code calls (the driver, CUPTI, NVTX, the loader, libc at
//! exit and fork, Python, the program) leaves the program as it is without us: status, stdout,
//! stderr. The library is built with feature `forced-panics`, which is never in one that is
//! shipped: each place where a body is guarded can be told to panic. And a look at the source: no
//! `extern "C"` body is without its guard, and each guarded place is among those that panicked
//! here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gapprobe_scenarios::built::{built, forced_panics, root, triton_launcher};
use gapprobe_scenarios::pythons::with_torch;
use gapprobe_scenarios::{Run, Victim};

use super::sampled;

/// What guards a body: the guard, and what in `nvtx/calls.rs` goes through it.
const GUARDS: [&str; 4] = ["guard", "live", "pushed", "registered"];

/// The injector's files with their code: no tests, no comments.
fn sources() -> BTreeMap<String, Vec<String>> {
    fn below(folder: &Path, all: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("sources").map(|e| e.expect("entry").path()) {
            match entry.is_dir() {
                true => below(&entry, all),
                false => all.push(entry),
            }
        }
    }
    let mut files = Vec::new();
    below(&root().join("injector/src"), &mut files);
    let is_test = |p: &PathBuf| p.components().any(|c| c.as_os_str() == "tests") || p.ends_with("tests.rs");
    let files = files.into_iter().filter(|p| !is_test(p) && p.extension().is_some_and(|e| e == "rs"));
    let code = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("a source");
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or("").to_owned();
        text.lines().map(|l| l.split("//").next().unwrap_or("").to_owned()).collect()
    };
    let name = |p: &Path| p.strip_prefix(root()).expect("inside").to_string_lossy().into_owned();
    files.map(|p| (name(&p), code(&p))).collect()
}

/// First and last line of the block that the first `{` from `line` on begins.
fn block(lines: &[String], line: usize) -> (usize, usize) {
    let mut depth = 0;
    for (at, text) in lines.iter().enumerate().skip(line) {
        for c in text.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                return (line, at);
            }
        }
    }
    panic!("a block without an end: {}", lines[line]);
}

fn calls_a_guard(text: &str) -> bool {
    GUARDS.iter().any(|g| {
        text.match_indices(&format!("{g}("))
            .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn no_body_is_without_its_guard() {
    let mut entries = 0;
    for (file, lines) in sources() {
        for (at, line) in lines.iter().enumerate() {
            let is_guard = GUARDS
                .iter()
                .any(|g| line.contains(&format!("fn {g}(")) || line.contains(&format!("fn {g}<")));
            if !is_guard && !line.contains("extern \"C\" fn ") {
                continue;
            }
            let (from, to) = block(&lines, at);
            let body = lines[from..=to].join("\n");
            let body = body.split_once('{').expect("a body").1;
            let is_empty = body.trim() == "}";
            // the guard itself
            let is_caught = body.contains("catch_unwind");
            // all it does is to call one that is guarded
            let hands_on = ["unsafe { on_callback(", "unsafe { asked("].iter().any(|c| body.contains(c));
            // the clock: a load and libc's own function, which every reading of the time goes
            // through
            let is_libcs = file.ends_with("clock.rs") && body.contains("unsafe { own(");
            assert!(
                is_empty || is_caught || hands_on || is_libcs || calls_a_guard(body),
                "{file}:{}: no guard: {}",
                at + 1,
                line.trim()
            );
            entries += usize::from(!is_guard);
        }
    }
    assert!(entries > 40, "only {entries} found: has the look of the source changed?");
}

/// Every place that can be told to panic, by its name.
fn places() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (file, lines) in sources() {
        let mut at = 0;
        while at < lines.len() {
            let line = &lines[at];
            let is_helper = GUARDS.iter().any(|g| line.contains(&format!("fn {g}")));
            if line.contains("macro_rules!") || is_helper {
                at = block(&lines, at).1 + 1; // who calls these is the place
                continue;
            }
            if calls_a_guard(line) || line.starts_with("forward! {") {
                all.insert(format!("{file}:{}", at + 1));
            }
            at += 1;
        }
    }
    all
}

type MakeVictim = Box<dyn Fn() -> Victim>;

/// Programs that come by all of them.
fn victims() -> Vec<(&'static str, MakeVictim)> {
    let plugin = built().victims.join("13.0/libxla_cuda_plugin_victim.so").to_string_lossy().into_owned();
    let python = || {
        let folder = root().join("tests/victims");
        // (at last an import that fails, of a library that finds CUPTI by dlsym)
        let client = built().victims.join("13.0/libproton.so");
        let script = format!(
            "import sys, time, importlib.util as load\nsys.path.insert(0, {folder:?})\nimport train\ndevice = train.Device()\n\
             kernel = device.kernel('step', 20)\nfor n in range(230):\n exec('def made(n): device.launch(kernel); device.synchronize()')\n \
             made(n); del made; time.sleep(0.01)\ntry:\n \
             load.module_from_spec(load.spec_from_file_location('libproton', {client:?}))\nexcept ImportError: print('done')"
        );
        let python = sampled::pythons().pop().expect("a python");
        let victim = Victim::of(&python, &["-c", &script], "13.0");
        let folder = victim.folder.join("nvml");
        std::fs::create_dir_all(&folder).expect("folder");
        let library = built().victims.join("13.0/libnvidia-ml.so");
        std::os::unix::fs::symlink(library, folder.join("libnvidia-ml.so.1")).expect("link");
        let path = format!("{}:{}", built().sim.join("13.0").display(), folder.display());
        victim.env("LD_LIBRARY_PATH", path).env("FAKE_NVML", "fine").env("SIM_DEVICES", "2")
    };
    let mut all: Vec<(&str, MakeVictim)> = vec![
        ("entries", Box::new(|| Victim::ours("13.0", &["entries"]))),
        ("python", Box::new(python)),
        ("kineto", Box::new(|| Victim::sim("13.0", &["kineto_cupti", "200", "2"]))),
        // what counts launches between windows
        (
            "windows",
            Box::new(|| {
                Victim::ours("13.0", &["steps", "400", "2", "500", "g"]).env("GAPPROBE_WINDOW", "4/8")
            }),
        ),
        // those through the driver, by slots and by what dlsym gives
        (
            "driver",
            Box::new(|| {
                Victim::sim("13.0", &["loop", "100", "4", "100", "1000", "1", "d"])
                    .env("GAPPROBE_WINDOW", "4/8")
            }),
        ),
        (
            "triton",
            Box::new(|| {
                let script = root().join("tests/scenarios/victims/triton_late.py");
                let words = [script, triton_launcher()].map(|p| p.to_string_lossy().into_owned());
                let python = sampled::pythons().pop().expect("a python");
                let words = [words[0].as_str(), words[1].as_str(), "late", "200", "quiet"];
                Victim::of(&python, &words, "13.0").env("GAPPROBE_WINDOW", "4/8")
            }),
        ),
        // a runtime that is linked in
        (
            "linked in",
            Box::new(|| {
                Victim::ours("13.0", &["linked_in", "400", "2", "500", "g"]).env("GAPPROBE_WINDOW", "4/8")
            }),
        ),
        // and what counts waits
        (
            "waits",
            Box::new(|| Victim::ours("13.0", &["waits", "200", "500", "sdm"]).env("GAPPROBE_WINDOW", "4/8")),
        ),
        // another tool's library has CUDA's place
        (
            "beside",
            Box::new(|| {
                let tool = built().victims.join("13.0/libothertool.so");
                Victim::sim("13.0", &["loop", "10", "20", "20"]).env("CUDA_INJECTION64_PATH", tool)
            }),
        ),
        // a client of CUPTI's V2 API
        (
            "second api",
            Box::new(|| {
                let program = root().join("tests/gpu/programs/v2_profiled.py");
                let cupti = built().sim.join("13.5/libcupti.so.13");
                let [program, cupti] = [program, cupti].map(|p| p.to_string_lossy().into_owned());
                let python = sampled::pythons().pop().expect("a python");
                Victim::of(&python, &[&program, &cupti, "later", "2"], "13.5")
            }),
        ),
        ("xla", Box::new(move || Victim::ours("13.0", &["plugin_host", &plugin, "1", "1"]))),
    ];
    // nodes of PyTorch's autograd graph
    if let Some(python) = with_torch("panics in entries of PyTorch") {
        let torch = move || {
            let words =
                [root().join("tests/scenarios/victims/modules.py"), built().victims.join("13.0/libgemm.so")];
            let [script, library] = words.map(|p| p.to_string_lossy().into_owned());
            Victim::of(python, &[&script, &library, "8"], "13.0")
        };
        all.push(("torch", Box::new(torch)));
    }
    all
}

/// Runs it under the library with forced panics; the places it came by, and whether `place`
/// panicked.
fn forced(victim: Victim, place: &str) -> (Run, BTreeSet<String>, bool) {
    let folder = victim.folder.join("places");
    std::fs::create_dir(&folder).expect("folder");
    let victim =
        victim.env("LD_PRELOAD", forced_panics()).env("FORCED_FOLDER", &folder).env("FORCED_PLACE", place);
    let run = victim.run();
    let names = std::fs::read_dir(&folder).expect("folder").map(|e| e.expect("entry").file_name());
    let mut names: BTreeSet<String> = names.map(|n| n.to_string_lossy().replace('!', "/")).collect();
    let panicked = names.remove("panicked");
    (run, names, panicked)
}

#[test]
#[ignore = "scripts/test thorough: builds a library and runs a program for each entry, two minutes"]
fn a_panic_in_any_entry_leaves_the_program_as_it_is() {
    const LATER: Duration = Duration::from_secs(5); // GAPPROBE_EXIT_MS, an unoptimized library, a busy machine
    let (mut tested, mut failures) = (BTreeSet::new(), Vec::new());
    for (name, victim) in victims() {
        let alone = victim().alone().run();
        let (with, reached, _) = forced(victim(), "none");
        let most = if name == "second api" { 2 } else { 1 }; // that we leave is said then
        let same = |a: &Run, b: &Run| {
            let is_same = (a.ending(), &a.stdout, a.others()) == (b.ending(), &b.stdout, b.others());
            is_same && b.lines().len() <= most
        };
        assert!(
            same(&alone, &with),
            "{name}: {:?} {:?}",
            (&alone.stdout, &alone.stderr),
            (&with.stdout, &with.stderr)
        );
        let mut todo: Vec<String> = reached.difference(&tested).cloned().collect();
        while let Some(place) = todo.pop() {
            let last = place.rsplit(',').next().unwrap_or("");
            if tested.contains(last) {
                continue;
            }
            let (with, more, panicked) = forced(victim(), &place);
            let says = || format!("{name}, {place}: {} {:?} {:?}", with.ending(), with.stdout, with.stderr);
            // its name is the last one's: those before it lead there
            let place = place.rsplit(',').next().unwrap_or("").to_owned();
            if !panicked {
                failures.push(format!("{} did not panic", says()));
            } else if !same(&alone, &with) || with.wall > alone.wall + LATER {
                let (took, alone_took) = (with.wall, alone.wall);
                let says = format!("{} {took:?}; alone: {}", says(), alone.ending());
                failures.push(format!("{says} {:?} {alone_took:?}", alone.stdout));
            }
            // what is done only after a fault: with that fault
            for after in more.difference(&reached).filter(|p| !tested.contains(*p) && **p != place) {
                todo.push(format!("{place},{after}"));
            }
            tested.insert(place);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let mut all = places();
    if with_torch("panics in entries of PyTorch").is_none() {
        all.retain(|place| !place.contains("/torch/"));
    }
    let odd: Vec<_> = all.symmetric_difference(&tested).collect();
    assert!(odd.is_empty(), "guarded places that no victim comes by, or unknown ones: {odd:?}");
    println!("{} guarded places panicked", tested.len());
}
