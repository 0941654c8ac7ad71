// SPDX-License-Identifier: Apache-2.0
// COLD
//! The slots through which mapped objects call functions of other ones, and how they are led
//! elsewhere: the loader fills them with addresses, and whoever calls through one reads it anew
//! each time.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::guard::guard;
use crate::platform::loader;

const UNDEFINED: u16 = 0;
const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_64: relocations that put a symbol's address into
/// a slot.
#[cfg(target_arch = "x86_64")]
const ADDRESS_SLOTS: &[u32] = &[6, 7, 1];
/// R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_ABS64.
#[cfg(not(target_arch = "x86_64"))]
const ADDRESS_SLOTS: &[u32] = &[1025, 1026, 257];

/// Who leads slots elsewhere. Called with the loader's lock held: no dlopen, no dlsym, no
/// allocation (see `heap`).
pub(crate) trait Rewrite {
    /// Is this object to be looked through? (Its path; empty: the program.)
    fn wants(&mut self, object: &[u8]) -> bool;

    /// What is to stand in the slot of this import that holds `now`; `own`: where the object itself
    /// lies (a slot not bound yet leads there).
    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize>;

    /// As [`Rewrite::replacement`], for a function that the object calls through a slot although it
    /// defines it itself.
    fn replacement_of_own(&mut self, _name: &[u8], _now: usize, _own: &Range<u64>) -> Option<usize> {
        None
    }
}

/// Several of them in one walk: the relocations of a large library take milliseconds to look
/// through.
pub(crate) struct Several<'a, const N: usize> {
    who: [&'a mut dyn Rewrite; N],
    wants: [bool; N],
}

impl<'a, const N: usize> Several<'a, N> {
    pub(crate) fn new(who: [&'a mut dyn Rewrite; N]) -> Several<'a, N> {
        Several { who, wants: [false; N] }
    }
}

impl<const N: usize> Rewrite for Several<'_, N> {
    fn wants(&mut self, object: &[u8]) -> bool {
        for (wants, who) in self.wants.iter_mut().zip(&mut self.who) {
            *wants = who.wants(object);
        }
        self.wants.contains(&true)
    }

    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        let each = self.who.iter_mut().zip(&self.wants).filter(|(_, wants)| **wants);
        each.filter_map(|(who, _)| who.replacement(name, now, own)).next()
    }

