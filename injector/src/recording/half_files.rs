// SPDX-License-Identifier: Apache-2.0
// WARM (`want` is COLD)
//! Trace and summary that were begun and will not be finished: they go, but not by the thread that
//! ends the program. A network file system whose server does not answer would hold it up for as
//! long as that lasts. So the flush thread removes them once it has nothing else to do, and the
//! thread that writes the recording: the flush thread may hang in a flush, as the GPU does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::platform::threads::Signal;

/// Of those files.
struct Removal {
    wanted: Signal,
    is_done: AtomicBool,
}

static REMOVAL: Removal = Removal { wanted: Signal::new(), is_done: AtomicBool::new(false) };

/// They are to go.
pub(crate) fn want_removed() {
    REMOVAL.wanted.set();
    super::writer::wake();
}

/// Are they gone?
pub(crate) fn are_removed() -> bool {
    REMOVAL.is_done.load(Ordering::Acquire)
}

/// Waits until they are to go, and removes them.
pub(crate) fn remove_when_wanted() {
    while !REMOVAL.wanted.is_set() {
        REMOVAL.wanted.wait(Duration::from_secs(3600));
    }
    remove_if_wanted();
}

/// Removes them, if they are to go.
pub(super) fn remove_if_wanted() {
    if REMOVAL.wanted.is_set() && verdict::output::report::remove_unfinished() {
        REMOVAL.is_done.store(true, Ordering::Release);
    }
}
