// SPDX-License-Identifier: Apache-2.0
//! `--same-work`: a fix that fuses kernels against what it fixes. The kernels are not asked; all
//! else is.

use serde_json::Value;

use crate::place::{code, err, out, Place};
use crate::program::Program;
use crate::training::{put, write, Shape};

/// A run of a loop of which a step gets `batch` bytes from the host (0: none) and runs in 60
/// kernels, or fused in 6.
#[derive(Clone, Copy)]
struct Loop {
    run: u64,
    steps: u32,
    batch: u64,
    fused: bool,
    marks: bool,
    gpu: &'static str,
    lost: u64,
}

const EAGER: Loop =
    Loop { run: 0, steps: 40, batch: 0, fused: false, marks: false, gpu: "SIM H200", lost: 0 };
const FUSED: Loop = Loop { run: 3, fused: true, ..EAGER };

fn recorded(l: Loop) -> Vec<u8> {
    let mut p = Program::new();
    p.b.device(0, l.gpu, 132);
    p.b.header.losses[trace::Loss::CuptiDropped.code() as usize] = l.lost;
    for _ in 0..l.run {
        p.random(2);
    }
    for step in 0..l.steps {
        let begin = p.t;
        if l.batch > 0 {
            p.copy(7, true, l.batch, false);
        }
        match l.fused {
            false => (0..20).for_each(|_| {
                ["layer_norm", "gemm", "gelu"].iter().for_each(|name| p.launch(name, 600, 30_000));
            }),
            true => (0..6).for_each(|_| p.launch("triton_fused_layer", 600, 100_000)),
        }
        p.launch("adam_kernel", 600, 5_000);
        p.item();
        if l.marks {
            let end = std::mem::replace(&mut p.t, begin);
            p.mark(step, end);
            p.t = end;
        }
    }
    p.finish()
}

/// Result and text of the gate "1.5 times as fast as the baseline", with --same-work or without.
fn gate(place: &Place, base: Loop, new: Loop, told: bool) -> (i32, Value) {
    write(place, "base", &recorded(base));
    write(place, "new", &recorded(new));
    let args = ["check", "--json", "new", "--baseline", "base", "--min-speedup", "1.5", "--same-work"];
    let output = place.run(&args[..if told { 8 } else { 7 }]);
    let v: Value = serde_json::from_str(&out(&output)).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(v["same_work"], told);
    (code(&output), v["conditions"][1].clone())
}

fn text(judged: &Value) -> &str {
    judged["text"].as_str().unwrap()
}

#[test]
fn a_fix_that_fuses_passes_its_gate_where_the_user_vouches() {
    let place = Place::new("same-work-gate");
    for marks in [true, false] {
        let (eager, fused) = (Loop { marks, ..EAGER }, Loop { marks, ..FUSED });
        let (code, judged) = gate(&place, eager, fused, false);
        assert_eq!((code, &judged["result"]), (5, &"unjudged".into()), "{judged:#}");
        assert!(text(&judged).contains("--same-work"), "{judged:#}");
        let (code, judged) = gate(&place, eager, fused, true);
        assert_eq!((code, &judged["result"]), (0, &"ok".into()), "{judged:#}");
        // adam alone is in common: 5 us of 605 and of 1805
        let common = judged["common_share"].as_f64().unwrap();
        assert!((0.001..0.02).contains(&common), "{judged:#}");
        let said = "(--same-work: kernels not compared; <1% of the kernels' time is in common, 61 -> 7 kernels a step)";
        assert!(text(&judged).contains(said), "{judged:#}");
        // and the reverse fails
        let (code, judged) = gate(&place, fused, eager, true);
        assert_eq!((code, &judged["result"]), (8, &"failed".into()), "{judged:#}");
    }
}

