// SPDX-License-Identifier: Apache-2.0
// COLD
//! Objects that ask for the driver's launches, instead of being bound to them: they get ours
//! (`driver`), where what they would get is the very function that ours hands on to.
//!
//! | who | how |
//! |---|---|
//! | Triton's launchers (a module a kernel, loaded when that is compiled), PyTorch's own for what Inductor compiled, ctypes (numba; CuPy's asks with its import, before we attach) | `dlsym` |
//! | XLA's plugin (JAX) | `dlsym`, name by name with its first call of each, through `cupti::reroute`, which it asks for CUPTI as well |
//! | a CUDA runtime that is linked in (nvcc's default) | `dlsym` for `cuGetProcAddress_v2`, that for itself, and that for all others, in front of `cuInit`: before we attach (`static_cudart`) |
//!
//! (Read off JAX 0.11.2, CuPy 14.2.0 and the runtime of CUDA 13 in it.)

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::driver::{ASKED, LAUNCHES};
use crate::hooks::slots::Lead;
use crate::hooks::{dlsym, imports};
use crate::platform::guard::guard;
use crate::platform::settings;
use crate::platform::{lifecycle, loader};

/// What the names of launchers' files begin with, which ask `dlsym`.
const LAUNCHERS: &[&[u8]] = &[
    b"libtorch_cpu.",
    b"libtorch_cuda.",
    b"libtorch_python.",
    b"libc10",
    b"__triton_launcher",
    b"cuda_utils.",
    b"_ctypes.",
];

/// Is this path a launcher's?
pub(super) fn is_launcher(path: &[u8]) -> bool {
    let file = loader::file_name(path);
    LAUNCHERS.iter().any(|name| file.starts_with(name))
}

type GetAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

/// `cuGetProcAddress`, as `dlsym` finds it and as it gives itself. The older form has no last
/// argument.
static GET_ADDRESS: [Lead; 4] = [
    Lead::new(c"cuGetProcAddress_v2", 0, || get_address::<0> as GetAddress as usize),
    Lead::new(c"cuGetProcAddress", 0, || get_address::<1> as GetAddress as usize),
    Lead::new(c"cuGetProcAddress_v2", 0, || get_address::<2> as GetAddress as usize),
    Lead::new(c"cuGetProcAddress", 0, || get_address::<3> as GetAddress as usize),
];
const BY_DLSYM: Range<usize> = 0..2;
const BY_ITSELF: Range<usize> = 2..4;

/// CUDA_ERROR_NOT_INITIALIZED, for a call that cannot come: nobody has ours before the function
/// behind it is known.
const NOT_INITIALIZED: c_int = 3;
/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
const PER_THREAD: u64 = 2;
/// From this release of CUDA on `cuGetProcAddress` means its second form.
const SECOND_FORM: c_int = 12_000;
/// A function of a release that is not known yet may take other arguments: it stays as it is.
const NEWEST: c_int = 13_999;

unsafe extern "C" fn get_address<const N: usize>(
    name: *const c_char,
    found: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    let real = GET_ADDRESS.get(N).map_or(0, Lead::real);
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the driver's function of this name and signature (CUDA 11.3, 12.0).
    let real: GetAddress = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's own arguments, handed on; where there are but four, what lies in the
    // fifth's place is not looked at.
    let result = unsafe { real(name, found, version, flags, status) };
    guard((), || {
        if result != 0 || name.is_null() || found.is_null() || version > NEWEST {
            return;
        }
        // SAFETY: the driver just read it as a C string.
        let name = unsafe { CStr::from_ptr(name) };
        // SAFETY: the driver just wrote there.
        let found = unsafe { &mut *found };
        if let Some(ours) = in_place_of_answer(name, *found, version, flags & PER_THREAD != 0) {
            *found = ours;
        }
    });
    result
}

