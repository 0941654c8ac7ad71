// SPDX-License-Identifier: Apache-2.0
//! What surrounds every exported call: correlation id, CUPTI's ENTER and EXIT callbacks, its API
//! record, the truth.
//!
//! A driver call made inside a runtime call shares that call's correlation id, as on the real
//! driver. Runs on the program's threads and holds no lock while a client's callback runs.

use crate::clock;
use crate::cupti::{activity, subscriber, timestamps};
use crate::gpu::{code, gpu, tag};
use crate::settings::settings;
use crate::{injection, stopwatch, truth};
use std::cell::Cell;
use std::ffi::{c_char, c_void, CStr};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

/// CUPTI's callback domains.
pub(crate) const DRIVER: u32 = 1;
pub(crate) const RUNTIME: u32 = 2;

/// cuInit, the one driver call that works before cuInit.
const CBID_INIT: u32 = 1;

/// Correlation ids handed out so far.
static HANDED_OUT: AtomicU32 = AtomicU32::new(0);

/// The next correlation id: 32 bits that come round, and 0 is none (CUPTI_CORRELATION_ID_UNKNOWN).
fn next_correlation() -> u32 {
    loop {
        let id = settings().correlation.wrapping_add(HANDED_OUT.fetch_add(1, Ordering::Relaxed));
        if id != 0 {
            return id;
        }
    }
}

thread_local! {
    /// Nesting depth and correlation id of the call under way.
    static UNDER_WAY: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// What the last call's callbacks shared.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static CONTEXT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// One exported call.
pub(crate) struct Call<'a> {
    pub(crate) domain: u32,
    pub(crate) cbid: u32,
    pub(crate) name: &'static CStr,
    /// The call's arguments, laid out in their order.
    pub(crate) params: *const c_void,
    pub(crate) arguments: PhantomData<&'a ()>,
    /// Kernel name, for launches.
    pub(crate) symbol: *const c_char,
}

impl<'a> Call<'a> {
    /// A driver call.
    pub(crate) fn driver<T>(cbid: u32, name: &'static CStr, params: &'a T) -> Self {
        Call {
            domain: DRIVER,
            cbid,
            name,
            params: std::ptr::from_ref(params).cast(),
            arguments: PhantomData,
            symbol: std::ptr::null(),
        }
    }

    /// A runtime call.
    pub(crate) fn runtime<T>(cbid: u32, name: &'static CStr, params: &'a T) -> Self {
        Call { domain: RUNTIME, ..Call::driver(cbid, name, params) }
    }
}

/// The context current on this thread, as an index.
pub(crate) fn current() -> Option<usize> {
    CONTEXT.get()
}

/// Makes a context current on this thread.
pub(crate) fn set_current(context: Option<usize>) {
    CONTEXT.set(context);
}

/// Correlation id of the call under way on this thread.
pub(crate) fn correlation() -> u32 {
    UNDER_WAY.get().1
}

/// Runs `body` as the exported call `call`.
pub(crate) fn traced(call: &Call<'_>, body: impl FnOnce() -> i32) -> i32 {
    if let Some(refusal) = injection::refusal() {
        return refusal;
    }
    if call.domain == DRIVER && call.cbid != CBID_INIT && !injection::is_ready() {
        return code::NOT_INITIALIZED;
    }
    let (depth, outer) = UNDER_WAY.get();
    let correlation = if depth == 0 { next_correlation() } else { outer };
    UNDER_WAY.set((depth + 1, correlation));
    let truth_from = (depth == 0 && truth::wanted()).then(clock::now);
    let record_from = activity::api_wanted(call.domain, call.cbid).then(timestamps::now);
    if depth == 0 {
        activity::external_correlation(correlation);
    }

    let mut shared = if settings().stale { LEFT.get() } else { 0 };
    if subscriber::enabled(call.domain, call.cbid) {
        deliver(call, 0, correlation, std::ptr::null(), &mut shared);
    }
    let result = body();
    if subscriber::enabled(call.domain, call.cbid) {
        deliver(call, 1, correlation, &result, &mut shared);
    }

    LEFT.set(shared);

    if let Some(start) = record_from {
        activity::api(call.domain, call.cbid, start, timestamps::now(), correlation, result);
    }
    UNDER_WAY.set((depth, outer));
    if depth == 0 {
        stopwatch::call_ended();
    }
    if let Some(start) = truth_from {
        truth::call(&call.name.to_string_lossy(), start, clock::now(), correlation, result);
    }
    result
}

fn deliver(call: &Call<'_>, site: u32, correlation: u32, result: *const i32, shared: &mut u64) {
    let (context, context_uid) = match current() {
        Some(context) => (tag::CONTEXT + context, gpu().contexts.get(context).map_or(0, |c| c.id)),
        None => (0, 0),
    };
    let data = subscriber::CallbackData {
        site,
        function_name: call.name.as_ptr(),
        function_params: call.params,
        return_value: result.cast(),
        symbol_name: call.symbol,
        context,
        context_uid,
        correlation_data: shared,
        correlation_id: correlation,
    };
    stopwatch::timed(|| subscriber::deliver(call.domain, call.cbid, std::ptr::from_ref(&data).cast()));
}
