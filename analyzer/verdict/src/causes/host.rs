// SPDX-License-Identifier: Apache-2.0
//! GP105 HOST: the host does something other than launching.
//!
//! # What it means
//! Between two launches the launching threads do something long that is not a CUDA call. They wait
//! for the next batch, decode data, run Python, write a checkpoint, sleep, or wait for a lock or
//! the network.
//!
//! # How it is recognised
//! When the GPU fell idle, the next kernel had not been launched and no blocking call had drained
//! the queue. The host's time since its last launch is over 150 µs and over 5 times the run's
//! median, or over 1 ms. Shorter times count if samples in them show a function of the program that
//! hardly ever launches. The prediction shortens these times to the usual one. If a wait comes
//! first, both claim the same gap; the cost is then what the prediction wins.
//!
//! # How sure
//! That the host did not launch is exact. What it did instead is known from stack samples: the text
//! says what at least half of them (of 5 or more) show, and on which line. Garbage collection,
//! locks, files, logging, compiling and the like are causes of their own, GP120 to GP129. If
//! samples show two things, each has its part. Without samples, named ranges in the trace show it.
//! In another tool's trace the place is the Python function that has half of the time or more, or
//! the named range and the operator. The confidence is low where the times vary widely and no
//! samples show work: the process may be idle.
//!
//! # Example
//! ```python
//! # slow: the GPU waits while the loop prepares each batch
//! for x in DataLoader(dataset, batch_size=64, num_workers=8):
//!     train_step(augment(x).cuda())
//! # fixed: the workers prepare the next batches meanwhile
//! def collate(samples):
//!     return augment(torch.utils.data.default_collate(samples))
//! for x in DataLoader(dataset, batch_size=64, num_workers=8, collate_fn=collate):
//!     train_step(x.cuda())
//! ```
//!
//! # What to change
//! Have the next batch ready before it is needed: more DataLoader workers, `prefetch_factor`,
//! pinned memory. Move logging and checkpoints to a thread. Take work out of the loop between
//! steps. Whether the work can leave the critical path is for you to judge.

use super::host_parts::{nobody_works, parts, Part};
use super::workers::{busy_children, children_of};
use super::{no_work, Case};
use crate::analysis::{Advice, Bucket, Confidence, Fact, Figure, Finding};
use crate::gaps::sample_index::{HostActivity, LEAST_SAMPLES};
use crate::replay::Fix;
use crate::run::Sample;
use crate::sites::activity::Activity;

/// Stable code.
pub const CODE: &str = "GP105";
/// Name in the line.
pub const NAME: &str = "HOST";
/// Host gaps of the steps spread wildly where half of the steps lie further apart than this many
/// medians. A program's own work takes about as long in every step: evenly spread from half to one
/// and a half of its median it is 0.5. Requests that arrive at random (exponential) make it 1.6.
const WILD_SPREAD: f64 = 1.0;
/// Half of the time in a tenth of the steps, of at least so many, is bursts.
const BURSTS_OF: usize = 20;

/// Without samples, a host that waits for work (a server between requests) looks like one that
/// works. With samples, a thread that waits for another thread's requests looks like one that waits
/// for its data. If it waits for requests, how long it is away differs from step to step.
fn may_wait_for_work(case: &Case, doing: Activity) -> bool {
    let has_samples = case.run.threads.iter().any(|t| !t.samples.is_empty());
    if has_samples && !doing.waits_for_others() {
        return false;
    }
    let steps = case.analysis.steps.steady();
    let mut away: Vec<u64> = vec![0; steps.len()];
    for s in case.device.slices.iter().filter(|s| s.bucket == Bucket::Host) {
        let from = steps.partition_point(|step| step.span.end <= s.start);
        let touched = steps.iter().zip(&mut away).skip(from).take_while(|(step, _)| step.span.start < s.end);
        for (step, ns) in touched {
            *ns += s.span().clip(step.span).ns();
        }
    }
    away.sort_unstable();
    let quarter = |n: usize| away.get(away.len() * n / 4).copied().unwrap_or(0);
    let (low, middle, high) = (quarter(1), quarter(2), quarter(3));
    // what only some steps have (a checkpoint) is the program's, but where it is seen to wait for
    // others: requests come in bursts
    let longest: u64 = away.iter().rev().take(away.len().div_ceil(10)).sum();
    let in_bursts = has_samples && longest * 2 > away.iter().sum::<u64>() && away.len() >= BURSTS_OF;
    in_bursts || (low > 0 && (high - low) as f64 > WILD_SPREAD * middle as f64)
}