/// Steps that were found may be other units: as many steps in the run, or as many bytes a step,
/// show that they are not.
#[test]
fn what_a_step_is_stays_checked() {
    let place = Place::new("same-work-units");
    let half = Loop { steps: 20, ..FUSED };
    let (code, judged) = gate(&place, EAGER, half, true);
    assert_eq!((code, &judged["result"]), (5, &"unjudged".into()), "{judged:#}");
    assert!(text(&judged).contains("may be another unit"), "{judged:#}");
    assert!(text(&judged).contains("steps of the run 40 -> "), "{judged:#}");
    // a batch of the same size shows it, one of another does not
    let batch = 4_000_000;
    let (code, judged) = gate(&place, Loop { batch, ..EAGER }, Loop { batch, ..half }, true);
    assert_eq!((code, &judged["result"]), (0, &"ok".into()), "{judged:#}");
    let twice = 2 * batch;
    let (code, judged) = gate(&place, Loop { batch, ..EAGER }, Loop { batch: twice, ..half }, true);
    assert_eq!(code, 5, "{judged:#}");
    assert!(text(&judged).contains("4.00 MB -> 8.00 MB from the host a step"), "{judged:#}");
    // runs of one length: as many steps, because a step of the one is two of the other's; a batch
    // that lost one of its tensors is no whole factor
    for (new, expected) in [(twice, 5), (batch / 2, 5), (batch / 4 * 5, 0), (batch / 3 * 2, 0)] {
        let (code, judged) = gate(&place, Loop { batch, ..EAGER }, Loop { batch: new, ..FUSED }, true);
        assert_eq!(code, expected, "{new}: {judged:#}");
    }
    // marks say what a step is however many there are; that it gets less from the host is said
    let marks = Loop { batch, marks: true, ..EAGER };
    let (code, judged) = gate(&place, marks, Loop { fused: true, steps: 20, batch: twice, ..marks }, true);
    assert_eq!(code, 0, "{judged:#}");
    assert!(text(&judged).contains("4.00 MB -> 8.00 MB from the host a step"), "{judged:#}");
}

#[test]
fn losses_gpus_and_few_steps_stay_checked() {
    let place = Place::new("same-work-checked");
    for (base, new, reason) in [
        (EAGER, Loop { gpu: "SIM A100", ..FUSED }, "the baseline's GPU is another"),
        (EAGER, Loop { lost: 400, ..FUSED }, "INCONCLUSIVE"),
        (Loop { lost: 400, ..EAGER }, FUSED, "the baseline is INCONCLUSIVE"),
        (Loop { marks: true, steps: 4, ..EAGER }, Loop { marks: true, ..FUSED }, "too few for a band"),
    ] {
        let (code, judged) = gate(&place, base, new, true);
        assert_eq!((code, &judged["result"]), (5, &"unjudged".into()), "{reason}: {judged:#}");
        assert!(text(&judged).contains(reason), "{judged:#}");
    }
}

/// Where the kernels are the same nothing was waived, and nothing of that is said.
#[test]
fn the_same_kernels_need_no_word() {
    let place = Place::new("same-work-needless");
    let (_, plain) = gate(&place, EAGER, Loop { run: 2, ..EAGER }, false);
    let (_, told) = gate(&place, EAGER, Loop { run: 2, ..EAGER }, true);
    assert_eq!(plain, told);
}

#[test]
fn diff_claims_what_it_may_and_says_what_was_waived() {
    let place = Place::new("same-work-diff");
    let diff = |base: Loop, new: Loop, args: &[&str]| -> Value {
        write(&place, "base", &recorded(base));
        write(&place, "new", &recorded(new));
        let output = place.run(&[&["diff", "--json", "base", "new"], args].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        serde_json::from_str(&out(&output)).unwrap()
    };
    let v = diff(EAGER, FUSED, &[]);
    assert_eq!((&v["result"], &v["work"]["told_same"]), (&"other_steps".into(), &false.into()));
    let v = diff(EAGER, FUSED, &["--same-work"]);
    let line = v["line"].as_str().unwrap();
    assert_eq!((&v["result"], &v["work"]["told_same"]), (&"faster".into(), &true.into()), "{line}");
    assert_eq!(v["work"]["same"], "other", "what was found is still there");
    assert!(line.starts_with("gapprobe diff: --same-work: kernels not compared; <1% of"), "{line}");
    let v = diff(EAGER, Loop { steps: 20, ..FUSED }, &["--same-work"]);
    let line = v["line"].as_str().unwrap();
    assert_eq!(v["result"], "other_steps", "{line}");
    assert!(line.contains("no claim") && line.contains("steps of the run 40 -> "), "{line}");
}

#[test]
fn wrong_use_ends_with_2() {
    let place = Place::new("same-work-wrong");
    put(&place, "t", Shape::default());
    for (args, said) in [
        (&["check", "t", "--same-work"][..], "--baseline"),
        // whether each GPU does what it did is what --scaling finds out
        (&["diff", "t", "t", "--scaling", "--same-work"], "cannot be used with"),
    ] {
        let output = place.run(args);
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{args:?}");
        assert!(err(&output).contains(said), "{args:?}: {}", err(&output));
    }
}
