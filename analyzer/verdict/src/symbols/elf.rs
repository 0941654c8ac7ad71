// SPDX-License-Identifier: Apache-2.0
//! The functions at some addresses of an ELF file, read off its symbol tables piece by piece: a
//! module has up to gigabytes, and this runs inside the traced process. What is held is one piece
//! and what was found; what is read is bounded by [`Limit`].

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use spool::elf::{build_id, number, Head, Section, SECTION, SHT_DYNSYM, SHT_NOTE, SHT_SYMTAB};

use super::Symbol;

/// What may be spent on a file.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Bytes of symbol tables. A table that is larger is as good as not there.
    pub bytes: u64,
    /// Until when; what is not found then stays unknown.
    pub until: Option<Instant>,
}

impl Limit {
    /// None.
    pub const NONE: Limit = Limit { bytes: u64::MAX, until: None };
}

/// Read at once, bytes.
const PIECE: usize = 64 << 10;
/// Sections and notes looked at, and bytes of a name: more has no file that a linker made.
const MOST_SECTIONS: u64 = 1 << 14;
const LONGEST_NOTES: u64 = 4096;
const LONGEST_NAME: u64 = 16 << 10;

const SYMBOL: usize = 24;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// A file of x86-64's form.
pub(super) struct Elf {
    file: File,
    sections: Vec<Section>,
    /// Bytes read so far.
    read: u64,
}

/// A function as its table says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    begins: u64,
    length: u64,
    /// Where its name begins in the file, and where the names end.
    name: (u64, u64),
}

impl Function {
    /// How far an address is from its bytes; 0: it is one of them.
    fn distance(&self, address: u64) -> u64 {
        let last = self.begins.saturating_add(self.length - 1);
        self.begins.saturating_sub(address).max(address.saturating_sub(last))
    }

    /// Is it the better one of two that an address lies in: the inner one; of two for the same
    /// bytes the first?
    fn is_inside_of(&self, other: Option<Function>) -> bool {
        other.is_none_or(|o| (self.begins, o.length) > (o.begins, self.length))
    }
}

/// Functions around an address, all of a file where it has few: what a thread asks again and again
/// is answered without reading the file's tables again.
#[derive(Debug)]
pub struct Nearby {
    around: u64,
    /// So far from there everything is known.
    reach: u64,
    functions: Vec<Function>,
}

/// Functions kept of a file at most.
const MOST_NEARBY: usize = 16_384;

impl Default for Nearby {
    fn default() -> Nearby {
        Nearby::around(0)
    }
}

impl Nearby {
    fn around(address: u64) -> Nearby {
        Nearby { around: address, reach: u64::MAX, functions: Vec::new() }
    }

    fn add(&mut self, function: Function) {
        if self.functions.len() >= MOST_NEARBY {
            self.keep_the_nearer_half();
        }
        if function.distance(self.around) <= self.reach {
            self.functions.push(function);
        }
    }

    fn keep_the_nearer_half(&mut self) {
        let around = self.around;
        let mut distances: Vec<u64> = self.functions.iter().map(|f| f.distance(around)).collect();
        let (_, middle, _) = distances.select_nth_unstable(MOST_NEARBY / 2);
        self.reach = middle.saturating_sub(1);
        let reach = self.reach;
        self.functions.retain(|f| f.distance(around) <= reach);
        if reach == 0 {
            // however many there are at the very address
            self.functions = self.find(around).into_iter().collect();
        }
    }

    /// Is it known here whether a function is at this address?
    pub fn covers(&self, address: u64) -> bool {
        self.around.abs_diff(address) <= self.reach
    }

    pub(super) fn find(&self, address: u64) -> Option<Function> {
        let mut best = None;
        for function in self.functions.iter().filter(|f| f.distance(address) == 0) {
            if function.is_inside_of(best) {
                best = Some(*function);
            }
        }
        best
    }
}

impl Elf {
    /// `None` where it is no such file.
    pub(super) fn open(path: &Path) -> Option<Elf> {
        let mut elf = Elf { file: File::open(path).ok()?, sections: Vec::new(), read: 0 };
        let (table, count) = Head::read(&elf.file)?.sections()?;
        let mut sections = Vec::new();
        let end = table.checked_add(count.min(MOST_SECTIONS) * SECTION as u64)?;
        elf.pieces(table, end, SECTION, None, |section| sections.push(Section::parse(section)))?;
        elf.sections = sections;
        Some(elf)
    }

    /// The build id, empty where it has none.
    pub(super) fn build_id(&mut self) -> Vec<u8> {
        let notes: Vec<Section> = self.sections.iter().filter(|s| s.kind == SHT_NOTE).copied().collect();
        notes.into_iter().find_map(|s| self.id_in(s)).unwrap_or_default()
    }

