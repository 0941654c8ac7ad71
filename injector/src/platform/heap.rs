// SPDX-License-Identifier: Apache-2.0
// WARM
//! Memory that is refused (`ulimit -v`, a program that takes all there is and copes): Rust would
//! end the process. Here gapprobe ends instead: it is off for good, a thread of ours stops where it
//! stands, for ever, and a thread of the program's takes what it needs to get out of our code from
//! a small reserve. The recording is left as it is, as after a kill.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use crate::platform::{lifecycle, say};

/// Enough for what a thread of the program's has us allocate: settings, paths, names.
const RESERVE: usize = 64 << 10;

#[repr(align(16))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

// SAFETY: parts of it are handed out once each (`FROM_RESERVE`), and what is done with them is
// their owners'.
unsafe impl Sync for Reserve {}

static MEMORY: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));
static FROM_RESERVE: AtomicUsize = AtomicUsize::new(0);

static REFUSED: AtomicBool = AtomicBool::new(false);

/// Memory was refused: nothing of ours goes on.
pub(crate) fn has_ended_us() -> bool {
    REFUSED.load(Ordering::Acquire)
}

/// The system's memory, and what is done where it is refused.
struct Heap;

#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, expect(dead_code, reason = "unit tests keep std's"))]
static HEAP: Heap = Heap;

// SAFETY: the system's own, but for memory of the reserve, which is handed out once and never taken
// back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return refused(layout);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() {
            return refused(layout); // zeroes, and handed out once
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !is_of_the_reserve(memory) {
            // SAFETY: the caller's, and not of the reserve: the system's.
            unsafe { System.dealloc(memory, layout) };
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_of_the_reserve(memory) {
            // SAFETY: the caller's, and not of the reserve: the system's.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
        let moved = refused(wanted);
        if !moved.is_null() {
            // SAFETY: both are as long as the shorter of the two, and apart: the new one was never
            // handed out before.
            unsafe { std::ptr::copy_nonoverlapping(memory, moved, layout.size().min(size)) };
        }
        moved
    }
}

fn is_of_the_reserve(memory: *const u8) -> bool {
    (memory as usize).wrapping_sub(MEMORY.0.get() as usize) < RESERVE
}

/// gapprobe is over. Returns memory of the reserve to the program's threads, and to ours not at
/// all.
#[cold]
#[inline(never)]
fn refused(layout: Layout) -> *mut u8 {
    REFUSED.store(true, Ordering::Release);
    lifecycle::set(lifecycle::State::Inert);
    say_it();
    if is_thread_of_ours() {
        // Nobody of the program waits for a lock of ours without an end: `leave` looks at the
        // state.
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    let room = layout.size().saturating_add(layout.align());
    // what does not fit leaves the rest to what does
    let taken = |from: usize| from.checked_add(room).filter(|to| *to <= RESERVE);
    let Ok(from) = FROM_RESERVE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken) else {
        return std::ptr::null_mut();
    };
    let at = MEMORY.0.get().cast::<u8>().wrapping_add(from);
    at.wrapping_add(at.align_offset(layout.align()))
}

/// Threads of ours are called `gapprobe` or `gapprobe-...`, and so are those that the report
/// starts: a thread inherits its maker's name. The program's own main thread is none, whatever its
/// file is called.
fn is_thread_of_ours() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: room for 16 bytes, which is what the kernel writes.
    let rc = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let ours = rc == 0 && (name.starts_with(b"gapprobe-") || name.starts_with(b"gapprobe\0"));
    // SAFETY: take nothing, cannot fail.
    ours && unsafe { libc::gettid() } != unsafe { libc::getpid() }
}

/// The recording's path, as it may be shown.
static RECORDING: OnceLock<&[u8]> = OnceLock::new();

/// The recording is here: what is said names it.
pub(crate) fn recording_is_at(shown: &'static str) {
    let _ = RECORDING.set(shown.as_bytes()); // once a process
}

/// Says so, once; a thread that has not the program's stderr leaves it to the next one, at the
/// latest to who leaves.
pub(crate) fn say_it() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !say::has_stderr() || SAID.swap(true, Ordering::AcqRel) {
        return;
    }
    let text: &[u8] =
        b"gapprobe: recording ended: memory was refused (a limit of this process, or none left)";
    match RECORDING.get() {
        Some(path) => say::parts(&[text, b". Next: gapprobe recover ", path]),
        None => say::parts(&[text]),
    }
}
