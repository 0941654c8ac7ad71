// SPDX-License-Identifier: Apache-2.0
//! What a cause is judged by: shares of the time, what a fix wins in the replay, who is to blame
//! for idle time, and a finding made of these.

use crate::timeline::buckets::NOTICED_SHARE;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use super::{power, saves, MODEL_ERROR};
use crate::analysis::{
    Advice, Analysis, Bound, Bucket, Confidence, DeviceAnalysis, Facts, Finding, Often, Promise, StepSource,
    Win,
};
use crate::replay::{Fix, Fixes, Kernel, Prepared};
use crate::run::{Device, Op, Run, Span, NONE};

/// From this win on the GPU is so much busier that its clock may be another one.
const CLEAR_WIN: f64 = 0.2;
/// By how much the kernels of a GPU that no longer waits may take longer, its clocks being lower
/// under load. H200, kernels a step, slow form and fixed form of one program (tests/gpu/results,
/// 7754a9d): host_sleep 4.36 -> 4.96 ms (+14 %), pageable_copies 8.37 -> 9.58 ms (+14 %),
/// empty_cache +7 %, compiled +6 %, gpt_item 0.
pub(super) const BUSIER_KERNELS: f64 = 0.15;
/// The same where readings of power tell how much of it is to be expected ([`power`]): what they
/// are off by.
const BUSIER_KNOWN: f64 = 0.05;
/// Share of a promised win that may not come: launches never come out as evenly as in a model.
const UNEVEN_LAUNCHES: f64 = 0.10;
/// The same where every second kernel is taken to be fused: it may be every fourth, or three of
/// four.
pub(super) const FUSED: f64 = 0.50;

/// What a cause is judged by.
pub(crate) struct Case<'a> {
    pub(crate) run: &'a Run,
    pub(crate) analysis: &'a Analysis,
    pub(crate) device: &'a DeviceAnalysis,
    pub(crate) prepared: &'a Prepared,
    /// Replay with nothing changed, ns.
    pub(crate) base: f64,
    /// See `unrecorded.rs`.
    pub(super) unrecorded: OnceCell<f64>,
    /// What was replayed already: the kinds of a cause ask for the same.
    known: RefCell<HashMap<Fixes, f64>>,
    pub(crate) calls: HashMap<Bucket, Vec<Blame<'a>>>,
    /// What another GPU computes in the same time: no fix makes a step shorter than that.
    pub(crate) elsewhere: OtherDevice,
    /// What goes with writing checkpoints: it counts for that alone.
    pub(super) saves: saves::Saves,
    /// What computing draws, where it was read.
    pub(super) power: Option<power::Power>,
    /// By bucket: the longest time in one piece, a share of the wall time.
    longest: [f64; Bucket::COUNT],
}

/// The device that computes most, of those that the replay does not play.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OtherDevice {
    /// Its ordinal.
    pub(crate) ordinal: u32,
    /// Its exclusive computing as a share of the steady wall time, 0 to 1; 0 where there is no
    /// other device.
    pub(crate) compute: f64,
}

impl OtherDevice {
    pub(crate) fn of(a: &Analysis) -> OtherDevice {
        let others = a.devices.iter().enumerate().filter(|(i, _)| Some(*i) != a.worst);
        let shares = others.map(|(_, d)| (d.buckets.share(Bucket::Compute), d.ordinal));
        let most = shares.max_by(|x, y| x.0.total_cmp(&y.0));
        most.map_or_else(OtherDevice::default, |(compute, ordinal)| OtherDevice { ordinal, compute })
    }

    /// What can be won at most while it computes as it does, a share of the step.
    pub(crate) fn room(self) -> f64 {
        1.0 - self.compute
    }

    /// This win is all that the other device leaves.
    pub(crate) fn bounds(self, win: f64) -> bool {
        self.compute > 0.0 && win >= self.room()
    }
}

/// Idle time by the API function to blame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blame<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Idle ns.
    pub(crate) ns: u64,
    /// Calls of it that cost something.
    pub(crate) calls: u64,
    /// One of them.
    pub(crate) flat: u32,
}

