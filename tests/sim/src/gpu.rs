// SPDX-License-Identifier: Apache-2.0
//! The devices: contexts, streams, events, and when each operation starts and ends.
//!
//! There is no GPU thread. An operation's start and end follow from what was issued before it, so
//! they are computed the moment it is issued: start = max(end of the launch's host time + latency,
//! end of the stream's previous operation + gap, what the stream was told to wait for), and end =
//! start + duration. Streams of a context do not slow each other down. The legacy default stream
//! and blocking streams wait for each other, as documented by CUDA. Callers hold the one lock;
//! nobody waits or calls a client while holding it.

use crate::cupti::activity;
use crate::foreign::lock;
use crate::graphs::{Capture, Exec, Graph};
use crate::settings::settings;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// CUDA result codes that the engine answers with.
pub(crate) mod code {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const DEINITIALIZED: i32 = 4;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: i32 = 900;
}

/// Handles are a tag and an index, never pointers: a stale or foreign one is an error code, not a
/// crash. They stay below 2^31, so that C code may keep them in an int.
pub(crate) mod tag {
    pub(crate) const CONTEXT: usize = 0x4300_0000;
    pub(crate) const STREAM: usize = 0x5300_0000;
    pub(crate) const EVENT: usize = 0x4500_0000;
    pub(crate) const MODULE: usize = 0x4d00_0000;
    pub(crate) const FUNCTION: usize = 0x4600_0000;
    pub(crate) const GRAPH: usize = 0x4700_0000;
    pub(crate) const EXEC: usize = 0x4800_0000;
    pub(crate) const NODE: usize = 0x4e00_0000;
}

/// The index behind a handle of this tag.
pub(crate) fn index(handle: usize, tag: usize) -> Option<usize> {
    (handle & 0xff00_0000 == tag && handle < 0x1_0000_0000).then_some(handle & 0x00ff_ffff)
}

/// One CUDA context. Contexts and streams stay in their tables after they are destroyed.
pub(crate) struct Context {
    pub(crate) id: u32,
    pub(crate) device: u32,
    /// Index of its legacy default stream.
    pub(crate) default_stream: usize,
    /// Latest end over its blocking streams.
    blocking_tail: u64,
    next_stream_id: u32,
    /// Device memory CUPTI would take here, by its attributes when the context was created.
    pub(crate) cupti_bytes: u64,
    pub(crate) alive: bool,
}

/// One stream: a queue whose last end is known.
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) context: usize,
    pub(crate) nonblocking: bool,
    /// End of the last operation issued.
    pub(crate) tail: u64,
    /// Nothing issued from now on starts before (waits on events).
    pub(crate) not_before: u64,
    ends: VecDeque<u64>,
    pub(crate) capture: Option<Capture>,
    pub(crate) alive: bool,
}

/// One event: when what was recorded into it is reached.
#[derive(Clone, Copy, Default)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) stream: usize,
    pub(crate) recorded: bool,
    /// Graph into which the record was captured.
    pub(crate) captured: Option<usize>,
}

/// Everything the lock covers.
#[derive(Default)]
pub(crate) struct Gpu {
    pub(crate) contexts: Vec<Context>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) events: Vec<Event>,
    pub(crate) graphs: Vec<Graph>,
    pub(crate) execs: Vec<Exec>,
    /// Index of each device's primary context.
    pub(crate) primary: Vec<(u32, usize)>,
}

static GPU: Mutex<Gpu> = Mutex::new(Gpu {
    contexts: Vec::new(),
    streams: Vec::new(),
    events: Vec::new(),
    graphs: Vec::new(),
    execs: Vec::new(),
    primary: Vec::new(),
});

/// The devices' lock.
pub(crate) fn gpu() -> MutexGuard<'static, Gpu> {
    lock(&GPU)
}

