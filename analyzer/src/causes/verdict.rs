// SPDX-License-Identifier: Apache-2.0
//! Which cause the line names: the one whose realisable fix wins most of a step that nobody
//! records, or none, with the reason.

use super::cpus::Cpus;
use super::{
    bucket_of, comm, cost, fix_of, gpu_bound, inconclusive, memory_growth, mixed, no_work, out_of_memory,
    unlike, unrecorded, Case, Elsewhere, ALL, GPU_BOUND_SHARE, MINOR_WIN, MODEL_ERROR, NAMED_WIN,
};
use crate::analysis::{share, Analysis, Bucket, Confidence, DeviceAnalysis, Finding, Promise, Tied, Verdict};
use crate::replay::{Fix, Prepared};
use crate::run::{Run, NONE};

/// A second cause is only named if its fix wins at least this part of its share: a share of the
/// time whose fix wins next to nothing would read as advice.
const LEAST_PART: f64 = 0.1;
/// Two causes are as good as each other if their wins differ by no more than this share of the
/// larger.
const TIE: f64 = 0.2;

/// See [`uneven`].
const MOST_IS_SELDOM: f64 = 0.5;

/// The line promises what so many findings win at most.
const PROMISED: usize = 2;

/// What a wait costs beyond its own gaps is told to be LAUNCH's where that has so much of it.
const MOST_OF_THE_REST: f64 = 0.9;

/// Of another tool's trace that idles for more than this share of the whole nobody may read that it
/// is GPU-bound and no more, whatever its steps do.
const MOSTLY_IDLE: f64 = 0.5;

/// Fills `findings` and `verdict`.
pub(crate) fn judge(run: &Run, a: &mut Analysis, prepared: &Prepared) {
    let device = a.worst.and_then(|w| a.devices.get(w));
    let case = device.map(|device| Case::new(run, a, device, prepared));
    // where the verdict abstains causes are still evaluated: the report shows them
    let findings = case.as_ref().map_or_else(Vec::new, evaluate);
    let lost = cost::lost(run, a, case.as_ref());
    let verdict = match inconclusive::before(run, a) {
        Some(why) => abstain(a, why),
        None => decide(a, case.as_ref(), &findings),
    };
    (a.findings, a.verdict) = (findings, verdict);
    doubt(run, a, lost.likely);
    a.cost = cost::cost(run, a, lost);
    note(a);
}

/// Where the steps that were recorded are not like those of the run. `slowed`: by what recording
/// made them longer.
fn doubt(run: &Run, a: &mut Analysis, slowed: f64) {
    a.unlike = unlike::unlike(run, a, slowed);
    let Some(unlike) = a.unlike.filter(|_| a.verdict.inconclusive.is_none()) else { return };
    let words = unlike.words();
    if unlike.far {
        a.verdict = abstain(a, words);
    } else {
        a.verdict.text.push_str(&format!("; {words}"));
        a.verdict.confidence = Confidence::Low;
    }
}

/// What costs no time and still has to be said, beside whatever the verdict is.
fn note(a: &mut Analysis) {
    for code in [out_of_memory::CODE, memory_growth::CODE] {
        if let Some(f) = a.findings.iter().find(|f| f.code == code) {
            a.verdict.text.push_str(&format!("; {}", f.text));
        }
    }
}

fn evaluate(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        ALL.iter().filter_map(|c| c.evaluate).filter_map(|evaluate| evaluate(case)).collect();
    for f in &mut findings {
        uneven(case, f);
        f.unrecorded_win = case.win_without_us(f);
    }
    findings.sort_by(|x, y| y.unrecorded_win.total_cmp(&x.unrecorded_win).then(y.share.total_cmp(&x.share)));
    // (two replays each: of those that the line may speak of)
    for f in findings.iter_mut().filter(|f| f.promise.is_some()).take(PROMISED) {
        let Some(fix) = fix_of(f.code).filter(|&fix| fix != Fix::Fuse) else { continue };
        let slow = case.slow_host_ns(f, fix);
        f.promise = f.promise.map(|p| p.give_or_take(p.error_ns().max(slow)));
    }
    Cpus::of(case).bound(case, &mut findings);
    findings
}

