// SPDX-License-Identifier: Apache-2.0
//! GP121 GIL: another thread holds Python's global lock.
//!
//! # What it means
//! The launching thread could go on, but waits for the interpreter's lock (the GIL). Other threads
//! of the process, which load data, log or serve requests, run Python meanwhile.
//!
//! # How it is recognised
//! The GPU waits while the host does something else than launching (GP105 HOST). At least half of
//! the samples of the launching thread in that time (5 or more) were taken while it waited for the
//! lock. Where another cause has that half, this one is reported beside it from 5 samples and 10%
//! of the step on; each has its part of the time.
//!
//! The thread that holds the lock is sampled too. The line named is the holder's: the line or
//! function in which the holder was in at least half of these samples. Where there is none, no line
//! is blamed: the line that waits is not the cause.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is certain; how long each piece took
//! is not measured. With fewer than 10 samples the confidence is medium at most. With fewer than 5,
//! or where no cause has half of them, it is GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: the thread's Python holds the lock that the training loop needs
//! q = queue.Queue(4)
//! threading.Thread(target=prepare, args=(q,), daemon=True).start()
//! # fixed: a process has a lock of its own
//! q = torch.multiprocessing.Queue(4)
//! torch.multiprocessing.Process(target=prepare, args=(q,), daemon=True).start()
//! ```
//!
//! # What to change
//! Move the other thread's work into a process (`multiprocessing`, DataLoader workers), into code
//! that releases the lock, or to a time in which the GPU has work queued. Run fewer, larger pieces
//! of Python.

use super::{host, Case};
use crate::analysis::{Advice, Finding};

/// Stable code.
pub const CODE: &str = "GP121";
/// Name in the line.
pub const NAME: &str = "GIL";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    host::of_kind(
        case,
        (CODE, NAME),
        Advice::new("move its work to a process", "move the other thread's Python work into a process"),
    )
}
