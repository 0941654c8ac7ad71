// SPDX-License-Identifier: Apache-2.0
// HOT
//! The one clock: CLOCK_MONOTONIC in ns (vDSO, 24 to 35 ns a read). CUPTI gets the same through its
//! timestamp callback. What the program's threads stamp themselves is read by `ticks`, at about
//! half the cost.
//!
//! The time is libc's own, whatever another preloaded library makes of it: libfaketime defines
//! `clock_gettime` and the sleeps anew for the whole process, and stamps by a clock that stands
//! still, jumps or runs ten times as fast would be wrong ones beside the GPU's. So what is linked
//! into this library, std's `Instant` and `sleep` too, does not take these functions from the
//! loader: the linker leads them here (`build.rs`, `--wrap`), and here they are libc's.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{clockid_t, timespec};

use crate::platform::environment;

type GetTime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
type ClockSleep = unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
type Sleep = unsafe extern "C" fn(*const timespec, *mut timespec) -> c_int;

/// libc's own functions; null before [`at_load`], and where libc cannot be asked: then by the
/// kernel.
struct Libc {
    get_time: AtomicPtr<c_void>,
    clock_sleep: AtomicPtr<c_void>,
    sleep: AtomicPtr<c_void>,
}

static LIBC: Libc = Libc {
    get_time: AtomicPtr::new(ptr::null_mut()),
    clock_sleep: AtomicPtr::new(ptr::null_mut()),
    sleep: AtomicPtr::new(ptr::null_mut()),
};

/// In the constructor, of no setuid program: finds libc's own clock. By its handle: a search by
/// name alone finds who is preloaded. COLD.
pub(crate) fn at_load() {
    // SAFETY: a C string; libc is mapped, this takes a reference to it.
    let libc = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if libc.is_null() {
        return;
    }
    // (a test's program has functions that fail)
    let from = if environment::get("GAPPROBE_TEST_CLOCK").is_some() { libc::RTLD_DEFAULT } else { libc };
    for (place, name) in [
        (&LIBC.get_time, c"clock_gettime"),
        (&LIBC.clock_sleep, c"clock_nanosleep"),
        (&LIBC.sleep, c"nanosleep"),
    ] {
        // SAFETY: an open handle and a C string.
        place.store(unsafe { libc::dlsym(from, name.as_ptr()) }, Ordering::Relaxed);
    }
}

#[inline]
unsafe extern "C" fn get_time(clock: clockid_t, time: *mut timespec) -> c_int {
    let own = LIBC.get_time.load(Ordering::Relaxed);
    if own.is_null() {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
    }
    // SAFETY: libc's clock_gettime, which is never unloaded.
    let own: GetTime = unsafe { std::mem::transmute(own) };
    // SAFETY: the caller's own arguments.
    unsafe { own(clock, time) }
}

unsafe extern "C" fn clock_sleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    let own = LIBC.clock_sleep.load(Ordering::Relaxed);
    if own.is_null() {
        // SAFETY: the caller's own arguments.
        let rc = unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) };
        // this function tells its error by its value
        return if rc == 0 {
            0
        } else {
            std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
        };
    }
    // SAFETY: libc's clock_nanosleep, which is never unloaded.
    let own: ClockSleep = unsafe { std::mem::transmute(own) };
    // SAFETY: the caller's own arguments.
    unsafe { own(clock, flags, time, left) }
}

unsafe extern "C" fn sleep(time: *const timespec, left: *mut timespec) -> c_int {
    let own = LIBC.sleep.load(Ordering::Relaxed);
    if own.is_null() {
        // SAFETY: the caller's own arguments.
        return unsafe { libc::syscall(libc::SYS_nanosleep, time, left) } as c_int;
    }
    // SAFETY: libc's nanosleep, which is never unloaded.
    let own: Sleep = unsafe { std::mem::transmute(own) };
    // SAFETY: the caller's own arguments.
    unsafe { own(time, left) }
}

// What `--wrap` calls the three. Not exported, as `no_mangle` would have it: only this library's
// calls are led here.
std::arch::global_asm!(
    ".pushsection .text.gapprobe_clock, \"ax\", @progbits",
    ".globl __wrap_clock_gettime",
    ".hidden __wrap_clock_gettime",
    ".type __wrap_clock_gettime, @function",
    "__wrap_clock_gettime: jmp {get_time}",
    ".globl __wrap_clock_nanosleep",
    ".hidden __wrap_clock_nanosleep",
    ".type __wrap_clock_nanosleep, @function",
    "__wrap_clock_nanosleep: jmp {clock_sleep}",
    ".globl __wrap_nanosleep",
    ".hidden __wrap_nanosleep",
    ".type __wrap_nanosleep, @function",
    "__wrap_nanosleep: jmp {sleep}",
    ".popsection",
    get_time = sym get_time,
    clock_sleep = sym clock_sleep,
    sleep = sym sleep,
);

fn read(clock: clockid_t) -> u64 {
    let mut t = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec; the clock ids used here always exist.
    unsafe { get_time(clock, &mut t) };
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
