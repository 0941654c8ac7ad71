// SPDX-License-Identifier: Apache-2.0
//! All stages in order: spans and coverage here, everything else in the stage's own file.

mod once;
mod tally;

use std::time::Instant;

use trace::event::Unobserved;
use trace::loss::Severity;
use trace::{Loss, Total};

use crate::analysis::{working, Analysis, Bucket, Buckets, Counters, Coverage, DeviceAnalysis, StepSource};
use crate::gaps::dispatching::Dispatched;
use crate::gaps::{attribute, HostView, LaunchOwner};
use crate::load::missing_kernels;
use crate::replay::Prepared;
use crate::run::complete_to::complete_to;
use crate::run::{Call, Device, Run, Span, UnobservedSpan};
use crate::stats::middle;
use crate::timeline::buckets::IdleSlice;
use crate::timeline::kernels::KernelTable;
use crate::timeline::Observed;
use crate::{causes, replay, steps};

pub use tally::{tally, Tally};

/// Analyses a run. Never fails: what cannot be said is INCONCLUSIVE with its reason. O(n log n) in
/// events; about 100 bytes an event of memory besides the run, most of it given back before it
/// returns.
pub fn analyze(run: &Run) -> Analysis {
    analyze_by(run, None)
}

/// The same with less replayed where the deadline is near: what fixes win is then told by the last
/// part of the steps. All else takes its time.
pub fn analyze_by(run: &Run, deadline: Option<Instant>) -> Analysis {
    let kernels = KernelTable::new(run);
    let collectives = kernels.collectives();
    let valid = valid_span(run);
    let observed = Observed::new(valid, &run.blind);
    let mut a = Analysis {
        valid,
        blind: disjoint(run.blind.iter().filter(|b| b.span.clip(valid).ns() > 0)),
        steps: steps::find(run, &kernels, valid),
        ..Analysis::default()
    };
    a.steady = steady_span(run, &a);
    a.counts = Observed::new(a.steady, &run.blind);
    if !a.steps.steady().is_empty() {
        a.counts = a.counts.only(a.steps.steady().iter().map(|s| s.span));
    }
    let whose = LaunchOwner::new(run);
    // five bytes a call for each device: of many devices not all are kept
    let mut last = None;
    for device in &run.devices {
        let host = HostView::of(run, device, &whose);
        let found = attribute(run, device, &host, &collectives, (&observed, valid), (&a.counts, a.steady));
        let stood = |bucket| host.standing.stood(run, &found.slices, bucket, &a.counts);
        let (of_host, of_input) = (stood(Bucket::Host), stood(Bucket::Input));
        let stood = host.standing.stacks(run);
        let fetched_ns = host.fetched_ns(run, &a.counts);
        last = Some(host);
        a.devices.push(DeviceAnalysis {
            ordinal: device.ordinal,
            span: found.span,
            busy_ns: found.busy_ns,
            idle_ns: found.span.ns() - found.busy_ns,
            gaps: found.gaps,
            max_gap_ns: found.max_gap_ns,
            wall_ns: a.counts.total(),
            buckets: found.buckets,
            counters: Counters::of(run, device.ordinal, &[a.steady]),
            host: of_host,
            input: of_input,
            fetched_ns,
            launch: Dispatched::new(run, &found.slices, &a.counts),
            stood,
            slices: found.slices,
            small: found.small,
            ops: found.ops,
            kernels: found.kernels,
            start_before_launch: found.start_before_launch,
            most_before_launch_ns: found.most_before_launch_ns,
            launched: found.launched,
        });
    }
    a.worst = worst(&a.devices);
    weigh_losses(run, &mut a);
    a.coverage = coverage(run, &a, &observed);
    let worst = a.worst.and_then(|w| Some((w, run.devices.get(w)?)));
    let worst = worst.map(|(w, device)| {
        let host = last.take().filter(|_| w + 1 == run.devices.len());
        (device, host.unwrap_or_else(|| HostView::of(run, device, &whose)))
    });
    let steady = a.undisturbed();
    let (prepared, model) = worst.map_or_else(Default::default, |(device, host)| {
        replay::by(deadline, |most| Prepared::latest(most, run, device, &host, &collectives, steady))
    });
    a.model = model;
    causes::judge(run, &mut a, &prepared);
    show_what_the_host_does(&mut a);
    a.once = once::told(run, &a, &collectives);
    a.pauses = crate::gaps::pauses::of(run);
    a
}

