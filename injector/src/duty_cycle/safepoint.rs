// SPDX-License-Identifier: Apache-2.0
// HOT (`enter`), COLD (the rest)
//! When CUPTI may be switched in a program that runs: while no thread is inside a launch.
//!
//! Measured on an H200 with CUPTI 12.9, 13.0 and 13.5 (`tests/gpu/programs/residue.c`, plans R and
//! S, P, Q; docs/windows.md): where kinds are switched on or off by one thread while another one
//! launches, later windows have no kernels, or all their kernels have one correlation id, for the
//! rest of the process, for whoever records. Switched by the thread that launches, or while that is
//! kept waiting, every window of every release is whole, whatever the GPU does meanwhile.
//!
//! So who wants to switch says so ([`want`]), and a thread of the program's that is about to launch
//! does it, once no other one is inside of a launch (others wait at the safepoint meanwhile: 0.3 ms
//! at most, two times a window). Where every thread that launches is waiting for the GPU, as in a
//! program that hangs, the flush thread does it ([`from_aside`]). Launches that do not come through
//! the slots of `runtime` and `driver` are not seen (cuBLAS's, say): where a thread makes those
//! alone, or hardly any is seen, nothing is switched at all ([`is_possible`]).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::thread_slots::{self, Mine, BOARD, FENCED, TURNING, UNFENCED};
use super::{comeback, switch, sync_clock};
use crate::platform::guard::guard;
use crate::platform::{clock, lifecycle, thread_block};
use crate::sources::cupti::arbiter;

/// Attempts to switch, and what they rest on.
struct Attempts {
    /// No attempt before this time, and how long it was put off last, ns.
    not_before: AtomicU64,
    pause: AtomicU64,
    /// Attempts that failed, since one did not.
    failed: AtomicU32,
    /// Whoever launches comes here.
    possible: AtomicBool,
    /// Time that threads of the program's spent here, ns.
    spent: AtomicU64,
    /// The driver's `cuStreamIsCapturing`; 0: not known.
    is_capturing: AtomicUsize,
    /// Launches by threads that have never come here, as callbacks tell.
    unhooked: AtomicU64,
    /// The kernel puts barriers on all threads of this process where it is asked to.
    has_barriers: AtomicBool,
}

static ATTEMPTS: Attempts = Attempts {
    not_before: AtomicU64::new(0),
    pause: AtomicU64::new(SHORTEST_PAUSE),
    failed: AtomicU32::new(0),
    possible: AtomicBool::new(false),
    spent: AtomicU64::new(0),
    is_capturing: AtomicUsize::new(0),
    unhooked: AtomicU64::new(0),
    has_barriers: AtomicBool::new(false),
};

/// A window begins or ends.
pub(crate) const SWITCH: u8 = 1;
/// Another client of CUPTI's is done.
pub(crate) const RETURN: u8 = 2;

/// So long the others are waited for, ns: a launch takes some µs, one that finds its queue full
/// much longer.
const SAFEPOINT_TIMEOUT: u64 = 200_000;
/// After an attempt that failed, ns; twice as long after each further one, up to the longer, and
/// after this many the longest.
const SHORTEST_PAUSE: u64 = 2_000_000;
const LONGER_PAUSE: u64 = 32_000_000;
const LONGEST_PAUSE: u64 = 1_000_000_000;
const MANY: u32 = 100;
/// A thread waits here no longer, ns, whatever has become of who switches.
const LONGEST_WAIT: u64 = 50_000_000;
/// Where all threads that launch have waited for so long, ns, the flush thread switches.
const AT_REST: u64 = 250_000_000;
/// Launches that tell whether they are seen.
const TELLING: u64 = 200;
/// One in so many is enough, where no thread makes others alone.
const ENOUGH: u64 = 32;
/// The calling thread's slot, which it needs to launch.
#[inline]
pub(super) fn slot() -> Mine {
    // (at its first launch: it has come here after all)
    thread_slots::mine(|| {
        _ = ATTEMPTS.unhooked.fetch_sub(thread_block::with(|b| b.unhooked.take()), Ordering::Relaxed)
    })
}

