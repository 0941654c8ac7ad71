// SPDX-License-Identifier: Apache-2.0
// COLD
//! The program ends: flush, last round, trace, summary and line, within one deadline
//! (`GAPPROBE_EXIT_MS`). The work is done on threads of ours, which have been there since recording
//! began; the exiting thread only waits, takes no lock for long, allocates nothing and asks no
//! disk: it may be in a signal handler that interrupted malloc, or be allowed no more threads, and
//! the disk may be another machine's that does not answer. What is not done in time stays in the
//! recording, and the line names the command that finishes it. Never `cuptiFinalize`, nothing in
//! destructors.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spool::retention;
use trace::Loss;

use crate::collector::{drain, flush};
use crate::duty_cycle::orders;
use crate::platform::guard::guard;
use crate::platform::settings::{self, Settings};
use crate::platform::threads::{self, Signal};
use crate::platform::{clock, descriptors, heap, lifecycle, losses, say};
use crate::recording::{self, crashes, folders, half_files, writer};

pub(crate) mod handler;

use handler::Who;

/// How far the end is.
struct End {
    /// The report is written, or its thread has failed. Looked at, not waited for: a lock that the
    /// failing thread still holds must not hold the program.
    done: AtomicBool,
    reported: AtomicBool,
    /// The report is wanted, by this time.
    wanted: Signal,
    deadline: AtomicU64,
}

static END: End = End {
    done: AtomicBool::new(false),
    reported: AtomicBool::new(false),
    wanted: Signal::new(),
    deadline: AtomicU64::new(0),
};

/// The exit handler. `None`, and nothing done: it was left before, or there is nothing to leave (no
/// GPU use).
fn leave() -> Option<Who> {
    if lifecycle::get() == lifecycle::State::Attached {
        lifecycle::set(lifecycle::State::Inert); // CUDA was initialised and never used
    }
    let settings = settings::get()?;
    if heap::has_ended_us() {
        heap::say_it();
    }
    if !matches!(lifecycle::get(), lifecycle::State::Recording | lifecycle::State::Leaving) {
        return None;
    }
    let who = handler::come(settings.exit_ms);
    if let Who::ExitingThread = who {
        lifecycle::set(lifecycle::State::Leaving);
        see_the_report_made(settings);
        lifecycle::set(lifecycle::State::Inert);
    }
    Some(who)
}

/// On the exiting thread. A signal may interrupt it anywhere here, and the handler call `exit`:
/// then this begins anew, with what is left of the time, and the interrupted call never goes on.
fn see_the_report_made(settings: &Settings) {
    static BEGIN: AtomicU64 = AtomicU64::new(0);
    let now = clock::monotonic();
    let begin = BEGIN.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire).err().unwrap_or(now);
    let spent = Duration::from_nanos(now.saturating_sub(begin));
    let begin = Instant::now();
    let within = |ms: u64| begin + Duration::from_millis(ms).saturating_sub(spent);
    let deadline = within(settings.exit_ms);
    // flushing may take a third of it; a hung flush is left hanging on its own thread
    let flush_until = within(settings.exit_ms / 3);
    flush::ask_last();
    while !flush::last_is_done() && Instant::now() < flush_until {
        threads::pause(1);
    }
    if !flush::last_is_done() {
        losses::add(Loss::ExitFlushLate, 1);
    }
    let left = deadline.saturating_duration_since(Instant::now());
    END.deadline.store(clock::monotonic() + left.as_nanos() as u64, Ordering::Relaxed);
    END.wanted.set();
    while !END.done.load(Ordering::Acquire) && Instant::now() < deadline {
        if heap::has_ended_us() {
            heap::say_it();
            give_up();
            return;
        }
        threads::pause(1);
    }
    if !END.done.load(Ordering::Acquire) && !END.reported.swap(true, Ordering::AcqRel) {
        // the thread that writes ends with the process, wherever it is: nobody else would remove
        // its half file
        give_up();
        unfinished(settings);
    }
    if orders::is_busy() {
        give_up(); // its thread ends with the process, too
    }
}

/// So long a disk that does not answer is waited for once the line is said.
const GRACE: Duration = Duration::from_millis(300);

/// Removing them takes a local disk microseconds. What another machine's has not done by then is
/// left for the next report's sweep.
const REMOVAL: Duration = Duration::from_millis(100);

/// Nothing is finished any more, and half files go.
fn give_up() {
    if !verdict::output::report::give_up() {
        return;
    }
    half_files::want_removed();
    let until = Instant::now() + REMOVAL;
    while !half_files::are_removed() && Instant::now() < until {
        threads::pause(1);
    }
}