/// Causes are judged by what set idle time off: with the wait gone that drained the queue, the time
/// behind it goes, too. What is shown of that time is what one sees in it: the host fetches data,
/// or computes.
fn show_what_the_host_does(a: &mut Analysis) {
    for d in &mut a.devices {
        for s in &mut d.slices {
            charged_to_the_host(&mut d.buckets, s, &a.counts);
            s.turn();
        }
    }
}

/// Takes the time of a slice from the bucket that set it off to the one that shows.
fn charged_to_the_host(buckets: &mut Buckets, slice: &IdleSlice, counts: &Observed) {
    if slice.charged != slice.bucket {
        let ns = counts.measure(slice.span());
        buckets.take(slice.bucket, ns);
        buckets.add(slice.charged, ns);
    }
}

/// From the newest overwritten event to the last flush. What a killed process's host events do not
/// reach is cut off too: a gap there has no launch to explain it.
fn valid_span(run: &Run) -> Span {
    let h = &run.header;
    Span::new(h.valid_from.max(h.start_monotonic), complete_to(h))
}

/// The steps' span, else first to last op of any device; always inside the valid span.
fn steady_span(run: &Run, a: &Analysis) -> Span {
    let ops = || run.devices.iter().flat_map(|d: &Device| &d.streams);
    let first = ops().filter_map(|s| s.ops.first()).map(|o| o.start).min().unwrap_or(0);
    let last = ops().flat_map(|s| s.ops.iter().map(|o| o.end)).max().unwrap_or(0);
    let all = Span::new(first, last).clip(a.valid);
    let steady = a.steps.steady();
    match (a.steps.source, steady.first(), steady.last()) {
        (StepSource::None, _, _) | (_, None, _) | (_, _, None) => all,
        (_, Some(s), Some(e)) => Span::new(s.span.start, e.span.end).clip(a.valid),
    }
}

/// The device with the most idle time among those that work.
fn worst(devices: &[DeviceAnalysis]) -> Option<usize> {
    working(devices).max_by_key(|(i, d)| (d.buckets.idle(), usize::MAX - i)).map(|(i, _)| i)
}

/// Losses of severity `Data` inside the valid span: the marks that reach into it, and what the
/// counters say beyond all marks (no time is known of those, so they are taken to lie in it). What
/// was lost before the first mark that is left was lost before that span: marks of it are as new as
/// it is.
fn weigh_losses(run: &Run, a: &mut Analysis) {
    for &loss in Loss::ALL {
        let total = run.header.loss(loss);
        if total > 0 {
            a.losses.push((loss, total));
        }
        if loss.severity() != Severity::Data {
            continue;
        }
        let marks = || run.loss_marks.iter().filter(|m| m.code == u32::from(loss.code()));
        let before = marks().next().map_or(0, |m| u64::from(m.before));
        let marked: u64 = marks().map(|m| u64::from(m.count)).sum::<u64>().saturating_add(before);
        let inside: u64 = marks()
            .filter(|m| m.span.end >= a.valid.start && m.span.start <= a.valid.end)
            .map(|m| u64::from(m.count))
            .sum();
        let anywhere = total.saturating_sub(marked);
        let counted = match loss {
            Loss::ZeroTimestamp | Loss::BackwardTimestamp => lacking(run, a, anywhere),
            _ => anywhere,
        };
        a.data_losses = a.data_losses.saturating_add(inside).saturating_add(counted);
    }
    // (a kernel that stood in a damaged place is lost once)
    let known = if run.foreign { run.damaged_events() } else { 0 };
    a.unanswered = missing_kernels::count(run).saturating_sub(known);
    a.data_losses = a.data_losses.saturating_add(run.damaged_events()).saturating_add(a.unanswered);
    let inside = |start: u64| start >= a.valid.start && start < a.valid.end;
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops).filter(|o| inside(o.start));
    let calls = run.threads.iter().flat_map(|t| &t.calls).filter(|c| inside(c.start));
    a.events = ops.count() as u64 + calls.count() as u64;
}

