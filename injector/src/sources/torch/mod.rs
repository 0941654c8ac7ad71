// SPDX-License-Identifier: Apache-2.0
// HOT (the functions in the slots), COLD (`leads`)
//! Which operator's backward a thread of PyTorch's engine runs, and where its forward was: while a
//! window is open, each node of the autograd graph is noted as it is made, with the line, and as
//! it is evaluated. The engine's threads have no Python frames, so this is how their kernels get
//! their line.
//!
//! A node takes its sequence number from one function of libtorch_cpu, and the engine evaluates it
//! with another. libtorch_cpu calls both through slots although it defines them (seen in PyTorch
//! 1.13 and each of 2.0 to 2.15). The number ties the two together, as in PyTorch's own profiler.
//! Nothing of PyTorch's is switched on, and nothing of it is called but the two, and what asks for
//! its number of the thread.
//!
//! [`nodes`]: WARM, on the drain thread: from slots of the rings to events.

mod nodes;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) use nodes::Nodes;
use trace::{Event, Kind, Loss};

use crate::hooks::imports::Rewrite;
use crate::hooks::slots::{Lead, Target};
use crate::platform::guard::guard;
use crate::platform::loader::Library;
use crate::platform::{lifecycle, loader, thread_block, ticks};
use crate::ring::Tag;
use crate::sources::cupti::{callbacks, choose};
use crate::sources::{hostpool, python};

/// Time, number | thread << 32, hash of the stack.
const TAG_FORWARD: u64 = Tag::ForwardNode as u64;
/// Hash of the stack, the node's table of functions; of the event that follows.
const TAG_BACKWARD: u64 = Tag::BackwardNode as u64;

/// A node is made: `at::sequence_number::get_and_increment()`.
static MADE: Lead =
    Lead::new(c"_ZN2at15sequence_number17get_and_incrementEv", 0, || number as Number as usize);
/// A node is evaluated: `torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&,
/// Node*, InputBuffer&, const std::shared_ptr<ReadyQueue>&)`.
static EVALUATED: Lead = Lead::new(
    c"_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE",
    0,
    || evaluate as Evaluate as usize,
);

type Number = extern "C-unwind" fn() -> u64;
type Evaluate = extern "C-unwind" fn(*mut c_void, *mut c_void, *const Node, *mut c_void, *mut c_void);
type Thread = unsafe extern "C" fn() -> u64;

/// `at::RecordFunction::currentThreadId()`; 0: not known.
static THREAD_ID: AtomicUsize = AtomicUsize::new(0);

/// While calls are told of: in windows.
#[inline]
fn is_noted() -> bool {
    callbacks::are_on() && lifecycle::is_live()
}

/// PyTorch's number of the calling thread, which a node keeps; 0: not known.
#[inline]
fn thread() -> u32 {
    match THREAD_ID.load(Ordering::Relaxed) {
        0 => 0,
        function => {
            // SAFETY: found under the mangled name of this function, which takes nothing and has
            // returned a u64 since it was first there (1.5); it reads a thread-local.
            let function = unsafe { std::mem::transmute::<usize, Thread>(function) };
            // SAFETY: as above.
            unsafe { function() as u32 }
        }
    }
}

/// A node as far as it is read (other threads change its counts): the same in 1.13 to 2.15 but for
/// its head.
#[repr(C)]
struct Node {
    /// Its table of functions.
    functions: AtomicU64,
    /// Before 2.13 a pointer to the node itself, with one to its counts behind it
    /// (`enable_shared_from_this`); from then on its counts (`c10::intrusive_ptr_target`).
    head: AtomicU64,
    rest: [AtomicU64; 5],
}

/// From the word with the node's number to that with its thread, in words: number, depth in the
/// graph, whether it has a parent, thread.
const TO_THREAD: usize = 3;

impl Node {
    /// Its number, and PyTorch's number of the thread that made it.
    #[inline]
    fn origin(&self) -> (u32, u32) {
        let head = self.head.load(Ordering::Relaxed);
        let number = usize::from(head == std::ptr::from_ref(self) as u64);
        let word = |at: usize| self.rest.get(at).map_or(0, |w| w.load(Ordering::Relaxed) as u32);
        (word(number), word(number + TO_THREAD))
    }
}

/// A node that is evaluated.
struct Begun {
    start: u64,
    origin: (u32, u32),
    front: [u64; 4],
    /// The one outside of it.
    outer: (u64, usize),
}

/// In the slots of `get_and_increment`.
extern "C-unwind" fn number() -> u64 {
    // SAFETY: a slot leads here only once the function of this name is known, which takes nothing
    // and returns a u64 (PyTorch 1.13, 2.0 to 2.15).
    let real = unsafe { std::mem::transmute::<usize, Number>(MADE.real()) };
    let number = real();
    if is_noted() {
        note_made(number);
    }
    number
}

/// Aside, so that a call between windows saves no registers for it.
#[inline(never)]
fn note_made(number: u64) {
    guard((), || {
        let site = python::site();
        if site != 0 {
            let origin = number & 0xffff_ffff | u64::from(thread()) << 32;
            hostpool::push(&[[ticks::now(), origin, site, TAG_FORWARD]]);
        }
    });
}

