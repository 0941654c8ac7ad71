// SPDX-License-Identifier: Apache-2.0
// WARM
//! PyTorch's modules among the frames of a stack, by the path that `named_modules()` gives them.
//!
//! A module that is called stands in the frame of `Module._wrapped_call_impl` (before 2.1
//! `Module._call_impl`) as its first local, `self`, and a walk takes its address along. Here,
//! without the GIL, its name is read where its parent in the stack keeps it: the key under which it
//! lies in `_modules` of the parent, or of a module below that was not called (`ModuleList`).
//! Another object that has come to lie at the address, or a dictionary that is changed meanwhile,
//! holds no such pointer, and then there is no name. So it is looked up anew in each round of the
//! drain thread in which a stack is used (`sites`; of a model whose modules are too many for that,
//! in every so many rounds): a model that is made again may have its modules where others of the
//! old one lay.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::code::{self, Code};
use super::interpreter::Interpreter;
use super::layout::objects::{Dictionaries, Keys};
use crate::platform::clock;
use crate::platform::memory::{read, u64_at, Reader};

/// Most modules looked through below one, and most entries of a dictionary.
const MOST_MODULES: usize = 4096;
const MOST_ENTRIES: u64 = 8192;
/// Callers remembered at most, and most above one that is called by itself.
const MOST_PARENTS: usize = 65_536;
const MOST_ABOVE: usize = 32;
/// Longest name of a class read, bytes.
const LONGEST_CLASS: usize = 256;
/// In a type: its name, its flags, where its objects have their dictionary.
const TYPE_NAME: u64 = 24;
const TYPE_FLAGS: u64 = 168;
const TYPE_DICTIONARY: u64 = 288;
/// Py_TPFLAGS_DICT_SUBCLASS
const IS_DICTIONARY: u64 = 1 << 29;
/// Py_TPFLAGS_MANAGED_DICT (3.11 and newer): the dictionary lies in front of the object.
const IS_IN_FRONT: u64 = 1 << 4;

/// Does this code belong to the function in whose frame a module is the first local?
pub(super) fn calls_modules(code: &Code) -> Option<Caller> {
    if !code.file.ends_with(b"torch/nn/modules/module.py") {
        return None;
    }
    let name = code.function.rsplit(|b| *b == b'.').next()?;
    match name {
        b"_wrapped_call_impl" => Some(Caller::Wrapper),
        b"_call_impl" => Some(Caller::Itself),
        _ => None,
    }
}

/// What calls a module's forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Caller {
    /// Before 2.1.
    Itself,
    /// From 2.1 on: around [`Caller::Itself`], whose `self` is a cell in later releases.
    Wrapper,
}

/// A module by its way from the outermost one.
pub(super) struct Path {
    /// `blocks.3.attn`; empty: the outermost one itself.
    pub(super) name: Vec<u8>,
    /// Its class.
    pub(super) class: Vec<u8>,
}

/// The modules below one, as far as they were looked through: level by level.
struct Below {
    /// The shortest path of each; its own is an empty one.
    paths: HashMap<u64, Vec<u8>>,
    /// Those whose own children come next.
    next: VecDeque<u64>,
    /// They were too many: what is not among them may lie below it all the same.
    is_cut: bool,
}

/// A module's name, and itself; `None`: what was asked is no module.
type Children = Option<Arc<[(Vec<u8>, u64)]>>;

/// There was no time left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Late;

/// Belongs to the drain thread.
#[derive(Default)]
pub(super) struct Modules {
    /// What was read in this round: what lies below a module; `None`: it is none.
    below: HashMap<u64, Option<Below>>,
    /// ... what modules have in `_modules`.
    children: HashMap<u64, Children>,
    /// Of a module that was called within another one that holds it, that one.
    parents: HashMap<u64, u64>,
    /// Where the text `_modules` lies; 0: not known. (An attribute's name is one object.)
    key: u64,
}

impl Modules {
    /// A round begins: what was read may not be true any more.
    pub(super) fn begin_round(&mut self) {
        self.below.clear();
        self.children.clear();
    }

