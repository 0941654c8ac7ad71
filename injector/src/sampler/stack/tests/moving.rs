// SPDX-License-Identifier: Apache-2.0
//! A program that goes on while its stack is read, at a place that the test chooses, and that comes
//! round again for the next reading: memory that is another one during some places of each batch.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::Range;

use super::super::*;
use crate::sampler::frame::OWNED_BY_C;
use crate::sources::python::interpreter::Interpreter;
use crate::sources::python::layout::frames;
use crate::sources::python::layout::threads::Layout;

const STATE: u64 = 0x10_0000;
const C_FRAME: u64 = 0x11_0000;
const THREAD: u64 = 0x5555;
const CODE_TYPE: u64 = 0x6000;

/// Bytes by address; what nobody wrote is zero.
type Bytes = HashMap<u64, u8>;

fn put(bytes: &mut Bytes, address: u64, value: &[u8]) {
    bytes.extend(value.iter().enumerate().map(|(n, b)| (address + n as u64, *b)));
}

/// A loop that calls one function, and then another one.
#[derive(Default)]
struct Program {
    first: Bytes,
    then: Bytes,
    /// The places of each batch at which it is in the first,
    in_first: Range<usize>,
    /// for so many batches more.
    turns: usize,
    is_slow: bool,
}

impl Memory for Program {
    fn copy(&mut self, places: &[libc::iovec], out: &mut [u8]) -> bool {
        // what is read alone is looked for later than what leads to it
        let is_late = places.len() == 1 && self.in_first.end <= 8 || self.turns == 0;
        let mut to = out.iter_mut();
        for (n, place) in places.iter().enumerate() {
            let now = if self.in_first.contains(&n) && !is_late { &self.first } else { &self.then };
            for (at, byte) in (place.iov_base as u64..).take(place.iov_len).zip(&mut to) {
                *byte = now.get(&at).copied().unwrap_or(0);
            }
        }
        self.turns -= usize::from(places.len() > 1 && self.turns > 0);
        true
    }

    fn is_quick(&self) -> bool {
        !self.is_slow
    }

    fn process(&self) -> u32 {
        0
    }
}

/// One of the program's functions: its frame, and its code object behind that.
#[derive(Clone, Copy)]
struct Function(u64);

impl Function {
    fn code(self) -> u64 {
        self.0 + 0x800
    }
}

const LEAF: Function = Function(0x21_0000);
const NEXT: Function = Function(0x22_0000);
const CALLER: Function = Function(0x23_0000);
const MAIN: Function = Function(0x20_0000);
/// The interpreter's own entry frame (3.12 and newer).
const ENTRY: u64 = 0x1f_0000;

extern "C" fn null() -> *mut std::ffi::c_void {
    std::ptr::null_mut()
}

extern "C" fn zero() -> c_int {
    0
}

fn python(version: (u32, u32)) -> Python {
    let layout = frames::Layout::of(version.0, version.1, 0, 0).expect("a version with constants");
    let interpreter = Interpreter {
        layout,
        this_thread: null,
        finalizing: zero,
        code_type: CODE_TYPE as usize,
        str_type: 0,
        bytes_type: 0,
        api: None,
    };
    Python::of(version, interpreter, Layout::of(version, 0).expect("known"))
}

/// How a frame stands.
#[derive(Clone, Copy)]
enum Stands {
    Runs(u64),
    /// It has returned: its memory is kept for the next call, and still says where it was.
    Left(u64),
}

/// Lays a frame down as this version does.
fn lay(bytes: &mut Bytes, python: &Python, f: Function, back: u64, stands: Stands) {
    let layout = &python.known.layout;
    put(bytes, f.0 + layout.previous as u64, &back.to_le_bytes());
    put(bytes, f.0 + layout.code as u64, &f.code().to_le_bytes());
    put(bytes, f.code() + 8, &CODE_TYPE.to_le_bytes());
    let (runs, at) = match stands {
        Stands::Runs(at) => (true, at),
        Stands::Left(at) => (false, at),
    };
    put(bytes, f.0 + layout.instruction as u64, &at.to_le_bytes()[..4]);
    if layout.owner.is_none() {
        put(bytes, f.0, &[u8::from(runs)]); // references
    }
    match python.version {
        (3, 8 | 9) => put(bytes, f.0 + 116, &[u8::from(runs)]), // f_executing
        (3, 10) => put(bytes, f.0 + 108, &[u8::from(!runs)]),   // f_state: executing 0, returned 1
        _ => {}
    }
}

