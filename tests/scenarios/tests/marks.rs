// SPDX-License-Identifier: Apache-2.0
//! Purpose: what a program says through include/gapprobe.h arrives as it was said (steps, nested
//! ranges, recording off and on), misuse is counted and harmless, and without the library the
//! header does nothing. A Rust program with real NVTX v3 ranges runs unharmed, and they arrive.

use std::path::PathBuf;
use std::process::Command;

use gapprobe_scenarios::built::{built, root, target};
use gapprobe_scenarios::{skipped, Victim};
use trace::call::Class;
use trace::define::TrackInfo;
use trace::event::{Unobserved, MARK, OPEN_ENDED};
use trace::reader::Track;
use trace::{Kind, Loss, Total};

#[test]
fn steps_ranges_and_capture_arrive_as_said() {
    for release in ["11.8", "13.0"] {
        let (alone, run) = (
            Victim::ours(release, &["marks", "12"]).alone().run(),
            Victim::ours(release, &["marks", "12"]).run(),
        );
        assert_eq!(alone.stdout, "version 0\nlaunched 101\n");
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "version 100\nlaunched 101\n"), "{}", run.stderr);
        let recorded = run.recorded();
        assert_eq!(recorded.problems, Default::default());

        let steps: Vec<_> = recorded.of(Kind::Step).map(|(_, e)| *e).collect();
        assert_eq!(steps.iter().map(|s| s.a).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
        assert_eq!(recorded.total(Total::Steps), 12);
        // recording was off for a part of the last one: it was not seen whole
        assert!(run.evidence().contains("11 of 12 steps seen"), "{}", run.evidence());

        let ranges: Vec<_> = recorded.of(Kind::Range).copied().collect();
        let named = |name: &str| {
            let is = |id| recorded.definitions.string(id) == Some(name);
            ranges.iter().filter(|(_, e)| is(e.a)).copied().collect::<Vec<_>>()
        };
        let forward = named("forward");
        assert_eq!(forward.len(), 12);
        assert!(forward.iter().all(|(_, e)| e.x == 0));
        for layer in 0..4 {
            let inner = named(&format!("layer {layer} ä"));
            assert_eq!(inner.len(), 12, "layer {layer}");
            for ((_, inner), (_, outer)) in inner.iter().zip(&forward) {
                assert!(inner.x == 1 && inner.start >= outer.start && inner.end <= outer.end);
            }
        }
        let main = run.truth().pid;
        let (track, _) = named("helper")[0];
        assert!(matches!(track, Track::Of(TrackInfo::Thread { tid, .. }) if tid != main), "its own thread");

        // the 50 kernels between are not there, and the span says why
        assert_eq!(recorded.kernels().len(), 51, "{release}");
        let off = recorded.unobserved();
        assert_eq!((off.len(), off[0].a), (1, Unobserved::CaptureOff as u32));
        let inside = |k: &gapprobe_scenarios::truth::Op| k.start >= off[0].start && k.end <= off[0].end;
        assert_eq!(run.truth().kernels().filter(|k| inside(k)).count(), 50);

        assert_eq!(recorded.loss(Loss::RangeUnbalanced), 1, "{:?}", recorded.losses());
        assert_eq!(recorded.loss(Loss::RangeTooDeep), 36);
        assert_eq!(named("deep").len(), 64);
        let long = named(&"n".repeat(96));
        assert_eq!(long.len(), 1, "96 bytes of a name are kept");
        assert_eq!(long[0].1.flags & OPEN_ENDED, OPEN_ENDED, "left open");
    }
}

#[test]
fn profiler_start_and_stop_frame_what_is_recorded() {
    let run = Victim::sim("13.0", &["loop", "40", "10", "20", "500", "1", "r"])
        .env("GAPPROBE_CAPTURE", "profiler")
        .run();
    assert_eq!((run.ending(), run.launched()), (0, 400), "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len(), 200, "the second half");
    let run = Victim::sim("13.0", &["loop", "40", "10", "20", "500", "1", "r"]).run();
    assert_eq!(run.recorded().kernels().len(), 400, "all, unless asked to wait");
}

/// The folder of libclang.so: LIBCLANG_PATH, or where `scripts/libclang` puts it.
fn libclang() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("LIBCLANG_PATH") {
        return Some(PathBuf::from(path));
    }
    let output = Command::new(root().join("scripts/libclang")).output().ok()?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    output.status.success().then_some(folder)
}

#[test]
#[ignore = "scripts/test thorough: builds a crate with libclang"]
fn a_rust_program_with_real_nvtx_ranges_runs_unharmed() {
    let Some(libclang) = libclang() else {
        skipped("the crate nvtx needs libclang to build, which cannot be installed here (scripts/libclang)");
        return;
    };
    let include = Command::new("gcc").arg("-print-file-name=include").output().expect("gcc");
    let include = String::from_utf8_lossy(&include.stdout).trim().to_owned();
    let folder = target().join("nvtx-victim");
    let cargo = Command::new(env!("CARGO"))
        .args(["build", "-q", "--locked", "--manifest-path"])
        .arg(root().join("tests/scenarios/nvtx-victim/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &folder)
        .env("LIBCLANG_PATH", libclang)
        .env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{include}"))
        .output()
        .expect("cargo");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let victim = || Victim::of(folder.join("debug/nvtx-victim"), &["25"], "13.0");
    let alone = victim().alone().run();
    // the second as a child of a profiled process would be
    for victim in [victim(), victim().env("NVTX_INJECTION64_PATH", &built().library)] {
        let run = victim.run();
        assert_eq!((run.ending(), &run.stdout), (0, &alone.stdout), "{}", run.stderr);
        assert_eq!((run.lines().len(), run.others()), (1, alone.others()));
        let recorded = run.recorded();
        assert_eq!(recorded.kernels().len(), 500);
        let named = |name: &str, flags: u8| {
            let is = |e: &trace::Event| recorded.definitions.string(e.a) == Some(name) && e.flags == flags;
            recorded.of(Kind::Range).filter(|(_, e)| is(e)).count()
        };
        // all but what began before the first use of the device: the first step, its mark, its
        // first range
        assert_eq!((named("forward", 0), named("begin", MARK)), (499, 24), "{:?}", recorded.losses());
        assert!((0..25).all(|n| named(&format!("step {n}"), 0) == usize::from(n > 0)));
        assert_eq!(recorded.losses(), [("range_unbalanced", 2)], "the ends of those two");
    }
}

/// The rings of threads are emptied one after the other: what a thread calls after another one
/// switched recording on may come out before the switch does.
#[test]
fn what_follows_a_start_that_another_thread_made_is_recorded() {
    let victim = Victim::ours("13.0", &["adverse", "elsewhere"]).env("GAPPROBE_CAPTURE", "profiler");
    let run = victim.run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let wanted: usize = run.stdout.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("wanted N");
    let recorded = run.recorded();
    assert_eq!(recorded.calls(Class::Sync).len(), wanted, "{:?}", recorded.losses());
}
