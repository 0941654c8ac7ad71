// SPDX-License-Identifier: Apache-2.0
// WARM
//! XLA (JAX, TensorFlow) in the process. While copies were recorded, programs died of
//! CUDA_ERROR_LAUNCH_FAILED at the first launch of a new CUDA graph, if a thread other than CUPTI's
//! own flushed, or if all API calls were recorded (docs/design/cupti-clients.md, "XLA"). So CUPTI's
//! own thread returns the buffers, and the kinds RUNTIME and DRIVER stay off.

use std::sync::atomic::{AtomicBool, Ordering};

use super::session;
use crate::sources::cupti::neighbours;

/// Parts of the paths of libraries that hold XLA.
pub(super) const LIBRARIES: &[&str] = &["xla_cuda_plugin", "libtensorflow"];

static IS_HERE: AtomicBool = AtomicBool::new(false);
/// CUPTI's thread was asked to hand out every so often.
static IS_PERIODIC: AtomicBool = AtomicBool::new(false);

/// A mapped library's path.
pub(super) fn see(path: &[u8]) {
    if LIBRARIES.iter().any(|part| neighbours::holds(path, part)) {
        IS_HERE.store(true, Ordering::Relaxed);
    }
}

/// Has one of them been seen?
pub(super) fn is_here() -> bool {
    IS_HERE.load(Ordering::Relaxed)
}

/// XLA's profiler sets a period of its own.
pub(super) fn set_period_again() {
    IS_PERIODIC.store(false, Ordering::Relaxed);
}

/// Does CUPTI's own thread hand out the buffers, those that are full, while the program runs? Asks
/// it to do so every `period_ms`, the first time. No lock of ours that a callback takes may be
/// held.
pub(crate) fn hands_out_alone(period_ms: u32) -> bool {
    let Some(session) = session::get().filter(|_| is_here()) else { return false };
    if let Some(flush_period) = session.cupti.activity_flush_period {
        if !IS_PERIODIC.swap(true, Ordering::Relaxed) {
            // SAFETY: plain call; of our locks the flush thread alone has one, which no callback
            // takes.
            session::ok(unsafe { flush_period(period_ms) });
        }
    }
    true
}
