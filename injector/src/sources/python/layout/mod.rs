// SPDX-License-Identifier: Apache-2.0
// COLD
//! Where CPython keeps what we read of it, by version: `frames` what a stack walk needs, `threads`
//! what the stack of another thread takes beside that, `objects` attributes and dictionaries. Up to
//! 3.12 both are constants; 3.13 and newer say most of it themselves.

pub(crate) mod frames;
pub(crate) mod objects;
pub(crate) mod threads;

use crate::platform::memory::read_into;

const WORDS: usize = 96;

/// What 3.13 and newer say of themselves: `_Py_DebugOffsets` at the start of `_PyRuntime`
/// (`pycore_debug_offsets.h`; 3.13: `pycore_runtime.h`), in words: a cookie, the version's number,
/// whether the build is free-threaded, then offsets.
struct DebugOffsets {
    words: [u64; WORDS],
}

impl DebugOffsets {
    /// `None`: nothing can be read at `runtime`.
    fn read(runtime: u64) -> Option<DebugOffsets> {
        let mut bytes = [0; WORDS * 8];
        if runtime == 0 || read_into(runtime, &mut bytes) != Some(bytes.len()) {
            return None;
        }
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Some(DebugOffsets { words })
    }

    /// An offset, by the number of its word.
    fn at(&self, word: usize) -> usize {
        self.words.get(word).copied().unwrap_or(0) as usize
    }

    /// The version's number as in `PY_VERSION_HEX`; `None` where this is no such table.
    fn version(&self) -> Option<u32> {
        let [cookie, version, ..] = self.words;
        (cookie.to_le_bytes() == *b"xdebugpy").then_some(u32::try_from(version).unwrap_or(0))
    }

    fn is_free_threaded(&self) -> bool {
        self.at(2) != 0
    }
}

#[cfg(test)]
impl DebugOffsets {
    /// The table of a version with these values in these words.
    fn made(hex: u32, values: impl IntoIterator<Item = (usize, u64)>) -> DebugOffsets {
        let mut words = [0; WORDS];
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        words[1] = u64::from(hex);
        values.into_iter().for_each(|(word, value)| words[word] = value);
        DebugOffsets { words }
    }

    /// As it lies in the memory of an interpreter.
    fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }
}
