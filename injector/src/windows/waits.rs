// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (`lead_here`)
//! Calls that wait for the GPU, seen without CUPTI, in the way of `runtime.rs`: the slots through which the program's objects call
//! them lead here, and from here on to the runtime and the driver. What a runtime calls in its driver goes through no slot:
//! nothing counts twice.
//!
//! What is called through a runtime that is linked in, or by way of dlsym, is not seen.

use std::ffi::{c_int, c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use trace::call::{pack, DRIVER, RUNTIME};

use super::slots::Target;
use super::sync_clock::{self, Entered};
use crate::cupti::choose;
use crate::guard::guard;
use crate::imports;

type OfNothing = unsafe extern "C" fn() -> c_int;
type OfHandle = unsafe extern "C" fn(*mut c_void) -> c_int;
type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;

/// "Not initialized" of both, for a call that cannot come: a slot leads here only once the function behind it is known.
const NOT_INITIALIZED: c_int = 3;

struct Wait {
    name: &'static CStr,
    call: u32,
    ours: fn() -> usize,
}

const fn wait(name: &'static CStr, domain: u8, id: u32, ours: fn() -> usize) -> Wait {
    Wait { name, call: pack(domain, id), ours }
}

const WAITS: [Wait; 10] = [
    wait(c"cudaStreamSynchronize", RUNTIME, 131, || of_handle::<0> as OfHandle as usize),
    wait(c"cudaStreamSynchronize_ptsz", RUNTIME, 239, || of_handle::<1> as OfHandle as usize),
    wait(c"cudaEventSynchronize", RUNTIME, 137, || of_handle::<2> as OfHandle as usize),
    wait(c"cudaDeviceSynchronize", RUNTIME, 165, || of_nothing::<3> as OfNothing as usize),
    wait(c"cudaMemcpy", RUNTIME, 31, || memcpy::<4> as Memcpy as usize),
    wait(c"cudaMemcpy_ptds", RUNTIME, 215, || memcpy::<5> as Memcpy as usize),
    wait(c"cuStreamSynchronize", DRIVER, 126, || of_handle::<6> as OfHandle as usize),
    wait(c"cuStreamSynchronize_ptsz", DRIVER, 440, || of_handle::<7> as OfHandle as usize),
    wait(c"cuEventSynchronize", DRIVER, 121, || of_handle::<8> as OfHandle as usize),
    wait(c"cuCtxSynchronize", DRIVER, 17, || of_nothing::<9> as OfNothing as usize),
];

/// The functions themselves, as [`WAITS`].
static REAL: [AtomicUsize; WAITS.len()] = [const { AtomicUsize::new(0) }; WAITS.len()];

fn real<const N: usize>() -> usize {
    REAL.get(N).map_or(0, |r| r.load(Ordering::Relaxed))
}

fn enter<const N: usize>() -> Entered {
    sync_clock::enter(WAITS.get(N).map_or(0, |w| w.call))
}

// The functions themselves are called outside of the guard: `pthread_exit` in a signal handler passes through here.

unsafe extern "C" fn of_nothing<const N: usize>() -> c_int {
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the function of this name and signature in every release.
    let real: OfNothing = unsafe { std::mem::transmute(real) };
    let entered = guard(Entered::default(), enter::<N>);
    // SAFETY: takes nothing.
    let result = unsafe { real() };
    guard((), || sync_clock::leave(entered));
    result
}

unsafe extern "C" fn of_handle<const N: usize>(handle: *mut c_void) -> c_int {
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the function of this name and signature in every release.
    let real: OfHandle = unsafe { std::mem::transmute(real) };
    let entered = guard(Entered::default(), enter::<N>);
    // SAFETY: the caller's own argument, handed on.
    let result = unsafe { real(handle) };
    guard((), || sync_clock::leave(entered));
    result
}

unsafe extern "C" fn memcpy<const N: usize>(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the function of this name and signature in every release.
    let real: Memcpy = unsafe { std::mem::transmute(real) };
    let entered = guard(Entered::default(), enter::<N>);
    // SAFETY: the caller's own arguments, handed on.
    let result = unsafe { real(to, from, bytes, kind) };
    guard((), || sync_clock::leave(entered));
    result
}

/// Leads the waiting calls of all objects mapped now here. Harmless to repeat. Returns whether slots were left alone for now.
pub(super) fn lead_here() -> bool {
    sync_clock::prepare();
    let runtime = choose::only_runtime();
    let driver = choose::driver();
    let mut waits = Waits { targets: [Target::default(); WAITS.len()], left: false };
    for ((wait, real), target) in WAITS.iter().zip(&REAL).zip(&mut waits.targets) {
        let library = if wait.call >> 24 == u32::from(RUNTIME) { &runtime } else { &driver };
        let Some(found) = library.as_ref().and_then(|l| Target::find(l, wait.name)) else { continue };
        let _ = real.compare_exchange(0, found.address, Ordering::AcqRel, Ordering::Acquire);
        // another runtime than the one before is not led here
        if real.load(Ordering::Acquire) == found.address {
            *target = found;
        }
    }
    imports::rewrite(&mut waits);
    waits.left
}

struct Waits {
    /// By [`WAITS`].
    targets: [Target; WAITS.len()],
    left: bool,
}

impl imports::Rewrite for Waits {
    fn wants(&mut self, object: &[u8]) -> bool {
        let name = object.rsplit(|b| *b == b'/').next().unwrap_or(object);
        let cuda: [&[u8]; 5] = [b"libcudart", b"libcuda.so", b"libcupti", b"libnvidia-", b"libgapprobe"];
        !cuda.iter().any(|library| name.starts_with(library)) && !name.starts_with(b"linux-vdso")
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        if !name.starts_with(b"cu") {
            return None;
        }
        let (wait, target) = WAITS.iter().zip(&self.targets).find(|(w, _)| w.name.to_bytes() == name)?;
        let is_it = target.is_in(now, own);
        self.left |= is_it.is_none();
        (is_it == Some(true)).then(|| (wait.ours)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_the_name_that_recordings_give_its_number() {
        for wait in &WAITS {
            let known = trace::call::find(wait.call).expect("in the table");
            let name = wait.name.to_str().expect("ASCII");
            assert_eq!(known.name, name.trim_end_matches("_ptsz").trim_end_matches("_ptds"));
        }
        let all: std::collections::HashSet<usize> = WAITS.iter().map(|w| (w.ours)()).collect();
        assert_eq!(all.len(), WAITS.len(), "a function each");
    }
}
