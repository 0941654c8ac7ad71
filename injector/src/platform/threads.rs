// SPDX-License-Identifier: Apache-2.0
// COLD
//! Threads of ours, and how they are woken. Made by pthread itself: a thread of std's registers
//! destructors for its thread-local variables when it begins, and for that glibc takes the loader's
//! lock, which the program holds while it uses the GPU in a constructor of a library it loads
//! (measured: it then waited for us for two seconds).

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::platform::guard::guard;

/// Stack of a thread of ours.
const STACK: usize = 512 << 10;

struct Start {
    name: [u8; 16],
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a thread with all signals blocked: the program's handlers run on the program's threads,
/// and SIGPIPE or SIGXFSZ of our own writes reach nobody.
pub(crate) fn spawn_quietly(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    let mut start = Box::new(Start { name: [0; 16], body: Box::new(body) });
    for (to, from) in start.name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let start = Box::into_raw(start);
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a valid sigset.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: valid sigsets; the mask is this thread's only and restored below.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // a program with more thread-local memory than our stack is given the stack its own threads
    // have
    let started = create(start, Some(STACK)) || create(start, None);
    // SAFETY: the mask saved above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    if !started {
        // SAFETY: made above, and no thread has it.
        drop(unsafe { Box::from_raw(start) });
    }
    started
}

fn create(start: *mut Start, stack: Option<usize>) -> bool {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    let at = attributes.as_mut_ptr();
    // SAFETY: room for the attributes.
    if unsafe { libc::pthread_attr_init(at) } != 0 {
        return false;
    }
    // SAFETY: attributes made above.
    unsafe { libc::pthread_attr_setdetachstate(at, libc::PTHREAD_CREATE_DETACHED) };
    if let Some(bytes) = stack {
        // SAFETY: as above.
        unsafe { libc::pthread_attr_setstacksize(at, bytes) };
    }
    let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::zeroed();
    // SAFETY: valid out-pointer and attributes; `begin` takes `start` over if the thread begins.
    let started = unsafe { libc::pthread_create(thread.as_mut_ptr(), at, begin, start.cast()) } == 0;
    // SAFETY: as above.
    unsafe { libc::pthread_attr_destroy(at) };
    started
}

extern "C" fn begin(start: *mut c_void) -> *mut c_void {
    guard((), || {
        // SAFETY: `spawn_quietly` made it and has handed it to this thread alone.
        let start = unsafe { Box::from_raw(start.cast::<Start>()) };
        // SAFETY: 16 bytes that end with a zero.
        unsafe { libc::prctl(libc::PR_SET_NAME, start.name.as_ptr()) };
        leave_the_programs_place();
        (start.body)();
    });
    std::ptr::null_mut()
}

/// The CPUs this process was started on, a bit each, and how many bytes of it the kernel filled; 0:
/// unknown.
static CPUS: ([AtomicU64; 16], AtomicUsize) = ([const { AtomicU64::new(0) }; 16], AtomicUsize::new(0));

/// In the constructor: the CPUs this process was started on.
pub(crate) fn remember_cpus() {
    let mut mask = [0u64; 16];
    // SAFETY: a mask and its size; the kernel writes at most that.
    let n = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    for (to, from) in CPUS.0.iter().zip(mask) {
        to.store(from, Ordering::Relaxed);
    }
    CPUS.1.store(usize::try_from(n).unwrap_or(0), Ordering::Release);
}

/// A thread inherits where and how the one that made it runs, which is the one that launches: often
/// bound to one CPU (OpenMP, numactl), sometimes of a real-time class. Ours go anywhere the process
/// may, as ordinary threads. Where the kernel refuses, they stay.
fn leave_the_programs_place() {
    let mask = CPUS.0.each_ref().map(|word| word.load(Ordering::Relaxed));
    let bytes = CPUS.1.load(Ordering::Acquire);
    if bytes != 0 {
        // SAFETY: a mask of at least that many bytes; 0: the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, mask.as_ptr()) };
    }
    // SAFETY: takes a number; 0: the calling thread.
    let class = unsafe { libc::sched_getscheduler(0) };
    if class == libc::SCHED_FIFO || class == libc::SCHED_RR {
        let ordinary = libc::sched_param { sched_priority: 0 };
        // SAFETY: valid parameters.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary) };
    }
}

/// Wakes threads of ours. No lock and no memory: it may be set while the thread that sets it was
/// interrupted anywhere.
pub(crate) struct Signal(AtomicU32);

impl Signal {
    /// Not set.
    pub(crate) const fn new() -> Signal {
        Signal(AtomicU32::new(0))
    }

    /// Sets it, and wakes who waits.
    pub(crate) fn set(&self) {
        self.0.store(1, Ordering::Release);
        // SAFETY: a word that lives as long as `self`; wakes at most that many waiters of it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                i32::MAX,
                0,
                0,
                0,
            )
        };
    }

    /// Is it set?
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Waits until it is set, or for so long, or (seldom) less.
    pub(crate) fn wait(&self, longest: Duration) {
        let longest = libc::timespec {
            tv_sec: longest.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: longest.subsec_nanos() as std::ffi::c_long,
        };
        // SAFETY: a word that lives as long as `self`, and a valid time; returns at once where it
        // is not 0.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                &longest,
                0,
                0,
            )
        };
    }

    /// Takes it back; was it set?
    pub(crate) fn take(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) != 0
    }
}

/// A short pause for COLD loops.
pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_signal_that_was_set_before_or_meanwhile_ends_the_waiting() {
        static SIGNAL: Signal = Signal::new();
        SIGNAL.set();
        let begin = Instant::now();
        SIGNAL.wait(Duration::from_secs(60));
        assert!(SIGNAL.take() && !SIGNAL.take());
        SIGNAL.wait(Duration::from_millis(5));
        assert!(spawn_quietly("gapprobe-test", || {
            std::thread::sleep(Duration::from_millis(20));
            SIGNAL.set();
        }));
        while !SIGNAL.is_set() {
            SIGNAL.wait(Duration::from_secs(60));
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    }
}
