// SPDX-License-Identifier: Apache-2.0
// COLD
//! Whose library CUDA and NVTX are told to load: ours, a second copy of ours, or another tool's.
//!
//! * **A second copy of us** (preloaded by two paths; inherited by `CUDA_INJECTION64_PATH` while
//!   another is preloaded): the one whose functions a program reaches by name records, for it alone
//!   sees the program's marks and CUPTI's other clients. The others are off, and hand on what the
//!   driver and NVTX ask of them.
//! * **Another tool's** in `CUDA_INJECTION64_PATH`: it stays, the driver never calls us, and at the
//!   exit of a program that used CUDA one line says so; so it does where there is no such file, of
//!   which the driver says nothing. With `GAPPROBE_FORCE=1` we take its place. (When we
//!   called it in our turn, nsys recorded nothing of CUDA's: H200, 2026-11-28.)

use std::ffi::{c_char, c_int, c_void, CStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::platform::guard::guard;
use crate::platform::{environment, lifecycle, loader, say, settings};
use crate::sources::cupti::choose;
use crate::sources::marks::nvtx;

/// Why the driver does not call us in this process.
struct Away {
    /// `CUDA_INJECTION64_PATH` names this library of another tool's.
    tool: OnceLock<Vec<u8>>,
    /// Nsight Compute is around, by this sign.
    sign: OnceLock<&'static str>,
}

static AWAY: Away = Away { tool: OnceLock::new(), sign: OnceLock::new() };

/// A function of the copy of us that the program's calls reach, where that is not this one.
fn of_first(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; RTLD_DEFAULT looks through the global scope.
    let reached = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gapprobe_version".as_ptr()) };
    if reached.is_null() {
        return None; // nobody is preloaded
    }
    let (base, path) = loader::object_of(reached)?;
    // not the address of an exported function of ours: the loader gives that of the first copy too
    if loader::object_of(of_first as *const c_void)?.0 == base {
        return None;
    }
    // SAFETY: a C string; the object is mapped, and this takes a reference to it.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: an open handle and a C string.
    let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!function.is_null()).then_some(function)
}

/// Does another copy of us record here?
pub(crate) fn is_second() -> bool {
    of_first(c"InitializeInjection").is_some()
}

/// Hands the driver's call on to the copy that records. `false`: that is this one.
pub(crate) fn hand_on() -> bool {
    let Some(function) = of_first(c"InitializeInjection") else { return false };
    // SAFETY: `int InitializeInjection(void)`, as the driver calls it.
    let entry: extern "C" fn() -> c_int = unsafe { std::mem::transmute(function) };
    entry();
    true
}

/// The same for NVTX's call.
pub(crate) fn hand_on_nvtx(get: Option<nvtx::GetExportTable>) -> Option<c_int> {
    let function = of_first(c"InitializeInjectionNvtx2")?;
    type Entry = extern "C" fn(Option<nvtx::GetExportTable>) -> c_int;
    // SAFETY: gapprobe's own function of this name, in all of its versions.
    let entry: Entry = unsafe { std::mem::transmute(function) };
    Some(entry(get))
}

/// Is this the path of a library of ours, by its name?
pub(crate) fn is_ours(path: &[u8]) -> bool {
    Path::new(std::ffi::OsStr::from_bytes(path))
        .file_name()
        .is_some_and(|n| n.as_bytes().starts_with(b"libgapprobe"))
}

/// `CUDA_INJECTION64_PATH` is another tool's. In the constructor. Are we to take its place?
pub(crate) fn beside(path: &'static [u8]) -> bool {
    if environment::get(trace::setting::FORCE) == Some(b"1") {
        return true;
    }
    let _ = AWAY.tool.set(path.to_vec());
    speak_at_exit();
    false
}

/// The driver is not to call us in this process, seen by `sign` (`neighbours::under_one`). In the
/// constructor.
pub(crate) fn stay_away(sign: &'static str) {
    let _ = AWAY.sign.set(sign);
    speak_at_exit();
}

/// At the exit of this process, not of a child forked off it.
fn speak_at_exit() {
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn at_exit() {
        guard((), || {
            if PROCESS.load(Ordering::Relaxed) == std::process::id() {
                say_at_exit();
            }
        });
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: a function that lives as long as the process (the library is never unmapped).
    unsafe { libc::atexit(at_exit) };
}

/// CUDA was used: the library is mapped, as the driver does inside `cuInit`, and so is the driver;
/// or the driver says so, where it found no library to load.
fn say_at_exit() {
    if let Some(sign) = AWAY.sign.get() {
        // (the driver, in which the tool is, is not asked whether it was used)
        if choose::is_mapped(&["/libcuda.so"]) {
            complain(format!(
                "not recording: Nsight Compute seems to be around ({sign}), under which nothing else may be in CUDA_INJECTION64_PATH"
            ));
        }
        return;
    }
    let Some(path) = AWAY.tool.get().and_then(|p| std::str::from_utf8(p).ok()) else { return };
    if lifecycle::get() != lifecycle::State::Dormant || path.is_empty() {
        return;
    }
    if !choose::is_mapped(&["/libcuda.so"]) || !(choose::is_mapped(&[path]) || was_initialised()) {
        return;
    }
    // a name without a folder is looked for by the loader
    let is_there = !path.contains('/') || Path::new(path).exists();
    let why = match is_there {
        true => format!(
            "not recording: CUDA_INJECTION64_PATH is taken by {path}; GAPPROBE_FORCE=1 records in its place"
        ),
        false => format!("not recording: CUDA_INJECTION64_PATH names {path}, which is not there: unset it"),
    };
    complain(why);
}

fn complain(why: String) {
    let settings = settings::read();
    say::set_quiet(settings.quiet);
    super::complain(&settings.complaints.with(&why).unwrap_or(why));
}

/// Has anybody called `cuInit`? Asks the driver for the number of GPUs, which it tells only then;
/// before it, and once it has ended (its exit handlers come before ours, which was there first), it
/// refuses at once, with different reasons.
fn was_initialised() -> bool {
    const NOT_INITIALISED: c_int = 3;
    // SAFETY: a C string; the driver is mapped, and this takes a reference to it.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: an open handle and a C string.
    let function = unsafe { libc::dlsym(handle, c"cuDeviceGetCount".as_ptr()) };
    if function.is_null() {
        return false;
    }
    // SAFETY: `CUresult cuDeviceGetCount(int *count)`, since CUDA 2.0.
    let count_of: extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(function) };
    count_of(&mut 0) != NOT_INITIALISED
}

/// A string `NAME=value` that the environment keeps for ever.
pub(crate) fn entry(name: &str, value: &[u8]) -> *mut c_char {
    let text = [name.as_bytes(), b"=", value, b"\0"].concat();
    Box::leak(text.into_boxed_slice()).as_mut_ptr().cast()
}

/// Recording begins: says where NVTX's ranges go, if that is not here.
pub(crate) fn say_whose_nvtx() {
    let Some(path) = environment::value(nvtx::VARIABLE) else { return };
    // `./.`: the user switched NVTX off
    if path != b"./." && !is_ours(path) {
        let path = String::from_utf8_lossy(path);
        say::line(&format!(
            "gapprobe: NVTX_INJECTION64_PATH is taken by {path}: recording without NVTX ranges"
        ));
    }
}
