// SPDX-License-Identifier: Apache-2.0
// WARM
//! Code objects read from our own memory through the kernel (`cupti::names::read_memory`: a fault becomes an error),
//! without the GIL: file, function, line table. The object may die meanwhile; who asks looks at its stamp after.

use super::interpreter::{word, Interpreter};
use super::lines;
use super::versions::{Instruction, Lines};
use super::walk::{RawFrame, OWNED_BY_GENERATOR};
use crate::cupti::names::read_memory;

/// Longest name read, characters.
const LONGEST_NAME: u64 = 4096;
/// Longest line table read, bytes.
const LONGEST_TABLE: u64 = 1 << 20;
/// From the bytecode back to the index of the first instruction that is traced (3.11 to 3.15).
const FIRST_TRACEABLE: u64 = 16;

/// What a code object says.
#[derive(Debug)]
pub(crate) struct Code {
    /// File.
    pub(crate) file: Vec<u8>,
    /// Function, qualified where there is that.
    pub(crate) function: Vec<u8>,
    first_line: i64,
    table: Vec<u8>,
    lines: Lines,
    /// Address of the bytecode where instructions are pointers, else 0.
    bytecode: u64,
    /// Bytes of bytecode.
    length: u64,
    /// Byte at which its first line begins; before it the interpreter does not show the frame.
    begins: i64,
    instruction_is: Instruction,
}

fn bytes_at(address: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let whole = bytes.is_empty() || read_memory(address, &mut bytes)? == bytes.len();
    whole.then_some(bytes)
}

fn int(address: u64) -> Option<i64> {
    let mut bytes = [0; 4];
    (read_memory(address, &mut bytes)? == 4).then(|| i64::from(i32::from_le_bytes(bytes)))
}

/// Reads the code object at `at`; `None` where no code object is.
pub(crate) fn read(interpreter: &Interpreter, at: u64) -> Option<Code> {
    let layout = &interpreter.layout;
    if word(at + layout.object_type() as u64)? != interpreter.code_type as u64 {
        return None;
    }
    let field = |offset: usize| word(at + offset as u64);
    let pointers = layout.instruction_is == Instruction::Pointer;
    let (bytecode, length, begins) = if pointers {
        let bytecode = at + layout.bytecode as u64;
        (bytecode, field(layout.object_size())?.checked_mul(2)?, int(bytecode - FIRST_TRACEABLE)? * 2)
    } else {
        (0, size_of_bytes(interpreter, field(layout.bytecode)?)?, 0)
    };
    let table = field(layout.table)?;
    let table_length = size_of_bytes(interpreter, table).filter(|n| *n <= LONGEST_TABLE)?;
    Some(Code {
        file: text(interpreter, field(layout.filename)?)?,
        function: text(interpreter, field(layout.name)?)?,
        first_line: int(at + layout.first_line as u64)?,
        table: bytes_at(table + (32 + layout.head) as u64, table_length)?,
        lines: layout.lines,
        bytecode,
        length,
        begins,
        instruction_is: layout.instruction_is,
    })
}

/// Size of a bytes object; its content begins 32 bytes behind its address in every version, and what the head has more.
fn size_of_bytes(interpreter: &Interpreter, at: u64) -> Option<u64> {
    let layout = &interpreter.layout;
    let is_one = word(at + layout.object_type() as u64)? == interpreter.bytes_type;
    is_one.then(|| word(at + layout.object_size() as u64))?
}

/// A str, as UTF-8. What a file name holds of bytes that are none (surrogates U+DC80 to U+DCFF) becomes those bytes.
fn text(interpreter: &Interpreter, at: u64) -> Option<Vec<u8>> {
    let layout = &interpreter.layout;
    if word(at + layout.object_type() as u64)? != interpreter.str_type {
        return None;
    }
    let length = word(at + layout.object_size() as u64)?.min(LONGEST_NAME);
    let state = word(at + (32 + layout.head) as u64)?;
    let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !compact || !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    let from = if ascii { layout.ascii } else { layout.wide };
    let bytes = bytes_at(at + from as u64, length * kind)?;
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

    /// Byte of the bytecode at which a frame stands; below 0: not begun. `None`: that is not in this code.
    fn offset(&self, frame: &RawFrame) -> Option<i64> {
        let offset = match self.instruction_is {
            Instruction::Bytes => i64::from(frame.instruction as u32 as i32),
            Instruction::Units => i64::from(frame.instruction as u32 as i32) * 2,
            Instruction::Pointer => frame.instruction.wrapping_sub(self.bytecode) as i64,
        };
        // one unit before the first: a frame that has not begun
        (-2..self.length as i64).contains(&offset).then_some(offset)
    }

    /// The line of a frame, 0 where its instruction has none. `None`: it stands outside of this code.
    pub(crate) fn line(&self, frame: &RawFrame) -> Option<u32> {
        let offset = self.offset(frame)?;
        Some(lines::line_of(self.lines, &self.table, self.first_line, offset).unwrap_or(0))
    }

    /// A frame that is still being set up (a collection may run meanwhile): the interpreter does not show it either.
    pub(crate) fn is_incomplete(&self, frame: &RawFrame) -> bool {
        self.instruction_is == Instruction::Pointer
            && frame.owner != OWNED_BY_GENERATOR
            && self.offset(frame).is_some_and(|o| o < self.begins)
    }
}
