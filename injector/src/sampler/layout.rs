// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where CPython keeps what the sampler reads of it, by minor version (x86-64 and arm64, default builds). Up to 3.12
//! from the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; from 3.13 on the interpreter says it itself
//! (`_Py_DebugOffsets` at the start of `_PyRuntime`). Other versions and free-threaded builds: no stacks.

use super::remote::{read, u64_at};

/// How a thread's newest frame is found from its thread state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Top {
    /// A pointer there.
    Frame(usize),
    /// A pointer there to a C frame, and in that the pointer.
    CFrame(usize, usize),
}

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
    /// Thread state: the next one, its interpreter, its pthread_t, its kernel thread id.
    pub(super) next: usize,
    pub(super) interpreter: usize,
    pub(super) thread: usize,
    pub(super) native: Option<usize>,
    pub(super) top: Top,
    /// Frame: who called it, code object, instruction, owner (where there is one).
    pub(super) back: usize,
    pub(super) code: usize,
    pub(super) instruction: usize,
    pub(super) owner: Option<usize>,
    /// Code object: file, name (qualified where it has that), first line, line table, instructions, a number that no
    /// two code objects share.
    pub(super) file: usize,
    pub(super) name: usize,
    pub(super) first_line: usize,
    pub(super) lines: usize,
    pub(super) instructions: Option<usize>,
    pub(super) version: Option<usize>,
    /// Text of an ASCII string behind its header.
    pub(super) ascii: usize,
    /// The global lock.
    pub(super) gil: From,
    /// The garbage collector's state.
    pub(super) gc: From,
    /// In it: is it running.
    pub(super) collecting: usize,
    /// How instructions and lines are written.
    pub(super) lines_as: Lines,
}

/// How a frame's instruction and a code object's line table are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lines {
    /// 3.8, 3.9: byte offset, `co_lnotab`.
    Lnotab,
    /// 3.10: index of a 2-byte instruction, `co_linetable`.
    Linetable,
    /// 3.11 on: pointer to an instruction, location table.
    Locations,
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
/// Length of a string, its hash and its state.
pub(super) const UNICODE_LENGTH: usize = 16;
/// See [`UNICODE_LENGTH`].
pub(super) const UNICODE_HASH: usize = 24;
/// See [`UNICODE_LENGTH`].
pub(super) const UNICODE_STATE: usize = 32;
/// Type of any object.
pub(super) const TYPE: usize = 8;

const PY38: Layout = Layout {
    threads: 8,
    next: 8,
    interpreter: 16,
    thread: 176,
    native: None,
    top: Top::Frame(24),
    back: 24,
    code: 32,
    instruction: 104,
    owner: None,
    file: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    instructions: None,
    version: None,
    ascii: 48,
    gil: From::Runtime(1152),
    gc: From::Runtime(344),
    collecting: 200,
    lines_as: Lines::Lnotab,
};
const PY39: Layout = Layout { gil: From::Runtime(352), gc: From::Interpreter(616), ..PY38 };
const PY310: Layout = Layout { instruction: 96, lines_as: Lines::Linetable, ..PY39 };
const PY311: Layout = Layout {
    threads: 16,
    thread: 152,
    native: Some(160),
    top: Top::CFrame(56, 8),
    back: 48,
    code: 32,
    instruction: 56,
    owner: Some(69),
    file: 112,
    name: 128,
    first_line: 72,
    lines: 136,
    instructions: Some(184),
    gil: From::Runtime(360),
    gc: From::Interpreter(648),
    lines_as: Lines::Locations,
    ..PY310
};
const PY312: Layout = Layout {
    threads: 72,
    thread: 136,
    native: Some(144),
    top: Top::CFrame(56, 0),
    back: 8,
    code: 0,
    owner: Some(70),
    first_line: 68,
    instructions: Some(192),
    version: Some(92),
    ascii: 40,
    gil: From::Pointer(384),
    gc: From::Interpreter(112),
    ..PY311
};
/// As 3.13.0 says of itself.
const PY313: Layout = Layout {
    threads: 7344,
    thread: 152,
    native: Some(160),
    top: Top::Frame(72),
    instructions: Some(200),
    gil: From::Pointer(16),
    gc: From::Interpreter(7400),
    ..PY312
};

/// Owner of frames that stand for C code (3.12, 3.13).
pub(super) const OWNED_BY_C: u8 = 3;

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

    /// Bytes of a frame that are read.
    pub(super) fn frame_bytes(&self) -> usize {
        self.back.max(self.code).max(self.instruction) + 8 + self.owner.map_or(0, |_| 8)
    }

    /// Bytes of a code object that are read.
    pub(super) fn code_bytes(&self) -> usize {
        self.lines + 8
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
        top: Top::Frame(at(23)),
        thread: at(24),
        native: Some(at(25)),
        back: at(29),
        code: at(30),
        instruction: at(31),
        owner: Some(at(33)),
        file: at(35),
        name: at(37),
        lines: at(38),
        first_line: at(39),
        instructions: Some(at(43)),
        ascii: at(70),
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
        for (word, value) in [
            (9, 7344),
            (10, 7400),
            (14, 16),
            (21, 8),
            (22, 16),
            (23, 72),
            (24, 152),
            (25, 160),
            (29, 8),
            (30, 0),
            (31, 56),
            (33, 70),
            (35, 112),
            (37, 128),
            (38, 136),
            (39, 68),
            (43, 200),
            (70, 40),
            (72, 200),
        ] {
            put(word, value);
        }
        assert_eq!(debug_offsets(&table), Some(PY313));
        table[16] = 1; // free-threaded
        assert_eq!(debug_offsets(&table), None);
        assert_eq!(Layout::of((3, 7), 0), None);
    }
}
