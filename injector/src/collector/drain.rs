// SPDX-License-Identifier: Apache-2.0
// WARM
//! The background thread: takes what the program's threads and CUPTI left, puts it into the store,
//! and leaves that to who writes the file (`recording/writer.rs`). All its signals are blocked.
//! (Asking CUPTI for buffers is a thread of its own, `flush`: it may take seconds.)
//!
//! The recorder's lock is held while buffers and rings are taken, never across a write to a disk or
//! a call that makes CUPTI call us back. No callback takes it. Who leaves takes it over (`leave`).
//! `drain/facts.rs`: header and names; `drain/pace.rs`: how soon the next round comes;
//! `drain/lost.rs`: when events were lost.

mod facts;
mod lost;
mod pace;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lost::Lost;
use pace::Pace;
use parking_lot::{Mutex, MutexGuard};
use trace::event::{Event, Kind, Unobserved, CAPTURED};
use trace::header::{state, Header};
use trace::segment::SEGMENT_EVENTS;
use trace::{total, Loss, Total};

use crate::collector::{flush, stopped};
use crate::duty_cycle::{comeback, safepoint, Around, Windows};
use crate::platform::ticks::Keeper;
use crate::platform::{clock, lifecycle, losses};
use crate::recording::writer;
use crate::sampler;
use crate::sources::callers::Callers;
use crate::sources::captured_launches::CapturedLaunches;
use crate::sources::cupti::stolen_buffers::{Buffers, Unanswered};
use crate::sources::cupti::warm_up::Front;
use crate::sources::cupti::{arbiter, buffers, decode, flushing, session, streams, walk};
use crate::sources::hostpool;
use crate::sources::marks::program::{Capture, Marks};
use crate::sources::python::sites::Sites;
use crate::sources::torch::Nodes;
use crate::store::Store;

/// Between two looks at how fast records come, ns.
const RATE_PERIOD: u64 = 250_000_000;
/// Between two updates of the recording file, ns. An event waits for the round and for the file,
/// and both together may take 100 ms at most where the disk is quick (108 ms measured with rounds
/// of 50 ms and an update every other one).
const MIRROR_PERIOD: u64 = 45_000_000;
/// Between two clock pairs, ns.
const CLOCK_PERIOD: u64 = 1_000_000_000;
/// A buffer out for longer than this is read in place, ns.
const STUCK_AFTER: u64 = 400_000_000;
/// A buffer is to hold about this much time's records, ns (see `buffers`).
const BUFFER_TIME: u64 = 100_000_000;

/// Everything the drain thread works on.
pub(crate) struct Recorder {
    /// The rings of the recording.
    pub(crate) store: Store,
    /// The header as of the last round.
    pub(crate) header: Header,
    decoder: decode::Decoder,
    unanswered: Unanswered,
    marks: Marks,
    sites: Sites,
    nodes: Nodes,
    callers: Callers,
    captured: CapturedLaunches,
    sites_said: bool,
    capture: Capture,
    pub(crate) windows: Windows,
    front: Front,
    samples: sampler::Taker,
    known_devices: u64,
    last_stuck: u64,
    last_clock: u64,
    last_mirror: u64,
    rate_since: u64,
    /// How far the GPU's records were delivered when the last round began, ns.
    delivered_to: u64,
    ticks: Keeper,
    pace: Pace,
    lost: Lost,
}

/// The drain thread.
struct Drain {
    /// The recorder, from the first GPU use on.
    recorder: Mutex<Option<Recorder>>,
    /// CPU time of the drain thread so far, ns.
    cpu: AtomicU64,
    /// Rounds the drain thread has finished.
    rounds: AtomicU64,
}

static DRAIN: Drain = Drain { recorder: Mutex::new(None), cpu: AtomicU64::new(0), rounds: AtomicU64::new(0) };

/// The recorder, whoever has it now; until then the calling thread waits.
pub(crate) fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    DRAIN.recorder.lock()
}

/// As [`recorder`]; `None`: somebody has it for longer than that.
pub(crate) fn recorder_by(deadline: Instant) -> Option<MutexGuard<'static, Option<Recorder>>> {
    DRAIN.recorder.try_lock_until(deadline)
}

