// SPDX-License-Identifier: Apache-2.0
// HOT
//! What a launch reads and writes. It writes a slot that its thread has alone, without a locked
//! instruction (each takes 20 cycles, and more where another thread wrote the line last): who wants
//! to know adds the slots up, and who wants to close the safepoint asks for barriers first
//! (`safepoint::turn`). It reads [`BOARD`], which hardly ever changes.
//!
//! The first [`OWN`] threads that launch have slots of their own, for the life of the process; all
//! later ones share one, with locked instructions. (More slots would make adding up dearer: while
//! steps are looked for each launch does it, for its number.)

use std::sync::atomic::{
    compiler_fence, fence, AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering,
};

use crate::platform::thread_block;

/// Two cache lines: processors fetch them in pairs.
#[repr(align(128))]
pub(super) struct Board {
    /// The safepoint is closed (`safepoint`).
    pub(super) closed: AtomicBool,
    /// What is to be done at the safepoint.
    pub(super) wanted: AtomicU8,
    /// Does a launch make a barrier of its own ([`FENCED`], [`UNFENCED`], [`TURNING`]:
    /// `safepoint::turn`)?
    pub(super) fences: AtomicU8,
    /// Steps are numbered by launches through the runtime's library (`step_clock`).
    pub(super) has_runtime: AtomicBool,
    /// Steps are to be told.
    pub(super) learns: AtomicBool,
    /// The function that comes once a step.
    pub(super) anchor: AtomicUsize,
}

/// Launches make barriers, and everybody's before has been seen: the safepoint may be closed.
pub(super) const FENCED: u8 = 0;
/// Launches make none: nobody wants to close it.
pub(super) const UNFENCED: u8 = 1;
/// Launches make barriers from now on.
pub(super) const TURNING: u8 = 2;

pub(super) static BOARD: Board = Board {
    closed: AtomicBool::new(false),
    wanted: AtomicU8::new(0),
    fences: AtomicU8::new(FENCED),
    has_runtime: AtomicBool::new(false),
    learns: AtomicBool::new(false),
    anchor: AtomicUsize::new(0),
};

/// Threads with a slot of their own: those of a program that launch are its main one, and one a
/// device for the backward pass.
const OWN: usize = 8;
static SLOTS: [Slot; OWN] = [const { Slot::new() }; OWN];
static SHARED: Slot = Slot::new();
/// Threads that have launched.
static THREADS: AtomicU32 = AtomicU32::new(0);

#[repr(align(128))]
struct Slot {
    /// How many launches its thread is inside of (one, but where a library's function launches by
    /// another one that is led to us, too).
    inside: AtomicU32,
    /// Launches that number the steps, and others (`step_clock`).
    numbering: AtomicU64,
    others: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot { inside: AtomicU32::new(0), numbering: AtomicU64::new(0), others: AtomicU64::new(0) }
    }
}

/// The calling thread's slot: it stays on that thread.
#[derive(Clone, Copy)]
pub(super) struct Mine {
    slot: &'static Slot,
    is_shared: bool,
}

/// The calling thread's slot; at its first launch it takes one, and `first` is called.
#[inline]
pub(super) fn mine(first: impl FnOnce()) -> Mine {
    let number = match thread_block::with(|b| b.slot.get()) {
        0 => take(first),
        number => number,
    };
    match SLOTS.get(usize::from(number) - 1) {
        Some(slot) => Mine { slot, is_shared: false },
        None => Mine { slot: &SHARED, is_shared: true },
    }
}

#[cold]
#[inline(never)]
fn take(first: impl FnOnce()) -> u8 {
    let before = THREADS.fetch_add(1, Ordering::Relaxed) as usize;
    let number = before.min(OWN) as u8 + 1;
    thread_block::with(|b| b.slot.set(number));
    first();
    number
}

/// Threads that have launched.
pub(super) fn threads() -> usize {
    THREADS.load(Ordering::Relaxed) as usize
}

