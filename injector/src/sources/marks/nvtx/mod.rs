// SPDX-License-Identifier: Apache-2.0
// COLD
//! NVTX, received directly: every object of the program that holds NVTX v3 (libtorch_python,
//! libnccl, a Python extension module) loads the library named by `NVTX_INJECTION64_PATH` with its
//! own first call and hands it its own table of function pointers. We put ours into the tables of
//! core calls and core calls with a domain; slots left empty (names of categories, of CUDA and
//! OpenCL objects, resources) cost the program one test of a null pointer.
//!
//! * [`calls`]: the functions themselves (HOT).
//! * [`attributes`]: the structure that comes with a call: message, payload (HOT).
//! * [`handles`]: registered strings, domains, names of threads (COLD to register, WARM to look
//!   up).
//!
//! What becomes of a call on its way to the recording: `ranges.rs`. Calls before the first use of a
//! GPU do nothing. The numbers and layouts here are NVTX's own (nvtxTypes.h, nvToolsExt.h),
//! unchanged since v3.0.

pub(crate) mod attributes;
pub(crate) mod calls;
pub(crate) mod handles;

use std::ffi::{c_int, c_void};

use crate::platform::lifecycle;

/// Where NVTX looks for the tool that receives its calls.
pub(crate) const VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// `NvtxGetExportTableFunc_t`.
pub(crate) type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
/// A slot's content: a function whose type the slot's number tells.
type Function = unsafe extern "C" fn();

/// `NVTX_ETID_CALLBACKS`.
const CALLBACKS: u32 = 1;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    _struct_size: usize,
    get_module_function_table:
        Option<unsafe extern "C" fn(u32, *mut *const *mut Option<Function>, *mut u32) -> c_int>,
}

/// The modules whose tables we fill: number, and functions by slot.
fn modules() -> [(u32, &'static [calls::Slot]); 2] {
    [(1, calls::CORE.as_slice()), (5, calls::CORE2.as_slice())]
}

/// `InitializeInjectionNvtx2`: once for each object that holds NVTX. Returns 1 where the tables are
/// ours now, 0 where we want nothing of it (the object then treats NVTX as absent for good).
pub(crate) fn initialize(get: Option<GetExportTable>) -> c_int {
    if lifecycle::get() == lifecycle::State::Inert {
        return 0;
    }
    let Some(get) = get else { return 0 };
    // SAFETY: NVTX's own function, called as its contract says, from inside the initialisation it
    // waits for.
    let table = unsafe { get(CALLBACKS) }.cast::<Callbacks>();
    if table.is_null() || !table.is_aligned() {
        return 0;
    }
    // SAFETY: a table of NVTX's that lives as long as the object; its first word is its size.
    if unsafe { table.cast::<usize>().read() } < size_of::<Callbacks>() {
        return 0;
    }
    // SAFETY: as above, and as large as this.
    let table = unsafe { table.read() };
    let Some(module) = table.get_module_function_table else { return 0 };
    let mut any = false;
    for (number, functions) in modules() {
        let (mut slots, mut size) = (std::ptr::null(), 0);
        // SAFETY: NVTX's own function with valid out-pointers.
        if unsafe { module(number, &mut slots, &mut size) } != 1 || slots.is_null() {
            continue;
        }
        for &(slot, function) in functions.iter().filter(|f| f.0 < size as usize) {
            // SAFETY: the table has `size` entries.
            let place = unsafe { slots.wrapping_add(slot).read() };
            if place.is_null() {
                continue;
            }
            // SAFETY: a non-null function pointer; who calls through the slot gives it its type
            // back, which is that of the function at this number (`calls`).
            let function = unsafe { std::mem::transmute::<*const (), Function>(function()) };
            // SAFETY: a slot of the object's own, which nobody reads before this initialisation has
            // returned.
            unsafe { place.write(Some(function)) };
            any = true;
        }
    }
    c_int::from(any)
}
