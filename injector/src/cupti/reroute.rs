// SPDX-License-Identifier: Apache-2.0
// COLD
//! Clients that find CUPTI by `dlsym` (XLA's plugin, Triton's Proton) do not reach our exported wrappers, and cannot be
//! stepped aside for: measured with JAX 0.11 on the H200, XLA registers its buffers, gets ours back, frees them and
//! dies of `free(): invalid pointer`. So in these libraries, and in no other, the import of `dlsym` is pointed at
//! [`dlsym_of_client`], which hands out our wrappers for the names we wrap and the real thing for all others.
//!
//! The real thing is that of the libcupti which we attached to, also where the client opened another copy: Proton brings its own (CUPTI 12.8 with
//! Triton 3.6). Two copies in a process silence each other (H200), and a client that was given wrappers around one and functions of the other died
//! (H100, CUPTI 13.0 and 12.8, SIGSEGV).

use std::ffi::{c_char, c_void, CStr};
use std::ops::Range;

use super::{choose, session};
use crate::guard::guard;
use crate::{exports, imports, neighbours};

#[cfg(target_arch = "x86_64")]
mod entry {
    use std::ffi::{c_char, c_void};

    // What the clients get for `dlsym`. RTLD_DEFAULT (0) and RTLD_NEXT (-1) mean the scope of whoever calls, which dlsym tells by its
    // return address: they jump on to the real one, so that it is still the client's.
    std::arch::global_asm!(
        ".globl gapprobe_dlsym_of_client",
        ".hidden gapprobe_dlsym_of_client",
        ".type gapprobe_dlsym_of_client,@function",
        ".p2align 4",
        "gapprobe_dlsym_of_client:",
        ".cfi_startproc",
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        "jmp {with_handle}",
        "2: jmp qword ptr [rip + dlsym@GOTPCREL]",
        ".cfi_endproc",
        ".size gapprobe_dlsym_of_client, . - gapprobe_dlsym_of_client",
        with_handle = sym super::dlsym_with_handle,
    );
    extern "C" {
        pub(super) fn gapprobe_dlsym_of_client(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }
}
#[cfg(not(target_arch = "x86_64"))]
use dlsym_with_handle as dlsym_of_client;
#[cfg(target_arch = "x86_64")]
use entry::gapprobe_dlsym_of_client as dlsym_of_client;

/// A client asks a library that it opened.
unsafe extern "C" fn dlsym_with_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the client's own arguments to dlsym.
    let real = unsafe { libc::dlsym(handle, name) };
    if real.is_null() || name.is_null() {
        return real;
    }
    // SAFETY: dlsym just read it as a C string.
    let name = unsafe { CStr::from_ptr(name) };
    // the real function, handed out after a fault of ours, would let the client free our buffers: comparing cannot fail
    let wrapper = guard(None, || Some(wrapper_of(name))).unwrap_or_else(|| wrapper_of(name));
    wrapper.unwrap_or_else(|| of_our_copy(name, real))
}

/// The function of this name in the libcupti that we attached to; `theirs`: what the client would have got, if it is none of a libcupti. Null where
/// ours is too old to have it.
fn of_our_copy(name: &CStr, theirs: *mut c_void) -> *mut c_void {
    if !name.to_bytes().starts_with(b"cupti") {
        return theirs;
    }
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of a mapped object (dlsym gave it) and a valid out-pointer.
    if unsafe { libc::dladdr(theirs, info.as_mut_ptr()) } == 0 {
        return theirs;
    }
    // SAFETY: zeroed, and filled by dladdr.
    let info = unsafe { info.assume_init() };
    // SAFETY: a C string of the loader's, alive as long as the object, which the client holds open.
    let file = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let is_cupti = file.windows(b"libcupti".len()).any(|w| w == b"libcupti");
    match session::get().filter(|_| is_cupti) {
        // SAFETY: the session's handle is open for ever.
        Some(session) => unsafe { libc::dlsym(session.handle(), name.as_ptr()) },
        None => theirs,
    }
}

/// Ours for a function of CUPTI's, where there is one.
fn wrapper_of(name: &CStr) -> Option<*mut c_void> {
    let wrapper: *const c_void = match name.to_bytes() {
        b"cuptiSubscribe" => exports::cuptiSubscribe as *const c_void,
        b"cuptiActivityRegisterCallbacks" => exports::cuptiActivityRegisterCallbacks as *const c_void,
        b"cuptiActivityEnable" => exports::cuptiActivityEnable as *const c_void,
        b"cuptiActivityDisable" => exports::cuptiActivityDisable as *const c_void,
        b"cuptiActivityFlushAll" => exports::cuptiActivityFlushAll as *const c_void,
        b"cuptiFinalize" => exports::cuptiFinalize as *const c_void,
        _ => return None,
    };
    Some(wrapper.cast_mut())
}

/// Reroutes `dlsym` in every client library mapped now. Harmless to repeat.
pub(crate) fn clients() {
    // An object is in the loader's list before it is relocated, and what is written meanwhile is written over. Opening it once more waits
    // until that is done (and keeps it: these libraries are never unloaded while CUPTI may call them).
    if !choose::finish_loading(neighbours::DLSYM_CLIENTS) {
        return;
    }
    struct Clients;
    impl imports::Rewrite for Clients {
        fn wants(&mut self, object: &[u8]) -> bool {
            let holds = |part: &&str| object.windows(part.len()).any(|w| w == part.as_bytes());
            neighbours::DLSYM_CLIENTS.iter().any(holds)
        }

        fn replacement(&mut self, name: &[u8], _now: usize, _own: &Range<u64>) -> Option<usize> {
            (name == b"dlsym").then_some(dlsym_of_client as *const () as usize)
        }
    }
    imports::rewrite(&mut Clients);
}
