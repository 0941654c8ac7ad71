// SPDX-License-Identifier: Apache-2.0
//! `gapprobe capture`: a window of a process that runs on. Cut out of its growing recording; where
//! the program has recording switched off, the process is asked to hold it on meanwhile
//! (`hold.rs`), which ends with this command, however it ends.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cli::live::{complete_to, has_ended, RecordingState};
use trace::event::Unobserved;
use trace::header::sources::YIELDED;
use trace::header::state;
use trace::setting;
use trace::{Header, Total};
use verdict::analysis::{Step, StepSource};
use verdict::output::report;
use verdict::output::report::ReportOptions;
use verdict::run::Span;
use verdict::text::duration::long;
use verdict::text::plural::counted;
use verdict::timeline::kernels::KernelTable;
use verdict::timeline::Observed;
use verdict::{load_window, steps, Run, Window};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::hold::Hold;
use crate::verbs::living::{self, header_now, Living};
use crate::verbs::recordings::FileSource;
use crate::verbs::{figures, output, process, recover, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe capture 4242                      the next 20 steps of process 4242
  gapprobe capture 4242 --steps 5 -o traces
  gapprobe capture 4242 --seconds 2          two seconds, steps or not
  gapprobe capture 4242 --last --steps 50    what it did just now, without waiting
  gapprobe capture 4242 --last 30            the last 30 seconds, what was not recorded of them too";

/// Why a process that has recording switched off for good does not switch it on.
const NO_MORE: &str =
    "has it off for good: where launches are not seen without CUPTI recording ends after a \
                       minute of work; GAPPROBE_BUDGET=100 records everything";

/// A trace of the next steps of a recorded process, which runs on
///
/// Trace and summary are written, and the line goes to stdout. Where the program has recording
/// switched off (GAPPROBE_CAPTURE=profiler), it is switched on for so long. Without steps to be
/// found (no marks, no period in the launches) the window ends with its time.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Its pid as gapprobe ps shows it, or its recording (.gpr)
    #[arg(value_name = "PID|FILE")]
    process: String,
    /// So many whole steps, 3 to 100000 [default: 20, without --seconds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=100_000))]
    steps: Option<u32>,
    /// At most so long, at most 10m [default: 60s]
    #[arg(long, value_name = "S", value_parser = window)]
    seconds: Option<Duration>,
    /// The last steps that are recorded already, not the next; with S, the last so many seconds up
    /// to now
    #[arg(long, value_name = "S", num_args = 0..=1, value_parser = window)]
    last: Option<Option<Duration>>,
    /// Directory for trace and summary [default: GAPPROBE_DIR, else the current one]
    #[arg(short = 'o', long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the summary (JSON) instead of the line
    #[arg(long)]
    json: bool,
}

fn window(text: &str) -> Result<Duration, String> {
    let time = figures::time(text)?;
    if time > MOST {
        return Err("at most 10m".to_owned());
    }
    Ok(time)
}

/// Steps without being told.
const STEPS: u32 = 20;
/// Longest time that can be asked for.
const MOST: Duration = Duration::from_secs(600);
/// Longest time for steps without being told.
const LONGEST: Duration = Duration::from_secs(60);
/// What lies before the window is looked at for the period of the launches, ns.
const CONTEXT: u64 = 3_000_000_000;
/// Steps that nothing but a period in the launches tells are believed once they followed each other
/// for so long without one of another kind, ns: within one step its layers, or an optimizer's
/// launches for each parameter, have a period, too, until they end (H100: 20 steps of 0.17 ms were
/// told in one of 47 ms). As long as a step's anchor has to come evenly
/// (`injector/src/duty_cycle/step_clock.rs`).
const UNBROKEN: u64 = 2_000_000_000;
/// Else, or where they may be parts of longer ones all the same, once so much was observed, ns.
const DOUBTED: u64 = 10_000_000_000;
/// Between two looks at the recording: CUPTI delivers every 250 ms.
const LOOK: Duration = Duration::from_millis(250);
/// How long records may take after the window's end: a flush, a round, a write.
const DELIVERY: Duration = Duration::from_secs(3);
/// A process that is stopped for so long is not waited for, ns: as long as for its answer (`Hold`).
const STOPPED: u64 = 3_000_000_000;

