// SPDX-License-Identifier: Apache-2.0
//! Runs real victim programs under the real `libgapprobe.so` on the simulated driver and collects what they leave.
//!
//! * [`built`]: the library, the simulated driver and the victims, built once into the target folder.
//! * [`victim`]: one run of one program, with gapprobe or without, in folders of its own.
//! * [`truth`]: what the simulated driver says really happened.
//! * [`recorded`]: what the recording says happened.
//! * [`pythons`]: the CPythons of this machine.
//! * [`small_disk`]: a disk that is soon full.
//! * [`chaos`]: random programs under random faults, and what must hold after each (`benches/chaos.rs`).
//!
//! The scenarios themselves are `tests/*.rs`, one a file. Nothing but `chaos` says what gapprobe must do.

pub mod built;
pub mod chaos;
pub mod pythons;
pub mod recorded;
pub mod small_disk;
pub mod truth;
pub mod victim;

pub use recorded::Recorded;
pub use truth::Truth;
pub use victim::{Run, Running, Victim};

/// The five releases of CUPTI that the simulated driver stands for.
pub const RELEASES: [&str; 5] = ["11.8", "12.4", "12.9", "13.0", "13.5"];

/// Those that a scenario of all of them goes through: the last one alone where a sanitizer makes each of them slow.
pub fn releases() -> &'static [&'static str] {
    match built::runtime() {
        Some(_) => &RELEASES[3..4],
        None => &RELEASES,
    }
}

/// CLOCK_MONOTONIC, ns: the clock of recordings and of the truth.
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out-pointer and a clock that always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Says why a test, or a part of one, does not run here: past the harness, which keeps what passing tests print to itself.
/// `scripts/test` looks for these lines.
pub fn skipped(why: impl std::fmt::Display) {
    use std::io::Write;
    // a harness with one thread has begun a line
    let _ = std::io::stdout().write_all(format!("\nSKIPPED: {why}\n").as_bytes());
    // nobody is left to be told
}

/// Scenarios that measure time hold this for writing, all runs hold it for reading: they are alone then.
pub static CORES: std::sync::RwLock<()> = std::sync::RwLock::new(());
