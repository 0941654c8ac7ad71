// SPDX-License-Identifier: Apache-2.0
// HOT (`mapped_from`, `copy`), WARM (`look`), COLD (`prepare`)
//! How far up a stack may be read without asking the kernel.
//!
//! The page that a frame lies on is there. What lies above it is known of the main thread's stack,
//! which is one piece up to the block that the kernel put there at exec; and of the stacks that
//! libc made for other threads, once the drain thread has seen where they begin. Any other one may
//! be a coroutine's or a signal handler's, and end with the page.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use spool::procfs::Mapping;

use crate::sources::hostpool;

const PAGE: u64 = 4096;
/// The kernel leaves 128 MiB free below the top of the main thread's stack for its growth, whatever
/// its limit (Linux, arch/x86/mm/mmap.c: `gap_min`): in half of that there is nothing else.
const ROOM: u64 = 64 << 20;

/// The main thread's stack, from the lowest address it may have grown to, up to what the kernel put
/// above its frames. 0: not known.
struct Stack {
    low: AtomicU64,
    high: AtomicU64,
}

static STACK: Stack = Stack { low: AtomicU64::new(0), high: AtomicU64::new(0) };

/// Looks where the main thread's stack is. COLD, once.
pub(super) fn prepare() {
    // SAFETY: takes a number, returns one.
    let above = unsafe { libc::getauxval(libc::AT_RANDOM) };
    let mapped: Vec<Range<u64>> = Mapping::all("/proc/self/maps").map(|m| m.at).collect();
    if let Some(low) = lowest(&mapped, above) {
        STACK.high.store(above, Ordering::Relaxed);
        STACK.low.store(low, Ordering::Release);
    }
}

/// The lowest address that the stack below `above` may grow to with nothing else on the way.
fn lowest(mapped: &[Range<u64>], above: u64) -> Option<u64> {
    let Range { start: from, end: to } = mapped.iter().find(|m| m.contains(&above))?.clone();
    let low = from.min(to.checked_sub(ROOM)?);
    let alone = !mapped.iter().any(|m| m.start < from && m.end > low);
    Some(if alone { low } else { from })
}

/// Bytes that can be read from a frame's place on.
#[inline]
pub(super) fn mapped_from(at: u64) -> u64 {
    let to_page = PAGE - at % PAGE;
    whole(at).map_or(to_page, |high| to_page.max(high - at))
}

/// Where the stack ends that a frame which is in use lies on: from there it goes on up to that
/// without a hole. `Err(true)`: that is not known now, but may be soon.
#[inline]
pub(super) fn whole(at: u64) -> Result<u64, bool> {
    // Acquire pairs with the Release of `prepare`: with the one the other is there.
    let low = STACK.low.load(Ordering::Acquire);
    let high = STACK.high.load(Ordering::Relaxed);
    if low != 0 && (low..high).contains(&at) {
        return Ok(high);
    }
    let own = hostpool::own_stack()?;
    own.contains(&at).then_some(own.end).ok_or(false)
}

/// Looks where the stacks of new threads begin.
pub(super) fn look() {
    let mut mapped: Option<Vec<(Range<u64>, bool)>> = None;
    hostpool::look_for_stacks(|high| {
        if !has_guards_that_are_mapped(libc_version()) {
            return None;
        }
        let all = || Mapping::all("/proc/self/maps").map(|m| (m.at, m.what[0].starts_with("---"))).collect();
        lowest_above_a_guard(mapped.get_or_insert_with(all), high)
    });
}

/// From 2.42 on glibc may mark the guard within the mapping of a stack (`MADV_GUARD_INSTALL`): what
/// stands right below one then says nothing of where it begins.
fn has_guards_that_are_mapped(glibc: &str) -> bool {
    let mut parts = glibc.split('.').map(|part| part.parse::<u32>().ok());
    matches!((parts.next().flatten(), parts.next().flatten()), (Some(2), Some(minor)) if minor < 42)
}

/// "2.36"; empty where libc is not glibc.
fn libc_version() -> &'static str {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing.
        let version = unsafe { libc::gnu_get_libc_version() };
        // SAFETY: a C string of glibc's that is always there.
        let version = unsafe { std::ffi::CStr::from_ptr(version) };
        version.to_str().unwrap_or("")
    }
    #[cfg(not(target_env = "gnu"))]
    ""
}

/// Of a stack that ends below `high`. libc maps it in one piece with a guard at its lower end: what
/// has one right below it is that piece and nothing else. `mapped`: and whether it is a guard.
fn lowest_above_a_guard(mapped: &[(Range<u64>, bool)], high: u64) -> Option<u64> {
    let at = mapped.iter().position(|(at, _)| at.contains(&high))?;
    let (of_guard, is_guard) = mapped.get(at.checked_sub(1)?)?;
    let (stack, is_none) = mapped.get(at)?;
    (*is_guard && !is_none && of_guard.end == stack.start).then_some(stack.start)
}

