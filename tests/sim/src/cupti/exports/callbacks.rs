// SPDX-License-Identifier: Apache-2.0
//! The subscription and its callbacks.

use super::{logged, refused, INVALID_PARAMETER, MULTIPLE_SUBSCRIBERS, NOT_INITIALIZED, OK};
use crate::api;
use crate::cupti::layout::{release, table_sizes};
use crate::cupti::{second_api, subscriber};
use crate::foreign::{lock, put};
use crate::injection::refusal;
use std::collections::BTreeMap;
use std::ffi::{c_char, CString};
use std::sync::Mutex;

#[no_mangle]
extern "C" fn sim_cuptiSubscribe(out: *mut usize, callback: usize, userdata: usize) -> i32 {
    logged("cuptiSubscribe", 0, || {
        if let Some(code) = refused("subscribe", "") {
            return code;
        }
        if out.is_null() {
            return INVALID_PARAMETER;
        }
        if !second_api::v1_may_subscribe() {
            return MULTIPLE_SUBSCRIBERS;
        }
        match subscriber::subscribe(callback, userdata) {
            Some(handle) => {
                put(out, handle);
                OK
            }
            None => MULTIPLE_SUBSCRIBERS,
        }
    })
}

/// (13.0 and 13.1 have it without the rest of V2.)
#[no_mangle]
extern "C" fn sim_cuptiSubscribe_v2(
    out: *mut usize,
    callback: usize,
    _userdata: usize,
    params: usize,
) -> i32 {
    logged("cuptiSubscribe_v2", 0, || {
        if let Some(code) = refused("subscribe_v2", "") {
            return code;
        }
        if out.is_null() || callback == 0 || params == 0 {
            return INVALID_PARAMETER;
        }
        match second_api::subscribe().filter(|_| release() >= 1302) {
            Some(handle) => {
                put(out, handle);
                OK
            }
            None => MULTIPLE_SUBSCRIBERS,
        }
    })
}

#[no_mangle]
extern "C" fn sim_cuptiUnsubscribe(handle: usize) -> i32 {
    logged("cuptiUnsubscribe", 0, || {
        if refusal().is_some() {
            return NOT_INITIALIZED;
        }
        if second_api::holds(handle) {
            second_api::unsubscribe();
            return OK;
        }
        if subscriber::unsubscribe(Some(handle)) {
            second_api::v1_unsubscribed();
            OK
        } else {
            INVALID_PARAMETER
        }
    })
}

/// True for an id that the emulated release has.
pub(super) fn known_callback(domain: u32, cbid: u32) -> bool {
    let (runtime, driver) = table_sizes(release());
    match domain {
        api::DRIVER => cbid > 0 && cbid < driver,
        api::RUNTIME => cbid > 0 && cbid < runtime,
        3 => cbid > 0 && cbid < 26,
        4 => cbid > 0 && cbid < 3,
        5 => cbid > 0 && cbid < 70,
        6 => release() >= 1202 && cbid > 0 && cbid < 4,
        _ => false,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiEnableCallback(on: u32, handle: usize, domain: u32, cbid: u32) -> i32 {
    logged("cuptiEnableCallback", domain * 10_000 + cbid, || {
        if let Some(code) = refused("callback", &format!("{domain}.{cbid}")) {
            return code;
        }
        if !subscriber::holds(handle)
            || !known_callback(domain, cbid)
            || !subscriber::enable(domain, cbid, on != 0)
        {
            return INVALID_PARAMETER;
        }
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiEnableDomain(on: u32, handle: usize, domain: u32) -> i32 {
    logged("cuptiEnableDomain", domain, || {
        if refusal().is_some() {
            return NOT_INITIALIZED;
        }
        if !subscriber::holds(handle) || !subscriber::enable_domain(domain, on != 0) {
            return INVALID_PARAMETER;
        }
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiEnableAllDomains(on: u32, handle: usize) -> i32 {
    (1..=6).map(|domain| sim_cuptiEnableDomain(on, handle, domain)).find(|code| *code != OK).unwrap_or(OK)
}

#[no_mangle]
extern "C" fn sim_cuptiGetCallbackState(out: *mut u32, handle: usize, domain: u32, cbid: u32) -> i32 {
    if !subscriber::holds(handle) || !known_callback(domain, cbid) {
        return INVALID_PARAMETER;
    }
    put(out, u32::from(subscriber::enabled(domain, cbid)));
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiGetGlobalCallbackState(out: *mut u32, domain: u32, cbid: u32) -> i32 {
    if !known_callback(domain, cbid) {
        return INVALID_PARAMETER;
    }
    put(out, u32::from(subscriber::enabled(domain, cbid)));
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiGetCallbackName(domain: u32, cbid: u32, out: *mut *const c_char) -> i32 {
    if !known_callback(domain, cbid) {
        return INVALID_PARAMETER;
    }
    static NAMES: Mutex<BTreeMap<(u32, u32), CString>> = Mutex::new(BTreeMap::new());
    let mut names = lock(&NAMES);
    // The engine does not hold NVIDIA's list of names; a stable one per id is enough for a client.
    let name = names
        .entry((domain, cbid))
        .or_insert_with(|| CString::new(format!("sim_domain{domain}_cbid{cbid}")).unwrap_or_default());
    put(out, name.as_ptr());
    OK
}
