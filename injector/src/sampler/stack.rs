// SPDX-License-Identifier: Apache-2.0
// WARM
//! The Python frames of another thread, which goes on running meanwhile. They are read twice: a stack counts only if
//! thread state, chain of frames, code objects and call sites are the same both times (of the innermost frame, whose
//! instruction moves all the time in a running function, the code object). Everything that a frame points to as its
//! code must be a code object. Else there is no stack: never a frame that was not there.
//!
//! Few calls to the kernel: where the frames of the last sample lay is read again in one, and most of them are still
//! there. A thread whose CPU clock stands still is not read at all: its stack is the one before.

use super::code::{head_bytes, Codes};
use super::python::{PyThread, Python};
use super::remote::{is_address, u64_at, Batch, Slot};
use crate::python::interpreter::Interpreter;
use crate::python::versions::Instruction;
use crate::python::walk::RawFrame;

/// Frames followed at most, those of C code included: deeper stacks keep their innermost ones.
const DEEPEST: usize = trace::define::MAX_FRAMES;
/// What lies this close together is read in one piece, bytes.
const NEAR: u64 = 512;

/// A frame as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame {
    address: u64,
    back: u64,
    /// 0: it stands for C code.
    code: u64,
    instruction: u64,
    owner: u8,
}

/// Why there is no stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// No Python frame.
    Empty,
    /// It moved while it was read.
    Moved,
    /// The thread state is another's.
    Gone,
}

/// A stack: code object (of [`Codes`]) and raw frame of each frame, innermost first.
pub(super) type Stack = Vec<(u32, RawFrame)>;

/// Owners from here on are the interpreter's own entry frames (3.12 and newer).
const OWNED_BY_C: u8 = 3;

/// Where the frames of a thread's last stack lay.
#[derive(Default)]
pub(super) struct Guess {
    c_frame: u64,
    frames: Vec<u64>,
}

/// A piece of memory that was read.
#[derive(Clone, Copy)]
struct Piece {
    from: u64,
    to: u64,
    slot: Slot,
}

/// Reads stacks; keeps its buffers.
#[derive(Default)]
pub(super) struct Reader {
    batch: Batch,
    pieces: Vec<Piece>,
}

