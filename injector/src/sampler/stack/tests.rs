// SPDX-License-Identifier: Apache-2.0
mod moving;

use super::*;

/// A chain, innermost first, of frames at these addresses that stand at these instructions.
fn chain(frames: &[(u64, u64)]) -> Vec<Frame> {
    let back = frames.iter().skip(1).map(|f| f.0).chain([0]);
    let frame = |(f, back): (&(u64, u64), u64)| Frame {
        address: f.0,
        back,
        code: f.0 * 10,
        instruction: f.1,
        owner: 0,
        is_root: back == 0,
        is_running: true,
    };
    frames.iter().zip(back).map(frame).collect()
}

#[test]
fn outer_frames_are_those_that_both_have_at_the_same_call() {
    let same = |a: &[(u64, u64)], b: &[(u64, u64)]| {
        let found = common(&chain(a), &chain(b), |a, b| a == b);
        found.iter().map(|f| f.address).collect::<Vec<_>>()
    };
    let base = [(3, 30), (2, 20), (1, 10)];
    assert_eq!(same(&base, &base), [3, 2, 1]);
    assert_eq!(same(&[(4, 40), (3, 30), (2, 20), (1, 10)], &base), [3, 2, 1], "what it called has returned");
    assert_eq!(same(&[(9, 90), (2, 20), (1, 10)], &base), [2, 1], "another was called in its place");
    assert_eq!(same(&[(3, 31), (2, 20), (1, 10)], &base), [2, 1], "it has gone on");
    assert_eq!(
        same(&[(3, 30), (2, 21), (1, 10)], &base),
        [1],
        "an outer one has: what it calls is another call"
    );
    assert_eq!(same(&[(3, 30), (2, 20)], &base), [0; 0], "another outermost frame");
    let mut cut = chain(&base);
    cut[2].back = 7;
    assert_eq!(common(&cut, &cut.clone(), |a, b| a == b), [], "no outer end");
}