/// Memory while `main` calls `caller`, and that calls `inner` from `at`; `left` was called before.
fn calling(python: &Python, inner: Function, at: u64, left: Function) -> Bytes {
    let mut bytes = Bytes::new();
    let layout = &python.known.layout;
    let outermost = if python.version >= (3, 12) { ENTRY } else { 0 };
    lay(&mut bytes, python, MAIN, outermost, Stands::Runs(14));
    lay(&mut bytes, python, CALLER, MAIN.0, Stands::Runs(at));
    lay(&mut bytes, python, inner, CALLER.0, Stands::Runs(6));
    lay(&mut bytes, python, left, CALLER.0, Stands::Left(56));
    if let Some(owner) = layout.owner {
        put(&mut bytes, ENTRY + owner as u64, &[OWNED_BY_C]);
    }
    put(&mut bytes, STATE + python.layout.thread as u64, &THREAD.to_le_bytes());
    put(&mut bytes, STATE + python.layout.interpreter as u64, &python.interpreter.to_le_bytes());
    let top = match layout.through {
        Some(at) => {
            put(&mut bytes, C_FRAME + at as u64, &inner.0.to_le_bytes());
            C_FRAME
        }
        None => inner.0,
    };
    put(&mut bytes, STATE + layout.thread_frame as u64, &top.to_le_bytes());
    bytes
}

/// Code objects and instructions, of the innermost frame the code object only.
fn shown(frames: &[(u64, u64)]) -> Vec<(u64, u64)> {
    frames.iter().enumerate().map(|(n, f)| (f.0, if n == 0 { 0 } else { f.1 })).collect()
}

/// Whether it is seen quickly, and for how many batches it goes round as it does.
const QUICK: (bool, usize) = (true, usize::MAX);

/// Samples of the loop, two in a row, the second read where the first one's frames lay: how many
/// whole, outer and wrong stacks there were.
fn sampled(python: &Python, in_first: Range<usize>, (is_quick, turns): (bool, usize)) -> [u32; 3] {
    let stack = |inner: Function, at| vec![(inner.code(), 6), (CALLER.code(), at), (MAIN.code(), 14)];
    let truth = [stack(LEAF, 52), stack(NEXT, 66)];
    let mut codes = Codes::default();
    for f in [LEAF, NEXT, CALLER, MAIN] {
        codes.know(f.code(), "function");
    }
    let (first, then) = (calling(python, LEAF, 52, NEXT), calling(python, NEXT, 66, LEAF));
    let mut reader = Reader::<Program>::default();
    reader.batch.memory = Program { first, then, in_first, turns, is_slow: !is_quick };
    let thread = PyThread { tid: 1, state: STATE, thread: THREAD };
    let (mut guess, mut seen) = (Guess::default(), [0; 3]);
    for _ in 0..2 {
        let Ok(read) = reader.stack(python, &thread, &mut guess, &mut codes) else { continue };
        let found: Vec<(u64, u64)> = read.frames.iter().map(|(_, f)| (f.code, f.instruction)).collect();
        let is_true = |t: &Vec<(u64, u64)>| match read.is_outer {
            true => t.ends_with(&found),
            false => shown(t) == shown(&found),
        };
        seen[if !truth.iter().any(is_true) { 2 } else { usize::from(read.is_outer) }] += 1;
    }
    seen
}

fn sum(all: impl Iterator<Item = [u32; 3]>) -> [u32; 3] {
    all.fold([0; 3], |s, n| [s[0] + n[0], s[1] + n[1], s[2] + n[2]])
}

