// SPDX-License-Identifier: Apache-2.0
//! Runs real victim programs under the real `libgapprobe.so` on the simulated driver and collects
//! what they leave.
//!
//! * [`built`]: the library, the simulated driver and the victims, built once into the target
//!   folder.
//! * [`victim`]: one run of one program, with gapprobe or without, in folders of its own.
//! * [`truth`]: what the simulated driver says really happened.
//! * [`recorded`]: what the recording says happened.
//! * [`pythons`]: the CPythons of this machine.
//! * [`small_disk`]: a disk that is soon full.
//! * [`uses`]: which module of a crate uses which.
//! * [`chaos`]: random programs under random faults, and what must hold after each
//!   (`benches/chaos.rs`).
//!
//! The scenarios themselves are `tests/*.rs`, one a file. Nothing but `chaos` says what gapprobe
//! must do.

pub mod built;
pub mod chaos;
pub mod pythons;
pub mod recorded;
pub mod small_disk;
pub mod truth;
pub mod uses;
pub mod victim;

pub use recorded::Recorded;
pub use truth::Truth;
pub use victim::{Run, Running, Victim};

/// The five releases of CUPTI that the simulated driver stands for.
pub const RELEASES: [&str; 5] = ["11.8", "12.4", "12.9", "13.0", "13.5"];

/// Whether each claim is to be repeated as often as there is reason to (`scripts/test all`:
/// GAPPROBE_THOROUGH=1), or a few times only, for whoever changes a line and waits.
pub fn thorough() -> bool {
    std::env::var_os("GAPPROBE_THOROUGH").is_some_and(|v| v != "0")
}

/// The cases that a scenario goes through: all of them where it is [`thorough`], else the first.
pub fn cases<T>(all: &[T]) -> &[T] {
    let some = if thorough() { all.len() } else { 1 };
    &all[..some.min(all.len())]
}

/// The releases that a scenario of all of them goes through: all where it is [`thorough`], else
/// those of PyTorch 2.5 and 2.11; one where a sanitizer makes each of them slow.
pub fn releases() -> &'static [&'static str] {
    match built::runtime() {
        Some(_) => &["13.0"],
        None if thorough() => &RELEASES,
        None => &["12.4", "13.0"],
    }
}

/// CLOCK_MONOTONIC, ns: the clock of recordings and of the truth.
pub fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out-pointer and a clock that always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Says why a test, or a part of one, does not run here: past the harness, which keeps what passing
/// tests print to itself. `scripts/test` looks for these lines.
pub fn skipped(why: impl std::fmt::Display) {
    use std::io::Write;
    // a harness with one thread has begun a line
    let _ = std::io::stdout().write_all(format!("\nSKIPPED: {why}\n").as_bytes());
    // nobody is left to be told
}

/// Scenarios that measure time hold this for writing, all runs hold it for reading: they are alone
/// then.
pub static CORES: std::sync::RwLock<()> = std::sync::RwLock::new(());
