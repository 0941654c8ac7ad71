// SPDX-License-Identifier: Apache-2.0
// HOT
//! The one clock: CLOCK_MONOTONIC in ns (vDSO, about 20 ns a read). CUPTI gets the same through its timestamp callback.

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec; the clock ids used here always exist.
    unsafe { libc::clock_gettime(clock, &mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// ns since boot, never steps.
#[inline]
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// ns since 1970, steps when the administrator or NTP says so.
pub(crate) fn realtime() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread, ns.
pub(crate) fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process, ns.
pub(crate) fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Both clocks at one moment (realtime read between two monotonic reads, the middle taken).
pub(crate) fn pair() -> (u64, u64) {
    let a = monotonic();
    let real = realtime();
    let b = monotonic();
    (a + (b - a) / 2, real)
}
