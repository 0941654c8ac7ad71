// SPDX-License-Identifier: Apache-2.0
//! libcudart's entry points, second half: allocation, copies, memsets. Blocking rules:
//! `driver_memory`.

use crate::driver::{self as driver_calls, Args1, Args2, Args3, Args4, Args5};
use crate::driver_memory::{self as driver, Copy};
use crate::gpu::code;
use crate::runtime::on_device;
use crate::{api::Call, memory};

#[no_mangle]
extern "C" fn sim_cudaMalloc(out: *mut usize, bytes: usize) -> i32 {
    on_device(&Call::runtime(20, c"cudaMalloc", &Args2(out, bytes)), || driver::cuMemAlloc_v2(out, bytes))
}

#[no_mangle]
extern "C" fn sim_cudaFree(at: usize) -> i32 {
    on_device(&Call::runtime(22, c"cudaFree", &Args1(at)), || driver::cuMemFree_v2(at))
}

#[no_mangle]
extern "C" fn sim_cudaMallocHost(out: *mut usize, bytes: usize) -> i32 {
    on_device(&Call::runtime(25, c"cudaMallocHost", &Args2(out, bytes)), || {
        driver::cuMemHostAlloc(out, bytes, 0)
    })
}

/// Stream-ordered allocation: no wait, neither here nor when freed.
#[no_mangle]
extern "C" fn sim_cudaMallocAsync(out: *mut usize, bytes: usize, stream: usize) -> i32 {
    on_device(&Call::runtime(373, c"cudaMallocAsync", &Args3(out, bytes, stream)), || {
        driver::cuMemAllocAsync(out, bytes, stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaFreeAsync(at: usize, stream: usize) -> i32 {
    on_device(&Call::runtime(375, c"cudaFreeAsync", &Args2(at, stream)), || {
        driver::cuMemFreeAsync(at, stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaHostAlloc(out: *mut usize, bytes: usize, flags: u32) -> i32 {
    let params = Args3(out, bytes, flags);
    let call = Call::runtime(27, c"cudaHostAlloc", &params);
    on_device(&call, || driver::cuMemHostAlloc(out, bytes, flags))
}

#[no_mangle]
extern "C" fn sim_cudaFreeHost(at: usize) -> i32 {
    on_device(&Call::runtime(26, c"cudaFreeHost", &Args1(at)), || driver::cuMemFreeHost(at))
}

#[no_mangle]
extern "C" fn sim_cudaHostRegister(at: usize, bytes: usize, flags: u32) -> i32 {
    on_device(&Call::runtime(152, c"cudaHostRegister", &Args3(at, bytes, flags)), || {
        memory::register(at, bytes);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn sim_cudaHostUnregister(at: usize) -> i32 {
    on_device(&Call::runtime(153, c"cudaHostUnregister", &Args1(at)), || {
        memory::free(at).map_or(code::INVALID_VALUE, |_| code::SUCCESS)
    })
}

#[no_mangle]
extern "C" fn sim_cudaMemGetInfo(free: *mut usize, total: *mut usize) -> i32 {
    on_device(&Call::runtime(30, c"cudaMemGetInfo", &Args2(free, total)), || {
        driver_calls::cuMemGetInfo_v2(free, total)
    })
}

#[no_mangle]
extern "C" fn sim_cudaMemcpy(to: usize, from: usize, bytes: usize, kind: i32) -> i32 {
    on_device(&Call::runtime(31, c"cudaMemcpy", &Args4(to, from, bytes, kind)), || {
        driver::copy_from_runtime(Copy { to, from, bytes, stream: 0, asynchronous: false })
    })
}

#[no_mangle]
extern "C" fn sim_cudaMemcpyAsync(to: usize, from: usize, bytes: usize, kind: i32, stream: usize) -> i32 {
    on_device(&Call::runtime(41, c"cudaMemcpyAsync", &Args5(to, from, bytes, kind, stream)), || {
        driver::copy_from_runtime(Copy { to, from, bytes, stream, asynchronous: true })
    })
}

/// cudaMemcpyPeerAsync's arguments.
#[repr(C)]
struct Peer {
    to: usize,
    to_device: i32,
    from: usize,
    from_device: i32,
    bytes: usize,
    stream: usize,
}

#[no_mangle]
extern "C" fn sim_cudaMemcpyPeerAsync(
    to: usize,
    to_device: i32,
    from: usize,
    from_device: i32,
    bytes: usize,
    stream: usize,
) -> i32 {
    let args = Peer { to, to_device, from, from_device, bytes, stream };
    on_device(&Call::runtime(161, c"cudaMemcpyPeerAsync", &args), || {
        driver::cuMemcpyPeerAsync(to, 0, from, 0, bytes, stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaMemset(at: usize, value: i32, count: usize) -> i32 {
    on_device(&Call::runtime(49, c"cudaMemset", &Args3(at, value, count)), || {
        driver::cuMemsetD8Async(at, value as u8, count, 0)
    })
}

#[no_mangle]
extern "C" fn sim_cudaMemsetAsync(at: usize, value: i32, count: usize, stream: usize) -> i32 {
    on_device(&Call::runtime(51, c"cudaMemsetAsync", &Args4(at, value, count, stream)), || {
        driver::cuMemsetD8Async(at, value as u8, count, stream)
    })
}
