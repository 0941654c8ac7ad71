// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where CPython keeps its threads, its global lock and its collector, by minor version (default
//! builds): what another thread's stack takes beside `python::versions`. Up to 3.12 from the
//! headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; 3.13 to 3.15 say it themselves
//! (`_Py_DebugOffsets` at the start of `_PyRuntime`; which word says what, by the headers of
//! 3.13.0, 3.14.10, 3.15.2). Other versions: no stacks.

use super::remote::{read, u64_at};

/// What an offset counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    /// `_PyRuntime`.
    Runtime(usize),
    /// The interpreter state.
    Interpreter(usize),
    /// Where a pointer in the interpreter state points to.
    Pointer(usize),
    /// A free-threaded build has none.
    Nowhere,
}

/// Offsets of one version, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// Interpreter state: its newest thread state.
    pub(super) threads: usize,
    /// Thread state: the next one.
    pub(super) next: usize,
    /// ... its interpreter.
    pub(super) interpreter: usize,
    /// ... its pthread_t.
    pub(super) thread: usize,
    /// ... its kernel thread id (3.11 and newer).
    pub(super) native: Option<usize>,
    /// Frame: a byte, and what it is while the frame runs (up to 3.10, where a frame that was left
    /// stays as it was).
    pub(super) running: Option<(usize, &'static [u8])>,
    /// Code object: a number that no two share (3.12 and newer).
    pub(super) version: Option<usize>,
    /// The global lock.
    pub(super) gil: From,
    /// The garbage collector's state.
    pub(super) gc: From,
    /// In it: is it running.
    pub(super) collecting: usize,
    /// ... is it switched on.
    pub(super) enabled: usize,
    /// ... the pointer to the youngest generation (up to 3.13; later it is behind what changes from
    /// release to release).
    pub(super) generation0: Option<usize>,
}

/// The global lock's state: last holder, held or not, all of it; the same from 3.8 to 3.15.
pub(super) const GIL_HOLDER: usize = 8;
/// See [`GIL_HOLDER`].
pub(super) const GIL_LOCKED: usize = 16;
/// Conditions and mutexes of the lock lie within it from here to its end.
pub(super) const GIL_WAITED: std::ops::Range<u64> = 32..208;
/// The collector's youngest generation, where [`Layout::generation0`] points to: tells a wrong
/// offset.
pub(super) const GC_GENERATIONS: usize = 24;
/// In a string: its hash (where it is asked for: up to 3.11).
pub(super) const UNICODE_HASH: usize = 24;

const PY38: Layout = Layout {
    threads: 8,
    next: 8,
    interpreter: 16,
    thread: 176,
    native: None,
    // f_executing
    running: Some((116, &[1])),
    version: None,
    gil: From::Runtime(1152),
    gc: From::Runtime(344),
    collecting: 200,
    enabled: 12,
    generation0: Some(96),
};
const PY39: Layout = Layout { gil: From::Runtime(352), gc: From::Interpreter(616), ..PY38 };
/// f_state: executing, or unwinding to a handler (finalizers run then, too).
const PY310: Layout = Layout { running: Some((108, &[0, 2])), ..PY39 };
const PY311: Layout = Layout {
    threads: 16,
    thread: 152,
    native: Some(160),
    running: None,
    gil: From::Runtime(360),
    gc: From::Interpreter(648),
    ..PY39
};
const PY312: Layout = Layout {
    threads: 72,
    thread: 136,
    native: Some(144),
    version: Some(92),
    gil: From::Pointer(384),
    gc: From::Interpreter(112),
    ..PY311
};
/// As 3.13.0 says of itself.
const PY313: Layout = Layout {
    threads: 7344,
    thread: 152,
    native: Some(160),
    gil: From::Pointer(16),
    gc: From::Interpreter(7400),
    ..PY312
};

impl Layout {
    /// The layout of `major.minor`; `runtime` is the address of `_PyRuntime`.
    pub(super) fn of(version: (u32, u32), runtime: u64) -> Option<Layout> {
        match version {
            (3, 8) => Some(PY38),
            (3, 9) => Some(PY39),
            (3, 10) => Some(PY310),
            (3, 11) => Some(PY311),
            (3, 12) => Some(PY312),
            (3, minor @ 13..=15) => debug_offsets(minor, &read(runtime, WORDS * 8)?),
            _ => None,
        }
    }

    /// Bytes of a thread state that are read.
    pub(super) fn thread_bytes(&self) -> usize {
        self.thread.max(self.native.unwrap_or(0)) + 8
    }
}