/// What comes a few times and irregularly is a cost of this run, and none of each step: nothing is
/// predicted of a step where most of a finding's time is that.
fn uneven(case: &Case, f: &mut Finding) {
    let long = &case.analysis.steps.long;
    let Some(bucket) = bucket_of(f.code).filter(|_| long.are_uneven()) else { return };
    let there = case.analysis.counts.only(long.spans.iter().copied());
    let slices = || case.device.slices.iter().filter(|s| s.bucket == bucket);
    let all: u64 = slices().map(|s| case.analysis.counts.measure(s.span())).sum();
    let seldom: u64 = slices().map(|s| there.measure(s.span())).sum();
    if share(seldom, all) > MOST_IS_SELDOM {
        f.promise = None;
        let steps = case.analysis.steps.steady().len();
        f.text.push_str(&format!(
            "; mostly in {} of {steps} steps, irregularly: no prediction for a step",
            long.spans.len()
        ));
    }
}

fn abstain(a: &Analysis, why: String) -> Verdict {
    Verdict {
        code: inconclusive::CODE,
        cause: inconclusive::NAME,
        text: why.clone(),
        fix: "see gapprobe explain GP199",
        step_ns: a.steps.mean_ns,
        inconclusive: Some(why),
        call: NONE,
        ..Verdict::default()
    }
}

fn decide(a: &Analysis, case: Option<&Case>, findings: &[Finding]) -> Verdict {
    let Some(case) = case else {
        return abstain(a, "no GPU operation was recorded".to_owned());
    };
    let mut verdict = named(a, case, findings);
    if a.steps.has_no_usual_time() {
        (verdict.step_ns, verdict.promise) = (0.0, None);
    }
    if a.steps.may_be_parts {
        verdict.confidence = Confidence::Low;
    } else if a.steps.are_few() {
        verdict.confidence = verdict.confidence.min(Confidence::Medium);
    }
    verdict.profiled = unrecorded::without_profiler(case, findings);
    verdict
}

fn named(a: &Analysis, case: &Case, findings: &[Finding]) -> Verdict {
    let device = case.device;
    let compute = device.buckets.share(Bucket::Compute);
    let elsewhere = Elsewhere::of(a);
    let picked = pick(findings, a.model.error());
    let best = picked.map_or_else(|| device.buckets.share(Bucket::Compute).min(GPU_BOUND_SHARE), |f| f.share);
    if let Some(why) = inconclusive::after(case.run, a, device, best) {
        return abstain(a, why);
    }
    if let Some(f) = picked {
        return of_one(a, case, findings, f);
    }
    let unpromised = |f: &Finding, more: &str| Verdict {
        code: f.code,
        cause: f.cause,
        text: format!("{}; {more}", f.text),
        fix: f.fix,
        confidence: f.confidence,
        share: f.share,
        step_ns: a.steps.mean_ns,
        call: f.call,
        site: f.site.clone(),
        ..Verdict::default()
    };
    let asked = findings.iter().find(|f| f.code == no_work::CODE);
    let compute_asked = compute / (1.0 - asked.map_or(0.0, |f| f.share)).max(compute).max(f64::MIN_POSITIVE);
    if let Some(f) = asked.filter(|f| f.share >= NAMED_WIN) {
        return unpromised(f, &format!("GPU busy {:.0} % of the rest", compute_asked * 100.0));
    }
    if compute_asked >= GPU_BOUND_SHARE {
        return computing(a, case, findings, 0.0);
    }
    if elsewhere.compute >= GPU_BOUND_SHARE {
        // the steps are the other GPU's; that this one depends on it is inferred
        return Verdict {
            code: gpu_bound::CODE,
            cause: gpu_bound::NAME,
            text: format!(
                "{}, GPU {} {:.0} %",
                gpu_bound::computes(elsewhere),
                device.ordinal,
                compute * 100.0
            ),
            fix: "give the GPUs equal work, or look at the largest kernels of the one that computes",
            confidence: Confidence::Medium,
            share: elsewhere.room(),
            step_ns: a.steps.mean_ns,
            call: NONE,
            ..Verdict::default()
        };
    }
    if let Some(f) = findings.iter().find(|f| f.code == comm::CODE && f.share >= comm::ALONE_SHARE) {
        return unpromised(f, "there is too little computing to hide them behind");
    }
    let mixed = mixed::mix(a, case, findings);
    // what steps would be that nobody records is an estimate: a set of causes that wins enough
    // there goes before it
    let unrecorded = (compute_asked / (1.0 - case.slowed_by_us().unwrap_or(0.0))).min(1.0);
    let is_little = mixed.code == mixed::CODE && mixed.confidence == Confidence::Low;
    if unrecorded >= GPU_BOUND_SHARE && is_little {
        return computing(a, case, findings, unrecorded);
    }
    mixed
}

