// SPDX-License-Identifier: Apache-2.0
// COLD
//! The moment at which Python opens a library that asks `dlsym` for what we stand before: one that finds CUPTI so (`neighbours::DLSYM_CLIENTS`), or a
//! launcher of Triton's (`windows::driver`). The flush thread sees new libraries four times
//! a second, and Triton's Proton profiles right after its import: then it had opened a libcupti of its own, whose `cuptiSubscribe` answered 39
//! because of us, and the program ended with 1 (H100, 2026-11-26). So the interpreter's own slot of `dlopen`, which imports of extension modules go
//! through, leads here: once such a library is there it is led to us before its first call.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::Range;

use crate::guard::guard;
use crate::{flush, imports, lifecycle, neighbours, windows};

#[cfg(target_arch = "x86_64")]
mod entry {
    use std::ffi::{c_char, c_int, c_void};

    // A name without a directory is looked for by the paths of whoever calls, and `$ORIGIN` is the caller's, which dlopen tells by its
    // return address: all but absolute paths jump on to the real one.
    std::arch::global_asm!(
        ".globl gapprobe_dlopen_of_interpreter",
        ".hidden gapprobe_dlopen_of_interpreter",
        ".type gapprobe_dlopen_of_interpreter,@function",
        ".p2align 4",
        "gapprobe_dlopen_of_interpreter:",
        ".cfi_startproc",
        "test rdi, rdi",
        "jz 2f",
        "cmp byte ptr [rdi], 47",
        "jne 2f",
        "jmp {absolute}",
        "2: jmp qword ptr [rip + dlopen@GOTPCREL]",
        ".cfi_endproc",
        ".size gapprobe_dlopen_of_interpreter, . - gapprobe_dlopen_of_interpreter",
        absolute = sym super::dlopen_absolute,
    );
    extern "C" {
        pub(super) fn gapprobe_dlopen_of_interpreter(path: *const c_char, flags: c_int) -> *mut c_void;
    }
}

/// The interpreter opens a library by its absolute path.
unsafe extern "C" fn dlopen_absolute(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the interpreter's own arguments.
    let handle = unsafe { libc::dlopen(path, flags) };
    // (where it failed, dlerror is the interpreter's to read: nothing is asked of the loader)
    if !handle.is_null() {
        guard((), || {
            // SAFETY: dlopen just read it as a C string.
            let path = unsafe { CStr::from_ptr(path) }.to_bytes();
            let holds = |part: &&str| path.windows(part.len()).any(|w| w == part.as_bytes());
            if lifecycle::is_live() {
                windows::driver::lead_loaded(path);
            }
            if lifecycle::is_live() && neighbours::DLSYM_CLIENTS.iter().any(holds) {
                flush::look_for_clients();
            }
        });
    }
    handle
}

/// Leads the interpreter's slot here. `of_interpreter`: any address in the object that holds it. Harmless to repeat.
#[cfg(target_arch = "x86_64")]
pub(crate) fn lead(of_interpreter: u64) {
    struct Interpreter(u64);
    impl imports::Rewrite for Interpreter {
        fn wants(&mut self, object: &[u8]) -> bool {
            let file = object.rsplit(|b| *b == b'/').next().unwrap_or(object);
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
pub(crate) fn lead(_of_interpreter: u64) {}