impl Reader {
    /// The stack of `thread`, which may run meanwhile: one that moved is read once more.
    pub(super) fn stack_of_running(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Result<Stack, Why> {
        match self.stack(python, thread, guess, codes) {
            Err(Why::Moved) => self.stack(python, thread, guess, codes),
            told => told,
        }
    }

    /// The stack of `thread`.
    fn stack(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Result<Stack, Why> {
        let first = self.chain(python, thread, guess)?;
        let ids = self.code(python, &first, codes)?;
        let second = self.chain(python, thread, guess)?;
        let same = |(n, (a, b)): (usize, (&Frame, &Frame))| {
            (a.address, a.back, a.code) == (b.address, b.back, b.code)
                && (n == 0 || a.instruction == b.instruction)
        };
        if first.len() != second.len() || !first.iter().zip(&second).enumerate().all(same) {
            return Err(Why::Moved);
        }
        let code = |frame: &&Frame| frame.code != 0;
        let raw = |f: &Frame| RawFrame { code: f.code, instruction: f.instruction, owner: f.owner };
        let with_ids = ids.into_iter().zip(first.iter().filter(code).map(raw));
        let stack: Stack = with_ids.filter(|(id, frame)| !codes.is_incomplete(*id, frame)).collect();
        if stack.is_empty() {
            return Err(Why::Empty);
        }
        Ok(stack)
    }

    /// The chain of frames as it is now; `guess` is where it was, then where it is.
    fn chain(&mut self, python: &Python, thread: &PyThread, guess: &mut Guess) -> Result<Vec<Frame>, Why> {
        let layout = &python.layout;
        let mut state = self.prepare(python, thread, guess);
        if !self.batch.read() {
            // something of the last stack is not mapped any more
            *guess = Guess::default();
            state = self.prepare(python, thread, guess);
            if !self.batch.read() {
                return Err(Why::Gone);
            }
        }
        let (state, c_frame) = state.ok_or(Why::Gone)?;
        let bytes = self.batch.bytes(state);
        if u64_at(bytes, layout.thread) != thread.thread
            || u64_at(bytes, layout.interpreter) != python.interpreter
        {
            return Err(Why::Gone);
        }
        let top = u64_at(bytes, python.known.layout.thread_frame);
        let mut at = match python.known.layout.through {
            None => top,
            Some(inner) => match c_frame.filter(|_| top == guess.c_frame) {
                Some(slot) => u64_at(self.batch.bytes(slot), 0),
                None => {
                    guess.c_frame = top;
                    super::remote::word(top.wrapping_add(inner as u64)).ok_or(Why::Moved)?
                }
            },
        };
        let mut frames: Vec<Frame> = Vec::with_capacity(guess.frames.len() + 4);
        while at != 0 && frames.len() < DEEPEST {
            if !is_address(at) {
                return Err(Why::Moved);
            }
            let frame = self.frame(python, at).ok_or(Why::Moved)?;
            frames.push(frame);
            at = frame.back;
        }
        guess.frames.clear();
        guess.frames.extend(frames.iter().map(|f| f.address));
        Ok(frames)
    }

    /// Asks for the thread state, the C frame, and the frames where they were.
    fn prepare(&mut self, python: &Python, thread: &PyThread, guess: &Guess) -> Option<(Slot, Option<Slot>)> {
        let layout = &python.layout;
        self.batch.clear();
        self.pieces.clear();
        let state = self.batch.want(thread.state, layout.thread_bytes())?;
        let c_frame = match python.known.layout.through {
            Some(inner) if guess.c_frame != 0 => self.batch.want(guess.c_frame + inner as u64, 8),
            _ => None,
        };
        let mut places = guess.frames.clone();
        places.sort_unstable();
        let (mut places, size) = (places.into_iter().peekable(), frame_bytes(python.known) as u64);
        while let Some(from) = places.next() {
            let mut to = from + size;
            while let Some(next) = places.next_if(|next| *next <= to + NEAR) {
                to = to.max(next + size);
            }
            if let Some(slot) = self.batch.want(from, (to - from) as usize) {
                self.pieces.push(Piece { from, to, slot });
            }
        }
        Some((state, c_frame))
    }

    /// The frame at `at`: from what was read, else read now.
    fn frame(&self, python: &Python, at: u64) -> Option<Frame> {
        let size = frame_bytes(python.known) as u64;
        let piece = self.pieces.iter().find(|p| p.from <= at && at + size <= p.to);
        match piece {
            Some(piece) => {
                let bytes = self.batch.bytes(piece.slot).get((at - piece.from) as usize..)?;
                Some(decode(python, at, bytes))
            }
            None => Some(decode(python, at, &super::remote::read(at, size as usize)?)),
        }
    }

    /// The code objects of the frames that have one.
    fn code(&mut self, python: &Python, frames: &[Frame], codes: &mut Codes) -> Result<Vec<u32>, Why> {
        let layout = &python.layout;
        self.batch.clear();
        let mut wanted: Vec<(u64, Slot, Option<Slot>)> = Vec::with_capacity(frames.len());
        for address in frames.iter().map(|f| f.code).filter(|c| *c != 0) {
            let slots = match wanted.iter().find(|w| w.0 == address) {
                Some((_, head, hash)) => (*head, *hash),
                None => {
                    let head = self.batch.want(address, head_bytes(python.known)).ok_or(Why::Moved)?;
                    let hash = codes.hash_of_name(address, layout);
                    (head, hash.and_then(|at| self.batch.want(at, 8)))
                }
            };
            wanted.push((address, slots.0, slots.1));
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        if !self.batch.read() {
            return Err(Why::Moved);
        }
        let mut ids = Vec::with_capacity(wanted.len());
        for (address, head, hash) in wanted {
            let hash = hash.map(|slot| u64_at(self.batch.bytes(slot), 0));
            let head = self.batch.bytes(head);
            ids.push(codes.id(address, head, hash, python.known, layout).ok_or(Why::Moved)?);
        }
        Ok(ids)
    }
}

/// Bytes of a frame that are read.
fn frame_bytes(known: &Interpreter) -> usize {
    let l = &known.layout;
    l.previous.max(l.code).max(l.instruction).max(l.owner.unwrap_or(0)) + 8
}

fn decode(python: &Python, address: u64, bytes: &[u8]) -> Frame {
    let layout = &python.known.layout;
    let owner = layout.owner.and_then(|at| bytes.get(at)).copied().unwrap_or(0);
    let instruction = u64_at(bytes, layout.instruction);
    let is_int = layout.instruction_is != Instruction::Pointer;
    Frame {
        address,
        back: u64_at(bytes, layout.previous),
        code: if owner >= OWNED_BY_C { 0 } else { u64_at(bytes, layout.code) },
        instruction: if is_int { instruction & 0xffff_ffff } else { instruction },
        owner,
    }
}