impl Mine {
    /// One more launch that numbers the steps.
    #[inline]
    pub(super) fn count(self) {
        self.add(&self.slot.numbering);
    }

    /// One more launch that does not.
    #[inline]
    pub(super) fn count_other(self) {
        self.add(&self.slot.others);
    }

    #[inline]
    fn add(self, counter: &AtomicU64) {
        if self.is_shared {
            counter.fetch_add(1, Ordering::Relaxed);
        } else {
            // no other thread writes it
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The thread is inside of one more launch. From here on whoever closes the safepoint sees
    /// that, or [`Board::closed`], read next, is seen here.
    #[inline]
    pub(super) fn enter(self) {
        let inside = &self.slot.inside;
        if self.is_shared {
            inside.fetch_add(1, Ordering::Relaxed);
        } else {
            inside.store(inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        // whoever has the kernel put a barrier on every thread finds the store before it, or has
        // this load behind it
        compiler_fence(Ordering::SeqCst);
        // Acquire, and `closed` is written and read sequentially consistent: who closed the
        // safepoint before launches went without barriers is seen to have
        if BOARD.fences.load(Ordering::Acquire) != UNFENCED {
            fence(Ordering::SeqCst);
        }
    }

    /// The thread has come out of one launch.
    #[inline]
    pub(super) fn leave(self) {
        let inside = &self.slot.inside;
        // Release: pairs with the Acquire in `anyone_inside`
        if self.is_shared {
            inside.fetch_sub(1, Ordering::Release);
        } else {
            // (0 in a child that was forked inside of a launch: `in_child`)
            inside.store(inside.load(Ordering::Relaxed).saturating_sub(1), Ordering::Release);
        }
    }
}

fn taken() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().take(threads()).chain([&SHARED])
}

/// Is any thread inside of a launch?
pub(super) fn is_anyone_inside() -> bool {
    SLOTS.iter().chain([&SHARED]).any(|s| s.inside.load(Ordering::Acquire) != 0)
}

/// In a child that was forked: nobody of the parent's threads is here.
pub(super) fn in_child() {
    SLOTS.iter().chain([&SHARED]).for_each(|s| s.inside.store(0, Ordering::Relaxed));
}

/// Launches so far that numbered the steps.
pub(super) fn numbering() -> u64 {
    taken().map(|s| s.numbering.load(Ordering::Relaxed)).sum()
}

/// All launches so far.
pub(super) fn launches() -> u64 {
    taken().map(|s| s.numbering.load(Ordering::Relaxed) + s.others.load(Ordering::Relaxed)).sum()
}

/// For tests in one process: nobody else launches meanwhile, and nobody has.
#[cfg(test)]
pub(super) fn alone() -> parking_lot::MutexGuard<'static, ()> {
    static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let alone = ALONE.lock();
    for slot in SLOTS.iter().chain([&SHARED]) {
        slot.inside.store(0, Ordering::SeqCst);
        slot.numbering.store(0, Ordering::SeqCst);
        slot.others.store(0, Ordering::SeqCst);
    }
    THREADS.store(0, Ordering::SeqCst);
    alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_seats_share_one_and_every_launch_counts() {
        let _alone = alone();
        const THREADS: usize = OWN + 4;
        const EACH: u64 = 10_000;
        let firsts = AtomicU32::new(0);
        let launch = |n: u64| {
            for i in 0..n {
                let mine = mine(|| _ = firsts.fetch_add(1, Ordering::Relaxed));
                if i % 2 == 0 {
                    mine.count();
                } else {
                    mine.count_other();
                }
                mine.enter();
                mine.leave();
            }
        };
        let barrier = std::sync::Barrier::new(THREADS);
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    launch(1);
                    barrier.wait();
                    launch(EACH);
                });
            }
        });
        let all = THREADS as u64;
        assert_eq!((launches(), numbering()), (all * (EACH + 1), all * (EACH / 2 + 1)));
        assert_eq!(
            (threads(), firsts.load(Ordering::Relaxed), is_anyone_inside()),
            (THREADS, all as u32, false)
        );
    }
}
