// SPDX-License-Identifier: Apache-2.0
//! Ids of contexts, streams, devices and graphs; questions of the tests.

use super::{INVALID_CONTEXT, INVALID_PARAMETER, INVALID_STREAM, OK};
use crate::cupti::layout::release;
use crate::cupti::{activity, subscriber};
use crate::foreign::put;
use crate::gpu::{gpu, index, tag};
use crate::{api, graphs};

fn context_of(handle: usize) -> Option<usize> {
    index(handle, tag::CONTEXT)
}

#[no_mangle]
extern "C" fn sim_cuptiGetContextId(context: usize, out: *mut u32) -> i32 {
    let gpu = gpu();
    match context_of(context).and_then(|c| gpu.contexts.get(c)) {
        Some(context) => {
            put(out, context.id);
            OK
        }
        None => INVALID_CONTEXT,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiGetDeviceId(context: usize, out: *mut u32) -> i32 {
    let gpu = gpu();
    match context_of(context).and_then(|c| gpu.contexts.get(c)) {
        Some(context) => {
            put(out, context.device);
            OK
        }
        None => INVALID_CONTEXT,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiGetStreamId(context: usize, stream: usize, out: *mut u32) -> i32 {
    let gpu = gpu();
    match gpu.stream(stream, context_of(context).or(api::current())) {
        Ok(stream) => {
            put(out, gpu.streams[stream].id);
            OK
        }
        Err(_) => INVALID_STREAM,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiGetStreamIdEx(context: usize, stream: usize, _per_thread: u8, out: *mut u32) -> i32 {
    sim_cuptiGetStreamId(context, stream, out)
}

#[no_mangle]
extern "C" fn sim_cuptiGetGraphExecId(exec: usize, out: *mut u32) -> i32 {
    let gpu = gpu();
    match index(exec, tag::EXEC).and_then(|e| gpu.execs.get(e)) {
        Some(exec) => {
            put(out, exec.id);
            OK
        }
        None => INVALID_PARAMETER,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiGetGraphNodeId(node: usize, out: *mut u64) -> i32 {
    match graphs::node_id(node) {
        Some(id) => {
            put(out, id);
            OK
        }
        None => INVALID_PARAMETER,
    }
}

#[no_mangle]
extern "C" fn sim_cuptiDeviceSupported(_device: i32, out: *mut i32) -> i32 {
    put(out, 1);
    OK
}

#[no_mangle]
extern "C" fn sim_cuptiSupportedDomains(count: *mut usize, table: *mut *const u32) -> i32 {
    static DOMAINS: [u32; 6] = [1, 2, 3, 4, 5, 6];
    put(count, if release() >= 1202 { 6 } else { 5 });
    put(table, DOMAINS.as_ptr());
    OK
}

/// Private to the simulator, for tests: 1 while a kind is on.
#[no_mangle]
extern "C" fn simKindOn(kind: u32) -> i32 {
    i32::from(activity::kind_on(kind))
}

/// Private to the simulator, for tests: 1 while someone holds the subscription.
#[no_mangle]
extern "C" fn simSubscribed() -> i32 {
    i32::from(subscriber::held())
}