/// A thread is inside of a launch while this lives.
pub(super) struct Inside(Mine);

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A thread is about to launch into this stream.
#[inline]
pub(super) fn enter(mine: Mine, stream: *mut c_void) -> Inside {
    if BOARD.wanted.load(Ordering::Relaxed) != 0 {
        attempt(stream);
    }
    mine.enter();
    if BOARD.closed.load(Ordering::SeqCst) {
        wait_outside(mine);
    }
    Inside(mine)
}

#[cold]
#[inline(never)]
fn wait_outside(mine: Mine) {
    let begin = clock::monotonic();
    while BOARD.closed.load(Ordering::SeqCst) && clock::monotonic().saturating_sub(begin) < LONGEST_WAIT {
        mine.leave();
        nap();
        mine.enter();
    }
    ATTEMPTS.spent.fetch_add(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
}

/// 20 us, unlike `sleep` no place where a thread is cancelled. Leaves errno as it was.
fn nap() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    // SAFETY: takes nothing; the calling thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address of this thread's errno.
    let before = unsafe { errno.read() };
    // SAFETY: a word of our own that nobody changes, a time, and numbers.
    unsafe {
        libc::syscall(libc::SYS_futex, NEVER.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 0, &time)
    };
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// A launch of which CUPTI tells, on the thread that made it. HOT.
#[inline]
pub(crate) fn on_launch() {
    let is_unhooked = thread_block::with(|b| {
        let is_unhooked = b.slot.get() == 0;
        b.unhooked.set(b.unhooked.get() + u64::from(is_unhooked));
        is_unhooked
    });
    if is_unhooked {
        ATTEMPTS.unhooked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Launches so far of threads that never come here.
pub(super) fn unhooked() -> u64 {
    ATTEMPTS.unhooked.load(Ordering::Relaxed)
}

/// Can it be told when no thread is inside of a launch?
pub(crate) fn is_possible() -> bool {
    ATTEMPTS.possible.load(Ordering::Relaxed)
}

/// Launches of a while: in the recording, seen here, and of threads that never come here (where
/// callbacks tell of them, else `None`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Launches {
    pub(super) recorded: u64,
    pub(super) seen: u64,
    pub(super) unhooked: Option<u64>,
}

impl Launches {
    /// What came since `before`.
    pub(super) fn since(&self, before: &Launches) -> Launches {
        Launches {
            recorded: self.recorded.saturating_sub(before.recorded),
            seen: self.seen.saturating_sub(before.seen),
            unhooked: self.unhooked.map(|n| n.saturating_sub(before.unhooked.unwrap_or(0))),
        }
    }

    /// Does whoever launches come to the safepoint? (Some launches are on their way.)
    fn come_here(&self) -> bool {
        let are_enough = self.recorded >= TELLING && self.seen / 2 <= self.recorded;
        are_enough
            && match self.unhooked {
                Some(unhooked) => unhooked == 0 && self.recorded / ENOUGH <= self.seen,
                None => self.seen >= TELLING && self.recorded / 2 <= self.seen,
            }
    }
}

/// While all is recorded: the launches since the last look that told anything. `false`: they are
/// too few to tell. A thread that begins later to make others alone is found out in any window.
pub(super) fn compare(launches: &Launches) -> bool {
    if launches.come_here() {
        ATTEMPTS.possible.store(true, Ordering::Relaxed);
    } else if launches.unhooked.is_some_and(|n| n > 0) {
        ATTEMPTS.possible.store(false, Ordering::Relaxed);
    }
    launches.recorded >= TELLING
}

/// At the end: less than half of the recorded launches were seen here, or some thread never came
/// here, as in a program that launches through the driver alone.
pub(super) fn are_unseen(all: &Launches) -> bool {
    let few = all.seen < all.recorded / 2 || all.unhooked.is_some_and(|n| n > 0);
    !is_possible() && all.recorded >= TELLING && few
}

/// This is to be done as soon as it can be. By the drain thread.
pub(crate) fn want(job: u8) {
    asymmetric_fence();
    if BOARD.wanted.load(Ordering::Relaxed) & job == 0 {
        try_again();
        BOARD.wanted.fetch_or(job, Ordering::Release);
    }
}

/// What is wanted may be tried at once, however often it failed.
pub(crate) fn try_again() {
    ATTEMPTS.failed.store(0, Ordering::Relaxed);
    ATTEMPTS.pause.store(SHORTEST_PAUSE, Ordering::Relaxed);
    ATTEMPTS.not_before.store(0, Ordering::Relaxed);
}

/// Time that the program's threads have spent on switching, ns.
pub(crate) fn spent() -> u64 {
    ATTEMPTS.spent.load(Ordering::Relaxed)
}

/// Where to ask whether a stream is being captured (`cuStreamIsCapturing`). COLD.
pub(super) fn know_captures(function: usize) {
    ATTEMPTS.is_capturing.store(function, Ordering::Relaxed);
}

/// By the flush thread: what is wanted, where every thread that has ever launched has been waiting
/// for the GPU for a while.
pub(crate) fn from_aside() {
    let threads = thread_slots::threads();
    if threads > 0 {
        ask_for_barriers();
    }
    if BOARD.wanted.load(Ordering::Acquire) != 0 && threads > 0 {
        let before = clock::monotonic().saturating_sub(AT_REST);
        if sync_clock::under_way_since(before) >= threads {
            attempt(std::ptr::null_mut());
        }
    }
}

/// In a child that was forked: nobody of the parent's threads is here.
pub(crate) fn in_child() {
    BOARD.wanted.store(0, Ordering::Relaxed);
    ATTEMPTS.has_barriers.store(false, Ordering::Relaxed);
    BOARD.fences.store(FENCED, Ordering::Relaxed);
    BOARD.closed.store(false, Ordering::Relaxed);
    thread_slots::in_child();
}

/// Does what is wanted, where nobody is inside of a launch, or soon. The calling thread is not.
#[cold]
#[inline(never)]
fn attempt(stream: *mut c_void) {
    let begin = clock::monotonic();
    let is_early = begin < ATTEMPTS.not_before.load(Ordering::Relaxed);
    // (who captures leaves it to the others: no failure)
    if is_early || !may_succeed() || is_capturing(stream) || BOARD.closed.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: the calling thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let was = cancellable(PTHREAD_CANCEL_DISABLE);
    // a fault in here must leave the safepoint open
    let done = guard(false, || all_see_it() && are_out(begin) && work());
    put_off(!done);
    BOARD.closed.store(false, Ordering::SeqCst);
    cancellable(was);
    // SAFETY: as above.
    unsafe { errno.write(before) };
    ATTEMPTS.spent.fetch_add(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
}

/// Does this while nobody is inside of a launch that is seen, on a thread that is not either; not
/// at all where that takes longer than [`LONGEST_WAIT`].
pub(crate) fn alone(work: fn()) {
    let begin = clock::monotonic();
    let is_late = || clock::monotonic().saturating_sub(begin) > LONGEST_WAIT;
    asymmetric_fence();
    while BOARD.closed.swap(true, Ordering::SeqCst) {
        if is_late() {
            return;
        }
        nap();
    }
    let _open = Open; // whatever becomes of `work`
    while !(all_see_it() && are_out(clock::monotonic())) {
        if is_late() {
            return;
        }
        nap();
    }
    work();
}

/// Opens the safepoint where it goes.
struct Open;

impl Drop for Open {
    fn drop(&mut self) {
        BOARD.closed.store(false, Ordering::SeqCst);
    }
}

/// When the next attempt may be made. One costs up to [`SAFEPOINT_TIMEOUT`].
fn put_off(has_failed: bool) {
    if !has_failed {
        ATTEMPTS.failed.store(0, Ordering::Relaxed);
        return;
    }
    let pause = match ATTEMPTS.failed.fetch_add(1, Ordering::Relaxed) {
        0..MANY => ATTEMPTS.pause.load(Ordering::Relaxed),
        _ => LONGEST_PAUSE,
    };
    ATTEMPTS.pause.store((2 * pause).min(LONGER_PAUSE), Ordering::Relaxed);
    ATTEMPTS.not_before.store(clock::monotonic() + pause, Ordering::Relaxed);
}

extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// May the calling thread be cancelled? Returns what held before.
fn cancellable(state: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: glibc's function of this signature; a valid out-pointer.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Not in a program that is leaving, after a fault of ours, or while another client has CUPTI and a
/// window is all that is wanted.
fn may_succeed() -> bool {
    let is_window_alone = BOARD.wanted.load(Ordering::Relaxed) == SWITCH;
    lifecycle::get() == lifecycle::State::Recording
        && !(is_window_alone && switch::is_wanted_on() && arbiter::is_yielded())
}

/// `membarrier`'s commands, as `linux/membarrier.h` numbers them (Linux 4.14).
const PRIVATE_EXPEDITED: c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;

fn membarrier(command: c_int) -> bool {
    // SAFETY: takes numbers; touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Asks the kernel, once, whether it will. In a process with several threads that takes it some 10
/// ms (RCU): by the flush thread, for which nobody waits. Where it refuses, launches go on making
/// their own.
fn ask_for_barriers() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if !ASKED.swap(true, Ordering::Relaxed) && membarrier(REGISTER_PRIVATE_EXPEDITED) {
        ATTEMPTS.has_barriers.store(true, Ordering::Release);
    }
}

/// Has every launch make a barrier of its own from now on: the safepoint is to be closed. By the
/// drain thread, not by the program's that closes it: a program may have forbidden itself what it
/// does not know of (seccomp), after we asked for it.
fn asymmetric_fence() {
    if BOARD.fences.load(Ordering::Relaxed) != UNFENCED {
        return;
    }
    BOARD.fences.store(TURNING, Ordering::SeqCst);
    // who is about to launch has either entered already, and that is seen from here on, or makes a
    // barrier
    if !membarrier(PRIVATE_EXPEDITED) {
        ATTEMPTS.has_barriers.store(false, Ordering::Release);
        // (a store that was not seen for so long is none: whoever is interrupted has made a
        // barrier, too)
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    BOARD.fences.store(FENCED, Ordering::SeqCst);
}

/// Launches go without barriers while nobody wants to close the safepoint. Once a round, by the
/// drain thread.
pub(crate) fn settle() {
    if BOARD.wanted.load(Ordering::Acquire) != 0 {
        asymmetric_fence(); // (it was wanted again while it was being done)
        return;
    }
    // open behind that and unwanted still: what was left to do stands there before it opens
    let is_open = !BOARD.closed.load(Ordering::SeqCst) && BOARD.wanted.load(Ordering::Acquire) == 0;
    if is_open && ATTEMPTS.has_barriers.load(Ordering::Acquire) {
        BOARD.fences.store(UNFENCED, Ordering::SeqCst);
    }
}

/// The safepoint was closed: from here on every thread sees that before it is inside, or is seen to
/// be inside. `false`: not so this time.
fn all_see_it() -> bool {
    fence(Ordering::SeqCst);
    BOARD.fences.load(Ordering::SeqCst) == FENCED
}

/// Is nobody inside any more?
fn are_out(begin: u64) -> bool {
    while thread_slots::is_anyone_inside() {
        if clock::monotonic().saturating_sub(begin) > SAFEPOINT_TIMEOUT {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// What the driver allows while a graph is captured is not asked of it.
fn is_capturing(stream: *mut c_void) -> bool {
    type IsCapturing = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
    let function = ATTEMPTS.is_capturing.load(Ordering::Relaxed);
    if function == 0 || stream.is_null() {
        return false;
    }
    // SAFETY: the driver's function of this name, of this signature since CUDA 10.
    let ask: IsCapturing = unsafe { std::mem::transmute(function) };
    let mut status = 0;
    // SAFETY: the stream that the program is about to launch into; a valid out-pointer.
    unsafe { ask(stream, &mut status) != 0 || status != 0 }
}

/// `true`: nothing is left to do.
fn work() -> bool {
    // taken first: what is wanted from now on is another thing
    let wanted = BOARD.wanted.swap(0, Ordering::AcqRel);
    let mut left = 0;
    if wanted & SWITCH != 0 && !switch::at_rest() {
        left |= SWITCH;
    }
    if wanted & RETURN != 0 && !comeback::at_rest() {
        left |= RETURN;
    }
    BOARD.wanted.fetch_or(left, Ordering::AcqRel);
    left == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In each round one thread enters and another one closes the safepoint, at the same moment:
    /// one of them has to see the other. (Without what orders them in `Mine::enter`, `turn` and
    /// `all_see_it` neither does in some of 300,000 rounds.)
    fn meet(has_barriers: bool, rounds: u64) {
        let _alone = thread_slots::alone();
        let (ready, saw_it_closed) = ([const { AtomicU64::new(0) }; 2], AtomicBool::new(false));
        // both begin the round at once, but for a delay that differs
        let begin = |me: usize, round: u64| {
            ready[me].store(round, Ordering::Release);
            let mut turns = 0u32;
            while ready[1 - me].load(Ordering::Acquire) < round {
                turns += 1;
                if turns % 1000 == 0 {
                    std::thread::yield_now();
                }
            }
            (0..(round >> (4 * me)) % 16).for_each(|n| _ = std::hint::black_box(n));
        };
        ATTEMPTS.has_barriers.store(has_barriers, Ordering::SeqCst);
        BOARD.fences.store(FENCED, Ordering::SeqCst);
        let unseen = std::thread::scope(|s| {
            s.spawn(|| {
                let mine = slot();
                for round in 1..=rounds {
                    begin(0, 2 * round);
                    mine.enter();
                    saw_it_closed.store(BOARD.closed.load(Ordering::SeqCst), Ordering::Relaxed);
                    begin(0, 2 * round + 1);
                    mine.leave();
                }
            });
            let mut unseen = 0;
            for round in 1..=rounds {
                thread_slots::is_anyone_inside(); // (its line is not the other thread's alone, whose store takes longer)
                settle();
                begin(1, 2 * round);
                asymmetric_fence();
                BOARD.closed.store(true, Ordering::SeqCst);
                let saw_somebody = !all_see_it() || thread_slots::is_anyone_inside();
                begin(1, 2 * round + 1);
                unseen += u64::from(!saw_somebody && !saw_it_closed.load(Ordering::Relaxed));
                BOARD.closed.store(false, Ordering::SeqCst);
            }
            unseen
        });
        assert_eq!(unseen, 0, "rounds of {rounds} in which neither saw the other");
        assert_eq!(ATTEMPTS.has_barriers.load(Ordering::SeqCst), has_barriers, "the kernel has made them");
    }

    #[test]
    fn nobody_is_inside_while_it_is_closed_by_barriers() {
        assert!(membarrier(REGISTER_PRIVATE_EXPEDITED), "this kernel has no membarrier");
        meet(true, 50_000);
    }

    #[test]
    #[ignore = "scripts/test thorough: 10 s"]
    fn nobody_is_inside_while_it_is_closed_by_barriers_for_long() {
        assert!(membarrier(REGISTER_PRIVATE_EXPEDITED), "this kernel has no membarrier");
        meet(true, 500_000);
    }

    #[test]
    fn nobody_is_inside_while_it_is_closed_where_the_kernel_makes_no_barriers() {
        meet(false, 1_500_000);
    }

    #[test]
    fn whoever_launches_comes_here_where_no_thread_makes_others_alone() {
        let is = |recorded, seen, unhooked| Launches { recorded, seen, unhooked }.come_here();
        assert!(is(500, 500, Some(0)));
        assert!(is(500, 90, Some(0)), "Triton's, by the same threads");
        assert!(!is(500, 400, Some(1)), "a thread that makes others alone");
        assert!(!is(50_000, 20, Some(0)), "too few to tell when");
        assert!(!is(100, 100, Some(0)), "too early");
        assert!(!is(200, 900, Some(0)), "most of them are not recorded yet");
        // where records tell of launches, not who made them
        assert!(is(500, 300, None) && !is(500, 200, None));
    }
}
