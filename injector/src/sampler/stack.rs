// SPDX-License-Identifier: Apache-2.0
// WARM
//! The Python frames of another thread, which goes on running meanwhile. They are read twice: a stack counts only if
//! thread state, chain of frames, code objects and call sites are the same both times (of the innermost frame, whose
//! instruction moves all the time in a running function, the code object). Everything that a frame points to as its
//! code must be a code object. Where inner frames moved it is all done again; of a stack that moves again and again the
//! outer frames are kept that four readings agree on, call sites and all. Agreement is no proof: about one stack in 30,000 had inner frames that were left by the time the outer ones
//! were read, in both readings (`tests/scenarios/tests/stacks.rs`; why is not understood).
//!
//! Few calls to the kernel: where the frames of the last sample lay is read again in one, and most of them are still
//! there. A thread whose CPU clock stands still is not read at all: its stack is the one before.

use trace::define::MAX_FRAMES;

use super::code::{head_bytes, Codes};
use super::python::{PyThread, Python};
use super::remote::{is_address, u64_at, Batch, Memory, Own, Slot};
use crate::python::interpreter::Interpreter;
use crate::python::versions::Instruction;
use crate::python::walk::RawFrame;

/// Frames of Python followed at most: of these [`MAX_FRAMES`] are kept, the innermost, where some are not shown (see
/// [`Codes::is_incomplete`]). So a stack that was cut has as many as that, and is known by it.
const DEEPEST: usize = MAX_FRAMES + 4;
/// Frames followed at most, those of C code included.
const MOST_FRAMES: usize = 4 * MAX_FRAMES;
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
    /// It may stand outermost: see [`is_root`].
    is_root: bool,
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

/// Frames with their code objects (of [`Codes`]), innermost first.
pub(super) type Frames = Vec<(u32, RawFrame)>;

/// A stack.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Stack {
    /// Innermost first.
    pub(super) frames: Frames,
    /// Inner frames are left out: they moved.
    pub(super) is_outer: bool,
}

/// Outer frames count where so many tries, of two readings each, agree on them,
const LEAST_TRIES: u32 = 2;
/// of so many at most: some come upon a frame that is being taken away.
const MOST_TRIES: u32 = 4;

/// Owner of the frame of a function that runs.
const OWNED_BY_THREAD: u8 = 0;
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
pub(super) struct Reader<M: Memory = Own> {
    batch: Batch<M>,
    pieces: Vec<Piece>,
}

/// Where a code object's head was read to, and its name's hash where that is needed.
type Head = (Slot, Option<Slot>);

/// Frames that readings agree on, innermost first.
struct Agreed {
    frames: Vec<(Frame, Option<u32>)>,
    is_outer: bool,
}

/// A frame, in a list of them.
trait Framed: Clone {
    fn frame(&self) -> &Frame;
}

impl Framed for Frame {
    fn frame(&self) -> &Frame {
        self
    }
}

impl Framed for (Frame, Option<u32>) {
    fn frame(&self) -> &Frame {
        &self.0
    }
}

/// The outermost frames of `a` that `b` has, too, one calling the other. None of a chain that was cut: it has no outer end.
fn common<A: Framed, B: Framed>(a: &[A], b: &[B], is_same: impl Fn(&A, &B) -> bool) -> Vec<A> {
    let is_cut = |last: Option<&Frame>| last.is_none_or(|f| f.back != 0);
    if is_cut(a.last().map(Framed::frame)) || is_cut(b.last().map(Framed::frame)) {
        return Vec::new();
    }
    let n = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| is_same(a, b)).count();
    a.get(a.len() - n..).unwrap_or(&[]).to_vec()
}

/// The stack of frames that were agreed on.
fn finish(frames: Vec<(Frame, Option<u32>)>, is_outer: bool, codes: &Codes) -> Result<Stack, Why> {
    let known = frames.into_iter().filter_map(|(f, id)| {
        let raw = RawFrame { code: f.code, instruction: f.instruction, owner: f.owner };
        id.map(|id| (id, raw))
    });
    let shown = known.filter(|(id, frame)| !codes.is_incomplete(*id, frame));
    let frames: Frames = shown.take(MAX_FRAMES).collect();
    match (frames.is_empty(), is_outer) {
        (true, true) => Err(Why::Moved),
        (true, false) => Err(Why::Empty),
        (false, _) => Ok(Stack { frames, is_outer }),
    }
}

