// SPDX-License-Identifier: Apache-2.0
//! A program that goes on while its stack is read, at a place that the test chooses, and that comes round again for the
//! next reading: memory that is another one from the n-th place of each batch on.

use std::collections::HashMap;
use std::ffi::c_int;

use super::super::code::Codes;
use super::super::layout::{Layout, TYPE};
use super::super::python::{PyThread, Python};
use super::super::remote::Memory;
use super::*;
use crate::python::interpreter::Interpreter;
use crate::python::versions;

const STATE: u64 = 0x10_0000;
const C_FRAME: u64 = 0x11_0000;
const THREAD: u64 = 0x5555;
const CODE_TYPE: u64 = 0x6000;

/// Bytes by address; what nobody wrote is zero.
type Bytes = HashMap<u64, u8>;

fn put(bytes: &mut Bytes, address: u64, value: &[u8]) {
    bytes.extend(value.iter().enumerate().map(|(n, b)| (address + n as u64, *b)));
}

/// Memory before and after the program goes on, and when it does.
#[derive(Default)]
struct Program {
    before: Bytes,
    after: Bytes,
    /// It goes on once so many places of a batch were read.
    goes_on_at: usize,
}

impl Memory for Program {
    fn copy(&mut self, places: &[libc::iovec], out: &mut [u8]) -> bool {
        // what is read alone is looked for later than what leads to it
        let goes_on_at = if places.len() == 1 { usize::from(self.goes_on_at > 8) } else { self.goes_on_at };
        let mut to = out.iter_mut();
        for (n, place) in places.iter().enumerate() {
            let now = if n < goes_on_at { &self.before } else { &self.after };
            for (at, byte) in (place.iov_base as u64..).take(place.iov_len).zip(&mut to) {
                *byte = now.get(&at).copied().unwrap_or(0);
            }
        }
        true
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
    let layout = versions::Layout::of(version.0, version.1, 0, 0).expect("a version with constants");
    let interpreter = Interpreter {
        layout,
        this_thread: null,
        finalizing: zero,
        code_type: CODE_TYPE as usize,
        str_type: 0,
        bytes_type: 0,
        api: None,
    };
    Python::of(version, Box::leak(Box::new(interpreter)), Layout::of(version, 0).expect("known"))
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
    put(bytes, f.code() + TYPE as u64, &CODE_TYPE.to_le_bytes());
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

#[test]
#[should_panic = "goes on at 1: "]
fn a_program_that_goes_on_while_it_is_read_is_seen_where_it_was_or_not_at_all() {
    for version in [(3, 8), (3, 9), (3, 10), (3, 11), (3, 12)] {
        let python = python(version);
        let thread = PyThread { tid: 1, state: STATE, thread: THREAD };
        let (before, after) = (calling(&python, LEAF, 52, NEXT), calling(&python, NEXT, 66, LEAF));
        let stack = |inner: Function, at| vec![(inner.code(), 6), (CALLER.code(), at), (MAIN.code(), 14)];
        let truth = [stack(LEAF, 52), stack(NEXT, 66)];
        let (mut whole, mut outer) = (0, 0);
        for goes_on_at in 0..32 {
            let mut codes = Codes::default();
            for f in [LEAF, NEXT, CALLER, MAIN] {
                codes.know(f.code(), "function");
            }
            let mut reader = Reader::<Program>::default();
            reader.batch.memory = Program { before: before.clone(), after: after.clone(), goes_on_at };
            let mut guess = Guess::default();
            // the second sample is read where the first one's frames lay
            for _ in 0..2 {
                let Ok(read) = reader.stack(&python, &thread, &mut guess, &mut codes) else { continue };
                let found: Vec<(u64, u64)> =
                    read.frames.iter().map(|(_, f)| (f.code, f.instruction)).collect();
                let is_true = truth.iter().any(|t| {
                    if read.is_outer {
                        t.ends_with(&found)
                    } else {
                        shown(t) == shown(&found)
                    }
                });
                assert!(is_true, "{version:?}, goes on at {goes_on_at}: {found:?}, {}", read.is_outer);
                *(if read.is_outer { &mut outer } else { &mut whole }) += 1;
            }
        }
        assert!(whole > 10 && outer > 0, "{version:?}: {whole} whole, {outer} outer");
    }
}
