// SPDX-License-Identifier: Apache-2.0
//! libcudart's entry points, first half: `sim_cudaX` is what the shim's `cudaX` jumps to.
//!
//! Each is one `traced` runtime call around the driver call the real runtime would make, which
//! therefore shares its correlation id. The first one that needs a device initialises the driver
//! and the primary context.

use crate::api::{current, set_current, traced, Call};
use crate::driver::{self, Args1, Args2, Args3, Args5};
use crate::foreign::{get, put};
use crate::gpu::{code, gpu, index, tag};
use crate::graphs::Work;
use crate::settings::settings;
use crate::{driver_graphs, driver_launch, driver_streams, modules};
use std::cell::Cell;
use std::ffi::{c_char, CStr};
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

static VERSION: AtomicI32 = AtomicI32::new(13_000);

/// Told by the shim which runtime it stands for.
#[no_mangle]
extern "C" fn sim_cudart_version(version: i32) {
    VERSION.store(version, Ordering::Relaxed);
}

/// A failing runtime call stays readable by cudaGetLastError.
fn remember(result: i32) -> i32 {
    if result != code::SUCCESS && result != code::NOT_READY {
        LAST_ERROR.set(result);
    }
    result
}

/// One runtime call that needs a device.
pub(crate) fn on_device(call: &Call<'_>, body: impl FnOnce() -> i32) -> i32 {
    remember(traced(call, || match ready() {
        Ok(()) => body(),
        Err(code) => code,
    }))
}

/// Driver up, and the primary context of this thread's device current.
fn ready() -> Result<(), i32> {
    let alive = |c: usize| gpu().contexts.get(c).is_some_and(|c| c.alive);
    if current().is_some_and(alive) {
        return Ok(());
    }
    let mut context = 0usize;
    for step in [driver::cuInit(0), driver::cuDevicePrimaryCtxRetain(&mut context, DEVICE.get())] {
        if step != code::SUCCESS {
            return Err(step);
        }
    }
    set_current(index(context, tag::CONTEXT));
    Ok(())
}

// ---- device

#[no_mangle]
extern "C" fn sim_cudaRuntimeGetVersion(out: *mut i32) -> i32 {
    put(out, VERSION.load(Ordering::Relaxed));
    code::SUCCESS
}

#[no_mangle]
extern "C" fn sim_cudaDriverGetVersion(out: *mut i32) -> i32 {
    put(out, 13_000);
    code::SUCCESS
}

#[no_mangle]
extern "C" fn sim_cudaGetDeviceCount(out: *mut i32) -> i32 {
    remember(traced(&Call::runtime(3, c"cudaGetDeviceCount", &Args1(out)), || {
        let outcome = driver::cuInit(0);
        put(out, if outcome == code::SUCCESS { settings().devices as i32 } else { 0 });
        outcome
    }))
}

#[no_mangle]
extern "C" fn sim_cudaSetDevice(device: i32) -> i32 {
    remember(traced(&Call::runtime(16, c"cudaSetDevice", &Args1(device)), || {
        if device < 0 || device as u32 >= settings().devices {
            return code::INVALID_DEVICE;
        }
        DEVICE.set(device);
        set_current(None);
        // From CUDA 12 on the primary context is created here.
        ready().err().unwrap_or(code::SUCCESS)
    }))
}

