// SPDX-License-Identifier: Apache-2.0
//! libcuda's exports: modules and kernel launches.

use crate::api::{current, traced, Call};
use crate::cupti::subscriber;
use crate::cupti::switching::Launching;
use crate::driver::{result, Args1, Args2, Args3};
use crate::foreign::{get, put, text};
use crate::gpu::{code, tag};
use crate::graphs::Work;
use crate::{modules, submit};
use std::ffi::{c_char, CStr};

#[no_mangle]
extern "C" fn cuModuleLoadData(out: *mut usize, image: usize) -> i32 {
    traced(&Call::driver(19, c"cuModuleLoadData", &Args2(out, image)), || {
        let handle = modules::load();
        put(out, handle);
        let about = subscriber::ModuleData {
            module_id: (handle - tag::MODULE) as u32,
            cubin_size: 0,
            cubin: std::ptr::null(),
        };
        let context = current().map_or(0, |c| c + 1);
        subscriber::resource(subscriber::MODULE_LOADED, context, handle, std::ptr::from_ref(&about).cast());
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuModuleLoadDataEx(
    out: *mut usize,
    image: usize,
    _options: u32,
    _names: usize,
    _values: usize,
) -> i32 {
    cuModuleLoadData(out, image)
}

#[no_mangle]
extern "C" fn cuModuleLoad(out: *mut usize, path: usize) -> i32 {
    cuModuleLoadData(out, path)
}

#[no_mangle]
extern "C" fn cuModuleUnload(handle: usize) -> i32 {
    traced(&Call::driver(22, c"cuModuleUnload", &Args1(handle)), || {
        if !modules::is_loaded(handle) {
            return code::INVALID_HANDLE;
        }
        let about = subscriber::ModuleData {
            module_id: (handle - tag::MODULE) as u32,
            cubin_size: 0,
            cubin: std::ptr::null(),
        };
        let context = current().map_or(0, |c| c + 1);
        subscriber::resource(
            subscriber::MODULE_UNLOAD_STARTING,
            context,
            handle,
            std::ptr::from_ref(&about).cast(),
        );
        modules::unload(handle);
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuModuleGetFunction(out: *mut usize, module: usize, name: *const c_char) -> i32 {
    traced(&Call::driver(23, c"cuModuleGetFunction", &Args3(out, module, name)), || {
        match modules::find(module, &text(name)) {
            Some(function) => {
                put(out, function);
                code::SUCCESS
            }
            None => code::NOT_FOUND,
        }
    })
}

/// Private to the simulator: a kernel of the program itself. Its handle serves cuLaunchKernel and
/// cudaLaunchKernel.
#[no_mangle]
extern "C" fn simRegisterKernel(name: *const c_char, duration_ns: u64) -> i32 {
    modules::register(&text(name), duration_ns) as i32
}

/// cuLaunchKernel's arguments.
#[repr(C)]
struct Launch {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
    params: usize,
    extra: usize,
}

fn launch(cbid: u32, name: &'static CStr, args: &Launch) -> i32 {
    let Some(function) = modules::function(args.function) else { return code::INVALID_HANDLE };
    let call = Call { symbol: function.symbol(), ..Call::driver(cbid, name, args) };
    let _launching = Launching::begin();
    traced(&call, || {
        if current().is_none() {
            return code::INVALID_CONTEXT;
        }
        let work = Work::Kernel { function: function.clone(), grid: args.grid, block: args.block };
        result(submit::submit(args.stream, &work))
    })
}

/// What the runtime's launches call.
pub(crate) fn launch_from_runtime(
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
) -> i32 {
    launch(307, c"cuLaunchKernel", &Launch { function, grid, block, shared, stream, params: 0, extra: 0 })
}

#[no_mangle]
pub(crate) extern "C" fn cuLaunchKernel(
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
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    launch(307, c"cuLaunchKernel", &Launch { function, grid, block, shared, stream, params, extra })
}

/// CUlaunchConfig up to the stream.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
}

#[no_mangle]
extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfigOpaque,
    function: usize,
    params: usize,
    extra: usize,
) -> i32 {
    let Some(c) = get(config.cast::<LaunchConfig>()) else { return code::INVALID_VALUE };
    let args =
        Launch { function, grid: c.grid, block: c.block, shared: c.shared, stream: c.stream, params, extra };
    launch(652, c"cuLaunchKernelEx", &args)
}

/// CUlaunchConfig, of which only the head is read.
#[repr(C)]
struct LaunchConfigOpaque {
    _head: [u8; 40],
}