/// What came of the waiting.
#[derive(Default)]
struct Cut {
    valid: Span,
    /// Around it, for calls that launched its first operations.
    margin: u64,
    /// Why it is not all that was asked for.
    why: Option<String>,
    /// Since then nothing was recorded, and why.
    unobserved: Option<(u64, Unobserved)>,
}

/// Waits for the window, cuts it out, writes it.
pub(crate) fn run(args: &Args) -> Outcome {
    process::give_way();
    if let (Some(Some(_)), true) = (args.last, args.steps.is_some() || args.seconds.is_some()) {
        let what = "--last with a time takes that time: neither --steps nor --seconds goes with it";
        return Err(Failure::new(Exit::WrongUse, what)
            .hint("the last steps, of at most so long: --last --steps N --seconds S"));
    }
    let target = living::one(&args.process)?;
    let source = target.open()?;
    let directory = args.dir.clone().unwrap_or_else(recover::default_directory);
    output::is_directory(&directory, if args.dir.is_some() { "--dir" } else { setting::DIR })?;
    let mut capture =
        Capture { args, target: &target, hold: None, latest: Header::default(), begin: process::monotonic() };
    let cut = match args.last {
        Some(time) => capture.last(&source, time)?,
        None => capture.next(&source)?,
    };
    if cut.valid.ns() == 0 {
        let nothing = cut.why.unwrap_or_else(|| "nothing was recorded in that time".to_owned());
        return Err(Failure::new(Exit::Problem, format!("process {}: {nothing}", target.header.pid)));
    }
    let window = Window { valid: cut.valid, margin: cut.margin, most: u64::MAX };
    let mut run = load(&target, &source, &window)?;
    if let Some((since, why)) = cut.unobserved {
        verdict::run::complete_to::unobserved_to(&mut run, since, cut.valid.end, why);
    }
    run.cut_out = true;
    run.header.state = state::CLOSED; // the window is whole, and nobody was killed in it
    drop(capture); // what was held on is let go before the work begins
    process::survive_file_limit();
    let analysis = verdict::analyze(&run);
    let from = run.realtime(analysis.valid.start.max(cut.valid.start));
    let because = cut.unobserved.and(cut.why.as_deref());
    let options =
        ReportOptions { live: true, because, named_by: Some(from), ..ReportOptions::new(&directory) };
    let done = report::write(&run, &analysis, &options);
    if let Some(why) = &cut.why {
        talk::say(format!("gapprobe: {why}"));
    }
    for path in [&done.trace, &done.summary].into_iter().flatten() {
        talk::say(format!("gapprobe: wrote {}", path.display()));
    }
    match args.json {
        true => talk::print_json(&done.summary_text)?,
        false => talk::print(&done.line)?,
    }
    match done.problems.first() {
        None => Ok(Exit::Ok),
        Some(problem) => {
            Err(Failure::new(Exit::Problem, problem.clone())
                .hint("name a directory that can be written: -o DIR"))
        }
    }
}

fn load(target: &Living, source: &FileSource, window: &Window) -> Result<Run, Failure> {
    load_window(source, window)
        .map_err(|e| Failure::new(Exit::Unreadable, format!("{}: {e}", target.path.display())))
}

struct Capture<'a> {
    args: &'a Args,
    target: &'a Living,
    /// Recording is held on for us as long as this lives.
    hold: Option<Hold>,
    /// The header as seen last.
    latest: Header,
    /// The window begins here or later.
    begin: u64,
}

