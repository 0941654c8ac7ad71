// SPDX-License-Identifier: Apache-2.0
//! Machine code that called CUDA: its module and offset, as recorded, get the name of the function
//! from the module's file, if it is the file that was loaded; the verdict names it, and the trace
//! that is written carries it.

mod program;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use formats::{read, Progress};
use program::Program;
use verdict::output::chrome;
use verdict::output::chrome::ChromeOptions;
use verdict::sites::Sites;
use verdict::symbols::{name, name_with_lines, of_file, Limit};
use verdict::Run;

const BASE: u64 = 0x5555_0000_0000;

/// The function whose symbol is looked for: this very test program is the module.
#[no_mangle]
#[inline(never)]
extern "C" fn gapprobe_test_waits_here(n: u32) -> u32 {
    std::hint::black_box(n).wrapping_mul(3)
}

/// This program, and where the function begins in its file.
fn module() -> (String, u64) {
    let path = std::env::current_exe().expect("own path").to_str().expect("text").to_owned();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let own = maps.lines().find(|l| l.ends_with(&path)).expect("the program is mapped");
    let base = u64::from_str_radix(own.split('-').next().expect("an address"), 16).expect("hex");
    (path, gapprobe_test_waits_here as *const () as u64 - base)
}

fn build_id(path: &str, at: u64) -> String {
    // the file names itself only under its own id: found by asking with the one that readelf shows
    let shown = std::process::Command::new("readelf").args(["-n", path]).output().expect("readelf");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let id =
        text.split("Build ID: ").nth(1).and_then(|t| t.split_whitespace().next()).unwrap_or("").to_owned();
    assert!(of_file(path.as_ref(), &id, u64::MAX, &[at], Limit::NONE)[0].is_some(), "{id:?}");
    id
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// Steps that wait in one function; the recording began at `started`.
fn waiting(path: &str, id: &str, offset: u64, started: u64) -> Run {
    let mut p = Program::new();
    p.b.header.start_realtime = started;
    p.site = p.b.caller((path, id, BASE), offset);
    for _ in 0..30 {
        for _ in 0..6 {
            p.launch("gemm_kernel", 264, 14_000);
            p.item();
        }
        p.optimizer(14_000);
    }
    verdict::load(p.finish().as_slice()).expect("a recording")
}

fn sites(run: &Run) -> Vec<String> {
    let mut sites = Sites::new(run);
    let calls = run.threads.iter().flat_map(|t| &t.calls).filter(|c| c.site != 0);
    let mut all: Vec<String> = calls
        .filter_map(|c| sites.of(c.site))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .filter_map(|s| Some(sites.get(s)?.to_string()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_caller_has_the_name_of_its_function_and_the_verdict_says_it() {
    let (path, begins) = module();
    let file = path.rsplit('/').next().unwrap().to_owned();
    let id = build_id(&path, begins);
    let mut run = waiting(&path, &id, begins + 4, now());
    name(&mut run, None);
    assert_eq!(sites(&run), [format!("gapprobe_test_waits_here+0x4 in {file}")]);
    let a = verdict::analyze(&run);
    let said = format!("gapprobe_test_waits_here+0x4 in {file}: cuda");
    assert!(a.verdict.text().starts_with(&said), "{}", a.verdict.text());

    let trace = std::env::temp_dir().join(format!("gapprobe-callers-{}.json", std::process::id()));
    let (bytes, _) = chrome::write(&run, &a, Vec::new(), &ChromeOptions::default()).expect("written");
    std::fs::write(&trace, bytes).expect("a file");
    let again = read(&trace, &Progress::default()).expect("read again");
    std::fs::remove_file(&trace).expect("removed");
    assert_eq!(sites(&again.run), sites(&run));
    assert_eq!(verdict::analyze(&again.run).verdict.text(), a.verdict.text());
}

#[test]
fn only_the_file_that_was_loaded_names_it() {
    let (path, begins) = module();
    let file = path.rsplit('/').next().unwrap().to_owned();
    let id = build_id(&path, begins);
    let unnamed = [format!("{:#x} in {file}", begins + 4)];
    let hour = 3_600_000_000_000;
    for (id, started, what) in [
        ("0123456789abcdef", now(), "another build"),
        ("", now() - 24 * 365 * 10 * hour, "no build id, and newer than the recording"),
    ] {
        let mut run = waiting(&path, id, begins + 4, started);
        name_with_lines(&mut run, None);
        assert_eq!(sites(&run), unnamed, "{what}");
    }
    let mut run = waiting(&path, &id, begins + 4, now());
    name(&mut run, Some(Instant::now() - Duration::from_secs(1)));
    assert_eq!(sites(&run), unnamed, "no time for it");
    let mut run = waiting("/nonexistent/libtrain.so", &id, 0x1235, now());
    name_with_lines(&mut run, None);
    assert_eq!(sites(&run), ["0x1235 in libtrain.so"]);
}

/// A symbol that ends before the call is not its function.
#[test]
fn a_call_outside_of_every_symbol_has_no_function() {
    let (path, begins) = module();
    let id = build_id(&path, begins);
    let found = of_file(path.as_ref(), &id, now(), &[begins, begins + 1, u64::MAX, 1], Limit::NONE);
    let names: Vec<Option<&str>> = found.iter().map(|s| s.as_ref().map(|s| s.name.as_str())).collect();
    assert_eq!(names[..2], [Some("gapprobe_test_waits_here"); 2]);
    assert_eq!(names[2..], [None, None]);
}
