// SPDX-License-Identifier: Apache-2.0
// HOT (`launched`), COLD (`prepare`, `copy`: a few times for what a line does to the GPU)
//! The machine code between a line of Python, or a node of PyTorch's backward pass, and what it
//! puts on the GPU: by which operator's functions it got there. That is the same each time, so it
//! is looked at a few times: with the first launches of a kernel from a line (or node) the thread's
//! stack goes to the drain thread as a copy, and each later one costs a look into a table.
//!
//! Operators are some 30 frames deep, far more than a page: a stack is copied once it is known how
//! far it goes ([`stack`]). Until then a launch counts as not seen.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use trace::Loss;

use super::captures::Bytes;
use super::pool::Pool;
use super::rows::Place;
use super::stack;
use crate::platform::{losses, memory, thread_block};
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::hostpool;
use crate::sources::seen::Seen;

/// Number of the copy, hash of the Python stack that calls it (0: none), address of the kernel's
/// name.
const TAG: u64 = Tag::LaunchStack as u64;
/// Bytes of a stack copied at most: below a convolution lie up to 110 KB (cuDNN 9, one frame of
/// which has 64).
const BYTES: usize = 160 << 10;
/// Copies that wait for the drain thread at most.
const POOL: usize = 24;
/// Looks that are remembered.
const SEEN: usize = 65_536;
/// Looks at one way: two operators that launch one kernel from one line are two ways, which the
/// analyzer then tells nothing of.
const LOOKS: u64 = 4;
/// Copies of a process at most: a program that makes code as it runs has new lines for ever.
const MOST: u32 = 32_768;

/// One copy.
#[repr(C)]
pub(super) struct Copied {
    pub(super) key: u64,
    /// The table of functions of the node of PyTorch's that is evaluated; 0: none is.
    pub(super) node: u64,
    pub(super) stack: Bytes<BYTES>,
}

/// All-zero: nothing was launched.
#[repr(C)]
struct Launches {
    seen: Seen<SEEN>,
    count: AtomicU32,
    pool: Pool<Copied, POOL>,
}

static LAUNCHES: AtomicPtr<Launches> = AtomicPtr::new(std::ptr::null_mut());

/// Memory for them, faulted in (4 MB). COLD, once; `false` where it cannot be had.
pub(super) fn prepare() -> bool {
    let Some(memory) = memory::map(size_of::<Launches>(), true) else { return false };
    LAUNCHES.store(memory.as_ptr().cast(), Ordering::Release);
    true
}

#[inline]
fn launches() -> Option<&'static Launches> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never
    // unmapped; zero is valid for all of it.
    unsafe { LAUNCHES.load(Ordering::Acquire).as_ref() }
}

/// Something was put on the GPU by a call that our callback, which returns to `inside`, is in the
/// end of: a kernel, whose name is at `symbol`, or a copy (0). `site`: the hash of the Python
/// stack.
#[inline]
pub(crate) fn launched(inside: Place, site: u64, symbol: u64) {
    let Some(launches) = launches() else { return };
    let here = 0u8;
    let node = thread_block::with(|b| b.node(&raw const here));
    if site | node == 0 {
        return; // a kernel alone tells no way
    }
    let key = key([site, symbol, node, inside.at]);
    if !launches.seen.has(nth(key, LOOKS)) {
        copy(launches, key, [site, symbol, node], inside);
    }
}

/// What is remembered of the n-th look at one way, from 1 on. Never 0.
#[inline]
fn nth(key: u64, n: u64) -> u64 {
    key.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

/// (How deep the stack is tells ways apart that begin in one line.)
#[inline]
fn key(words: [u64; 4]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    };
    words.into_iter().fold(0x2545_f491_4f6c_dd1d, mix)
}

#[cold]
#[inline(never)]
fn copy(launches: &Launches, key: u64, [site, symbol, node]: [u64; 3], inside: Place) {
    let last = nth(key, LOOKS);
    match stack::whole(inside.at) {
        Ok(_) => {}
        Err(true) => return, // tried again with the next launch
        Err(false) => {
            losses::add(Loss::CallerUnknown, 1);
            launches.seen.add(last);
            return;
        }
    }
    if launches.count.load(Ordering::Relaxed) >= MOST {
        losses::add(Loss::CallerDropped, 1);
        launches.seen.add(last);
        return;
    }
    if !hostpool::has_room_beside() {
        return; // tried again with the next launch
    }
    let before = (1..LOOKS).rev().find(|n| launches.seen.has(nth(key, *n)));
    let (before, key) = (before.map(|n| nth(key, n)), nth(key, before.unwrap_or(0) + 1));
    let Some(number) = launches.pool.claim(|copied| {
        (copied.key, copied.node, copied.stack.place) = (key, node, inside);
        // SAFETY: the frame of CUPTI's function that called us, which waits for us.
        copied.stack.length = unsafe { stack::copy(inside.at, &mut copied.stack.bytes) };
        copied.stack.length >= 8
    }) else {
        return; // no free place: tried again with the next launch
    };
    launches.seen.add(key); // before it is pushed: the drain thread may forget it at once
    if hostpool::push_together(&[[number, site, symbol, TAG]]) {
        launches.count.fetch_add(1, Ordering::Relaxed);
        before.inspect(|before| launches.seen.forget(*before)); // a way has one place
    } else {
        launches.seen.forget(key);
        launches.pool.give_back(number);
    }
}

/// A launch whose stack waits for the drain thread.
pub(super) struct Launch {
    number: u64,
    /// Id of the Python stack that calls it, or 0.
    pub(super) outer: u32,
    /// Address of the kernel's name; 0: it is no kernel.
    pub(super) symbol: u64,
}

impl Launch {
    /// A ring slot of ours, as the hash of the Python stack and what makes the launch of its id.
    pub(super) fn unpack([number, site, symbol, tagged]: [u64; SLOT_WORDS]) -> Option<(u64, Launch)> {
        (tagged & 0xff == TAG).then_some((site, Launch { number, outer: 0, symbol }))
    }

    /// Reads its copy, whose place is free then.
    pub(super) fn read<R>(&self, f: impl FnOnce(&Copied) -> R) -> Option<R> {
        launches()?.pool.read(self.number, f)
    }
}

/// It comes again with its next launch.
pub(super) fn forget(key: u64) {
    losses::add(Loss::CallerDropped, 1);
    if let Some(launches) = launches() {
        launches.seen.forget(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look that is thrown out is made again with every launch.
    #[test]
    fn looks_do_not_throw_one_another_out() {
        // SAFETY: atomics, for which zero is valid.
        let seen: Box<Seen<SEEN>> = unsafe { Box::new_zeroed().assume_init() };
        let keys: Vec<u64> = (0..3000).map(|n| key([n, 7, 0, 0x7fff_0000])).collect();
        for n in 1..=LOOKS {
            for key in &keys {
                seen.add(nth(*key, n));
                seen.forget(nth(*key, n - 1)); // as `copy` does
            }
        }
        assert_eq!(keys.iter().filter(|key| !seen.has(nth(**key, LOOKS))).count(), 0);
    }

    #[test]
    fn each_part_of_a_key_tells_launches_apart() {
        let all: std::collections::HashSet<u64> = (0..4)
            .flat_map(|at| (1..100).map(move |v| key(std::array::from_fn(|n| if n == at { v } else { 0 }))))
            .collect();
        assert_eq!(all.len(), 4 * 99);
    }
}
