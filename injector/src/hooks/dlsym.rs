// SPDX-License-Identifier: Apache-2.0
// COLD
//! What stands in place of `dlsym` in the slots of objects that ask for functions by name, and who
//! answers there: the rooms above, as `boot` sets. Whose slots are led here is theirs to say.

use std::ffi::{c_char, c_void, CStr};
use std::ops::Range;
use std::sync::OnceLock;

use crate::platform::guard::guard;

/// Ours in place of what was found under a name; `None`: it stays.
pub(crate) type Answer = fn(&CStr, *mut c_void) -> Option<*mut c_void>;

/// Who answers.
pub(crate) struct Answers {
    /// A client of CUPTI that asks for CUPTI's functions. It does not panic, and is asked after a
    /// fault of ours too: the real function, handed out in between, would let the client free our
    /// buffers.
    pub(crate) of_cupti: Answer,
    /// A client, or a launcher, that asks for the driver's.
    pub(crate) of_driver: Answer,
}

static ANSWERS: OnceLock<Answers> = OnceLock::new();

/// Who answers from now on.
pub(crate) fn set(answers: Answers) {
    let _ = ANSWERS.set(answers); // once a process
}

// RTLD_DEFAULT (0) and RTLD_NEXT (-1) mean the scope of whoever calls, which dlsym tells by its
// return address: they jump on to the real one, so that it is still the object's own. All else goes
// to `$with_handle`.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident, $symbol:literal, $with_handle:ident) => {
        std::arch::global_asm!(
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ",@function"),
            ".p2align 4",
            concat!($symbol, ":"),
            ".cfi_startproc",
            "lea rax, [rdi + 1]",
            "cmp rax, 1",
            "jbe 2f",
            "jmp {with_handle}",
            "2: jmp qword ptr [rip + dlsym@GOTPCREL]",
            ".cfi_endproc",
            concat!(".size ", $symbol, ", . - ", $symbol),
            with_handle = sym $with_handle,
        );
        extern "C" {
            #[link_name = $symbol]
            fn $name(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        }
    };
}
#[cfg(not(target_arch = "x86_64"))]
macro_rules! entry {
    ($name:ident, $symbol:literal, $with_handle:ident) => {
        use $with_handle as $name;
    };
}

entry!(of_client, "gapprobe_dlsym_of_client", asked_by_client);
entry!(of_launcher, "gapprobe_dlsym_of_launcher", asked_by_launcher);

/// A client asks a library that it opened.
unsafe extern "C" fn asked_by_client(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the client's own arguments to dlsym.
    unsafe { asked(handle, name, true) }
}

/// A launcher does.
unsafe extern "C" fn asked_by_launcher(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the launcher's own arguments to dlsym.
    unsafe { asked(handle, name, false) }
}

/// # Safety
/// As dlsym's; with a handle.
unsafe fn asked(handle: *mut c_void, name: *const c_char, by_client: bool) -> *mut c_void {
    // SAFETY: the caller's promise.
    let found = unsafe { libc::dlsym(handle, name) };
    let Some(answers) = ANSWERS.get().filter(|_| !found.is_null() && !name.is_null()) else { return found };
    // SAFETY: dlsym just read it as a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let of_cupti = || (answers.of_cupti)(name, found);
    if let Some(ours) = by_client.then(|| guard(None, || Some(of_cupti())).unwrap_or_else(of_cupti)).flatten()
    {
        return ours;
    }
    guard(None, || (answers.of_driver)(name, found)).unwrap_or(found)
}

/// What is to stand in a slot of a launcher's that holds `now`; `own`: where the object lies. Not
/// of an object that is not relocated yet, and not where somebody else has it.
pub(crate) fn in_slot_of_launcher(name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
    let is_plain = || now == libc::dlsym as *const () as usize || own.contains(&(now as u64));
    (name == b"dlsym" && is_plain()).then_some(of_launcher as *const () as usize)
}

/// The same of a client's slot of `dlsym`, whoever else has it. `None`: the object is not relocated
/// yet, and the loader has still to add its base to what stands there: it would to ours.
pub(crate) fn in_slot_of_client(now: usize, own: &Range<u64>) -> Option<usize> {
    let is_relocated = now as u64 >= own.end.saturating_sub(own.start);
    is_relocated.then_some(of_client as *const () as usize)
}
