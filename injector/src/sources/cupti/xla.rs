// SPDX-License-Identifier: Apache-2.0
// WARM
//! XLA (JAX, TensorFlow) in the process. While copies were recorded, programs died of
//! CUDA_ERROR_LAUNCH_FAILED at the first launch of a new CUDA graph, if a thread other than CUPTI's
//! own flushed, or if all API calls were recorded (docs/design/cupti-clients.md, "XLA"). So CUPTI's
//! own thread returns the buffers, and the kinds RUNTIME and DRIVER stay off.

use std::sync::atomic::{AtomicBool, Ordering};

use super::session;
use crate::sources::cupti::choose;

/// Parts of the paths of libraries that hold XLA.
pub(super) const LIBRARIES: &[&str] = &["xla_cuda_plugin", "libtensorflow"];

/// XLA in this process.
struct Xla {
    is_here: AtomicBool,
    /// CUPTI's thread was asked to hand out every so often.
    is_periodic: AtomicBool,
}

static XLA: Xla = Xla { is_here: AtomicBool::new(false), is_periodic: AtomicBool::new(false) };

/// A mapped library's path.
pub(super) fn see(path: &[u8]) {
    if LIBRARIES.iter().any(|part| choose::holds(path, part)) {
        XLA.is_here.store(true, Ordering::Relaxed);
    }
}

/// Has one of them been seen?
pub(super) fn is_here() -> bool {
    XLA.is_here.load(Ordering::Relaxed)
}

/// XLA's profiler sets a period of its own.
pub(super) fn set_period_again() {
    XLA.is_periodic.store(false, Ordering::Relaxed);
}

/// Does CUPTI's own thread hand out the buffers, those that are full, while the program runs? Asks
/// it to do so every `period_ms`, the first time. No lock of ours that a callback takes may be
/// held.
pub(crate) fn hands_out_alone(period_ms: u32) -> bool {
    let Some(session) = session::get().filter(|_| is_here()) else { return false };
    if let Some(flush_period) = session.cupti.activity_flush_period {
        if !XLA.is_periodic.swap(true, Ordering::Relaxed) {
            // SAFETY: plain call; of our locks the flush thread alone has one, which no callback
            // takes.
            session::ok(unsafe { flush_period(period_ms) });
        }
    }
    true
}
