// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (`leads`)
//! Launches of the CUDA runtime, seen without CUPTI: the slots through which the program's objects
//! call the runtime lead here, and from here on to the runtime. Not by exported names: a process
//! may have two runtimes, and an export cannot tell which of them a caller means. Where there are
//! two, or something else in the global scope defines these names, nothing is led here; nor is a
//! slot that is bound to anything but the runtime's own function.
//!
//! What is launched by way of dlsym is not seen; what a runtime that is linked in launches, and all
//! others through the driver: `driver`.

use std::ffi::{c_int, c_void};

use trace::call::{pack, RUNTIME};

use super::safepoint;
use super::step_clock::{self, GRAPH};
use crate::hooks::slots::{Lead, Leads};
use crate::platform::guard::guard;
use crate::sources::cupti::choose;

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

type Launch = unsafe extern "C" fn(*const c_void, Dim3, Dim3, *mut *mut c_void, usize, *mut c_void) -> c_int;
/// cudaLaunchConfig_t, as far as it is looked at.
#[repr(C)]
struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: *mut c_void,
}

type LaunchEx = unsafe extern "C" fn(*const Config, *const c_void, *mut *mut c_void) -> c_int;
type LaunchGraph = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// cudaErrorInitializationError, for a call that cannot come: a slot leads here only once the
/// function behind it is known.
const NOT_INITIALIZED: c_int = 3;

pub(super) static LAUNCHES: [Lead; 4] = [
    Lead::new(c"__cudaLaunchKernel", pack(RUNTIME, 505), || launch::<0> as Launch as usize),
    Lead::new(c"cudaLaunchKernel", pack(RUNTIME, 211), || launch::<1> as Launch as usize),
    Lead::new(c"cudaLaunchKernelExC", pack(RUNTIME, 430), || launch_ex as LaunchEx as usize),
    Lead::new(c"cudaGraphLaunch", pack(RUNTIME, 311), || launch_graph as LaunchGraph as usize),
];

fn real<const N: usize>() -> usize {
    LAUNCHES.get(N).map_or(0, Lead::real)
}

/// cudaLaunchKernel, and (N = 0) the name under which the compiler of CUDA 13 calls it.
unsafe extern "C" fn launch<const N: usize>(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: *mut c_void,
) -> c_int {
    let mine = safepoint::slot();
    guard((), || step_clock::on_launch(mine, function as usize));
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = safepoint::enter(mine, stream);
    // SAFETY: the runtime's function of this name and signature (stable from CUDA 7 to 13).
    let real: Launch = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(function, grid, block, arguments, shared, stream) }
}

unsafe extern "C" fn launch_ex(
    config: *const Config,
    function: *const c_void,
    arguments: *mut *mut c_void,
) -> c_int {
    let mine = safepoint::slot();
    guard((), || step_clock::on_launch(mine, function as usize));
    let real = real::<2>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the caller's own configuration; the runtime would read it next.
    let stream = unsafe { config.as_ref() }.map_or(std::ptr::null_mut(), |c| c.stream);
    let _inside = safepoint::enter(mine, stream);
    // SAFETY: the runtime's function of this name and signature (from CUDA 11.8 on).
    let real: LaunchEx = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(config, function, arguments) }
}

unsafe extern "C" fn launch_graph(graph: *mut c_void, stream: *mut c_void) -> c_int {
    let mine = safepoint::slot();
    guard((), || step_clock::on_launch(mine, graph as usize | GRAPH));
    let real = real::<3>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = safepoint::enter(mine, stream);
    // SAFETY: the runtime's function of this name and signature (from CUDA 10 on).
    let real: LaunchGraph = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(graph, stream) }
}

/// The runtime's launches in the slots of all objects, to be led here: all or none.
pub(super) fn leads() -> Leads<4> {
    let found = choose::only_runtime().and_then(|runtime| Leads::find(&LAUNCHES, |_| Some(&runtime)).whole());
    found.unwrap_or_else(|| Leads::none(&LAUNCHES))
}
