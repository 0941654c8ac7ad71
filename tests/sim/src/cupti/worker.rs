// SPDX-License-Identifier: Apache-2.0
//! CUPTI's own thread: hands out full buffers once all their operations have ended. Created by the
//! first cuptiActivityEnable, as in the real library; it never takes the program's signals and
//! never ends.

use super::buffers::{Buffer, FULL};
use crate::clock;
use crate::foreign::{block_signals, lock};
use crate::settings::settings;
use std::sync::{Once, PoisonError};
use std::time::Duration;

/// Starts the thread, once.
pub(crate) fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the mask is written by the first call before the second reads it.
        let mask = unsafe {
            let mut mask = std::mem::zeroed::<libc::sigset_t>();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
            mask
        };
        // A new thread inherits the mask: blocked from its first instruction on.
        block_signals();
        let _ = std::thread::Builder::new().name("cupti-worker".into()).spawn(run);
        // SAFETY: `mask` is this thread's own earlier mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
    });
}

fn run() {
    let late = settings().fault_slow_ms("worker");
    loop {
        let done: Vec<Buffer> = {
            let mut full = lock(&FULL.0);
            let now = clock::now();
            let (done, waiting): (Vec<_>, Vec<_>) = full.waiting.drain(..).partition(|b| b.last_end <= now);
            full.waiting.extend(waiting);
            if done.is_empty() {
                let wait = full.waiting.iter().map(|b| b.last_end - now).min().unwrap_or(10_000_000_000);
                let wait = Duration::from_nanos(wait.max(1_000));
                drop(FULL.1.wait_timeout(full, wait).unwrap_or_else(PoisonError::into_inner));
                continue;
            }
            full.under_way = done.len();
            done
        };
        for buffer in done {
            if let Some(ms) = late {
                clock::nap(ms * 1_000_000);
            }
            buffer.hand_out();
        }
        lock(&FULL.0).under_way = 0;
        FULL.1.notify_all();
    }
}
