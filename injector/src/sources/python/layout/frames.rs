// SPDX-License-Identifier: Apache-2.0
// COLD
//! Where CPython 3.8 to 3.15 keep what a stack walk needs: offsets in bytes on x86-64, default
//! builds and 3.13's free-threaded. Up to 3.12 they are constants of the minor version (compiled
//! against the headers of 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1); from 3.13 on the interpreter
//! says them itself, in `_Py_DebugOffsets` at the start of `_PyRuntime` (which word says what:
//! compiled against the headers of 3.13.0, 3.14.10, 3.15.2). Whatever stands here, `check` holds it
//! against the running interpreter before a stack is recorded.

use super::objects::Dictionaries;
use super::DebugOffsets;

/// How a frame says which instruction it is at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Instruction {
    /// An `int`: bytes into the bytecode (3.8, 3.9).
    Bytes,
    /// An `int`: code units of two bytes (3.10).
    Units,
    /// A pointer into the code object (3.11 and newer).
    Pointer,
}

/// How line numbers are stored; see `lines`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lines {
    /// `co_lnotab` (3.8, 3.9).
    Lnotab,
    /// `co_linetable` of 3.10.
    Ranges,
    /// The location table of 3.11 and newer.
    Locations,
}

/// The offsets of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// In the thread state: the innermost frame, or what leads to it.
    pub(crate) thread_frame: usize,
    /// In what `thread_frame` points to: the innermost frame (3.11, 3.12).
    pub(crate) through: Option<usize>,
    /// In a frame: the next outer one.
    pub(crate) previous: usize,
    /// ... its code object.
    pub(crate) code: usize,
    /// ... where it stands.
    pub(crate) instruction: usize,
    /// What that is.
    pub(crate) instruction_is: Instruction,
    /// ... whose it is, one byte (3.11 and newer).
    pub(crate) owner: Option<usize>,
    /// ... its first local variable; `None`: not known.
    pub(crate) local: Option<usize>,
    /// In a code object: the file's name.
    pub(crate) filename: usize,
    /// ... the function's name, qualified where there is that.
    pub(crate) name: usize,
    /// ... the first line, an `int`.
    pub(crate) first_line: usize,
    /// ... the line table, a bytes object.
    pub(crate) table: usize,
    /// What that is.
    pub(crate) lines: Lines,
    /// ... the bytecode: within the object from 3.11 on, before that a bytes object.
    pub(crate) bytecode: usize,
    /// Size of a code object without its bytecode, as its type says.
    pub(crate) code_size: usize,
    /// What an object's head has more than 16 bytes: a free-threaded build's counts of references
    /// and lock.
    pub(crate) head: usize,
    /// In a str: the characters where all are ASCII.
    pub(crate) ascii: usize,
    /// ... and where not.
    pub(crate) wide: usize,
    /// Attributes and dictionaries; `None`: not known (free-threaded builds).
    pub(crate) dictionaries: Option<Dictionaries>,
}

/// 3.8 and 3.9.
const V38: Layout = Layout {
    thread_frame: 24,
    through: None,
    previous: 24,
    code: 32,
    instruction: 104,
    instruction_is: Instruction::Bytes,
    owner: None,
    local: Some(360),
    filename: 104,
    name: 112,
    first_line: 40,
    table: 120,
    lines: Lines::Lnotab,
    bytecode: 48,
    code_size: 176,
    head: 0,
    ascii: 48,
    wide: 72,
    dictionaries: Some(Dictionaries::of(8)),
};

const V310: Layout = Layout {
    instruction: 96,
    instruction_is: Instruction::Units,
    local: Some(352),
    lines: Lines::Ranges,
    ..V38
};

const V311: Layout = Layout {
    thread_frame: 56,
    through: Some(8),
    previous: 48,
    code: 32,
    instruction: 56,
    instruction_is: Instruction::Pointer,
    owner: Some(69),
    local: Some(72),
    filename: 112,
    name: 128,
    first_line: 72,
    table: 136,
    lines: Lines::Locations,
    bytecode: 184,
    code_size: 184,
    head: 0,
    ascii: 48,
    wide: 72,
    dictionaries: Some(Dictionaries::of(11)),
};

const V312: Layout = Layout {
    through: Some(0),
    previous: 8,
    code: 0,
    owner: Some(70),
    first_line: 68,
    bytecode: 192,
    code_size: 192,
    ascii: 40,
    wide: 56,
    ..V311
};

impl Layout {
    /// In an object: its type.
    #[inline]
    pub(crate) fn object_type(&self) -> usize {
        8 + self.head
    }

    /// ... the number of its items, or a str's length.
    pub(crate) fn object_size(&self) -> usize {
        16 + self.head
    }

    /// The layout of a version, `runtime` being the address of `_PyRuntime` (0: not found); else
    /// why there is none.
    pub(crate) fn of(major: u32, minor: u32, hex: u32, runtime: u64) -> Result<Layout, String> {
        match (major, minor) {
            (3, 8 | 9) => Ok(V38),
            (3, 10) => Ok(V310),
            (3, 11) => Ok(V311),
            (3, 12) => Ok(V312),
            (3, 13) => described(runtime, hex, &SLOTS_313),
            (3, 14) => described(runtime, hex, &SLOTS_314),
            (3, 15) => described(runtime, hex, &SLOTS_315),
            (3, 16..) | (4.., _) => Err("it is newer than this gapprobe knows (3.15)".into()),
            _ => Err("it is older than gapprobe reads (3.8)".into()),
        }
    }
}