impl<M: Memory> Reader<M> {
    /// The stack of `thread`, which may run meanwhile.
    pub(super) fn stack(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Result<Stack, Why> {
        let mut outer: Option<Vec<(Frame, Option<u32>)>> = None;
        let mut tries = 0;
        for _ in 0..MOST_TRIES {
            match self.twice(python, thread, guess, codes) {
                Ok(Agreed { frames, is_outer: false }) => return finish(frames, false, codes),
                // a frame that was taken away meanwhile leads nowhere
                Ok(Agreed { frames, .. }) if frames.is_empty() => {}
                Ok(Agreed { frames, .. }) => {
                    tries += 1;
                    outer = Some(outer.map_or(frames.clone(), |o| common(&o, &frames, |a, b| a == b)));
                }
                Err(Why::Moved) => {}
                Err(why) => return Err(why),
            }
            if tries >= LEAST_TRIES {
                break;
            }
        }
        match outer.filter(|_| tries >= LEAST_TRIES) {
            Some(frames) => finish(frames, true, codes),
            None => Err(Why::Moved),
        }
    }

    /// Two readings of the chain, with its code objects in between, and the frames that are the same in both.
    fn twice(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Result<Agreed, Why> {
        let first = self.chain(python, thread, guess)?;
        let ids = self.code(python, &first, codes)?;
        let second = self.chain(python, thread, guess)?;
        let same = |(n, (a, b)): (usize, (&Frame, &Frame))| {
            (a.address, a.back, a.code) == (b.address, b.back, b.code)
                && (n == 0 || a.instruction == b.instruction)
        };
        let is_whole = first.len() == second.len() && first.iter().zip(&second).enumerate().all(same);
        let frames: Vec<(Frame, Option<u32>)> = first.into_iter().zip(ids).collect();
        if is_whole && frames.iter().all(|(f, id)| f.code == 0 || id.is_some()) {
            return Ok(Agreed { frames, is_outer: false });
        }
        let mut frames = common(&frames, &second, |a, b| a.0 == *b);
        // what the innermost of no code object was called by may be anything
        let unknown = frames.iter().rposition(|(f, id)| f.code != 0 && id.is_none());
        frames.drain(..unknown.map_or(0, |n| n + 1));
        Ok(Agreed { frames, is_outer: true })
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
                    self.word(top.wrapping_add(inner as u64)).ok_or(Why::Moved)?
                }
            },
        };
        let mut frames: Vec<Frame> = Vec::with_capacity(guess.frames.len() + 4);
        let mut functions = 0;
        while at != 0 && functions < DEEPEST {
            if frames.len() >= MOST_FRAMES {
                return Err(Why::Moved);
            }
            if !is_address(at) {
                return Err(Why::Moved);
            }
            let frame = self.frame(python, at).ok_or(Why::Moved)?;
            frames.push(frame);
            functions += usize::from(frame.code != 0);
            at = frame.back;
        }
        if at == 0 && frames.last().is_some_and(|f| !f.is_root) {
            return Err(Why::Moved);
        }
        guess.frames.clear();
        guess.frames.extend(frames.iter().map(|f| f.address));
        Ok(frames)
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        self.batch.read_one(address, 8).map(|b| u64_at(&b, 0))
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
    fn frame(&mut self, python: &Python, at: u64) -> Option<Frame> {
        let size = frame_bytes(python.known) as u64;
        let piece = self.pieces.iter().find(|p| p.from <= at && at + size <= p.to);
        match piece {
            Some(piece) => {
                let bytes = self.batch.bytes(piece.slot).get((at - piece.from) as usize..)?;
                Some(decode(python, at, bytes))
            }
            None => Some(decode(python, at, &self.batch.read_one(at, size as usize)?)),
        }
    }

    /// The code object of each frame; `None` for one of C code, or where there is no code object.
    fn code(
        &mut self,
        python: &Python,
        frames: &[Frame],
        codes: &mut Codes,
    ) -> Result<Vec<Option<u32>>, Why> {
        let layout = &python.layout;
        self.batch.clear();
        let mut wanted: Vec<(u64, Option<Head>)> = Vec::with_capacity(frames.len());
        for address in frames.iter().map(|f| f.code) {
            let slots = match wanted.iter().find(|w| w.0 == address) {
                _ if address == 0 => None,
                Some((_, slots)) => *slots,
                None => {
                    let head = self.batch.want(address, head_bytes(python.known));
                    head.map(|head| {
                        let hash = codes.hash_of_name(address, layout);
                        (head, hash.and_then(|at| self.batch.want(at, 8)))
                    })
                }
            };
            wanted.push((address, slots));
        }
        if wanted.iter().any(|w| w.1.is_some()) && !self.batch.read() {
            return Err(Why::Moved);
        }
        let id = |(address, slots): (u64, Option<Head>)| {
            let (head, hash) = slots?;
            let hash = hash.map(|slot| u64_at(self.batch.bytes(slot), 0));
            codes.id(address, self.batch.bytes(head), hash, python.known, layout)
        };
        Ok(wanted.into_iter().map(id).collect())
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
        is_root: is_root(python, bytes, owner),
    }
}

/// May a frame without a caller stand outermost in a thread that runs it? One that was left meanwhile has no caller either:
/// a generator's that waits to be resumed, one that lives on in a traceback, one that is freed. (Found by stress: such a
/// stack came up twice in 8,697 samples of 3.11 at 1,000 a second, twice the same in a row.)
fn is_root(python: &Python, bytes: &[u8], owner: u8) -> bool {
    match python.known.layout.owner {
        // the interpreter's own entry frame is outermost from 3.12 on; the function's in 3.11
        Some(_) if python.version >= (3, 12) => owner >= OWNED_BY_C,
        Some(_) => owner == OWNED_BY_THREAD,
        // up to 3.10: references to it, and its generator, which stands in front of its instruction
        None => u64_at(bytes, 0) != 0 && u64_at(bytes, python.known.layout.instruction - 8) == 0,
    }
}

#[cfg(test)]
mod moving;
#[cfg(test)]
mod tests;
