// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (the rest)
//! Launches through the driver, seen without CUPTI: where objects call them through their slots,
//! and where they ask for them (`dlsym_hook`): a launcher of Triton's, XLA, a CUDA runtime that is
//! linked in. The thread of a compiled backward launches by these alone, so that without them no
//! moment would be known at which nothing is launched.
//!
//! What the shared library of the CUDA runtime, and cuBLAS, call of the driver they ask the driver
//! itself for: it is not seen here, nor counted twice.

use std::ffi::{c_int, c_void};

use trace::call::{pack, DRIVER};

use super::safepoint;
use super::step_clock::{self, GRAPH};
use crate::hooks::slots::{Lead, Leads};
use crate::platform::guard::guard;
use crate::sources::cupti::choose;

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
type LaunchGraph = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// CUDA_ERROR_NOT_INITIALIZED, for a call that cannot come: a slot leads here only once the
/// function behind it is known.
const NOT_INITIALIZED: c_int = 3;

/// The functions, with ours of these numbers before them. (`_ptsz`: no stream means the thread's
/// own.)
macro_rules! table {
    ($a:literal $b:literal $c:literal $d:literal $e:literal $f:literal) => {
        [
            Lead::new(c"cuLaunchKernel", pack(DRIVER, 307), || launch::<$a> as Launch as usize),
            Lead::new(c"cuLaunchKernel_ptsz", pack(DRIVER, 442), || launch::<$b> as Launch as usize),
            Lead::new(c"cuLaunchKernelEx", pack(DRIVER, 652), || launch_ex::<$c> as LaunchEx as usize),
            Lead::new(c"cuLaunchKernelEx_ptsz", pack(DRIVER, 653), || launch_ex::<$d> as LaunchEx as usize),
            Lead::new(c"cuGraphLaunch", pack(DRIVER, 514), || launch_graph::<$e> as LaunchGraph as usize),
            Lead::new(c"cuGraphLaunch_ptsz", pack(DRIVER, 515), || launch_graph::<$f> as LaunchGraph as usize),
        ]
    };
}
/// By name: as slots hold them and `dlsym` finds them.
pub(super) static LAUNCHES: [Lead; 6] = table!(0 1 2 3 4 5);
/// As `cuGetProcAddress` gives them, which need not be where their names lead.
pub(super) static ASKED: [Lead; 6] = table!(6 7 8 9 10 11);

/// The function behind ours of this number: of the one table, then of the other.
fn real<const N: usize>() -> usize {
    LAUNCHES.get(N).or_else(|| ASKED.get(N.wrapping_sub(LAUNCHES.len()))).map_or(0, Lead::real)
}

/// CU_STREAM_PER_THREAD
const OF_THREAD: usize = 2;

/// What stream is meant: without one, in every second function, the thread's own.
fn meant<const N: usize>(stream: *mut c_void) -> *mut c_void {
    match N % 2 == 1 && stream.is_null() {
        true => std::ptr::without_provenance_mut(OF_THREAD),
        false => stream,
    }
}

unsafe extern "C" fn launch<const N: usize>(
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
    let mine = safepoint::slot();
    guard((), || step_clock::on_driver_launch(mine, function as usize));
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = safepoint::enter(mine, meant::<N>(stream));
    // SAFETY: the driver's function of this name and signature (stable since CUDA 4).
    let real: Launch = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe {
        real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra)
    }
}

unsafe extern "C" fn launch_ex<const N: usize>(
    config: *const Config,
    function: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    let mine = safepoint::slot();
    guard((), || step_clock::on_driver_launch(mine, function as usize));
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the caller's own configuration; the driver would read it next.
    let stream = unsafe { config.as_ref() }.map_or(std::ptr::null_mut(), |c| c.stream);
    let _inside = safepoint::enter(mine, meant::<N>(stream));
    // SAFETY: the driver's function of this name and signature (from CUDA 11.8 on).
    let real: LaunchEx = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(config, function, parameters, extra) }
}

unsafe extern "C" fn launch_graph<const N: usize>(graph: *mut c_void, stream: *mut c_void) -> c_int {
    let mine = safepoint::slot();
    guard((), || step_clock::on_driver_launch(mine, graph as usize | GRAPH));
    let real = real::<N>();
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let _inside = safepoint::enter(mine, meant::<N>(stream));
    // SAFETY: the driver's function of this name and signature (from CUDA 10 on).
    let real: LaunchGraph = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on.
    unsafe { real(graph, stream) }
}

/// The driver's launches in the slots of all objects, to be led here.
pub(super) fn leads() -> Leads<6> {
    let driver = choose::driver();
    if let Some(driver) = &driver {
        // SAFETY: an open handle and a C string.
        let function = unsafe { libc::dlsym(driver.handle.as_ptr(), c"cuStreamIsCapturing".as_ptr()) };
        safepoint::know_captures(function as usize);
    }
    Leads::find(&LAUNCHES, |_| driver.as_ref())
}

#[cfg(test)]
mod tests {
    use super::super::runtime;
    use super::super::waits::WAITS;
    use super::*;

    #[test]
    fn each_call_has_the_name_that_recordings_give_its_number() {
        let tables = WAITS.iter().chain(&runtime::LAUNCHES).chain(&LAUNCHES).chain(&ASKED);
        let mut ours = std::collections::HashSet::new();
        for lead in tables {
            let known = trace::call::find(lead.call).expect("in the table");
            let name = lead.name().to_str().expect("ASCII");
            assert_eq!(known.name, name.trim_end_matches("_ptsz").trim_end_matches("_ptds"));
            assert!(ours.insert(lead.ours()), "{name}: a function of its own");
        }
    }
}
