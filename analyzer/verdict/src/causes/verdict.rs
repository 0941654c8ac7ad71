// SPDX-License-Identifier: Apache-2.0
//! Which cause the line names: the one whose realisable fix wins most of a step that nobody
//! records, or none, with the reason.

use super::agreeing::{is_mostly_recording, is_rest_launch, of_unrecorded, said};
use super::cpus::Cpus;
use super::{
    bucket_of, comm, cost, efficient, fix_of, gpu_bound, inconclusive, memory_growth, mixed, no_work,
    out_of_memory, unexplained, unlike, unrecorded, Case, OtherDevice, ALL, GPU_BOUND_SHARE, MINOR_WIN,
    MODEL_ERROR, NAMED_WIN,
};
use crate::analysis::{
    share, Advice, Analysis, Bucket, Confidence, Fact, Facts, Figure, Finding, Promise, Tied, Verdict,
};
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
    if unlike.far {
        a.verdict = abstain(a, unlike.fact());
    } else {
        a.verdict.facts.say(unlike.fact());
        a.verdict.confidence = Confidence::Low;
    }
}

/// What costs no time and still has to be said, beside whatever the verdict is.
fn note(a: &mut Analysis) {
    for code in [out_of_memory::CODE, memory_growth::CODE] {
        if let Some(f) = a.findings.iter().find(|f| f.code == code) {
            a.verdict.facts.add(f.facts.said.iter().cloned());
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
        f.facts.say(
            Fact::new("mostly in {long} of {steps} steps, irregularly: no prediction for a step")
                .with("long", long.spans.len())
                .with("steps", steps),
        );
    }
}

fn abstain(a: &Analysis, why: Fact) -> Verdict {
    Verdict {
        code: inconclusive::CODE,
        cause: inconclusive::NAME,
        facts: why.clone().into(),
        advice: Advice::new("", "see gapprobe explain GP199"),
        step_ns: a.steps.mean_ns,
        inconclusive: Some(why),
        call: NONE,
        ..Verdict::default()
    }
}

fn decide(a: &Analysis, case: Option<&Case>, findings: &[Finding]) -> Verdict {
    let Some(case) = case else {
        return abstain(a, Fact::new("no GPU operation was recorded"));
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
    let elsewhere = OtherDevice::of(a);
    let picked = pick(findings, a.model.error());
    let best = picked.map_or_else(|| device.buckets.share(Bucket::Compute).min(GPU_BOUND_SHARE), |f| f.share);
    if let Some(why) = unexplained::too_much(case.run, a, device, best) {
        return abstain(a, why);
    }
    if let Some(f) = picked {
        return of_one(a, case, findings, f);
    }
    let unpromised = |f: &Finding, more: Fact| Verdict {
        code: f.code,
        cause: f.cause,
        why: f.why,
        facts: with(&f.facts, more),
        advice: f.advice,
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
        let busy = Figure::Share(compute_asked);
        return unpromised(f, Fact::new("GPU busy {busy} of the rest").with("busy", busy));
    }
    if compute_asked >= GPU_BOUND_SHARE {
        return computing(a, case, findings, 0.0);
    }
    if elsewhere.compute >= GPU_BOUND_SHARE {
        // the steps are the other GPU's; that this one depends on it is inferred
        return Verdict {
            code: gpu_bound::CODE,
            cause: gpu_bound::NAME,
            facts: with(
                &gpu_bound::computes(elsewhere).into(),
                Fact::new(", GPU {this} {compute}")
                    .with("this", device.ordinal)
                    .with("compute", Figure::Share(compute)),
            ),
            advice: Advice::new(
                "",
                "give the GPUs equal work, or look at the largest kernels of the one that computes",
            ),
            confidence: Confidence::Medium,
            share: elsewhere.room(),
            step_ns: a.steps.mean_ns,
            call: NONE,
            ..Verdict::default()
        };
    }
    if let Some(f) = findings.iter().find(|f| f.code == comm::CODE && f.share >= comm::ALONE_SHARE) {
        return unpromised(f, Fact::new("there is too little computing to hide them behind"));
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
        why: t.why,
        advice: t.advice,
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
        why: f.why,
        facts: said(a, f, case.device, OtherDevice::of(a)),
        advice: f.advice,
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

/// GPU-BOUND, or EFFICIENT. `unrecorded`: computing as a share of what steps would be that nobody
/// records, where that is what makes it so; else 0.
fn computing(a: &Analysis, case: &Case, findings: &[Finding], unrecorded: f64) -> Verdict {
    let compute = case.device.buckets.share(Bucket::Compute);
    // a GPU that computes nearly all the time may take as much longer for it as little is won
    let is_sure = |f: &Finding| case.least_win(f.win.share()) >= MINOR_WIN / 2.0;
    let then = next(findings, &[], 1.0 - compute);
    let mut facts = Facts { at: None, said: gpu_bound::seen(case.device) };
    facts.add(gpu_bound::used(case.device));
    if unrecorded > 0.0 {
        facts.say(of_unrecorded(unrecorded));
    }
    facts.add(gpu_bound::largest(case));
    let lone = gpu_bound::lone(case);
    let is_lone = lone.is_some();
    facts.add(lone);
    let idle = case.device.whole_idle_share();
    let is_part = case.run.foreign && idle > MOSTLY_IDLE;
    if is_part {
        facts.say(
            Fact::new("of the whole trace the GPU idles {whole_idle}")
                .with("whole_idle", Figure::Share(idle)),
        );
    }
    let is_unsure = unrecorded > 0.0 || is_lone || is_part;
    let (code, cause) = match !is_unsure && efficient::is(case, findings) {
        true => (efficient::CODE, efficient::NAME),
        false => (gpu_bound::CODE, gpu_bound::NAME),
    };
    Verdict {
        code,
        cause,
        facts,
        advice: Advice::new("", "look at the largest kernels in the trace"),
        confidence: if is_unsure { Confidence::Medium } else { Confidence::High },
        share: 1.0 - compute,
        step_ns: a.steps.mean_ns,
        then: then.filter(|t| findings.iter().any(|f| f.cause == t.0 && is_sure(f))),
        call: NONE,
        ..Verdict::default()
    }
}

/// These, and one more.
fn with(facts: &Facts, more: Fact) -> Facts {
    let mut facts = facts.clone();
    facts.say(more);
    facts
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
    // what kernels waste is no idle time: it is in the text of their own verdict and in the report
    let time = |f: &&Finding| !said.contains(&f.code) && !super::is_of_kernels(f.code) && f.charged <= share;
    let worth = |f: &&Finding| {
        let win = f.unrecorded_win;
        win >= f.charged * LEAST_PART && f.charged.min(win.max(f.charged / 2.0)) >= MINOR_WIN
    };
    let others = findings.iter().filter(time).filter(worth);
    others.max_by(|x, y| x.charged.total_cmp(&y.charged)).map(|f| (f.cause, f.charged))
}
