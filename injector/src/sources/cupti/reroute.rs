// SPDX-License-Identifier: Apache-2.0
// COLD
//! Clients that find CUPTI by `dlsym` (XLA's plugin, Triton's Proton, ctypes) do not reach our
//! exported wrappers, and cannot be stepped aside for: measured with JAX 0.11 on the H200, XLA
//! registers its buffers, gets ours back, frees them and dies of `free(): invalid pointer`. So in
//! these libraries, and in no other, the import of `dlsym` leads to ours (`hooks::dlsym`), which
//! hands out our wrappers for the names we wrap and the real thing for all others; and our launches
//! for the driver's (`duty_cycle::dlsym_hook`), which XLA finds in the same way.
//!
//! The real thing is that of the libcupti which we attached to, also where the client opened
//! another copy: Proton brings its own. Two copies in a process silence each other (H200), and
//! Proton, which was given wrappers around one and functions of the other, died (H100, SIGSEGV;
//! that this was why is likely, not traced).

use std::ffi::{c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{arbiter, choose, session, wrappers, xla};
use crate::hooks::{dlsym, imports};
use crate::platform::loader;
use crate::sources::cupti::neighbours;

/// Ours for what a client found; [`crate::hooks::dlsym`] asks.
pub(crate) fn in_place_of(name: &CStr, found: *mut c_void) -> Option<*mut c_void> {
    wrapper_of(name).or_else(|| of_our_copy(name, found))
}

/// The function of this name in the libcupti that we attached to, where the client would have got
/// that of a libcupti.
fn of_our_copy(name: &CStr, theirs: *mut c_void) -> Option<*mut c_void> {
    if !name.to_bytes().starts_with(b"cupti") {
        return None;
    }
    let (_, path) = loader::object_of(theirs)?;
    let path = path.to_bytes();
    let session = session::get().filter(|_| loader::file_name(path).starts_with(b"libcupti"))?;
    // SAFETY: the session's handle is open for ever, and the name is a C string.
    let ours = unsafe { libc::dlsym(session.handle(), name.as_ptr()) };
    (!ours.is_null()).then_some(ours)
}

/// Ours for a function of CUPTI's, where there is one.
pub(crate) fn wrapper_of(name: &CStr) -> Option<*mut c_void> {
    let wrapper: *const c_void = match name.to_bytes() {
        b"cuptiSubscribe" => wrappers::cuptiSubscribe as *const c_void,
        b"cuptiActivityRegisterCallbacks" => wrappers::cuptiActivityRegisterCallbacks as *const c_void,
        b"cuptiActivityEnable" => wrappers::cuptiActivityEnable as *const c_void,
        b"cuptiActivityDisable" => wrappers::cuptiActivityDisable as *const c_void,
        b"cuptiActivityFlushAll" => wrappers::cuptiActivityFlushAll as *const c_void,
        b"cuptiFinalize" => wrappers::cuptiFinalize as *const c_void,
        b"cuptiSubscribe_v2" => wrappers::cuptiSubscribe_v2 as *const c_void,
        _ => return None,
    };
    Some(wrapper.cast_mut())
}

/// Reroutes `dlsym` in every client library mapped now; `since`: when they were looked for last,
/// ns. Harmless to repeat.
pub(crate) fn clients(since: u64) {
    // An object is in the loader's list before it is relocated, and what is written meanwhile is
    // written over. Opening it once more waits until that is done (and keeps it: these libraries
    // are never unloaded while CUPTI may call them).
    if !choose::finish_loading(neighbours::DLSYM_CLIENTS) {
        return;
    }
    let _leading = CLIENTS.leading.lock();
    let (proton, keeps_its_own) = proton();
    if keeps_its_own {
        arbiter::leave(since);
    }
    lead(proton, keeps_its_own);
}

/// The program's thread has just loaded a client: it is led before its first call. What needs more
/// than that (leaving, the subscription) is left to the flush thread, and to our wrappers, which
/// the client calls now.
pub(crate) fn lead_loaded() {
    // (who has it holds no lock of the loader's, and is quick)
    let Some(_leading) = CLIENTS.leading.try_lock_for(LONGEST_LEADING) else { return };
    let (proton, keeps_its_own) = proton();
    if session::get().is_some() && !keeps_its_own {
        lead(proton, false);
    }
}

/// How far clients are led to us.
struct Clients {
    /// Held while clients are led.
    leading: Mutex<()>,
    /// Proton asks us for all functions. (It opens its own libcupti all the same.)
    proton_is_led: AtomicBool,
    all_ask_us: AtomicBool,
}

static CLIENTS: Clients = Clients {
    leading: Mutex::new(()),
    proton_is_led: AtomicBool::new(false),
    all_ask_us: AtomicBool::new(true),
};
const LONGEST_LEADING: Duration = Duration::from_millis(20);

/// Every client that was mapped at the last look asks our wrapper before it subscribes: we may hold
/// the subscription until then.
pub(crate) fn all_ask_us() -> bool {
    CLIENTS.all_ask_us.load(Ordering::Acquire)
}

/// Is Proton here, with a libcupti of its own; and is it to keep that: what it has of it already it
/// keeps, no function of ours to Proton then, nor where ours lacks one that it asks for.
fn proton() -> (bool, bool) {
    let session = session::get();
    let proton = neighbours::cupti_of_proton(session.map(|s| std::path::Path::new(&s.path)));
    let is_too_old = session.is_some_and(|s| s.cupti.get_graph_exec_id.is_none());
    let is_led = CLIENTS.proton_is_led.load(Ordering::Acquire);
    let keeps_its_own = proton.as_ref().is_some_and(|(_, is_open)| !is_led && (*is_open || is_too_old));
    (proton.is_some(), keeps_its_own)
}

fn lead(proton: bool, keeps_its_own: bool) {
    struct Clients {
        keeps_its_own: bool,
        /// See [`all_ask_us`]: of the clients before the one that is looked through.
        all_ask_us: bool,
        /// That one has shown no slot of `dlsym` so far.
        lacks_slot: bool,
    }
    impl imports::Rewrite for Clients {
        fn wants(&mut self, object: &[u8]) -> bool {
            let is_left = self.keeps_its_own && choose::holds(object, "libproton");
            let is_client = neighbours::is_dlsym_client(object);
            xla::see(object);
            self.all_ask_us &= !(self.lacks_slot || is_client && is_left);
            self.lacks_slot = is_client;
            is_client && !is_left
        }

        fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
            if name != b"dlsym" {
                return None;
            }
            let hook = dlsym::in_slot_of_client(now, own);
            self.all_ask_us &= hook.is_some();
            self.lacks_slot = false;
            hook
        }
    }
    let mut clients = Clients { keeps_its_own, all_ask_us: true, lacks_slot: false };
    imports::rewrite(&mut clients);
    CLIENTS.all_ask_us.store(clients.all_ask_us && !clients.lacks_slot, Ordering::Release);
    if proton && !keeps_its_own {
        CLIENTS.proton_is_led.store(true, Ordering::Release);
    }
}
