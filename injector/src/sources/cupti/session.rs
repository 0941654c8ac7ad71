// SPDX-License-Identifier: Apache-2.0
// COLD (HOT: `first_use`, `dropped_records`)
//! Sets CUPTI up and holds what the rest needs of it: which functions, which kinds, whether we hold
//! the subscription.
//!
//! Two halves that work apart: activity records (GPU side; also API calls, by the per-call filter
//! of 12.5 and newer) need no subscription; callbacks (exact API calls, below 12.5 also launches)
//! need the one subscription of the process, which we give up when anyone else asks for it
//! (`arbiter`).

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use cupti_sys::bindings::{thread_id_type, CUpti_SubscriberHandle, CUpti_Subscriber_st};
use cupti_sys::{attribute, cbid, domain, kind, Cupti, CuptiResult};
use trace::call::{self, Class};
use trace::header::sources;
use trace::Loss;

use super::{api_records, arbiter, buffers, callbacks, choose, graph_nodes, reroute, streams, xla};
use crate::platform::guard::guard;
use crate::platform::loader::Library;
use crate::platform::settings::Settings;
use crate::platform::{clock, lifecycle, losses, threads};
use crate::sources::above;

/// What attaching found and decided; set once.
pub(crate) struct Session {
    /// CUPTI's functions.
    pub(crate) cupti: Cupti,
    /// Path of the library.
    pub(crate) path: String,
    /// Its handle: an address, for a pointer is not shared between threads.
    handle: usize,
    /// cuptiGetVersion.
    pub(crate) version: u32,
    /// cuDriverGetVersion.
    pub(crate) driver_version: u32,
    graph_level: bool,
    /// Launches are told by callbacks, too, while we hold the subscription: see [`api_records`].
    launches_by_callbacks: bool,
    /// Kinds that a test leaves out.
    without: Vec<u32>,
}

impl Session {
    /// The library's handle, open for ever.
    pub(super) fn handle(&self) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(self.handle)
    }
}

static SESSION: OnceLock<Session> = OnceLock::new();
/// How far CUPTI is set up, and what of it is on.
struct State {
    subscriber: AtomicPtr<CUpti_Subscriber_st>,
    sources: AtomicU32,
    first_use: AtomicU64,
    started: AtomicBool,
    /// Rings and buffers are there, or will never be.
    begun: AtomicBool,
    /// The thread that makes them.
    starter: AtomicU32,
    /// Held while kinds are switched: a window of ours must not begin while another client takes
    /// over. No callback takes it.
    switching: Mutex<()>,
    /// Our kinds are on. Switched under `switching`, as the next.
    on: AtomicBool,
    /// The kind SYNCHRONIZATION is on.
    waits_on: AtomicBool,
}

static STATE: State = State {
    subscriber: AtomicPtr::new(std::ptr::null_mut()),
    sources: AtomicU32::new(0),
    first_use: AtomicU64::new(0),
    started: AtomicBool::new(false),
    begun: AtomicBool::new(false),
    starter: AtomicU32::new(0),
    switching: Mutex::new(()),
    on: AtomicBool::new(false),
    waits_on: AtomicBool::new(false),
};

/// GPU memory CUPTI may take a device, bytes: its default pool could grow to 250 buffers of 3.2 MB.
const DEVICE_POOL_BYTES: usize = 32 << 20;
const DEVICE_BUFFER_BYTES: usize = 3_200_000;
const DEVICE_PRE_ALLOCATED: usize = 3;

/// The kinds we always record, MEMCPY before MEMCPY2 (which needs it).
fn kinds(session: &Session) -> impl Iterator<Item = u32> + '_ {
    let graph = session.graph_level.then_some(kind::GRAPH_TRACE);
    [kind::MEMCPY, kind::MEMCPY2, kind::MEMSET, kind::CONCURRENT_KERNEL]
        .into_iter()
        .filter(|k| !session.without.contains(k))
        .chain(graph)
}

/// The session, once attached.
pub(crate) fn get() -> Option<&'static Session> {
    SESSION.get()
}

/// Bits of `trace::header::sources`.
pub(crate) fn source_bits() -> u32 {
    STATE.sources.load(Ordering::Relaxed)
}

/// Time of the first GPU use, 0 before it.
pub(crate) fn first_use_at() -> u64 {
    STATE.first_use.load(Ordering::Relaxed)
}

