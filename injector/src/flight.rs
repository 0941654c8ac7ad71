// SPDX-License-Identifier: Apache-2.0
// COLD (`ask` is WARM: the drain thread's)
//! The flight recorder (`GAPPROBE_FLIGHT`): when the alarm rings, a trace of the last seconds is
//! cut out of the recording in memory and written at once, on a thread of its own, while the
//! program goes on and recording with it. Nothing here is ever waited for: at the program's end
//! what is not written stays unwritten.
//!
//! Of a program that hangs the seconds are counted back from its last step: a hang is told after
//! ten seconds of it, and what led there lies before. Steps that became slow go on for a while
//! before the trace is cut, and have a verdict of their own: most of the seconds before are of
//! steps as usual.
//!
//! Bounded: ten traces a process, one in five minutes (`orders`); events by memory. A directory
//! that takes none costs the trace, not the line.

use std::path::Path;
use std::time::{Duration, Instant};

use trace::header::{state, HEADER_BYTES};
use trace::{Header, Source};
use verdict::output::report::{self, Report, ReportOptions};
use verdict::output::sentence;
use verdict::run::complete_to;
use verdict::run::Span;
use verdict::sites::Sites;
use verdict::text::duration::long;
use verdict::{Run, Window};

use crate::collector::drain;
use crate::duty_cycle::orders::{self, Order};
use crate::platform::settings::Settings;
use crate::platform::threads::{self, spawn_quietly};
use crate::platform::{clock, descriptors, lifecycle, say};
use crate::store::image::Image;

/// Records of what happened before the alarm may take so long to come, ns: a flush, a round. What a
/// hung GPU holds never comes.
const DELIVERY: u64 = 1_500_000_000;
/// Between two looks whether they have come, ms.
const LOOK_MS: u64 = 100;
/// Steps that have become slow are recorded so much longer, or half of what the trace is to hold,
/// ns: eight of them tell little of why.
const AFTER: u64 = 2_000_000_000;
/// A thread that does not launch is looked at ten times a second, after a minute once, ns.
const SEEN: u64 = 2_500_000_000;
/// Loaded around the seconds that count, ns: calls that launched their first operations.
const MARGIN: u64 = 20_000_000;
/// Bytes of `GAPPROBE_MAX_MB` for one event: some 125 at the peak of load and analysis, out of the
/// half that is neither the store's nor the buffers'.
const EVENT_BYTES: usize = 256;

/// Starts the thread, where the recorder is wanted.
pub(crate) fn start(settings: &'static Settings, image: Image) {
    if settings.flight_ns == 0 {
        return;
    }
    if !spawn_quietly("gapprobe-flight", move || run(settings, &image)) {
        say::complain("no flight recorder (GAPPROBE_FLIGHT): its thread could not be started");
        return;
    }
    orders::open();
}

/// The thread's body.
fn run(settings: &'static Settings, image: &Image) {
    while goes_on() {
        let Some(order) = orders::wait() else { continue };
        // a thread for each: it has descriptors of its own, of which one is the program's stderr,
        // and that is not kept open
        let image = *image;
        let begun = spawn_quietly("gapprobe-trace", move || {
            descriptors::leave_the_programs(Some(2));
            fly(settings, &image, &order);
            orders::done();
        });
        if !begun {
            orders::done();
        }
    }
}

fn header(image: &Image) -> Option<Header> {
    let mut bytes = [0; HEADER_BYTES];
    image.read_at(0, &mut bytes).then(|| Header::decode(&bytes).ok()).flatten()
}

/// Has the program not begun to end? What is read of the image later may be gone.
fn goes_on() -> bool {
    lifecycle::get() == lifecycle::State::Recording
}

