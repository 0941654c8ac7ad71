// SPDX-License-Identifier: Apache-2.0
// WARM
//! The Python frames of another thread, which goes on running meanwhile. Nothing in them counts
//! calls, so that agreement of readings alone proves nothing: a loop comes round, and a frame that
//! was left lies there as it was (see `frame`). What is believed was found four times:
//!
//! - One call to the kernel reads every frame, then the thread state, then every frame again in the
//!   opposite order, some 20 ns apart ([`Reader::prepare`]). A frame counts if it runs, as far as
//!   it says, and is the same before and after.
//! - A stack counts if two such readings have the same chain, code objects and call sites (of the
//!   innermost frame, whose instruction moves all the time, the code object). What does not lie
//!   where the last stack lay is found frame by frame, and then all of it is read as above.
//! - Everything that a frame points to as its code must be a code object: they are read in between.
//!
//! Where inner frames moved it is all done again; of a stack that moves again and again the outer
//! frames are kept that four readings agree on, call sites and all, and the function inside them if
//! it is the same in all four; else there is none. Where reading is quick, a whole stack with these
//! frames in it is looked for some times more (100 µs at most): a thread that calls and returns all
//! the time stands still in each launch for 5 µs and more (H100, blocks of a compiled model: of 57
//! samples with a stack 9 were whole without, of the same program run longer 32 without and 47 and
//! 59 with).
//!
//! It is no proof: nothing keeps both readings from being caught by calls that begin and end within
//! 20 ns a frame (a call and its return take 18 ns from 3.11 on, 34 ns before), at the same place,
//! or from being interrupted there. Where that happens is not seen, and cannot be counted (2 wrong
//! of some million, of a program that does nothing else, beside other work on two cores:
//! `stacks.rs`). Where the kernel reads place by place only (see `remote`) all of this takes 17
//! times as long, and 7 of 278,952 samples were wrong: there a stack has to come up twice, or there
//! is none.
//!
//! Few calls to the kernel: where the frames of the last sample lay is read again in one, and most
//! of them are still there. A thread whose CPU clock stands still is not read at all: its stack is
//! the one before.

use trace::define::MAX_FRAMES;

use super::code::{head_bytes, Codes, Head};
use super::frame::{decode, frame_bytes, Frame};
use super::python::{PyThread, Python};
use super::remote::{self, Batch, Memory, Own, Slot};
use crate::platform::memory::{is_address, u64_at};
use crate::sources::python::walk::RawFrame;

/// Frames of Python followed at most: of these [`MAX_FRAMES`] are kept, the innermost, where some
/// are not shown (see [`Codes::is_incomplete`]). So a stack that was cut has as many as that, and
/// is known by it.
const DEEPEST: usize = MAX_FRAMES + 4;
/// Frames followed at most, those of C code included.
const MOST_FRAMES: usize = 4 * MAX_FRAMES;

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

/// Whole ones are looked for so often again, some 8 µs each.
const MORE_TRIES: u32 = 12;

/// Where the frames of a thread's last stack lay.
#[derive(Default)]
pub(super) struct Guess {
    c_frame: u64,
    frames: Vec<u64>,
}

/// A frame that was asked for twice: before the thread state was read, and after.
#[derive(Clone, Copy)]
struct Asked {
    address: u64,
    before: Slot,
    after: Slot,
}

/// What else was asked for, in the middle.
struct Middle {
    state: Slot,
    /// Where the C frame was last, which leads to the innermost frame (3.11, 3.12); and whether it
    /// is still that one.
    c_frame: Option<(Slot, Slot)>,
}

/// A frame as it was read twice, before the thread state and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    frame: Frame,
    /// Its code object (of [`Codes`]); `None`: C code, or not known.
    id: Option<u32>,
    /// It was at another instruction the second time, in the same function.
    went_on: bool,
}

/// One reading of a chain of frames.
struct Reading {
    /// Innermost first.
    frames: Vec<Seen>,
    /// The frames from this one on ran, and were the same (but for the instruction) before the
    /// thread state was read and after.
    there_from: usize,
    /// Some were not where the guess had them, and were read later, one after the other.
    is_late: bool,
}

