// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (`lead_here`)
//! Launches of the CUDA runtime, seen without CUPTI: the slots through which the program's objects call the runtime lead here, and
//! from here on to the runtime. Not by exported names: a process may have two runtimes, and an export cannot tell which of them
//! a caller means. Where there are two, or something else in the global scope defines these names, nothing is led here; nor is
//! a slot that is bound to anything but the runtime's own function.
//!
//! What is launched through the driver, by a runtime that is linked in, or by way of dlsym is not seen.

use std::ffi::{c_int, c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::gate;
use super::slots::Target;
use super::step_clock::{self, GRAPH};
use crate::cupti::choose;
use crate::guard::guard;
use crate::imports;

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

/// cudaErrorInitializationError, for a call that cannot come: a slot leads here only once the function behind it is known.
const NOT_INITIALIZED: c_int = 3;

/// The runtime's functions, as [`NAMES`].
static REAL: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
const NAMES: [&CStr; 4] =
    [c"__cudaLaunchKernel", c"cudaLaunchKernel", c"cudaLaunchKernelExC", c"cudaGraphLaunch"];

fn ours(index: usize) -> usize {
    match index {
        0 => launch::<0> as Launch as usize,
        1 => launch::<1> as Launch as usize,
        2 => launch_ex as LaunchEx as usize,
        _ => launch_graph as LaunchGraph as usize,
    }
}

fn real<const N: usize>() -> usize {
    REAL.get(N).map_or(0, |r| r.load(Ordering::Relaxed))
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
    guard((), || step_clock::on_launch(function as usize));
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = gate::enter(stream);
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
    guard((), || step_clock::on_launch(function as usize));
    let real = real::<2>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the caller's own configuration; the runtime would read it next.
    let stream = unsafe { config.as_ref() }.map_or(std::ptr::null_mut(), |c| c.stream);
    let _inside = gate::enter(stream);
    // SAFETY: the runtime's function of this name and signature (from CUDA 11.8 on).
    let real: LaunchEx = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(config, function, arguments) }
}

unsafe extern "C" fn launch_graph(graph: *mut c_void, stream: *mut c_void) -> c_int {
    guard((), || step_clock::on_launch(graph as usize | GRAPH));
    let real = real::<3>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = gate::enter(stream);
    // SAFETY: the runtime's function of this name and signature (from CUDA 10 on).
    let real: LaunchGraph = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(graph, stream) }
}

/// Leads the launches of all objects mapped now here. Harmless to repeat. Returns whether slots were left alone for now: those that are
/// not bound yet, where it cannot be told what to.
pub(super) fn lead_here() -> bool {
    let Some(runtime) = choose::only_runtime() else { return false };
    let mut launches = Launches { targets: [Target::default(); NAMES.len()], left: false };
    for ((name, real), target) in NAMES.iter().zip(&REAL).zip(&mut launches.targets) {
        let Some(found) = Target::find(&runtime, name) else { return false };
        *target = found;
        if real.compare_exchange(0, found.address, Ordering::AcqRel, Ordering::Acquire).is_err()
            && real.load(Ordering::Acquire) != found.address
        {
            return false; // another runtime than the one before
        }
    }
    if let Some(driver) = choose::driver() {
        // SAFETY: an open handle and a C string.
        let function = unsafe { libc::dlsym(driver.handle.as_ptr(), c"cuStreamIsCapturing".as_ptr()) };
        gate::know_captures(function as usize);
    }
    imports::rewrite(&mut launches);
    launches.left
}

struct Launches {
    /// By [`NAMES`].
    targets: [Target; NAMES.len()],
    left: bool,
}

impl imports::Rewrite for Launches {
    fn wants(&mut self, object: &[u8]) -> bool {
        let name = object.rsplit(|b| *b == b'/').next().unwrap_or(object);
        !name.starts_with(b"libcudart")
            && !name.starts_with(b"libgapprobe")
            && !name.starts_with(b"linux-vdso")
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        if !name.starts_with(b"cuda") && !name.starts_with(b"__cuda") {
            return None;
        }
        let index = NAMES.iter().position(|n| n.to_bytes() == name)?;
        let target = self.targets.get(index)?.is_in(now, own);
        self.left |= target.is_none();
        (target == Some(true)).then(|| ours(index))
    }
}
