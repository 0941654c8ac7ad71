// SPDX-License-Identifier: Apache-2.0
//! The C entry points behind libcupti: `sim_cuptiX` is what the shim's `cuptiX` jumps to once
//! libcuda is mapped. Which of them a release has at all is decided by the shim's symbol list.

mod activity;
mod callbacks;
mod ids;
mod records;

use super::layout::{api_version, attach, release};
use crate::foreign::put;
use crate::injection::refusal;
use crate::settings::settings;
use crate::truth;
use std::ffi::c_char;

const OK: i32 = 0;
const INVALID_PARAMETER: i32 = 1;
const INVALID_CONTEXT: i32 = 3;
const PARAMETER_SIZE_NOT_SUFFICIENT: i32 = 10;
const MAX_LIMIT_REACHED: i32 = 12;
const NOT_COMPATIBLE: i32 = 14;
const NOT_INITIALIZED: i32 = 15;
const INVALID_STREAM: i32 = 20;
const INVALID_KIND: i32 = 21;
const NOT_SUPPORTED: i32 = 27;
const MULTIPLE_SUBSCRIBERS: i32 = 39;

/// Runs a CUPTI call and writes it to the truth: tests read there what a client did to CUPTI.
fn logged(name: &str, argument: u32, call: impl FnOnce() -> i32) -> i32 {
    let result = call();
    truth::cupti(name, argument, result);
    result
}

/// An error if CUPTI is of no use any more in this process, or a fault asks for one.
fn refused(what: &str, which: &str) -> Option<i32> {
    refusal().map(|_| NOT_INITIALIZED).or_else(|| settings().fault_code(what, which))
}

/// Told by the shim which release it stands for; `copy` is the same for all calls from one mapped
/// library.
#[no_mangle]
extern "C" fn sim_cupti_attach(release: u32, copy: usize) {
    attach(release, copy);
}

#[no_mangle]
extern "C" fn sim_cuptiGetVersion(version: *mut u32) -> i32 {
    put(version, api_version(release()));
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiGetResultString(result: i32, out: *mut *const c_char) -> i32 {
    let known = [
        (0, c"CUPTI_SUCCESS"),
        (1, c"CUPTI_ERROR_INVALID_PARAMETER"),
        (2, c"CUPTI_ERROR_INVALID_DEVICE"),
        (12, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
        (14, c"CUPTI_ERROR_NOT_COMPATIBLE"),
        (15, c"CUPTI_ERROR_NOT_INITIALIZED"),
        (21, c"CUPTI_ERROR_INVALID_KIND"),
        (27, c"CUPTI_ERROR_NOT_SUPPORTED"),
        (35, c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
        (39, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
        (999, c"CUPTI_ERROR_UNKNOWN"),
    ];
    match known.iter().find(|(code, _)| *code == result) {
        Some((_, name)) => put(out, name.as_ptr()),
        None => put(out, c"<unknown>".as_ptr()),
    }
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiGetErrorMessage(result: i32, out: *mut *const c_char) -> i32 {
    sim_cuptiGetResultString(result, out)
}

#[no_mangle]
extern "C" fn sim_cuptiGetLastError() -> i32 {
    OK
}