/// Says so, and what comes of the recording: `gapprobe run` makes the report then, and removes it.
fn unfinished(settings: &Settings) {
    let (exit_ms, taken_up) = (settings.exit_ms, settings.run_id.is_some());
    let mut digits = [0; 20];
    let start: &[u8] = b"gapprobe: the report was not ready within ";
    let (ms, end): (&[u8], &[u8]) = (decimal(exit_ms, &mut digits), b" ms (GAPPROBE_EXIT_MS)");
    match recording::shown_path() {
        Some(path) if taken_up => {
            say::parts(&[start, ms, end, b"; gapprobe run goes on with the recording ", path]);
        }
        Some(path) => {
            say::parts(&[start, ms, end, b". Next: gapprobe recover ", path]);
        }
        None => say::parts(&[start, ms, end]),
    }
}

/// The digits of a number, at the end of `digits`.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut from = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        (number, from) = (number / 10, at);
        if number == 0 {
            break;
        }
    }
    digits.get(from..).unwrap_or(&[])
}

/// The body of the thread that reports.
pub(crate) fn run() {
    while !END.wanted.is_set() {
        END.wanted.wait(Duration::from_secs(3600));
    }
    let ended = guard(false, || {
        let left = END.deadline.load(Ordering::Relaxed).saturating_sub(clock::monotonic());
        report(Instant::now() + Duration::from_nanos(left));
        true
    });
    if !ended && !END.reported.swap(true, Ordering::AcqRel) {
        // the exiting thread need not wait for a thread that is gone
        let next =
            recording::path().map_or(String::new(), |p| format!(". Next: gapprobe recover {}", p.display()));
        say::line(&format!("gapprobe: the report failed (a fault in gapprobe: please report it){next}"));
    }
    END.done.store(true, Ordering::Release);
}

/// The last round, then the report from the store.
fn report(deadline: Instant) {
    let Some(settings) = settings::get() else { return };
    let Some(mut guard) = drain::recorder_by(deadline) else {
        // whoever is first at the deadline says so
        if !END.reported.swap(true, Ordering::AcqRel) {
            unfinished(settings);
        }
        return;
    };
    let Some(recorder) = guard.as_mut() else { return };
    recorder.round();
    recorder.close(clock::monotonic());
    // the file may have a quarter of the time that is left: where its disk does not answer, what is
    // in memory makes the report
    let left = deadline.saturating_duration_since(Instant::now());
    let answers = writer::finish(&mut recorder.store, &recorder.header, Instant::now() + left / 4);
    // (what is asked of CUPTI and the driver is asked: from here on there are files alone, and the
    // line)
    descriptors::leave_the_programs(Some(2));
    let image = recorder.store.image;
    // (a program may have removed it right before its end)
    let mirror: Option<PathBuf> = recording::path().filter(|p| !answers || p.exists()).map(Path::to_owned);
    let folder = settings.folder();
    let mut options = verdict::output::report::ReportOptions::new(&folder);
    options.deadline = Some(deadline);
    options.keep = settings.keep;
    options.lock = folders::lock;
    // about 81 bytes an event at the peak: 63 % of the memory allowed, while the image's 40 % are
    // given back
    options.most_events = (settings.max_bytes / 128) as u64;
    let give_back = || image.give_back();
    options.loaded = Some(&give_back);
    let report = verdict::output::report::report(&image, &options);
    if answers {
        crashes::ended_in_order();
    }
    if END.reported.swap(true, Ordering::AcqRel) {
        return; // the deadline passed and the line was said
    }
    match report {
        Ok(mut report) => {
            report.taken_up = settings.run_id.is_some();
            let whole = report.is_complete();
            let speaks = settings.speaks();
            let calls_for_more = mirror.is_some() && !report.is_cut_to_size();
            if !whole && (calls_for_more || speaks) {
                say::line(&report.unfinished(mirror.as_deref(), settings.exit_ms));
            } else if speaks {
                say::line(&report.line);
            }
            // (a disk that has not answered so far is not waited for that long: the line is said)
            let until = if answers { deadline } else { deadline.min(Instant::now() + GRACE) };
            if !whole {
                writer::note_spoken(until);
            } else if !settings.test_keep {
                writer::remove(until);
            }
            if let Some(folder) = recording::folder().filter(|_| answers) {
                spool::leftovers::recordings(folder, Some(deadline));
                retention::recordings(folder, settings.keep.of_recordings(), folders::lock, Some(deadline));
                let _ = std::fs::remove_dir(folder); // it stays while it holds anything
            }
        }
        Err(error) => {
            let next = mirror.map_or(String::new(), |p| format!(". Next: gapprobe recover {}", p.display()));
            say::line(&format!("gapprobe: no report: {error}{next}"));
        }
    }
}
