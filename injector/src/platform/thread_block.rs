// SPDX-License-Identifier: Apache-2.0
// HOT
//! What we keep per thread: 48 bytes of thread-local memory, zero at first, without destructor and
//! without the allocation that a dynamic TLS access may make on a thread's first touch.
//!
//! Rust has no stable way to ask for the initial-exec TLS model, so on x86-64 the block is declared
//! and addressed in assembly: its offset from the thread pointer is fixed when the library is
//! loaded (48 bytes of the static surplus where the driver, not LD_PRELOAD, loads us).

use std::cell::Cell;

/// The block. Only the owning thread reads or writes it.
#[repr(C)]
pub(crate) struct ThreadBlock {
    /// Address of the thread's ring slot in the pool; 0 = none yet, 1 = none to be had (overflow
    /// ring).
    pub(crate) ring: Cell<usize>,
    /// Correlation id of the outermost API call the thread is in; 0 = none.
    pub(crate) outer: Cell<u32>,
    /// Kernel thread id, 0 = not asked yet.
    pub(crate) tid: Cell<u32>,
    /// A range's slot was refused since the last one stored (see `hostpool::push_ranges`).
    pub(crate) gap: Cell<bool>,
    /// It is in a synchronizing call that is counted (see `duty_cycle::sync_clock`).
    pub(crate) in_sync: Cell<bool>,
    /// Number of its slot, from 1 on; 0: it has not launched (see `duty_cycle::thread_slots`).
    pub(crate) slot: Cell<u8>,
    /// A node of a CUDA graph was captured in the API call that it is in (see
    /// `sources::cupti::graph_nodes`).
    pub(crate) captured: Cell<bool>,
    /// Launches before it came to the safepoint for the first time.
    pub(crate) unhooked: Cell<u64>,
    /// The table of functions of the node of PyTorch's that it evaluates; 0: none (see `torch`).
    node: Cell<u64>,
    /// Where on its stack it does. What lies deeper belongs to it; an exception that ends it tells
    /// us nothing.
    node_frame: Cell<usize>,
}

impl ThreadBlock {
    /// The node that the code with a variable at `here` is in; 0: none.
    #[inline]
    pub(crate) fn node(&self, here: *const u8) -> u64 {
        if (here as usize) < self.node_frame.get() {
            self.node.get()
        } else {
            0
        }
    }

    /// The frame at `here` evaluates this node. Returns the one outside of it.
    #[inline]
    pub(crate) fn enter_node(&self, here: *const u8, node: u64) -> (u64, usize) {
        let outer = match self.node(here) {
            0 => (0, 0),
            outer => (outer, self.node_frame.get()),
        };
        self.leave_node((node, here as usize));
        outer
    }

    /// That one goes on.
    #[inline]
    pub(crate) fn leave_node(&self, (node, frame): (u64, usize)) {
        self.node.set(node);
        self.node_frame.set(frame);
    }
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".section .tbss.gapprobe_thread_block,\"awT\",@nobits",
    ".globl gapprobe_thread_block",
    ".hidden gapprobe_thread_block",
    ".type gapprobe_thread_block,@object",
    ".size gapprobe_thread_block,48",
    ".p2align 4",
    "gapprobe_thread_block:",
    ".zero 48",
    ".previous",
);

/// Runs `f` on the calling thread's block.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&ThreadBlock) -> R) -> R {
    let block: *const ThreadBlock;
    // SAFETY: reads the thread pointer and the block's offset from it; no memory is written, no
    // flag kept.
    unsafe {
        std::arch::asm!(
            "mov {b}, qword ptr [rip + gapprobe_thread_block@GOTTPOFF]",
            "add {b}, qword ptr fs:[0]",
            b = out(reg) block,
            options(nostack, pure, readonly),
        );
    }
    // SAFETY: the block is 48 zero-initialised bytes of this thread, valid for the thread's life,
    // and only reached here.
    f(unsafe { &*block })
}

#[cfg(not(target_arch = "x86_64"))]
std::thread_local! {
    static BLOCK: ThreadBlock =
        const { ThreadBlock { ring: Cell::new(0), outer: Cell::new(0), tid: Cell::new(0), gap: Cell::new(false), in_sync: Cell::new(false), slot: Cell::new(0), captured: Cell::new(false), unhooked: Cell::new(0), node: Cell::new(0), node_frame: Cell::new(0) } };
}

/// Runs `f` on the calling thread's block.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&ThreadBlock) -> R) -> R {
    BLOCK.with(f)
}

#[cfg(test)]
mod tests {
    /// A node that an exception ended is left behind by the next one at its height.
    #[test]
    fn nodes_within_each_other_and_one_that_was_not_left() {
        let at = |frame: usize| frame as *const u8;
        super::with(|b| {
            assert_eq!(b.enter_node(at(900), 7), (0, 0));
            assert_eq!((b.node(at(890)), b.node(at(950))), (7, 0));
            let outer = b.enter_node(at(800), 8);
            assert_eq!((outer, b.node(at(700)), b.node(at(850))), ((7, 900), 8, 0));
            b.leave_node(outer);
            assert_eq!(b.node(at(850)), 7);
            assert_eq!(b.enter_node(at(900), 9), (0, 0), "7 was thrown out of");
            b.leave_node((0, 0));
            assert_eq!(b.node(at(1)), 0);
        });
    }

    #[test]
    fn each_thread_has_its_own_zeroed_block() {
        let address =
            |b: &super::ThreadBlock| (b as *const super::ThreadBlock as usize, b.outer.get(), b.ring.get());
        super::with(|b| b.outer.set(5));
        let here = super::with(address);
        let there = std::thread::scope(|s| s.spawn(|| super::with(address)).join()).unwrap();
        assert_eq!((here.1, there.1, there.2), (5, 0, 0));
        assert_ne!(here.0, there.0);
        assert_eq!(here.0 % 8, 0);
        super::with(|b| b.outer.set(0));
    }
}