/// Copies what can be read of a stack from a frame's place on; how many bytes.
///
/// # Safety
/// `at` lies in a frame that does not end before this returns.
#[inline]
pub(super) unsafe fn copy(at: u64, out: &mut [u8]) -> usize {
    let length = usize::try_from(mapped_from(at)).unwrap_or(0).min(out.len());
    // One instruction, not Rust's copy: these are the frames of functions that run, of which
    // nothing is known to the compiler.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `length` bytes are mapped from `at` on (`mapped_from`: the frame's page, or the stack
    // above it), and belong to this thread's own frames, which wait for us; `out` has room for
    // them. The direction flag is clear (ABI).
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") length => _, inout("rsi") at => _,
            inout("rdi") out.as_mut_ptr() => _, options(nostack, preserves_flags));
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory;

    #[test]
    fn the_main_stack_may_grow_where_nothing_else_is() {
        let library = 0x7f00_0000_0000..0x7f00_0000_1000;
        let stack = 0x7ffc_0000_0000..0x7ffc_0002_1000;
        let vvar = 0x7ffc_000f_0000..0x7ffc_000f_4000;
        let mut maps = vec![library, stack, vvar];
        assert_eq!(lowest(&maps, 0x7ffc_0001_fff0), Some(0x7ffc_0002_1000 - ROOM));
        assert_eq!(lowest(&maps, 0x7ffc_0002_1000), None, "behind its end");
        assert_eq!(lowest(&[], 1), None);
        maps.push(0x7ffb_ffff_0000..0x7ffb_ffff_1000);
        assert_eq!(lowest(&maps, 0x7ffc_0001_fff0), Some(0x7ffc_0000_0000));
    }

    #[test]
    fn a_stack_of_libcs_lies_right_above_a_guard() {
        let maps = [(0x1000..0x2000, true), (0x2000..0x9000, false), (0x9000..0xa000, false)];
        assert_eq!(lowest_above_a_guard(&maps, 0x8f00), Some(0x2000));
        assert_eq!(lowest_above_a_guard(&maps, 0x9500), None, "no guard");
        assert_eq!(lowest_above_a_guard(&maps, 0x1500), None, "a guard itself");
        assert_eq!(lowest_above_a_guard(&maps[1..], 0x8f00), None, "nothing below");
        assert_eq!(lowest_above_a_guard(&maps, 0xb000), None, "not mapped");
        let apart = [(0x0..0x1000, true), (0x2000..0x9000, false)];
        assert_eq!(lowest_above_a_guard(&apart, 0x8f00), None, "a guard of something else");
    }

    #[test]
    fn guards_within_a_mapping_are_not_looked_for() {
        for (version, expected) in [
            ("2.17", true),
            ("2.36", true),
            ("2.41", true),
            ("2.42", false),
            ("2.100", false),
            ("3.0", false),
            ("", false),
        ] {
            assert_eq!(has_guards_that_are_mapped(version), expected, "{version}");
        }
    }

    #[test]
    fn a_threads_stack_is_known_once_it_was_looked_at() {
        let _alone = hostpool::for_one_test();
        assert!(hostpool::prepare());
        let on_a_thread = || {
            assert!(hostpool::memo().is_some(), "a place of its own");
            let here = 0u64;
            let at = std::ptr::from_ref(&here) as u64;
            assert_eq!((whole(at), mapped_from(at)), (Err(true), PAGE - at % PAGE));
            look();
            if !has_guards_that_are_mapped(libc_version()) {
                assert_eq!(whole(at), Err(false));
                return;
            }
            let high = whole(at).expect("a stack of libc's");
            // SAFETY: takes nothing.
            assert_eq!(high, unsafe { libc::pthread_self() });
            let mut out = vec![0; 1 << 20];
            // SAFETY: a frame of this thread's.
            let length = unsafe { copy(at, &mut out) };
            assert_eq!(length as u64, (high - at).min(1 << 20));
            let page = memory::map(4096, true).unwrap().as_ptr() as u64;
            assert_eq!(whole(page + 64), Err(false), "another stack, as a coroutine's");
        };
        std::thread::scope(|s| s.spawn(on_a_thread).join()).unwrap();
    }

    #[test]
    fn of_a_foreign_stack_one_page_is_read() {
        let page = memory::map(2 * 4096, true).unwrap().as_ptr();
        // SAFETY: the second page of a mapping of our own that nobody else knows.
        unsafe { libc::munmap(page.wrapping_add(4096).cast(), 4096) };
        // SAFETY: inside of the first page.
        unsafe { page.wrapping_add(4088).cast::<u64>().write(7) };
        let mut out = [1u8; 8192];
        // SAFETY: inside of the first page, which stays.
        assert_eq!(unsafe { copy(page as u64 + 4000, &mut out) }, 96);
        assert_eq!(out[88..97], [7, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    /// (Tests run on threads: to them their own stack is a foreign one.)
    #[test]
    fn the_main_threads_stack_is_known_to_its_end() {
        prepare();
        let (low, high) = (STACK.low.load(Ordering::Relaxed), STACK.high.load(Ordering::Relaxed));
        assert!(low != 0 && high - low <= ROOM, "{low:x} {high:x}");
        assert_eq!(mapped_from(high - 10_000), 10_000.max(PAGE - (high - 10_000) % PAGE));
        let here = 0u64;
        let at = std::ptr::from_ref(&here) as u64;
        assert_eq!(mapped_from(at), PAGE - at % PAGE, "a thread's stack");
    }
}