impl Reading {
    /// Did nothing change while it was read? (The innermost frame's instruction does all the time.)
    fn is_steady(&self) -> bool {
        self.there_from == 0 && self.frames.iter().skip(1).all(|f| !f.went_on)
    }
}

/// Reads stacks; keeps its buffers.
#[derive(Default)]
pub(super) struct Reader<M: Memory = Own> {
    batch: Batch<M>,
    asked: Vec<Asked>,
}

/// Where a code object's head was read to, and its name's hash where that is needed.
type HeadSlots = (Slot, Option<Slot>);

/// Frames that readings agree on, innermost first.
struct Agreed {
    frames: Vec<Seen>,
    is_outer: bool,
}

/// The outermost frames of `a` that `b` has, too, one calling the other. The innermost of them may
/// have gone on: it is the same function, and what it calls is another call. None of a chain that
/// was cut: it has no outer end.
fn common(a: &[Seen], b: &[Seen]) -> Vec<Seen> {
    let is_cut = |last: Option<&Seen>| last.is_none_or(|f| f.frame.back != 0);
    if is_cut(a.last()) || is_cut(b.last()) {
        return Vec::new();
    }
    let is_same_code = |a: &Seen, b: &Seen| a.id.zip(b.id).is_none_or(|(a, b)| a == b);
    let stayed = |a: &Seen, b: &Seen| a.frame == b.frame && !a.went_on && !b.went_on && is_same_code(a, b);
    let mut pairs = a.iter().rev().zip(b.iter().rev()).peekable();
    let mut found = Vec::new();
    while let Some((a, _)) = pairs.next_if(|(a, b)| stayed(a, b)) {
        found.push(*a);
    }
    let inside = pairs.next().filter(|(a, b)| is_same(&a.frame, &b.frame, true) && is_same_code(a, b));
    found.extend(inside.map(|(a, _)| Seen { went_on: true, ..*a }));
    found.reverse();
    found
}

/// Is it the same frame at the same call? The innermost's instruction moves all the time.
fn is_same(a: &Frame, b: &Frame, is_innermost: bool) -> bool {
    let instruction = if is_innermost { b.instruction } else { a.instruction };
    Frame { instruction, ..*a } == *b
}

/// Is it the same chain, as far as it does not move all the time?
fn are_same(a: &[Seen], b: &[Seen]) -> bool {
    a.len() == b.len() && a.iter().zip(b).enumerate().all(|(n, (a, b))| is_same(&a.frame, &b.frame, n == 0))
}

