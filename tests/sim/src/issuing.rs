// SPDX-License-Identifier: Apache-2.0
//! Operations on their way: they have their time on the GPU, and their record no place in a buffer
//! yet. In CUPTI there is no such moment, for a record is there before the GPU may begin; here a
//! launching thread that the machine does not run for 50 ms would have kernels end that no flush
//! can know of. A flush waits for those that were on their way.

use crate::foreign::lock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Counts flushes; its last bit says which of the two counters new operations use.
static EPOCH: AtomicUsize = AtomicUsize::new(0);
static UNDER_WAY: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// A child process may have inherited counts of threads that it does not have.
const LONGEST: Duration = Duration::from_secs(1);

/// An operation on its way, until dropped.
pub(crate) struct Issuing(&'static AtomicUsize);

impl Issuing {
    /// To be asked before the operation gets its time.
    pub(crate) fn begin() -> Issuing {
        loop {
            let epoch = EPOCH.load(Ordering::SeqCst);
            let counter = &UNDER_WAY[epoch & 1];
            counter.fetch_add(1, Ordering::SeqCst);
            let issuing = Issuing(counter);
            if EPOCH.load(Ordering::SeqCst) == epoch {
                return issuing;
            }
        }
    }
}

impl Drop for Issuing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until everything that was on its way has its record.
pub(crate) fn settle() {
    let _one = lock(&ONE_AT_A_TIME);
    let before = &UNDER_WAY[EPOCH.fetch_add(1, Ordering::SeqCst) & 1];
    let since = Instant::now();
    while before.load(Ordering::SeqCst) > 0 && since.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_micros(20));
    }
}
