// SPDX-License-Identifier: Apache-2.0
//! What must hold after a run, whatever happened in it: the program is as it would be without
//! gapprobe; what it did is in the recording, or counted as lost, or within the stated bounds of a
//! kill; nothing is made up; nothing is left over.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use trace::event::Unobserved;
use trace::header::state;
use trace::loss::Severity;
use trace::{Kind, Loss};

use super::plan::{Place, Plan};
use super::Played;
use crate::built::built;
use crate::truth::{Call, Op, Truth};
use crate::Recorded;

/// Stated bounds of a kill (docs/design/shutdown.md, `_exit`), ns.
const HOST_BOUND: u64 = 100_000_000;
const GPU_BOUND: u64 = 250_000_000;
/// The time a kill takes to arrive, a thread to get a CPU and a write to finish where other things
/// run, ns.
const SLACK: u64 = 250_000_000;
/// A program ends at most so much later (GAPPROBE_EXIT_MS), and what a busy machine adds.
const LATER: Duration = Duration::from_millis(2000 + 1000);

/// What a run showed.
#[derive(Default, Debug)]
pub struct Found {
    /// What must not be.
    pub failures: Vec<String>,
    /// Recordings of processes whose exit handlers ran.
    pub closed: u64,
    /// Recordings of killed processes, each made into line, trace and summary.
    pub recovered: u64,
    /// Processes that were killed before there was anything to record, or where no file could be
    /// made.
    pub without: u64,
    /// Operations that the device ran, by the simulated driver.
    pub operations: u64,
    /// Those that are in no recording, each accounted for.
    pub lost: u64,
    /// Those of them in spans that the recording says were not observed.
    pub unobserved: u64,
    /// Loss counters, by key.
    pub losses: BTreeMap<&'static str, u64>,
}

type Key = (u32, u64, u64);

fn key(op: &Op) -> Key {
    (op.correlation, op.start, op.end)
}

/// Compares both runs and holds the recordings of the second against the truth.
pub fn judge(plan: &Plan, alone: &Played, with: &Played) -> Found {
    let mut found = Found::default();
    is_the_programs_own(plan, alone, with, &mut found.failures);
    let truths = with.run.truths();
    is_tidy(plan, with, &truths, &mut found.failures);
    let mut recordings: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in with.left_anywhere().into_iter().chain(with.run.recordings()) {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name.ends_with(".gpr") {
            recordings.entry(name).or_insert(path);
        }
    }
    let mut taken = HashSet::new();
    for path in recordings.values() {
        let recorded = Recorded::read(path);
        // a program that replaced itself has the pid of the one before
        let of = truths.iter().enumerate().filter(|(_, t)| t.pid == recorded.header.pid);
        let of = of.filter(|(_, t)| t.began <= recorded.header.start_monotonic).max_by_key(|(_, t)| t.began);
        let Some((index, truth)) = of else {
            found.failures.push(format!("a recording of nobody: {}", path.display()));
            continue;
        };
        if !taken.insert(index) {
            found.failures.push(format!("a second recording of process {}", truth.pid));
        }
        let is_first = truths.iter().all(|t| t.began >= truth.began);
        Held { plan, with, truth, recorded: &recorded, is_first }.judge(path, &mut found);
    }
    for (_, truth) in truths.iter().enumerate().filter(|(index, _)| !taken.contains(index)) {
        found.operations += truth.ops.len() as u64;
        let could = plan.place == Place::Fine && !plan.records_nothing() && truth.ended.is_none();
        let old = truth.ops.iter().any(|o| with.ran(o.end) > HOST_BOUND + SLACK);
        let said = |word: &str| with.run.stdout.contains(word);
        // (a program it started is killed a little later; without its descriptor a recording has no
        // name yet)
        if could && old && !said("another") && !said("closed\n") {
            found.failures.push(format!("process {} left no recording", truth.pid));
        }
        found.without += 1;
    }
    found
}