    /// The last of these modules, which were called within one another, the outermost first. One
    /// that none of those around it holds is an outermost one itself. `None`: it is no module, one
    /// around it is none any more, or one holds more than were looked through. `Err`: that cannot
    /// be told before `until`.
    pub(super) fn path(
        &mut self,
        interpreter: &Interpreter,
        called: &[u64],
        until: u64,
    ) -> Result<Option<Path>, Late> {
        let Some(dictionaries) = interpreter.layout.dictionaries else { return Ok(None) };
        let Modules { below, children, parents, key } = self;
        let mut objects = Objects { interpreter, dictionaries, memory: Reader::default(), children, key };
        // one that is called by itself now, and was called by others before (a checkpoint that is
        // computed again), is below them still
        let mut above = Vec::new();
        while let Some(&parent) = above.last().or(called.first()).and_then(|module| parents.get(module)) {
            if above.len() >= MOST_ABOVE {
                break;
            }
            above.push(parent);
        }
        let mut around: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut is_one_gone = false;
        for (n, &module) in above.iter().rev().chain(called).enumerate() {
            if clock::monotonic() > until {
                return Err(Late);
            }
            if around.last().is_some_and(|(last, _)| *last == module) {
                continue;
            }
            let mut look = |parent| {
                let known = below.entry(parent).or_insert_with(|| objects.below(parent));
                known.as_mut().and_then(|below| objects.path(below, module)).cloned()
            };
            let holder = around.iter().rev().find_map(|(parent, name)| {
                let below = look(*parent)?;
                let dot: &[u8] = if name.is_empty() { b"" } else { b"." };
                Some((*parent, [name, dot, &below].concat()))
            });
            match holder {
                Some((parent, name)) => {
                    if parents.len() >= MOST_PARENTS {
                        parents.clear();
                    }
                    // (the one remembered may have given it away, or had another one there)
                    let known = parents.get(&module).copied();
                    if known.is_none_or(|known| known != parent && look(known).is_none()) {
                        parents.insert(module, parent);
                    }
                    around.push((module, name));
                }
                // (below the one that is gone it had another name)
                None if look(module).is_some() && !is_one_gone => {
                    let is_cut = |(parent, _): &(u64, _)| {
                        below.get(parent).is_some_and(|b| b.as_ref().is_some_and(|b| b.is_cut))
                    };
                    match around.iter().any(is_cut) {
                        true => is_one_gone = true,
                        false => around.push((module, Vec::new())),
                    }
                }
                // it is none, or none any more: one that called it before may be gone for good
                None => is_one_gone |= n >= above.len(),
            }
        }
        let Some((module, name)) = around.pop() else { return Ok(None) };
        let class = objects.class(module).filter(|class| std::str::from_utf8(class).is_ok());
        // what was looked up before may have gone since, with its name and its class: it is what is
        // still a module once both have been read
        let class = class.filter(|_| objects.read_children(module).is_some());
        Ok(class.filter(|_| called.last() == Some(&module)).map(|class| Path { name, class }))
    }
}

/// The interpreter's objects, as far as they can be read.
struct Objects<'a> {
    interpreter: &'a Interpreter,
    dictionaries: Dictionaries,
    memory: Reader,
    children: &'a mut HashMap<u64, Children>,
    key: &'a mut u64,
}