/// How many of `lost` single operations may be missing in the steps that count: where nearly all
/// steps have equally many, those that lack some. All of them where steps are too few or too
/// different to tell, or where each may lack one.
fn lacking(run: &Run, a: &Analysis, lost: u64) -> u64 {
    const LEAST_STEPS: usize = 10;
    const ALIKE_OF_TEN: usize = 9;
    let steps = a.steps.steady();
    if lost == 0 || steps.len() < LEAST_STEPS || lost.saturating_mul(2) > steps.len() as u64 {
        return lost;
    }
    let mut counts = vec![0u64; steps.len()];
    for op in run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops) {
        let at = steps.partition_point(|s| s.span.start <= op.start);
        let step = at.checked_sub(1).filter(|&i| steps.get(i).is_some_and(|s| op.start < s.span.end));
        if let Some(n) = step.and_then(|i| counts.get_mut(i)) {
            *n += 1;
        }
    }
    let usual = middle(&mut counts.clone()).unwrap_or(0);
    let alike = counts.iter().filter(|&&n| n == usual).count();
    if alike * 10 < counts.len() * ALIKE_OF_TEN {
        return lost;
    }
    lost.min(counts.iter().map(|&n| usual.saturating_sub(n)).sum())
}

fn coverage(run: &Run, a: &Analysis, observed: &Observed) -> Coverage {
    let h = &run.header;
    let first = match h.first_use {
        0 => h.start_monotonic,
        first => first,
    };
    // writing the report is not the program's time
    let last = match h.exit_monotonic {
        0 => h.last_write,
        exit => exit,
    };
    let unproven = run.unproven();
    let last = last.max(a.valid.end).max(unproven.unwrap_or(0));
    let seen = match unproven {
        // not known to be whole, but there
        Some(end) => Observed::new(Span::new(first.max(a.valid.start), end), &run.blind).total(),
        None => observed.measure(Span::new(first.max(a.valid.start), a.valid.end)),
    };
    let steps_seen = a.steps.seen() as u64;
    let overwritten = h.valid_from > h.start_monotonic;
    let away = is_away(run, a);
    let clock_unit = clock_unit(run, a, away);
    let most = last.saturating_sub(first).checked_div(a.steps.median_ns).unwrap_or(0);
    let (between, by_clock) = (h.total(Total::StepsBetween), h.total(Total::ClockSteps));
    let in_units = |steps: u64| (steps as f64 * clock_unit).round() as u64;
    // a clock that was learnt on the way has not counted what came before; one that never was has
    // counted nothing
    let windowed = steps_seen > 0 && a.steps.source != StepSource::Marks && unseen_between(run);
    let by_launches = windowed && by_clock == 0;
    let counted = match a.steps.source {
        // the counter has every thread's marks
        StepSource::Marks => (h.total(Total::Steps) as f64 * steps::marks::used_share(run)).round() as u64,
        _ if by_launches => {
            let recorded = if overwritten { steps_by_launches(run, a) } else { 0 };
            (recorded.max(steps_seen) + steps_between(run, a)).min(most.max(steps_seen))
        }
        _ if windowed => in_units(by_clock).max(steps_seen + in_units(between)),
        StepSource::Period if away && !overwritten => in_units(by_clock),
        // no more than there was time for: a program that went over from launches to graphs
        // launched more a step before
        StepSource::Period if overwritten => steps_by_launches(run, a).min(most),
        _ => 0,
    };
    Coverage {
        front_ns: if run.foreign { first_work(run, a).saturating_sub(first) } else { 0 },
        seen_ns: seen,
        run_ns: last.saturating_sub(first),
        steps_seen,
        steps_run: counted.max(steps_seen + a.steps.unplaced as u64),
        steps_estimated: by_launches
            || a.steps.source == StepSource::Period && (overwritten || clock_unit != 1.0),
        steps_unknown: a.steps.source == StepSource::Period && away && by_clock == 0 && !windowed,
        clock_unit,
        overwritten,
        killed: h.is_unfinished(),
        cut: h.is_unfinished() || ends_before_its_exit(run, a),
        signal: None, // a recording does not tell
    }
}

/// The begin of the first GPU operation or step of all, whichever comes first.
fn first_work(run: &Run, a: &Analysis) -> u64 {
    let ops = run.devices.iter().flat_map(|d| &d.streams).filter_map(|s| s.ops.first()).map(|o| o.start);
    let step = a.steps.all().first().map(|s| s.span.start);
    ops.chain(step).min().unwrap_or(0)
}

/// Is more than a step of the run's end not in what was flushed? (A last flush that was waited for
/// began behind that end, and the recording is closed some milliseconds later still.)
fn ends_before_its_exit(run: &Run, a: &Analysis) -> bool {
    let exit = run.header.exit_monotonic;
    let was_given_up = run.header.losses[trace::Loss::ExitFlushLate.code() as usize] > 0;
    was_given_up && exit > 0 && a.steps.median_ns > 0 && a.valid.end.saturating_add(a.steps.median_ns) < exit
}

