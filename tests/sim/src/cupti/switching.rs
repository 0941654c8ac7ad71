// SPDX-License-Identifier: Apache-2.0
//! What CUPTI does not bear (seen on an H200 with 12.9, 13.0 and 13.5,
//! `tests/gpu/programs/residue.c` plan R): kernels' records switched on or off while another thread
//! is inside a launch. From then on all kernels have one correlation id.

use crate::settings::settings;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static LAUNCHING: AtomicUsize = AtomicUsize::new(0);
static SPOILT: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Launches of this thread, one inside the other.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// This thread is inside a launch, until dropped.
pub(crate) struct Launching(());

impl Launching {
    pub(crate) fn begin() -> Launching {
        LAUNCHING.fetch_add(1, Ordering::SeqCst);
        MINE.set(MINE.get() + 1);
        Launching(())
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        LAUNCHING.fetch_sub(1, Ordering::SeqCst);
        MINE.set(MINE.get() - 1);
    }
}

/// Kernels' records are switched by this thread.
pub(crate) fn switched() {
    let is_beside = LAUNCHING.load(Ordering::SeqCst) > MINE.get();
    if is_beside && settings().switching && !SPOILT.swap(true, Ordering::SeqCst) {
        eprintln!("sim: kernels' records were switched while another thread was launching");
    }
}

/// The correlation id of a kernel's record.
pub(crate) fn correlation(right: u32) -> u32 {
    match SPOILT.load(Ordering::Relaxed) {
        true => 1,
        false => right,
    }
}
