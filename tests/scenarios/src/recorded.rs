// SPDX-License-Identifier: Apache-2.0
//! What the recording says happened, through the `trace` crate's own reader.

use std::path::Path;

use trace::call::Class;
use trace::define::TrackInfo;
use trace::event::Unobserved;
use trace::reader::Track;
use trace::{Definitions, Event, Header, Kind, Loss, Problems, Recording, Total};

/// A recording, read whole.
pub struct Recorded {
    /// The header.
    pub header: Header,
    /// What ids stand for.
    pub definitions: Definitions,
    /// What could not be read.
    pub problems: Problems,
    /// Everything, track by track.
    pub events: Vec<(Track, Event)>,
}

impl Recorded {
    /// Reads a file; panics where it is no recording.
    pub fn read(path: &Path) -> Recorded {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut r = Recording::open(bytes.as_slice()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut events = Vec::new();
        r.for_each_event(bytes.as_slice(), |track, event| events.push((track, *event)));
        Recorded { header: r.header, definitions: r.definitions, problems: r.problems, events }
    }

    /// Events of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &(Track, Event)> {
        self.events.iter().filter(move |(_, e)| e.kind == kind)
    }

    /// Kernels with the stream they ran on.
    pub fn kernels(&self) -> Vec<(u32, Event)> {
        let stream = |t: &Track| match t {
            Track::Of(TrackInfo::Stream { stream, .. }) => *stream,
            other => panic!("a kernel on {other:?}"),
        };
        self.of(Kind::Kernel).map(|(t, e)| (stream(t), *e)).collect()
    }

    /// Calls of a class with their thread.
    pub fn calls(&self, class: Class) -> Vec<(u32, Event)> {
        let thread = |t: &Track| match t {
            Track::Of(TrackInfo::Thread { tid, .. }) => *tid,
            other => panic!("a call on {other:?}"),
        };
        let calls = self.of(Kind::Call).filter(|(_, e)| e.x == class as u8);
        calls.map(|(t, e)| (thread(t), *e)).collect()
    }

    /// A kernel's name.
    pub fn name(&self, kernel: &Event) -> String {
        let info = self.definitions.kernel(kernel.a);
        let name = info.and_then(|k| self.definitions.string(k.name));
        name.map_or_else(|| "<none>".into(), |n| n.to_string())
    }

    /// Unobserved spans.
    pub fn unobserved(&self) -> Vec<Event> {
        self.of(Kind::Unobserved).map(|(_, e)| *e).collect()
    }

    /// The spans of them in which recording was off: without the fronts of what is recorded again
    /// behind them.
    pub fn off(&self) -> Vec<Event> {
        let is_off = |e: &Event| e.a != Unobserved::Front as u32;
        self.unobserved().into_iter().filter(is_off).collect()
    }

    /// A loss counter.
    pub fn loss(&self, loss: Loss) -> u64 {
        self.header.loss(loss)
    }

    /// All counters that are not zero, for messages.
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        let all = Loss::ALL.iter().map(|l| (l.key(), self.loss(*l)));
        all.filter(|(_, n)| *n > 0).collect()
    }

    /// A run-wide total.
    pub fn total(&self, total: Total) -> u64 {
        self.header.total(total)
    }
}

/// ns covered by at least one span, within [`from`, `to`).
pub fn union(spans: impl Iterator<Item = (u64, u64)>, from: u64, to: u64) -> u64 {
    let clipped = spans.map(|(a, b)| (a.clamp(from, to), b.clamp(from, to)));
    let mut spans: Vec<(u64, u64)> = clipped.filter(|(a, b)| a < b).collect();
    spans.sort_unstable();
    let (mut sum, mut reached) = (0, from);
    for (a, b) in spans {
        sum += b.max(reached) - a.max(reached);
        reached = reached.max(b);
    }
    sum
}