/// Called with the first context or the first buffer: starts the drain thread and the recording,
/// once. After that one relaxed load.
#[inline]
pub(crate) fn first_use() {
    if !STATE.begun.load(Ordering::Relaxed) {
        start();
    }
}

#[cold]
fn start() {
    if !lifecycle::is_live() {
        return;
    }
    // SAFETY: takes nothing, cannot fail.
    let own = unsafe { libc::gettid() } as u32;
    if !STATE.started.swap(true, Ordering::AcqRel) {
        STATE.starter.store(own, Ordering::Relaxed);
        STATE.first_use.store(clock::monotonic(), Ordering::Relaxed);
        if let Some(above) = above::get() {
            (above.first_use)();
        }
        STATE.begun.store(true, Ordering::Release);
        return;
    }
    // threads that use the GPU for the first time all at once: what they launched before the
    // buffers are there would be lost
    let begin = clock::monotonic();
    while !STATE.begun.load(Ordering::Acquire)
        && STATE.starter.load(Ordering::Relaxed) != own
        && lifecycle::is_live()
        && clock::monotonic().saturating_sub(begin) < LONGEST_START
    {
        threads::pause(1);
    }
}

/// As long as the first of them waits.
const LONGEST_START: u64 = 2_000_000_000;

/// Counts an error of a CUPTI call of ours; true on success.
pub(super) fn ok(result: CuptiResult) -> bool {
    if !result.is_success() {
        losses::add(Loss::CuptiError, 1);
    }
    result.is_success()
}

unsafe extern "C" fn timestamp() -> u64 {
    // CUPTI asks for others too: the time is right whatever happens
    guard(None, || Some(clock::monotonic())).unwrap_or_else(clock::monotonic)
}

/// Opens the session. Only with libcuda mapped, once, from `InitializeInjection`.
pub(crate) fn open(library: &Library, driver_version: u32, settings: &Settings) -> Result<(), String> {
    // SAFETY: the handle is open for ever (we keep our reference), and the library is libcupti by
    // name and symbols.
    let cupti = unsafe { cupti_sys::open_handle(library.handle.as_ptr()) }
        .map_err(|e| format!("{} cannot be used: {e}", library.path))?;
    let mut version = 0;
    // SAFETY: libcuda is mapped (the caller checked); a valid out-pointer.
    let result = unsafe { (cupti.get_version)(&mut version) };
    if !result.is_success() {
        return Err(format!(
            "{} refuses to start: {result}; is it too new or too old for this driver?",
            library.path
        ));
    }
    // (what is asked of V1 beside V2 is refused, and V2's client cannot subscribe anew after that)
    if has_kinds(&cupti) {
        return Err(arbiter::V2_HAS_IT.to_owned());
    }
    let session = Session {
        cupti,
        path: library.path.clone(),
        handle: library.handle.as_ptr().expose_provenance(),
        version,
        driver_version,
        graph_level: settings.graph_level,
        launches_by_callbacks: settings.windows.switches(),
        without: settings.test_without.clone(),
    };
    limit_device_memory(&session.cupti, settings.test_device_pool);
    // SAFETY: plain call; thread ids in API records become kernel thread ids.
    ok(unsafe { (session.cupti.set_thread_id_type)(thread_id_type::SYSTEM) });
    let session = SESSION.get_or_init(|| session);
    if settings.graph_level {
        STATE.sources.fetch_or(sources::GRAPH_LEVEL, Ordering::Relaxed);
    }
    reroute::clients(clock::monotonic());
    if arbiter::has_left() {
        return Err(format!("{} lacks what Triton's Proton asks for, which uses its own", library.path));
    }
    if may_subscribe() {
        subscribe(session);
    }
    enable(session).map_err(|e| format!("{} does not record: {e}", library.path))
}

/// Has a client that did not come by our wrappers a kind of record on? (13.2 and later tell: V2 is
/// no sooner there.)
fn has_kinds(cupti: &Cupti) -> bool {
    let (mut count, none) = (0, std::ptr::null_mut());
    !arbiter::has_seen_kinds()
        && cupti.activity_get_enabled_kinds.is_some_and(|ask| {
            // SAFETY: no subscriber: those of all; no buffer: their number alone; a valid
            // out-pointer.
            let result = unsafe { ask(none, std::ptr::null_mut(), std::ptr::null_mut(), &mut count) };
            result.is_success() && count > 0
        })
}

