// SPDX-License-Identifier: Apache-2.0
//! The complete list of what `libgapprobe.so` exports (`tests/scenarios` compares it with `nm -D`).
//! Every body runs behind [`crate::platform::guard::guard`].
//!
//! * `InitializeInjection`: the driver's entry (COLD).
//! * `InitializeInjectionNvtx2`: NVTX's entry, once for each object that holds NVTX (COLD).
//! * `gapprobe_*`: the C ABI of `include/gapprobe.h` (HOT).
//! * `cupti*`: the calls through which another client takes over; forwarded to the real library
//!   (COLD).

use std::ffi::{c_char, c_int, c_void};

use cupti_sys::bindings::{
    CUpti_BuffersCallbackCompleteFunc, CUpti_BuffersCallbackRequestFunc, CUpti_CallbackFunc,
    CUpti_SubscriberHandle,
};
use cupti_sys::CuptiResult;

use crate::boot::{attach, copies};
use crate::platform::guard::guard;
use crate::sources::cupti::{arbiter, buffers, callbacks};
use crate::sources::marks::{nvtx, program};

/// Called by the loader. SAFETY of the attribute: the body touches nothing but the environment and
/// its own statics.
#[cfg(not(test))]
#[ctor::ctor]
fn constructor() {
    crate::platform::guard::silence_panics();
    guard((), attach::constructor);
}

/// Called by the CUDA driver inside `cuInit`. 1 = fine.
#[no_mangle]
pub extern "C" fn InitializeInjection() -> c_int {
    // the other copy, or the other tool, has its own guard or none: a fault of theirs is not ours
    if !guard(false, copies::hand_on) {
        guard((), attach::initialize);
        guard((), copies::call_next);
    }
    1
}

/// Called by NVTX with an object's first call of it. 1 = its tables are filled.
#[no_mangle]
pub extern "C" fn InitializeInjectionNvtx2(get: Option<nvtx::GetExportTable>) -> c_int {
    guard(None, || copies::hand_on_nvtx(get)).unwrap_or_else(|| guard(0, || nvtx::initialize(get)))
}

/// Marks the begin of a training step (and the end of the one before).
#[no_mangle]
pub extern "C" fn gapprobe_step() {
    guard((), program::step);
}

/// Begins a named range on the calling thread.
///
/// # Safety
/// `name` is null or a C string.
#[no_mangle]
pub unsafe extern "C" fn gapprobe_range_push(name: *const c_char) {
    guard((), || program::range_push(name));
}

/// Ends the innermost range of the calling thread.
#[no_mangle]
pub extern "C" fn gapprobe_range_pop() {
    guard((), program::range_pop);
}

/// Recording off (0) or on (anything else) from here.
#[no_mangle]
pub extern "C" fn gapprobe_capture(on: c_int) {
    guard((), || program::capture(on != 0));
}

/// Version of the library: major * 10000 + minor * 100 + patch.
#[no_mangle]
pub extern "C" fn gapprobe_version() -> c_int {
    guard(100, || 100)
}

/// Test switch of gapprobe's own benchmarks: 1 = empty callbacks and buffer handlers, no samples
/// (bare CUPTI), 0 = ours.
#[no_mangle]
pub extern "C" fn gapprobe_test_bare(on: c_int) {
    guard((), || {
        callbacks::set_bare(on != 0);
        buffers::set_bare(on != 0);
    });
}

macro_rules! forward {
    ($(#[$doc:meta])* $name:ident ($($arg:ident: $ty:ty),*) => $field:ident, takes_over $over:literal,
        before $before:expr, after $after:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As CUPTI's function of this name.
        #[no_mangle]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> CuptiResult {
            let Some(real) = guard(None, arbiter::real).or_else(arbiter::attached) else { return arbiter::NONE };
            guard((), || $before);
            arbiter::after_fault($over);
            // SAFETY: the caller's own arguments, handed on unchanged to the function it meant to
            // call.
            let result = unsafe { (real.$field)($($arg),*) };
            guard((), || $after(result));
            result
        }
    };
}

forward! {
    /// Another client subscribes: we give our subscription up first.
    cuptiSubscribe(subscriber: *mut CUpti_SubscriberHandle, callback: CUpti_CallbackFunc, userdata: *mut c_void)
        => subscribe, takes_over false, before arbiter::before_subscribe(), after |_| ()
}

forward! {
    /// Another client registers its buffers: we step aside first.
    cuptiActivityRegisterCallbacks(request: CUpti_BuffersCallbackRequestFunc, complete: CUpti_BuffersCallbackCompleteFunc)
        => activity_register_callbacks, takes_over true, before arbiter::before_register(), after |_| arbiter::after_register()
}

forward! {
    /// Another client switches a kind on.
    cuptiActivityEnable(kind: u32) => activity_enable, takes_over false, before (), after |r: CuptiResult| {
        if r.is_success() {
            arbiter::on_kind(kind, true);
        }
    }
}

forward! {
    /// Another client switches a kind off.
    cuptiActivityDisable(kind: u32) => activity_disable, takes_over false, before (), after |_| arbiter::on_kind(kind, false)
}

forward! {
    /// Another client collects its buffers.
    cuptiActivityFlushAll(flag: u32) => activity_flush_all, takes_over false, before arbiter::before_flush(), after |_| arbiter::on_flush()
}

/// Another client tears CUPTI down for everybody.
///
/// # Safety
/// As CUPTI's function of this name.
#[no_mangle]
pub unsafe extern "C" fn cuptiFinalize() -> CuptiResult {
    let real = guard(None, arbiter::real).or_else(arbiter::attached);
    let Some(finalize) = real.and_then(|r| r.finalize) else { return arbiter::NONE };
    guard((), arbiter::before_finalize);
    // SAFETY: the caller's own wish.
    unsafe { finalize() }
}
