// SPDX-License-Identifier: Apache-2.0
// WARM
//! The code objects that stacks were found to stand in, each read once. Addresses are used again when code is deleted,
//! so a code object is known by its address and what its head says: from 3.12 on a number that no two share, before
//! that also the hash of its name.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Layout, UNICODE_HASH};
use super::remote::{i32_at, read, u64_at};
use crate::python::code::{self, Code};
use crate::python::interpreter::Interpreter;
use crate::python::walk::RawFrame;

/// A name, kept once.
pub(super) type Text = Arc<[u8]>;

/// Code objects known at most: some 20 MB where each has a long line table.
const MOST: usize = 32_768;
/// Lines remembered at most.
const MOST_LINES: usize = 65_536;

/// What tells one code object from another at the same address later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) name: u64,
    name_hash: u64,
    pub(super) file: u64,
    pub(super) table: u64,
    first_line: i32,
    version: i32,
}

impl Identity {
    /// By the head of a code object.
    pub(super) fn of(head: &[u8], hash: Option<u64>, known: &Interpreter, layout: &Layout) -> Identity {
        Identity {
            name: u64_at(head, known.layout.name),
            name_hash: hash.unwrap_or(0),
            file: u64_at(head, known.layout.filename),
            table: u64_at(head, known.layout.table),
            first_line: i32_at(head, known.layout.first_line),
            version: layout.version.map_or(0, |at| i32_at(head, at)),
        }
    }
}

/// A code object, and how it is called.
struct Known {
    code: Code,
    function: Text,
    file: Text,
}

/// Those seen.
#[derive(Default)]
pub(super) struct Codes {
    all: Vec<Known>,
    at: HashMap<u64, (Identity, u32)>,
    texts: HashMap<Vec<u8>, Text>,
    lines: HashMap<(u32, u64), Option<u32>>,
}

/// Bytes of a code object's head.
pub(super) fn head_bytes(known: &Interpreter) -> usize {
    known.layout.table.max(known.layout.name) + 8
}

impl Codes {
    /// Where the name's hash lies of the code object known at this address, if it has to be looked at.
    pub(super) fn hash_of_name(&self, address: u64, layout: &Layout) -> Option<u64> {
        let (identity, _) = self.at.get(&address)?;
        layout.version.is_none().then_some(identity.name + UNICODE_HASH as u64)
    }

    /// The code object at `address`, whose head was read just now; `hash`: what lay at [`Codes::hash_of_name`]. `None`
    /// where it is none, cannot be read, or too many are known.
    pub(super) fn id(
        &mut self,
        address: u64,
        head: &[u8],
        hash: Option<u64>,
        known: &Interpreter,
        layout: &Layout,
    ) -> Option<u32> {
        if u64_at(head, known.layout.object_type()) != known.code_type as u64 {
            return None;
        }
        let mut identity = Identity::of(head, hash, known, layout);
        if let Some((same, id)) = self.at.get(&address) {
            if *same == identity {
                return Some(*id);
            }
        }
        if layout.version.is_none() {
            identity.name_hash = u64_at(&read(identity.name + UNICODE_HASH as u64, 8)?, 0);
        }
        if self.all.len() >= MOST {
            return None;
        }
        let code = code::read(known, address)?;
        let (function, file) = (self.shared(&code.function), self.shared(&code.file));
        let id = self.all.len() as u32;
        self.all.push(Known { code, function, file });
        self.at.insert(address, (identity, id));
        Some(id)
    }

    /// A code object of this name whose head is all zeroes, for tests.
    #[cfg(test)]
    pub(super) fn know(&mut self, address: u64, function: &str) {
        let none = Identity { name: 0, name_hash: 0, file: 0, table: 0, first_line: 0, version: 0 };
        let function = self.shared(function.as_bytes());
        self.at.insert(address, (none, self.all.len() as u32));
        self.all.push(Known { code: Code::empty(), file: Arc::clone(&function), function });
    }

    fn shared(&mut self, text: &[u8]) -> Text {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let shared: Text = text.into();
        self.texts.insert(text.to_vec(), Arc::clone(&shared));
        shared
    }

    /// Function and file of a code object.
    pub(super) fn names(&self, id: u32) -> Option<(Text, Text)> {
        self.all.get(id as usize).map(|k| (Arc::clone(&k.function), Arc::clone(&k.file)))
    }

    /// A frame that is still being set up: the interpreter does not show it either.
    pub(super) fn is_incomplete(&self, id: u32, frame: &RawFrame) -> bool {
        self.all.get(id as usize).is_some_and(|k| k.code.is_incomplete(frame))
    }

    /// The line a frame stands in, 0 where its instruction has none; `None`: it stands outside of this code.
    pub(super) fn line(&mut self, id: u32, frame: &RawFrame) -> Option<u32> {
        let key = (id, frame.instruction);
        if let Some(line) = self.lines.get(&key) {
            return *line;
        }
        let line = self.all.get(id as usize)?.code.line(frame);
        if self.lines.len() >= MOST_LINES {
            self.lines.clear();
        }
        self.lines.insert(key, line);
        line
    }
}
