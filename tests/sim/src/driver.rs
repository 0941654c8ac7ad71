// SPDX-License-Identifier: Apache-2.0
//! libcuda's exports: devices, contexts, profiler control, entry points. The others are beside it,
//! `driver_*.rs`.
//!
//! Only what training programs and their profilers call. Each export is one `traced` call.

use crate::api::{current, set_current, traced, Call};
use crate::cupti::subscriber;
use crate::foreign::put;
use crate::gpu::{code, gpu, index, tag};
use crate::memory;
use crate::settings::settings;
use crate::{clock, injection, submit};
use std::ffi::{c_char, CStr};

/// Arguments as CUPTI shows them: in order, laid out as C would.
#[repr(C)]
pub(crate) struct Args1<A>(pub(crate) A);
#[repr(C)]
pub(crate) struct Args2<A, B>(pub(crate) A, pub(crate) B);
#[repr(C)]
pub(crate) struct Args3<A, B, C>(pub(crate) A, pub(crate) B, pub(crate) C);
#[repr(C)]
pub(crate) struct Args4<A, B, C, D>(pub(crate) A, pub(crate) B, pub(crate) C, pub(crate) D);
#[repr(C)]
pub(crate) struct Args5<A, B, C, D, E>(pub(crate) A, pub(crate) B, pub(crate) C, pub(crate) D, pub(crate) E);

/// Turns a refusal into the C result.
pub(crate) fn result<T>(outcome: Result<T, i32>) -> i32 {
    outcome.err().unwrap_or(code::SUCCESS)
}

// ---- initialisation and devices

#[no_mangle]
pub(crate) extern "C" fn cuInit(flags: u32) -> i32 {
    traced(&Call::driver(1, c"cuInit", &Args1(flags)), injection::initialise)
}

#[no_mangle]
extern "C" fn cuDriverGetVersion(out: *mut i32) -> i32 {
    put(out, 13_000);
    code::SUCCESS
}