/// Which word of `_Py_DebugOffsets` says what: the interpreter's collector and lock; a thread
/// state's next one, interpreter, thread, native id; whether the collector runs.
type Slots = [usize; 7];
const SLOTS_313: Slots = [10, 14, 21, 22, 24, 25, 72];
const SLOTS_314: Slots = [11, 15, 24, 25, 27, 28, 82];
const SLOTS_315: Slots = [11, 15, 24, 25, 30, 31, 95];
const WORDS: usize = 96;
/// Before all that: the version's number, whether the build is free-threaded, the interpreter's
/// newest thread state.
const VERSION: usize = 1;
const FREE_THREADED: usize = 2;
const THREADS: usize = 9;

/// What 3.13 and newer say of themselves, in words: see `_Py_DebugOffsets` in
/// `pycore_debug_offsets.h` (3.13: `pycore_runtime.h`).
fn debug_offsets(minor: u32, table: &[u8]) -> Option<Layout> {
    let at = |word: usize| u64_at(table, word * 8) as usize;
    let is_its = at(VERSION) >> 16 == 0x0300 + minor as usize;
    // later free-threaded builds have the bytecode once for each thread
    let is_free_threaded = at(FREE_THREADED) != 0;
    let is_known = table.starts_with(b"xdebugpy") && is_its && (minor == 13 || !is_free_threaded);
    let (slots, enabled, generation0) = match minor {
        13 => (SLOTS_313, PY313.enabled, PY313.generation0),
        14 => (SLOTS_314, 12, None),
        15 => (SLOTS_315, 0, None),
        _ => return None,
    };
    let [gc, gil, next, interpreter, thread, native, collecting] = slots.map(at);
    let common = Layout {
        threads: at(THREADS),
        gc: From::Interpreter(gc),
        gil: From::Pointer(gil),
        next,
        interpreter,
        thread,
        native: Some(native),
        collecting,
        enabled,
        generation0,
        ..PY313
    };
    let without_lock = Layout {
        // behind a head of 16 bytes more
        version: common.version.map(|at| at + 16),
        gil: From::Nowhere,
        generation0: None,
        ..common
    };
    is_known.then_some(if is_free_threaded { without_lock } else { common })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of this version with these offsets of the newest thread, and of its slots.
    fn table(hex: u64, threads: u64, slots: &Slots, values: [u64; 7]) -> Vec<u8> {
        let mut table = vec![0u8; WORDS * 8];
        table[..8].copy_from_slice(b"xdebugpy");
        let mut put = |word: usize, value: u64| {
            table[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        };
        put(VERSION, hex);
        put(THREADS, threads);
        slots.iter().zip(values).for_each(|(word, value)| put(*word, value));
        table
    }

    #[test]
    fn what_a_version_says_of_itself_is_taken_word_for_word() {
        let mut of_313 = table(0x030d_00f0, 7344, &SLOTS_313, [7400, 16, 8, 16, 152, 160, 200]);
        assert_eq!(debug_offsets(13, &of_313), Some(PY313));
        assert_eq!(debug_offsets(14, &of_313), None, "another version's");
        of_313[FREE_THREADED * 8] = 1;
        let without = Layout { version: Some(108), gil: From::Nowhere, generation0: None, ..PY313 };
        assert_eq!(debug_offsets(13, &of_313), Some(without), "what the headers of 3.13.5 say");
        // what the headers of 3.14.10 and 3.15.2 say
        let of_314 = table(0x030e_0af0, 7344, &SLOTS_314, [7408, 16, 8, 16, 152, 160, 192]);
        let mut threaded = of_314.clone();
        threaded[FREE_THREADED * 8] = 1;
        assert_eq!(debug_offsets(14, &threaded), None, "free-threaded");
        let gc = From::Interpreter(7408);
        let expected = Layout { gc, collecting: 192, generation0: None, ..PY313 };
        assert_eq!(debug_offsets(14, &of_314), Some(expected));
        let of_315 = table(0x030f_02f0, 7336, &SLOTS_315, [7400, 16, 8, 16, 176, 184, 112]);
        let (gc, native) = (From::Interpreter(7400), Some(184));
        let its = Layout { threads: 7336, thread: 176, native, gc, collecting: 112, enabled: 0, ..expected };
        assert_eq!(debug_offsets(15, &of_315), Some(its));
        assert_eq!(debug_offsets(16, &of_315), None);
        assert_eq!(Layout::of((3, 7), 0), None);
    }
}