/// Where an operation was put.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Gpu {
    /// A new context on `device`; its index.
    pub(crate) fn add_context(&mut self, device: u32) -> usize {
        let context = self.contexts.len();
        let default_stream = self.streams.len();
        self.contexts.push(Context {
            id: context as u32 + 1,
            device,
            default_stream,
            blocking_tail: 0,
            next_stream_id: 13,
            cupti_bytes: activity::device_bytes(),
            alive: true,
        });
        self.push_stream(7, context, false);
        context
    }

    fn push_stream(&mut self, id: u32, context: usize, nonblocking: bool) {
        self.streams.push(Stream {
            id,
            context,
            nonblocking,
            tail: 0,
            not_before: 0,
            ends: VecDeque::new(),
            capture: None,
            alive: true,
        });
    }

    /// The primary context of `device`, and whether it was created just now.
    pub(crate) fn primary(&mut self, device: u32) -> (usize, bool) {
        let known = self.primary.iter().find(|(d, c)| *d == device && self.contexts[*c].alive);
        if let Some((_, context)) = known {
            return (*context, false);
        }
        let context = self.add_context(device);
        self.primary.retain(|(d, _)| *d != device);
        self.primary.push((device, context));
        (context, true)
    }

    /// A new stream in `context`; its index.
    pub(crate) fn add_stream(&mut self, context: usize, nonblocking: bool) -> usize {
        let id = self.contexts[context].next_stream_id;
        self.contexts[context].next_stream_id += 1;
        // as the driver's: the handle of a stream that is gone comes again for another one
        let gone = self.streams.iter().position(|s| !s.alive && s.context == context && s.capture.is_none());
        self.push_stream(id, context, nonblocking);
        match gone {
            Some(place) => {
                self.streams.swap_remove(place);
                place
            }
            None => self.streams.len() - 1,
        }
    }

    /// The stream behind a handle; 0, 1 and 2 are the default stream of `current`.
    pub(crate) fn stream(&self, handle: usize, current: Option<usize>) -> Result<usize, i32> {
        if handle <= 2 {
            let context = current.and_then(|c| self.contexts.get(c)).filter(|c| c.alive);
            return context.map(|c| c.default_stream).ok_or(code::INVALID_CONTEXT);
        }
        let known = index(handle, tag::STREAM).filter(|s| self.streams.get(*s).is_some_and(|s| s.alive));
        known.ok_or(code::INVALID_HANDLE)
    }

    /// Err(when) while the stream's launch queue is full.
    pub(crate) fn room(&mut self, stream: usize, now: u64) -> Result<(), u64> {
        let ends = &mut self.streams[stream].ends;
        while ends.front().is_some_and(|end| *end <= now) {
            ends.pop_front();
        }
        let over = (ends.len() + 1).saturating_sub(settings().queue);
        match ends.get(over.wrapping_sub(1)) {
            Some(end) if over > 0 => Err(*end),
            _ => Ok(()),
        }
    }

    /// Puts an operation of `duration` at the end of `stream`; `issued` is when the host had done
    /// its part.
    pub(crate) fn place(&mut self, stream: usize, issued: u64, duration: u64) -> Placed {
        let s = &self.streams[stream];
        let context = &self.contexts[s.context];
        let is_default = context.default_stream == stream;
        let mut start = (issued + settings().latency_ns).max(s.not_before);
        if s.tail > 0 {
            start = start.max(s.tail + settings().gap_ns);
        }
        if is_default {
            start = start.max(context.blocking_tail);
        } else if !s.nonblocking {
            start = start.max(self.streams[context.default_stream].tail);
        }
        let end = start + duration;
        let placed = Placed { device: context.device, context: context.id, stream: s.id, start, end };
        let owner = s.context;
        if !is_default && !s.nonblocking {
            let tail = &mut self.contexts[owner].blocking_tail;
            *tail = end.max(*tail);
        }
        let s = &mut self.streams[stream];
        s.tail = end;
        s.ends.push_back(end);
        placed
    }

    /// When everything issued to `context` so far has ended.
    pub(crate) fn context_tail(&self, context: usize) -> u64 {
        self.streams.iter().filter(|s| s.context == context).map(|s| s.tail).max().unwrap_or(0)
    }

    /// Free device memory, given what is allocated: less by CUPTI's own buffers while any kind is
    /// on.
    pub(crate) fn free_memory(&self, device: u32, total: usize, allocated: usize) -> usize {
        let mine = |c: &&Context| c.device == device && c.alive && !activity::kinds_on().is_empty();
        let cupti: u64 = self.contexts.iter().filter(mine).map(|c| c.cupti_bytes).sum();
        total.saturating_sub(allocated).saturating_sub(cupti as usize)
    }

    /// When everything issued to a device so far has ended.
    pub(crate) fn device_tail(&self, device: u32) -> u64 {
        let mine = |s: &&Stream| self.contexts[s.context].device == device;
        self.streams.iter().filter(mine).map(|s| s.tail).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_queue_and_the_legacy_stream_waits_for_blocking_ones() {
        let mut gpu = Gpu::default();
        let context = gpu.add_context(0);
        let (a, b) = (gpu.add_stream(context, false), gpu.add_stream(context, true));
        let first = gpu.place(a, 1_000_000, 50_000);
        assert_eq!(first.start, 1_000_000 + settings().latency_ns);
        let second = gpu.place(a, 1_000_100, 10);
        assert_eq!(second.start, first.end + settings().gap_ns);
        let other = gpu.place(b, 1_000_200, 10);
        assert!(other.start < first.end, "a non-blocking stream runs beside");
        let legacy = gpu.place(gpu.contexts[context].default_stream, 1_000_300, 10);
        assert!(legacy.start >= second.end, "the legacy stream waits for blocking streams");
        let after = gpu.place(a, 1_000_400, 10);
        assert!(after.start >= legacy.end, "and they for it");
    }

    #[test]
    fn a_full_queue_says_until_when() {
        let mut gpu = Gpu::default();
        let context = gpu.add_context(0);
        let stream = gpu.add_stream(context, false);
        let first = gpu.place(stream, 1_000, 1_000_000);
        for _ in 1..settings().queue {
            assert!(gpu.room(stream, 2_000).is_ok());
            gpu.place(stream, 2_000, 1_000);
        }
        assert_eq!(gpu.room(stream, 2_000), Err(first.end));
        assert!(gpu.room(stream, first.end).is_ok());
    }
}
