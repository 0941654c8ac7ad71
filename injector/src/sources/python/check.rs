// SPDX-License-Identifier: Apache-2.0
// COLD
//! Is what we would read really there? Decided once, on the first thread of the program that makes
//! a CUDA call from Python, inside that call; nothing is walked before, and nothing after where it
//! fails.
//!
//! Always, and without the GIL (which torch has released in nearly every CUDA call): the chain of
//! frames, every link read through the kernel, ends within bounds; each code object is one by its
//! type; each frame stands at an instruction within its own code object; names are strings; lines
//! come out of the line tables. Wrong offsets do not get so far: an instruction pointer into the
//! code object that the same frame names is nothing that comes about by chance. Where this thread
//! happens to hold the GIL the frames are also compared with the interpreter's own: code object and
//! line. The recording says which of the two it was (`python.check`).

use std::ffi::c_void;

use trace::define::MAX_FRAMES;

use super::code;
use super::interpreter::{Api, Interpreter};
use super::layout::frames::Instruction;
use super::walk::RawFrame;
use crate::platform::memory::word;

/// Frames compared with the interpreter's.
const COMPARED: usize = 16;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The same frames as the interpreter's own.
    Compared,
    /// No contradiction, and no GIL to ask the interpreter.
    Structure,
    /// Not to be trusted, and why.
    Failed(&'static str),
    /// This thread has no Python frames: ask again.
    NoFrames,
}

/// Looks at the calling thread, whose state is `thread`.
pub(super) fn check(interpreter: &Interpreter, thread: *mut c_void) -> Verdict {
    let own = match by_the_kernel(interpreter, thread as u64) {
        Ok(own) if own.is_empty() => return Verdict::NoFrames,
        Ok(own) => own,
        Err(why) => return Verdict::Failed(why),
    };
    let Some(api) = &interpreter.api else { return Verdict::Structure };
    // SAFETY: takes nothing; reads a variable of the interpreter.
    if unsafe { (api.current)() } != thread {
        return Verdict::Structure; // no GIL
    }
    // SAFETY: plain calls, this thread holds the GIL. Making frame objects must not start a
    // collection here.
    let collected = api.collector.is_some_and(|(off, _)| unsafe { off() } == 1);
    let theirs = by_the_interpreter(api, thread);
    if let (Some((_, on)), true) = (api.collector, collected) {
        // SAFETY: as above.
        unsafe { on() };
    }
    let own = own.get(..COMPARED).unwrap_or(&own);
    if theirs == own {
        Verdict::Compared
    } else {
        Verdict::Failed("its frames are not where gapprobe looks")
    }
}

/// Code object and line of each frame, innermost first, every word read through the kernel.
fn by_the_kernel(interpreter: &Interpreter, thread: u64) -> Result<Vec<(u64, u32)>, &'static str> {
    let layout = &interpreter.layout;
    let unreadable = "its frames cannot be read";
    let read = |address: u64, offset: usize| word(address.wrapping_add(offset as u64)).ok_or(unreadable);
    let mut at = read(thread, layout.thread_frame)?;
    if let (Some(through), true) = (layout.through, at != 0) {
        at = read(at, through)?;
    }
    let (mut found, mut steps) = (Vec::new(), 0);
    while at != 0 && found.len() < MAX_FRAMES {
        steps += 1;
        if at % 8 != 0 || steps > 4 * MAX_FRAMES {
            return Err("its chain of frames does not end");
        }
        let owner = layout.owner.map_or(Ok(0), |owner| read(at, owner).map(|w| w as u8))?;
        let executable = read(at, layout.code)? & !7;
        let instruction = read(at, layout.instruction)?;
        at = read(at, layout.previous)?;
        if owner >= 3
            || executable == 0
            || read(executable, layout.object_type())? != interpreter.code_type as u64
        {
            if layout.owner.is_none() {
                return Err("its frames have no code");
            }
            continue;
        }
        let instruction = match layout.instruction_is {
            Instruction::Pointer => instruction,
            _ => u64::from(instruction as u32),
        };
        let frame = RawFrame { code: executable, instruction, owner, module: 0 };
        let code = code::read(interpreter, executable).ok_or("its code objects are laid out otherwise")?;
        let line = code.line(&frame).ok_or("its frames stand outside of their code")?;
        if code.file.is_empty() || code.function.is_empty() {
            return Err("its code objects have no names");
        }
        if !code.is_incomplete(&frame) {
            found.push((executable, line));
        }
    }
    if found.first().is_some_and(|(_, line)| *line == 0) {
        return Err("its frames have no lines");
    }
    Ok(found)
}

/// The same, as the interpreter says. Only with the GIL.
fn by_the_interpreter(api: &Api, thread: *mut c_void) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    // SAFETY: this thread's own state, and it holds the GIL: a new reference, or null.
    let mut frame = unsafe { (api.frame)(thread) };
    while !frame.is_null() && found.len() < COMPARED {
        // SAFETY: a frame we have a reference to.
        let code = unsafe { (api.code)(frame) };
        // SAFETY: as above.
        let line = unsafe { (api.line)(frame) };
        found.push((code as u64, line.max(0) as u32));
        // SAFETY: as above.
        let back = unsafe { (api.back)(frame) };
        for object in [code, frame] {
            // SAFETY: a reference of ours, given back once; the frame itself keeps both alive.
            unsafe { (api.release)(object) };
        }
        frame = back;
    }
    if !frame.is_null() {
        // SAFETY: as above.
        unsafe { (api.release)(frame) };
    }
    found
}
