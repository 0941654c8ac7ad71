// SPDX-License-Identifier: Apache-2.0
// COLD
//! The calls of CUPTI's through which another client takes over, exported under their names: they
//! are handed on to the real library, and the arbiter hears of them.

use std::ffi::c_void;

use cupti_sys::bindings::{
    CUpti_BuffersCallbackCompleteFunc, CUpti_BuffersCallbackRequestFunc, CUpti_CallbackFunc,
    CUpti_SubscriberHandle,
};
use cupti_sys::CuptiResult;

use super::arbiter;
use crate::platform::guard::guard;

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

/// A client of the V2 API subscribes: we leave for good first.
///
/// # Safety
/// As CUPTI's function of this name.
#[no_mangle]
pub unsafe extern "C" fn cuptiSubscribe_v2(
    subscriber: *mut CUpti_SubscriberHandle,
    callback: CUpti_CallbackFunc,
    userdata: *mut c_void,
    params: *mut c_void,
) -> CuptiResult {
    let real = guard(None, arbiter::real).or_else(arbiter::attached);
    let Some(subscribe) = real.and_then(|r| r.subscribe_v2) else { return arbiter::NONE };
    guard((), arbiter::before_subscribe_v2);
    arbiter::after_fault(true);
    if !guard(false, arbiter::make_room) {
        arbiter::tear_down(); // after a fault of ours, too: the client would be refused
    }
    // SAFETY: the caller's own arguments, handed on unchanged to the function it meant to call.
    unsafe { subscribe(subscriber, callback, userdata, params) }
}
