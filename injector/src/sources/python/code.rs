// SPDX-License-Identifier: Apache-2.0
// WARM
//! Code objects read through the kernel (of our own memory [`read_into`]: a fault
//! becomes an error; or of a child's), without the GIL: file, function, line table. The object may
//! die meanwhile; who asks looks at its stamp after.

use super::interpreter::Interpreter;
use super::layout::frames::{Instruction, Lines};
use super::lines;
use super::walk::{RawFrame, OWNED_BY_GENERATOR};
use crate::platform::memory::read_into;

/// Longest name read, characters.
const LONGEST_NAME: u64 = 4096;
/// Longest line table read, bytes.
const LONGEST_TABLE: u64 = 1 << 20;
/// From the bytecode back to the index of the first instruction that is traced (3.11 to 3.15).
const FIRST_TRACEABLE: u64 = 16;

/// Memory that code objects lie in: fills all of the buffer from an address, or returns `false`.
pub(crate) type Memory<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// What a code object says. The same function in two processes is equal.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Code {
    /// File.
    pub(crate) file: Vec<u8>,
    /// Function, qualified where there is that.
    pub(crate) function: Vec<u8>,
    first_line: i64,
    table: Vec<u8>,
    lines: Lines,
    /// From the code object to its bytecode.
    bytecode: usize,
    /// Bytes of bytecode.
    length: u64,
    /// Byte at which its first line begins; before it the interpreter does not show the frame.
    begins: i64,
    instruction_is: Instruction,
}

impl Code {
    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Code>() + self.file.len() + self.function.len() + self.table.len()
    }
}

fn bytes_at(memory: &mut Memory<'_>, address: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let whole = bytes.is_empty() || memory(address, &mut bytes);
    whole.then_some(bytes)
}

fn word(memory: &mut Memory<'_>, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

fn int(memory: &mut Memory<'_>, address: u64) -> Option<i64> {
    let mut bytes = [0; 4];
    memory(address, &mut bytes).then(|| i64::from(i32::from_le_bytes(bytes)))
}

/// Reads the code object at `at` in this process; `None` where no code object is.
pub(crate) fn read(interpreter: &Interpreter, at: u64) -> Option<Code> {
    read_from(interpreter, at, &mut |from, out| read_into(from, out) == Some(out.len()))
}

/// As [`read`] in `memory`, where `interpreter` is.
pub(crate) fn read_from(interpreter: &Interpreter, at: u64, memory: &mut Memory<'_>) -> Option<Code> {
    let layout = &interpreter.layout;
    if word(memory, at.wrapping_add(layout.object_type() as u64))? != interpreter.code_type as u64 {
        return None;
    }
    let mut field = |offset: usize| word(memory, at.wrapping_add(offset as u64));
    let (bytecode, object_size) = (field(layout.bytecode)?, field(layout.object_size())?);
    let (table, file, name) = (field(layout.table)?, field(layout.filename)?, field(layout.name)?);
    let (length, begins) = if layout.instruction_is == Instruction::Pointer {
        let first_traceable = at.wrapping_add(layout.bytecode as u64).wrapping_sub(FIRST_TRACEABLE);
        (object_size.checked_mul(2)?, int(memory, first_traceable)? * 2)
    } else {
        (size_of_bytes(interpreter, bytecode, memory)?, 0)
    };
    let table_length = size_of_bytes(interpreter, table, memory).filter(|n| *n <= LONGEST_TABLE)?;
    Some(Code {
        file: text(interpreter, file, memory)?,
        function: text(interpreter, name, memory)?,
        first_line: int(memory, at.wrapping_add(layout.first_line as u64))?,
        table: bytes_at(memory, table.wrapping_add((32 + layout.head) as u64), table_length)?,
        lines: layout.lines,
        bytecode: layout.bytecode,
        length,
        begins,
        instruction_is: layout.instruction_is,
    })
}

/// Size of a bytes object; its content begins 32 bytes behind its address in every version, and
/// what the head has more.
fn size_of_bytes(interpreter: &Interpreter, at: u64, memory: &mut Memory<'_>) -> Option<u64> {
    let layout = &interpreter.layout;
    let is_one = word(memory, at.wrapping_add(layout.object_type() as u64))? == interpreter.bytes_type;
    is_one.then(|| word(memory, at.wrapping_add(layout.object_size() as u64)))?
}

/// A str, as UTF-8. What a file name holds of bytes that are none (surrogates U+DC80 to U+DCFF)
/// becomes those bytes.
pub(super) fn text(interpreter: &Interpreter, at: u64, memory: &mut Memory<'_>) -> Option<Vec<u8>> {
    let layout = &interpreter.layout;
    if word(memory, at.wrapping_add(layout.object_type() as u64))? != interpreter.str_type {
        return None;
    }
    let length = word(memory, at.wrapping_add(layout.object_size() as u64))?.min(LONGEST_NAME);
    let state = word(memory, at.wrapping_add((32 + layout.head) as u64))?;
    let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !compact || !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    let from = if ascii { layout.ascii } else { layout.wide };
    let bytes = bytes_at(memory, at.wrapping_add(from as u64), length * kind)?;
    if ascii {
        return bytes.is_ascii().then_some(bytes);
    }
    let mut out = Vec::new();
    for unit in bytes.chunks_exact(kind as usize) {
        let number = unit.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        match char::from_u32(number) {
            Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            None if (0xdc80..=0xdcff).contains(&number) => out.push(number as u8),
            None => out.extend_from_slice("\u{fffd}".as_bytes()),
        }
    }
    Some(out)
}

impl Code {
    /// One without a line, for tests.
    #[cfg(test)]
    pub(crate) fn empty() -> Code {
        Code {
            file: Vec::new(),
            function: Vec::new(),
            first_line: 0,
            table: Vec::new(),
            lines: Lines::Lnotab,
            bytecode: 0,
            length: 0,
            begins: 0,
            instruction_is: Instruction::Bytes,
        }
    }

    /// Byte of the bytecode at which a frame stands; below 0: not begun. `None`: that is not in
    /// this code.
    pub(crate) fn offset(&self, frame: &RawFrame) -> Option<i64> {
        let offset = match self.instruction_is {
            Instruction::Bytes => i64::from(frame.instruction as u32 as i32),
            Instruction::Units => i64::from(frame.instruction as u32 as i32) * 2,
            Instruction::Pointer => {
                frame.instruction.wrapping_sub(frame.code.wrapping_add(self.bytecode as u64)) as i64
            }
        };
        // one unit before the first: a frame that has not begun
        (-2..self.length as i64).contains(&offset).then_some(offset)
    }

    /// The line of a frame, 0 where its instruction has none. `None`: it stands outside of this
    /// code.
    pub(crate) fn line(&self, frame: &RawFrame) -> Option<u32> {
        Some(self.line_at(self.offset(frame)?))
    }

    /// The line of an offset of [`Code::offset`], 0 where there is none.
    pub(crate) fn line_at(&self, offset: i64) -> u32 {
        lines::line_of(self.lines, &self.table, self.first_line, offset).unwrap_or(0)
    }

    /// A frame that is still being set up (a collection may run meanwhile): the interpreter does
    /// not show it either.
    pub(crate) fn is_incomplete(&self, frame: &RawFrame) -> bool {
        self.instruction_is == Instruction::Pointer
            && frame.owner != OWNED_BY_GENERATOR
            && self.offset(frame).is_some_and(|o| o < self.begins)
    }
}
