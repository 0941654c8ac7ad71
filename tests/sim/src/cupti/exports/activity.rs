// SPDX-License-Identifier: Apache-2.0
//! Activity kinds, filters and buffers.

use super::callbacks::known_callback;
use super::{logged, refused, INVALID_KIND, INVALID_PARAMETER, NOT_COMPATIBLE, OK};
use crate::cupti::layout::{knows_kind, release, silent};
use crate::cupti::{activity, buffers, second_api, subscriber, timestamps, worker};
use crate::settings::settings;
use crate::{api, clock};

#[no_mangle]
extern "C" fn sim_cuptiActivityEnable(kind: u32) -> i32 {
    logged("cuptiActivityEnable", kind, || {
        if let Some(code) = refused("enable", &kind.to_string()) {
            return code;
        }
        if !second_api::v1_may_record() {
            return NOT_COMPATIBLE;
        }
        if !knows_kind(kind, release()) || !activity::set_kind(kind, true) {
            return INVALID_KIND;
        }
        worker::start();
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnable_v2(handle: usize, kind: u32, _config: usize) -> i32 {
    logged("cuptiActivityEnable_v2", kind, || {
        if !second_api::holds(handle) {
            return INVALID_PARAMETER;
        }
        if !second_api::enable(kind, true) {
            return NOT_COMPATIBLE;
        }
        worker::start();
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityDisable_v2(handle: usize, kind: u32, _config: usize) -> i32 {
    logged("cuptiActivityDisable_v2", kind, || match second_api::holds(handle) {
        true if second_api::enable(kind, false) => OK,
        true => NOT_COMPATIBLE,
        false => INVALID_PARAMETER,
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityRegisterCallbacks_v2(
    handle: usize,
    request: Option<second_api::Request>,
    complete: Option<second_api::Complete>,
) -> i32 {
    logged("cuptiActivityRegisterCallbacks_v2", 0, || match (request, complete) {
        (Some(request), Some(complete)) if second_api::holds(handle) => {
            second_api::register(request, complete);
            OK
        }
        _ => INVALID_PARAMETER,
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivitySetAttribute_v2(
    handle: usize,
    attribute: u32,
    _size: *mut usize,
    value: *const u8,
) -> i32 {
    const USER_DEFINED_RECORDS: u32 = 11;
    logged("cuptiActivitySetAttribute_v2", attribute, || {
        if !second_api::holds(handle) || value.is_null() || attribute != USER_DEFINED_RECORDS {
            return INVALID_PARAMETER;
        }
        // SAFETY: the client's own value, one byte of this attribute.
        second_api::set_user_defined(unsafe { value.read() } != 0);
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityDisable(kind: u32) -> i32 {
    logged("cuptiActivityDisable", kind, || {
        if let Some(code) = refused("disable", &kind.to_string()) {
            return code;
        }
        if knows_kind(kind, release()) && activity::set_kind(kind, false) {
            OK
        } else {
            INVALID_KIND
        }
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnableContext(_context: usize, kind: u32) -> i32 {
    sim_cuptiActivityEnable(kind)
}

#[no_mangle]
extern "C" fn sim_cuptiActivityDisableContext(_context: usize, kind: u32) -> i32 {
    sim_cuptiActivityDisable(kind)
}

fn filter(domain: u32, cbid: u32, on: u8) -> i32 {
    if let Some(code) = refused("filter", &format!("{domain}.{cbid}")) {
        return code;
    }
    if !known_callback(domain, cbid) || !activity::set_call(domain, cbid, on != 0) {
        return INVALID_PARAMETER;
    }
    worker::start();
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnableRuntimeApi(cbid: u32, on: u8) -> i32 {
    logged("cuptiActivityEnableRuntimeApi", cbid, || filter(api::RUNTIME, cbid, on))
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnableDriverApi(cbid: u32, on: u8) -> i32 {
    logged("cuptiActivityEnableDriverApi", cbid, || filter(api::DRIVER, cbid, on))
}

#[no_mangle]
extern "C" fn sim_cuptiActivityRegisterCallbacks(
    request: Option<buffers::Request>,
    complete: Option<buffers::Complete>,
) -> i32 {
    logged("cuptiActivityRegisterCallbacks", 0, || {
        if let Some(code) = refused("register", "") {
            return code;
        }
        match (request, complete) {
            (Some(request), Some(complete)) => {
                // each copy has its own: those of the second would be handed the first one's
                // buffers here
                if !second_api::v1_may_record() {
                    return NOT_COMPATIBLE;
                }
                if !silent() {
                    buffers::register(request, complete);
                }
                OK
            }
            _ => INVALID_PARAMETER,
        }
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityRegisterTimestampCallback(callback: Option<timestamps::Callback>) -> i32 {
    logged("cuptiActivityRegisterTimestampCallback", 0, || {
        if let Some(code) = refused("timestamp", "") {
            return code;
        }
        match callback {
            Some(callback) => {
                timestamps::register(callback);
                OK
            }
            None => INVALID_PARAMETER,
        }
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityFlushAll(flag: u32) -> i32 {
    logged("cuptiActivityFlushAll", flag, || {
        if let Some(code) = refused("flush", "") {
            return code;
        }
        if subscriber::in_callback() {
            subscriber::misuse("cuptiActivityFlushAll inside a buffer, resource or synchronize callback");
        }
        if settings().fault_is("flush", "hang") {
            loop {
                clock::nap(1_000_000_000);
            }
        }
        if let Some(ms) = settings().fault_slow_ms("flush") {
            clock::sleep_until(clock::now() + ms * 1_000_000);
        }
        buffers::flush(flag & 1 != 0);
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityFlush(_context: usize, _stream: u32, flag: u32) -> i32 {
    sim_cuptiActivityFlushAll(flag)
}

/// The worker returns full and complete buffers at once anyway, so the period changes nothing.
#[no_mangle]
extern "C" fn sim_cuptiActivityFlushPeriod(ms: u32) -> i32 {
    logged("cuptiActivityFlushPeriod", ms, || refused("flushperiod", "").unwrap_or(OK))
}
