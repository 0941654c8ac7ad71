// SPDX-License-Identifier: Apache-2.0
//! Several ranks' traces put into one file. torch.profiler traces one process; each counts its
//! GPUs, streams and the ids of its calls from the same number on, so that in a merged file whose
//! operation it is cannot be told: two ranks that take turns on "device 0" look like one GPU that
//! is never idle.

use foldhash::{HashMap, HashMapExt};

use verdict::run::Thread;

/// One launch in so many may have the id of another process's by chance (a trace of one process
/// names some thread oddly).
const BY_CHANCE: u64 = 20;

/// How many processes launch under the same ids; 0 where they can be told apart. `pids`: by thread.
pub(super) fn processes(threads: &[Thread], pids: &[i64]) -> u32 {
    let launches = |t: &Thread| t.calls.iter().any(|c| c.launches() && c.correlation != 0);
    let mut launching: Vec<i64> =
        threads.iter().zip(pids).filter(|(t, _)| launches(t)).map(|(_, &pid)| pid).collect();
    launching.sort_unstable();
    launching.dedup();
    if launching.len() < 2 {
        return 0;
    }
    let mut first: HashMap<u32, i64> = HashMap::new();
    let (mut all, mut again) = (0u64, 0u64);
    for (t, &pid) in threads.iter().zip(pids) {
        for c in t.calls.iter().filter(|c| c.launches() && c.correlation != 0) {
            all += 1;
            again += u64::from(*first.entry(c.correlation).or_insert(pid) != pid);
        }
    }
    match again * BY_CHANCE >= all {
        true => launching.len() as u32,
        false => 0,
    }
}
