// SPDX-License-Identifier: Apache-2.0
// WARM
//! One frame of Python, as its bytes say.

use super::python::Python;
use crate::platform::memory::{i32_at, u64_at};
use crate::sources::python::layout::frames::Instruction;

/// Owner of the frame of a function that runs.
const OWNED_BY_THREAD: u8 = 0;
/// Owners from here on are the interpreter's own entry frames (3.12 and newer).
pub(super) const OWNED_BY_C: u8 = 3;

/// A frame as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) address: u64,
    /// The frame it was called from.
    pub(super) back: u64,
    /// 0: it stands for C code.
    pub(super) code: u64,
    pub(super) instruction: u64,
    pub(super) owner: u8,
    /// It may stand outermost: see [`is_root`].
    pub(super) is_root: bool,
    /// As far as it says: see [`is_running`].
    pub(super) is_running: bool,
}

/// Bytes of a frame that are read.
pub(super) fn frame_bytes(python: &Python) -> usize {
    let l = &python.known.layout;
    let state = python.layout.running.map_or(0, |r| r.0).max(l.owner.unwrap_or(0));
    l.previous.max(l.code).max(l.instruction).max(state) + 8
}

/// The frame that these bytes are.
pub(super) fn decode(python: &Python, address: u64, bytes: &[u8]) -> Frame {
    let layout = &python.known.layout;
    let owner = layout.owner.and_then(|at| bytes.get(at)).copied().unwrap_or(0);
    let instruction = u64_at(bytes, layout.instruction);
    let is_int = layout.instruction_is != Instruction::Pointer;
    Frame {
        address,
        back: u64_at(bytes, layout.previous),
        // the low bits are tags from 3.14 on; objects are aligned to 8 at least
        code: if owner >= OWNED_BY_C { 0 } else { u64_at(bytes, layout.code) & !7 },
        instruction: if is_int { instruction & 0xffff_ffff } else { instruction },
        owner,
        is_root: is_root(python, bytes, owner),
        is_running: is_running(python, bytes),
    }
}

/// May a frame without a caller stand outermost in a thread that runs it? One that was left
/// meanwhile has no caller either: a generator's that waits to be resumed, one that lives on in a
/// traceback, one that is freed. (Found by stress: such a stack came up twice in 8,697 samples of
/// 3.11 at 1,000 a second, twice the same in a row.)
fn is_root(python: &Python, bytes: &[u8], owner: u8) -> bool {
    match python.known.layout.owner {
        // the interpreter's own entry frame is outermost from 3.12 on; the function's in 3.11
        Some(_) if python.version >= (3, 12) => owner >= OWNED_BY_C,
        Some(_) => owner == OWNED_BY_THREAD,
        // up to 3.10: references to it, and its generator, which stands in front of its instruction
        None => u64_at(bytes, 0) != 0 && u64_at(bytes, python.known.layout.instruction - 8) == 0,
    }
}

/// Does the frame run, or wait for what it called, as far as it says? Up to 3.10 a frame is an
/// object that its code keeps for the next call: one that was left still says what called it and
/// where it ended (27 wrong stacks in 139,383 samples, each with such a frame), but not that it
/// runs. One that has not begun does not either; it is in use while a tracing function is called
/// for it. From 3.11 on frames lie on a stack of their own, and nothing in them tells.
fn is_running(python: &Python, bytes: &[u8]) -> bool {
    let Some((at, values)) = python.layout.running else { return true };
    let has_begun = i32_at(bytes, python.known.layout.instruction) >= 0;
    bytes.get(at).is_some_and(|state| values.contains(state)) || (u64_at(bytes, 0) != 0 && !has_begun)
}