impl<'a> Case<'a> {
    pub(crate) fn new(
        run: &'a Run,
        analysis: &'a Analysis,
        device: &'a DeviceAnalysis,
        prepared: &'a Prepared,
    ) -> Case<'a> {
        let base = prepared.play(Fixes::default()) as f64;
        let elsewhere = OtherDevice::of(analysis);
        let saves = saves::Saves::of(run, analysis, device);
        let power = power::Power::of(run, device.ordinal, analysis.steady);
        let calls = blame(run, analysis, device);
        let longest = longest(analysis, device);
        Case {
            run,
            analysis,
            device,
            prepared,
            base,
            unrecorded: OnceCell::new(),
            known: RefCell::default(),
            calls,
            elsewhere,
            saves,
            power,
            longest,
        }
    }

    /// The device with its operations, as it was recorded.
    pub(super) fn recorded_device(&self) -> Option<&'a Device> {
        self.run.devices.iter().find(|d| d.ordinal == self.device.ordinal)
    }

    /// The step that counts in which an operation of the device begins, by its place among them;
    /// `None`: in none, or steps are periods, which may begin in the midst of the program's own.
    pub(super) fn step_of(&self, op: &Op) -> Option<usize> {
        let steps = &self.analysis.steps;
        let all = if steps.source == StepSource::Period { &[] } else { steps.steady() };
        let at = all.partition_point(|s| s.span.end <= op.start);
        all.get(at).filter(|s| s.span.start <= op.start).map(|_| at)
    }

    /// Share of the wall time in these buckets, less what goes with writing checkpoints.
    pub(crate) fn share(&self, buckets: &[Bucket]) -> f64 {
        let own = |b: Bucket| self.device.buckets.share(b) - self.saves.share(b, self.device);
        buckets.iter().map(|&b| own(b).max(0.0)).sum()
    }

    /// The time in these buckets that a fix can change, less what goes with writing checkpoints.
    pub(crate) fn touches(&self, buckets: &[Bucket]) -> Bound {
        Bound::idle(&self.device.buckets, self.device.buckets.total(), buckets).at_most(self.share(buckets))
    }

    /// What the replay with `fixes` wins; beyond `most` it is the model's error, not a win. Where
    /// the model does not give the measured time back, `most` stands in. The replay is of one
    /// device; what another computes in a step stays.
    pub(crate) fn win(&self, fixes: &[Fix], most: Bound) -> Win {
        Win::within(self.replayed(fixes), most)
    }

    /// What the replay with `fixes` takes off, a share, 0 to 1: all that other devices leave, where
    /// it cannot be asked.
    pub(super) fn replayed(&self, fixes: &[Fix]) -> f64 {
        let most = self.elsewhere.room().max(0.0);
        if !self.trusts_replay() {
            return most;
        }
        ((self.base - self.played_everywhere(fixes)) / self.base).clamp(0.0, most)
    }

    /// What all takes with these fixes wherever they can be made, ns.
    pub(super) fn played_everywhere(&self, fixes: &[Fix]) -> f64 {
        let known = self.known.borrow().get(&Fixes::of(fixes)).copied();
        let ns = known.unwrap_or_else(|| self.played(fixes, &|_| true));
        self.known.borrow_mut().insert(Fixes::of(fixes), ns);
        ns
    }

    /// What all takes with these fixes at these calls, ns: with the clock that the GPU has once it
    /// is so much busier.
    pub(crate) fn played(&self, fixes: &[Fix], at: &dyn Fn(u32) -> bool) -> f64 {
        let fixes = Fixes::of(fixes);
        let after = self.prepared.play_at(fixes, at) as f64;
        let Some(power) = self.power.filter(|_| after > 0.0) else { return after };
        let busy = self.share(&[Bucket::Compute]);
        match power.slower(busy * self.base / after) {
            slower if slower > 1.0 => self.prepared.play_slower(fixes, at, slower) as f64,
            _ => after,
        }
    }

    /// What is left of the time of kernels at least, by the memory traffic that the GPU's counters
    /// tell, 0 to 1; `None`: they do not.
    pub(super) fn memory_floor(&self) -> Option<f64> {
        let memory = self.device.counters.and_then(|c| c.own()?.memory)?;
        Some(memory / self.share(&[Bucket::Compute]).max(memory))
    }

    /// What the replay wins, at most `most` and the `room` that other devices leave, with kernels
    /// that take as long as `takes` says, ns.
    pub(super) fn win_of_kernels(&self, takes: &dyn Fn(Kernel) -> u64, most: Bound, room: f64) -> Win {
        let room = room.max(0.0);
        if !self.trusts_replay() {
            return Win::within(room, most);
        }
        let after = self.prepared.play_kernels(takes) as f64;
        Win::within(((self.base - after) / self.base).min(room), most)
    }

    /// What taking long host stretches out wins (`fix`; `bucket`: the gap time that is charged to
    /// them), or `None` where they cost nothing of their own. A wait in front of a stretch claims
    /// the same gap and is charged for it: rightly, where taking the wait out wins it as well;
    /// wrongly, where another call would wait instead (`x.to(device)` in between).
    pub(crate) fn stretch_win(&self, fix: Fix, bucket: Bucket) -> Option<Win> {
        let share = self.share(&[bucket]);
        let waits = [Bucket::Sync, Bucket::CopyWait, Bucket::Alloc];
        if share.max(self.share(&waits)) < NOTICED_SHARE {
            return None;
        }
        let own = self.touches(&[bucket]);
        if !self.trusts_replay() {
            return (share >= NOTICED_SHARE).then(|| self.win(&[fix], own));
        }
        let most = own.and(self.touches(&waits));
        // what it takes along is won with it
        let most = match self.prepared.takes_copies_along(fix) {
            true => most.and(self.touches(&[Bucket::Copy])),
            false => most,
        };
        let win = self.win(&[fix], most);
        let by_waits = || self.win(&[Fix::Sync], most.at_most(win.share())).share();
        let own = if share < NOTICED_SHARE { win.share() - by_waits() } else { share };
        (own >= NOTICED_SHARE).then_some(win)
    }

    /// The replay gives the measured time back well enough to be asked.
    pub(crate) fn trusts_replay(&self) -> bool {
        self.analysis.model.error() <= MODEL_ERROR && self.base > 0.0
    }

    /// Time of a step (without steps: of the steady span), ns.
    pub(crate) fn step_ns(&self) -> f64 {
        if self.analysis.steps.mean_ns > 0.0 {
            self.analysis.steps.mean_ns
        } else {
            self.device.wall_ns as f64
        }
    }

    /// How often `count` times are.
    pub(crate) fn rhythm(&self, count: u64) -> Often {
        let steps = self.analysis.steps.steady().len() as f64;
        let per = count as f64 / steps.max(1.0);
        let long = &self.analysis.steps.long;
        // (the last one may come after the last step)
        let is_these = count.abs_diff(long.spans.len() as u64) <= 1;
        if let Some(every) = long.every.filter(|_| is_these) {
            return Often::EverySteps(every as u64);
        }
        match () {
            () if steps < 1.0 => Often::Times(count),
            () if (0.8..1.5).contains(&per) => Often::EveryStep,
            () if per >= 1.5 => Often::PerStep(per),
            () => Often::Among { times: count, steps: steps as u64 },
        }
    }

    /// The function that costs most in these buckets.
    pub(crate) fn top(&self, bucket: Bucket) -> Option<Blame<'a>> {
        self.calls.get(&bucket)?.first().copied()
    }

    /// Share of the wall time in HOST gaps up to `longest` ns each, in front of launches that a
    /// graph may hold.
    pub(crate) fn short_host_share(&self, longest: u64) -> f64 {
        let stays = self.prepared.in_no_graph();
        let host =
            self.device.slices.iter().filter(|s| s.bucket == Bucket::Host && s.end - s.start <= longest);
        let host = host.filter(|s| !stays.contains(&s.call));
        let ns: u64 = host.map(|s| self.analysis.counts.measure(s.span())).sum();
        crate::analysis::share(ns, self.device.wall_ns)
    }

    /// A finding of what the buckets charge to a cause, and of what its fix wins. What is won was
    /// lost.
    pub(crate) fn finding(&self, cause: (&'static str, &'static str), charged: f64, won: Win) -> Finding {
        let win = won.share();
        let is_promised = self.analysis.model.error() <= MODEL_ERROR;
        let doubt = if self.power.is_some() { BUSIER_KNOWN } else { BUSIER_KERNELS };
        let busier = self.share(&[Bucket::Compute]) * (win / CLEAR_WIN).min(1.0) * doubt;
        let error_ns = self.error_ns(busier.max(win * UNEVEN_LAUNCHES));
        Finding {
            code: cause.0,
            cause: cause.1,
            share: charged.max(win),
            charged,
            win: won,
            unrecorded_win: win,
            promise: Promise::new(self.step_ns(), won, error_ns).filter(|_| is_promised),
            facts: Facts::default(),
            why: super::find(cause.0).map_or("", |c| c.why),
            advice: Advice::default(),
            confidence: self.confidence(win),
            call: NONE,
            count: 0,
            site: None,
            more_lines: 0,
        }
    }

    /// What is left of a win if the GPU, busier by it, gets as much slower as any was seen to.
    pub(super) fn least_win(&self, win: f64) -> f64 {
        win - self.share(&[Bucket::Compute]) * (win / CLEAR_WIN).min(1.0) * BUSIER_KERNELS
    }

    /// A finding of kernels to be fused: the GPU gets no busier by it, and how many can be fused is
    /// a guess.
    pub(crate) fn fusing(&self, cause: (&'static str, &'static str), share: f64, win: Win) -> Finding {
        let mut f = self.finding(cause, share, win);
        f.confidence = f.confidence.min(Confidence::Medium);
        f.promise = f.promise.map(|p| p.give_or_take(self.error_ns(win.share() * FUSED)));
        f
    }

    /// As sure as [`Self::finding`] says, but where most of what is won may be a single pause of
    /// the bucket: what happened once is nobody's step.
    pub(crate) fn more_than_once(&self, mut f: Finding, bucket: Bucket) -> Finding {
        let steps = self.analysis.steps.steady().len();
        let longest = self.longest.get(bucket as usize).copied().unwrap_or(0.0);
        if steps >= STEPS_FOR_ONCE && longest > f.win.share() * SINGLE_PAUSE_SHARE {
            f.confidence = Confidence::Low;
        }
        f
    }

    /// By how much longer than promised a step may be once a finding's fix is in, ns: were the host
    /// in all of them as slow as it is in the slowest tenth. 0 where the GPU is the limit either
    /// way.
    pub(super) fn slow_host_ns(&self, f: &Finding, fix: Fix) -> f64 {
        if !self.trusts_replay() {
            return 0.0;
        }
        let after = self.played_everywhere(&[fix]);
        let slower = self.played_everywhere(&[fix, Fix::SlowerHost]);
        // of the fix at some of the calls that part
        let part = (f.win.share() * self.base / (self.base - after)).clamp(0.0, 1.0);
        let longer = (slower - after).max(0.0) / self.base * part;
        if longer.is_finite() {
            self.step_ns() * longer
        } else {
            0.0
        }
    }

    /// ± of a promise: the model's own error, and `doubt`, a share of the step.
    fn error_ns(&self, doubt: f64) -> f64 {
        self.step_ns() * (self.analysis.model.error() + doubt)
    }

    /// High: steps known, the model within 10 %, a clear win that no other device limits. Low: no
    /// steps or only what may be parts of one, or a model that is off by 20 %.
    pub(super) fn confidence(&self, win: f64) -> Confidence {
        let steps = self.analysis.steps.steady().len();
        let error = self.analysis.model.error();
        if steps < 3 || error > 0.20 || self.analysis.steps.may_be_parts {
            Confidence::Low
        } else if error <= 0.10 && win >= 0.15 && steps >= 5 && !self.elsewhere.bounds(win) {
            Confidence::High
        } else {
            Confidence::Medium
        }
    }
}

