// SPDX-License-Identifier: Apache-2.0
//! ELF files of 64 bits, little-endian (elf(5)): head, program headers, sections, notes. Nothing
//! here allocates: the injected library reads files while the loader's lock is held.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Kind of a program header: the path of the loader.
pub const PT_INTERP: u32 = 3;
/// Kind of a section: all symbols.
pub const SHT_SYMTAB: u32 = 2;
/// Kind of a section: notes, one of them the build id.
pub const SHT_NOTE: u32 = 7;
/// Kind of a section: the dynamic loader's symbols.
pub const SHT_DYNSYM: u32 = 11;
/// Machine number of x86-64.
pub const EM_X86_64: u16 = 62;
/// Machine number of AArch64.
pub const EM_AARCH64: u16 = 183;
const NT_GNU_BUILD_ID: u64 = 3;
/// Owner and kind of the note in which libgapprobe.so says what it was built from: its version, and
/// after a blank the commit, if that is known; zeros follow.
pub const BUILD_NOTE: (&[u8], u64) = (b"gapprobe\0", 1);

/// Bytes of a file's head.
pub const HEAD: usize = 64;
/// Bytes of a section's header.
pub const SECTION: usize = 64;
const PROGRAM: usize = 56;

/// The little-endian number of `N` bytes (at most 8) at a place; 0 where it ends before.
pub fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let (Some(from), Some(to)) = (bytes.get(at..at + N), word.get_mut(..N)) {
        to.copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}

/// Where what begins like this is an ELF file: its class, 1 for 32 bits, 2 for 64.
pub fn class(head: &[u8]) -> Option<u8> {
    head.strip_prefix(b"\x7fELF")?.first().copied()
}

/// What a file's head says.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// `EM_*`.
    pub machine: u16,
    programs: Headers,
    sections: Headers,
    /// The section that holds the names of all.
    pub names: u64,
}

/// A table of headers in the file.
#[derive(Clone, Copy, Debug)]
struct Headers {
    at: u64,
    size: u64,
    count: u64,
}

impl Headers {
    fn place(&self, n: u64) -> Option<u64> {
        self.at.checked_add(n.checked_mul(self.size)?).filter(|_| self.at != 0)
    }
}

/// A piece of the program as it is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// `PT_*`.
    pub kind: u32,
    /// Where its bytes begin in the file.
    pub at: u64,
    /// How many these are.
    pub length: u64,
}

/// A part of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// `SHT_*`.
    pub kind: u32,
    /// Where its bytes begin in the file.
    pub at: u64,
    /// How many these are.
    pub length: u64,
    /// Of a symbol table: the section of its names.
    pub link: u64,
}

impl Section {
    /// Off the [`SECTION`] bytes of its header.
    pub fn parse(bytes: &[u8]) -> Section {
        Section {
            kind: number::<4>(bytes, 4) as u32,
            at: number::<8>(bytes, 24),
            length: number::<8>(bytes, 32),
            link: number::<4>(bytes, 40),
        }
    }
}

impl Head {
    /// `None` where it is no such file, or cannot be read.
    pub fn read(file: &File) -> Option<Head> {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).ok()?;
        // class 2: 64 bits; data 1: little-endian
        head.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let headers = |at, size, count| Headers {
            at: number::<8>(&head, at),
            size: number::<2>(&head, size),
            count: number::<2>(&head, count),
        };
        let mut sections = headers(40, 58, 60);
        if sections.at != 0 && sections.count == 0 {
            // too many for the head: the first section says how many
            let mut first = [0; SECTION];
            file.read_exact_at(&mut first, sections.at).ok()?;
            sections.count = number::<8>(&first, 32);
        }
        Some(Head {
            machine: number::<2>(&head, 18) as u16,
            programs: headers(32, 54, 56),
            sections,
            names: number::<2>(&head, 62),
        })
    }

    /// Its program headers; `None` in place of one that cannot be read.
    pub fn programs<'a>(&'a self, file: &'a File) -> impl Iterator<Item = Option<Program>> + 'a {
        (0..self.programs.count).map(|n| {
            let mut bytes = [0; PROGRAM];
            let at = self.programs.place(n).filter(|_| self.programs.size >= PROGRAM as u64)?;
            file.read_exact_at(&mut bytes, at).ok()?;
            let kind = number::<4>(&bytes, 0) as u32;
            Some(Program { kind, at: number::<8>(&bytes, 8), length: number::<8>(&bytes, 32) })
        })
    }

    /// Where the headers of its sections lie in the file, and how many these are; `None` where it
    /// has none, or of another size.
    pub fn sections(&self) -> Option<(u64, u64)> {
        let Headers { at, size, count } = self.sections;
        (at != 0 && size == SECTION as u64).then_some((at, count))
    }

    /// The section of this number.
    pub fn section(&self, file: &File, n: u64) -> Option<Section> {
        let (_, count) = self.sections()?;
        let mut bytes = [0; SECTION];
        file.read_exact_at(&mut bytes, self.sections.place(n).filter(|_| n < count)?).ok()?;
        Some(Section::parse(&bytes))
    }
}

/// The build id in the bytes of a table of notes.
pub fn build_id(notes: &[u8]) -> Option<&[u8]> {
    note(notes, (b"GNU\0", NT_GNU_BUILD_ID))
}

/// What the note of this owner and kind holds.
pub fn note<'a>(notes: &'a [u8], (owner, wanted): (&[u8], u64)) -> Option<&'a [u8]> {
    let mut rest = notes;
    while rest.len() >= 12 {
        let [name, length, kind] = [0, 4, 8].map(|at| number::<4>(rest, at));
        let begins = 12usize.checked_add((name as usize).checked_next_multiple_of(4)?)?;
        let ends = begins.checked_add(length as usize)?;
        let content = rest.get(begins..ends)?;
        if kind == wanted && rest.get(12..12 + name as usize) == Some(owner) {
            return Some(content);
        }
        rest = rest.get(ends.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_file_is_read() {
        let file = File::open("/proc/self/exe").unwrap();
        let head = Head::read(&file).unwrap();
        assert_eq!(head.machine, if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 });
        assert!(head.programs(&file).any(|p| p.is_some_and(|p| p.kind == PT_INTERP)));
        let (_, count) = head.sections().unwrap();
        let kinds = (0..count).map(|n| head.section(&file, n).unwrap().kind);
        assert!(kinds.into_iter().any(|kind| kind == SHT_DYNSYM));
        assert!(head.section(&file, count).is_none());
        assert!(Head::read(&File::open("/proc/self/maps").unwrap()).is_none());
    }

    #[test]
    fn the_build_id_is_the_note_of_that_name_and_kind() {
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let padded = |bytes: &[u8]| {
                let mut all = bytes.to_vec();
                all.resize(bytes.len().next_multiple_of(4), 0);
                all
            };
            let head = [name.len() as u32, content.len() as u32, kind].map(u32::to_le_bytes).concat();
            [head, padded(name), padded(content)].concat()
        };
        let other = note(b"GNU\0", 1, &[1; 16]);
        let id = note(b"GNU\0", 3, &[0xab, 0xcd, 0xef]);
        assert_eq!(build_id(&[other.clone(), id.clone()].concat()), Some(&[0xab, 0xcd, 0xef][..]));
        assert_eq!(build_id(&note(b"Go\0\0", 3, &[1])), None, "somebody else's kind 3");
        assert_eq!(build_id(&other), None);
        assert_eq!(build_id(&id[..14]), None, "cut");
        assert_eq!(build_id(&[0xff; 24]), None, "lengths beyond everything");
    }
}
