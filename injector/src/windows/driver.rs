// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (the rest)
//! Launches through the driver, seen without CUPTI: where objects call `cuLaunchKernel` through their slots, and where a launcher asks `dlsym` for it:
//! Triton's (a module a kernel, loaded when that is compiled), and PyTorch's own for what Inductor compiled. The thread of a compiled backward
//! launches by these alone, so that without them no moment would be known at which nothing is launched.
//!
//! What the CUDA runtime and cuBLAS call of the driver they ask the driver itself for: it is not seen here, nor counted twice.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use trace::call::{pack, DRIVER};

use super::gate;
use super::slots::{Lead, Leads};
use super::step_clock;
use crate::cupti::choose;
use crate::guard::guard;
use crate::{imports, loader};

type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// CUlaunchConfig, as far as it is looked at.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: *mut c_void,
}

type LaunchEx = unsafe extern "C" fn(*const Config, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> c_int;

/// CUDA_ERROR_NOT_INITIALIZED, for a call that cannot come: a slot leads here only once the function behind it is known.
const NOT_INITIALIZED: c_int = 3;

pub(super) static LAUNCHES: [Lead; 2] = [
    Lead::new(c"cuLaunchKernel", pack(DRIVER, 307), || launch as Launch as usize),
    Lead::new(c"cuLaunchKernelEx", pack(DRIVER, 652), || launch_ex as LaunchEx as usize),
];

/// What the names of launchers' files begin with, which ask `dlsym`.
const LAUNCHERS: &[&[u8]] = &[
    b"libtorch_cpu.",
    b"libtorch_cuda.",
    b"libtorch_python.",
    b"libc10",
    b"__triton_launcher",
    b"cuda_utils.",
];

/// Is this path a launcher's?
fn is_launcher(path: &[u8]) -> bool {
    let file = loader::file_name(path);
    LAUNCHERS.iter().any(|name| file.starts_with(name))
}

fn real<const N: usize>() -> usize {
    LAUNCHES.get(N).map_or(0, Lead::real)
}

unsafe extern "C" fn launch(
    function: *mut c_void,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    guard((), step_clock::on_driver_launch);
    let real = real::<0>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = gate::enter(stream);
    // SAFETY: the driver's function of this name and signature (stable since CUDA 4).
    let real: Launch = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe {
        real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra)
    }
}

unsafe extern "C" fn launch_ex(
    config: *const Config,
    function: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    guard((), step_clock::on_driver_launch);
    let real = real::<1>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the caller's own configuration; the driver would read it next.
    let stream = unsafe { config.as_ref() }.map_or(std::ptr::null_mut(), |c| c.stream);
    let _inside = gate::enter(stream);
    // SAFETY: the driver's function of this name and signature (from CUDA 11.8 on).
    let real: LaunchEx = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(config, function, parameters, extra) }
}

imports::dlsym_entry!(dlsym_of_launcher, "gapprobe_dlsym_of_launcher", dlsym_with_handle);

/// A launcher asks a library that it opened. What is not the very function that ours hands on to it gets as it is.
unsafe extern "C" fn dlsym_with_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the launcher's own arguments to dlsym.
    let found = unsafe { libc::dlsym(handle, name) };
    if found.is_null() || name.is_null() {
        return found;
    }
    guard(found, || {
        // SAFETY: dlsym just read it as a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let lead = LAUNCHES.iter().find(|l| l.name() == name && l.real() == found as usize);
        lead.map_or(found, |l| l.ours() as *mut c_void)
    })
}

/// Are launchers led here? (Windows are used.)
static LEADS: AtomicBool = AtomicBool::new(false);

/// The driver's launches in the slots of all objects, to be led here.
pub(super) fn leads() -> Leads<2> {
    let driver = choose::driver();
    if let Some(driver) = &driver {
        // SAFETY: an open handle and a C string.
        let function = unsafe { libc::dlsym(driver.handle.as_ptr(), c"cuStreamIsCapturing".as_ptr()) };
        gate::know_captures(function as usize);
    }
    LEADS.store(true, Ordering::Release);
    Leads::find(&LAUNCHES, |_| driver.as_ref())
}

/// Would the interpreter load a launcher by this path, and is it to be led here?
pub(crate) fn leads_what_is_loaded(path: &[u8]) -> bool {
    is_launcher(path) && LEADS.load(Ordering::Acquire)
}

/// The interpreter has just loaded this: it is led here before it asks for anything.
pub(crate) fn lead_loaded(path: &[u8]) {
    imports::rewrite(&mut Launchers { only: Some(path) });
}

/// Leads `dlsym` of launchers here.
pub(super) struct Launchers<'a> {
    /// This one; `None`: all.
    pub(super) only: Option<&'a [u8]>,
}

impl imports::Rewrite for Launchers<'_> {
    fn wants(&mut self, object: &[u8]) -> bool {
        self.only.map_or_else(|| is_launcher(object), |path| path == object)
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        // (not of an object that is not relocated yet, and not where somebody else has it)
        let is_plain = || now == libc::dlsym as *const () as usize || own.contains(&(now as u64));
        (name == b"dlsym" && is_plain()).then_some(dlsym_of_launcher as *const () as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_told_by_their_files_names() {
        for path in [
            "/venv/torch/lib/libtorch_cpu.so",
            "/root/.triton/cache/ab/__triton_launcher.cpython-312-x86_64-linux-gnu.so",
            "/c/cuda_utils.so",
        ] {
            assert!(is_launcher(path.as_bytes()), "{path}");
        }
        for path in [
            "/home/me/cuda_utils/.venv/jax_plugins/xla_cuda_plugin.so",
            "/x/libtorch_cpu/libproton.so",
            "",
            "/usr/lib/libc.so.6",
        ] {
            assert!(!is_launcher(path.as_bytes()), "{path}");
        }
    }
}