impl Recorder {
    /// A recorder that begins now.
    pub(crate) fn new(
        store: Store,
        header: Header,
        capture: Capture,
        callers: Callers,
        windows: Windows,
        raw: Option<crate::sources::cupti::raw::RawFile>,
    ) -> Recorder {
        let now = clock::monotonic();
        Recorder {
            store,
            header,
            decoder: decode::Decoder::new(raw),
            unanswered: Unanswered::default(),
            marks: Marks::default(),
            sites: Sites::default(),
            nodes: Nodes::default(),
            callers,
            captured: CapturedLaunches::default(),
            sites_said: false,
            capture,
            windows,
            front: Front::default(),
            samples: sampler::Taker::default(),
            known_devices: 0,
            last_stuck: now,
            last_clock: 0,
            last_mirror: 0,
            rate_since: now,
            delivered_to: 0,
            ticks: Keeper::default(),
            pace: Pace::default(),
            lost: Lost::since(now),
        }
    }

    /// One round: rings and buffers into the store; header, and the file where it is due.
    pub(crate) fn round(&mut self) {
        self.ticks.keep();
        let now = clock::monotonic();
        // the promise before the buffers: a flush that ends while we decode has given back buffers
        // we did not take
        self.delivered_to = flushing::complete_to();
        self.header.held_until = writer::held_until(); // first: what it says is heeded
        self.capture.heed(now, &mut self.store);
        self.windows.round(
            now,
            &mut Around {
                store: &mut self.store,
                capture: &mut self.capture,
                totals: &self.decoder.totals,
                front: &mut self.front,
                first_op: &mut self.decoder.first_op,
            },
        );
        if self.capture.is_on() {
            self.pace.recording(now);
        }
        // the buffers first, then the rings, then decode: a capture mark is known before the ops
        // launched after it
        let full = buffers::take_full();
        let (store, marks, capture, decoder) =
            (&mut self.store, &mut self.marks, &mut self.capture, &mut self.decoder);
        let (unanswered, sites, callers) = (&mut self.unanswered, &mut self.sites, &mut self.callers);
        let (nodes, launches) = (&mut self.nodes, &mut self.captured);
        sites.begin_round(now);
        callers.begin_round();
        let mut calls = 0;
        let emptied_at = clock::monotonic();
        let most = hostpool::drain(|tid, words| {
            let words = callers.launch(sites.launch(words, store), store);
            if sites.take(words, store)
                || nodes.take(tid, words, sites, store, (capture, launches))
                || callers.take(words, store, |site, store| sites.used(site, store))
                || marks.take(tid, words, store, capture)
            {
                return;
            }
            if let Some(mut event) = Event::decode(words) {
                if let Some(wait) = streams::wait_of(&event).filter(|w| capture.covers(w.start)) {
                    store.add_recorder(&wait);
                }
                event.c = sites.of_the_call().max(callers.of_the_call()); // one of them, or neither
                calls += 1;
                launches.launched(tid, &event);
                if event.flags & CAPTURED == 0 {
                    unanswered.call(&event);
                }
                decoder.host_event(tid, event, store, capture);
            }
        });
        self.pace.emptied(emptied_at, most);
        marks.settle();
        callers.settle(store, |functions, store| nodes.kind(functions, store));
        decoder.count(Total::Callbacks, calls * 2);
        if let Some(session) = session::get() {
            if !session::is_subscribed() && !capture.is_on() {
                let starts = full.iter().filter_map(|b| walk::first_start_in(&session.cupti, b));
                if let Some(time) = starts.min() {
                    capture.switch(true, time, store);
                }
            }
            for buffer in full {
                if arbiter::is_finalized() {
                    losses::add(Loss::BufferNotReturned, 1); // (CUPTI would be asked for each record)
                } else if !buffers::is_bare() {
                    decoder.buffer(
                        &session.cupti,
                        &buffer,
                        &mut decode::Sink { store, capture, launches, now },
                    );
                    for (time, on) in std::mem::take(&mut decoder.profiler_calls) {
                        capture.switch(on, time, store);
                    }
                }
                buffers::give_back(buffer);
            }
        }
        if now.saturating_sub(self.last_stuck) >= STUCK_AFTER / 2 && reads_buffers() {
            self.last_stuck = now;
            if let Some(session) = session::get() {
                for stuck in buffers::stuck(now.saturating_sub(STUCK_AFTER)) {
                    let mut sink = decode::Sink {
                        store: &mut self.store,
                        capture: &self.capture,
                        launches: &mut self.captured,
                        now,
                    };
                    self.decoder.front_of(&session.cupti, &stuck, &mut sink);
                }
            }
        }
        self.front.settle(now, &mut self.decoder.first_op, &mut self.store);
        let wanted = (&self.capture, &mut self.windows.pauses);
        let known = (&self.decoder.last_callers, self.decoder.devices);
        self.samples.round(&mut self.store, wanted, known);
        if let Some((from, to)) = stopped::take() {
            self.unobserved(from, to, Unobserved::Stopped);
        }
        self.look_for_strangers();
        self.say_of_sites(false);
        self.say_of_times();
        self.describe_devices();
        if now.saturating_sub(self.last_clock) >= CLOCK_PERIOD {
            self.last_clock = now;
            let (monotonic, realtime) = clock::pair();
            self.store.add_recorder(&Event::clock_pair(monotonic, realtime));
            hostpool::reclaim();
            self.name_threads();
        }
        self.lost.look(now, &mut self.store);
        self.adapt_buffers(now);
        self.refresh_header(now);
        if now.saturating_sub(self.last_mirror) >= MIRROR_PERIOD {
            self.stand();
            if writer::offer(&mut self.store, &self.header) {
                self.last_mirror = now;
            }
        }
    }

