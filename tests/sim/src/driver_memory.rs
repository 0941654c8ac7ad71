// SPDX-License-Identifier: Apache-2.0
//! libcuda's exports: allocation, copies, memsets.
//!
//! A copy blocks its caller as on real hardware: a synchronous one until it is done; an "async" one
//! with pageable host memory too, except host-to-device copies of at most 64 KB, which are staged.

use crate::api::{current, traced, Call};
use crate::driver::{result, Args1, Args2, Args3, Args4, Args5, TOTAL_MEMORY};
use crate::foreign::put;
use crate::gpu::{code, gpu};
use crate::graphs::Work;
use crate::memory::{self, DEVICE, PAGEABLE, PINNED};
use crate::settings::settings;
use crate::{clock, submit};
use std::ffi::CStr;

/// Copies up to this size from pageable memory are staged and return at once.
const STAGED: u64 = 64 << 10;
/// Fixed part of a copy or memset on the device.
const SETUP_NS: u64 = 1_500;

fn device_of_current() -> Option<u32> {
    current().and_then(|c| gpu().contexts.get(c).map(|c| c.device))
}

/// The host's time for an allocation.
fn spend_alloc() {
    clock::spin_until(clock::now() + settings().alloc_ns);
}

#[no_mangle]
pub(crate) extern "C" fn cuMemAlloc_v2(out: *mut usize, bytes: usize) -> i32 {
    traced(&Call::driver(243, c"cuMemAlloc_v2", &Args2(out, bytes)), || {
        let Some(device) = device_of_current() else { return code::INVALID_CONTEXT };
        spend_alloc();
        if memory::used(device).saturating_add(bytes) > TOTAL_MEMORY {
            return code::OUT_OF_MEMORY;
        }
        match memory::allocate(bytes, DEVICE, device) {
            Some(at) => {
                put(out, at);
                code::SUCCESS
            }
            None => code::OUT_OF_MEMORY,
        }
    })
}