/// Lowers what is said of a host that perhaps has nothing to do.
fn doubt(case: &Case, f: &mut Finding, doing: Activity) {
    if may_wait_for_work(case, doing) {
        f.confidence = Confidence::Low;
        f.facts.say(Fact::new(", wait times vary: the process may be idle"));
    }
}

/// The replay shrinks the stretches to the usual one, with what the host does in them before a
/// waiting call: a GPU that drains while the host works waits for the host, whichever call comes
/// next. A large copy to the host right before a stretch (a checkpoint's) goes with it. Where
/// samples show several things, each has its part (`host_parts.rs`).
pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let (mut f, longest) = stretches(case, (CODE, NAME))?;
    f.advice = Advice::new(
        "do it ahead, elsewhere or on the GPU",
        "have the next input ready in time, move logging and checkpoints off the launching thread",
    );
    let stood = &case.device.host;
    let parts = parts(case, f.win.share());
    let own = parts.iter().find(|p| p.code.is_none());
    if let Some(own) = own {
        let whole = f;
        f = case.more_than_once(
            case.finding((CODE, NAME), whole.share * own.part, whole.win.part(own.part)),
            Bucket::Host,
        );
        (f.count, f.call, f.advice) = (whole.count, whole.call, whole.advice);
    } else if !parts.is_empty() {
        return None; // it has a name of its own
    }
    let main = own.map_or_else(|| stood.main(), |own| own.main(stood));
    if matches!(main, Some(Activity::Computes | Activity::Reads | Activity::Allocates)) {
        f.advice = Advice::new("do it ahead, elsewhere or on the GPU", "move it to another process (or thread, where it holds no GIL), do it one step ahead, or on the GPU");
    }
    let doing = main.unwrap_or(Activity::Unknown);
    does(case, &mut f, doing, longest);
    if main.is_some() {
        told_by(case, &mut f, doing);
    } else if stood.samples >= LEAST_SAMPLES {
        let parts =
            stood.doings.iter().take(3).filter(|d| d.0 != Activity::Unknown && d.1 * 5 >= stood.samples);
        for (doing, n) in parts {
            let part = Figure::Share(f64::from(*n) / f64::from(stood.samples));
            let does =
                Fact::new("{doing} in {part} of the samples").with("doing", Figure::Word(doing.words()));
            f.facts.say(does.with("part", part));
        }
    }
    place(case, &mut f, main);
    if doing == Activity::Awaits {
        f.facts.say(Fact::new(
            ", for its own tasks (an executor's thread, another process) or for requests: which is not known",
        ));
        f.advice = Advice::new(
            "start it one step ahead",
            "start what it awaits one step ahead, and await it when it is needed",
        );
        unpromised(&mut f, Confidence::Low);
    }
    doubt(case, &mut f, doing);
    Some(f)
}

/// "N times a step" counts gaps of at least one part in so many of the length from which on gaps
/// make up half of the time: the text is not about shorter ones between two launches.
const NOTED: u64 = 10;

/// The length of which half of the time is in gaps as long or longer, ns.
fn half_in(gaps: &[(Option<u32>, u64)]) -> u64 {
    let mut lengths: Vec<u64> = gaps.iter().map(|g| g.1).collect();
    lengths.sort_unstable_by(|x, y| y.cmp(x));
    let mut left = lengths.iter().sum::<u64>() / 2;
    let reaches = |ns: &&u64| {
        let is = **ns >= left;
        left = left.saturating_sub(**ns);
        is
    };
    lengths.iter().find(reaches).copied().unwrap_or(0)
}

/// Says what the launching thread does, and how long the GPU waits for it at most, ns.
fn does(case: &Case, f: &mut Finding, doing: Activity, longest: u64) {
    f.facts.say(
        Fact::new("the launching thread {doing} {often}, the GPU waits up to {longest}")
            .with("doing", Figure::Word(doing.words()))
            .with("often", case.rhythm(f.count))
            .with("longest", Figure::Time(longest as f64)),
    );
}