    fn replacement_of_own(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize> {
        let each = self.who.iter_mut().zip(&self.wants).filter(|(_, wants)| **wants);
        each.filter_map(|(who, _)| who.replacement_of_own(name, now, own)).next()
    }
}

/// Looks through every mapped object. Harmless to repeat.
pub(crate) fn rewrite(mut who: &mut dyn Rewrite) {
    let data: *mut &mut dyn Rewrite = &mut who;
    // SAFETY: the callback only reads the loader's records and writes slots as documented there;
    // `data` outlives the call.
    unsafe { loader::walk(visit, data.cast()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    guard((), || {
        // SAFETY: the loader passes a valid record for the duration of the callback.
        let info = unsafe { &*info };
        // SAFETY: `rewrite`'s own argument, which nobody else has meanwhile.
        let who = unsafe { &mut *data.cast::<&mut dyn Rewrite>() };
        if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
            return;
        }
        // SAFETY: a C string of the loader's.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        if who.wants(name) {
            look_through(info, *who);
        }
    });
    0
}

/// What the dynamic section of an object says.
#[derive(Default)]
struct Tables {
    strings: u64,
    symbols: u64,
    /// Address and bytes of the relocations: all others, those of calls.
    relocations: [(u64, u64); 2],
}

/// In [`Tables::relocations`].
const CALLS: usize = 1;

fn tables(base: u64, dynamic: &libc::Elf64_Phdr) -> Tables {
    let mut found = Tables::default();
    let [all, calls] = &mut found.relocations;
    let mut entry = (base + dynamic.p_vaddr) as *const Dynamic;
    for _ in 0..dynamic.p_memsz / size_of::<Dynamic>() as u64 {
        // SAFETY: inside the dynamic section of a mapped object, of that many bytes.
        let d = unsafe { entry.read() };
        // glibc has already added the base to these addresses; other loaders may not have
        let address = if d.value < base { d.value + base } else { d.value };
        match d.tag {
            DT_NULL => break,
            DT_STRTAB => found.strings = address,
            DT_SYMTAB => found.symbols = address,
            DT_RELA => all.0 = address,
            DT_RELASZ => all.1 = d.value,
            DT_JMPREL => calls.0 = address,
            DT_PLTRELSZ => calls.1 = d.value,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    found
}

fn look_through(info: &libc::dl_phdr_info, who: &mut dyn Rewrite) {
    let base = info.dlpi_addr;
    // SAFETY: the loader's own table of that many program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return };
    let span = |h: &libc::Elf64_Phdr| base + h.p_vaddr..base + h.p_vaddr + h.p_memsz;
    let sealed = headers.iter().find(|h| h.p_type == libc::PT_GNU_RELRO).map(span);
    let loaded = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD).map(span);
    let own = loaded().map(|s| s.start).min().unwrap_or(0)..loaded().map(|s| s.end).max().unwrap_or(0);
    let tables = tables(base, dynamic);
    if tables.strings == 0 || tables.symbols == 0 {
        return;
    }
    for (n, (table, size)) in tables.relocations.into_iter().enumerate().filter(|(_, t)| t.0 != 0) {
        let is_of_calls = n == CALLS;
        for i in 0..size / size_of::<Relocation>() as u64 {
            let entry = (table as *const Relocation).wrapping_add(i as usize);
            // SAFETY: inside the relocation table whose address and size the dynamic section gave.
            let r = unsafe { entry.read_unaligned() };
            let (symbol, kind) = ((r.info >> 32) as usize, r.info as u32);
            if symbol == 0 || !ADDRESS_SLOTS.contains(&kind) {
                continue;
            }
            let slot = base + r.offset;
            if !own.contains(&slot) || slot % 8 != 0 {
                continue;
            }
            // SAFETY: an aligned pointer-sized slot of the object's own, which the loader filled;
            // others read it at the same time.
            let slot = unsafe { &*(slot as *const AtomicUsize) };
            let Some((name, is_own)) = name_of(&tables, symbol, is_of_calls) else { continue };
            let now = slot.load(Ordering::Relaxed);
            let wanted = match is_own {
                false => who.replacement(name, now, &own),
                true => who.replacement_of_own(name, now, &own),
            };
            if let Some(address) = wanted.filter(|a| *a != now) {
                write(slot, address, sealed.as_ref());
            }
        }
    }
}

/// The name of a symbol, and whether the object defines it itself: `None` then, unless that is
/// asked for (of the addresses in its data there are hundreds of thousands).
fn name_of(tables: &Tables, index: usize, also_own: bool) -> Option<(&'static [u8], bool)> {
    let entry = (tables.symbols as *const libc::Elf64_Sym).wrapping_add(index);
    // SAFETY: an index from the object's own relocations into its own symbol table.
    let symbol = unsafe { entry.read_unaligned() };
    let is_own = symbol.st_shndx != UNDEFINED;
    if is_own && !also_own {
        return None;
    }
    // SAFETY: an offset into the object's own string table.
    let name = unsafe { CStr::from_ptr((tables.strings + u64::from(symbol.st_name)) as *const c_char) };
    Some((name.to_bytes(), is_own))
}

fn write(slot: &AtomicUsize, address: usize, sealed: Option<&Range<u64>>) {
    let at = std::ptr::from_ref(slot) as usize;
    let page = (at & !4095) as *mut c_void;
    let is_sealed = sealed.is_some_and(|r| r.contains(&(at as u64)));
    // An object is in the list before the loader has relocated it, and sealed that page: sealed by
    // us it would be the loader's next store that faults. Sealed between this look and our store it
    // stays open, which does no harm.
    let was_sealed = is_sealed && is_writable(at as u64) == Some(false);
    if is_sealed {
        // SAFETY: one page of the object's own data, which the loader sealed read-only or is about
        // to.
        if unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return;
        }
    }
    slot.store(address, Ordering::Release);
    if was_sealed {
        // SAFETY: seals the page again.
        unsafe { libc::mprotect(page, 4096, libc::PROT_READ) };
    }
}

/// Is the page of this address writable now, as /proc/self/maps says? `None`: it does not say.
/// Allocates nothing: the loader's lock is held.
fn is_writable(address: u64) -> Option<bool> {
    // SAFETY: a C string and flags.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let (mut buffer, mut line) = ([0u8; 4096], Line::default());
    let found = loop {
        // SAFETY: an open descriptor, and a buffer of that many bytes.
        let got = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Some(bytes) = buffer.get(..usize::try_from(got).unwrap_or(0)).filter(|b| !b.is_empty()) else {
            break None;
        };
        if let Some(found) = bytes.iter().find_map(|byte| line.take(*byte, address)) {
            break Some(found);
        }
    };
    // SAFETY: our own descriptor, once.
    unsafe { libc::close(file) };
    found
}

/// A line of /proc/self/maps, byte by byte: `from-to rwxp ...`, in hexadecimal digits.
#[derive(Default)]
struct Line {
    /// How far: 0 the begin, 1 the end, 2 the first letter of what is allowed, 3 its second, 4 the
    /// rest.
    part: u8,
    from: u64,
    to: u64,
}

impl Line {
    /// The next byte; whether the line's pages are writable where `address` is in them.
    fn take(&mut self, byte: u8, address: u64) -> Option<bool> {
        let digit = (byte as char).to_digit(16).map(u64::from);
        match (self.part, byte) {
            (_, b'\n') => *self = Line::default(),
            (0, b'-') | (1, b' ') | (2, _) => self.part += 1,
            (0, _) => self.from = self.from << 4 | digit.unwrap_or(0),
            (1, _) => self.to = self.to << 4 | digit.unwrap_or(0),
            (3, _) => {
                self.part = 4;
                return (self.from..self.to).contains(&address).then_some(byte == b'w');
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_writable_and_pages_that_are_not() {
        static SEALED: [u8; 8] = *b"constant";
        let here = 0u64;
        assert_eq!(is_writable(std::ptr::from_ref(&here) as u64), Some(true));
        assert_eq!(is_writable(SEALED.as_ptr() as u64), Some(false));
        assert_eq!(is_writable(is_writable as *const () as u64), Some(false));
        assert_eq!(is_writable(8), None);
        let text =
            b"1000-2000 r--p 0 08:01 1 /a-b w\n2000-3000 rw-p 0 00:00 0\nf000-ff00 r-xp 0 00:00 0 [x]\n";
        let of = |address| {
            let mut line = Line::default();
            text.iter().find_map(|b| line.take(*b, address))
        };
        assert_eq!(
            [0x1000, 0x1fff, 0x2000, 0x2fff, 0x3000, 0xf800].map(of),
            [Some(false), Some(false), Some(true), Some(true), None, Some(false)]
        );
    }
}
