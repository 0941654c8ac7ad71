// SPDX-License-Identifier: Apache-2.0
//! What is said of a named cause so that its figures agree with those of the buckets, of the other
//! GPUs and of steps that nobody records.

use super::{bucket_of, gpu_bound, OtherDevice, MINOR_WIN};
use crate::analysis::{share, Analysis, Bucket, DeviceAnalysis, Fact, Facts, Figure, Finding};
use crate::timeline::buckets::NOTICED_SHARE;

/// What a wait costs beyond its own gaps is told to be LAUNCH's where that has so much of it.
const MOST_OF_THE_REST: f64 = 0.9;

/// What was seen, with what its figures need to agree with those of the buckets and of the other
/// GPUs.
pub(super) fn said(a: &Analysis, f: &Finding, device: &DeviceAnalysis, elsewhere: OtherDevice) -> Facts {
    let mut facts = f.facts.clone();
    // small kernels are no idle time, and their line has no share
    let rest = f.share - f.charged;
    let meanwhile = meanwhile(a, f, device);
    let is_counted = rest >= NOTICED_SHARE || meanwhile.is_some();
    if is_counted && f.code != super::small_kernels::CODE {
        let own = f.charged - meanwhile.map_or(0.0, |m| m.all);
        facts.say(
            Fact::new("counted as {cause} {own}")
                .with("cause", Figure::Word(f.cause))
                .with("own", Figure::Share(own.max(0.0))),
        );
        if let Some(Meanwhile { most, share, .. }) = meanwhile {
            let does = if most == Bucket::Input { "fetches data" } else { "does something else" };
            facts.say(
                Fact::new(", as {other} {meanwhile}: the host {does} then")
                    .with("other", Figure::Word(most.label()))
                    .with("meanwhile", Figure::Share(share))
                    .with("does", Figure::Word(does)),
            );
        }
        // a queue that a wait has drained is filled again launch by launch, and those gaps are each
        // launch's
        if is_rest_launch(f, device) {
            facts.say(Fact::new(", the rest as LAUNCH"));
        }
    }
    if elsewhere.bounds(f.win.share()) {
        facts.say(gpu_bound::computes(elsewhere));
    }
    if is_mostly_recording(f) {
        facts.say(of_unrecorded(f.unrecorded_win));
    }
    facts
}

/// What is a share of a recorded step is another one of those that nobody records.
pub(super) fn of_unrecorded(share: f64) -> Fact {
    Fact::new("of unrecorded steps about {unrecorded}").with("unrecorded", Figure::Share(share))
}

/// Time charged to a wait in which the host is seen to do something else.
#[derive(Clone, Copy)]
struct Meanwhile {
    /// What most of it shows as, and its share of the time.
    most: Bucket,
    share: f64,
    /// The share of all of it.
    all: f64,
}

/// Where that is worth a word.
fn meanwhile(a: &Analysis, f: &Finding, device: &DeviceAnalysis) -> Option<Meanwhile> {
    let waits = [Bucket::Sync, Bucket::CopyWait, Bucket::Alloc];
    let charged = bucket_of(f.code).filter(|b| waits.contains(b))?;
    let of = |shown: Bucket| {
        let slices = device.slices.iter().filter(|s| s.bucket == charged && s.charged == shown);
        share(slices.map(|s| a.counts.measure(s.span())).sum(), device.wall_ns)
    };
    let (input, host) = (of(Bucket::Input), of(Bucket::Host));
    let (most, share) = if input >= host { (Bucket::Input, input) } else { (Bucket::Host, host) };
    (share >= NOTICED_SHARE).then_some(Meanwhile { most, share, all: input + host })
}

/// Recording makes launching dearer: is what the fix wins of a step that nobody records so much
/// less that it has to be said?
pub(super) fn is_mostly_recording(f: &Finding) -> bool {
    let win = f.win.share();
    win - f.unrecorded_win >= MINOR_WIN && f.unrecorded_win < win * MOST_OF_A_WIN
}

/// What a finding wins without recording is told where it is less than this part of what it wins.
const MOST_OF_A_WIN: f64 = 0.75;

/// Is most of what a wait costs beyond its own gaps LAUNCH's among the buckets?
pub(super) fn is_rest_launch(f: &Finding, device: &DeviceAnalysis) -> bool {
    let rest = f.share - f.charged;
    let launch = device.buckets.share(Bucket::Launch);
    f.code == super::sync::CODE && rest >= NOTICED_SHARE && launch >= rest * MOST_OF_THE_REST
}
