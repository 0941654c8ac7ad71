// SPDX-License-Identifier: Apache-2.0
//! The driver's life in a process: cuInit, CUDA_INJECTION64_PATH, fork, exit.
//!
//! As on the real driver: the injection library is loaded and its `InitializeInjection` called
//! inside cuInit, after the driver has registered its own exit handler (so handlers registered by
//! the injection run before it); in a child forked after cuInit every call fails with
//! NOT_INITIALIZED; after exit began, with DEINITIALIZED.

use crate::cupti::subscriber;
use crate::foreign::{forget_tid, lock};
use crate::gpu::code;
use crate::settings::settings;
use crate::truth;
use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

static READY: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static EXITED: AtomicBool = AtomicBool::new(false);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Why no call may do anything any more, as a CUDA result.
pub(crate) fn refusal() -> Option<i32> {
    if FORKED.load(Ordering::Relaxed) {
        Some(code::NOT_INITIALIZED)
    } else if EXITED.load(Ordering::Relaxed) {
        Some(code::DEINITIALIZED)
    } else {
        None
    }
}

/// True once cuInit succeeded, and for the injection library while it runs inside cuInit.
pub(crate) fn is_ready() -> bool {
    READY.load(Ordering::Acquire) || INSIDE.get()
}

/// cuInit; its CUDA result.
pub(crate) fn initialise() -> i32 {
    if is_ready() {
        return code::SUCCESS;
    }
    if let Some(failure) = settings().fault_code("cuinit", "") {
        return failure;
    }
    if settings().devices == 0 {
        return 100;
    }
    let _one = lock(&ONE_AT_A_TIME);
    if is_ready() {
        return code::SUCCESS;
    }
    INSIDE.set(true);
    // SAFETY: both take plain functions that live as long as this library, which is never unloaded.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_child));
    }
    inject();
    READY.store(true, Ordering::Release);
    INSIDE.set(false);
    subscriber::resource(subscriber::CU_INIT_FINISHED, 0, 0, std::ptr::null());
    code::SUCCESS
}

fn inject() {
    let path = std::env::var("CUDA_INJECTION64_PATH").unwrap_or_default();
    if path.is_empty() || path == "none" {
        return;
    }
    let Ok(path) = CString::new(path) else { return };
    // SAFETY: `path` and the symbol name end in NUL; a found symbol has the documented type int
    // (*)(void).
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        if library.is_null() {
            return;
        }
        let entry = libc::dlsym(library, c"InitializeInjection".as_ptr());
        if !entry.is_null() {
            let entry: extern "C" fn() -> i32 = std::mem::transmute(entry);
            entry();
        }
    }
}

extern "C" fn at_exit() {
    if !FORKED.load(Ordering::Relaxed) {
        EXITED.store(true, Ordering::Relaxed);
        truth::close();
    }
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    truth::leave_to_parent();
    forget_tid();
}
