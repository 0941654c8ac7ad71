// SPDX-License-Identifier: Apache-2.0
//! The phases of a training step: dataload, forward, backward, optimizer, and how much of the GPU's
//! time each has.
//!
//! From named ranges where there are (`names.rs`); else only where it is sure:
//!
//! ```text
//! backward    what PyTorch's autograd thread launches (threads.rs)
//! optimizer   from the first to the last kernel behind backward that updates weights
//! forward     what the main thread launches behind the optimizer and in front of backward
//! dataload    idle time that counts as INPUT
//! ```
//! What is not sure is left out; a phase that is not in nine of ten steps is none. The GPU's time
//! goes to the phase that launched what runs; idle time to the phase the host was in, or, where
//! work was queued, to that of the next operation. All parts and the rest sum up to the time that
//! counts.
//!
//! `calls.rs` says which phase a call is in, `shares.rs` makes the sums, `remarks.rs` what is odd
//! about them.

mod calls;
mod names;
mod remarks;
mod shares;
mod spans;
mod threads;

pub use shares::{inferred, pieces, Instance, Piece};

use serde_json::{json, Value};

use verdict::analysis::{Analysis, Counters};
use verdict::output::summary;
use verdict::run::Run;

/// A phase is in this part of the steps that count, or it is none.
const MOST_STEPS: f64 = 0.9;

/// A phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The launching thread fetches data.
    Dataload = 0,
    /// The model, from input to loss.
    Forward = 1,
    /// Gradients.
    Backward = 2,
    /// Weights are updated (gradients clipped and cleared, too).
    Optimizer = 3,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// All, in the order of a step.
    pub const ALL: [Kind; Kind::COUNT] = [Kind::Dataload, Kind::Forward, Kind::Backward, Kind::Optimizer];

    /// Stable name, for people too.
    pub const fn key(self) -> &'static str {
        match self {
            Kind::Dataload => "dataload",
            Kind::Forward => "forward",
            Kind::Backward => "backward",
            Kind::Optimizer => "optimizer",
        }
    }
}

/// What a phase is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Named ranges.
    Ranges,
    /// The thread that launches.
    Thread,
    /// The profiler's operators.
    Operators,
    /// Names of kernels.
    Kernels,
    /// What lies between the other phases.
    Between,
    /// Idle time of INPUT.
    Gaps,
}

impl By {
    /// For people and programs.
    pub const fn words(self) -> &'static str {
        match self {
            By::Ranges => "named ranges",
            By::Thread => "autograd's thread",
            By::Operators => "autograd's operators",
            By::Kernels => "its kernels",
            By::Between => "what lies between optimizer and backward",
            By::Gaps => "gaps of INPUT",
        }
    }
}

/// One phase, over all steps that count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    /// Which.
    pub kind: Kind,
    /// How it is known.
    pub by: By,
    /// Steps it is in.
    pub steps: usize,
    /// Time with its work running, ns.
    pub busy_ns: u64,
    /// Idle time of the GPU while the host was in it, or in front of its queued work, ns.
    pub idle_ns: u64,
    /// On the host, ns; `None` where that is not known.
    pub host_ns: Option<u64>,
    /// How well the GPU's units are used in it; `None` where it does not last a second at a time,
    /// or the GPU has no counters.
    pub counters: Option<Counters>,
}

impl Phase {
    /// Its part of the GPU's time, ns.
    pub fn ns(&self) -> u64 {
        self.busy_ns + self.idle_ns
    }
}

/// What is in no phase that is known: generation, in a loop that generates and trains.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Other {
    /// Time in which something runs, ns.
    pub busy_ns: u64,
    /// Idle time of the GPU, ns.
    pub idle_ns: u64,
    /// As of a phase.
    pub counters: Option<Counters>,
}

impl Other {
    /// Its part of the GPU's time, ns.
    pub fn ns(&self) -> u64 {
        self.busy_ns + self.idle_ns
    }
}

/// The phases of a run on one device.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Phases {
    /// In the order of a step; those that are known.
    pub parts: Vec<Phase>,
    /// What counts and is in none of them.
    pub other: Other,
    /// All that counts, ns.
    pub wall_ns: u64,
    /// Steps that count.
    pub steps: usize,
    /// What is odd about them, a sentence each.
    pub remarks: Vec<String>,
}

impl Phases {
    /// Of the device the line is about; none without steps or where none is known.
    pub fn of(run: &Run, analysis: &Analysis) -> Option<Phases> {
        let index = analysis.worst?;
        let (device, found) = (run.devices.get(index)?, analysis.devices.get(index)?);
        if analysis.steps.steady().is_empty() {
            return None;
        }
        let calls = calls::Calls::new(run, device);
        let mut phases = shares::sums(run, analysis, device, found, &calls);
        if phases.parts.is_empty() {
            return None;
        }
        phases.remarks = remarks::remarks(run, analysis, device, &calls, &phases);
        Some(phases)
    }

    /// One of them.
    pub fn get(&self, kind: Kind) -> Option<&Phase> {
        self.parts.iter().find(|p| p.kind == kind)
    }

    /// How each is known, in words: `forward and backward by named ranges`.
    pub fn known_by(&self) -> String {
        let mut said: Vec<(By, Vec<&str>)> = Vec::new();
        for p in &self.parts {
            match said.iter_mut().find(|s| s.0 == p.by) {
                Some(s) => s.1.push(p.kind.key()),
                None => said.push((p.by, vec![p.kind.key()])),
            }
        }
        let one = |(by, kinds): &(By, Vec<&str>)| format!("{} by {}", kinds.join(" and "), by.words());
        said.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// For programs: of one step, ns; shares of the time that counts.
    pub fn json(&self) -> Value {
        let a_step = |ns: u64| ns as f64 / self.steps.max(1) as f64;
        let part = |p: &Phase| {
            json!({
                "phase": p.kind.key(),
                "by": p.by.words(),
                "share": self.share(p.ns()),
                "ns_a_step": a_step(p.ns()),
                "busy_ns_a_step": a_step(p.busy_ns),
                "idle_ns_a_step": a_step(p.idle_ns),
                "host_ns_a_step": p.host_ns.map(a_step),
                "counters": p.counters.map(summary::counters),
                "steps": p.steps,
            })
        };
        json!({
            "parts": self.parts.iter().map(part).collect::<Vec<_>>(),
            "other": {
                "share": self.share(self.other.ns()),
                "busy_ns_a_step": a_step(self.other.busy_ns),
                "idle_ns_a_step": a_step(self.other.idle_ns),
                "counters": self.other.counters.map(summary::counters),
            },
            "steps": self.steps,
            "remarks": self.remarks,
        })
    }

    /// Share of the time that counts, 0 to 1.
    pub fn share(&self, ns: u64) -> f64 {
        verdict::analysis::share(ns, self.wall_ns)
    }
}