    /// Do calls still leave records with us?
    fn look_for_strangers(&mut self) {
        if arbiter::is_yielded() || buffers::is_bare() || !self.windows.is_open() {
            self.unanswered.forget();
        } else if let Some((from, to)) = self.unanswered.look(buffers_now()) {
            self.returned(from, to);
        }
    }

    /// Another client had CUPTI, from one time to the other. (Between windows it was off anyway,
    /// and opening one begins a front.)
    fn returned(&mut self, from: u64, to: u64) {
        self.front.cut(from);
        self.unobserved(from, to, Unobserved::Yielded);
        if self.windows.is_open() {
            self.front.begin(to, &mut self.decoder.first_op, &mut self.store);
        }
    }

    /// The header, in the image; the file follows as fast as its disk lets it.
    fn stand(&mut self) {
        self.header.segments_used = self.store.begun();
        self.store.image.put_header(&self.header.encode());
    }

    /// Small buffers where launches are slow, so that the newest records come back in time (see
    /// `buffers`).
    fn adapt_buffers(&mut self, now: u64) {
        let span = now.saturating_sub(self.rate_since);
        if span < RATE_PERIOD {
            return;
        }
        let records = std::mem::take(&mut self.decoder.records);
        self.rate_since = now;
        let wanted = (records * BUFFER_TIME / span) as usize;
        buffers::set_record_limit(if wanted > 400 { 0 } else { wanted.max(16) });
    }

    /// Nothing is known of this span.
    fn unobserved(&mut self, from: u64, to: u64, why: Unobserved) {
        let mut e = Event::new(Kind::Unobserved, from, to);
        e.a = why as u32;
        self.store.add_recorder(&e);
    }

    /// After the last round: closes what is open and says that the recording is whole.
    pub(crate) fn close(&mut self, now: u64) {
        let stranger = || self.unanswered.at_the_end(buffers_now());
        if let Some(since) = arbiter::open_span().or_else(stranger) {
            self.front.cut(since);
            self.unobserved(since, now, Unobserved::Yielded);
        }
        if let Some((from, to)) = comeback::take_span() {
            self.returned(from, to);
        }
        if let Some(session) = session::get().filter(|_| reads_buffers()) {
            // the time for flushing is over: what is complete is read where it lies, the rest is
            // lost and said to be
            for stuck in buffers::stuck(u64::MAX) {
                let mut sink = decode::Sink {
                    store: &mut self.store,
                    capture: &self.capture,
                    launches: &mut self.captured,
                    now,
                };
                let pending = self.decoder.front_of(&session.cupti, &stuck, &mut sink);
                losses::add(Loss::BufferNotReturned, u64::from(pending));
            }
        }
        self.say_of_sites(true);
        self.say_of_times();
        self.front.settle(now, &mut self.decoder.first_op, &mut self.store);
        self.front.end(now, &mut self.store);
        self.windows.finish(now, &self.decoder.totals, &mut self.store);
        self.capture.finish(now, &mut self.store);
        self.marks.finish(now, &mut self.store, &self.capture);
        self.name_threads();
        self.lost.mark(true, &mut self.store);
        self.header.state = state::CLOSED;
        self.refresh_header(now);
        self.header.exit_monotonic = now;
        self.stand();
    }
}

