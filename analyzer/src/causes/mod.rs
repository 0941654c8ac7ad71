// SPDX-License-Identifier: Apache-2.0
//! One cause of idle time a file. A cause's module doc is the page that `gapprobe explain CODE` prints, in fixed
//! sections: What it means / How it is recognised / How sure / What to change.
//!
//! Here: the registry and what causes are judged by. `verdict.rs`: which of them the line names; `spots.rs`: which line of the program;
//! `saves.rs`: what a checkpoint costs; `memory.rs`: allocations that failed, memory that grows.
//! Adding one: a file with its doc and `evaluate`, a row in [`ALL`], a recording that triggers it and one close by
//! that does not in `tests/causes/`.

pub(crate) mod memory;
mod needed;
mod power;
mod profiled;
mod saves;
pub(crate) mod shown;
mod spots;
mod verdict;

pub mod alloc;
pub mod alloc_fragmented;
pub mod casts;
pub mod comm;
pub mod compile;
pub mod copy;
pub mod device_wait;
pub mod file_io;
pub mod gc;
pub mod gil;
pub mod gpu_bound;
pub mod graph_breaks;
pub mod host;
mod host_parts;
pub mod inconclusive;
pub mod input;
pub mod input_collate;
pub mod input_main;
pub mod input_pin;
pub mod input_storage;
pub mod input_workers;
pub mod kernel_gap;
pub mod launch;
pub mod launch_optimizer;
pub mod lines;
pub mod lock;
pub mod logging;
pub mod memory_growth;
pub mod mixed;
pub mod native_cpu;
pub mod network;
pub mod no_work;
pub mod out_of_memory;
pub mod sleep;
pub mod small_kernels;
pub mod starved;
pub mod sync;

use std::cell::OnceCell;
use std::collections::HashMap;

pub(crate) use verdict::judge;

use crate::analysis::{Analysis, Bucket, Confidence, DeviceAnalysis, Finding};
use crate::plural::counted;
use crate::replay::{Fix, Fixes, Prepared};
use crate::run::{Run, NONE};

/// A cause whose fix wins at least this share of the step, as nobody records it ([`Finding::unrecorded_win`]), is named.
pub const NAMED_WIN: f64 = 0.10;
/// From here to [`NAMED_WIN`] a cause is minor.
pub const MINOR_WIN: f64 = 0.05;
/// A cause with a smaller share of the wall time is not evaluated.
pub const NOTICED_SHARE: f64 = 0.01;
/// Exclusive computing from this share on is GPU-BOUND.
pub const GPU_BOUND_SHARE: f64 = 0.85;
/// Unexplained time above this share (or above the winning cause's) makes a verdict impossible.
pub const UNEXPLAINED_SHARE: f64 = 0.15;
/// Losses of data above this share of the valid span's events make a verdict impossible.
pub const LOSS_SHARE: f64 = 0.001;
/// Small kernels are a cause from this share of the busy time on.
pub const SMALL_SHARE: f64 = 0.30;
/// A replay further off the measured time than this predicts nothing: shares are all there is.
pub const MODEL_ERROR: f64 = 0.30;

/// From this win on the GPU is so much busier that its clock may be another one.
const CLEAR_WIN: f64 = 0.2;
/// By how much the kernels of a GPU that no longer waits may take longer, its clocks being lower under load. H200, kernels
/// a step, slow form and fixed form of one program (tests/gpu/results, 7754a9d): host_sleep 4.36 -> 4.96 ms (+14 %),
/// pageable_copies 8.37 -> 9.58 ms (+14 %), empty_cache +7 %, compiled +6 %, gpt_item 0.
const BUSIER_KERNELS: f64 = 0.15;
/// The same where readings of power tell how much of it is to be expected ([`power`]): what they are off by.
const BUSIER_KNOWN: f64 = 0.05;
/// Share of a promised win that may not come: launches never come out as evenly as in a model.
const UNEVEN_LAUNCHES: f64 = 0.10;
/// The same where every second kernel is taken to be fused: it may be every fourth, or three of four.
const FUSED: f64 = 0.50;