#[no_mangle]
extern "C" fn cuDeviceGetCount(out: *mut i32) -> i32 {
    traced(&Call::driver(4, c"cuDeviceGetCount", &Args1(out)), || {
        put(out, settings().devices as i32);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuDeviceGet(out: *mut i32, ordinal: i32) -> i32 {
    traced(&Call::driver(3, c"cuDeviceGet", &Args2(out, ordinal)), || {
        if ordinal < 0 || ordinal as u32 >= settings().devices {
            return code::INVALID_DEVICE;
        }
        put(out, ordinal);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuDeviceGetName(out: *mut c_char, len: i32, device: i32) -> i32 {
    traced(&Call::driver(5, c"cuDeviceGetName", &Args3(out, len, device)), || {
        let name = b"Simulated GPU (gapprobe tests)\0";
        if out.is_null() || len < name.len() as i32 {
            return code::INVALID_VALUE;
        }
        // SAFETY: the client states `len` writable bytes, and the name fits.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len()) };
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuDeviceGetAttribute(out: *mut i32, attribute: i32, device: i32) -> i32 {
    traced(&Call::driver(9, c"cuDeviceGetAttribute", &Args3(out, attribute, device)), || {
        // Multiprocessors, clock, compute capability as on an H200; everything else 1.
        let value = match attribute {
            16 => 132,
            13 => 1_980_000,
            75 => 9,
            76 => 0,
            1 => 1024,
            _ => 1,
        };
        put(out, value);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, device: i32) -> i32 {
    traced(&Call::driver(241, c"cuDeviceTotalMem_v2", &Args2(out, device)), || {
        put(out, TOTAL_MEMORY);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuDeviceGetUuid(out: *mut [u8; 16], device: i32) -> i32 {
    traced(&Call::driver(482, c"cuDeviceGetUuid", &Args2(out, device)), || {
        let mut uuid = *b"SIMULATED-GPU-00";
        uuid[15] += device as u8;
        put(out, uuid);
        code::SUCCESS
    })
}

/// Memory of a simulated device.
pub(crate) const TOTAL_MEMORY: usize = 80 << 30;

// ---- contexts

fn context(handle: usize) -> Option<usize> {
    index(handle, tag::CONTEXT).filter(|c| gpu().contexts.get(*c).is_some_and(|c| c.alive))
}

fn announce_context(index: usize) {
    set_current(Some(index));
    subscriber::resource(subscriber::CONTEXT_CREATED, index + 1, 0, std::ptr::null());
}

#[no_mangle]
extern "C" fn cuCtxCreate_v2(out: *mut usize, flags: u32, device: i32) -> i32 {
    traced(&Call::driver(235, c"cuCtxCreate_v2", &Args3(out, flags, device)), || {
        if device < 0 || device as u32 >= settings().devices {
            return code::INVALID_DEVICE;
        }
        let new = gpu().add_context(device as u32);
        announce_context(new);
        put(out, tag::CONTEXT + new);
        code::SUCCESS
    })
}

fn destroy_context(index: usize) {
    subscriber::resource(subscriber::CONTEXT_DESTROY_STARTING, index + 1, 0, std::ptr::null());
    let tail = gpu().context_tail(index);
    clock::sleep_until(tail);
    let mut gpu = gpu();
    gpu.contexts[index].alive = false;
    gpu.streams.iter_mut().filter(|s| s.context == index).for_each(|s| s.alive = false);
}

#[no_mangle]
extern "C" fn cuCtxDestroy_v2(handle: usize) -> i32 {
    traced(&Call::driver(322, c"cuCtxDestroy_v2", &Args1(handle)), || {
        let Some(index) = context(handle) else { return code::INVALID_CONTEXT };
        destroy_context(index);
        if current() == Some(index) {
            set_current(None);
        }
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuCtxGetCurrent(out: *mut usize) -> i32 {
    traced(&Call::driver(304, c"cuCtxGetCurrent", &Args1(out)), || {
        put(out, current().map_or(0, |c| tag::CONTEXT + c));
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuCtxSetCurrent(handle: usize) -> i32 {
    traced(&Call::driver(303, c"cuCtxSetCurrent", &Args1(handle)), || {
        set_current(context(handle));
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuCtxPushCurrent_v2(handle: usize) -> i32 {
    cuCtxSetCurrent(handle)
}

#[no_mangle]
extern "C" fn cuCtxPopCurrent_v2(out: *mut usize) -> i32 {
    put(out, current().map_or(0, |c| tag::CONTEXT + c));
    set_current(None);
    code::SUCCESS
}

#[no_mangle]
extern "C" fn cuCtxGetDevice(out: *mut i32) -> i32 {
    traced(&Call::driver(16, c"cuCtxGetDevice", &Args1(out)), || {
        let Some(context) = current() else { return code::INVALID_CONTEXT };
        put(out, gpu().contexts[context].device as i32);
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuDevicePrimaryCtxRetain(out: *mut usize, device: i32) -> i32 {
    traced(&Call::driver(386, c"cuDevicePrimaryCtxRetain", &Args2(out, device)), || {
        if device < 0 || device as u32 >= settings().devices {
            return code::INVALID_DEVICE;
        }
        let (index, fresh) = gpu().primary(device as u32);
        if fresh {
            announce_context(index);
        }
        put(out, tag::CONTEXT + index);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> i32 {
    traced(&Call::driver(544, c"cuDevicePrimaryCtxRelease_v2", &Args1(device)), || code::SUCCESS)
}

#[no_mangle]
pub(crate) extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> i32 {
    traced(&Call::driver(545, c"cuDevicePrimaryCtxReset_v2", &Args1(device)), || {
        let (index, _) = gpu().primary(device as u32);
        destroy_context(index);
        set_current(None);
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuCtxSynchronize() -> i32 {
    traced(&Call::driver(17, c"cuCtxSynchronize", &()), || {
        let Some(context) = current() else { return code::INVALID_CONTEXT };
        let (until, id) = {
            let gpu = gpu();
            (gpu.context_tail(context), gpu.contexts[context].id)
        };
        submit::wait(4, (id, u32::MAX, u32::MAX), until);
        subscriber::synchronized(2, context, 0);
        code::SUCCESS
    })
}

// ---- profiler control, errors

#[no_mangle]
pub(crate) extern "C" fn cuProfilerStart() -> i32 {
    traced(&Call::driver(308, c"cuProfilerStart", &()), || code::SUCCESS)
}

#[no_mangle]
pub(crate) extern "C" fn cuProfilerStop() -> i32 {
    traced(&Call::driver(309, c"cuProfilerStop", &()), || code::SUCCESS)
}

#[no_mangle]
extern "C" fn cuGetErrorString(error: i32, out: *mut *const c_char) -> i32 {
    let text: &CStr = match error {
        code::SUCCESS => c"no error",
        code::NOT_READY => c"device not ready",
        100 => c"no CUDA-capable device is detected",
        _ => c"simulated CUDA error",
    };
    put(out, text.as_ptr());
    code::SUCCESS
}

#[no_mangle]
pub(crate) extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    traced(&Call::driver(242, c"cuMemGetInfo_v2", &Args2(free, total)), || {
        let Some(context) = current() else { return code::INVALID_CONTEXT };
        let gpu = gpu();
        let device = gpu.contexts[context].device;
        put(free, gpu.free_memory(device, TOTAL_MEMORY, memory::used(device)));
        put(total, TOTAL_MEMORY);
        code::SUCCESS
    })
}
