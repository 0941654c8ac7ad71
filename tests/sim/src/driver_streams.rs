// SPDX-License-Identifier: Apache-2.0
//! libcuda's exports: streams and events.

use crate::api::{current, traced, Call};
use crate::cupti::subscriber;
use crate::driver::{Args1, Args2, Args3};
use crate::foreign::put;
use crate::gpu::{code, gpu, index, tag, Event};
use crate::graphs::Capture;
use crate::settings::settings;
use crate::{clock, submit};

#[no_mangle]
pub(crate) extern "C" fn cuStreamCreate(out: *mut usize, flags: u32) -> i32 {
    traced(&Call::driver(124, c"cuStreamCreate", &Args2(out, flags)), || {
        let Some(context) = current() else { return code::INVALID_CONTEXT };
        let handle = tag::STREAM + gpu().add_stream(context, flags & 1 != 0);
        put(out, handle);
        subscriber::resource(subscriber::STREAM_CREATED, context + 1, handle, std::ptr::null());
        code::SUCCESS
    })
}

#[no_mangle]
extern "C" fn cuStreamCreateWithPriority(out: *mut usize, flags: u32, _priority: i32) -> i32 {
    cuStreamCreate(out, flags)
}

#[no_mangle]
pub(crate) extern "C" fn cuStreamDestroy_v2(handle: usize) -> i32 {
    traced(&Call::driver(326, c"cuStreamDestroy_v2", &Args1(handle)), || {
        let (stream, context) = {
            let gpu = gpu();
            match gpu.stream(handle, None) {
                Ok(stream) => (stream, gpu.streams[stream].context),
                Err(code) => return code,
            }
        };
        subscriber::resource(subscriber::STREAM_DESTROY_STARTING, context + 1, handle, std::ptr::null());
        gpu().streams[stream].alive = false;
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuStreamSynchronize(handle: usize) -> i32 {
    traced(&Call::driver(126, c"cuStreamSynchronize", &Args1(handle)), || {
        let (until, context, ids) = {
            let gpu = gpu();
            let stream = match gpu.stream(handle, current()) {
                Ok(stream) => stream,
                Err(code) => return code,
            };
            let s = &gpu.streams[stream];
            if s.capture.is_some() {
                return code::STREAM_CAPTURE_UNSUPPORTED;
            }
            (s.tail.max(s.not_before), s.context, (gpu.contexts[s.context].id, s.id, u32::MAX))
        };
        submit::wait(3, ids, until);
        subscriber::synchronized(1, context, handle);
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuStreamQuery(handle: usize) -> i32 {
    traced(&Call::driver(125, c"cuStreamQuery", &Args1(handle)), || {
        let gpu = gpu();
        match gpu.stream(handle, current()) {
            Ok(stream) if gpu.streams[stream].tail > clock::now() => code::NOT_READY,
            Ok(_) => code::SUCCESS,
            Err(code) => code,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuStreamWaitEvent(handle: usize, event: usize, flags: u32) -> i32 {
    traced(&Call::driver(295, c"cuStreamWaitEvent", &Args3(handle, event, flags)), || {
        let ids = {
            let mut gpu = gpu();
            let stream = match gpu.stream(handle, current()) {
                Ok(stream) => stream,
                Err(code) => return code,
            };
            let Some((number, known)) = index(event, tag::EVENT).and_then(|e| Some((e, *gpu.events.get(e)?)))
            else {
                return code::INVALID_HANDLE;
            };
            if let Some(graph) = known.captured {
                let s = &mut gpu.streams[stream];
                s.capture = s.capture.or(Some(Capture { graph, origin: false }));
                return code::SUCCESS;
            }
            let s = &mut gpu.streams[stream];
            s.not_before = s.not_before.max(known.at);
            let (id, context) = (s.id, s.context);
            (gpu.contexts[context].id, id, number as u32 + 1)
        };
        submit::wait(2, ids, 0);
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuEventCreate(out: *mut usize, flags: u32) -> i32 {
    traced(&Call::driver(118, c"cuEventCreate", &Args2(out, flags)), || {
        let mut gpu = gpu();
        gpu.events.push(Event::default());
        put(out, tag::EVENT + gpu.events.len() - 1);
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuEventDestroy_v2(event: usize) -> i32 {
    traced(&Call::driver(325, c"cuEventDestroy_v2", &Args1(event)), || code::SUCCESS)
}

#[no_mangle]
pub(crate) extern "C" fn cuEventRecord(event: usize, stream: usize) -> i32 {
    traced(&Call::driver(119, c"cuEventRecord", &Args2(event, stream)), || {
        let mut gpu = gpu();
        let stream = match gpu.stream(stream, current()) {
            Ok(stream) => stream,
            Err(code) => return code,
        };
        let s = &gpu.streams[stream];
        let captured = s.capture.map(|c| c.graph);
        // Reached when everything before it has ended, and no sooner than the command gets to the
        // device.
        let at = s.tail.max(s.not_before).max(clock::now() + settings().latency_ns / 2);
        match index(event, tag::EVENT).and_then(|e| gpu.events.get_mut(e)) {
            Some(known) => {
                *known = Event { at, stream, recorded: captured.is_none(), captured };
                code::SUCCESS
            }
            None => code::INVALID_HANDLE,
        }
    })
}

fn event(handle: usize) -> Option<Event> {
    index(handle, tag::EVENT).and_then(|e| gpu().events.get(e).copied())
}

#[no_mangle]
pub(crate) extern "C" fn cuEventQuery(handle: usize) -> i32 {
    traced(&Call::driver(120, c"cuEventQuery", &Args1(handle)), || match event(handle) {
        Some(event) if event.recorded && event.at > clock::now() => code::NOT_READY,
        Some(_) => code::SUCCESS,
        None => code::INVALID_HANDLE,
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuEventSynchronize(handle: usize) -> i32 {
    traced(&Call::driver(121, c"cuEventSynchronize", &Args1(handle)), || {
        let Some(known) = event(handle) else { return code::INVALID_HANDLE };
        let ids = {
            let gpu = gpu();
            let stream = &gpu.streams[known.stream];
            (gpu.contexts[stream.context].id, stream.id, (handle - tag::EVENT) as u32 + 1)
        };
        submit::wait(1, ids, if known.recorded { known.at } else { 0 });
        code::SUCCESS
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuEventElapsedTime(out: *mut f32, from: usize, to: usize) -> i32 {
    traced(&Call::driver(123, c"cuEventElapsedTime", &Args3(out, from, to)), || {
        match (event(from), event(to)) {
            (Some(from), Some(to)) if from.recorded && to.recorded => {
                if from.at.max(to.at) > clock::now() {
                    return code::NOT_READY;
                }
                put(out, (to.at as f64 - from.at as f64) as f32 / 1e6);
                code::SUCCESS
            }
            _ => code::INVALID_HANDLE,
        }
    })
}