/// A single pause is this much of a win at least where it is most of it.
const SINGLE_PAUSE_SHARE: f64 = 0.5;
/// Among fewer steps than this each is a large part of what is won.
const STEPS_FOR_ONCE: usize = 10;

/// See [`Case::longest`].
fn longest(analysis: &Analysis, device: &DeviceAnalysis) -> [f64; Bucket::COUNT] {
    let mut most = [0; Bucket::COUNT];
    let (mut piece, mut bucket) = (Span::default(), None);
    for s in &device.slices {
        let goes_on = s.start == piece.end && bucket == Some(s.bucket);
        piece = if goes_on { Span::new(piece.start, s.end) } else { s.span() };
        bucket = Some(s.bucket);
        if let Some(most) = most.get_mut(s.bucket as usize).filter(|most| piece.ns() > **most) {
            *most = analysis.counts.measure(piece).max(*most);
        }
    }
    most.map(|ns| crate::analysis::share(ns, device.wall_ns))
}

/// Idle time of the steady span by bucket and function, most expensive first.
fn blame<'a>(run: &'a Run, analysis: &Analysis, device: &DeviceAnalysis) -> HashMap<Bucket, Vec<Blame<'a>>> {
    let mut sums: HashMap<(Bucket, u32), Blame<'_>> = HashMap::new();
    // a call can have several slices, with others' between them: the buckets it was seen in, a bit
    // each
    let mut seen = vec![0u16; run.calls()];
    for s in &device.slices {
        let ns = analysis.counts.measure(s.span());
        let Some((_, c)) = run.call(s.call).filter(|_| ns > 0) else { continue };
        let sum = sums.entry((s.bucket, c.packed)).or_insert_with(|| Blame {
            name: run.call_name(c),
            ns: 0,
            calls: 0,
            flat: s.call,
        });
        sum.ns += ns;
        if let Some(seen) = seen.get_mut(s.call as usize) {
            let bit = 1 << s.bucket as u16;
            sum.calls += u64::from(*seen & bit == 0);
            *seen |= bit;
        }
    }
    let mut out: HashMap<Bucket, Vec<Blame<'_>>> = HashMap::new();
    for ((bucket, _), blame) in sums {
        out.entry(bucket).or_default().push(blame);
    }
    for list in out.values_mut() {
        list.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.name.cmp(b.name)));
    }
    out
}
