// SPDX-License-Identifier: Apache-2.0
//! The complete list of what `libgapprobe.so` exports (`tests/scenarios` compares it with `nm -D`).
//! Every body runs behind [`crate::platform::guard::guard`].
//!
//! * `InitializeInjection`: the driver's entry (COLD).
//! * `InitializeInjectionNvtx2`: NVTX's entry, once for each object that holds NVTX (COLD).
//! * `gapprobe_*`: the C ABI of `include/gapprobe.h` (HOT).
//! * `cupti*`: the calls through which another client takes over; forwarded to the real library
//!   (COLD).

use std::ffi::{c_char, c_int};

use crate::boot::{attach, copies};
use crate::platform::guard::guard;
use crate::sources::cupti::{buffers, callbacks};
use crate::sources::marks::{nvtx, program};

pub use crate::sources::cupti::wrappers::*;

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
    // the other copy has its own guard
    if !guard(false, copies::hand_on) {
        guard((), attach::initialize);
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