/// Ours for what `cuGetProcAddress` gave.
fn in_place_of_answer(
    name: &CStr,
    found: *mut c_void,
    version: c_int,
    per_thread: bool,
) -> Option<*mut c_void> {
    let name = name.to_bytes();
    if found.is_null() || !is_wanted() {
        return None;
    }
    if name == b"cuGetProcAddress" {
        let form: &[u8] = if version < SECOND_FORM { b"cuGetProcAddress" } else { b"cuGetProcAddress_v2" };
        return take(GET_ADDRESS.get(BY_ITSELF)?, form, found);
    }
    let is_it = |l: &&Lead| {
        let bare = l.name().to_bytes();
        let stripped = bare.strip_suffix(b"_ptsz");
        stripped.unwrap_or(bare) == name && stripped.is_some() == per_thread
    };
    ASKED.iter().find(is_it).and_then(|lead| in_front_of(lead, found))
}

/// Ours of this name, where it hands on to `found`, or to nothing yet.
fn take(table: &'static [Lead], name: &[u8], found: *mut c_void) -> Option<*mut c_void> {
    in_front_of(table.iter().find(|l| l.name().to_bytes() == name)?, found)
}

fn in_front_of(lead: &Lead, found: *mut c_void) -> Option<*mut c_void> {
    lead.takes(found as usize).then(|| lead.ours() as *mut c_void)
}

/// Ours for what `dlsym` found.
pub(crate) fn in_place_of(name: &CStr, found: *mut c_void) -> Option<*mut c_void> {
    let name = name.to_bytes();
    if !name.starts_with(b"cuLaunchK") && !name.starts_with(b"cuG") || !is_wanted() {
        return None;
    }
    let is_drivers = || {
        let path = loader::object_of(found).map(|(_, path)| path.to_bytes());
        path.is_some_and(|p| loader::file_name(p).starts_with(b"libcuda.so"))
    };
    let launches = || take(&LAUNCHES, name, found);
    let tables = || launches().or_else(|| take(GET_ADDRESS.get(BY_DLSYM)?, name, found));
    is_drivers().then(tables).flatten()
}

/// Are launches to be seen: windows are used, or may be (before we attach the settings are not
/// known)?
fn is_wanted() -> bool {
    let by_settings = || settings::get().is_none_or(super::may_be_used);
    lifecycle::get() != lifecycle::State::Inert && (LEADS.load(Ordering::Acquire) || by_settings())
}

/// Are launchers led here? (Windows are used.)
static LEADS: AtomicBool = AtomicBool::new(false);

/// Launchers are led here from now on.
pub(super) fn lead() {
    LEADS.store(true, Ordering::Release);
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
        dlsym::in_slot_of_launcher(name, now, own)
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

    #[test]
    fn an_answer_is_replaced_by_what_hands_on_to_it_and_by_nothing_else() {
        let [a, b, c] = [0x1000, 0x2000, 0x3000].map(std::ptr::without_provenance_mut::<c_void>);
        let asked = |name, found, version, per_thread| in_place_of_answer(name, found, version, per_thread);
        let ours = asked(c"cuLaunchKernel", a, 4000, false);
        assert_eq!(ours, Some(ASKED[0].ours() as *mut c_void));
        assert_eq!(asked(c"cuLaunchKernel", a, 13_000, false), ours, "asked for again");
        assert_eq!(asked(c"cuLaunchKernel", b, 4000, false), None, "another function");
        let thread = asked(c"cuLaunchKernel", b, 7000, true);
        assert_eq!(thread, Some(ASKED[1].ours() as *mut c_void), "the one of its own stream");
        assert_eq!(asked(c"cuMemAlloc", c, 4000, false), None);
        let forms = [11_030, 12_000].map(|version| asked(c"cuGetProcAddress", c, version, false));
        assert_eq!(forms, [3, 2].map(|n: usize| Some(GET_ADDRESS[n].ours() as *mut c_void)));
    }
}
