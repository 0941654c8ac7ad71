// SPDX-License-Identifier: Apache-2.0
//! GIL: the launching thread waits for Python's lock, by samples of the threads that hold it. Steps
//! as in `samples.rs`.

use trace::event::sample::{HOLDS_GIL, WAITS_GIL};
use verdict::{Analysis, Run};

use super::program::{Pose, TICK};
use super::samples::{names, stack, work, AWAY, LIBRARY, PREPARE, TORCH};
use super::{run, Program};

/// Steps in which the launching thread waits for the lock; `hold` says what is known of who holds
/// it at a tick.
fn locked(mut hold: impl FnMut(&mut Program, u64)) -> (Run, Analysis) {
    run(|p| {
        work(p);
        let pose = Pose { bits: WAITS_GIL, ..Pose::blocked(stack(p, &[PREPARE]), 202) };
        let tick = p.t.next_multiple_of(TICK);
        p.stand(AWAY, pose);
        hold(p, tick);
    })
}

pub(super) const HOLDER: u32 = 500;

fn decoding(p: &mut Program, line: u32) -> Pose {
    let other =
        p.b.stack(&[("decode", "/job/gpt/server.py", line), ("run", &format!("{LIBRARY}/threading.py"), 9)]);
    Pose { bits: HOLDS_GIL, ..Pose::computing(other) }
}

#[test]
fn the_global_lock_and_who_holds_it() {
    let found = locked(|p, tick| {
        let pose = decoding(p, 7);
        p.sample(HOLDER, tick, pose);
    });
    names(&found, "GIL", 7);
    assert!(
        found.1.verdict.text().ends_with("; held by decode at gpt/server.py:7"),
        "{}",
        found.1.verdict.text()
    );
    // the holder is read after all that wait, or, where it calls CUDA itself, before them
    for late in [300_000, -300_000] {
        let found = locked(|p, tick| {
            let pose = decoding(p, 7);
            p.sample(HOLDER, tick.saturating_add_signed(late), pose);
        });
        names(&found, "GIL", 7);
    }
}

#[test]
fn a_holder_all_over_its_function_is_that_function() {
    let mut line = 0;
    let found = locked(|p, tick| {
        line += 1;
        let pose = decoding(p, 10 + line % 7);
        p.sample(HOLDER, tick, pose);
    });
    names(&found, "GIL", 0);
    let text = &found.1.verdict.text();
    assert!(text.ends_with("; held by decode at gpt/server.py"), "{text}");
}

/// Known in a third of the waits, or from another time than the wait: nobody is accused, not the
/// line that waits either.
#[test]
fn a_lock_whose_holder_is_not_known_names_no_line() {
    let mut n = 0;
    let third = locked(|p, tick| {
        n += 1;
        if n % 3 == 0 {
            let pose = decoding(p, 7);
            p.sample(HOLDER, tick, pose);
        }
    });
    let elsewhen = locked(|p, tick| {
        let pose = decoding(p, 7);
        p.sample(HOLDER, tick - 2_000_000, pose);
    });
    for found in [third, elsewhen] {
        names(&found, "GIL", 0);
        assert_eq!(found.1.verdict.site, None);
        let text = &found.1.verdict.text();
        assert!(
            text.ends_with("; it waits in gpt/train.py:41 in prepare, who holds it is not known"),
            "{text}"
        );
    }
}

/// A thread that is looked at only because it holds the lock may stand in a loader of its own: no
/// input of the launching one.
#[test]
fn a_holder_in_a_loader_is_no_input() {
    let found = locked(|p, tick| {
        let frames = [
            ("__next__", &*format!("{TORCH}/utils/data/dataloader.py"), 700),
            ("ahead", "/job/gpt/ahead.py", 5),
        ];
        let pose = Pose { bits: HOLDS_GIL, ..Pose::computing(p.b.stack(&frames)) };
        p.sample(HOLDER, tick, pose);
    });
    names(&found, "GIL", 5);
}
