// SPDX-License-Identifier: Apache-2.0
// HOT (`enter`, `at_mark`), COLD (the rest)
//! When CUPTI may be switched in a program that runs: while no thread is inside a launch.
//!
//! Measured on an H200 with CUPTI 12.9, 13.0 and 13.5 (`tests/gpu/programs/residue.c`, plans R and S, P, Q; docs/windows.md): where kinds are
//! switched on or off by one thread while another one launches, later windows have no kernels, or all their kernels have one
//! correlation id, for the rest of the process, for whoever records. Switched by the thread that launches, or while that is kept waiting,
//! every window of every release is whole, whatever the GPU does meanwhile.
//!
//! So who wants to switch says so ([`want`]), and a thread of the program's that is about to launch, or marks a step, does it, once no other
//! one is inside of a launch (others wait at the gate meanwhile: 0.3 ms at most, two times a window). Where nothing is launched, as in a
//! program that hangs, the flush thread does it ([`from_aside`]). Launches that do not come through the slots of `runtime` are not
//! seen: a thread that launches those alone, while another one comes to the gate, is not waited for.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use super::step_clock::{self, Source};
use crate::cupti::arbiter;
use crate::guard::guard;
use crate::{clock, flush};

/// Threads inside of a launch.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Somebody switches, or waits for the others to come out.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// What is to be done, see [`SWITCH`] and [`RETURN`].
static WANTED: AtomicU8 = AtomicU8::new(0);
/// When the last of it was asked for, and how many launches there were, ns.
static WANTED_AT: AtomicU64 = AtomicU64::new(0);
static LAUNCHES_THEN: AtomicU64 = AtomicU64::new(0);
/// No attempt before this time, ns.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Time that threads of the program's spent here, ns.
static SPENT: AtomicU64 = AtomicU64::new(0);
/// The driver's `cuStreamIsCapturing`; 0: not known.
static IS_CAPTURING: AtomicUsize = AtomicUsize::new(0);

/// A window begins or ends.
pub(crate) const SWITCH: u8 = 1;
/// Another client of CUPTI's is done.
pub(crate) const RETURN: u8 = 2;

/// So long the others are waited for, ns: a launch takes some µs, one that finds its queue full much longer.
const PATIENCE: u64 = 200_000;
/// After an attempt that failed, ns.
const PAUSE: u64 = 2_000_000;
/// A thread waits here no longer, ns, whatever has become of who switches.
const LONGEST_WAIT: u64 = 50_000_000;
/// Where nothing was launched for so long, ns, the flush thread switches.
const AT_REST: u64 = 250_000_000;

/// A thread is inside of a launch while this lives.
pub(super) struct Inside(());

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::Release);
    }
}

/// A thread is about to launch into this stream.
#[inline]
pub(super) fn enter(stream: *mut c_void) -> Inside {
    if WANTED.load(Ordering::Relaxed) != 0 {
        guard((), || attempt(stream));
    }
    // Sequentially consistent on both sides: either who closed the gate sees this thread inside, or this thread sees it closed.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    if CLOSED.load(Ordering::SeqCst) {
        wait_outside();
    }
    Inside(())
}

/// A thread marks a step: it launches nothing just now.
#[inline]
pub(crate) fn at_mark() {
    if WANTED.load(Ordering::Relaxed) != 0 {
        attempt(std::ptr::null_mut());
    }
}

#[cold]
#[inline(never)]
fn wait_outside() {
    let begin = clock::monotonic();
    while CLOSED.load(Ordering::SeqCst) && clock::monotonic().saturating_sub(begin) < LONGEST_WAIT {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(20));
        INSIDE.fetch_add(1, Ordering::SeqCst);
    }
    SPENT.fetch_add(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
}

/// Can it be told when no thread is inside of a launch?
pub(crate) fn is_possible() -> bool {
    step_clock::launches() > 0 || step_clock::source() == Source::Marks
}

/// This is to be done as soon as it can be.
pub(crate) fn want(job: u8) {
    if WANTED.load(Ordering::Relaxed) & job != 0 {
        return;
    }
    WANTED_AT.store(clock::monotonic(), Ordering::Relaxed);
    LAUNCHES_THEN.store(step_clock::launches(), Ordering::Relaxed);
    NOT_BEFORE.store(0, Ordering::Relaxed);
    WANTED.fetch_or(job, Ordering::Release);
}

/// Time that the program's threads have spent on switching, ns.
pub(crate) fn spent() -> u64 {
    SPENT.load(Ordering::Relaxed)
}

/// Where to ask whether a stream is being captured (`cuStreamIsCapturing`). COLD.
pub(super) fn know_captures(function: usize) {
    IS_CAPTURING.store(function, Ordering::Relaxed);
}

/// By the flush thread: what is wanted, where no thread has launched since it was.
pub(crate) fn from_aside() {
    let waited = clock::monotonic().saturating_sub(WANTED_AT.load(Ordering::Relaxed));
    let launches = step_clock::launches();
    let is_at_rest = waited >= AT_REST && launches > 0 && launches == LAUNCHES_THEN.load(Ordering::Relaxed);
    if WANTED.load(Ordering::Acquire) != 0 && is_at_rest {
        attempt(std::ptr::null_mut());
    }
    LAUNCHES_THEN.store(launches, Ordering::Relaxed);
}

/// In a child that was forked: nobody of the parent's threads is here.
pub(crate) fn in_child() {
    WANTED.store(0, Ordering::Relaxed);
    INSIDE.store(0, Ordering::Relaxed);
    CLOSED.store(false, Ordering::Relaxed);
}

/// Does what is wanted, where nobody is inside of a launch, or soon. The calling thread is not.
#[cold]
#[inline(never)]
fn attempt(stream: *mut c_void) {
    let begin = clock::monotonic();
    if begin < NOT_BEFORE.load(Ordering::Relaxed) || CLOSED.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: the calling thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // a fault in here must leave the gate open
    let done = guard(false, || are_out(begin) && !is_capturing(stream) && work());
    if !done {
        NOT_BEFORE.store(clock::monotonic() + PAUSE, Ordering::Relaxed);
    }
    CLOSED.store(false, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { errno.write(before) };
    SPENT.fetch_add(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
}

/// Is nobody inside any more?
fn are_out(begin: u64) -> bool {
    while INSIDE.load(Ordering::SeqCst) != 0 {
        if clock::monotonic().saturating_sub(begin) > PATIENCE {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// What the driver allows while a graph is captured is not asked of it.
fn is_capturing(stream: *mut c_void) -> bool {
    type IsCapturing = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
    let function = IS_CAPTURING.load(Ordering::Relaxed);
    if function == 0 || stream.is_null() {
        return false;
    }
    // SAFETY: the driver's function of this name, of this signature since CUDA 10.
    let ask: IsCapturing = unsafe { std::mem::transmute(function) };
    let mut status = 0;
    // SAFETY: the stream that the program is about to launch into; a valid out-pointer.
    unsafe { ask(stream, &mut status) != 0 || status != 0 }
}

/// `true`: nothing is left to do.
fn work() -> bool {
    let wanted = WANTED.load(Ordering::Acquire);
    let mut left = 0;
    if wanted & SWITCH != 0 && !flush::switch_at_rest() {
        left |= SWITCH;
    }
    if wanted & RETURN != 0 && !arbiter::return_at_rest() {
        left |= RETURN;
    }
    WANTED.fetch_and(!wanted | left, Ordering::AcqRel);
    left == 0
}
