// SPDX-License-Identifier: Apache-2.0
//! What a look at all recorded processes gives: their last seconds (`watched.rs`), and the sums
//! over all looks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cli::live::counted::{counts_all_steps, Counted};
use cli::live::ledger::{DeviceTime, Ledger};
use cli::live::{Figures, RecordingState};
use trace::place::Owner;
use trace::{Header, Total};
use verdict::analysis::{Buckets, Counters};
use verdict::text::escape::visible;

use crate::verbs::exit::Failure;
use crate::verbs::process;
use crate::verbs::watched::{Watch, Watched};

/// All of them.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) processes: Vec<Process>,
    /// Time that the look took.
    pub(super) took: Duration,
}

/// A process that could be read.
pub(super) struct Process {
    pub(super) watched: Watched,
    /// Its run, as its series name it.
    pub(super) run: String,
    /// The GPUs that it works on.
    pub(super) gpus: Vec<Gpu>,
    sums: Ledger,
    figures: Figures,
}

/// A GPU of a process.
pub(super) struct Gpu {
    pub(super) ordinal: u32,
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) buckets: Buckets,
    /// Of the last seconds.
    pub(super) counters: Option<Counters>,
}

impl Process {
    pub(super) fn header(&self) -> &Header {
        &self.watched.process.header
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Its sums.
    pub(super) fn sums(&self) -> &Ledger {
        &self.sums
    }

    /// What it counts without records, now.
    pub(super) fn counted(&self) -> Option<Counted> {
        self.watched.counted()
    }

    /// How long it has hung, ns; `None`: its steps are not known.
    pub(super) fn hang_ns(&self) -> Option<u64> {
        self.counted()?.hang_ns(self.header())
    }

    /// Steps of its run so far; `None`: none are known, or nobody counts those between windows.
    pub(super) fn steps(&self) -> Option<u64> {
        let steps = Some(self.sums.steps).filter(|steps| *steps > 0);
        steps.filter(|_| counts_all_steps(self.header(), self.watched.process.standing()))
    }

    /// Has recording ended for good?
    pub(super) fn has_ended(&self) -> bool {
        self.watched.process.standing() == RecordingState::Ended
    }

    /// "" where no launcher said.
    pub(super) fn rank(&self) -> String {
        self.header().rank.checked_sub(1).map_or_else(String::new, |r| r.to_string())
    }
}

/// A process's sums, and how its series name its run.
struct Known {
    owner: Owner,
    rank: u32,
    run: String,
    sums: Ledger,
}

/// Looks again and again.
pub(super) struct Looks {
    watch: Watch,
    known: HashMap<PathBuf, Known>,
    /// Processes that were recorded before this, and whose recording no longer holds their begin,
    /// count from the first look at them, CLOCK_MONOTONIC ns.
    since: u64,
}

impl Looks {
    /// `once`: there is one look alone, which counts all that recordings hold. Else a process that
    /// runs already, and has overwritten part of its recording, counts from now on: its counters
    /// would stand lower than those of an earlier `gapprobe metrics`, and be taken for begun anew.
    pub(super) fn new(once: bool) -> Looks {
        let since = if once { 0 } else { process::monotonic() };
        Looks { watch: Watch::default(), known: HashMap::new(), since }
    }

    /// The sums up to now, and the last `time` of each process. `talks`: names what cannot be
    /// looked at on stderr.
    ///
    /// # Errors
    /// As [`Watch::look`].
    pub(super) fn look(&mut self, time: Duration, talks: bool) -> Result<Looked, Failure> {
        let begun = Instant::now();
        let mut all = self.watch.look(time, talks)?;
        let is_there = |path: &PathBuf, k: &Known| {
            let same = |w: &&Watched| w.process.path == *path && Owner::from(&w.process.header) == k.owner;
            all.iter().any(|w| same(&w))
        };
        self.known.retain(|path, k| is_there(path, k));
        // of two of the same run and rank the older one is that rank
        all.sort_by_key(|w| w.process.header.start_monotonic);
        let processes = all.into_iter().filter_map(|watched| self.process(watched)).collect();
        Ok(Looked { processes, took: begun.elapsed() })
    }

    /// `None`: it is gone, or cannot be read yet.
    fn process(&mut self, watched: Watched) -> Option<Process> {
        let figures = watched.figures.clone()?;
        let source = watched.process.open().ok()?;
        let (path, header) = (watched.process.path.clone(), &watched.process.header);
        let known = self.known.remove(&path);
        let is_older = header.start_monotonic < self.since;
        let mut sums = match &known {
            Some(known) => known.sums.clone(),
            None if is_older && header.total(Total::Overwritten) > 0 => Ledger::from_now(header),
            None => Ledger::default(),
        };
        // (what cannot be read now is counted by the next look)
        let _ = sums.advance(&source, header, figures.clock_unit);
        let run = known.map_or_else(|| self.run_of(header, &sums.run), |k| k.run);
        let (owner, rank) = (Owner::from(header), header.rank);
        self.known.insert(path, Known { owner, rank, run: run.clone(), sums: sums.clone() });
        let gpu = |(ordinal, d): (u32, &DeviceTime)| Gpu {
            ordinal,
            uuid: if d.uuid.is_empty() { format!("unknown-{ordinal}") } else { visible(&d.uuid).to_string() },
            name: visible(&d.name).to_string(),
            buckets: d.buckets,
            counters: figures.devices.iter().find(|d| d.ordinal == ordinal).and_then(|d| d.counters),
        };
        let gpus = sums.working().map(gpu).collect();
        Some(Process { watched, run, gpus, sums, figures })
    }

    /// The run's name; with the pid where another process has the same run and rank (one started
    /// the other): no two series may be the same.
    fn run_of(&self, header: &Header, run: &str) -> String {
        let run = visible(run).to_string();
        match self.known.values().any(|k| k.run == run && k.rank == header.rank) {
            true => format!("{run}/{}", header.pid),
            false => run,
        }
    }
}