/// A row of the registry.
pub struct Cause {
    /// Stable code.
    pub code: &'static str,
    /// Name in the line.
    pub name: &'static str,
    /// Source of its file: the page is its module doc, see [`page`].
    source: &'static str,
    /// What is worth trying first when two are as good: small numbers.
    pub effort: u8,
    /// The fix that the replay tries, and the evidence; `None` where there is none. Verdicts without a fix of their
    /// own (GPU-BOUND, MIXED, INCONCLUSIVE) have no function here.
    pub(crate) evaluate: Option<fn(&Case) -> Option<Finding>>,
}

impl Cause {
    /// The page that explains it: its module doc, as Markdown.
    pub fn doc(&self) -> String {
        page(self.source)
    }

    /// One sentence: what it is.
    pub fn title(&self) -> &'static str {
        let first = self.source.lines().find_map(|l| l.strip_prefix("//! ")).unwrap_or("");
        first.split_once(": ").map_or(first, |(_, title)| title)
    }
}

macro_rules! registry {
    ($($module:ident $effort:literal $evaluate:expr;)*) => {
        /// All causes, by code.
        pub const ALL: &[Cause] = &[$(Cause {
            code: $module::CODE,
            name: $module::NAME,
            source: include_str!(concat!(stringify!($module), ".rs")),
            effort: $effort,
            evaluate: $evaluate,
        },)*];
    };
}

registry! {
    sync 2 Some(sync::evaluate);
    launch 5 Some(launch::evaluate);
    small_kernels 6 Some(small_kernels::evaluate);
    kernel_gap 6 Some(kernel_gap::evaluate);
    host 4 Some(host::evaluate);
    copy 3 Some(copy::evaluate);
    comm 7 Some(comm::evaluate);
    alloc 1 Some(alloc::evaluate);
    device_wait 6 Some(device_wait::evaluate);
    input 3 Some(input::evaluate);
    input_main 2 Some(input_main::evaluate);
    input_workers 3 Some(input_workers::evaluate);
    input_storage 4 Some(input_storage::evaluate);
    launch_optimizer 1 Some(launch_optimizer::evaluate);
    graph_breaks 3 Some(graph_breaks::evaluate);
    input_collate 2 Some(input_collate::evaluate);
    input_pin 3 Some(input_pin::evaluate);
    alloc_fragmented 1 Some(alloc_fragmented::evaluate);
    memory_growth 4 Some(memory_growth::evaluate);
    gc 1 Some(gc::evaluate);
    gil 4 Some(gil::evaluate);
    file_io 3 Some(file_io::evaluate);
    logging 2 Some(logging::evaluate);
    compile 4 Some(compile::evaluate);
    starved 3 Some(starved::evaluate);
    sleep 1 Some(sleep::evaluate);
    lock 4 Some(lock::evaluate);
    network 3 Some(network::evaluate);
    native_cpu 4 Some(native_cpu::evaluate);
    out_of_memory 4 Some(out_of_memory::evaluate);
    casts 3 Some(casts::evaluate);
    gpu_bound 9 None;
    mixed 9 None;
    no_work 9 Some(no_work::evaluate);
    inconclusive 9 None;
}

/// The cause with this code (`GP101`, any case) or name (`SYNC`).
pub fn find(code: &str) -> Option<&'static Cause> {
    ALL.iter().find(|c| c.code.eq_ignore_ascii_case(code) || c.name.eq_ignore_ascii_case(code))
}

/// The idle time that a cause stands for, where that is one bucket.
pub(crate) fn bucket_of(code: &str) -> Option<Bucket> {
    Some(match code {
        sync::CODE => Bucket::Sync,
        copy::CODE => Bucket::CopyWait,
        code if alloc::CODES.contains(&code) => Bucket::Alloc,
        code if input::CODES.contains(&code) => Bucket::Input,
        code if host::CODES.contains(&code) => Bucket::Host,
        _ => return None,
    })
}

/// The cause that this one is a kind of (GP123 LOGGING of GP105 HOST); `None` where it is none.
pub fn kind_of(code: &str) -> Option<&'static str> {
    let families = [
        (host::CODE, &host::CODES[..]),
        (input::CODE, &input::CODES[..]),
        (launch::CODE, &launch::CODES[..]),
        (alloc::CODE, &alloc::CODES[..]),
    ];
    families.into_iter().find(|(of, kinds)| *of != code && kinds.contains(&code)).map(|f| f.0)
}

/// The module doc of a source file.
fn page(source: &str) -> String {
    let lines = source.lines().filter_map(|l| l.strip_prefix("//!"));
    lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).fold(String::new(), |mut page, l| {
        page.push_str(l);
        page.push('\n');
        page
    })
}

