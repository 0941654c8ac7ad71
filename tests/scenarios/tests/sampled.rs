// SPDX-License-Identifier: Apache-2.0
//! What the scenarios of the gap sampler share: every CPython there is, the victim, the samples of
//! its recording.

use std::path::PathBuf;

use gapprobe_scenarios::built::root;
use gapprobe_scenarios::pythons::READ;
use gapprobe_scenarios::{Recorded, Run, Victim};
use trace::define::TrackInfo;
use trace::reader::Track;
use trace::{Event, FrameInfo, Kind, Loss};

/// The CPythons that can be sampled, the newest last; `python3` where none is found.
pub(crate) fn pythons() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        gapprobe_scenarios::pythons::pythons(&READ).into_iter().map(|(_, p)| p).collect();
    if all.is_empty() {
        all.push("python3".into());
    }
    all
}

/// Those of them that have a global lock.
pub(crate) fn with_a_lock() -> Vec<PathBuf> {
    pythons().into_iter().filter(|p| !p.to_string_lossy().ends_with('t')).collect()
}

pub(crate) fn source() -> PathBuf {
    root().join("tests/scenarios/victims/sampled.py")
}

pub(crate) fn victim(python: &PathBuf, mode: &str, seconds: &str) -> Victim {
    let (script, folder) = (source(), root().join("tests/victims"));
    Victim::of(python, &[&script.to_string_lossy(), &folder.to_string_lossy(), mode, seconds], "13.0")
}

/// The line of the victim that ends in this mark.
pub(crate) fn marked(mark: &str) -> u32 {
    let text = std::fs::read_to_string(source()).expect("source");
    let is = |line: &str| line.ends_with(&format!("# {mark}"));
    text.lines().position(is).expect("the mark") as u32 + 1
}

/// A sample with its frames as (function, file, line), innermost first.
pub(crate) struct Sampled {
    pub(crate) tid: u32,
    pub(crate) event: Event,
    pub(crate) frames: Vec<(String, String, u32)>,
}

impl Sampled {
    pub(crate) fn stands_in(&self, function: &str) -> bool {
        self.frames.first().is_some_and(|f| f.0.rsplit('.').next() == Some(function))
    }

    pub(crate) fn on_cpu(&self) -> u32 {
        self.event.c & 0xffff
    }

    pub(crate) fn queued(&self) -> u32 {
        self.event.c >> 16
    }
}

pub(crate) fn samples(recorded: &Recorded) -> Vec<Sampled> {
    let text = |id: u32| recorded.definitions.string(id).unwrap_or("").to_owned();
    let frame = |f: &FrameInfo| (text(f.function), text(f.file), f.line);
    let thread = |t: &Track| match t {
        Track::Of(TrackInfo::Thread { tid, .. }) => *tid,
        other => panic!("a sample on {other:?}"),
    };
    let all = recorded.of(Kind::Sample).map(|(track, event)| Sampled {
        tid: thread(track),
        event: *event,
        frames: recorded.definitions.stack(event.a).map(frame).collect(),
    });
    all.collect()
}

pub(crate) fn fine(run: &Run, python: &std::path::Path) -> Recorded {
    assert_eq!(run.ending(), 0, "{}: {}", python.display(), run.stderr);
    assert!(run.stdout.ends_with("done\n"), "{}: {}", python.display(), run.stdout);
    let recorded = run.recorded();
    assert_eq!(recorded.problems, Default::default());
    assert_eq!(recorded.loss(Loss::CaughtPanic), 0);
    recorded
}

/// Share of the samples' time that `is` holds for.
pub(crate) fn share(all: &[Sampled], is: impl Fn(&Sampled) -> bool) -> f64 {
    let time = |s: &Sampled| (s.event.end - s.event.start) as f64;
    let total: f64 = all.iter().map(time).sum();
    all.iter().filter(|s| is(s)).map(time).sum::<f64>() / total.max(1.0)
}
