// SPDX-License-Identifier: Apache-2.0
// HOT
//! What CUPTI calls at entry and exit of the API calls we asked for: one event a call, in the
//! calling thread's ring.
//!
//! A runtime call and the driver call nested in it share their correlation id: the outer one is
//! kept. An exit that never comes (an exception, a callback switched off between) leaves nothing
//! behind: the next entry with another id takes over.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cupti_sys::bindings::{site, CUpti_CallbackData};
use cupti_sys::{cbid, domain};
use trace::call::{self, Class};
use trace::event::{CAPTURED, IN_NODE};
use trace::{Event, Kind, Loss};

use super::{graph_nodes, names, session, streams};
use crate::platform::guard::guard;
use crate::platform::{clock, lifecycle, thread_block, ticks};
use crate::ring::Tag;
use crate::sources::callers::{self, Place};
use crate::sources::marks::program;
use crate::sources::{above, hostpool, launch, python};

/// Class of each call id, 0 = not ours.
static DRIVER: [u8; 1024] = call::classes(call::DRIVER);
/// As above.
static RUNTIME: [u8; 1024] = call::classes(call::RUNTIME);

/// Classes of calls that put one operation on the GPU.
const WORK: [u8; 3] = [Class::Launch as u8, Class::Copy as u8, Class::Memset as u8];

/// One callback in this many has its own time taken.
const SAMPLE: u32 = 256;
/// How callbacks record, and what they cost.
struct Callbacks {
    sampled_ns: AtomicU64,
    sampled: AtomicU64,
    bare: AtomicBool,
    on: AtomicBool,
    /// When callbacks were last switched on, by the clock of `ticks`.
    on_since: AtomicU64,
}

static CALLBACKS: Callbacks = Callbacks {
    sampled_ns: AtomicU64::new(0),
    sampled: AtomicU64::new(0),
    bare: AtomicBool::new(false),
    on: AtomicBool::new(false),
    on_since: AtomicU64::new(0),
};

/// Callbacks are about to be switched on, or off. COLD.
pub(super) fn switched(on: bool) {
    if on {
        CALLBACKS.on_since.store(ticks::now(), Ordering::Relaxed);
    }
    CALLBACKS.on.store(on, Ordering::Relaxed);
}

/// Are calls told of now?
#[inline]
pub(crate) fn are_on() -> bool {
    CALLBACKS.on.load(Ordering::Relaxed)
}

/// Test switch: return at once (bare CUPTI).
pub(crate) fn set_bare(on: bool) {
    CALLBACKS.bare.store(on, Ordering::Relaxed);
}

/// Mean time of an exit callback of ours in ns, from the samples; 0 before the first.
pub(crate) fn mean_ns() -> u64 {
    CALLBACKS
        .sampled_ns
        .load(Ordering::Relaxed)
        .checked_div(CALLBACKS.sampled.load(Ordering::Relaxed))
        .unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
mod entry {
    use std::ffi::c_void;

    // What CUPTI calls: adds where its own return address lies and what its rbp holds, and goes on
    // as `on_callback`. A jump, no frame: whoever unwinds sees nothing of it.
    std::arch::global_asm!(
        ".globl gapprobe_callback",
        ".hidden gapprobe_callback",
        ".type gapprobe_callback,@function",
        ".p2align 4",
        "gapprobe_callback:",
        ".cfi_startproc",
        "mov r8, rsp",
        "mov r9, rbp",
        "jmp {on_callback}",
        ".cfi_endproc",
        ".size gapprobe_callback, . - gapprobe_callback",
        on_callback = sym super::on_callback,
    );
    extern "C" {
        pub(crate) fn gapprobe_callback(user: *mut c_void, area: u32, id: u32, data: *const c_void);
    }
}
#[cfg(target_arch = "x86_64")]
pub(crate) use entry::gapprobe_callback;

/// Elsewhere no caller is looked for.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe extern "C" fn gapprobe_callback(
    user: *mut c_void,
    area: u32,
    id: u32,
    data: *const c_void,
) {
    // SAFETY: CUPTI's own arguments.
    unsafe { on_callback(user, area, id, data, 0, 0) }
}

/// The one callback of the subscription, with where it returns to and CUPTI's rbp.
unsafe extern "C" fn on_callback(
    _user: *mut c_void,
    area: u32,
    id: u32,
    data: *const c_void,
    at: u64,
    rbp: u64,
) {
    if CALLBACKS.bare.load(Ordering::Relaxed) || !lifecycle::is_live() {
        return;
    }
    guard((), || match area {
        domain::DRIVER_API | domain::RUNTIME_API => {
            // SAFETY: for these domains CUPTI passes a CUpti_CallbackData that lives for the call
            // (documented; layout the same from 11.8 to 13.5, held by cupti-sys's tests).
            if let Some(data) = unsafe { data.cast::<CUpti_CallbackData>().as_ref() } {
                on_api(area, id, data, Place { at, rbp, through_cudart: false });
            }
        }
        domain::RESOURCE => on_resource(id, data),
        _ => {}
    });
}