/// Status, stdout, the rest of stderr and the time are those of the program alone.
fn is_the_programs_own(plan: &Plan, alone: &Played, with: &Played, failures: &mut Vec<String>) {
    let (alone, with) = (&alone.run, &with.run);
    if alone.ending() != with.ending() {
        failures.push(format!("ends with {}, alone with {}: {}", with.ending(), alone.ending(), with.stderr));
    }
    let same = match plan.kill {
        None => alone.stdout == with.stdout && alone.others() == with.others(),
        // killed at the same time, not at the same place
        Some(_) => {
            (alone.stdout.starts_with(&with.stdout) || with.stdout.starts_with(&alone.stdout))
                && alone.others() == with.others()
        }
    };
    if !same {
        failures.push(format!(
            "says {:?} {:?}, alone {:?} {:?}",
            with.stdout,
            with.others(),
            alone.stdout,
            alone.others()
        ));
    }
    if with.stdout.contains("DAMAGED") {
        failures.push("the program's own file was written to".into());
    }
    let ends = 1 + with.stdout.matches("another").count() as u32;
    if plan.kill.is_none() && with.wall > alone.wall + LATER * ends {
        failures.push(format!("took {:?}, alone {:?}", with.wall, alone.wall));
    }
}

/// At most a line a process, no files but those of processes that used CUDA, nothing half-written
/// after an orderly end.
fn is_tidy(plan: &Plan, with: &Played, truths: &[Truth], failures: &mut Vec<String>) {
    let lines = with.run.lines();
    let ended = truths.iter().filter(|t| t.ended.is_some()).count();
    // (summary and line are there before the driver says that the process ended: a kill may come
    // between)
    let is_killed = plan.kill.is_some() || with.run.stdout.contains("another");
    let (most, least) = match plan.records_nothing() {
        true => (truths.len(), 0),
        false if is_killed => (truths.len(), ended),
        false => (ended, ended),
    };
    // (who is refused the subscription sees nothing of a process that puts no work on a GPU)
    let is_refused = plan.faults.iter().any(|f| f.starts_with("subscribe="));
    let silent = truths.iter().filter(|t| is_refused && t.ended.is_some() && t.ops.is_empty()).count();
    let least = least.saturating_sub(silent);
    if lines.len() > most || lines.len() < least {
        failures.push(format!(
            "{} lines, {ended} of {} processes ended: {lines:?}",
            lines.len(),
            truths.len()
        ));
    }
    let kinds = ["gapprobe: the report was not ready within 2000 ms", "gapprobe: trace or summary"];
    let expected = |l: &&&str| {
        l.contains(" [GP")
            || kinds.iter().any(|k| l.starts_with(k))
            || (plan.records_nothing() && l.contains("not recording"))
    };
    if let Some(odd) = lines.iter().find(|l| !expected(l)) {
        failures.push(format!("an odd line: {odd}"));
    }
    let pids: BTreeSet<String> = truths.iter().map(|t| t.pid.to_string()).collect();
    for path in with.left_anywhere() {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        // killed inside cuInit: the driver has not told of the process yet
        let killed = plan.kill.is_some() || with.run.stdout.contains("another");
        if killed && name.starts_with("gapprobe-attaching-") {
            continue;
        }
        let whose = name.trim_start_matches('.').split('-').nth(2).unwrap_or("");
        if !pids.contains(whose) {
            failures.push(format!("a file of no process that used CUDA: {name}"));
        }
        let half = name.ends_with(".part") || name.ends_with(".new");
        if half && !plan.keep && truths.iter().all(|t| t.ended.is_some()) {
            failures.push(format!("half a file after an orderly end: {name}"));
        }
        if name.ends_with(".summary.json") {
            let text = std::fs::read(&path).unwrap_or_default();
            if serde_json::from_slice::<serde_json::Value>(&text).is_err() {
                failures.push(format!("a cut summary: {name}"));
            }
        }
    }
    let late = lines.iter().any(|l| l.contains("not ready within"));
    if plan.place == Place::Fine && !plan.records_nothing() && !late {
        let summaries =
            with.run.left().iter().filter(|p| p.to_string_lossy().ends_with(".summary.json")).count();
        if !(least..=most).contains(&summaries) {
            failures
                .push(format!("{summaries} summaries of {ended} processes: {:?} {lines:?}", with.run.left()));
        }
    }
}

