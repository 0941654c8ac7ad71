// SPDX-License-Identifier: Apache-2.0
//! What collectives waited for a rank that came late, where one rank's recording tells: NCCL says
//! how many bytes each call moves (NVTX), and what takes much longer than others of its kernel do
//! for as many bytes did not move them all the while. A rank that is late at every one of them
//! cannot be told from a slow link.

use std::collections::HashMap;

use super::Case;
use crate::analysis::share;
use crate::run::{Call, Number, Op, Run};
use crate::timeline::kernels::KernelTable;

/// Fewer collectives of one kernel and size tell nothing.
const LEAST: usize = 16;
/// One that takes this many times as long as usual waited.
const MUCH_LONGER: u64 = 2;
/// As long as usual takes this part of them at least: it waited for nobody.
const PROMPT_PART: usize = 10;
/// Ranges of one thread that may lie around a call and began after NCCL's own.
const LOOK_BACK: usize = 8;
/// Calls in which each rank waits for all: of those from one rank to another the data may be what
/// comes late.
const OF_ALL: [&str; 2] = ["ncclAll", "ncclReduceScatter"];

/// The share of the time in which the device's collectives waited for late ranks; 0 where that is
/// not known.
pub(super) fn late_share(case: &Case) -> f64 {
    let ordinal = case.device.ordinal;
    let Some(device) = case.run.devices.iter().find(|d| d.ordinal == ordinal) else { return 0.0 };
    let collectives = KernelTable::new(case.run).collectives();
    if collectives.is_empty() {
        return 0.0;
    }
    let mut by_kind: HashMap<(u32, u64), Vec<u64>> = HashMap::new();
    let is_one = |o: &&Op| collectives.binary_search(&o.a).is_ok() && case.analysis.counts.contains(o.start);
    for op in
        device.streams.iter().flat_map(|s| &s.ops).filter(|o| o.kind == trace::Kind::Kernel).filter(is_one)
    {
        let Some(bytes) = case.run.call(op.call).and_then(|(t, c)| bytes_of(case.run, t, c)) else {
            continue;
        };
        by_kind.entry((op.a, bytes)).or_default().push(case.analysis.counts.measure(op.span()));
    }
    let waited: u64 = by_kind.into_values().map(waited).sum();
    share(waited, case.device.wall_ns)
}

/// What these, all of one kind, took beyond what is usual, ns.
fn waited(mut lengths: Vec<u64>) -> u64 {
    if lengths.len() < LEAST {
        return 0;
    }
    let at = lengths.len() / PROMPT_PART;
    let usual = *lengths.select_nth_unstable(at).1;
    lengths.iter().filter(|&&ns| ns > usual.saturating_mul(MUCH_LONGER)).map(|ns| ns - usual).sum()
}

/// The bytes of the collective that was launched by this call of a thread.
fn bytes_of(run: &Run, thread: usize, call: &Call) -> Option<u64> {
    let ranges = &run.threads.get(thread)?.ranges;
    let to = ranges.partition_point(|r| r.span.start <= call.start);
    let near = ranges.get(to.saturating_sub(LOOK_BACK)..to)?.iter().rev();
    let around = near.filter(|r| r.span.end >= call.end && run.is_librarys(r));
    around.filter(|r| OF_ALL.iter().any(|of| run.plain_name(r).starts_with(of))).find_map(|r| {
        match r.number() {
            Some(Number::Whole(bytes)) if bytes > 0 => Some(bytes),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::waited;

    #[test]
    fn what_takes_much_longer_than_others_waited() {
        let of = |late: u64| [vec![500; 45], vec![500 + late; 15]].concat();
        assert_eq!(waited(of(5000)), 15 * 5000);
        assert_eq!(waited(of(400)), 0, "links are not always as fast");
        assert_eq!(waited(vec![9000; 60]), 0, "each of them: a slow link, or each time late");
        assert_eq!(waited(vec![500, 500, 5500]), 0, "too few");
    }
}
