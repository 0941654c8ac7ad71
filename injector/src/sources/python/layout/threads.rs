// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where CPython keeps its threads, its global lock and its collector, by minor version (default
//! builds): what another thread's stack takes beside [`super::frames`]. Up to 3.12 from the
//! headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; 3.13 to 3.15 say it themselves
//! (`_Py_DebugOffsets` at the start of `_PyRuntime`; which word says what, by the headers of
//! 3.13.0, 3.14.10, 3.15.2). Other versions: no stacks.

use super::DebugOffsets;

/// What an offset counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
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
pub(crate) struct Layout {
    /// Interpreter state: its newest thread state.
    pub(crate) threads: usize,
    /// Thread state: the next one.
    pub(crate) next: usize,
    /// ... its interpreter.
    pub(crate) interpreter: usize,
    /// ... its pthread_t.
    pub(crate) thread: usize,
    /// ... its kernel thread id (3.11 and newer).
    pub(crate) native: Option<usize>,
    /// Frame: a byte, and what it is while the frame runs (up to 3.10, where a frame that was left
    /// stays as it was).
    pub(crate) running: Option<(usize, &'static [u8])>,
    /// Code object: a number that no two share (3.12 and newer).
    pub(crate) version: Option<usize>,
    /// The global lock.
    pub(crate) gil: From,
    /// The garbage collector's state.
    pub(crate) gc: From,
    /// In it: is it running.
    pub(crate) collecting: usize,
    /// ... is it switched on.
    pub(crate) enabled: usize,
    /// ... the pointer to the youngest generation (up to 3.13; later it is behind what changes from
    /// release to release).
    pub(crate) generation0: Option<usize>,
}

/// The global lock's state: last holder, held or not, all of it; the same from 3.8 to 3.15.
pub(crate) const GIL_HOLDER: usize = 8;
/// See [`GIL_HOLDER`].
pub(crate) const GIL_LOCKED: usize = 16;
/// Conditions and mutexes of the lock lie within it from here to its end.
pub(crate) const GIL_WAITED: std::ops::Range<u64> = 32..208;
/// The collector's youngest generation, where [`Layout::generation0`] points to: tells a wrong
/// offset.
pub(crate) const GC_GENERATIONS: usize = 24;
/// In a string: its hash (where it is asked for: up to 3.11).
pub(crate) const UNICODE_HASH: usize = 24;

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
    pub(crate) fn of(version: (u32, u32), runtime: u64) -> Option<Layout> {
        match version {
            (3, 8) => Some(PY38),
            (3, 9) => Some(PY39),
            (3, 10) => Some(PY310),
            (3, 11) => Some(PY311),
            (3, 12) => Some(PY312),
            (3, minor @ 13..=15) => described(minor, &DebugOffsets::read(runtime)?),
            _ => None,
        }
    }

    /// Bytes of a thread state that are read.
    pub(crate) fn thread_bytes(&self) -> usize {
        self.thread.max(self.native.unwrap_or(0)) + 8
    }
}

/// Which word of [`DebugOffsets`] says what: the interpreter's collector and lock; a thread state's
/// next one, interpreter, thread, native id; whether the collector runs.
type Slots = [usize; 7];
const SLOTS_313: Slots = [10, 14, 21, 22, 24, 25, 72];
const SLOTS_314: Slots = [11, 15, 24, 25, 27, 28, 82];
const SLOTS_315: Slots = [11, 15, 24, 25, 30, 31, 95];
/// ... and the interpreter's newest thread state.
const THREADS: usize = 9;

/// What 3.13 and newer say of themselves.
fn described(minor: u32, offsets: &DebugOffsets) -> Option<Layout> {
    let is_its = offsets.version().is_some_and(|hex| hex >> 16 == 0x0300 + minor);
    // later free-threaded builds have the bytecode once for each thread
    let is_free_threaded = offsets.is_free_threaded();
    let is_known = is_its && (minor == 13 || !is_free_threaded);
    let (slots, enabled, generation0) = match minor {
        13 => (SLOTS_313, PY313.enabled, PY313.generation0),
        14 => (SLOTS_314, 12, None),
        15 => (SLOTS_315, 0, None),
        _ => return None,
    };
    let [gc, gil, next, interpreter, thread, native, collecting] = slots.map(|word| offsets.at(word));
    let common = Layout {
        threads: offsets.at(THREADS),
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
    fn table(hex: u32, threads: u64, slots: &Slots, values: [u64; 7]) -> DebugOffsets {
        DebugOffsets::made(hex, slots.iter().copied().zip(values).chain([(THREADS, threads)]))
    }

    #[test]
    fn what_a_version_says_of_itself_is_taken_word_for_word() {
        let mut of_313 = table(0x030d_00f0, 7344, &SLOTS_313, [7400, 16, 8, 16, 152, 160, 200]);
        assert_eq!(described(13, &of_313), Some(PY313));
        assert_eq!(described(14, &of_313), None, "another version's");
        of_313.words[2] = 1;
        let without = Layout { version: Some(108), gil: From::Nowhere, generation0: None, ..PY313 };
        assert_eq!(described(13, &of_313), Some(without), "what the headers of 3.13.5 say");
        // what the headers of 3.14.10 and 3.15.2 say
        let of_314 = table(0x030e_0af0, 7344, &SLOTS_314, [7408, 16, 8, 16, 152, 160, 192]);
        let mut threaded = DebugOffsets { words: of_314.words };
        threaded.words[2] = 1;
        assert_eq!(described(14, &threaded), None, "free-threaded");
        let gc = From::Interpreter(7408);
        let expected = Layout { gc, collecting: 192, generation0: None, ..PY313 };
        assert_eq!(described(14, &of_314), Some(expected));
        let of_315 = table(0x030f_02f0, 7336, &SLOTS_315, [7400, 16, 8, 16, 176, 184, 112]);
        let (gc, native) = (From::Interpreter(7400), Some(184));
        let its = Layout { threads: 7336, thread: 176, native, gc, collecting: 112, enabled: 0, ..expected };
        assert_eq!(described(15, &of_315), Some(its));
        assert_eq!(described(16, &of_315), None);
        assert_eq!(Layout::of((3, 7), 0), None);
    }
}
