// SPDX-License-Identifier: Apache-2.0
//! Walking buffers, attributes, clocks and the lesser switches of the activity API.

use super::{
    logged, refused, INVALID_KIND, INVALID_PARAMETER, MAX_LIMIT_REACHED, NOT_INITIALIZED, NOT_SUPPORTED,
};
use super::{OK, PARAMETER_SIZE_NOT_SUFFICIENT};
use crate::cupti::layout::{record_size, release};
use crate::cupti::{activity, buffers, second_api, subscriber, timestamps};
use crate::foreign::{get, put};
use crate::injection::refusal;

#[no_mangle]
extern "C" fn sim_cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> i32 {
    let Some(at) = get(record) else { return INVALID_PARAMETER };
    if buffer.is_null() {
        return INVALID_PARAMETER;
    }
    let size_at = |offset: usize| {
        // SAFETY: the caller states `valid` readable bytes at `buffer`, and `offset + 4 <= valid`
        // is checked below.
        let kind = unsafe { buffer.add(offset).cast::<u32>().read_unaligned() };
        record_size(kind, release())
    };
    let mut offset = 0;
    if !at.is_null() {
        offset = (at as usize).wrapping_sub(buffer as usize);
        if offset >= valid || offset + 4 > valid {
            return MAX_LIMIT_REACHED;
        }
        match size_at(offset) {
            Some(size) => offset += size,
            None => return INVALID_KIND,
        }
    }
    if offset + 4 > valid {
        return MAX_LIMIT_REACHED;
    }
    match size_at(offset) {
        Some(size) if offset + size <= valid => {
            put(record, buffer.wrapping_add(offset));
            OK
        }
        Some(_) => MAX_LIMIT_REACHED,
        None => INVALID_KIND,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiActivityGetNumDroppedRecords(_context: usize, _stream: u32, out: *mut usize) -> i32 {
    put(out, buffers::take_dropped() as usize);
    OK
}

/// Newest attribute of the emulated release.
fn known_attribute(attribute: u32) -> bool {
    attribute
        < match release() {
            ..=1108 => 8,
            ..=1202 => 9,
            ..=1301 => 11,
            _ => 25,
        }
}

#[no_mangle]
extern "C" fn sim_cuptiActivitySetAttribute(attribute: u32, size: *mut usize, value: *const u8) -> i32 {
    logged("cuptiActivitySetAttribute", attribute, || {
        if let Some(code) = refused("attribute", &attribute.to_string()) {
            return code;
        }
        let Some(len) = get(size) else { return INVALID_PARAMETER };
        if value.is_null() || !known_attribute(attribute) {
            return INVALID_PARAMETER;
        }
        let wanted = if matches!(attribute, 5 | 8 | 9) { 1 } else { 8 };
        if len < wanted {
            return PARAMETER_SIZE_NOT_SUFFICIENT;
        }
        let mut bytes = [0u8; 8];
        // SAFETY: the client states `len >= wanted` readable bytes at `value`; `wanted` is at most
        // 8.
        unsafe { std::ptr::copy_nonoverlapping(value, bytes.as_mut_ptr(), wanted) };
        let number = u64::from_le_bytes(bytes);
        match attribute {
            5 => buffers::set_zeroed_by_client(number != 0),
            9 => buffers::set_per_thread(number != 0),
            _ => {}
        }
        activity::set_attribute(attribute, number);
        OK
    })
}

#[no_mangle]
extern "C" fn sim_cuptiActivityGetAttribute(attribute: u32, size: *mut usize, value: *mut u8) -> i32 {
    let Some(len) = get(size) else { return INVALID_PARAMETER };
    if value.is_null() || !known_attribute(attribute) {
        return INVALID_PARAMETER;
    }
    let number = activity::attribute(attribute);
    let wanted = if matches!(attribute, 5 | 8 | 9) { 1 } else { 8 };
    if len < wanted {
        return PARAMETER_SIZE_NOT_SUFFICIENT;
    }
    // SAFETY: the client states `len >= wanted` writable bytes at `value`.
    unsafe { std::ptr::copy_nonoverlapping(number.to_le_bytes().as_ptr(), value, wanted) };
    put(size, wanted);
    OK
}

/// Kinds enabled now (13.2+): fills `buffer` of `size` bytes, states how many there are.
#[no_mangle]
extern "C" fn sim_cuptiActivityGetEnabledKinds(
    _handle: usize,
    buffer: *mut u32,
    size: *mut u32,
    count: *mut u32,
) -> i32 {
    let kinds = activity::kinds_on();
    put(count, kinds.len() as u32);
    if buffer.is_null() && size.is_null() {
        return OK;
    }
    let Some(room) = get(size) else { return INVALID_PARAMETER };
    if buffer.is_null() {
        put(size, kinds.len() as u32 * 4);
        return OK;
    }
    if (room as usize) < kinds.len() * 4 {
        return PARAMETER_SIZE_NOT_SUFFICIENT;
    }
    for (n, kind) in kinds.iter().enumerate() {
        put(buffer.wrapping_add(n), *kind);
    }
    OK
}

/// Size of a kind's newest record (13.2+); the version is not told apart.
#[no_mangle]
extern "C" fn sim_cuptiActivityGetStructSize(kind: u32, _version: u32, out: *mut usize) -> i32 {
    match record_size(kind, release()) {
        Some(size) => {
            put(out, size);
            OK
        }
        None => INVALID_KIND,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiActivityPushExternalCorrelationId(kind_of: u32, id: u64) -> i32 {
    activity::push_external(kind_of, id);
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiActivityPopExternalCorrelationId(kind_of: u32, out: *mut u64) -> i32 {
    match activity::pop_external(kind_of) {
        Some(id) => {
            put(out, id);
            OK
        }
        // CUPTI_ERROR_QUEUE_EMPTY
        None => 18,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiSetThreadIdType(which: u32) -> i32 {
    if which > 1 {
        return INVALID_PARAMETER;
    }
    activity::set_thread_id_type(which);
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiGetThreadIdType(out: *mut u32) -> i32 {
    put(out, activity::thread_id_type());
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiGetTimestamp(out: *mut u64) -> i32 {
    put(out, timestamps::now());
    OK
}

/// Everything back to the start, the subscription too.
#[no_mangle]
extern "C" fn sim_cuptiFinalize() -> i32 {
    logged("cuptiFinalize", 0, || {
        if refusal().is_some() {
            return NOT_INITIALIZED;
        }
        buffers::flush(true);
        activity::all_off();
        buffers::forget_client();
        subscriber::unsubscribe(None);
        second_api::forget();
        timestamps::reset();
        OK
    })
}

/// Latency timestamps, launch attributes, device graphs, sync records of every stream: accepted,
/// without effect.
#[no_mangle]
extern "C" fn sim_cuptiActivityEnableLatencyTimestamps(_on: u8) -> i32 {
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnableLaunchAttributes(_on: u8) -> i32 {
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnableAllSyncRecords(_on: u8) -> i32 {
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiActivityEnableHWTrace(_on: u8) -> i32 {
    NOT_SUPPORTED
}
