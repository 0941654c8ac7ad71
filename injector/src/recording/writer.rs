// SPDX-License-Identifier: Apache-2.0
// WARM
//! The thread that writes the recording's file, and nothing else waits for it: a local disk that
//! other jobs write to may hold a write up for as long as it likes, another machine's for ever, and
//! meanwhile the program's rings would run over. The drain thread leaves it how the recording
//! stands wherever it is free; what changes while it writes waits in the image, which is all the
//! memory there is for that.
//!
//! At the exit the last state is left in the same way, and is waited for within a deadline: the
//! line comes whether or not that disk answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spool::{leftovers, retention};
use trace::{Header, Loss};

use super::{folders, half_files, SpoolWriter};
use crate::platform::threads::{spawn_quietly, Signal};
use crate::platform::{clock, descriptors, losses, settings};
use crate::store::image::Image;
use crate::store::{Snapshot, Store};

/// What is to be done with the file.
enum Order {
    /// Bring it to how the recording stood.
    Update(Box<Snapshot>),
    /// Note that the line was said.
    Spoken,
    /// Delete it: trace and summary are written.
    Remove,
}

struct Desk {
    /// There is a file, and a thread that writes it.
    is_there: bool,
    order: Option<Order>,
    is_busy: bool,
    /// Segments that could not be written.
    again: Vec<u32>,
}

impl Desk {
    fn is_free(&self) -> bool {
        self.order.is_none() && !self.is_busy
    }
}

/// The thread that writes, and what it has done.
struct Writer {
    /// Held for moments only, never across a write.
    desk: Mutex<Desk>,
    /// An order came.
    wanted: Signal,
    /// One was carried out.
    done: Signal,
    /// No update is wanted any more: the report is made.
    abandoned: AtomicBool,
    bytes: AtomicU64,
    longest: AtomicU64,
    cpu: AtomicU64,
    /// The file is made, or cannot be.
    made: Signal,
    /// See [`held_until`].
    held_until: AtomicU64,
}

static WRITER: Writer = Writer {
    desk: Mutex::new(Desk { is_there: false, order: None, is_busy: false, again: Vec::new() }),
    wanted: Signal::new(),
    done: Signal::new(),
    abandoned: AtomicBool::new(false),
    bytes: AtomicU64::new(0),
    longest: AtomicU64::new(0),
    cpu: AtomicU64::new(0),
    made: Signal::new(),
    held_until: AtomicU64::new(0),
};

/// Is an update that is under way wanted no more?
pub(super) fn is_abandoned() -> bool {
    WRITER.abandoned.load(Ordering::Acquire)
}

/// Bytes written so far.
pub(crate) fn bytes() -> u64 {
    WRITER.bytes.load(Ordering::Relaxed)
}

/// The longest an update took, one that is under way not counted, ns.
pub(crate) fn longest() -> u64 {
    WRITER.longest.load(Ordering::Relaxed)
}

/// CPU time of the thread, ns.
pub(crate) fn cpu() -> u64 {
    WRITER.cpu.load(Ordering::Relaxed)
}

/// Until when a command of the same user wants recording to be held on whatever the program wants,
/// CLOCK_MONOTONIC ns; 0: none does. It writes that into the file ([`trace::header::HOLD_AT`]).
pub(crate) fn held_until() -> u64 {
    WRITER.held_until.load(Ordering::Relaxed)
}

/// Does one now?
pub(crate) fn is_held(now: u64) -> bool {
    now < held_until()
}

/// A local disk takes so long at most; one that takes longer has its file later, or never.
const MAKING: Duration = Duration::from_secs(1);

/// Starts the thread, which makes the file: where it can, among descriptors of its own, so that the
/// file has no number of the program's. Is there one to be left what to hold?
pub(crate) fn start(name: String, image: Image) -> bool {
    let started = spawn_quietly("gapprobe-file", move || {
        let made = Making { is_own: descriptors::leave_the_programs(None), name, segments: image.segments() };
        let mirror = made.make();
        WRITER.desk.lock().is_there = mirror.is_some();
        WRITER.made.set();
        run(&made, mirror, image);
    });
    let until = Instant::now() + MAKING;
    while started && !WRITER.made.is_set() && Instant::now() < until {
        WRITER.made.wait(until.saturating_duration_since(Instant::now()));
    }
    WRITER.desk.lock().is_there
}

/// There is something to do beside orders.
pub(crate) fn wake() {
    WRITER.wanted.set();
}

/// How the file is made, and made anew where somebody has removed it.
struct Making {
    name: String,
    segments: u32,
    /// The thread has descriptors of its own.
    is_own: bool,
}

impl Making {
    fn make(&self) -> Option<SpoolWriter> {
        let mut mirror = SpoolWriter::create(&self.name, self.segments)?;
        if self.is_own {
            mirror.hold_lock();
        }
        Some(mirror)
    }

