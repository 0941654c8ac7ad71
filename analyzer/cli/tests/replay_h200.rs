// SPDX-License-Identifier: Apache-2.0
//! Promises held against what the real fix saved on an H200 (2026-11-22, driver and CUPTI 13,
//! gpu-check's suite `causes`): programs whose promise had once been far off, each for a reason of
//! its own. Times are the programs' own clocks.

use std::io::Read;
use std::path::PathBuf;

use verdict::{Analysis, Run};

/// (program, cause, ms a step of the slow form and of the mended one)
///
/// - `copy_stream_wait`: matrix products for two thirds of the time, then for all of it: at 700 W
///   the clock goes down.
/// - `host_checkpoint`: what is written to a file is copied to the host first; both go to another
///   thread.
/// - `host_gil`: two equal networks in turn are two steps; what is promised is a share of each.
const PROGRAMS: [(&str, &[&str], f64, f64); 3] = [
    ("copy_stream_wait", &["COPY"], 11.012, 8.651),
    ("host_checkpoint", &["FILE-IO", "HOST"], 8.000, 5.271),
    ("host_gil", &["GIL"], 463.997, 5.387),
];
/// A promise may be this share of the saving too little ...
const TOO_LITTLE: f64 = 0.20;
/// ... and this share too much.
const TOO_MUCH: f64 = 0.10;

fn load(name: &str) -> (Run, Analysis) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.gprec.gz"));
    let mut bytes = Vec::new();
    let raw = std::fs::read(path).expect("the recording");
    flate2::read::GzDecoder::new(&raw[..]).read_to_end(&mut bytes).expect("gzip");
    let run = verdict::load(bytes.as_slice()).expect("a recording");
    let a = verdict::analyze(&run);
    (run, a)
}

#[test]
fn what_is_promised_is_what_the_fix_saved() {
    for (name, causes, slow, mended) in PROGRAMS {
        let (_, a) = load(&format!("causes_{name}"));
        let v = &a.verdict;
        assert!(causes.contains(&v.cause), "{name}: {v:?}");
        let (said, saved) = (1.0 - v.promise.unwrap().ns() / v.step_ns, 1.0 - mended / slow);
        assert!(
            said <= saved * (1.0 + TOO_MUCH) && said >= saved * (1.0 - TOO_LITTLE),
            "{name}: {:.1}% of the step promised, {:.1}% saved",
            said * 100.0,
            saved * 100.0
        );
    }
}

#[test]
fn with_nothing_changed_the_recorded_time_is_given_back() {
    for (name, ..) in PROGRAMS {
        let (_, a) = load(&format!("causes_{name}"));
        assert!(a.model.error() < 0.03, "{name}: {:?}", a.model);
    }
}