/// Are records read? (With CUPTI's help.)
fn reads_buffers() -> bool {
    !buffers::is_bare() && !arbiter::is_finalized()
}

/// What `stolen_buffers` asks for.
fn buffers_now() -> Buffers {
    Buffers {
        touched: buffers::last_touched(),
        pending: buffers::oldest_pending().is_some(),
        complete_to: flushing::complete_to(),
    }
}

/// A module is about to be unloaded, and the kernel names in its records with it: lets the drain
/// thread read what is complete first. On the program's thread (COLD: unloading waits for the
/// device anyway); at most 5 ms each, and all of them together at most 50 ms and a thousandth of
/// the run: beyond that names may be lost, and are counted.
pub(crate) fn before_unload() {
    static SPENT: AtomicU64 = AtomicU64::new(0);
    let now = clock::monotonic();
    let allowed = 50_000_000 + now.saturating_sub(session::first_use_at()) / 1000;
    if SPENT.load(Ordering::Relaxed) > allowed || lifecycle::get() != lifecycle::State::Recording {
        return;
    }
    let in_time = || clock::monotonic().saturating_sub(now) < 5_000_000;
    let flush = flush::ask();
    while !flush::has_ended(flush) && in_time() {
        std::thread::sleep(Duration::from_micros(100));
    }
    let before = DRAIN.rounds.load(Ordering::Acquire);
    // two rounds: the one under way may have looked before the flush
    while DRAIN.rounds.load(Ordering::Acquire) < before + 2 && in_time() {
        hostpool::wake_reader();
        std::thread::sleep(Duration::from_micros(100));
    }
    SPENT.fetch_add(clock::monotonic().saturating_sub(now), Ordering::Relaxed);
}

/// Waits for two rounds (the one under way may have looked before), 100 ms at most. Not by the
/// thread itself.
pub(crate) fn settle() {
    let (begin, before) = (clock::monotonic(), DRAIN.rounds.load(Ordering::Acquire));
    while DRAIN.rounds.load(Ordering::Acquire) < before + 2
        && clock::monotonic().saturating_sub(begin) < 100_000_000
    {
        hostpool::wake_reader();
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// By the thread, before all else: a program that is killed before the first round leaves a
/// recording, too. (Not from the program's own thread: SIGXFSZ.)
pub(crate) fn begin() {
    if let Some(recorder) = DRAIN.recorder.lock().as_mut() {
        recorder.stand();
        writer::offer(&mut recorder.store, &recorder.header);
    }
}

/// The thread's body, from then on.
pub(crate) fn run() {
    let mut pause = pace::SHORTEST_MS;
    loop {
        let ms = if buffers::under_pressure() { pace::SHORTEST_MS } else { pause };
        hostpool::wait_to_read(Duration::from_millis(ms));
        if lifecycle::get() == lifecycle::State::Inert {
            return;
        }
        safepoint::settle();
        let returned = comeback::try_to_return();
        if let Some(recorder) = DRAIN.recorder.lock().as_mut() {
            if recorder.header.state != state::RECORDING {
                return; // closed: the exit thread has it
            }
            if let Some((from, to)) = returned {
                recorder.returned(from, to);
            }
            recorder.round();
            pause = recorder.callers.period(recorder.pace.pause_ms(clock::monotonic()));
        }
        DRAIN.rounds.fetch_add(1, Ordering::AcqRel);
        DRAIN.cpu.store(clock::thread_cpu(), Ordering::Relaxed);
    }
}

const _: () = assert!(SEGMENT_EVENTS > 2 && total::SLOTS > Total::SamplesMoved as usize);
const _: () = assert!(Loss::ALL.len() < trace::loss::SLOTS);
