// SPDX-License-Identifier: Apache-2.0
// COLD
//! The exit handler, and the threads that come to it. Before glibc 2.41 several threads may be in
//! `exit` at once: each goes on with the handlers that no other has begun, and the first that is
//! through ends the process with its status. So whoever comes while the report is made waits for
//! it. It cannot come back from there: glibc frees a block of handlers once the last one in it has
//! begun, and a thread that comes back to that block reads, and frees, what is freed. It calls
//! `exit` anew with its status, which looks at the list as it is then, and never returns. (From
//! 2.41 on glibc itself lets only one thread through.)

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::platform::guard::guard;
use crate::platform::lifecycle;
use crate::platform::threads;
use crate::recording::crashes;

extern "C" {
    /// `on_exit(3)`: like `atexit`, but the handler is told the status.
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Who exits.
struct Exit {
    /// The process the handlers are for. A child that the fork handlers were not run for (`_Fork`,
    /// the system call itself, vfork) is not it: the recording and its file are its parent's.
    process: AtomicU32,
    /// The thread that leaves, 0: none yet.
    thread: AtomicU32,
}

static EXIT: Exit = Exit { process: AtomicU32::new(0), thread: AtomicU32::new(0) };
/// How long the exiting thread has for the program's other handlers, before those that wait for it
/// go on: in most programs that is their end, and nobody meets glibc's freed blocks. One that takes
/// longer may be waiting for the thread that waits for it.
const OTHER_HANDLERS: Duration = Duration::from_secs(1);

/// Who has come to the handler.
pub(super) enum Who {
    /// The first thread, or a signal's handler that interrupted it.
    ExitingThread,
    /// Another thread, which has waited for the first and goes on by itself now.
    Waited,
}

/// Handlers registered later run earlier. To be called again where others may have been registered
/// since; leaving twice does nothing.
pub(crate) fn register() {
    EXIT.process.store(std::process::id(), Ordering::Relaxed);
    // two, because each thread that comes adds one for the next only when it is there
    add();
    add();
}

fn add() {
    // SAFETY: a function that lives as long as the process (the library is never unmapped).
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    let goes_on_anew = guard(false, || {
        if EXIT.process.load(Ordering::Relaxed) != std::process::id() {
            return false;
        }
        crashes::not_attaching();
        matches!(super::leave(), Some(Who::Waited))
    });
    if goes_on_anew {
        #[expect(
            clippy::disallowed_methods,
            reason = "the program's call of exit, which has come to us, goes on"
        )]
        // SAFETY: from within a handler glibc's `exit` goes on with the handlers that are left
        // (exit(3)); no frame of ours is left undone behind it: the guard has been left.
        unsafe {
            libc::exit(status)
        }
    }
}

/// One has come. A handler is there for the next one, in the place in glibc's list that has just
/// become free: no memory is asked for.
pub(super) fn come(exit_ms: u64) -> Who {
    add();
    // SAFETY: takes nothing, cannot fail.
    let own = unsafe { libc::gettid() } as u32;
    match EXIT.thread.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Who::ExitingThread,
        Err(first) if first == own => Who::ExitingThread,
        Err(_) => {
            wait_for_the_exiting_thread(exit_ms);
            Who::Waited
        }
    }
}

/// Until the report is made and the exiting thread has had time for the other handlers. Most often
/// the process ends meanwhile.
fn wait_for_the_exiting_thread(exit_ms: u64) {
    let latest = Instant::now() + Duration::from_millis(exit_ms) + OTHER_HANDLERS;
    while lifecycle::get() != lifecycle::State::Inert && Instant::now() < latest {
        threads::pause(1);
    }
    let until = latest.min(Instant::now() + OTHER_HANDLERS);
    while Instant::now() < until {
        threads::pause(1);
    }
}