/// The verdict that this finding is, with what comes next of the others.
pub(super) fn of_one(a: &Analysis, case: &Case, findings: &[Finding], f: &Finding) -> Verdict {
    let of_a_step = |promise: Option<Promise>| promise.filter(|_| a.steps.mean_ns > 0.0);
    let tied = tied(findings, f, a.model.error()).map(|t| Tied {
        code: t.code,
        cause: t.cause,
        fix: t.fix,
        more_work: effort(t) > effort(f),
        share: t.share,
        promise: of_a_step(t.promise),
    });
    // (what is told to be the rest of the named one is no second cause)
    let rest = if is_rest_launch(f, case.device) { super::launch::CODE } else { "" };
    let told = [f.code, tied.map_or("", |t| t.code), rest];
    Verdict {
        code: f.code,
        cause: f.cause,
        text: said(a, f, case.device, Elsewhere::of(a)),
        fix: f.fix,
        confidence: if is_mostly_recording(f) { f.confidence.min(Confidence::Medium) } else { f.confidence },
        share: f.share,
        step_ns: a.steps.mean_ns,
        promise: of_a_step(f.promise),
        tied,
        then: next(findings, &told, f.share),
        parts: Vec::new(),
        inconclusive: None,
        profiled: None,
        call: f.call,
        site: f.site.clone(),
    }
}

/// GPU-BOUND. `unrecorded`: computing as a share of what steps would be that nobody records, where
/// that is what makes it so; else 0.
fn computing(a: &Analysis, case: &Case, findings: &[Finding], unrecorded: f64) -> Verdict {
    let compute = case.device.buckets.share(Bucket::Compute);
    // a GPU that computes nearly all the time may take as much longer for it as little is won
    let is_sure = |f: &Finding| case.least_win(f.win.share()) >= MINOR_WIN / 2.0;
    let then = next(findings, &[], 1.0 - compute);
    let mut text = gpu_bound::text(case.device);
    if unrecorded > 0.0 {
        text.push_str(&format!("; of unrecorded steps about {:.0} %", unrecorded * 100.0));
    }
    let lone = gpu_bound::lone(case);
    if let Some(lone) = &lone {
        text.push_str(&format!(", {lone}"));
    }
    let idle = case.device.whole_idle_share();
    let is_part = case.run.foreign && idle > MOSTLY_IDLE;
    if is_part {
        text.push_str(&format!("; of the whole trace the GPU idles {:.0} %", idle * 100.0));
    }
    Verdict {
        code: gpu_bound::CODE,
        cause: gpu_bound::NAME,
        text,
        fix: "look at the largest kernels in the trace",
        confidence: match unrecorded > 0.0 || lone.is_some() || is_part {
            true => Confidence::Medium,
            false => Confidence::High,
        },
        share: 1.0 - compute,
        step_ns: a.steps.mean_ns,
        then: then.filter(|t| findings.iter().any(|f| f.cause == t.0 && is_sure(f))),
        call: NONE,
        ..Verdict::default()
    }
}