#[test]
fn a_program_that_goes_on_while_it_is_read_is_seen_where_it_was_or_not_at_all() {
    for version in [(3, 8), (3, 9), (3, 10), (3, 11), (3, 12)] {
        let python = python(version);
        let [whole, outer, wrong] = sum((0..32).map(|goes_on_at| sampled(&python, 0..goes_on_at, QUICK)));
        assert!(
            whole > 10 && outer > 0 && wrong == 0,
            "{version:?}: {whole} whole, {outer} outer, {wrong} wrong"
        );
    }
}

#[test]
fn a_program_that_stands_still_a_moment_later_is_seen_whole() {
    for version in [(3, 8), (3, 9), (3, 10), (3, 11), (3, 12)] {
        let python = python(version);
        let mut caught = 0;
        for goes_on_at in 0..32 {
            let moving = sampled(&python, 0..goes_on_at, QUICK);
            // of the same, once it has gone round for two tries and a half, or for all of them
            let still = sampled(&python, 0..goes_on_at, (true, 10));
            assert_eq!(still[2], 0, "{version:?}, {goes_on_at}: wrong");
            assert!(still[0] >= moving[0], "{version:?}, {goes_on_at}: {still:?}, {moving:?}");
            caught += still[0] - moving[0];
            // slow reading looks no longer than it did
            assert_eq!(
                sampled(&python, 0..goes_on_at, (false, usize::MAX))[2],
                0,
                "{version:?}, {goes_on_at}"
            );
        }
        assert!(caught > 4, "{version:?}: {caught} more");
    }
}

#[test]
fn a_frame_that_was_left_by_the_time_it_was_read_is_none() {
    // only the thread state, or one frame, is read while it is called: 3.8 to 3.10 say so
    for version in [(3, 8), (3, 9), (3, 10)] {
        let python = python(version);
        let [_, outer, wrong] = sum((0..12).map(|place| sampled(&python, place..place + 1, QUICK)));
        assert!(outer > 0 && wrong == 0, "{version:?}: {outer} outer, {wrong} wrong");
    }
}

#[test]
fn where_reading_is_slow_a_stack_has_to_come_up_twice() {
    // a call that begins and ends between two places, in both readings: from 3.11 on nothing in the
    // frame tells
    for version in [(3, 11), (3, 12)] {
        let python = python(version);
        let seen = |how| sum((0..12).map(|place| sampled(&python, place..place + 1, how)));
        let by_chance = 6; // batches: until its frames are known where they lie, and a stack; not those of a second one
        assert!(seen((true, by_chance))[2] > 0, "{version:?}: quick reading is not told either");
        let [whole, _, wrong] = seen((false, by_chance));
        assert!(whole > 0 && wrong == 0, "{version:?}: {whole} whole, {wrong} wrong");
    }
}

#[test]
fn a_frame_of_3_8_to_3_10_says_whether_it_runs() {
    // references, instruction, f_executing or f_state
    let runs = |version, references: u8, instruction: i32, state: i8| {
        let python = python(version);
        let mut bytes = vec![0; frame_bytes(&python)];
        bytes[0] = references;
        let at = python.known.layout.instruction;
        bytes[at..at + 4].copy_from_slice(&instruction.to_le_bytes());
        bytes[if version == (3, 10) { 108 } else { 116 }] = state as u8;
        decode(&python, LEAF.0, &bytes).is_running
    };
    for version in [(3, 8), (3, 9)] {
        assert!(runs(version, 1, 8, 1) && !runs(version, 0, 8, 0) && !runs(version, 2, 8, 0), "{version:?}");
        assert!(runs(version, 1, -1, 0) && !runs(version, 0, -1, 0), "{version:?}: it has not begun");
    }
    let is_running = |state| runs((3, 10), 1, 8, state);
    assert!(is_running(0) && is_running(2), "executing, unwinding");
    assert!([-1, 1, 3, 4].into_iter().all(|left| !is_running(left)), "suspended, returned, raised, cleared");
    assert!(runs((3, 10), 1, -1, -2) && !runs((3, 10), 0, -1, -2), "created");
}