/// What a cause is judged by.
pub(crate) struct Case<'a> {
    pub(crate) run: &'a Run,
    pub(crate) analysis: &'a Analysis,
    pub(crate) device: &'a DeviceAnalysis,
    pub(crate) prepared: &'a Prepared,
    /// Replay with nothing changed, ns.
    pub(crate) base: f64,
    /// See [`Case::unrecorded`].
    unrecorded: OnceCell<f64>,
    pub(crate) calls: HashMap<Bucket, Vec<Blame>>,
    /// What another GPU computes in the same time: no fix makes a step shorter than that.
    pub(crate) elsewhere: Elsewhere,
    /// What goes with writing checkpoints: it counts for that alone.
    saves: saves::Saves,
    /// What computing draws, where it was read.
    power: Option<power::Power>,
}

/// The device that computes most, of those that the replay does not play.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elsewhere {
    /// Its ordinal.
    pub(crate) ordinal: u32,
    /// Its exclusive computing as a share of the steady wall time, 0 to 1; 0 where there is no other device.
    pub(crate) compute: f64,
}

impl Elsewhere {
    pub(crate) fn of(a: &Analysis) -> Elsewhere {
        let others = a.devices.iter().enumerate().filter(|(i, _)| Some(*i) != a.worst);
        let shares = others.map(|(_, d)| (d.buckets.share(Bucket::Compute), d.ordinal));
        let most = shares.max_by(|x, y| x.0.total_cmp(&y.0));
        most.map_or_else(Elsewhere::default, |(compute, ordinal)| Elsewhere { ordinal, compute })
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
pub(crate) struct Blame {
    /// Its name.
    pub(crate) name: &'static str,
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
        let elsewhere = Elsewhere::of(analysis);
        let saves = saves::Saves::of(run, analysis, device);
        let power = power::Power::of(run, device.ordinal, analysis.steady);
        let calls = blame(run, analysis, device);
        Case {
            run,
            analysis,
            device,
            prepared,
            base,
            unrecorded: OnceCell::new(),
            calls,
            elsewhere,
            saves,
            power,
        }
    }

    /// Share of the wall time in these buckets, less what goes with writing checkpoints.
    pub(crate) fn share(&self, buckets: &[Bucket]) -> f64 {
        let own = |b: Bucket| self.device.buckets.share(b) - self.saves.share(b, self.device);
        buckets.iter().map(|&b| own(b).max(0.0)).sum()
    }

    /// The replay with `fixes`, as a share won; what it wins beyond `most` (the time that could be saved at all) is
    /// the model's error, not a win. Where the model does not give the measured time back, the share stands in. The replay is of
    /// one device; what another computes in a step stays.
    pub(crate) fn win(&self, fixes: &[Fix], most: f64) -> f64 {
        let most = most.min(self.elsewhere.room());
        if !self.trusts_replay() {
            return most;
        }
        let after = self.played(fixes, &|_| true);
        ((self.base - after) / self.base).clamp(0.0, most.max(0.0))
    }

    /// By how much recording it made what was replayed longer, a share of it as recorded, 0 to 1: an estimate
    /// ([`crate::replay::RECORDER_SLOWS`]). `None` where none can be made.
    pub(crate) fn slowed_by_us(&self) -> Option<f64> {
        (!self.run.foreign && self.trusts_replay()).then(|| 1.0 - self.unrecorded() / self.base)
    }

    /// Replay of what nobody records, ns; as recorded where another tool did, or the replay is no good.
    fn unrecorded(&self) -> f64 {
        *self.unrecorded.get_or_init(|| {
            if self.run.foreign || !self.trusts_replay() {
                return self.base;
            }
            // never shorter than what the devices compute in it
            let least = self.share(&[Bucket::Compute]).max(self.elsewhere.compute) * self.base;
            self.played(&[Fix::FasterHost], &|_| true).max(least).clamp(1.0, self.base.max(1.0))
        })
    }

    /// As [`Case::win`], of a step that nobody records: at most what nothing computes in.
    pub(crate) fn unrecorded_win(&self, fixes: &[Fix]) -> f64 {
        let from = self.unrecorded();
        if from >= self.base {
            return self.win(fixes, 1.0);
        }
        let with: Vec<Fix> = fixes.iter().copied().chain([Fix::FasterHost]).collect();
        let won = from - self.played(&with, &|_| true);
        // what computes goes on, here and elsewhere
        let computes = self.share(&[Bucket::Compute]).max(self.elsewhere.compute) * self.base / from;
        (won / from).clamp(0.0, (1.0 - computes).max(0.0))
    }

    /// What a finding's fix wins of a step that is not recorded: the host is slower while it is recorded, the GPU is not. Causes are
    /// named by this; what is promised is of recorded steps, for those can be measured again. `known`: by fix, what it wins of a recorded step
    /// and of another.
    fn win_without_us(&self, f: &Finding, known: &mut HashMap<u16, (f64, f64)>) -> f64 {
        let longer = self.base / self.unrecorded();
        // (NaN and infinity, of a base of 0, too)
        if !(longer > 1.0 && longer.is_finite()) || f.win.max(f.charged) < MINOR_WIN {
            return f.win;
        }
        // merging kernels and leaving some out takes the same time from a shorter step
        let Some(fix) = verdict::fix_of(f.code).filter(|&fix| fix != Fix::Fuse) else {
            return (f.win * longer).min(1.0);
        };
        let (recorded, unrecorded) =
            *known.entry(fix as u16).or_insert_with(|| (self.win(&[fix], 1.0), self.unrecorded_win(&[fix])));
        // a part of what the replay takes out is the same part here; where more than that was taken out (a checkpoint's copies), it is no launching
        match f.win / recorded {
            part if (0.0..=1.0).contains(&part) => part * unrecorded,
            _ => f.win,
        }
    }

    /// What all takes with these fixes at these calls, ns: with the clock that the GPU has once it is so much busier.
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

    /// What taking long host stretches out wins (`fix`; `share`: gap time that is charged to them), or `None` where they
    /// cost nothing of their own. A wait in front of a stretch claims the same gap and is charged for it: rightly, where
    /// taking the wait out wins it as well; wrongly, where another call would wait instead (`x.to(device)` in between).
    pub(crate) fn stretch_win(&self, fix: Fix, share: f64) -> Option<f64> {
        let waits = self.share(&[Bucket::Sync, Bucket::CopyWait, Bucket::Alloc]);
        if share.max(waits) < NOTICED_SHARE {
            return None;
        }
        if !self.trusts_replay() {
            return (share >= NOTICED_SHARE).then_some(share.min(self.elsewhere.room()));
        }
        // what it takes along is won with it
        let along = if self.prepared.takes_copies_along(fix) { self.share(&[Bucket::Copy]) } else { 0.0 };
        let win = self.win(&[fix], share + waits + along);
        let own = if share < NOTICED_SHARE { win - self.win(&[Fix::Sync], win) } else { share };
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

    /// "every step", "12 times a step", "312 times".
    pub(crate) fn rhythm(&self, count: u64) -> String {
        let steps = self.analysis.steps.steady().len() as f64;
        let per = count as f64 / steps.max(1.0);
        match () {
            () if steps < 1.0 => counted(count, "time"),
            () if (0.8..1.5).contains(&per) => "every step".to_owned(),
            () if per >= 1.5 => format!("{per:.0} times a step"),
            () => format!("{} in {}", counted(count, "time"), counted(steps as u64, "step")),
        }
    }

    /// The function that costs most in these buckets.
    pub(crate) fn top(&self, bucket: Bucket) -> Option<Blame> {
        self.calls.get(&bucket)?.first().copied()
    }

    /// Share of the wall time in HOST gaps up to `longest` ns each.
    pub(crate) fn short_host_share(&self, longest: u64) -> f64 {
        let host =
            self.device.slices.iter().filter(|s| s.bucket == Bucket::Host && s.end - s.start <= longest);
        let ns: u64 = host.map(|s| self.analysis.counts.measure(s.span())).sum();
        crate::analysis::share(ns, self.device.wall_ns)
    }

    /// A finding of what the buckets charge to a cause, and of what its fix wins. What is won was lost.
    pub(crate) fn finding(&self, cause: (&'static str, &'static str), charged: f64, win: f64) -> Finding {
        let step = self.step_ns();
        let promised = self.analysis.model.error() <= MODEL_ERROR && win > 0.0;
        let doubt = if self.power.is_some() { BUSIER_KNOWN } else { BUSIER_KERNELS };
        let busier = self.share(&[Bucket::Compute]) * (win / CLEAR_WIN).min(1.0) * doubt;
        let error = self.error_ns(busier.max(win * UNEVEN_LAUNCHES));
        Finding {
            code: cause.0,
            cause: cause.1,
            share: charged.max(win),
            charged,
            win,
            unrecorded_win: win,
            predicted_ns: if promised { step * (1.0 - win) } else { 0.0 },
            error_ns: if promised { error } else { 0.0 },
            text: String::new(),
            fix: "",
            confidence: self.confidence(win),
            call: NONE,
            count: 0,
            site: None,
            more_lines: 0,
        }
    }

    /// A finding of kernels to be fused: the GPU gets no busier by it, and how many can be fused is a guess.
    pub(crate) fn fusing(&self, cause: (&'static str, &'static str), share: f64, win: f64) -> Finding {
        let mut f = self.finding(cause, share, win);
        f.confidence = f.confidence.min(Confidence::Medium);
        f.error_ns = if f.predicted_ns > 0.0 { self.error_ns(win * FUSED) } else { 0.0 };
        f
    }

    /// ± of a promise: the model's own error, and `doubt`, a share of the step.
    fn error_ns(&self, doubt: f64) -> f64 {
        self.step_ns() * (self.analysis.model.error() + doubt)
    }

    /// High: steps known, the model within 10 %, a clear win that no other device limits. Low: no steps or only what may be parts of
    /// one, or a model that is off by 20 %.
    fn confidence(&self, win: f64) -> Confidence {
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

/// Idle time of the steady span by bucket and function, most expensive first.
fn blame(run: &Run, analysis: &Analysis, device: &DeviceAnalysis) -> HashMap<Bucket, Vec<Blame>> {
    let mut sums: HashMap<(Bucket, u32), Blame> = HashMap::new();
    // a call can have several slices, with others' between them: the buckets it was seen in, a bit each
    let mut seen = vec![0u16; run.calls()];
    for s in &device.slices {
        let ns = analysis.counts.measure(s.span());
        let Some((_, c)) = run.call(s.call).filter(|_| ns > 0) else { continue };
        let sum = sums.entry((s.bucket, c.packed)).or_insert_with(|| {
            let name = trace::call::find(c.packed).map_or("(unknown call)", |c| c.name);
            Blame { name, ns: 0, calls: 0, flat: s.call }
        });
        sum.ns += ns;
        if let Some(seen) = seen.get_mut(s.call as usize) {
            let bit = 1 << s.bucket as u16;
            sum.calls += u64::from(*seen & bit == 0);
            *seen |= bit;
        }
    }
    let mut out: HashMap<Bucket, Vec<Blame>> = HashMap::new();
    for ((bucket, _), blame) in sums {
        out.entry(bucket).or_default().push(blame);
    }
    for list in out.values_mut() {
        list.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.name.cmp(b.name)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_page_in_the_fixed_sections() {
        for c in ALL {
            let page = c.doc();
            assert!(page.starts_with(&format!("{} {}", c.code, c.name)), "{page}");
            let sections = ["# What it means", "# How it is recognised", "# How sure", "# What to change"];
            let at: Vec<_> = sections.iter().map(|s| page.find(s)).collect();
            assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{}: {at:?}", c.code);
        }
    }

    #[test]
    fn kinds_belong_to_their_cause() {
        let of = |name: &str| kind_of(find(name).unwrap().code).and_then(find).map(|c| c.name);
        assert_eq!((of("GC"), of("LOGGING"), of("NETWORK")), (Some("HOST"), Some("HOST"), Some("HOST")));
        assert_eq!((of("INPUT-MAIN"), of("INPUT-STORAGE")), (Some("INPUT"), Some("INPUT")));
        assert_eq!((of("HOST"), of("INPUT"), of("SYNC"), of("NO-WORK")), (None, None, None, None));
    }

    #[test]
    fn codes_and_names_are_found_and_unique() {
        for (i, c) in ALL.iter().enumerate() {
            assert_eq!(find(&c.code.to_lowercase()).map(|f| f.name), Some(c.name));
            assert_eq!(find(c.name).map(|f| f.code), Some(c.code));
            assert!(ALL[i + 1..].iter().all(|d| d.code != c.code && d.name != c.name));
        }
        assert!(find("GP000").is_none());
    }
}
