// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (`leads`)
//! Calls that wait for the GPU, seen without CUPTI, in the way of `runtime.rs`: the slots through
//! which the program's objects call them lead here, and from here on to the runtime and the driver.
//! What a runtime calls in its driver goes through no slot: nothing counts twice.
//!
//! What is called through a runtime that is linked in, or by way of dlsym, is not seen.

use std::ffi::{c_int, c_void, CStr};

use trace::call::{pack, DRIVER, RUNTIME};

use super::sync_clock::{self, Entered};
use crate::hooks::slots::{Lead, Leads};
use crate::platform::guard::guard;
use crate::sources::cupti::choose;

type OfNothing = unsafe extern "C" fn() -> c_int;
type OfHandle = unsafe extern "C" fn(*mut c_void) -> c_int;
type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int;

/// "Not initialized" of both, for a call that cannot come: a slot leads here only once the function
/// behind it is known.
const NOT_INITIALIZED: c_int = 3;

const fn wait(name: &'static CStr, domain: u8, id: u32, ours: fn() -> usize) -> Lead {
    Lead::new(name, pack(domain, id), ours)
}

pub(super) static WAITS: [Lead; 10] = [
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

fn real<const N: usize>() -> usize {
    WAITS.get(N).map_or(0, Lead::real)
}

fn enter<const N: usize>() -> Entered {
    sync_clock::enter(WAITS.get(N).map_or(0, |w| w.call))
}

// The functions themselves are called outside of the guard: `pthread_exit` in a signal handler
// passes through here.

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

/// The waiting calls in the slots of all objects, to be led here: each that can be.
pub(super) fn leads() -> Leads<10> {
    sync_clock::prepare();
    let runtime = choose::only_runtime();
    let driver = choose::driver();
    let is_runtime = |wait: &Lead| wait.call >> 24 == u32::from(RUNTIME);
    Leads::find(&WAITS, |wait| if is_runtime(wait) { &runtime } else { &driver }.as_ref())
}
