// SPDX-License-Identifier: Apache-2.0
//! The engine's clock: CLOCK_MONOTONIC nanoseconds, and waiting on it. What CUPTI reports is
//! `cupti::timestamps`. It stands for hardware: libc's own functions, whatever a preloaded library
//! (libfaketime) makes of them.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Sleep until this long before the deadline, then spin: a plain sleep wakes about 55 µs late.
const SPIN_NS: u64 = 80_000;

type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;
type Sleep = unsafe extern "C" fn(libc::clockid_t, i32, *const libc::timespec, *mut libc::timespec) -> i32;

/// libc's own function of this name: by its handle, which finds nobody who is preloaded.
fn of_libc(name: &CStr) -> *mut std::ffi::c_void {
    // SAFETY: C strings; libc is mapped for ever.
    unsafe {
        libc::dlsym(libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD), name.as_ptr())
    }
}

fn get_time() -> GetTime {
    static OWN: OnceLock<GetTime> = OnceLock::new();
    // SAFETY: libc's function of this name has this type.
    *OWN.get_or_init(|| unsafe { std::mem::transmute(of_libc(c"clock_gettime")) })
}

fn sleep() -> Sleep {
    static OWN: OnceLock<Sleep> = OnceLock::new();
    // SAFETY: libc's function of this name has this type.
    *OWN.get_or_init(|| unsafe { std::mem::transmute(of_libc(c"clock_nanosleep")) })
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut at = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: `at` is valid for a timespec; zeroed is a valid timespec should the call fail.
    let at = unsafe {
        get_time()(clock, at.as_mut_ptr());
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
    unsafe { sleep()(libc::CLOCK_MONOTONIC, 0, &span, std::ptr::null_mut()) };
}