impl Capture<'_> {
    fn steps(&self) -> Option<usize> {
        match (self.args.steps, self.args.seconds) {
            (None, Some(_)) => None,
            (n, _) => Some(n.unwrap_or(STEPS) as usize),
        }
    }

    fn longest(&self) -> Duration {
        self.args.seconds.unwrap_or(LONGEST)
    }

    /// The next steps or seconds.
    fn next(&mut self, source: &FileSource) -> Result<Cut, Failure> {
        let longest = self.longest().as_nanos() as u64;
        let mut header = self.header(source)?;
        self.refuse_stopped(&header)?;
        self.hold_if_off(source, &header)?;
        let begun = Instant::now();
        let mut pause = LOOK;
        loop {
            std::thread::sleep(pause);
            header = self.header(source)?;
            if self.is_stopped(&header) && complete_to(&header) > self.begin {
                return Ok(self.until_stopped(complete_to(&header)));
            }
            self.refuse_stopped(&header)?;
            self.hold_if_off(source, &header)?;
            let ended =
                RecordingState::of(&header, process::monotonic()) == RecordingState::Ending || !self.runs();
            if ended {
                // its last records come with its last round
                header = self.header(source)?;
            }
            let until = self.begin.saturating_add(longest);
            let complete = complete_to(&header);
            let mut seen = 0;
            if let Some(wanted) = self.steps().filter(|_| complete > self.begin) {
                let looked = Instant::now();
                let found = self.find(source, Span::new(self.begin, complete.min(until)))?;
                if let Some(cut) = found.first(wanted).filter(|_| found.is_settled) {
                    return Ok(cut);
                }
                seen = found.spans.len();
                let left = found.median.saturating_mul(wanted.saturating_sub(seen) as u64);
                // not more than a quarter of the time with looking, and not before the rest can be
                // there
                pause = LOOK.max(looked.elapsed() * 3).max(Duration::from_nanos(left.min(5_000_000_000)));
            }
            let late = begun.elapsed() > self.longest() + DELIVERY;
            if complete >= until || late || ended {
                return Ok(self.rest(complete.min(until), seen, ended));
            }
            let left = (self.longest() + DELIVERY / 2).saturating_sub(begun.elapsed());
            pause = pause.min(left.max(Duration::from_millis(50)));
        }
    }

    /// Stopped, and not for a moment: a header is written every 50 ms.
    fn is_stopped(&self, header: &Header) -> bool {
        let silent = process::monotonic().saturating_sub(header.last_write.max(header.start_monotonic));
        silent > STOPPED && self.target.is_stopped()
    }

    fn refuse_stopped(&self, header: &Header) -> Result<(), Failure> {
        match self.is_stopped(header) {
            true => Err(self.stopped()),
            false => Ok(()),
        }
    }

    /// Nothing comes of a process that is stopped, whether its recording is on or off.
    fn stopped(&self) -> Failure {
        let pid = self.target.header.pid;
        let what =
            format!("process {pid} is stopped (SIGSTOP, or a debugger): it does nothing to be recorded");
        Failure::new(Exit::Problem, what).hint(format!(
            "kill -CONT {pid} lets it go on; what it did before: gapprobe capture {pid} --last"
        ))
    }

    fn until_stopped(&self, to: u64) -> Cut {
        let why = "the process was stopped meanwhile: this is what it did until then".to_owned();
        Cut { valid: Span::new(self.begin, to), why: Some(why), ..Cut::default() }
    }

    /// What was asked for is not there: all there is.
    fn rest(&self, to: u64, seen: usize, ended: bool) -> Cut {
        let valid = Span::new(self.begin, to);
        let why = match (self.steps(), ended) {
            (_, true) => Some("the program ended meanwhile: this is what it did until then".to_owned()),
            _ if valid.ns() == 0 => Some(self.nothing().to_owned()),
            (Some(wanted), false) if seen >= wanted => {
                let time = self.longest().as_secs_f64();
                Some(format!(
                    "what repeats was not seen for long enough in {time} s to be taken for steps: this is all of that time (--seconds waits longer)"
                ))
            }
            (Some(wanted), false) => {
                let seen = if seen == 0 { "no step".to_owned() } else { counted(seen as u64, "step") };
                let time = self.longest().as_secs_f64();
                Some(format!(
                    "{seen} of {wanted} found in {time} s: this is all of that time (--seconds waits longer)"
                ))
            }
            (None, false) => None,
        };
        Cut { valid, why, ..Cut::default() }
    }

    /// Why nothing at all was recorded.
    fn nothing(&self) -> &'static str {
        let latest = &self.latest;
        if latest.sources & YIELDED != 0 {
            "nothing was recorded in that time: another profiler has the GPU's records"
        } else if latest.host_complete_to < self.begin {
            "recording could not be switched on in that time (it is switched at a launch)"
        } else if latest.gpu_complete_to < self.begin {
            "the GPU is at work since before that time, and gives its records when it is done"
        } else {
            "nothing was recorded in that time (gapprobe ps shows how its recording stands)"
        }
    }

    /// The last steps or seconds; `time`: so long, up to now.
    fn last(&mut self, source: &FileSource, time: Option<Duration>) -> Result<Cut, Failure> {
        let header = self.header(source)?;
        if let Some(time) = time {
            let mut cut = up_to_now(&header, has_ended(source), time);
            if self.is_stopped(&header) {
                let last = header.last_write.max(header.start_monotonic);
                let ago = long(process::monotonic().saturating_sub(last));
                let text = format!(
                    "the process is stopped (SIGSTOP, or a debugger): this is what it did until {ago} ago"
                );
                cut.why = Some(cut.why.map_or(text.clone(), |why| format!("{text}; {why}")));
            }
            return Ok(cut);
        }
        let to = complete_to(&header);
        let span = Span::new(to.saturating_sub(self.longest().as_nanos() as u64), to);
        let span = Span::new(span.start.max(header.valid_from).max(header.start_monotonic), to);
        let Some(wanted) = self.steps() else { return Ok(Cut { valid: span, ..Cut::default() }) };
        let found = self.find(source, span)?;
        if let Some(cut) = found.last(wanted) {
            return Ok(cut);
        }
        self.begin = span.start;
        let seen = counted(found.spans.len() as u64, "step");
        let why =
            format!("only {seen} of {wanted} are in the recording's last {:.1} s", span.ns() as f64 / 1e9);
        Ok(Cut { valid: span, why: Some(why), ..Cut::default() })
    }

    /// Whole steps inside `span`. What is before it is looked at as well: a period shows in several
    /// of its turns.
    fn find(&self, source: &FileSource, span: Span) -> Result<Found, Failure> {
        let from = Span::new(span.start.saturating_sub(CONTEXT), span.end);
        // (the margin: the mark behind the last step)
        let window = Window { valid: from, margin: 0, most: verdict::output::report::MOST_EVENTS };
        let run = load(self.target, source, &window)?;
        let valid = Span::new(run.header.valid_from.max(run.header.start_monotonic), span.end);
        let found = steps::find(&run, &KernelTable::new(&run), valid);
        let is_settled = found.source != StepSource::Period
            || !found.may_be_parts && unbroken(&found.steps) >= UNBROKEN
            || Observed::new(valid, &run.blind).total() >= DOUBTED;
        let begin = |s: &Step| s.span.start.min(s.host.start);
        let inside = found.steps.iter().filter(|s| begin(s) >= span.start && s.span.end <= span.end);
        let spans = inside.map(|s| Span::new(begin(s), s.span.end)).collect();
        Ok(Found { spans, median: found.median_ns, is_settled })
    }

    fn header(&self, source: &FileSource) -> Result<Header, Failure> {
        header_now(source).ok_or_else(|| {
            Failure::new(
                Exit::Unreadable,
                format!("{}: its header cannot be read", self.target.path.display()),
            )
        })
    }

    fn runs(&self) -> bool {
        self.target.elsewhere
            || spool::liveness::life(&(&self.target.header).into()) == spool::liveness::Life::Runs
    }

    /// Where the program has recording switched off: has it held on from now to the window's end,
    /// and so where another command does, which may end before.
    fn hold_if_off(&mut self, source: &FileSource, header: &Header) -> Result<(), Failure> {
        self.latest = header.clone();
        let is_off = RecordingState::of(header, process::monotonic()) == RecordingState::Off;
        if self.hold.is_some() || !(is_off || header.held_until > 0) {
            return Ok(());
        }
        let pid = self.target.header.pid;
        let off = |why: &str| {
            Failure::new(Exit::Problem, format!("process {pid} has recording switched off, and {why}"))
        };
        if has_ended(source) {
            return Err(off(NO_MORE));
        }
        let silent = |why: String| if self.target.is_stopped() { self.stopped() } else { off(&why) };
        let (hold, since) = Hold::begin(self.target).map_err(silent)?;
        self.begin = self.begin.max(since);
        self.hold = Some(hold);
        Ok(())
    }
}

