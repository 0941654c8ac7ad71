// SPDX-License-Identifier: Apache-2.0
//! A trace of less than a few steps: what repeats in it are the layers. They are told as what they
//! may be, parts of a step, and nothing that rests on them is sure. (Of a trace that holds nothing
//! but layers, nobody can say it.)

use std::io::Read;
use std::path::Path;

use verdict::analysis::{Confidence, StepSource};
use verdict::output::line::evidence;
use verdict::output::summary::{summary, Around};
use verdict::{Analysis, Run};

use super::program::Program;

/// From one part of the recording to another (0 to 1), and the true step time, ns.
fn window(name: &str, from: f64, to: f64) -> (Run, Analysis, f64) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(format!("{name}.gprec.gz"));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    let mut run = verdict::load(bytes.as_slice()).unwrap();
    let whole = verdict::analyze(&run);
    let (begin, ns) = (whole.devices[0].span.start, whole.devices[0].span.ns() as f64);
    let at = |part: f64| begin + (ns * part) as u64;
    run.header.valid_from = at(from);
    (run.header.gpu_complete_to, run.header.host_complete_to) = (at(to), at(to));
    let a = verdict::analyze(&run);
    (run, a, whole.steps.mean_ns)
}

#[test]
fn layers_of_a_cut_trace_are_never_surely_steps() {
    let windows =
        [(0.0, 0.2), (0.0, 0.3), (0.3, 0.6), (0.6, 0.8), (0.8, 1.0), (0.1, 0.35), (0.0, 0.5), (0.25, 0.75)];
    let mut layers = 0;
    for name in ["h200_gpt", "h200_gptsmall", "h200_tiny"] {
        for (from, to) in windows {
            let (run, a, step) = window(name, from, to);
            let what =
                format!("{name} {from} to {to}: {} of {:.2} ms", a.steps.steps.len(), a.steps.mean_ns / 1e6);
            if a.steps.source == StepSource::None || a.steps.mean_ns > step / 2.0 {
                continue;
            }
            layers += 1;
            assert!(a.steps.may_be_parts, "{what}");
            assert_eq!(a.verdict.confidence, Confidence::Low, "{what}");
            assert!(a.findings.iter().all(|f| f.confidence == Confidence::Low), "{what}: {:?}", a.findings);
            let line = evidence(&run, &a).join("; ");
            assert!(line.contains("steps seen (periods of the launches, perhaps parts of a step)"), "{line}");
            assert_eq!(summary(&run, &a, &Around::default())["steps"]["may_be_parts"], true);
        }
    }
    assert!(layers >= 10, "not the windows that this is about: {layers}");
}

#[test]
fn whole_steps_are_not_doubted() {
    for name in ["h200_gpt", "h200_tiny", "own_generate", "own_mlp_eager_shared", "own_empty_cache"] {
        let (run, a, _) = window(name, 0.0, 1.0);
        assert!(!a.steps.may_be_parts, "{name}");
        assert!(!evidence(&run, &a).join("; ").contains("perhaps parts"), "{name}");
    }
}

/// A server answers requests: no weights are updated, and before the first one it warmed up for a
/// while with other kernels.
#[test]
fn answers_of_a_server_are_not_doubted_for_a_short_warm_up() {
    let mut p = Program::new();
    for i in 0..60 {
        p.launch(["tune_a", "tune_b", "tune_c"][i % 3], 264, 30_000 + 1_000 * (i as u64 % 7));
    }
    for _ in 0..40 {
        p.forward(6, 30_000);
        p.sync();
        p.t += 400_000;
    }
    let (_, a) = p.analyze();
    assert_eq!((a.steps.source, a.steps.may_be_parts), (StepSource::Period, false));
    assert!(a.steps.steps.len().abs_diff(40) <= 1);
}