/// The finding of all long stretches, and the longest of them, ns.
fn stretches(case: &Case, cause: (&'static str, &'static str)) -> Option<(Finding, u64)> {
    let share = case.share(&[Bucket::Host]);
    let win = case.stretch_win(Fix::Host, Bucket::Host)?;
    let mut f = case.more_than_once(case.finding(cause, share, win), Bucket::Host);
    let slices = case.device.slices.iter().filter(|s| s.bucket == Bucket::Host);
    // (a gap can be several slices that one call ended; where no call ended them, each is one)
    let mut gaps: Vec<(Option<u32>, u64)> = Vec::new();
    let mut longest = 0;
    for s in slices.filter(|s| case.analysis.counts.measure(s.span()) > 0) {
        let ns = s.end - s.start;
        if ns >= longest {
            (longest, f.call) = (ns, s.call);
        }
        match gaps.last_mut() {
            Some((call, sum)) if call.is_some() && *call == s.call() => *sum += ns,
            _ => gaps.push((s.call(), ns)),
        }
    }
    let least = half_in(&gaps) / NOTED;
    f.count = gaps.iter().filter(|(_, ns)| *ns >= least).count() as u64;
    if f.count == 0 {
        // its gaps stand under the waits in front of it
        (f.count, longest) = case.prepared.stretches[0];
    }
    Some((f, longest))
}

/// The finding where samples show this cause.
pub(super) fn of_kind(case: &Case, cause: (&'static str, &'static str), advice: Advice) -> Option<Finding> {
    let of = |win: f64| -> Option<Part> { parts(case, win).into_iter().find(|p| p.code == Some(cause.0)) };
    of(1.0)?; // whatever it wins; what it wins takes a replay
    let (all, longest) = stretches(case, cause)?;
    let part = of(all.win.share())?;
    let mut f = case
        .more_than_once(case.finding(cause, all.share * part.part, all.win.part(part.part)), Bucket::Host);
    (f.count, f.call, f.advice) = (all.count, all.call, advice);
    does(case, &mut f, part.doing, longest);
    told_by(case, &mut f, part.doing);
    match part.doing {
        Activity::WaitsForGil => place_holder(case, &mut f),
        Activity::Waits if cause.0 == no_work::CODE => {
            f.facts.say(Fact::new("meanwhile another thread waits for requests, and none works"));
            f.confidence = f.confidence.min(Confidence::Medium);
            place(case, &mut f, Some(part.doing));
        }
        Activity::Waits => {
            f.facts.add(meanwhile(&case.device.host));
            place(case, &mut f, Some(part.doing));
            other_side(case, &mut f);
        }
        Activity::Sleeps => {
            place(case, &mut f, Some(part.doing));
            may_poll(case, &mut f);
        }
        doing => place(case, &mut f, Some(doing)),
    }
    doubt(case, &mut f, part.doing);
    Some(f)
}

/// How many samples say it.
fn told_by(case: &Case, f: &mut Finding, doing: Activity) {
    let stood = &case.device.host;
    let n = stood.count(|d| d == doing);
    f.facts.say(Fact::new("{there} of {samples} samples").with("there", n).with("samples", stood.samples));
    if stood.samples < 2 * LEAST_SAMPLES {
        f.confidence = f.confidence.min(Confidence::Medium);
    }
}

/// Puts the line in front of the text: of those samples that show this, or of all.
fn place(case: &Case, f: &mut Finding, doing: Option<Activity>) {
    let stood = &case.device.host;
    let functions = || case.function_of(Bucket::Host).filter(|_| stood.samples == 0);
    if let Some(site) = stood.site_of(doing).cloned().or_else(functions) {
        f.place(site);
    }
    case.name_by_range(f, Bucket::Host);
}

/// Whose line it is where Python's lock is waited for: the holder's. The line that waits did
/// nothing wrong.
fn place_holder(case: &Case, f: &mut Finding) {
    let stood = &case.device.host;
    if let Some(holder) = &stood.holder {
        f.facts.say(Fact::new("held by {holder}").with("holder", Figure::Who(holder.clone())));
        f.site = Some(holder.clone());
    } else if let Some(waits) = stood.site_of(Some(Activity::WaitsForGil)) {
        f.facts.say(Fact::new("it waits in {waits_at}, who holds it is not known").with("waits_at", waits));
    }
}