    fn id_in(&mut self, notes: Section) -> Option<Vec<u8>> {
        let mut bytes = vec![0; notes.length.min(LONGEST_NOTES) as usize];
        self.fill(notes.at, &mut bytes)?;
        build_id(&bytes).map(<[u8]>::to_vec)
    }

    /// The functions whose bytes these addresses lie in: the innermost of several; of two for the
    /// same bytes the first. In time for all tables or for none.
    pub(super) fn functions(&mut self, addresses: &[u64], limit: Limit) -> Vec<Option<Symbol>> {
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        let address = |n: &usize| addresses.get(*n).copied().unwrap_or(0);
        order.sort_unstable_by_key(address);
        let mut best: Vec<Option<Function>> = vec![None; addresses.len()];
        let done = self.each_function(limit, |function| {
            let first = order.partition_point(|n| address(n) < function.begins);
            for n in order.iter().skip(first).take_while(|n| function.distance(address(n)) == 0) {
                if let Some(place) = best.get_mut(*n).filter(|place| function.is_inside_of(**place)) {
                    *place = Some(function);
                }
            }
        });
        match done {
            Some(()) => best.into_iter().map(|b| self.symbol(b?)).collect(),
            None => vec![None; addresses.len()],
        }
    }

    /// The functions around an address; `None` where there was no time.
    pub(super) fn nearby(&mut self, address: u64, limit: Limit) -> Option<Nearby> {
        let mut nearby = Nearby::around(address);
        let done = self.each_function(limit, |function| nearby.add(function));
        let is_late = done.is_none() && limit.until.is_some_and(|until| Instant::now() > until);
        (!is_late).then_some(nearby)
    }

    /// The function at an address that `nearby` covers.
    pub(super) fn at(&mut self, address: u64, nearby: &Nearby) -> Option<Symbol> {
        self.symbol(nearby.find(address)?)
    }

    /// All functions, in the order of the tables; `None`: no time, or they cannot be read.
    fn each_function(&mut self, limit: Limit, mut each: impl FnMut(Function)) -> Option<()> {
        let mut left = limit.bytes;
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let Some(table) = self.sections.iter().find(|s| s.kind == kind).copied() else { continue };
            let names = usize::try_from(table.link).ok().and_then(|link| self.sections.get(link)).copied();
            let Some(names) = names.filter(|_| table.length <= left) else { continue };
            left -= table.length;
            let end = table.at.checked_add(table.length)?;
            let names_end = names.at.checked_add(names.length)?;
            self.pieces(table.at, end, SYMBOL, limit.until, |symbol| {
                let kind = number::<1>(symbol, 4) as u8 & 15;
                let (name, begins, length) =
                    (number::<4>(symbol, 0), number::<8>(symbol, 8), number::<8>(symbol, 16));
                if matches!(kind, STT_FUNC | STT_GNU_IFUNC) && name != 0 && length != 0 {
                    each(Function { begins, length, name: (names.at.saturating_add(name), names_end) });
                }
            })?;
        }
        Some(())
    }

    fn symbol(&mut self, function: Function) -> Option<Symbol> {
        let (from, end) = function.name;
        let end = end.min(from.checked_add(LONGEST_NAME)?);
        let mut name: Vec<u8> = Vec::new();
        while from + (name.len() as u64) < end {
            let mut piece = [0; 256];
            let at = from + name.len() as u64;
            let length = (end - at).min(piece.len() as u64) as usize;
            self.fill(at, piece.get_mut(..length)?)?;
            let text = piece.get(..length)?;
            if let Some(whole) = text.iter().position(|b| *b == 0) {
                name.extend_from_slice(text.get(..whole)?);
                let name = String::from_utf8(name).ok().filter(|n| !n.is_empty())?;
                return Some(Symbol { name, begins: function.begins });
            }
            name.extend_from_slice(text);
        }
        None
    }

    /// Hands over what lies between these places, so many bytes at once. `None`: cannot be read, or
    /// no time.
    fn pieces(
        &mut self,
        from: u64,
        end: u64,
        size: usize,
        until: Option<Instant>,
        mut each: impl FnMut(&[u8]),
    ) -> Option<()> {
        let mut buffer = vec![0; PIECE.min(end.checked_sub(from)? as usize) / size * size];
        let mut at = from;
        while end - at >= size as u64 {
            if until.is_some_and(|until| Instant::now() > until) {
                return None;
            }
            let length = (end - at).min(buffer.len() as u64) as usize / size * size;
            self.fill(at, buffer.get_mut(..length)?)?;
            buffer.get(..length)?.chunks_exact(size).for_each(&mut each);
            at += length as u64;
        }
        Some(())
    }

    fn fill(&mut self, at: u64, to: &mut [u8]) -> Option<()> {
        self.file.read_exact_at(to, at).ok()?;
        self.read += to.len() as u64;
        Some(())
    }
}

#[cfg(test)]
mod tests;
