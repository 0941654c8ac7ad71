// SPDX-License-Identifier: Apache-2.0
//! The one V1 subscriber of the process and which callbacks it wants.

use super::layout::silent;
use crate::foreign::lock;
use crate::gpu::tag;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;

/// `void (*)(void *userdata, domain, cbid, const void *cbdata)`.
pub(crate) type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// CUpti_CallbackData, 72 bytes in every release.
#[repr(C)]
pub(crate) struct CallbackData {
    pub(crate) site: u32,
    pub(crate) function_name: *const c_char,
    pub(crate) function_params: *const c_void,
    pub(crate) return_value: *const c_void,
    pub(crate) symbol_name: *const c_char,
    pub(crate) context: usize,
    pub(crate) context_uid: u32,
    pub(crate) correlation_data: *mut u64,
    pub(crate) correlation_id: u32,
}

const _: () = assert!(std::mem::size_of::<CallbackData>() == 72);

#[repr(C)]
struct ResourceData {
    context: usize,
    stream_or_handle: usize,
    descriptor: *const c_void,
}

#[repr(C)]
struct SynchronizeData {
    context: usize,
    stream: usize,
}

/// CUpti_ModuleResourceData.
#[repr(C)]
pub(crate) struct ModuleData {
    pub(crate) module_id: u32,
    pub(crate) cubin_size: usize,
    pub(crate) cubin: *const c_char,
}

/// CUpti_GraphData. (Graphs themselves are not told.)
#[repr(C)]
#[derive(Default)]
pub(crate) struct GraphData {
    graph: usize,
    original_graph: usize,
    node: usize,
    original_node: usize,
    node_type: u32,
    dependency: usize,
    exec: usize,
}

impl GraphData {
    pub(crate) fn new(node: usize, original_node: usize, node_type: u32) -> GraphData {
        GraphData { node, original_node, node_type, ..GraphData::default() }
    }
}

/// Resource callback ids.
pub(crate) const CONTEXT_CREATED: u32 = 1;
pub(crate) const CONTEXT_DESTROY_STARTING: u32 = 2;
pub(crate) const STREAM_CREATED: u32 = 3;
pub(crate) const STREAM_DESTROY_STARTING: u32 = 4;
pub(crate) const CU_INIT_FINISHED: u32 = 5;
pub(crate) const MODULE_LOADED: u32 = 6;
pub(crate) const GRAPHNODE_CREATED: u32 = 13;
pub(crate) const GRAPHNODE_CLONED: u32 = 20;
pub(crate) const MODULE_UNLOAD_STARTING: u32 = 7;

const RESOURCE: u32 = 3;
const SYNCHRONIZE: u32 = 4;
/// Domains 0 to 6.
const DOMAINS: usize = 7;
const IDS: usize = 1024;

struct Subscription {
    handle: usize,
}

static HOLDER: Mutex<Option<Subscription>> = Mutex::new(None);
static SERIAL: AtomicUsize = AtomicUsize::new(0x5342_0000);
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static USERDATA: AtomicUsize = AtomicUsize::new(0);
static WANTED: [[AtomicBool; IDS]; DOMAINS] = [const { [const { AtomicBool::new(false) }; IDS] }; DOMAINS];

/// Takes the subscription; None when it is held.
pub(crate) fn subscribe(function: usize, userdata: usize) -> Option<usize> {
    let mut holder = lock(&HOLDER);
    if holder.is_some() {
        return None;
    }
    let handle = SERIAL.fetch_add(1, Ordering::Relaxed);
    *holder = Some(Subscription { handle });
    USERDATA.store(userdata, Ordering::Relaxed);
    FUNCTION.store(function, Ordering::Release);
    Some(handle)
}

/// Gives the subscription up; false when `handle` does not hold it. None: whoever holds it
/// (cuptiFinalize).
pub(crate) fn unsubscribe(handle: Option<usize>) -> bool {
    let mut holder = lock(&HOLDER);
    if handle.is_some() && holder.as_ref().map(|s| s.handle) != handle {
        return false;
    }
    *holder = None;
    FUNCTION.store(0, Ordering::Release);
    for id in WANTED.iter().flatten() {
        id.store(false, Ordering::Relaxed);
    }
    true
}

/// True when `handle` holds the subscription.
pub(crate) fn holds(handle: usize) -> bool {
    lock(&HOLDER).as_ref().is_some_and(|s| s.handle == handle)
}

/// True when there is a subscriber.
pub(crate) fn held() -> bool {
    FUNCTION.load(Ordering::Acquire) != 0
}

/// Wants or no longer wants one callback; false for an id no table has.
pub(crate) fn enable(domain: u32, cbid: u32, on: bool) -> bool {
    let Some(wanted) = WANTED.get(domain as usize).and_then(|ids| ids.get(cbid as usize)) else {
        return false;
    };
    wanted.store(on, Ordering::Relaxed);
    true
}

/// All callbacks of a domain.
pub(crate) fn enable_domain(domain: u32, on: bool) -> bool {
    let Some(ids) = WANTED.get(domain as usize).filter(|_| domain > 0) else { return false };
    ids.iter().for_each(|id| id.store(on, Ordering::Relaxed));
    true
}

/// True when the subscriber wants this callback.
pub(crate) fn enabled(domain: u32, cbid: u32) -> bool {
    let wanted = WANTED.get(domain as usize).and_then(|ids| ids.get(cbid as usize));
    wanted.is_some_and(|w| w.load(Ordering::Relaxed)) && held() && !silent()
}

/// Calls the subscriber, if there still is one.
pub(crate) fn deliver(domain: u32, cbid: u32, data: *const c_void) {
    let function = FUNCTION.load(Ordering::Acquire);
    if function == 0 {
        return;
    }
    // SAFETY: `subscribe` stored a client's function pointer of exactly this type.
    let function: Callback = unsafe { std::mem::transmute(function) };
    function(USERDATA.load(Ordering::Relaxed) as *mut c_void, domain, cbid, data);
}

thread_local! {
    static RESTRICTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a client's callback from which CUPTI must not be flushed: buffer, resource, synchronize.
pub(crate) fn restricted(callback: impl FnOnce()) {
    let outer = RESTRICTED.replace(true);
    callback();
    RESTRICTED.set(outer);
}

/// True inside such a callback.
pub(crate) fn in_callback() -> bool {
    RESTRICTED.get()
}

/// A client broke a rule of CUPTI that the real library answers with a deadlock or a crash: the
/// process is aborted, so that no test can miss it.
pub(crate) fn misuse(what: &str) -> ! {
    eprintln!("gapprobe-sim: misuse of CUPTI: {what}");
    std::process::abort();
}

/// A callback of the resource domain; `context` is an index plus one, or 0 for none.
pub(crate) fn resource(cbid: u32, context: usize, handle: usize, descriptor: *const c_void) {
    if enabled(RESOURCE, cbid) {
        let context = if context == 0 { 0 } else { tag::CONTEXT + context - 1 };
        let data = ResourceData { context, stream_or_handle: handle, descriptor };
        restricted(|| deliver(RESOURCE, cbid, std::ptr::from_ref(&data).cast()));
    }
}

/// A callback of the synchronize domain: 1 stream, 2 context.
pub(crate) fn synchronized(cbid: u32, context: usize, stream: usize) {
    if enabled(SYNCHRONIZE, cbid) {
        let data = SynchronizeData { context: tag::CONTEXT + context, stream };
        restricted(|| deliver(SYNCHRONIZE, cbid, std::ptr::from_ref(&data).cast()));
    }
}
