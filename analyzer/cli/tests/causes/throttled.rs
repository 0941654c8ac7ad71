// SPDX-License-Identifier: Apache-2.0
//! GP139 THROTTLED: a GPU whose clock heat holds down, and what is close by: its own power limit,
//! heat that is seldom, a clock that is high all the same.

use trace::event::Gauge;
use trace::{Event, Kind};
use verdict::analysis::Confidence;
use verdict::run::Run;
use verdict::Analysis;

use super::{verdict, Program};

/// NVML's bits for the power limit and heat.
const POWER: u64 = 0x04;
const HEAT: u64 = 0x40;

/// A program that keeps its GPU at work, and readings each second: this bit in one of so many, this
/// clock of 1,980 MHz.
fn read(bit: u64, one_of: u64, mhz: u64) -> (Run, Analysis) {
    let mut p = Program::new();
    for _ in 0..400 {
        (0..20).for_each(|_| p.launch("my_kernel", 1320, 1_000_000));
        p.optimizer(25_000);
    }
    for second in 2..8 {
        let reasons = if second % one_of == 0 { bit } else { 0 };
        for (gauge, value) in
            [(Gauge::SmClockMhz, mhz), (Gauge::SmClockMaxMhz, 1980), (Gauge::ThrottleReasons, reasons)]
        {
            let mut e = Event::new(Kind::Gauge, second * 1_000_000_000, second * 1_000_000_000);
            (e.a, e.b) = (gauge as u32, value as u32);
            p.b.on_recorder(e);
        }
    }
    p.analyze()
}

pub(super) fn hot() -> (Run, Analysis) {
    read(HEAT, 1, 1200)
}

pub(super) fn full() -> (Run, Analysis) {
    read(POWER, 1, 1200)
}

#[test]
fn heat_holds_the_clock_down() {
    let (run, a) = hot();
    verdict(&a, "THROTTLED");
    assert_eq!(a.verdict.confidence, Confidence::Low, "how much of it is memory's is not known");
    let line = ::verdict::output::sentence::line(&run, &a, None);
    assert!(
        line.contains("maybe heat or the power supply slows the GPU; look at cooling and power"),
        "{line}"
    );
    // two fifths of the clock are missing, half of that is won
    let left = a.verdict.promise.map_or(0.0, |p| p.ns()) / a.verdict.step_ns;
    assert!((0.78..0.83).contains(&left), "{left}");
    assert!(a.verdict.text().contains("1200 of 1980 MHz"), "{}", a.verdict.text());
}

#[test]
fn its_own_limit_seldom_heat_and_a_high_clock() {
    for (_, a) in [full(), read(HEAT | POWER, 1, 1200), read(HEAT, 3, 1200), read(HEAT, 1, 1950)] {
        verdict(&a, "GPU-BOUND");
    }
}
