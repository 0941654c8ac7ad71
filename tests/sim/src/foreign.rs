// SPDX-License-Identifier: Apache-2.0
//! What comes from C: out pointers, strings, thread ids, and locks that survive a panic.
//!
//! The functions here are safe to call only under the C contract of the exported function that
//! calls them: a non-null out pointer is writable, a non-null string ends in NUL.

use std::ffi::{c_char, CStr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stores through a client's out pointer; a null one is ignored.
pub(crate) fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the client's contract: a non-null out pointer is writable for a T.
        unsafe { at.write_unaligned(value) }
    }
}

/// Reads through a client's pointer; None for null.
pub(crate) fn get<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: the client's contract: a non-null pointer is readable for a T.
    (!at.is_null()).then(|| unsafe { at.read_unaligned() })
}

/// A client's string, empty when null.
pub(crate) fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the client's contract: a non-null string ends in NUL.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}

/// The lock, also after a panic in another thread: test doubles go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static TID: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// The kernel's id of this thread, cached.
pub(crate) fn tid() -> u32 {
    let known = TID.get();
    if known != 0 {
        return known;
    }
    // SAFETY: gettid has no preconditions.
    let fresh = unsafe { libc::gettid() } as u32;
    TID.set(fresh);
    fresh
}

/// In a forked child: the cached id is the parent's.
pub(crate) fn forget_tid() {
    TID.set(0);
}

/// Blocks every signal in the calling thread: the engine's own threads must never take the
/// program's signals.
pub(crate) fn block_signals() {
    // SAFETY: `set` is filled before it is read; the old mask is not asked for.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}