/// Frees device memory; waits for the whole device first, as the real call does.
#[no_mangle]
pub(crate) extern "C" fn cuMemFree_v2(at: usize) -> i32 {
    traced(&Call::driver(245, c"cuMemFree_v2", &Args1(at)), || {
        if at == 0 {
            return code::SUCCESS;
        }
        let (kind, device) = memory::kind_at(at);
        if kind != DEVICE {
            return code::INVALID_VALUE;
        }
        let until = gpu().device_tail(device);
        clock::sleep_until(until);
        spend_alloc();
        memory::free(at).map_or(code::INVALID_VALUE, |_| code::SUCCESS)
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuMemAllocAsync(out: *mut usize, bytes: usize, stream: usize) -> i32 {
    traced(&Call::driver(598, c"cuMemAllocAsync", &Args3(out, bytes, stream)), || {
        let Some(device) = device_of_current() else { return code::INVALID_CONTEXT };
        match memory::allocate(bytes, DEVICE, device) {
            Some(at) => {
                put(out, at);
                code::SUCCESS
            }
            None => code::OUT_OF_MEMORY,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuMemFreeAsync(at: usize, stream: usize) -> i32 {
    traced(&Call::driver(600, c"cuMemFreeAsync", &Args2(at, stream)), || {
        memory::free(at).map_or(code::INVALID_VALUE, |_| code::SUCCESS)
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuMemHostAlloc(out: *mut usize, bytes: usize, flags: u32) -> i32 {
    traced(&Call::driver(39, c"cuMemHostAlloc", &Args3(out, bytes, flags)), || {
        spend_alloc();
        match memory::allocate(bytes, PINNED, 0) {
            Some(at) => {
                put(out, at);
                code::SUCCESS
            }
            None => code::OUT_OF_MEMORY,
        }
    })
}

#[no_mangle]
extern "C" fn cuMemAllocHost_v2(out: *mut usize, bytes: usize) -> i32 {
    cuMemHostAlloc(out, bytes, 0)
}

#[no_mangle]
pub(crate) extern "C" fn cuMemFreeHost(at: usize) -> i32 {
    traced(&Call::driver(38, c"cuMemFreeHost", &Args1(at)), || {
        memory::free(at).map_or(code::INVALID_VALUE, |_| code::SUCCESS)
    })
}

/// One copy as asked for.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) to: usize,
    pub(crate) from: usize,
    pub(crate) bytes: usize,
    pub(crate) stream: usize,
    pub(crate) asynchronous: bool,
}

fn copy(copy: Copy) -> i32 {
    let ((source, from), (destination, to)) = (memory::kind_at(copy.from), memory::kind_at(copy.to));
    let pageable = source == PAGEABLE || destination == PAGEABLE;
    let (kind, rate) = match (source == DEVICE, destination == DEVICE) {
        (true, true) if from != to => (10, settings().pinned_rate),
        (true, true) => (8, settings().device_rate),
        (false, true) => (1, if pageable { settings().pageable_rate } else { settings().pinned_rate }),
        (true, false) => (2, if pageable { settings().pageable_rate } else { settings().pinned_rate }),
        (false, false) => (9, settings().pageable_rate),
    };
    let bytes = copy.bytes as u64;
    // Rates are bytes per microsecond.
    let duration = SETUP_NS + bytes.saturating_mul(1_000) / rate;
    let asynchronous = copy.asynchronous;
    let work = Work::Copy { kind, source, destination, bytes, duration, asynchronous, from, to };
    match submit::submit(copy.stream, &work) {
        Ok(placed) => {
            memory::move_bytes(copy.to, copy.from, copy.bytes);
            let waits = !copy.asynchronous && kind != 8 && kind != 10;
            let staged = kind == 1 && bytes <= STAGED;
            if let (Some(placed), true) = (placed, waits || (pageable && !staged)) {
                clock::sleep_until(placed.end);
            }
            code::SUCCESS
        }
        Err(code) => code,
    }
}

/// A copy through the driver entry point `name`, arguments as CUPTI shows them.
fn traced_copy<T>(cbid: u32, name: &'static CStr, args: &T, what: Copy) -> i32 {
    traced(&Call::driver(cbid, name, args), || copy(what))
}

/// What the runtime's copies call: the entry point the real runtime would take.
pub(crate) fn copy_from_runtime(what: Copy) -> i32 {
    let (from, to) = (memory::kind_at(what.from).0 == DEVICE, memory::kind_at(what.to).0 == DEVICE);
    match (from, to, what.asynchronous) {
        (false, true, true) => cuMemcpyHtoDAsync_v2(what.to, what.from, what.bytes, what.stream),
        (true, false, true) => cuMemcpyDtoHAsync_v2(what.to, what.from, what.bytes, what.stream),
        (true, true, true) => cuMemcpyDtoDAsync_v2(what.to, what.from, what.bytes, what.stream),
        (false, true, false) => cuMemcpyHtoD_v2(what.to, what.from, what.bytes),
        (true, false, false) => cuMemcpyDtoH_v2(what.to, what.from, what.bytes),
        (false, false, _) | (true, true, false) => cuMemcpyAsync(what.to, what.from, what.bytes, what.stream),
    }
}

#[no_mangle]
extern "C" fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) -> i32 {
    let what = Copy { to, from, bytes, stream: 0, asynchronous: false };
    traced_copy(276, c"cuMemcpyHtoD_v2", &Args3(to, from, bytes), what)
}

#[no_mangle]
extern "C" fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) -> i32 {
    let what = Copy { to, from, bytes, stream: 0, asynchronous: false };
    traced_copy(278, c"cuMemcpyDtoH_v2", &Args3(to, from, bytes), what)
}

#[no_mangle]
extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
    let what = Copy { to, from, bytes, stream, asynchronous: true };
    traced_copy(277, c"cuMemcpyHtoDAsync_v2", &Args4(to, from, bytes, stream), what)
}

#[no_mangle]
extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
    let what = Copy { to, from, bytes, stream, asynchronous: true };
    traced_copy(279, c"cuMemcpyDtoHAsync_v2", &Args4(to, from, bytes, stream), what)
}

#[no_mangle]
extern "C" fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
    let what = Copy { to, from, bytes, stream, asynchronous: true };
    traced_copy(281, c"cuMemcpyDtoDAsync_v2", &Args4(to, from, bytes, stream), what)
}

#[no_mangle]
extern "C" fn cuMemcpyAsync(to: usize, from: usize, bytes: usize, stream: usize) -> i32 {
    let what = Copy { to, from, bytes, stream, asynchronous: true };
    traced_copy(306, c"cuMemcpyAsync", &Args4(to, from, bytes, stream), what)
}

/// Copy between devices; both pointers know their device.
#[no_mangle]
pub(crate) extern "C" fn cuMemcpyPeerAsync(
    to: usize,
    to_ctx: usize,
    from: usize,
    from_ctx: usize,
    bytes: usize,
    stream: usize,
) -> i32 {
    let what = Copy { to, from, bytes, stream, asynchronous: true };
    traced_copy(319, c"cuMemcpyPeerAsync", &Args5(to, to_ctx, from, from_ctx, bytes), what)
}

fn set(at: usize, value: u32, bytes: usize, stream: usize) -> i32 {
    let duration = SETUP_NS + (bytes as u64).saturating_mul(1_000) / settings().device_rate;
    let outcome = submit::submit(stream, &Work::Set { value, bytes: bytes as u64, duration });
    if outcome.is_ok() {
        memory::fill(at, value as u8, bytes);
    }
    result(outcome)
}

#[no_mangle]
pub(crate) extern "C" fn cuMemsetD8Async(at: usize, value: u8, count: usize, stream: usize) -> i32 {
    traced(&Call::driver(216, c"cuMemsetD8Async", &Args4(at, value, count, stream)), || {
        set(at, u32::from(value), count, stream)
    })
}

#[no_mangle]
extern "C" fn cuMemsetD32Async(at: usize, value: u32, count: usize, stream: usize) -> i32 {
    traced(&Call::driver(220, c"cuMemsetD32Async", &Args4(at, value, count, stream)), || {
        set(at, value, count * 4, stream)
    })
}

#[no_mangle]
extern "C" fn cuMemsetD8_v2(at: usize, value: u8, count: usize) -> i32 {
    traced(&Call::driver(249, c"cuMemsetD8_v2", &Args3(at, value, count)), || {
        set(at, u32::from(value), count, 0)
    })
}