/// Which word of [`DebugOffsets`] holds what: current_frame, previous, executable, instr_ptr,
/// localsplus, owner, filename, qualname, firstlineno, linetable, co_code_adaptive,
/// asciiobject_size.
type Slots = [usize; 12];
const SLOTS_313: Slots = [23, 29, 30, 31, 32, 33, 35, 37, 39, 38, 43, 70];
const SLOTS_314: Slots = [26, 32, 33, 34, 35, 36, 40, 42, 44, 43, 48, 80];
const SLOTS_315: Slots = [26, 40, 41, 42, 43, 44, 48, 50, 52, 51, 56, 92];

fn described(runtime: u64, hex: u32, slots: &Slots) -> Result<Layout, String> {
    let offsets = DebugOffsets::read(runtime).ok_or("it has no _PyRuntime to be read")?;
    if offsets.version() != Some(hex) {
        return Err("its table of offsets is of another version".into());
    }
    let is_free_threaded = offsets.is_free_threaded();
    // later ones have the bytecode once for each thread
    if is_free_threaded && hex >> 16 != 0x030d {
        return Err("it is a free-threaded build".into());
    }
    let [frame, previous, code, instruction, local, owner, filename, name, first_line, table, bytecode, ascii] =
        slots.map(|word| offsets.at(word));
    let layout = Layout {
        thread_frame: frame,
        through: None,
        previous,
        code,
        instruction,
        owner: Some(owner),
        // (where dictionaries cannot be read, a module could not be named)
        local: (!is_free_threaded).then_some(local),
        filename,
        name,
        first_line,
        table,
        bytecode,
        code_size: bytecode,
        head: if is_free_threaded { 16 } else { 0 },
        ascii,
        wide: ascii + 16,
        dictionaries: (!is_free_threaded).then_some(Dictionaries::of(hex >> 16 & 0xff)),
        ..V312
    };
    let code_fields = [filename, name, first_line, table, bytecode, ascii];
    let small = [frame, previous, code, instruction, local, owner].iter().all(|n| *n < 1024);
    if !small || code_fields.iter().any(|n| !(16..1024).contains(n)) {
        return Err("its table of offsets makes no sense".into());
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(hex: u32, slots: &Slots, values: [u64; 12]) -> DebugOffsets {
        DebugOffsets::made(hex, slots.iter().copied().zip(values))
    }

    const OF_313: [u64; 12] = [72, 8, 0, 56, 72, 70, 112, 128, 68, 136, 200, 40];

    #[test]
    fn the_interpreters_own_table_is_read_and_refused_where_it_is_another_ones() {
        let offsets = table(0x030d00f0, &SLOTS_313, OF_313);
        let at = offsets.address();
        let layout = Layout::of(3, 13, 0x030d00f0, at).unwrap();
        // what the headers of 3.13.0 say
        let expected = Layout {
            thread_frame: 72,
            through: None,
            first_line: 68,
            bytecode: 200,
            code_size: 200,
            dictionaries: Some(Dictionaries::of(13)),
            ..V312
        };
        assert_eq!(layout, expected);
        assert!(Layout::of(3, 13, 0x030d01f0, at).unwrap_err().contains("another version"));
        assert!(Layout::of(3, 13, 0x030d00f0, 0).unwrap_err().contains("_PyRuntime"));
        let mut odd = OF_313;
        // what the headers of 3.13.5 say of a free-threaded build; later ones are left alone
        let values = [72, 8, 0, 56, 72, 70, 128, 144, 84, 152, 216, 56];
        let threaded = |hex, slots| {
            let mut offsets = table(hex, slots, values);
            offsets.words[2] = 1;
            offsets
        };
        let of_313 = threaded(0x030d05f0, &SLOTS_313);
        let layout = Layout::of(3, 13, 0x030d05f0, of_313.address()).unwrap();
        assert_eq!((layout.head, layout.filename, layout.ascii, layout.wide), (16, 128, 56, 72));
        assert_eq!((layout.object_type(), layout.object_size()), (24, 32));
        let of_314 = threaded(0x030e0af0, &SLOTS_314);
        let why = Layout::of(3, 14, 0x030e0af0, of_314.address()).unwrap_err();
        assert!(why.contains("free-threaded"), "{why}");
        odd[6] = 1 << 40;
        let odd = table(0x030d00f0, &SLOTS_313, odd);
        assert!(Layout::of(3, 13, 0x030d00f0, odd.address()).unwrap_err().contains("no sense"));
    }

    #[test]
    fn versions_beyond_the_known_ones_are_refused() {
        for (major, minor) in [(2, 7), (3, 6), (3, 7), (3, 16), (4, 0)] {
            assert!(Layout::of(major, minor, 0, 0).is_err(), "{major}.{minor}");
        }
    }
}
