// SPDX-License-Identifier: Apache-2.0
//! libcuda's exports: the driver's functions, asked for by name. As the real one seems to, it gives
//! launches that are not those that their names lead to (backtraces name libcudart's calls in the
//! driver by no symbol).

use crate::api::{traced, Call};
use crate::foreign::{put, text};
use crate::gpu::code;
use crate::{driver_graphs, driver_launch};
use std::ffi::{c_char, c_void};

type LaunchKernel = extern "C" fn(usize, u32, u32, u32, u32, u32, u32, u32, usize, usize, usize) -> i32;

/// One a stream that is meant where none is named: the old one, the thread's own (which is the same
/// one here).
extern "C" fn launch_kernel<const OF_THREAD: bool>(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: usize,
    params: usize,
    extra: usize,
) -> i32 {
    std::hint::black_box(OF_THREAD);
    driver_launch::cuLaunchKernel(
        function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra,
    )
}

extern "C" fn graph_launch(exec: usize, stream: usize) -> i32 {
    std::hint::black_box(exec);
    driver_graphs::cuGraphLaunch(exec, stream)
}

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
const PER_THREAD: u64 = 2;

/// The function of this name, with and without its version suffix.
fn find(name: &str, version: i32, flags: u64) -> usize {
    type Graph = extern "C" fn(usize, usize) -> i32;
    type Asked = extern "C" fn(*const c_char, *mut usize, i32, u64) -> i32;
    match name {
        "cuLaunchKernel" if flags & PER_THREAD != 0 => launch_kernel::<true> as LaunchKernel as usize,
        "cuLaunchKernel" => launch_kernel::<false> as LaunchKernel as usize,
        "cuGraphLaunch" => graph_launch as Graph as usize,
        "cuGetProcAddress" if version < 12_000 => cuGetProcAddress as Asked as usize,
        _ => exported(&format!("{name}_v2\0"))
            .or_else(|| exported(&format!("{name}\0")))
            .map_or(0, |f| f as usize),
    }
}

fn exported(name: &str) -> Option<*mut c_void> {
    // SAFETY: `name` and the library's name end in NUL; this library is never unloaded, so the
    // handle stays good.
    let found = unsafe {
        let own = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        libc::dlsym(own, name.as_ptr().cast())
    };
    (!found.is_null()).then_some(found)
}

#[no_mangle]
extern "C" fn cuGetProcAddress(name: *const c_char, out: *mut usize, version: i32, flags: u64) -> i32 {
    let found = find(&text(name), version, flags);
    put(out, found);
    if found == 0 {
        code::NOT_FOUND
    } else {
        code::SUCCESS
    }
}

#[no_mangle]
extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    out: *mut usize,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> i32 {
    let result = cuGetProcAddress(name, out, version, flags);
    put(status, i32::from(result != code::SUCCESS));
    result
}

/// Private to the simulator: what a runtime that is linked into the program does as a call of its
/// own.
#[no_mangle]
extern "C" fn simRuntimeCall(cbid: u32, body: extern "C" fn(*mut c_void) -> i32, data: *mut c_void) -> i32 {
    traced(&Call::runtime(cbid, c"cudaLaunchKernel", &()), || body(data))
}