fn set_attribute(cupti: &Cupti, id: u32, value: &[u8]) {
    let mut size = value.len();
    let mut value = value.to_vec();
    // SAFETY: value and size as CUPTI documents for this attribute; before any context exists.
    ok(unsafe { (cupti.activity_set_attribute)(id, &mut size, value.as_mut_ptr().cast()) });
}

fn limit_device_memory(cupti: &Cupti, wanted: Option<[usize; 3]>) {
    let limit = DEVICE_POOL_BYTES / DEVICE_BUFFER_BYTES;
    let [bytes, limit, ahead] = wanted.unwrap_or([DEVICE_BUFFER_BYTES, limit, DEVICE_PRE_ALLOCATED]);
    set_attribute(cupti, attribute::DEVICE_BUFFER_SIZE, &bytes.to_ne_bytes());
    set_attribute(cupti, attribute::DEVICE_BUFFER_POOL_LIMIT, &limit.to_ne_bytes());
    set_attribute(cupti, attribute::DEVICE_BUFFER_PRE_ALLOCATE_VALUE, &ahead.to_ne_bytes());
    // Hardware event tracing (ENABLE_HES) stays off: beside it cuptiActivityFlushAll, which we call
    // all the time, can write into the host's memory (as PyTorch 2.15's _cuspy warns).
    // Our buffers come zeroed: CUPTI need not do it on the program's threads.
    set_attribute(cupti, attribute::ZEROED_OUT_ACTIVITY_BUFFER, &[1]);
    // one buffer a launching thread (12.3+): no lock among launchers; must be set before the
    // callbacks are registered. Not beside XLA: without flushes the last records of a thread that
    // launches no more would come at the end alone
    if cupti.get_graph_exec_id.is_some() && !choose::is_mapped(xla::LIBRARIES) {
        set_attribute(cupti, attribute::PER_THREAD_ACTIVITY_BUFFER, &[1]);
    }
}

/// Only where other clients would reach our wrapper first, so that we can step aside for them.
fn may_subscribe() -> bool {
    // SAFETY: a C string; RTLD_DEFAULT looks through the global scope.
    let reached = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuptiSubscribe".as_ptr()) };
    std::ptr::eq(reached, super::wrappers::cuptiSubscribe as *const std::ffi::c_void) && reroute::all_ask_us()
}

fn subscribe(session: &Session) {
    let mut handle: CUpti_SubscriberHandle = std::ptr::null_mut();
    // SAFETY: a valid out-pointer and a callback that lives as long as the process.
    let result = unsafe {
        (session.cupti.subscribe)(&mut handle, Some(callbacks::gapprobe_callback), std::ptr::null_mut())
    };
    if !result.is_success() {
        return; // somebody holds it: activity records alone
    }
    streams::prepare();
    graph_nodes::prepare();
    STATE.subscriber.store(handle, Ordering::Release);
    STATE.sources.fetch_or(sources::CALLBACKS | sources::WAITS_BY_CALLS, Ordering::Relaxed);
    call_back(session, handle, true);
    for id in callbacks::UNLOADING {
        // SAFETY: as above; 12.x and newer know the library form, older ones refuse it.
        let _ = unsafe { (session.cupti.enable_callback)(1, handle, domain::DRIVER_API, id) };
    }
    for id in RESOURCES {
        // SAFETY: as above.
        ok(unsafe { (session.cupti.enable_callback)(1, handle, domain::RESOURCE, id) });
    }
}

/// What becomes of contexts, streams, modules and nodes of graphs that we want to know.
const RESOURCES: [u32; 6] = [
    cbid::resource::CONTEXT_CREATED,
    cbid::resource::CONTEXT_DESTROY_STARTING,
    cbid::resource::STREAM_DESTROY_STARTING,
    cbid::resource::MODULE_UNLOAD_STARTING,
    cbid::resource::GRAPHNODE_CREATED,
    cbid::resource::GRAPHNODE_CLONED,
];

/// Where windows are possible, and beside XLA: after XLA's own profile CUPTI's filter of single
/// calls returns nothing, and whole kinds must stay off there (`xla`).
fn launches_by_callbacks(session: &Session) -> bool {
    session.launches_by_callbacks || xla::is_here()
}

