// SPDX-License-Identifier: Apache-2.0
// WARM
//! The code objects that stacks were found to stand in, each read once. Addresses are used again
//! when code is deleted, so a code object is known by its address and what its head says: from 3.12
//! on a number that no two share, before that also the hash of its name. The same function in
//! several processes (the workers of a DataLoader) is one.

use std::collections::HashMap;
use std::sync::Arc;

use super::python::Python;
use crate::platform::memory::{i32_at, u64_at};
use crate::sources::python::code::{self, Code, Memory};
use crate::sources::python::interpreter::Interpreter;
use crate::sources::python::layout::threads::{Layout, UNICODE_HASH};
use crate::sources::python::walk::RawFrame;

/// A name, kept once.
pub(super) type Text = Arc<[u8]>;

/// Code objects known at most, and bytes they take at most: a program, or its children, may make
/// ever new ones.
const MAX_CODE_OBJECTS: usize = 32_768;
const MOST_BYTES: usize = 16 << 20;
/// Places remembered at most, of this process and of all children.
const MOST_PLACES: usize = 2 * MAX_CODE_OBJECTS;
/// Lines remembered at most.
const MOST_LINES: usize = 65_536;

/// What tells one code object from another at the same address later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    name: u64,
    name_hash: u64,
    file: u64,
    table: u64,
    first_line: i32,
    version: i32,
}

impl Identity {
    /// By the head of a code object.
    fn of(head: &[u8], hash: Option<u64>, known: &Interpreter, layout: &Layout) -> Identity {
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
    code: Arc<Code>,
    function: Text,
    file: Text,
}

/// A process (0: this one), and an address in it.
type Place = (u32, u64);

/// What was read just now of what may be a code object.
pub(super) struct Head<'a> {
    pub(super) place: Place,
    pub(super) bytes: &'a [u8],
    /// What lay at [`Codes::hash_of_name`].
    pub(super) hash: Option<u64>,
}

/// Those seen.
#[derive(Default)]
pub(super) struct Codes {
    all: Vec<Known>,
    bytes: usize,
    at: HashMap<Place, (Identity, u32)>,
    same: HashMap<Arc<Code>, u32>,
    texts: HashMap<Vec<u8>, Text>,
    lines: HashMap<(u32, i64), u32>,
}

/// Bytes of a code object's head.
pub(super) fn head_bytes(known: &Interpreter) -> usize {
    known.layout.table.max(known.layout.name) + 8
}

impl Codes {
    /// Where the name's hash lies of the code object known at this place, if it has to be looked
    /// at.
    pub(super) fn hash_of_name(&self, place: Place, layout: &Layout) -> Option<u64> {
        let (identity, _) = self.at.get(&place)?;
        layout.version.is_none().then_some(identity.name + UNICODE_HASH as u64)
    }

    /// The code object of this head in `memory`, which is the process's that `python` is in. `None`
    /// where it is none, cannot be read, or too many are known.
    pub(super) fn id(&mut self, head: &Head<'_>, python: &Python, memory: &mut Memory<'_>) -> Option<u32> {
        let (known, layout) = (&python.known, &python.layout);
        if u64_at(head.bytes, known.layout.object_type()) != known.code_type as u64 {
            return None;
        }
        let mut identity = Identity::of(head.bytes, head.hash, known, layout);
        if let Some((same, id)) = self.at.get(&head.place) {
            if *same == identity {
                return Some(*id);
            }
        }
        if layout.version.is_none() {
            let mut hash = [0; 8];
            if !memory(identity.name.wrapping_add(UNICODE_HASH as u64), &mut hash) {
                return None;
            }
            identity.name_hash = u64_at(&hash, 0);
        }
        if self.is_full() {
            return None; // not even read: it may be a megabyte, each time anew
        }
        let code = code::read_from(known, head.place.1, memory)?;
        // meanwhile it may have been deleted, and another one made in its place
        let mut again = vec![0; head.bytes.len()];
        let is_read = memory(head.place.1, &mut again);
        if !is_read || Identity::of(&again, Some(identity.name_hash), known, layout) != identity {
            return None;
        }
        let id = match self.same.get(&code) {
            Some(id) => *id,
            None => self.add(code),
        };
        if self.at.len() >= MOST_PLACES {
            self.at.clear();
        }
        self.at.insert(head.place, (identity, id));
        Some(id)
    }

    /// No more can be known.
    fn is_full(&self) -> bool {
        self.all.len() >= MAX_CODE_OBJECTS || self.bytes >= MOST_BYTES
    }

    fn add(&mut self, code: Code) -> u32 {
        self.bytes += code.bytes();
        let (function, file) = (self.shared(&code.function), self.shared(&code.file));
        let (id, code) = (self.all.len() as u32, Arc::new(code));
        self.same.insert(Arc::clone(&code), id);
        self.all.push(Known { code, function, file });
        id
    }

    /// This process runs another program now.
    pub(super) fn forget(&mut self, process: u32) {
        self.at.retain(|(of, _), _| *of != process);
    }

    /// These processes are all there are: what is known of others' addresses is dropped.
    pub(super) fn only_of(&mut self, is_there: impl Fn(u32) -> bool) {
        self.at.retain(|(process, _), _| *process == 0 || is_there(*process));
    }

    /// A code object of this name whose head is all zeroes, for tests.
    #[cfg(test)]
    pub(super) fn know(&mut self, address: u64, function: &str) {
        let none = Identity { name: 0, name_hash: 0, file: 0, table: 0, first_line: 0, version: 0 };
        let function = self.shared(function.as_bytes());
        self.at.insert((0, address), (none, self.all.len() as u32));
        self.all.push(Known { code: Arc::new(Code::empty()), file: Arc::clone(&function), function });
    }

    fn shared(&mut self, text: &[u8]) -> Text {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        self.bytes += 2 * text.len();
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

    /// The line a frame stands in, 0 where its instruction has none; `None`: it stands outside of
    /// this code.
    pub(super) fn line(&mut self, id: u32, frame: &RawFrame) -> Option<u32> {
        let code = &self.all.get(id as usize)?.code;
        let key = (id, code.offset(frame)?);
        if let Some(line) = self.lines.get(&key) {
            return Some(*line);
        }
        let line = code.line_at(key.1);
        if self.lines.len() >= MOST_LINES {
            self.lines.clear();
        }
        self.lines.insert(key, line);
        Some(line)
    }
}
