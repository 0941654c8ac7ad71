// SPDX-License-Identifier: Apache-2.0
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Ticks a ns of the machine that these tests make up.
const RATE: u64 = 3;

/// Rounds of 20 ms on a machine whose kernel turns its clock by `ppm(round)`: how far the line is
/// off at most, ns, just before it is measured.
fn off(rounds: u64, ppm: impl Fn(u64) -> i64) -> (Keeper, u64) {
    let (mut keeper, mut kernels, mut most) = (Keeper::default(), 5_000_000_000u64, 0);
    for round in 0..rounds {
        let counter = 77 + round * 20_000_000 * RATE;
        kernels = kernels.wrapping_add_signed(20_000_000 + 20 * ppm(round));
        most = most.max(keeper.drawn.at(counter).map_or(0, |told| told.abs_diff(kernels)));
        keeper.drawn = keeper.next_line((counter, kernels));
    }
    (keeper, most)
}

#[test]
fn there_is_a_line_after_a_quarter_of_a_second_and_none_before() {
    assert_eq!(off(13, |_| 0).0.drawn, Line::default());
    let (keeper, most) = off(15, |_| 0);
    assert!(keeper.drawn.holds > 0 && most <= 1, "{:?}", keeper.drawn);
}

#[test]
fn it_follows_a_clock_that_is_slewed() {
    for ppm in [-500, -20, 20, 500] {
        // a rate that stays, and one that changes at once, which the line learns over half a second
        assert!(off(200, |_| ppm).1 <= 2);
        let (_, most) = off(400, |round| if round < 100 { 0 } else { ppm / 100 });
        assert!(most < WORST, "{ppm}: {most}");
    }
}

#[test]
fn it_is_thrown_away_where_the_kernels_clock_is_turned_fast_and_comes_back() {
    let (keeper, _) = off(101, |round| if round < 100 { 0 } else { 10_000 });
    assert_eq!(keeper.drawn, Line::default());
    let (keeper, most) = off(140, |round| if round == 100 { 10_000 } else { 0 });
    assert!(keeper.drawn.holds > 0);
    assert!(most >= 200_000, "{most}");
}

#[test]
fn it_never_steps_and_never_runs_backward() {
    let (mut keeper, mut kernels, mut last) = (Keeper::default(), 5_000_000_000u64, 0);
    for round in 0..500u64 {
        let counter = round * 20_000_000 * RATE;
        kernels = kernels.wrapping_add_signed(20_000_000 + (round as i64 * 7919 % 300) - 150); // readings are not exact
        let before = keeper.drawn.at(counter);
        keeper.drawn = keeper.next_line((counter, kernels));
        if let (Some(before), Some(after)) = (before, keeper.drawn.at(counter)) {
            assert_eq!(before, after, "round {round}");
        }
        for tick in (0..20_000_000 * RATE).step_by(1_000_003) {
            let Some(now) = keeper.drawn.at(counter + tick) else { continue };
            assert!(now >= last, "round {round}: {now} after {last}");
            last = now;
        }
    }
    assert!(last > 0);
}

#[test]
fn a_line_that_nobody_measured_for_a_second_is_not_used() {
    let (keeper, _) = off(50, |_| 0);
    let from = keeper.drawn.from;
    assert!(keeper.drawn.at(from + (HOLDS - 1_000) * RATE).is_some());
    assert_eq!(keeper.drawn.at(from + (HOLDS + 1_000_000) * RATE), None);
    assert_eq!(keeper.drawn.at(from - 1), None, "a counter from before it");
}

/// On this machine, by its own counter, beside a thread that reads: never backward, and as far from
/// the kernel's clock as reading two clocks takes. Where the kernel goes by another counter the two
/// are the same function.
#[test]
fn it_is_the_kernels_clock() {
    let mut keeper = Keeper::default();
    let stop = AtomicBool::new(false);
    let mut found = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut off, mut last) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let before = clock::monotonic();
                let now = super::now();
                let after = clock::monotonic();
                assert!(now >= last, "{now} after {last}");
                last = now;
                // outside of what the kernel said before and after
                off.push(before.saturating_sub(now).max(now.saturating_sub(after)));
            }
            off
        });
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(7));
            keeper.keep();
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader")
    });
    found.sort_unstable();
    let at = |share: f64| found[(found.len() as f64 * share) as usize];
    println!(
        "usable {:?}, off: median {}, 99 % {}, 99.99 % {} ns",
        keeper.usable,
        at(0.5),
        at(0.99),
        at(0.9999)
    );
    assert_eq!(keeper.usable == Some(true), keeper.drawn.holds > 0);
    assert!(at(0.99) <= 100 && at(0.9999) <= WORST, "99 % {}, 99.99 % {} ns", at(0.99), at(0.9999));
}