/// Callbacks of the API calls we record, on or off.
fn call_back(session: &Session, handle: CUpti_SubscriberHandle, on: bool) {
    callbacks::switched(on);
    let filter = session.cupti.has_call_filter() && !launches_by_callbacks(session);
    for c in call::CALLS {
        // launches come from the filter where there is one: no callback on the hottest calls
        if c.class != Class::Launch || !filter {
            // an id that an older release does not know is refused: harmless
            // SAFETY: our own subscription, serialised (attach runs once; windows hold
            // `switching`).
            let _ =
                unsafe { (session.cupti.enable_callback)(u32::from(on), handle, u32::from(c.domain), c.id) };
        }
    }
}

/// A window begins or ends: everything of ours on or off. While no thread launches
/// (`duty_cycle::safepoint`). `false`: another client has CUPTI, or is about to.
pub(crate) fn switch(on: bool) -> bool {
    let Some(session) = get() else { return false };
    let Some(_held) = STATE.switching.try_lock().filter(|_| !arbiter::is_yielded()) else { return false };
    let done = match on {
        // else the buffers are still ours, and are not handed over again
        true if arbiter::buffers_were_theirs() => register_and_enable(session).is_ok(),
        true => enable_kinds(session).is_ok(),
        false => {
            disable_kinds(session);
            true
        }
    };
    let handle = STATE.subscriber.load(Ordering::Acquire);
    if !handle.is_null() {
        call_back(session, handle, on);
    }
    done
}

/// Do we hold the subscription?
pub(crate) fn is_subscribed() -> bool {
    !STATE.subscriber.load(Ordering::Acquire).is_null()
}

/// Are launches told of by callbacks?
pub(crate) fn tells_launches() -> bool {
    is_subscribed() && get().is_some_and(|s| launches_by_callbacks(s) || !s.cupti.has_call_filter())
}

/// Gives the subscription up; API calls then come from the filter. From the thread of the client
/// that asks.
pub(crate) fn give_up_subscription() {
    let _held = hold();
    let handle = STATE.subscriber.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if let (false, Some(session)) = (handle.is_null(), get()) {
        callbacks::switched(false);
        // SAFETY: the handle is ours and given up once (swap).
        ok(unsafe { (session.cupti.unsubscribe)(handle) });
        STATE.sources.fetch_or(sources::GAVE_UP, Ordering::Relaxed);
        STATE.sources.fetch_and(!sources::CALLBACKS, Ordering::Relaxed);
        if launches_by_callbacks(session) || !session.cupti.has_call_filter() {
            // a filter that is first used where contexts are there already gives nothing
            // (`api_records`), the whole kinds do
            api_records::another_takes_over();
        }
        if STATE.on.load(Ordering::Relaxed) {
            record_waits(session);
            record_calls(session);
        }
    }
}

/// CUPTI's own records of waits, where no callbacks tell us of them (`streams`): not otherwise,
/// since this one kind makes all calls slower.
fn record_waits(session: &Session) {
    if is_subscribed() || session.without.contains(&kind::SYNCHRONIZATION) {
        return;
    }
    // SAFETY: a kind number.
    if ok(unsafe { (session.cupti.activity_enable)(kind::SYNCHRONIZATION) }) {
        STATE.waits_on.store(true, Ordering::Relaxed);
        STATE.sources.fetch_and(!sources::WAITS_BY_CALLS, Ordering::Relaxed);
    }
}

/// Registers clock and buffers and switches our kinds on: at attach, and again after another client
/// has finished. Nothing where another client has CUPTI.
pub(crate) fn enable(session: &Session) -> Result<(), CuptiResult> {
    let _held = hold();
    if arbiter::is_yielded() {
        return Ok(());
    }
    register_and_enable(session)
}

/// As [`enable`], by who decided that the other client is done, `held` all the while.
pub(crate) fn enable_held(session: &Session, _held: &Held) -> Result<(), CuptiResult> {
    register_and_enable(session)
}

/// Nobody else switches anything of ours while this is held. Waited for on threads of the program's
/// too, so not for ever: in a child that was forked while it was held nobody gives it back.
pub(crate) fn hold() -> Option<Held> {
    STATE.switching.try_lock_for(LONGEST_HOLD)
}

/// As [`hold`], without waiting.
pub(crate) fn try_hold() -> Option<Held> {
    STATE.switching.try_lock()
}

/// See [`hold`].
pub(crate) type Held = MutexGuard<'static, ()>;