#[no_mangle]
extern "C" fn sim_cudaGetDevice(out: *mut i32) -> i32 {
    traced(&Call::runtime(17, c"cudaGetDevice", &Args1(out)), || {
        put(out, DEVICE.get());
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn sim_cudaGetLastError() -> i32 {
    traced(&Call::runtime(10, c"cudaGetLastError", &()), || code::SUCCESS);
    LAST_ERROR.replace(0)
}

#[no_mangle]
extern "C" fn sim_cudaPeekAtLastError() -> i32 {
    LAST_ERROR.get()
}

#[no_mangle]
extern "C" fn sim_cudaGetErrorString(error: i32) -> *const c_char {
    let text: &CStr = match error {
        code::SUCCESS => c"no error",
        code::NOT_READY => c"device not ready",
        100 => c"no CUDA-capable device is detected",
        _ => c"simulated CUDA error",
    };
    text.as_ptr()
}

#[no_mangle]
extern "C" fn sim_cudaDeviceSynchronize() -> i32 {
    on_device(&Call::runtime(165, c"cudaDeviceSynchronize", &()), || driver::cuCtxSynchronize())
}

#[no_mangle]
extern "C" fn sim_cudaDeviceReset() -> i32 {
    on_device(&Call::runtime(164, c"cudaDeviceReset", &()), || {
        driver::cuDevicePrimaryCtxReset_v2(DEVICE.get())
    })
}

#[no_mangle]
extern "C" fn sim_cudaProfilerStart() -> i32 {
    on_device(&Call::runtime(171, c"cudaProfilerStart", &()), || driver::cuProfilerStart())
}

#[no_mangle]
extern "C" fn sim_cudaProfilerStop() -> i32 {
    on_device(&Call::runtime(172, c"cudaProfilerStop", &()), || driver::cuProfilerStop())
}

// ---- launches

/// CUDA's dim3: 12 bytes, by value in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3([u32; 3]);

/// The arguments of cudaLaunchKernel.
#[repr(C)]
struct Launch {
    function: usize,
    grid: Dim3,
    block: Dim3,
    args: usize,
    shared: usize,
    stream: usize,
}

fn launch(cbid: u32, name: &'static CStr, args: &Launch) -> i32 {
    let Some(function) = modules::function(args.function) else { return remember(code::INVALID_VALUE) };
    let call = Call { symbol: function.symbol(), ..Call::runtime(cbid, name, args) };
    on_device(&call, || {
        driver_launch::launch_from_runtime(
            args.function,
            args.grid.0,
            args.block.0,
            args.shared as u32,
            args.stream,
        )
    })
}

#[no_mangle]
extern "C" fn sim_cudaLaunchKernel(
    function: usize,
    grid: Dim3,
    block: Dim3,
    args: usize,
    shared: usize,
    stream: usize,
) -> i32 {
    launch(211, c"cudaLaunchKernel", &Launch { function, grid, block, args, shared, stream })
}

/// What CUDA 13's compiler stubs call. Seen as 211 under PyTorch 2.11; SIM_STUB_CBID=505 gives it
/// its own id.
#[no_mangle]
extern "C" fn sim___cudaLaunchKernel(
    function: usize,
    grid: Dim3,
    block: Dim3,
    args: usize,
    shared: usize,
    stream: usize,
) -> i32 {
    launch(settings().stub_cbid, c"cudaLaunchKernel", &Launch { function, grid, block, args, shared, stream })
}

#[no_mangle]
extern "C" fn sim_cudaLaunchCooperativeKernel(
    function: usize,
    grid: Dim3,
    block: Dim3,
    args: usize,
    shared: usize,
    stream: usize,
) -> i32 {
    launch(269, c"cudaLaunchCooperativeKernel", &Launch { function, grid, block, args, shared, stream })
}

/// cudaLaunchConfig_t up to the stream.
#[repr(C)]
#[derive(Clone, Copy)]
struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

#[no_mangle]
extern "C" fn sim_cudaLaunchKernelExC(config: usize, function: usize, args: usize) -> i32 {
    let Some(c) = get(config as *const LaunchConfig) else { return remember(code::INVALID_VALUE) };
    let Some(known) = modules::function(function) else { return remember(code::INVALID_VALUE) };
    let params = Args3(config, function, args);
    let call = Call { symbol: known.symbol(), ..Call::runtime(430, c"cudaLaunchKernelExC", &params) };
    on_device(&call, || {
        driver_launch::launch_from_runtime(function, c.grid.0, c.block.0, c.shared as u32, c.stream)
    })
}

// ---- streams and events

#[no_mangle]
extern "C" fn sim_cudaStreamCreate(out: *mut usize) -> i32 {
    on_device(&Call::runtime(129, c"cudaStreamCreate", &Args1(out)), || {
        driver_streams::cuStreamCreate(out, 0)
    })
}

#[no_mangle]
extern "C" fn sim_cudaStreamCreateWithFlags(out: *mut usize, flags: u32) -> i32 {
    let params = Args2(out, flags);
    let call = Call::runtime(198, c"cudaStreamCreateWithFlags", &params);
    on_device(&call, || driver_streams::cuStreamCreate(out, flags))
}

#[no_mangle]
extern "C" fn sim_cudaStreamCreateWithPriority(out: *mut usize, flags: u32, priority: i32) -> i32 {
    let params = Args3(out, flags, priority);
    let call = Call::runtime(202, c"cudaStreamCreateWithPriority", &params);
    on_device(&call, || driver_streams::cuStreamCreate(out, flags))
}

#[no_mangle]
extern "C" fn sim_cudaStreamDestroy(stream: usize) -> i32 {
    on_device(&Call::runtime(201, c"cudaStreamDestroy", &Args1(stream)), || {
        driver_streams::cuStreamDestroy_v2(stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaStreamSynchronize(stream: usize) -> i32 {
    on_device(&Call::runtime(131, c"cudaStreamSynchronize", &Args1(stream)), || {
        driver_streams::cuStreamSynchronize(stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaStreamQuery(stream: usize) -> i32 {
    on_device(&Call::runtime(132, c"cudaStreamQuery", &Args1(stream)), || {
        driver_streams::cuStreamQuery(stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaStreamWaitEvent(stream: usize, event: usize, flags: u32) -> i32 {
    let params = Args3(stream, event, flags);
    let call = Call::runtime(147, c"cudaStreamWaitEvent", &params);
    on_device(&call, || driver_streams::cuStreamWaitEvent(stream, event, flags))
}

#[no_mangle]
extern "C" fn sim_cudaEventCreate(out: *mut usize) -> i32 {
    on_device(&Call::runtime(133, c"cudaEventCreate", &Args1(out)), || driver_streams::cuEventCreate(out, 0))
}

#[no_mangle]
extern "C" fn sim_cudaEventCreateWithFlags(out: *mut usize, flags: u32) -> i32 {
    let params = Args2(out, flags);
    let call = Call::runtime(134, c"cudaEventCreateWithFlags", &params);
    on_device(&call, || driver_streams::cuEventCreate(out, flags))
}

#[no_mangle]
extern "C" fn sim_cudaEventDestroy(event: usize) -> i32 {
    on_device(&Call::runtime(136, c"cudaEventDestroy", &Args1(event)), || {
        driver_streams::cuEventDestroy_v2(event)
    })
}

#[no_mangle]
extern "C" fn sim_cudaEventRecord(event: usize, stream: usize) -> i32 {
    let params = Args2(event, stream);
    let call = Call::runtime(135, c"cudaEventRecord", &params);
    on_device(&call, || driver_streams::cuEventRecord(event, stream))
}

#[no_mangle]
extern "C" fn sim_cudaEventQuery(event: usize) -> i32 {
    on_device(&Call::runtime(138, c"cudaEventQuery", &Args1(event)), || driver_streams::cuEventQuery(event))
}

#[no_mangle]
extern "C" fn sim_cudaEventSynchronize(event: usize) -> i32 {
    on_device(&Call::runtime(137, c"cudaEventSynchronize", &Args1(event)), || {
        driver_streams::cuEventSynchronize(event)
    })
}

#[no_mangle]
extern "C" fn sim_cudaEventElapsedTime(out: *mut f32, from: usize, to: usize) -> i32 {
    let params = Args3(out, from, to);
    let call = Call::runtime(139, c"cudaEventElapsedTime", &params);
    on_device(&call, || driver_streams::cuEventElapsedTime(out, from, to))
}

// ---- graphs

#[no_mangle]
extern "C" fn sim_cudaStreamBeginCapture(stream: usize, mode: u32) -> i32 {
    let params = Args2(stream, mode);
    let call = Call::runtime(315, c"cudaStreamBeginCapture", &params);
    on_device(&call, || driver_graphs::cuStreamBeginCapture_v2(stream, mode))
}

#[no_mangle]
extern "C" fn sim_cudaStreamEndCapture(stream: usize, out: *mut usize) -> i32 {
    let params = Args2(stream, out);
    let call = Call::runtime(319, c"cudaStreamEndCapture", &params);
    on_device(&call, || driver_graphs::cuStreamEndCapture(stream, out))
}

#[no_mangle]
extern "C" fn sim_cudaStreamIsCapturing(stream: usize, out: *mut i32) -> i32 {
    let params = Args2(stream, out);
    let call = Call::runtime(317, c"cudaStreamIsCapturing", &params);
    on_device(&call, || driver_graphs::cuStreamIsCapturing(stream, out))
}

#[no_mangle]
extern "C" fn sim_cudaGraphCreate(out: *mut usize, flags: u32) -> i32 {
    on_device(&Call::runtime(286, c"cudaGraphCreate", &Args2(out, flags)), || {
        driver_graphs::cuGraphCreate(out, flags)
    })
}

/// cudaKernelNodeParams up to the block.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelNode {
    function: usize,
    grid: Dim3,
    block: Dim3,
}

#[no_mangle]
extern "C" fn sim_cudaGraphAddKernelNode(
    out: *mut usize,
    graph: usize,
    after: usize,
    count: usize,
    params: usize,
) -> i32 {
    let given = Args5(out, graph, after, count, params);
    let call = Call::runtime(289, c"cudaGraphAddKernelNode", &given);
    on_device(&call, || {
        let Some(node) = get(params as *const KernelNode) else { return code::INVALID_VALUE };
        let Some(function) = modules::function(node.function) else { return code::INVALID_VALUE };
        driver_graphs::add_node(graph, out, Work::Kernel { function, grid: node.grid.0, block: node.block.0 })
    })
}

#[no_mangle]
extern "C" fn sim_cudaGraphInstantiate(out: *mut usize, graph: usize, flags: u64) -> i32 {
    let params = Args3(out, graph, flags);
    let call = Call::runtime(443, c"cudaGraphInstantiate", &params);
    on_device(&call, || driver_graphs::cuGraphInstantiateWithFlags(out, graph, flags))
}

#[no_mangle]
extern "C" fn sim_cudaGraphInstantiateWithFlags(out: *mut usize, graph: usize, flags: u64) -> i32 {
    let params = Args3(out, graph, flags);
    let call = Call::runtime(418, c"cudaGraphInstantiateWithFlags", &params);
    on_device(&call, || driver_graphs::cuGraphInstantiateWithFlags(out, graph, flags))
}

#[no_mangle]
extern "C" fn sim_cudaGraphLaunch(exec: usize, stream: usize) -> i32 {
    on_device(&Call::runtime(311, c"cudaGraphLaunch", &Args2(exec, stream)), || {
        driver_graphs::cuGraphLaunch(exec, stream)
    })
}

#[no_mangle]
extern "C" fn sim_cudaGraphExecDestroy(exec: usize) -> i32 {
    on_device(&Call::runtime(313, c"cudaGraphExecDestroy", &Args1(exec)), || {
        driver_graphs::cuGraphExecDestroy(exec)
    })
}

#[no_mangle]
extern "C" fn sim_cudaGraphDestroy(graph: usize) -> i32 {
    on_device(&Call::runtime(314, c"cudaGraphDestroy", &Args1(graph)), || {
        driver_graphs::cuGraphDestroy(graph)
    })
}
