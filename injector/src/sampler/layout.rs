// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where CPython keeps its threads, its global lock and its collector, by minor version (default builds): what another
//! thread's stack takes beside `python::versions`. Up to 3.12 from the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and
//! 3.12.1; 3.13 says it itself (`_Py_DebugOffsets` at the start of `_PyRuntime`). Other versions: no stacks.

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
    /// Frame: a byte, and what it is while the frame runs (up to 3.10, where a frame that was left stays as it was).
    pub(super) running: Option<(usize, &'static [u8])>,
    /// Code object: a number that no two share (3.12 and newer).
    pub(super) version: Option<usize>,
    /// The global lock.
    pub(super) gil: From,
    /// The garbage collector's state.
    pub(super) gc: From,
    /// In it: is it running.
    pub(super) collecting: usize,
}

/// The global lock's state: last holder, held or not, all of it; the same from 3.8 to 3.13.
pub(super) const GIL_HOLDER: usize = 8;
/// See [`GIL_HOLDER`].
pub(super) const GIL_LOCKED: usize = 16;
/// Conditions and mutexes of the lock lie within it from here to its end.
pub(super) const GIL_WAITED: std::ops::Range<u64> = 32..208;
/// The collector's youngest generation, and the pointer to it: tells a wrong offset.
pub(super) const GC_GENERATIONS: usize = 24;
/// See [`GC_GENERATIONS`].
pub(super) const GC_GENERATION0: usize = 96;
/// In a string: its hash.
pub(super) const UNICODE_HASH: usize = 24;
/// Type of any object.
pub(super) const TYPE: usize = 8;

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
            (3, 13) => debug_offsets(&read(runtime, 73 * 8)?),
            _ => None,
        }
    }

    /// Bytes of a thread state that are read.
    pub(super) fn thread_bytes(&self) -> usize {
        self.thread.max(self.native.unwrap_or(0)) + 8
    }
}

/// What 3.13 says of itself, in words: see `_Py_DebugOffsets` in its `pycore_runtime.h`.
fn debug_offsets(table: &[u8]) -> Option<Layout> {
    let at = |word: usize| u64_at(table, word * 8) as usize;
    let is_known = table.starts_with(b"xdebugpy") && at(1) >> 16 == 0x030d && at(2) == 0;
    is_known.then(|| Layout {
        threads: at(9),
        gc: From::Interpreter(at(10)),
        gil: From::Pointer(at(14)),
        next: at(21),
        interpreter: at(22),
        thread: at(24),
        native: Some(at(25)),
        collecting: at(72),
        ..PY313
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_313_says_of_itself_is_taken_word_for_word() {
        let mut table = vec![0u8; 73 * 8];
        table[..8].copy_from_slice(b"xdebugpy");
        let mut put = |word: usize, value: u64| {
            table[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
        };
        put(1, 0x030d_00f0);
        for (word, value) in
            [(9, 7344), (10, 7400), (14, 16), (21, 8), (22, 16), (24, 152), (25, 160), (72, 200)]
        {
            put(word, value);
        }
        assert_eq!(debug_offsets(&table), Some(PY313));
        table[16] = 1; // free-threaded
        assert_eq!(debug_offsets(&table), None);
        assert_eq!(Layout::of((3, 7), 0), None);
    }
}