/// Switching takes 0.3 ms at most on an H200 (docs/windows.md).
const LONGEST_HOLD: Duration = Duration::from_millis(200);

fn register_and_enable(session: &Session) -> Result<(), CuptiResult> {
    if xla::is_here() && !is_subscribed() {
        if source_bits() & sources::GAVE_UP != 0 && reroute::all_ask_us() {
            subscribe(session); // XLA gave it back with its profile
        }
        if !is_subscribed() {
            STATE.sources.fetch_or(sources::NO_LAUNCHES, Ordering::Relaxed);
        }
        xla::set_period_again();
    }
    // Each call's order matters: the clock before any kind, the buffers before any record.
    // SAFETY: a function that lives as long as the process.
    unsafe { (session.cupti.activity_register_timestamp_callback)(Some(timestamp)) }.ok()?;
    // SAFETY: as above.
    unsafe { (session.cupti.activity_register_callbacks)(Some(buffers::request), Some(buffers::complete)) }
        .ok()?;
    enable_kinds(session)
}

/// Our kinds and records of calls on.
fn enable_kinds(session: &Session) -> Result<(), CuptiResult> {
    let mut kernels = CuptiResult::SUCCESS;
    for k in kinds(session) {
        // SAFETY: a kind number; unknown ones are refused.
        let result = unsafe { (session.cupti.activity_enable)(k) };
        if !ok(result) && k == kind::CONCURRENT_KERNEL {
            kernels = result;
        }
    }
    STATE.on.store(true, Ordering::Relaxed);
    record_waits(session);
    record_calls(session);
    kernels.ok()
}

/// Records of those calls that no callback tells of.
fn record_calls(session: &Session) {
    if xla::is_here() && !is_subscribed() {
        return; // programs died of records of all calls (`xla`)
    }
    let by_callbacks = match is_subscribed() {
        true if launches_by_callbacks(session) => api_records::ByCallbacks::All,
        true => api_records::ByCallbacks::AllButLaunches,
        false => api_records::ByCallbacks::None,
    };
    let of_calls = api_records::enable(&session.cupti, session.version, by_callbacks);
    STATE.sources.fetch_or(of_calls, Ordering::Relaxed);
}

/// Switches our kinds and records of calls off (another client records; what we left on would land
/// in its trace).
pub(crate) fn disable(session: &Session) {
    let _held = hold();
    disable_kinds(session);
    api_records::another_takes_over();
}

fn disable_kinds(session: &Session) {
    api_records::disable(&session.cupti);
    STATE.on.store(false, Ordering::Relaxed);
    let waits = STATE.waits_on.swap(false, Ordering::Relaxed).then_some(kind::SYNCHRONIZATION);
    for k in kinds(session).chain(waits) {
        // SAFETY: a kind number we enabled.
        ok(unsafe { (session.cupti.activity_disable)(k) });
    }
}

/// Records CUPTI dropped since the last question. Called where CUPTI asks for it: in the completion
/// handler.
pub(crate) fn dropped_records(context: cupti_sys::bindings::CUcontext, stream: u32) -> u64 {
    let Some(session) = get() else { return 0 };
    let mut dropped = 0;
    // SAFETY: context and stream as CUPTI handed them over; a valid out-pointer.
    let result = unsafe { (session.cupti.activity_get_num_dropped_records)(context, stream, &mut dropped) };
    if result.is_success() {
        dropped as u64
    } else {
        0
    }
}

/// `libcuda`'s own word for its version, e.g. 13000; 0 where it has none.
pub(crate) fn driver_version(driver: &Library) -> u32 {
    type GetVersion = unsafe extern "C" fn(*mut i32) -> u32;
    let Some(address) = symbol(driver, c"cuDriverGetVersion") else { return 0 };
    // SAFETY: the driver's documented signature; the call needs no initialisation.
    let get: GetVersion = unsafe { std::mem::transmute(address) };
    let mut version = 0;
    // SAFETY: a valid out-pointer.
    if unsafe { get(&mut version) } == 0 {
        version as u32
    } else {
        0
    }
}

/// Address of a function of a library.
pub(crate) fn symbol(library: &Library, name: &CStr) -> Option<std::ptr::NonNull<std::ffi::c_void>> {
    // SAFETY: an open handle and a C string.
    std::ptr::NonNull::new(unsafe { libc::dlsym(library.handle.as_ptr(), name.as_ptr()) })
}
