// SPDX-License-Identifier: Apache-2.0
//! The engine's clock: CLOCK_MONOTONIC nanoseconds, and waiting on it. What CUPTI reports is `cupti::timestamps`.

use std::mem::MaybeUninit;

/// Sleep until this long before the deadline, then spin: a plain sleep wakes about 55 µs late.
const SPIN_NS: u64 = 80_000;

fn read(clock: libc::clockid_t) -> u64 {
    let mut at = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `at` is valid for a timespec; zeroed is a valid timespec should the call fail.
    let at = unsafe {
        libc::clock_gettime(clock, at.as_mut_ptr());
        at.assume_init()
    };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// CLOCK_MONOTONIC in ns.
pub(crate) fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in ns: CUPTI's default clock.
pub(crate) fn realtime() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// Keeps this core busy until `deadline`: the host's cost of a call.
pub(crate) fn spin_until(deadline: u64) {
    while now() < deadline {
        std::hint::spin_loop();
    }
}

/// Blocks until `deadline`, off the CPU for all but the last `SPIN_NS`.
pub(crate) fn sleep_until(deadline: u64) {
    loop {
        let at = now();
        if at >= deadline {
            return;
        }
        let left = deadline - at;
        if left <= SPIN_NS {
            return spin_until(deadline);
        }
        nap(left - SPIN_NS);
    }
}

/// Sleeps `ns`, or less when a signal arrives.
pub(crate) fn nap(ns: u64) {
    let span = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // SAFETY: `span` is a valid timespec; the remainder is not asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &span, std::ptr::null_mut()) };
}