/// The last seconds, recorded or not: what was not is unobserved, never idle.
fn up_to_now(header: &Header, has_ended: bool, time: Duration) -> Cut {
    let is_off = RecordingState::of(header, header.last_write) == RecordingState::Off;
    let to = if is_off { header.last_write } else { complete_to(header) };
    let from = to.saturating_sub(time.as_nanos() as u64).max(header.valid_from).max(header.start_monotonic);
    let (why, reason) = if header.sources & YIELDED != 0 {
        (Unobserved::Yielded, "another profiler has the GPU's records")
    } else if has_ended {
        (Unobserved::Window, "recording has ended for good")
    } else if header.total(Total::Windows) > 0 {
        (Unobserved::Window, "between two windows")
    } else {
        (Unobserved::CaptureOff, "recording is switched off")
    };
    let unobserved = is_off.then_some((header.host_complete_to, why));
    let valid = Span::new(from.min(to), to);
    let text = unobserved.map(|(since, _)| {
        let off = Span::new(since.max(valid.start), valid.end).ns();
        format!("the last {}, {} of them not recorded ({reason})", long(valid.ns()), long(off))
    });
    Cut { valid, why: text, unobserved, ..Cut::default() }
}

/// How long alike steps follow each other at most, ns.
fn unbroken(steps: &[Step]) -> u64 {
    let follows = |a: &Step, b: &Step| !b.odd && b.span.start.saturating_sub(a.span.end) <= a.span.ns();
    let stretches = steps.chunk_by(follows);
    let of = |s: &[Step]| {
        // (the first one of a stretch may be of another kind)
        let from = if s.first()?.odd { s.first()?.span.end } else { s.first()?.span.start };
        Some(s.last()?.span.end.saturating_sub(from))
    };
    stretches.filter_map(of).max().unwrap_or(0)
}