/// Did the program go on between two windows, unrecorded?
fn unseen_between(run: &Run) -> bool {
    run.header.total(Total::LaunchesBetween) > 0 || between_ns(run) > 0
}

/// Did the program go on unobserved, for more than a step or two, for another reason than windows:
/// it was stopped, another profiler had the records, capture was off?
fn is_away(run: &Run, a: &Analysis) -> bool {
    const NOT_AWAY: [u32; 2] = [Unobserved::Window as u32, Unobserved::Front as u32];
    let spans = run.blind.iter().filter(|b| !NOT_AWAY.contains(&b.reason));
    spans.map(|b| b.span.ns()).sum::<u64>() > a.steps.median_ns.saturating_mul(2)
}

fn between_ns(run: &Run) -> u64 {
    let window = |b: &&UnobservedSpan| b.reason == Unobserved::Window as u32;
    run.blind.iter().filter(window).map(|b| b.span.ns()).sum()
}

/// Steps between windows where nothing counted them: by the launches that were counted there, else
/// by the time.
fn steps_between(run: &Run, a: &Analysis) -> u64 {
    let by_time = between_ns(run).checked_div(a.steps.median_ns).unwrap_or(0);
    let (launches, steps) = launches_of_steps(run, a);
    match run.header.total(Total::LaunchesBetween) {
        0 => by_time,
        _ if launches == 0 => by_time,
        between => (between as f64 / launches as f64 * steps as f64).round() as u64,
    }
}

/// Steps as they were found in the records, for each that was counted without them. The count goes
/// by the launch that comes once a step as far as it can tell: of a program that launches one
/// kernel over and over it is that kernel's, and not the period that waits for the device show. 1
/// where their times are alike, which they are to the cost of recording; else by the launches of
/// either, for where many short ones and a long one are counted in turn their median says nothing;
/// and by the times where no launches were counted.
fn clock_unit(run: &Run, a: &Analysis, away: bool) -> f64 {
    const ALIKE: std::ops::RangeInclusive<f64> = 0.6..=1.67;
    let (counted, found) = (run.header.total(Total::ClockStepNs), a.steps.median_ns);
    let is_counted = run.header.total(Total::LaunchesBetween) > 0 || away;
    if !is_counted || a.steps.source != StepSource::Period || counted == 0 || found == 0 {
        return 1.0;
    }
    let by_time = counted as f64 / found as f64;
    let alike = |ratio: f64| ALIKE.contains(&ratio);
    match launches_by_clock(run, a).filter(|_| !alike(by_time)).unwrap_or(by_time) {
        ratio if alike(ratio) => 1.0,
        ratio => ratio,
    }
}

/// Launches of a step that was counted between windows, for each of a step that was found.
fn launches_by_clock(run: &Run, a: &Analysis) -> Option<f64> {
    let total = |t| run.header.total(t) as f64;
    let (launches, steps) = launches_of_steps(run, a);
    let ratio = total(Total::LaunchesBetween) / total(Total::StepsBetween) * steps as f64 / launches as f64;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Steps of the whole run where only the last of them are in the recording: all launches by
/// launches a step.
fn steps_by_launches(run: &Run, a: &Analysis) -> u64 {
    let (seen, steps) = launches_of_steps(run, a);
    let all = run.header.total(Total::Launches).saturating_add(run.header.total(Total::GraphLaunches)) as f64;
    if seen == 0 {
        return 0;
    }
    (all / seen as f64 * steps as f64).round() as u64
}

/// The recorded launches from the first step to the end of the last, and these steps.
fn launches_of_steps(run: &Run, a: &Analysis) -> (usize, usize) {
    let steps = a.steps.all();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return (0, 0) };
    let span = Span::new(first.span.start, last.span.end);
    let inside = |c: &&Call| c.is_launch() && c.start >= span.start && c.start < span.end;
    let launches = run.threads.iter().flat_map(|t| &t.calls).filter(inside).count();
    (launches, steps.len())
}

/// Unobserved spans (by start, may overlap) side by side: what two of them have in common is the
/// first one's.
fn disjoint<'a>(spans: impl Iterator<Item = &'a UnobservedSpan>) -> Vec<UnobservedSpan> {
    let mut all: Vec<UnobservedSpan> = Vec::new();
    for b in spans {
        let from = all.last().map_or(0, |last| last.span.end).max(b.span.start);
        if from < b.span.end {
            all.push(UnobservedSpan { span: Span::new(from, b.span.end), ..*b });
        }
    }
    all
}