/// Writes one trace.
fn fly(settings: &Settings, image: &Image, order: &Order) {
    let after = if order.slow_since.is_some() { AFTER.min(settings.flight_ns / 2) } else { 0 };
    let at = order.at.saturating_add(after);
    let late = at.saturating_add(DELIVERY);
    let is_complete = || header(image).is_some_and(|h| complete_to::complete_to(&h) >= at);
    while goes_on() && clock::monotonic() < late && !is_complete() {
        threads::pause(LOOK_MS);
    }
    let valid = Span::new(at.saturating_sub(settings.flight_ns.saturating_add(order.quiet)), at);
    let most = (settings.max_bytes / EVENT_BYTES) as u64;
    let mut why = order.why.clone();
    // (before the other is loaded: one at a time has room)
    if let Some(found) = order.slow_since.and_then(|since| verdict_of(image, Span::new(since, at), most)) {
        why.push_str(&format!("; of the slow ones: {found}"));
    }
    let Ok(mut run) = verdict::load_window(image, &Window { valid, margin: MARGIN, most }) else { return };
    if !goes_on() {
        return;
    }
    if let Some(open) = order.unobserved {
        complete_to::unobserved_to(&mut run, open.since, at, open.why);
    }
    run.header.state = state::CLOSED; // nobody was killed
    let folder = settings.folder();
    let mut options = ReportOptions::new(&folder);
    (options.names)(&mut run, None);
    let analysis = verdict::analyze(&run);
    if !goes_on() {
        return;
    }
    let valid = Span::new(valid.start.max(run.header.start_monotonic), valid.end);
    let hangs = order.quiet > 0;
    if let Some((thread, place)) = hangs.then(|| stands_at(&run, at)).flatten() {
        why.push_str(&format!("; the {thread} thread stands at {place}"));
    }
    let because = because(&why, valid, analysis.coverage.seen_ns, order.unobserved.is_some());
    (options.live, options.threaded) = (true, false);
    options.named_by = Some(run.realtime(valid.start));
    options.because = Some(&because);
    let report = report::write(&run, &analysis, &options);
    if goes_on() {
        tell(settings, &why, &report);
    }
}

/// What the steps of a span alone say, if they say anything.
fn verdict_of(image: &Image, valid: Span, most: u64) -> Option<String> {
    let mut run = verdict::load_window(image, &Window { valid, margin: MARGIN, most }).ok()?;
    if !goes_on() {
        return None;
    }
    run.header.state = state::CLOSED; // nobody was killed
    (ReportOptions::new(Path::new("")).names)(&mut run, None);
    sentence::verdict(&verdict::analyze(&run))
}

/// Which thread it is, and where it was seen last in Python, if that was no longer than [`SEEN`]
/// before the alarm: the one that launches, and where no calls were recorded the main one.
fn stands_at(run: &Run, at: u64) -> Option<(&'static str, String)> {
    let launching = run.threads.iter().filter(|t| !t.calls.is_empty()).max_by_key(|t| t.calls.len());
    let main = || run.threads.iter().find(|t| t.tid == run.header.pid).map(|t| ("main", t));
    let (name, thread) = launching.map(|t| ("launching", t)).or_else(main)?;
    let last = thread.samples.last().filter(|s| s.stack != 0 && s.span.end.saturating_add(SEEN) >= at)?;
    let mut sites = Sites::new(run);
    let number = sites.of(last.stack)?;
    sites.get(number).map(|site| (name, site.to_string()))
}

/// Why, of how long the trace is, and how much of that was recorded.
fn because(why: &str, valid: Span, seen: u64, is_off: bool) -> String {
    let all = valid.ns();
    if seen.saturating_add(all / 50) >= all {
        return format!("{why}. The last {}", long(all));
    }
    let rest = match is_off {
        true => "of the rest steps, launches and waits are counted at most",
        false => "of the rest the GPU has delivered nothing yet",
    };
    format!("{why}. The last {}, {} of them recorded ({rest})", long(all), long(seen))
}

fn tell(settings: &Settings, why: &str, report: &Report) {
    let problem = report.problems.first();
    if report.trace.is_some() {
        let number = orders::one_more();
        let name = report.trace.as_deref().and_then(Path::file_name).unwrap_or_default();
        let text = format!("{}: {why}", name.to_string_lossy());
        // the run's own recording says which there are
        if let Some(mut recorder) = drain::recorder_by(Instant::now() + Duration::from_secs(1)) {
            if let Some(recorder) = recorder.as_mut().filter(|r| r.header.state == state::RECORDING) {
                recorder.store.attribute(&format!("flight.{number}"), &text);
            }
        }
    }
    if settings.speaks() {
        let problem = problem.map_or(String::new(), |p| format!(" ({p})"));
        say::line(&format!("gapprobe: {}{problem}", report.line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_was_not_recorded_is_said() {
        let of = |seen, is_off| because("why", Span::new(S, 31 * S), seen, is_off);
        assert_eq!(of(30 * S, true), "why. The last 30 s");
        let part = "why. The last 30 s, 4.0 s of them recorded (of the rest ";
        assert_eq!(of(4 * S, true), format!("{part}steps, launches and waits are counted at most)"));
        assert_eq!(of(4 * S, false), format!("{part}the GPU has delivered nothing yet)"));
    }
}