struct Found {
    /// From its mark (or first operation) to its end on the GPU, each.
    spans: Vec<Span>,
    median: u64,
    /// They are steps, not parts of one.
    is_settled: bool,
}

impl Found {
    fn first(&self, wanted: usize) -> Option<Cut> {
        self.cut(self.spans.get(..wanted)?)
    }

    fn last(&self, wanted: usize) -> Option<Cut> {
        self.cut(self.spans.get(self.spans.len().checked_sub(wanted)?..)?)
    }

    fn cut(&self, steps: &[Span]) -> Option<Cut> {
        let valid = Span::new(steps.first()?.start, steps.last()?.end);
        Some(Cut { valid, margin: self.median, ..Cut::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_follow_each_other_until_one_of_another_kind_or_a_hole() {
        let step = |start: u64, end: u64, odd: bool| Step {
            span: Span::new(start, end),
            host: Span::new(start, end),
            number: 0,
            warm_up: false,
            odd,
        };
        let layers = |from: u64| (0..240).map(move |n| step(from + n * 10, from + n * 10 + 10, false));
        // an optimizer's launches of two steps, with all the rest of the second one between
        let mut steps: Vec<Step> = layers(0).collect();
        steps.push(step(2400, 9000, true));
        steps.extend(layers(9000));
        assert_eq!(unbroken(&steps), 2400);
        let mut whole: Vec<Step> = (0..20).map(|n| step(n * 100, n * 100 + 100, n == 0)).collect();
        assert_eq!(unbroken(&whole), 1900, "the first one is warm-up");
        whole.drain(5..8);
        assert_eq!(unbroken(&whole), 1200, "between windows nothing is known");
        assert_eq!(unbroken(&[]), 0);
    }
}
