// SPDX-License-Identifier: Apache-2.0
mod moving;

use super::*;

/// A chain, innermost first, of frames at these addresses that stand at these instructions.
fn chain(frames: &[(u64, u64)]) -> Vec<Seen> {
    let back = frames.iter().skip(1).map(|f| f.0).chain([0]);
    let frame = |(f, back): (&(u64, u64), u64)| {
        let frame = Frame {
            address: f.0,
            back,
            code: f.0 * 10,
            instruction: f.1,
            owner: 0,
            is_root: back == 0,
            is_running: true,
        };
        Seen { frame, id: None, went_on: false }
    };
    frames.iter().zip(back).map(frame).collect()
}

#[test]
fn outer_frames_are_those_that_both_have_at_the_same_call_and_the_function_inside_them() {
    let same = |a: &[(u64, u64)], b: &[(u64, u64)]| {
        let found = common(&chain(a), &chain(b));
        found.iter().map(|f| f.frame.address).collect::<Vec<_>>()
    };
    let base = [(3, 30), (2, 20), (1, 10)];
    assert_eq!(same(&base, &base), [3, 2, 1]);
    assert_eq!(same(&[(4, 40), (3, 30), (2, 20), (1, 10)], &base), [3, 2, 1], "what it called has returned");
    assert_eq!(same(&[(9, 90), (2, 20), (1, 10)], &base), [2, 1], "another was called in its place");
    assert_eq!(same(&[(3, 31), (2, 20), (1, 10)], &base), [3, 2, 1], "it has gone on, in the same function");
    assert_eq!(
        same(&[(3, 30), (2, 21), (1, 10)], &base),
        [2, 1],
        "an outer one has: what it calls is another call"
    );
    assert_eq!(same(&[(3, 30), (2, 20)], &base), [0; 0], "another outermost frame");
    let mut cut = chain(&base);
    cut[2].frame.back = 7;
    assert_eq!(common(&cut, &cut.clone()), [], "no outer end");
}

#[test]
fn what_a_frame_called_that_went_on_is_not_believed() {
    let base = chain(&[(3, 30), (2, 20), (1, 10)]);
    let mut moved = base.clone();
    moved[1].went_on = true;
    let addresses = |found: Vec<Seen>| found.iter().map(|f| f.frame.address).collect::<Vec<_>>();
    assert_eq!(addresses(common(&moved, &base)), [2, 1], "it went on while it was read");
    let once = common(&chain(&[(3, 30), (2, 21), (1, 10)]), &base);
    assert_eq!(addresses(common(&once, &base)), [2, 1], "nor by the next try");
    let [mut a, mut b] = [base.clone(), base];
    (a[1].id, b[1].id) = (Some(4), Some(5));
    assert_eq!(addresses(common(&a, &b)), [1], "another code object at the same address");
}