/// Driver calls that take kernel names away. API callbacks, not the resource callback: from those
/// CUPTI allows a flush.
pub(crate) const UNLOADING: [u32; 2] = [cbid::driver::CU_MODULE_UNLOAD, cbid::driver::CU_LIBRARY_UNLOAD];

#[inline]
fn on_api(area: u32, id: u32, data: &CUpti_CallbackData, inside: Place) {
    let table = if area == domain::DRIVER_API { &DRIVER } else { &RUNTIME };
    let class = table.get(id as usize).copied().unwrap_or(0);
    if class == 0 || data.correlationData.is_null() {
        if area == domain::DRIVER_API && UNLOADING.contains(&id) {
            on_unload(data.callbackSite == site::ENTER);
        }
        return;
    }
    if data.callbackSite == site::ENTER {
        let outermost = thread_block::with(|b| b.outer.replace(data.correlationId) != data.correlationId);
        let start = if outermost { ticks::now() } else { 0 };
        // SAFETY: CUPTI gives each call 8 bytes that are the same at entry and exit (documented).
        unsafe { data.correlationData.write(start) };
        return;
    }
    // SAFETY: as above.
    let start = unsafe { data.correlationData.read() };
    let end = ticks::now();
    if start == 0 || start > end {
        return; // nested in another call of the same correlation, or entered before we were switched on (then it may be anything)
    }
    let is_launch = class == Class::Launch as u8 || class == Class::GraphLaunch as u8;
    if start < CALLBACKS.on_since.load(Ordering::Relaxed) && class != Class::Profiler as u8 {
        // entered before we were switched on, and what lies there is left over from an earlier
        // call: a wait of whose thread nobody launched meanwhile, a launch of a runtime that is
        // linked in, inside which that of the driver switched us on
        return;
    }
    let here = 0u8;
    let captured = thread_block::with(|b| {
        b.outer.set(0);
        b.captured.replace(false).then(|| b.node(&raw const here) != 0)
    });
    if class == Class::Profiler as u8 {
        program::on_profiler_call(
            id == cbid::runtime::CUDA_PROFILER_START_V4000 || id == cbid::driver::CU_PROFILER_START,
        );
    }
    let mut event = Event::new(Kind::Call, start, end);
    event.correlation = data.correlationId;
    event.x = class;
    event.a = call::pack(area as u8, id);
    if !data.functionReturnValue.is_null() {
        // SAFETY: at exit of a CUDA API call this points to its result, a 32-bit enum (documented).
        event.b = unsafe { data.functionReturnValue.cast::<u32>().read() };
    }
    event.flags = match captured.filter(|_| class == Class::Launch as u8) {
        None => 0,
        Some(false) => CAPTURED,
        Some(true) => CAPTURED | IN_NODE,
    };
    if let Some(above) = above::get().filter(|_| is_launch) {
        (above.on_launch)();
    }
    let site = python::site();
    // (CUPTI gives it with launches alone)
    let symbol = if class == Class::Launch as u8 { data.symbolName as u64 } else { 0 };
    if event.b == 0 && WORK.contains(&class) {
        callers::launched(inside, site, symbol);
    }
    if is_launch {
        // (in a process with Python the function that launches is a framework's: it says nothing)
        match site {
            _ if event.b != 0 => hostpool::push(&[event.encode()]),
            0 if python::is_here() => hostpool::push(&[event.encode()]),
            0 => callers::push_launch(inside, area == domain::RUNTIME_API, symbol, &event),
            site => hostpool::push(&[launch::pack(Tag::Launch, &event, site)]),
        }
    } else {
        // the drain thread reads it and puts the place in the program there
        event.c = streams::named_by(area, id, data, event.b);
        match site {
            0 => callers::push(inside, area == domain::RUNTIME_API, event.encode()),
            site => {
                let site = [site, 0, 0, python::walk::TAG_SITE];
                hostpool::push_behind(site, event.encode(), Loss::SiteDropped);
            }
        }
    }
    if data.correlationId % SAMPLE == 0 {
        CALLBACKS.sampled_ns.fetch_add(ticks::now().saturating_sub(end), Ordering::Relaxed);
        CALLBACKS.sampled.fetch_add(1, Ordering::Relaxed);
    }
}

/// A module is about to go, or has gone. (A name that was read while it went is none of what lies
/// there now.)
#[cold]
fn on_unload(begins: bool) {
    match above::get() {
        Some(above) if begins => (above.before_unload)(),
        _ => names::module_unloaded(clock::monotonic()),
    }
}

fn on_resource(id: u32, data: *const c_void) {
    match id {
        cbid::resource::GRAPHNODE_CREATED | cbid::resource::GRAPHNODE_CLONED => {
            // SAFETY: CUPTI's own argument.
            unsafe { graph_nodes::changed(id, data) }
        }
        cbid::resource::CONTEXT_CREATED => session::first_use(),
        cbid::resource::MODULE_UNLOAD_STARTING => names::module_unloading(clock::monotonic()),
        cbid::resource::STREAM_DESTROY_STARTING | cbid::resource::CONTEXT_DESTROY_STARTING => {
            streams::forget()
        }
        _ => {}
    }
}
