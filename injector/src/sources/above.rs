// SPDX-License-Identifier: Apache-2.0
// HOT
//! What the rooms above are told from here: functions that `boot` sets before anything happens.

use std::sync::OnceLock;

/// See above.
pub(crate) struct Above {
    /// The GPU is used for the first time; on the thread that does. COLD.
    pub(crate) first_use: fn(),
    /// A step begins, as the program says. HOT.
    pub(crate) on_mark: fn(),
    /// A launch of which CUPTI tells, on the thread that made it. HOT.
    pub(crate) on_launch: fn(),
    /// A module is about to be unloaded, and the kernel names in its records with it. COLD.
    pub(crate) before_unload: fn(),
    /// Waits until what CUPTI gave back so far is read, or 100 ms. COLD.
    pub(crate) settle: fn(),
    /// Does this while no thread is inside a launch that is seen; not at all where none ends in
    /// time. COLD.
    pub(crate) while_nobody_launches: fn(fn()),
}

static ABOVE: OnceLock<Above> = OnceLock::new();

/// Told from now on.
pub(crate) fn set(above: Above) {
    let _ = ABOVE.set(above); // once a process
}

/// Those who are told; `None`: nobody yet.
#[inline]
pub(super) fn get() -> Option<&'static Above> {
    ABOVE.get()
}