    /// Where the file was removed: another one, into which everything is to be written; the
    /// segments of it. Not more often than every ten seconds.
    fn anew(
        &self,
        mirror: &mut SpoolWriter,
        last: &mut Option<Instant>,
        standing: &Snapshot,
    ) -> Option<Vec<u32>> {
        const PAUSE: Duration = Duration::from_secs(10);
        if last.is_some_and(|at| at.elapsed() < PAUSE) || !mirror.is_removed() {
            return None;
        }
        *last = Some(Instant::now());
        let mut new = self.make()?;
        new.bytes = mirror.bytes;
        let old = std::mem::replace(mirror, new);
        if self.is_own {
            old.close(); // what nobody can find takes no more room
        }
        Some((0..standing.header.segments_used).collect())
    }
}

/// The thread's body; without a file it is there for half files.
fn run(making: &Making, mut mirror: Option<SpoolWriter>, image: Image) {
    let (mut has_swept, mut remade) = (false, None);
    loop {
        WRITER.wanted.wait(Duration::from_secs(3600));
        WRITER.wanted.take();
        half_files::remove_if_wanted();
        let order = {
            let mut desk = WRITER.desk.lock();
            desk.is_busy = desk.order.is_some();
            desk.order.take()
        };
        let began = clock::monotonic();
        let mut again = Vec::new();
        if let Some(mirror) = &mut mirror {
            match order {
                Some(Order::Update(standing)) => {
                    again = match making.anew(mirror, &mut remade, &standing) {
                        Some(all) => all,
                        None => mirror.update(&image, &standing),
                    };
                    WRITER.longest.fetch_max(clock::monotonic().saturating_sub(began), Ordering::Relaxed);
                }
                Some(Order::Spoken) => mirror.note_spoken(),
                Some(Order::Remove) => mirror.remove(),
                None => {}
            }
            WRITER.bytes.store(mirror.bytes, Ordering::Relaxed);
            WRITER.held_until.store(mirror.wanted_until(began), Ordering::Relaxed);
        }
        if mirror.is_some() && !has_swept && WRITER.bytes.load(Ordering::Relaxed) > 0 {
            has_swept = true;
            sweep();
        }
        WRITER.cpu.store(clock::thread_cpu(), Ordering::Relaxed);
        let mut desk = WRITER.desk.lock();
        desk.again.extend(again);
        desk.is_busy = false;
        drop(desk);
        WRITER.done.set();
    }
}

/// Recordings of earlier processes go by the limits on them, as at an exit: where processes are
/// always killed (servers that SIGTERM ends) there is none.
fn sweep() {
    let until = Some(Instant::now() + SWEEPING);
    if let (Some(folder), Some(settings)) = (super::folder(), settings::get()) {
        leftovers::recordings(folder, until);
        retention::recordings(folder, settings.keep.of_recordings(), folders::lock, until);
    }
}

/// So long at most; meanwhile the recording waits in memory.
const SWEEPING: Duration = Duration::from_millis(500);

/// Leaves the thread how the recording stands, if it is free; `false` where it is not. Only who
/// holds the recorder's lock.
pub(crate) fn offer(store: &mut Store, header: &Header) -> bool {
    let mut desk = WRITER.desk.lock();
    let takes = desk.is_there && desk.is_free();
    if takes {
        leave(&mut desk, store, header);
    }
    takes
}

fn leave(desk: &mut Desk, store: &mut Store, header: &Header) {
    if !desk.again.is_empty() {
        store.mark_again(&std::mem::take(&mut desk.again));
    }
    desk.order = Some(Order::Update(Box::new(store.standing(header.clone()))));
    WRITER.wanted.set();
}

/// The last state: has the disk answered by then (there may be no file)? Only who holds the
/// recorder's lock.
pub(crate) fn finish(store: &mut Store, header: &Header, until: Instant) -> bool {
    if !WRITER.desk.lock().is_there {
        return true;
    }
    let mut done = wait_until_free(until);
    // (twice where the file was removed: it is made anew, and then written whole)
    for _ in 0..2 {
        if !done {
            break;
        }
        leave(&mut WRITER.desk.lock(), store, header); // (nobody else leaves anything: they would hold the recorder's lock)
        done = wait_until_free(until);
        if WRITER.desk.lock().again.is_empty() {
            break;
        }
    }
    losses::add(Loss::MirrorWrite, u64::from(!done));
    done
}

/// Notes in the file that the line was said; by then, or never.
pub(crate) fn note_spoken(until: Instant) {
    order(Order::Spoken, until);
}

/// Deletes the file; by then, or never.
pub(crate) fn remove(until: Instant) {
    order(Order::Remove, until);
}

/// Comes before an update that is under way, of which nothing is wanted any more: that ends with
/// the write it is in.
fn order(what: Order, until: Instant) {
    let mut desk = WRITER.desk.lock();
    if desk.is_there {
        WRITER.abandoned.store(true, Ordering::Release);
        desk.order = Some(what);
        WRITER.wanted.set();
        drop(desk);
        wait_until_free(until);
    }
}

/// Is what was left with the thread carried out by then?
fn wait_until_free(until: Instant) -> bool {
    loop {
        WRITER.done.take();
        let (is_free, left) = (WRITER.desk.lock().is_free(), until.saturating_duration_since(Instant::now()));
        if is_free || left.is_zero() {
            return is_free;
        }
        WRITER.done.wait(left);
    }
}