/// "meanwhile prepare at train.py:20 computes": what is waited for, as far as it is in this
/// process.
fn meanwhile(stood: &HostActivity) -> Option<Fact> {
    let other = stood.meanwhile.as_ref().filter(|m| Some(*m) != stood.site_of(Some(Activity::Waits)))?;
    Some(Fact::new("meanwhile {other} computes").with("other", Figure::Who(other.clone())))
}

/// What is won is not known, and nothing is promised.
fn unpromised(f: &mut Finding, most: Confidence) {
    f.promise = None;
    f.confidence = f.confidence.min(most);
}

/// In which part of the time that counts the thread that computes meanwhile was on a CPU, 0 to 1.
fn other_on_cpu(case: &Case) -> Option<f64> {
    let thread = case.run.threads.get(case.device.host.meanwhile_thread?)?;
    let counts = &case.analysis.counts;
    let on_cpu = |s: &Sample| counts.measure(s.span) as f64 * f64::from(s.on_cpu) / 1e3;
    Some(thread.samples.iter().map(on_cpu).sum::<f64>() / (case.device.wall_ns as f64).max(1.0))
}

/// "meanwhile 2 child processes compute", of those that are no workers of a loader.
fn child_computes(case: &Case) -> Option<Fact> {
    match busy_children(case) {
        0 => None,
        1 => Some(Fact::new("meanwhile a child process computes")),
        n => Some(Fact::new("meanwhile {children} compute").with("children", children_of(n as u64))),
    }
}

/// What to change where nobody is seen to make what is waited for.
const OUTSIDE: Advice = Advice::new("", "if it waits for requests, send more, or share the GPU; if for data, have it read one step earlier (a deeper queue)");

/// Who waits for another thread or process has what that makes no sooner than it is made; and where
/// nobody of the process is seen to make it, it comes from outside (a request, or data from
/// elsewhere), when it comes.
fn other_side(case: &Case, f: &mut Finding) {
    match (other_on_cpu(case), child_computes(case)) {
        // one step earlier is early enough
        (Some(on_cpu), _) if on_cpu + f.win.share() <= 1.0 => {}
        (Some(on_cpu), _) => {
            let on_cpu = Figure::Share(on_cpu.min(1.0));
            f.facts.say(
                Fact::new(", on a CPU for {on_cpu} of the time: that is the limit").with("on_cpu", on_cpu),
            );
            f.advice = Advice::new("make the other thread's work cheaper", "make what the other thread does cheaper, or share it among several; to have it one step earlier is not enough");
            unpromised(f, Confidence::Medium);
        }
        (None, Some(child)) => {
            let cheaper = ", if that is what is waited for, it has to get cheaper or be shared among several";
            f.facts.add([child, Fact::new(cheaper)]);
            unpromised(f, Confidence::Low);
        }
        (None, None) if nobody_works(case) => {
            f.facts.say(Fact::new(
                "no other thread that calls CUDA and no child works meanwhile: nothing is promised",
            ));
            f.advice = OUTSIDE;
            unpromised(f, Confidence::Low);
        }
        (None, None) => {
            f.facts.say(Fact::new("at most: what the other side needs is not known"));
            f.confidence = Confidence::Low;
        }
    }
}

/// A thread that sleeps may poll for what others make: without the sleep it waits for them as long.
fn may_poll(case: &Case, f: &mut Finding) {
    let other = match case.device.host.meanwhile {
        Some(_) => meanwhile(&case.device.host),
        None => child_computes(case),
    };
    if other.is_none() && !case.prepared.ends_from_outside {
        return;
    }
    let polls = match other.is_none() {
        true => "it ends at times given from outside: if it polls, or holds a rate, for something else, removing it wins nothing",
        false => ", if it polls for that, it wins no more than that leaves",
    };
    f.facts.add(other.into_iter().chain([Fact::new(polls)]));
    unpromised(f, Confidence::Low);
}
