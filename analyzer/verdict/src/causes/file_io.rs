// SPDX-License-Identifier: Apache-2.0
//! GP122 FILE-IO: the launching thread writes files.
//!
//! # What it means
//! Between two launches the thread that feeds the GPU writes a checkpoint (`torch.save`), results,
//! or output to a terminal or pipe.
//!
//! # How it is recognised
//! The GPU waits while the host does something else than launching (GP105 HOST). At least half of
//! the samples of the launching thread in that time (5 or more) are in functions that save a
//! checkpoint, or blocked in a system call that writes. Where another cause has that half, this one
//! is reported beside it from 5 samples and 10% of the step on; each has its part of the time.
//!
//! Or the launching thread saves a checkpoint (5 samples or more), and the GPU copies to the host
//! or runs out of work at a wait in these calls. Then all time inside of the save calls in which
//! nothing computes is charged here, and none of it to GP106 COPY, GP101 SYNC or GP105 HOST. The
//! prediction removes waits, copies and long host stretches, up to that time.
//!
//! # How sure
//! Samples are taken about every 10 ms. What most of them show is certain; how long each piece took
//! is not measured. With fewer than 10 samples the confidence is medium at most. With fewer than 5,
//! or where no cause has half of them, it is GP105 HOST.
//!
//! # Example
//! ```python
//! # slow: the GPU waits until the file is written
//! torch.save(model.state_dict(), "model.pt")
//! # fixed: a snapshot on the GPU; a thread copies it to the host and writes it
//! pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)  # once
//! snapshot = {name: t.clone() for name, t in model.state_dict().items()}
//! pool.submit(torch.save, snapshot, "model.pt")
//! ```
//!
//! # What to change
//! Save less often. Copy the state to pinned memory and write it in a thread or process
//! (`torch.distributed.checkpoint.async_save`, Lightning's `AsyncCheckpointIO`). Print less.

use super::{host, Case};
use crate::analysis::{Advice, Bound, Bucket, Confidence, Fact, Figure, Finding};
use crate::gaps::sample_index::LEAST_SAMPLES;
use crate::replay::Fix;
use crate::timeline::buckets::NOTICED_SHARE;

/// Stable code.
pub const CODE: &str = "GP122";
/// Name in the line.
pub const NAME: &str = "FILE-IO";

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    saving(case).or_else(|| host::of_kind(case, (CODE, NAME), FIX))
}

const FIX: Advice =
    Advice::new("do it less often, or in another thread", "write and print less often, or in the background");
const SAVE: Advice = Advice::new("save less often", "save less often or in the background (async_save)");

/// Below calls that save, with their waits and copies.
fn saving(case: &Case) -> Option<Finding> {
    let saves = &case.saves;
    let lost: f64 = Bucket::ALL.iter().map(|&b| saves.share(b, case.device)).sum();
    if lost < NOTICED_SHARE {
        return None;
    }
    let below = Bound::idle(&saves.buckets, case.device.wall_ns, &Bucket::ALL);
    let win = case.win(&[Fix::Copy, Fix::Sync, Fix::Host, Fix::Alloc], below);
    let mut f = case.finding((CODE, NAME), lost, win);
    f.advice = SAVE;
    f.count = saves.calls;
    let copies = saves.share(Bucket::Copy, case.device) + saves.share(Bucket::CopyWait, case.device);
    f.facts.say(
        Fact::new("the launching thread writes a checkpoint {often}, up to {longest}")
            .with("often", case.rhythm(saves.calls))
            .with("longest", Figure::Time(saves.longest as f64)),
    );
    f.facts
        .say(Fact::new("{copies} of it in copies to the host").with("copies", Figure::Share(copies / lost)));
    f.facts.say(Fact::new("{samples} samples").with("samples", saves.samples));
    if saves.samples < 2 * LEAST_SAMPLES {
        f.confidence = f.confidence.min(Confidence::Medium);
    }
    if let Some(site) = &saves.site {
        f.place(site.clone());
    }
    Some(f)
}
