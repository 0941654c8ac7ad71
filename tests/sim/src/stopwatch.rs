// SPDX-License-Identifier: Apache-2.0
//! How long the client's callbacks keep a call: both of one call (ENTER and EXIT, and those of
//! calls made inside it) together, in ns, each call a number in the program's own memory. Off, it
//! costs one relaxed load a callback.

use crate::clock;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Where the numbers go; null: off.
static INTO: AtomicPtr<u32> = AtomicPtr::new(std::ptr::null_mut());
static ROOM: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What the call under way has spent in callbacks so far.
    static SPENT_NS: Cell<u64> = const { Cell::new(0) };
}

/// Private to the simulator: from now on each call that has callbacks leaves the ns they took in
/// `into`, `room` numbers at most (4 bytes each; null: off). Returns how many numbers were left
/// since the last call. Not for use while another thread is inside a call.
#[no_mangle]
extern "C" fn simTimeCallbacks(into: *mut u32, room: usize) -> usize {
    INTO.store(std::ptr::null_mut(), Ordering::SeqCst);
    let left = TAKEN.swap(0, Ordering::SeqCst).min(ROOM.swap(room, Ordering::SeqCst));
    INTO.store(into, Ordering::SeqCst);
    left
}

/// Runs a callback and keeps its time.
pub(crate) fn timed(callback: impl FnOnce()) {
    if INTO.load(Ordering::Relaxed).is_null() {
        return callback();
    }
    let from = clock::now();
    callback();
    SPENT_NS.set(SPENT_NS.get() + (clock::now() - from));
}

/// The outermost call of this thread has ended.
pub(crate) fn call_ended() {
    let into = INTO.load(Ordering::Acquire);
    if into.is_null() {
        return;
    }
    let spent = SPENT_NS.replace(0);
    let at = if spent == 0 { return } else { TAKEN.fetch_add(1, Ordering::Relaxed) };
    if at < ROOM.load(Ordering::Relaxed) {
        // SAFETY: the caller of simTimeCallbacks lends `ROOM` numbers until it calls again; no
        // other thread has this index.
        unsafe { into.add(at).write(u32::try_from(spent).unwrap_or(u32::MAX)) };
    }
}