impl Played {
    /// How long the program ran from `from` to its end, ns: the time it stood still does not count.
    fn ran(&self, from: u64) -> u64 {
        let still: u64 =
            self.stopped.iter().map(|(a, b)| (*b).min(self.at).saturating_sub((*a).max(from))).sum();
        self.at.saturating_sub(from).saturating_sub(still)
    }
}

/// When the program began to end, ns, by its own word: what its other threads did from then on is
/// not followed. Without a word it is when the recording was closed.
fn end_of(folder: &Path, truth: &Truth, closed: u64) -> u64 {
    let text = std::fs::read_to_string(folder.join(format!("end.{}", truth.pid)));
    text.ok().and_then(|t| t.parse().ok()).unwrap_or(u64::MAX).min(closed)
}

/// A recording and what really happened.
struct Held<'a> {
    plan: &'a Plan,
    with: &'a Played,
    truth: &'a Truth,
    recorded: &'a Recorded,
    /// It is the program itself, not one that it started.
    is_first: bool,
}

impl Held<'_> {
    fn judge(&self, path: &Path, found: &mut Found) {
        let header = &self.recorded.header;
        let closed = header.state >= state::CLOSED;
        for (name, count) in self.recorded.losses() {
            *found.losses.entry(name).or_default() += count;
        }
        let damaged = self.recorded.problems.damaged();
        let in_memory = self.is_in_memory();
        if damaged > 0 && self.recorded.loss(Loss::MirrorWrite) == 0 && !in_memory {
            found.failures.push(format!("damaged: {:?}", self.recorded.problems));
        }
        if self.truth.ended.is_some() && !closed && !in_memory {
            found
                .failures
                .push(format!("process {} ended and its recording does not say so", self.truth.pid));
        }
        self.operations(found);
        self.calls(found);
        self.losses(found);
        match self.truth.ended {
            Some(_) => found.closed += 1,
            None => match recover(path, &self.with.run.folder, closed) {
                Ok(()) => found.recovered += 1,
                // a file that took its header and no more
                Err(why) if in_memory && why.contains("no event can be read") => found.without += 1,
                Err(why) => found.failures.push(format!("not recovered: {why}")),
            },
        }
    }

    /// What is beyond the file is in memory: it could not be written, or its descriptor was closed.
    fn is_in_memory(&self) -> bool {
        self.plan.place != Place::Fine || self.with.run.stdout.contains("closed\n")
    }

    /// This program itself was killed at a known time (not one that it had started).
    fn is_killed_one(&self) -> bool {
        self.is_first
            && self.truth.ended.is_none()
            && self.with.run.status.code().is_none_or(|c| c == 4 || c == 9)
    }

    /// Spans of which nothing is said (cudaProfilerStop); a stopped process did nothing that could
    /// be missing.
    fn unobserved(&self) -> Vec<(u64, u64)> {
        let spans = self.recorded.unobserved();
        let spans = spans.iter().filter(|e| e.a != Unobserved::Stopped as u32).map(|e| (e.start, e.end));
        spans.chain(self.open_at_the_kill()).collect()
    }

    /// The time from cudaProfilerStop to the next cudaProfilerStart is in the file as a span once
    /// it has ended. Where it had not when the file was written last, the file promises nothing.
    fn open_at_the_kill(&self) -> Option<(u64, u64)> {
        if self.truth.ended.is_some() {
            return None;
        }
        let mut since = None;
        for c in self.truth.calls.iter().filter(|c| c.name.starts_with("cudaProfiler")) {
            match since {
                None if c.name == "cudaProfilerStop" => since = Some(c.end),
                Some(since)
                    if c.name == "cudaProfilerStart" && self.with.ran(c.end) <= HOST_BOUND + SLACK =>
                {
                    return Some((since, c.end));
                }
                Some(_) if c.name == "cudaProfilerStart" => since = None,
                _ => {}
            }
        }
        since.map(|since| (since, u64::MAX))
    }

    fn operations(&self, found: &mut Found) {
        let header = &self.recorded.header;
        let ops = || {
            self.recorded
                .events
                .iter()
                .map(|(_, e)| e)
                .filter(|e| matches!(e.kind, Kind::Kernel | Kind::Memcpy | Kind::Memset))
        };
        let mut have: HashMap<Key, i64> = HashMap::new();
        for e in ops() {
            *have.entry((e.correlation, e.start, e.end)).or_default() += 1;
        }
        let mut missing: Vec<&Op> = Vec::new();
        for op in &self.truth.ops {
            match have.get_mut(&key(op)) {
                Some(n) if *n > 0 => *n -= 1,
                _ => missing.push(op),
            }
        }
        found.operations += self.truth.ops.len() as u64;
        found.lost += missing.len() as u64;
        let unobserved: Vec<(u64, u64)> = self.unobserved();
        let before = missing.len();
        missing.retain(|o| !unobserved.iter().any(|(a, b)| o.end >= *a && o.start < *b));
        found.unobserved += (before - missing.len()) as u64;
        // the driver hands the record out first: of a call under way at a kill there is no truth
        // yet
        let known: HashSet<u32> = self.truth.ops.iter().map(|o| o.correlation).collect();
        let under_way = |k: &Key| self.truth.ended.is_none() && !known.contains(&k.0);
        let made_up: Vec<_> = have.iter().filter(|(k, n)| **n > 0 && !under_way(k)).collect();
        if let Some(one) = made_up.first() {
            found.failures.push(format!("{} operations were made up, {one:?}", made_up.len()));
        }
        if self.is_in_memory() && self.truth.ended.is_some() {
            return; // the file is not what was reported
        }
        // Known fault: without the subscription cudaProfilerStart is seen by its record, and what
        // comes back before that is taken for launched while capture was off
        let starts = self.truth.calls.iter().any(|c| c.name == "cudaProfilerStart");
        if self.plan.has("subscribe=") && starts {
            return;
        }
        let loss = |l: Loss| self.recorded.loss(l);
        let counted = loss(Loss::CuptiDropped) + loss(Loss::ZeroTimestamp) + loss(Loss::BackwardTimestamp);
        let whole_buffers = loss(Loss::BufferExhausted) + loss(Loss::BufferNotReturned);
        // before the end, of the time that is said to be complete
        let claimed = header.gpu_complete_to.min(self.with.at);
        let in_claim = missing.iter().filter(|o| o.end < claimed && o.start >= header.valid_from);
        let in_claim: Vec<_> = in_claim.collect();
        let torn = self.recorded.problems.damaged() + loss(Loss::MirrorWrite) > 0;
        if in_claim.len() as u64 > counted && whole_buffers == 0 && !torn {
            found.failures.push(format!(
                "{} operations are missing before {claimed}, up to which all is said to be there; {:?}; first {:?}",
                in_claim.len(),
                self.recorded.losses(),
                in_claim.first()
            ));
        }
        if self.truth.ended.is_some() {
            let reported = counted + loss(Loss::Unfinished);
            // while we were leaving, its other threads went on
            let end = end_of(&self.with.run.folder, self.truth, header.exit_monotonic);
            let due = missing.iter().filter(|o| o.start < end).count() as u64;
            let unknown = whole_buffers + loss(Loss::ExitFlushLate);
            let fails = self.plan.has("flush=error") && loss(Loss::CuptiError) > 0;
            if due > reported && unknown == 0 && !fails {
                found.failures.push(format!(
                    "{due} operations are missing of {}; {:?}",
                    self.truth.ops.len(),
                    self.recorded.losses()
                ));
            }
        } else if self.is_killed_one()
            && !self.is_in_memory()
            && !self.plan.has("flush=")
            && !self.plan.has("worker=")
            && whole_buffers == 0
        {
            let bound = GPU_BOUND + SLACK;
            let mut ages: Vec<u64> =
                missing.iter().map(|o| self.with.ran(o.end)).filter(|a| *a > bound).collect();
            ages.sort_unstable();
            if ages.len() as u64 > counted {
                found.failures.push(format!(
                    "{} operations that ended up to {} ms before the kill are missing; {:?}",
                    ages.len(),
                    ages.last().unwrap_or(&0) / 1_000_000,
                    self.recorded.losses()
                ));
            }
        }
    }

    /// Where nothing was wrong and no other threads go on, nothing is lost.
    fn losses(&self, found: &mut Found) {
        // with the least memory seventy threads at once take more buffers than there are
        let little = self.plan.settings.contains(&("GAPPROBE_MAX_MB", "64"));
        let fine = self.plan.faults.is_empty() && self.plan.place == Place::Fine && !little;
        if !fine || self.truth.ended.is_none() || self.with.run.stdout.contains("ends among threads") {
            return;
        }
        let data: Vec<_> = Loss::ALL.iter().filter(|l| l.severity() == Severity::Data).collect();
        if data.iter().any(|l| self.recorded.loss(**l) > 0) {
            found.failures.push(format!("lost without a fault: {:?}", self.recorded.losses()));
        }
    }

    /// Calls that wait are seen by callback: each is there, or counted, or of the last 100 ms.
    fn calls(&self, found: &mut Found) {
        if self.plan.has("subscribe=") || self.plan.has("callback:") {
            return;
        }
        if self.is_in_memory() && self.truth.ended.is_some() {
            return;
        }
        let header = &self.recorded.header;
        let have: HashSet<u32> = self.recorded.of(Kind::Call).map(|(_, e)| e.correlation).collect();
        let waits =
            self.truth.calls.iter().filter(|c| c.name.contains("Synchronize") && c.start >= header.first_use);
        let unobserved = self.unobserved();
        let waits = waits.filter(|c| !unobserved.iter().any(|(a, b)| c.end >= *a && c.start < *b));
        // killed between the end of a call and its event: each thread's last one may have been
        // under way
        let newest: HashMap<u32, u64> = self.truth.calls.iter().map(|c| (c.tid, c.end)).collect();
        let under_way = |c: &&Call| self.truth.ended.is_none() && newest.get(&c.tid) == Some(&c.end);
        let waits = waits.filter(|c| !have.contains(&c.correlation));
        let missing: Vec<_> = waits.filter(|c| !under_way(c)).collect();
        let counted = self.recorded.loss(Loss::HostRingFull) + self.recorded.loss(Loss::OverflowRingFull);
        let due = match self.truth.ended {
            Some(_) => {
                let end = end_of(&self.with.run.folder, self.truth, header.exit_monotonic);
                missing.iter().filter(|c| c.end < end).count()
            }
            None if !self.is_killed_one() || self.is_in_memory() => {
                missing.iter().filter(|c| c.end < header.host_complete_to).count()
            }
            None => missing
                .iter()
                .filter(|c| c.end < header.host_complete_to || self.with.ran(c.end) > HOST_BOUND + SLACK)
                .count(),
        };
        if due as u64 > counted {
            found.failures.push(format!(
                "{due} calls that wait are missing, complete to {}, killed at {}; {:?}; {:?}",
                header.host_complete_to,
                self.with.at,
                self.recorded.losses(),
                missing.first()
            ));
        }
    }
}

/// Line, trace and summary of a recording that was left. `closed`: killed while it was reporting.
fn recover(path: &Path, folder: &Path, closed: bool) -> Result<(), String> {
    let mut command = Command::new(&built().command);
    command.arg("recover").arg(path).args(["--keep", "--json", "--dir"]).arg(folder.join("recovered"));
    std::fs::create_dir_all(folder.join("recovered")).map_err(|e| e.to_string())?;
    let output = command.output().map_err(|e| e.to_string())?;
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{:?} {error}", output.status));
    }
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
    let line = summary["line"].as_str().unwrap_or("");
    if !line.contains(" [GP") || summary["coverage"]["killed"] == closed {
        return Err(format!("{line} {}", summary["coverage"]));
    }
    Ok(())
}
