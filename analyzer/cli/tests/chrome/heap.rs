// SPDX-License-Identifier: Apache-2.0
//! An allocator that counts: live bytes and their peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub(crate) struct Counting;

// SAFETY: every call goes to the system's allocator with the caller's own arguments; counting
// touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise that `pointer` came from here with `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes in use, MB.
pub(crate) fn live_megabytes() -> f64 {
    LIVE.load(Relaxed) as f64 / 1e6
}

/// The most there was in use since [`reset_peak`], MB.
pub(crate) fn peak_megabytes() -> f64 {
    PEAK.load(Relaxed) as f64 / 1e6
}

/// Begins a new peak; returns what is in use, MB.
pub(crate) fn reset_peak() -> f64 {
    PEAK.store(LIVE.load(Relaxed), Relaxed);
    live_megabytes()
}
