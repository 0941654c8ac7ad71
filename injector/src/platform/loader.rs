// SPDX-License-Identifier: Apache-2.0
// COLD
//! Walks of the loader's list of objects, and forks. The walk holds a lock of the loader's that a
//! fork does not make new in the child (glibc does so with the other one only): forked while a
//! thread of ours walks, the child would wait for ever in its next dlopen. So a fork waits for our
//! walks, which take well under a millisecond (or some, where the relocations of large libraries
//! are looked through: `imports`), and no walk of ours begins during one.

use std::ffi::{c_int, c_void, CStr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::platform::guard::guard;

/// Walks of ours, and forks of the program, under way.
struct Busy {
    walks: AtomicU32,
    forks: AtomicU32,
}

static BUSY: Busy = Busy { walks: AtomicU32::new(0), forks: AtomicU32::new(0) };

/// Looks while the other side is at it, and the time between two: 10 ms in all, beyond that nobody
/// waits.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);

/// A library we hold a reference to, for ever.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    /// dlopen handle.
    pub(crate) handle: NonNull<c_void>,
    /// Where it came from.
    pub(crate) path: String,
}

/// What the loader calls for each object.
pub(crate) type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// `dl_iterate_phdr`.
///
/// # Safety
/// As of that function: `visit` takes `data` for what it is, which outlives the call. It allocates
/// nothing (see `heap`).
pub(crate) unsafe fn walk(visit: Visit, data: *mut c_void) {
    BUSY.walks.fetch_add(1, Ordering::SeqCst);
    for _ in 0..LOOKS {
        if BUSY.forks.load(Ordering::SeqCst) == 0 {
            break;
        }
        BUSY.walks.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(PAUSE);
        BUSY.walks.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::dl_iterate_phdr(Some(visit), data) };
    BUSY.walks.fetch_sub(1, Ordering::SeqCst);
}

/// Before a fork, on the thread that forks.
pub(crate) extern "C" fn before_fork() {
    guard((), || {
        BUSY.forks.fetch_add(1, Ordering::SeqCst);
        for _ in 0..LOOKS {
            if BUSY.walks.load(Ordering::SeqCst) == 0 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    });
}

/// After it, in the parent.
pub(crate) extern "C" fn after_fork() {
    guard((), || {
        BUSY.forks.fetch_sub(1, Ordering::SeqCst);
    });
}

/// After it, in the child, which has none of the other threads.
pub(crate) fn in_child() {
    BUSY.walks.store(0, Ordering::SeqCst);
    BUSY.forks.store(0, Ordering::SeqCst);
}

/// The file's name in a path.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// The object that an address lies in: its first byte, and the path under which the loader has it.
/// For objects that stay: ours, and those that whoever asks holds open.
pub(crate) fn object_of(address: *const c_void) -> Option<(usize, &'static CStr)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address, and a valid out-pointer.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed, and filled by dladdr.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a C string of the loader's, alive as long as the object, which stays (the caller's).
    Some((info.dli_fbase as usize, unsafe { CStr::from_ptr(info.dli_fname) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn slow(_: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the test's own counter.
        unsafe { &*data.cast::<AtomicU32>() }.store(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(3));
        // SAFETY: as above.
        unsafe { &*data.cast::<AtomicU32>() }.store(2, Ordering::SeqCst);
        1
    }

    #[test]
    fn a_fork_waits_for_a_walk_and_a_walk_for_a_fork() {
        let state = AtomicU32::new(0);
        std::thread::scope(|s| {
            // SAFETY: `slow` takes the counter, which outlives the scope.
            s.spawn(|| unsafe { walk(slow, std::ptr::from_ref(&state).cast_mut().cast()) });
            while state.load(Ordering::SeqCst) == 0 {
                std::hint::spin_loop();
            }
            before_fork();
            assert_eq!(state.load(Ordering::SeqCst), 2, "the walk is over");
            s.spawn(|| {
                // SAFETY: as above.
                unsafe { walk(slow, std::ptr::from_ref(&state).cast_mut().cast()) };
            });
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(state.swap(0, Ordering::SeqCst), 2, "none begins");
            after_fork();
        });
        assert_eq!(state.load(Ordering::SeqCst), 2);
    }
}