impl Objects<'_> {
    fn type_of(&mut self, object: u64) -> Option<u64> {
        self.memory.word(object.checked_add(self.interpreter.layout.object_type() as u64)?)
    }

    fn class(&mut self, object: u64) -> Option<Vec<u8>> {
        let of_type = self.type_of(object)?;
        let name = self.memory.word(of_type.checked_add(TYPE_NAME)?)?;
        self.memory.string(name, LONGEST_CLASS)
    }

    fn below(&mut self, module: u64) -> Option<Below> {
        self.children(module)?;
        let paths = HashMap::from([(module, Vec::new())]);
        Some(Below { paths, next: VecDeque::from([module]), is_cut: false })
    }

    /// The path of a module below the one that this is of.
    fn path<'b>(&mut self, below: &'b mut Below, module: u64) -> Option<&'b Vec<u8>> {
        while !below.paths.contains_key(&module) {
            let parent = below.next.pop_front()?;
            let path = below.paths.get(&parent)?.clone();
            for (name, child) in self.children(parent).as_deref().unwrap_or_default() {
                let dot: &[u8] = if path.is_empty() { b"" } else { b"." };
                if below.paths.contains_key(child) {
                    continue;
                }
                if below.paths.len() >= MOST_MODULES {
                    below.is_cut = true;
                    break;
                }
                below.paths.insert(*child, [&path, dot, name].concat());
                below.next.push_back(*child);
            }
        }
        below.paths.get(&module)
    }

    /// What a module has in `_modules`; `None`: it is no module.
    fn children(&mut self, module: u64) -> Children {
        if let Some(known) = self.children.get(&module) {
            return known.clone();
        }
        let read: Children = self.read_children(module).map(Into::into);
        self.children.insert(module, read.clone());
        read
    }

    fn read_children(&mut self, module: u64) -> Option<Vec<(Vec<u8>, u64)>> {
        let own = self.own_dictionary(module)?;
        let own = self.entries(own)?;
        let known = *self.key;
        let mut is_it = |key| key == known || self.text(key).is_some_and(|text| text == b"_modules");
        let (key, modules) = match own.iter().find(|(key, _)| *key == known) {
            Some(found) => *found,
            None => *own.iter().find(|(key, _)| is_it(*key))?,
        };
        *self.key = key;
        let entries = self.entries(modules)?;
        Some(entries.into_iter().filter_map(|(key, value)| Some((self.text(key)?, value))).collect())
    }

    fn text(&mut self, at: u64) -> Option<Vec<u8>> {
        code::text(self.interpreter, at, &mut |from, out| self.memory.fill(from, out))
    }

    /// An object's own dictionary.
    fn own_dictionary(&mut self, object: u64) -> Option<u64> {
        let of_type = self.type_of(object)?;
        let is_in_front = self.memory.word(of_type.checked_add(TYPE_FLAGS)?)? & IS_IN_FRONT != 0;
        let at = match self.dictionaries.before_object {
            Some(before) if is_in_front => object.checked_sub(before)?,
            _ => {
                let offset = self.memory.word(of_type.checked_add(TYPE_DICTIONARY)?)?;
                object.checked_add(offset).filter(|_| (16..4096).contains(&offset))?
            }
        };
        // (an odd one is none yet: its values lie elsewhere)
        self.memory.word(at).filter(|d| *d != 0 && d % 8 == 0)
    }

    /// Keys and values of a dictionary.
    fn entries(&mut self, dictionary: u64) -> Option<Vec<(u64, u64)>> {
        let of_type = self.type_of(dictionary)?;
        if self.memory.word(of_type.checked_add(TYPE_FLAGS)?)? & IS_DICTIONARY == 0 {
            return None;
        }
        let keys = self.memory.word(dictionary.checked_add(32)?)?;
        let values = self.memory.word(dictionary.checked_add(40)?)?;
        let table = read(keys, 40)?;
        let word = |at| u64_at(&table, at);
        let (indices, count, is_wide) = match self.dictionaries.keys {
            Keys::Sized => {
                let size = word(8);
                let bytes = match size {
                    0..=0xff => 1,
                    0x100..=0xffff => 2,
                    _ => 4,
                };
                (40 + size.checked_mul(bytes)?, word(32), true)
            }
            Keys::Logarithmic => {
                let [_, bytes, kind, ..] = word(8).to_le_bytes();
                (32 + 1u64.checked_shl(bytes.into())?, word(24), kind == 0)
            }
        };
        let entry = if is_wide { 24 } else { 16 };
        if count == 0 {
            return Some(Vec::new());
        }
        if count > MOST_ENTRIES || indices > MOST_ENTRIES * 16 {
            return None;
        }
        let all = read(keys.checked_add(indices)?, (count * entry) as usize)?;
        let own = match values {
            0 => None,
            at => Some(read(at.checked_add(self.dictionaries.to_values)?, (count * 8) as usize)?),
        };
        let entries = all.chunks_exact(entry as usize).enumerate().map(|(n, e)| {
            let key = if is_wide { u64_at(e, 8) } else { u64_at(e, 0) };
            let value = match &own {
                Some(own) => u64_at(own, 8 * n),
                None => u64_at(e, entry as usize - 8),
            };
            (key, value)
        });
        Some(entries.filter(|(key, value)| *key != 0 && *value != 0).collect())
    }
}
