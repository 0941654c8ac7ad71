// SPDX-License-Identifier: Apache-2.0
// WARM
//! Was the whole process stopped (SIGSTOP, a batch system's suspend, a debugger, a frozen
//! container)? Then nobody waited for anything: measured, a program whose GPU was never idle was
//! told of a synchronize that cost 67 %, after 3 s. A thread of ours that sleeps sees it: it was to
//! be woken after a quarter of a second, and was not.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::platform::clock;

/// Woken later than this, while the process used little CPU time: it was stopped, ns. Later than
/// this whatever it used (many threads until then): a thread that sleeps is not kept from a CPU for
/// seconds by others of its class.
const LATE: u64 = 750_000_000;
/// As above.
const MUCH_TOO_LATE: u64 = 3_000_000_000;

/// When the process stood still last, ns.
struct Stop {
    from: AtomicU64,
    to: AtomicU64,
}

static STOP: Stop = Stop { from: AtomicU64::new(0), to: AtomicU64::new(0) };

/// Before a thread of ours sleeps.
pub(crate) struct Sleep {
    begin: u64,
    cpu: u64,
    longest: u64,
}

impl Sleep {
    /// It is to sleep for `longest` ns at most.
    pub(crate) fn begin(longest: u64) -> Sleep {
        Sleep { begin: clock::monotonic(), cpu: clock::process_cpu(), longest }
    }

    /// It is awake again: notes where the process was stopped meanwhile.
    pub(crate) fn end(self) {
        let now = clock::monotonic();
        if let Some(from) = self.stopped(now, clock::process_cpu()) {
            STOP.from.store(from, Ordering::Relaxed);
            STOP.to.store(now, Ordering::Release);
        }
    }

    /// Since when, if it was.
    fn stopped(&self, now: u64, cpu: u64) -> Option<u64> {
        let slept = now.saturating_sub(self.begin);
        let late = slept.saturating_sub(self.longest);
        let idle = cpu.saturating_sub(self.cpu) < slept / 2;
        (late > MUCH_TOO_LATE || late > LATE && idle).then_some(self.begin)
    }
}

/// The span noted last, once.
pub(crate) fn take() -> Option<(u64, u64)> {
    let to = STOP.to.swap(0, Ordering::AcqRel);
    (to != 0).then(|| (STOP.from.load(Ordering::Relaxed), to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_told_from_one_whose_threads_wait_for_a_cpu() {
        const MS: u64 = 1_000_000;
        let sleep = Sleep { begin: 1000 * MS, cpu: 40 * MS, longest: 250 * MS };
        let stopped = |slept: u64, cpu: u64| sleep.stopped((1000 + slept) * MS, (40 + cpu) * MS);
        assert_eq!(stopped(250, 250), None);
        assert_eq!(stopped(900, 0), None, "late as on a busy machine");
        assert_eq!(stopped(1500, 1400), None, "its threads ran, ours had no CPU");
        assert_eq!(stopped(1500, 200), Some(1000 * MS));
        assert_eq!(stopped(4000, 9000), Some(1000 * MS), "forty threads ran until then");
    }
}