/// The stack of frames that were agreed on.
fn finish(frames: Vec<Seen>, is_outer: bool, codes: &Codes) -> Result<Stack, Why> {
    let known = frames.into_iter().filter_map(|Seen { frame: f, id, .. }| {
        let raw = RawFrame { code: f.code, instruction: f.instruction, owner: f.owner, module: 0 };
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
    /// Of this memory.
    pub(super) fn of(memory: M) -> Reader<M> {
        Reader { batch: Batch::of(memory), asked: Vec::new() }
    }

    /// `length` bytes at `address`.
    pub(super) fn read_one(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        self.batch.read_one(address, length)
    }

    /// The stack of `thread`, which may run meanwhile.
    pub(super) fn stack(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Result<Stack, Why> {
        let mut outer: Option<Vec<Seen>> = None;
        let mut whole: Option<Vec<Seen>> = None;
        let mut tries = 0;
        for _ in 0..MOST_TRIES {
            match self.twice(python, thread, guess, codes) {
                Ok(Agreed { frames, is_outer: false }) => {
                    let is_again = whole.as_ref().is_some_and(|w| are_same(w, &frames));
                    if is_again || self.batch.is_quick() {
                        return finish(frames, false, codes);
                    }
                    whole = Some(frames);
                }
                // a frame that was taken away meanwhile leads nowhere
                Ok(Agreed { frames, .. }) if frames.is_empty() => {}
                Ok(Agreed { frames, .. }) => {
                    tries += 1;
                    outer = Some(outer.map_or(frames.clone(), |o| common(&o, &frames)));
                }
                Err(Why::Moved) => {}
                Err(why) => return Err(why),
            }
            if tries >= LEAST_TRIES {
                break;
            }
        }
        let outer = outer.filter(|_| tries >= LEAST_TRIES);
        if let Some(frames) = self.whole_inside(outer.as_deref(), python, thread, guess, codes) {
            return finish(frames, false, codes);
        }
        outer.map_or(Err(Why::Moved), |frames| finish(frames, true, codes))
    }

    /// A whole stack with these frames in it, where it is quickly looked for: what they call, a
    /// moment later.
    fn whole_inside(
        &mut self,
        outer: Option<&[Seen]>,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Option<Vec<Seen>> {
        let tries = if self.batch.is_quick() { MORE_TRIES } else { 0 };
        let mut whole = (0..tries).filter_map(|_| {
            let read = self.twice(python, thread, guess, codes);
            read.ok().filter(|agreed| !agreed.is_outer).map(|agreed| agreed.frames)
        });
        // the first one: where it has left these frames, they are all that is known
        whole.next().filter(|whole| outer.is_none_or(|outer| common(whole, outer).len() == outer.len()))
    }

    /// Two readings of the chain, with its code objects in between, and the frames that are the
    /// same in both.
    fn twice(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        codes: &mut Codes,
    ) -> Result<Agreed, Why> {
        let mut first = self.chain(python, thread, guess)?;
        if first.is_late {
            // now it is known where they lie
            first = self.chain(python, thread, guess)?;
        }
        let ids = self.code(python, &first.frames, codes)?;
        let mut second = self.chain(python, thread, guess)?;
        let is_whole = first.is_steady() && second.is_steady() && are_same(&first.frames, &second.frames);
        for (f, id) in first.frames.iter_mut().zip(ids) {
            f.id = id;
        }
        let is_unknown = |f: &Seen| f.frame.code != 0 && f.id.is_none();
        if is_whole && !first.frames.iter().any(is_unknown) {
            return Ok(Agreed { frames: first.frames, is_outer: false });
        }
        first.frames.drain(..first.there_from);
        second.frames.drain(..second.there_from);
        let mut frames = common(&first.frames, &second.frames);
        // what the innermost of no code object was called by may be anything
        let unknown = frames.iter().rposition(is_unknown);
        frames.drain(..unknown.map_or(0, |n| n + 1));
        Ok(Agreed { frames, is_outer: true })
    }

    /// The chain of frames as it is now; `guess` is where it was, then where it is.
    fn chain(&mut self, python: &Python, thread: &PyThread, guess: &mut Guess) -> Result<Reading, Why> {
        let mut middle = self.prepare(python, thread, guess);
        if !self.batch.read() {
            // something of the last stack is not mapped any more
            *guess = Guess::default();
            middle = self.prepare(python, thread, guess);
            if !self.batch.read() {
                return Err(Why::Gone);
            }
        }
        let mut reading = Reading { frames: Vec::new(), there_from: 0, is_late: false };
        let mut at = self.innermost(python, thread, guess, &middle.ok_or(Why::Gone)?, &mut reading)?;
        let mut functions = 0;
        while at != 0 && functions < DEEPEST {
            if reading.frames.len() >= MOST_FRAMES || !is_address(at) {
                return Err(Why::Moved);
            }
            let frame = self.frame(python, at, &mut reading).ok_or(Why::Moved)?;
            functions += usize::from(frame.code != 0);
            at = frame.back;
        }
        if at == 0 && reading.frames.last().is_some_and(|f| !f.frame.is_root) {
            return Err(Why::Moved);
        }
        guess.frames.clear();
        guess.frames.extend(reading.frames.iter().map(|f| f.frame.address));
        Ok(reading)
    }

    /// Where the innermost frame lies, 0 where there is none.
    fn innermost(
        &mut self,
        python: &Python,
        thread: &PyThread,
        guess: &mut Guess,
        middle: &Middle,
        reading: &mut Reading,
    ) -> Result<u64, Why> {
        let layout = &python.layout;
        let bytes = self.batch.bytes(middle.state);
        if u64_at(bytes, layout.thread) != thread.thread
            || u64_at(bytes, layout.interpreter) != python.interpreter
        {
            return Err(Why::Gone);
        }
        let top = u64_at(bytes, python.known.layout.thread_frame);
        let Some(inner) = python.known.layout.through else { return Ok(top) };
        if let Some((slot, still)) = middle.c_frame.filter(|_| top == guess.c_frame) {
            let is_still = u64_at(self.batch.bytes(still), 0) == top;
            return is_still.then(|| u64_at(self.batch.bytes(slot), 0)).ok_or(Why::Moved);
        }
        guess.c_frame = top;
        reading.is_late = true;
        let word = self.batch.read_one(top.wrapping_add(inner as u64), 8).ok_or(Why::Moved)?;
        Ok(u64_at(&word, 0))
    }

    /// Asks for the frames where they were, the outermost first, then for what says which is the
    /// innermost, then for the frames again, the innermost first. A frame that is the same both
    /// times, and was another one in the middle, has gone on and come back, with all that it
    /// called, within the time of as many places (20 ns each) as lie between: the further out, the
    /// more calls have to be made in it.
    fn prepare(&mut self, python: &Python, thread: &PyThread, guess: &Guess) -> Option<Middle> {
        let size = frame_bytes(python);
        self.batch.clear();
        self.asked.clear();
        for &address in guess.frames.iter().rev() {
            let before = self.batch.want(address, size)?;
            self.asked.push(Asked { address, before, after: before });
        }
        let state = self.batch.want(thread.state, python.layout.thread_bytes())?;
        let c_frame = match python.known.layout.through {
            Some(inner) if guess.c_frame != 0 => {
                let slot = self.batch.want(guess.c_frame + inner as u64, 8)?;
                let pointer = thread.state + python.known.layout.thread_frame as u64;
                Some((slot, self.batch.want(pointer, 8)?))
            }
            _ => None,
        };
        for asked in self.asked.iter_mut().rev() {
            asked.after = self.batch.want(asked.address, size)?;
        }
        Some(Middle { state, c_frame })
    }

    /// The frame at `at`, the next one of this reading: from what was read, else read now.
    fn frame(&mut self, python: &Python, at: u64, reading: &mut Reading) -> Option<Frame> {
        let (frame, went_on) = match self.asked.iter().rev().find(|a| a.address == at) {
            Some(asked) => {
                let [before, after] =
                    [asked.before, asked.after].map(|slot| decode(python, at, self.batch.bytes(slot)));
                if !after.is_running || !is_same(&before, &after, true) {
                    reading.there_from = reading.frames.len() + 1;
                }
                (after, before.instruction != after.instruction)
            }
            None => {
                reading.is_late = true;
                reading.there_from = reading.frames.len() + 1;
                (decode(python, at, &self.batch.read_one(at, frame_bytes(python))?), true)
            }
        };
        reading.frames.push(Seen { frame, id: None, went_on });
        Some(frame)
    }

    /// The code object of each frame; `None` for one of C code, or where there is no code object.
    fn code(&mut self, python: &Python, frames: &[Seen], codes: &mut Codes) -> Result<Vec<Option<u32>>, Why> {
        let (layout, process) = (&python.layout, self.batch.memory.process());
        self.batch.clear();
        let mut wanted: Vec<(u64, Option<HeadSlots>)> = Vec::with_capacity(frames.len());
        for address in frames.iter().map(|f| f.frame.code) {
            let slots = match wanted.iter().find(|w| w.0 == address) {
                _ if address == 0 => None,
                Some((_, slots)) => *slots,
                None => {
                    let head = self.batch.want(address, head_bytes(&python.known));
                    head.map(|head| {
                        let hash = codes.hash_of_name((process, address), layout);
                        (head, hash.and_then(|at| self.batch.want(at, 8)))
                    })
                }
            };
            wanted.push((address, slots));
        }
        if wanted.iter().any(|w| w.1.is_some()) && !self.batch.read() {
            return Err(Why::Moved);
        }
        let (bytes, memory) = self.batch.parts();
        let id = |(address, slots): (u64, Option<HeadSlots>)| {
            let (head, hash) = slots?;
            let hash = hash.map(|slot| u64_at(slot.of(bytes), 0));
            let head = Head { place: (process, address), bytes: head.of(bytes), hash };
            codes.id(&head, python, &mut |from, out| remote::read_to(memory, from, out))
        };
        Ok(wanted.into_iter().map(id).collect())
    }
}

#[cfg(test)]
mod tests;
