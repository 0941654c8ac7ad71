// SPDX-License-Identifier: Apache-2.0
// COLD
//! The moment at which Python opens a library that asks `dlsym` for what we stand before: one that
//! finds CUPTI so (`neighbours::DLSYM_CLIENTS`), or a launcher of Triton's (`dlsym_hook`). The
//! flush thread sees new libraries four times a second, and Triton's Proton profiles right after
//! its import: then it had opened a libcupti of its own, whose `cuptiSubscribe` answered 39 because
//! of us, and the program ended with 1 (H100, 2026-11-26). So the interpreter's own slot of
//! `dlopen`, which imports of extension modules go through, leads here: once such a library is
//! there it is led to us before its first call.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::Range;
use std::sync::OnceLock;

use crate::hooks::imports;
use crate::platform::guard::guard;
use crate::platform::{lifecycle, loader};

#[cfg(target_arch = "x86_64")]
mod entry {
    use std::ffi::{c_char, c_int, c_void};

    // Who calls dlopen decides where names without a directory, `$ORIGIN`, and what the library
    // itself needs are looked for; dlopen tells it by its return address. So all but the few
    // libraries that we lead jump on to the real one.
    std::arch::global_asm!(
        ".globl gapprobe_dlopen_of_interpreter",
        ".hidden gapprobe_dlopen_of_interpreter",
        ".type gapprobe_dlopen_of_interpreter,@function",
        ".p2align 4",
        "gapprobe_dlopen_of_interpreter:",
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {is_led}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test al, al",
        "jz 2f",
        "jmp {led}",
        "2: jmp qword ptr [rip + dlopen@GOTPCREL]",
        ".cfi_endproc",
        ".size gapprobe_dlopen_of_interpreter, . - gapprobe_dlopen_of_interpreter",
        is_led = sym super::is_led,
        led = sym super::dlopen_and_lead,
    );
    extern "C" {
        pub(super) fn gapprobe_dlopen_of_interpreter(path: *const c_char, flags: c_int) -> *mut c_void;
    }
}

/// Libraries whose opening is to be seen.
pub(crate) struct Watched {
    /// Is it one of them, by its path?
    pub(crate) is_it: fn(&[u8]) -> bool,
    /// It was opened: before its first call.
    pub(crate) opened: fn(&[u8]),
}

static WATCHED: OnceLock<[Watched; 2]> = OnceLock::new();

fn watched(path: &[u8]) -> Option<&'static Watched> {
    WATCHED.get()?.iter().find(|w| (w.is_it)(path))
}

/// Is it a library that is to be led to us? An absolute path: all others are the caller's.
unsafe extern "C" fn is_led(path: *const c_char) -> bool {
    guard(false, || {
        if path.is_null() || !lifecycle::is_live() {
            return false;
        }
        // SAFETY: the interpreter's own argument to dlopen, a C string.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        path.starts_with(b"/") && watched(path).is_some()
    })
}

/// The interpreter opens such a library.
unsafe extern "C" fn dlopen_and_lead(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the interpreter's own arguments.
    let handle = unsafe { libc::dlopen(path, flags) };
    // (where it failed, dlerror is the interpreter's to read: nothing is asked of the loader)
    if !handle.is_null() {
        guard((), || {
            // SAFETY: dlopen just read it as a C string.
            let path = unsafe { CStr::from_ptr(path) }.to_bytes();
            if let Some(watched) = watched(path) {
                (watched.opened)(path);
            }
        });
    }
    handle
}

/// Leads the interpreter's slot here. `of_interpreter`: any address in the object that holds it.
/// Harmless to repeat.
#[cfg(target_arch = "x86_64")]
pub(crate) fn lead(of_interpreter: u64, watched: [Watched; 2]) {
    let _ = WATCHED.set(watched); // once a process
    struct Interpreter(u64);
    impl imports::Rewrite for Interpreter {
        fn wants(&mut self, object: &[u8]) -> bool {
            let file = loader::file_name(object);
            file.is_empty() || file.starts_with(b"libpython")
        }

        fn replacement(&mut self, name: &[u8], _now: usize, own: &Range<u64>) -> Option<usize> {
            let is_it = name == b"dlopen" && own.contains(&self.0);
            is_it.then_some(entry::gapprobe_dlopen_of_interpreter as *const () as usize)
        }
    }
    imports::rewrite(&mut Interpreter(of_interpreter));
}

/// Elsewhere the flush thread's looks have to do.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn lead(_of_interpreter: u64, _watched: [Watched; 2]) {}