/// In the slot of `evaluate_function`. What it throws passes through this frame, which therefore
/// has nothing to drop: to unwind it, the program's unwinder would call Rust's personality, and
/// that our own copy of the unwinder (`scripts/check-library` looks).
extern "C-unwind" fn evaluate(
    engine: *mut c_void,
    task: *mut c_void,
    node: *const Node,
    inputs: *mut c_void,
    queue: *mut c_void,
) {
    // SAFETY: as in `number`; five pointers and no result (PyTorch 1.13, 2.0 to 2.15), as its name
    // says.
    let real = unsafe { std::mem::transmute::<usize, Evaluate>(EVALUATED.real()) };
    if is_noted() {
        return evaluate_noted(engine, task, node, inputs, queue, real);
    }
    real(engine, task, node, inputs, queue)
}

/// Aside, as [`note_made`]; nothing to drop, as [`evaluate`].
#[inline(never)]
extern "C-unwind" fn evaluate_noted(
    engine: *mut c_void,
    task: *mut c_void,
    node: *const Node,
    inputs: *mut c_void,
    queue: *mut c_void,
    real: Evaluate,
) {
    let here = 0u8;
    let begun = begin(node, &raw const here);
    real(engine, task, node, inputs, queue);
    end(begun);
}

#[inline(never)]
fn begin(node: *const Node, here: *const u8) -> Option<Begun> {
    guard(None, || {
        // SAFETY: the engine's own argument: a node that its task keeps alive, and larger than what
        // is read (464 bytes at least in PyTorch 2.0 to 2.15).
        let node = unsafe { node.as_ref() }?;
        let functions = node.functions.load(Ordering::Relaxed);
        let front = [python::site(), functions, 0, TAG_BACKWARD];
        let outer = thread_block::with(|b| b.enter_node(here, functions));
        Some(Begun { start: ticks::now(), origin: node.origin(), front, outer })
    })
}

#[inline(never)]
fn end(begun: Option<Begun>) {
    guard((), || {
        let Some(Begun { start, origin: (number, thread), front, outer }) = begun else { return };
        thread_block::with(|b| b.leave_node(outer));
        if is_noted() {
            let mut event = Event::new(Kind::BackwardNode, start, ticks::now());
            (event.b, event.correlation) = (number, thread);
            hostpool::push_behind(front, event.encode(), Loss::SiteDropped);
        }
    });
}

/// The two functions' slots, to be led here.
pub(crate) struct Slots {
    made: Option<Target>,
    evaluated: Option<Target>,
}

/// As far as PyTorch is there.
pub(crate) fn leads() -> Slots {
    let library = choose::open_mapped("/libtorch_cpu.so");
    let find = |lead: &'static Lead| lead.find(library.as_ref()?);
    if let Some(Library { handle, .. }) = &library {
        let name = c"_ZN2at14RecordFunction15currentThreadIdEv";
        // SAFETY: an open handle and a C string.
        let function = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
        THREAD_ID.store(function as usize, Ordering::Relaxed);
    }
    Slots { made: find(&MADE), evaluated: find(&EVALUATED) }
}

impl Slots {
    fn lead(&self, name: &[u8], now: usize, own: &Range<u64>, is_own: bool) -> Option<usize> {
        let of = [(&MADE, self.made), (&EVALUATED, self.evaluated)];
        let (lead, target) = of.into_iter().find(|(lead, _)| lead.name().to_bytes() == name)?;
        let mut target = target?;
        if is_own {
            // another object may have a function of this name of its own; what this one defines and
            // has not bound yet will be bound to that
            if !own.contains(&(target.address as u64)) {
                return None;
            }
            target.is_global = true;
        }
        (target.is_in(now, own) == Some(true)).then(|| lead.ours())
    }
}

impl Rewrite for Slots {
    fn wants(&mut self, object: &[u8]) -> bool {
        self.made.is_some() && !loader::file_name(object).starts_with(b"libgapprobe")
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        name.starts_with(b"_ZN").then(|| self.lead(name, now, own, false))?
    }

    fn replacement_of_own(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        name.starts_with(b"_ZN").then(|| self.lead(name, now, own, true))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of the number and of the thread as a compiler has them from the headers of the
    /// wheels (`offsetof` of `sequence_nr_` and `thread_id_`).
    #[test]
    fn a_nodes_number_and_thread_are_read_behind_either_head() {
        let shared = "2.0.1 2.1.2 2.2.2 2.3.1 2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1";
        let counted = "2.13.0 2.14.1 2.15.0";
        for (releases, is_shared, number, thread) in [(shared, true, 24, 48), (counted, false, 16, 40)] {
            let node = Node { functions: 7.into(), head: (1 << 32 | 1).into(), rest: [9; 5].map(Into::into) };
            if is_shared {
                node.head.store(std::ptr::from_ref(&node) as u64, Ordering::Relaxed);
            }
            for (offset, value) in [(number, u64::MAX - 1), (thread, 2)] {
                node.rest[(offset - std::mem::offset_of!(Node, rest)) / 8].store(value, Ordering::Relaxed);
            }
            assert_eq!(node.origin(), (u32::MAX - 1, 2), "{releases}");
        }
    }
}