/// What was seen, with what its figures need to agree with those of the buckets and of the other
/// GPUs.
fn said(a: &Analysis, f: &Finding, device: &DeviceAnalysis, elsewhere: Elsewhere) -> String {
    let mut text = f.text.clone();
    // small kernels are no idle time, and their line has no share
    let rest = f.share - f.charged;
    let meanwhile = meanwhile(a, f, device);
    let is_counted = rest >= super::NOTICED_SHARE || meanwhile.is_some();
    if is_counted && f.code != super::small_kernels::CODE {
        let own = f.charged - meanwhile.map_or(0.0, |m| m.all);
        text.push_str(&format!("; counted as {} {:.0} %", f.cause, own.max(0.0) * 100.0));
        if let Some(Meanwhile { most, share, .. }) = meanwhile {
            let does = if most == Bucket::Input { "fetches data" } else { "does something else" };
            let (label, share) = (most.label(), share * 100.0);
            text.push_str(&format!(", as {label} {share:.0} %: the host {does} then"));
        }
        // a queue that a wait has drained is filled again launch by launch, and those gaps are each
        // launch's
        if is_rest_launch(f, device) {
            text.push_str(", the rest as LAUNCH");
        }
    }
    if elsewhere.bounds(f.win.share()) {
        text.push_str(&format!("; {}", gpu_bound::computes(elsewhere)));
    }
    if is_mostly_recording(f) {
        text.push_str(&format!("; of unrecorded steps about {:.0} %", f.unrecorded_win * 100.0));
    }
    text
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
    (share >= super::NOTICED_SHARE).then_some(Meanwhile { most, share, all: input + host })
}

/// Recording makes launching dearer: is what the fix wins of a step that nobody records so much
/// less that it has to be said?
fn is_mostly_recording(f: &Finding) -> bool {
    let win = f.win.share();
    win - f.unrecorded_win >= MINOR_WIN && f.unrecorded_win < win * MOST_OF_A_WIN
}

/// What a finding wins without recording is told where it is less than this part of what it wins.
const MOST_OF_A_WIN: f64 = 0.75;

/// Is most of what a wait costs beyond its own gaps LAUNCH's among the buckets?
fn is_rest_launch(f: &Finding, device: &DeviceAnalysis) -> bool {
    let rest = f.share - f.charged;
    let launch = device.buckets.share(Bucket::Launch);
    f.code == super::sync::CODE && rest >= super::NOTICED_SHARE && launch >= rest * MOST_OF_THE_REST
}

/// The finding to name. Of two that are as good, the one that is less work to fix; of two parts of
/// the same time (`host_parts.rs`) the larger, for one is no way around the other.
fn pick(findings: &[Finding], model_error: f64) -> Option<&Finding> {
    let best = findings.first()?;
    let is_way =
        |f: &&Finding| f.code == best.code || fix_of(f.code).is_none_or(|x| fix_of(best.code) != Some(x));
    as_good(findings, model_error).filter(is_way).min_by_key(|f| effort(f))
}

/// The best of the others that are as good as `named` and have another fix: what is won by one and
/// the same is no second way.
fn tied<'a>(findings: &'a [Finding], named: &Finding, model_error: f64) -> Option<&'a Finding> {
    as_good(findings, model_error).find(|f| fix_of(f.code) != fix_of(named.code))
}

/// The findings whose fixes win as much as the best, as far as can be said, the best first.
fn as_good(findings: &[Finding], model_error: f64) -> impl Iterator<Item = &Finding> {
    let best = findings.first().map_or(0.0, |f| f.unrecorded_win);
    let slack = (best * TIE).max(if model_error <= MODEL_ERROR { best.min(model_error) / 2.0 } else { 0.0 });
    findings.iter().filter(move |f| f.unrecorded_win >= NAMED_WIN && f.unrecorded_win >= best - slack)
}

/// How much work the fix of a finding is.
fn effort(f: &Finding) -> u8 {
    super::find(f.code).map_or(u8::MAX, |c| c.effort)
}

/// The largest other cause worth a word. Never one that costs more than what is named: it was not
/// named because its fix wins less or is more work for as much, and in second place it would read
/// as if the wrong cause were named.
fn next(findings: &[Finding], said: &[&str], share: f64) -> Option<(&'static str, f64)> {
    // small kernels and casts are no idle time: what they are is in the text of their own verdict
    // and in the report
    let busy = [super::small_kernels::CODE, super::casts::CODE];
    let time = |f: &&Finding| !said.contains(&f.code) && !busy.contains(&f.code) && f.charged <= share;
    let worth = |f: &&Finding| {
        let win = f.unrecorded_win;
        win >= f.charged * LEAST_PART && f.charged.min(win.max(f.charged / 2.0)) >= MINOR_WIN
    };
    let others = findings.iter().filter(time).filter(worth);
    others.max_by(|x, y| x.charged.total_cmp(&y.charged)).map(|f| (f.cause, f.charged))
}
