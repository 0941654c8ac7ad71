// SPDX-License-Identifier: Apache-2.0
// HOT (`push`), COLD (`start`)
//! Machine code that called CUDA: where there is no Python (C++, threads of libraries) the function
//! that did, for each call (for launches only in a process without Python); and what lies between a
//! line of Python and its kernel, seen once.
//!
//! * [`rows`]: HOT: a thread walks from our callback through CUPTI and CUDA's libraries to the
//!   return address of the call, by rows of their unwind tables that were learnt before. What it
//!   sends with the call is that one address.
//! * [`captures`]: HOT, where an address has no row yet: a copy of the top of the stack, as far as
//!   it can be read ([`mod@stack`]).
//! * [`launches`]: HOT, with the first launches of a kernel from a line: a copy of the stack
//!   between the two, which [`natives`] (WARM) unwinds.
//! * [`mod@sites`]: WARM, on the drain thread: unwinds the copies by the tables in memory
//!   ([`unwind`]), so learning the rows, and makes module and offset of an address ([`modules`]).
//!   Symbols and lines are the analyzer's.
//!
//! The caller is the first function that belongs neither to the driver, CUPTI or the runtime as
//! libraries, nor to a runtime that was linked into the program, and that is not the function which
//! the compiler makes for each kernel (`kernel<<<...>>>()` calls it). The latter two are told by
//! their symbols.
//! No thread walks a frame outside of these. Of a runtime linked into a library that was loaded
//! later, or without symbols, the module is the caller.

mod captures;
mod launches;
mod modules;
mod natives;
mod pool;
mod rows;
mod sites;
mod stack;
mod unwind;

pub(crate) use launches::launched;
pub(crate) use rows::Place;
pub(crate) use sites::Callers;
use trace::{Event, Loss};

use crate::platform::losses;
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::{hostpool, launch};

/// Return address of the call that follows.
const TAG_CALLER: u64 = Tag::Caller as u64;
/// Number of a copy of the stack, of the call that follows.
const TAG_COPY: u64 = Tag::StackCopy as u64;

/// In our constructor: two numbers of the loader's.
pub(crate) fn at_load() {
    modules::remember_start();
}

/// What the drain thread needs; the rows and the pool of copies for everybody. Before the first
/// event is stored.
pub(crate) fn start(is_off: bool) -> Callers {
    if is_off || cfg!(not(target_arch = "x86_64")) {
        return Callers::default();
    }
    let modules = modules::look();
    if modules.find(start as *const () as u64).is_none()
        || !captures::prepare()
        || !rows::prepare()
        || !launches::prepare()
    {
        return Callers::default();
    }
    Callers::new(modules)
}

/// Stores the event of a call, its caller in front of it where that can be had. `inside`: where our
/// callback returns to.
#[inline]
pub(crate) fn push(inside: Place, of_runtime: bool, event: [u64; SLOT_WORDS]) {
    if let Some(address) = caller(inside, of_runtime, 0, event) {
        hostpool::push_behind([address, 0, 0, TAG_CALLER], event, Loss::CallerDropped);
    }
}

/// The same of a launch that succeeded, in one slot. `symbol`: where the kernel's name is.
#[inline]
pub(crate) fn push_launch(inside: Place, of_runtime: bool, symbol: u64, event: &Event) {
    if let Some(address) = caller(inside, of_runtime, symbol, event.encode()) {
        hostpool::push(&[launch::pack(Tag::LaunchCaller, event, address)]);
    }
}

/// The caller, where it is known; else the event is stored, with a copy of the stack if need be.
#[inline]
fn caller(inside: Place, of_runtime: bool, symbol: u64, event: [u64; SLOT_WORDS]) -> Option<u64> {
    let Some(rows) = rows::rows() else {
        hostpool::push(&[event]);
        return None;
    };
    // SAFETY: the first word is our callback's own return address. Each further one is where a row
    // of the unwind tables of the function before says that its return address or its caller's rbp
    // is: that function is running, and so is its caller. Only modules that are never unloaded and
    // libraries of CUDA have such rows (`sites`).
    let load = |at: u64| unsafe { (at as *const u64).read_volatile() };
    match rows.walk(inside, load) {
        rows::End::Caller(address) => return Some(address),
        rows::End::Unknown(place) => push_copy(place, of_runtime, symbol, event),
        rows::End::Refused => {
            losses::add(Loss::CallerUnknown, 1);
            hostpool::push(&[event]);
        }
    }
    None
}

#[cold]
#[inline(never)]
fn push_copy(place: Place, of_runtime: bool, symbol: u64, event: [u64; SLOT_WORDS]) {
    // hundreds of launches may come before the drain thread has learnt the way of the first one:
    // they are stored without a caller, which the tables call unattributed, and not counted as lost
    let is_kernel = symbol != 0;
    if is_kernel && !hostpool::has_room_beside() {
        hostpool::push(&[event]);
        return;
    }
    // SAFETY: where the walk ended: the frame of a function between CUDA's caller and our callback,
    // all of which wait for us.
    match unsafe { captures::capture(place, of_runtime, symbol) } {
        Some(number) => {
            if !hostpool::push_behind([number, 0, 0, TAG_COPY], event, Loss::CallerDropped) {
                captures::pool().inspect(|pool| pool.give_back(number));
            }
        }
        None => {
            losses::add(Loss::CallerDropped, u64::from(!is_kernel));
            hostpool::push(&[event]);
        }
    }
}
