// SPDX-License-Identifier: Apache-2.0
// COLD
//! The slots through which mapped objects call functions of other ones, and how they are led elsewhere: the loader fills them
//! with addresses, and whoever calls through one reads it anew each time.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::guard::guard;
use crate::loader;

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

/// R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_64: relocations that put a symbol's address into a slot.
#[cfg(target_arch = "x86_64")]
const ADDRESS_SLOTS: &[u32] = &[6, 7, 1];
/// R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_ABS64.
#[cfg(not(target_arch = "x86_64"))]
const ADDRESS_SLOTS: &[u32] = &[1025, 1026, 257];

/// Who leads slots elsewhere. Called with the loader's lock held: no dlopen, no dlsym, no allocation (see `heap`).
pub(crate) trait Rewrite {
    /// Is this object to be looked through? (Its path; empty: the program.)
    fn wants(&mut self, object: &[u8]) -> bool;

    /// What is to stand in the slot of this import that holds `now`; `own`: where the object itself lies (a slot not bound yet
    /// leads there).
    fn replacement(&mut self, name: &[u8], now: usize, own: &Range<u64>) -> Option<usize>;
}

/// Looks through every mapped object. Harmless to repeat.
pub(crate) fn rewrite(mut who: &mut dyn Rewrite) {
    let data: *mut &mut dyn Rewrite = &mut who;
    // SAFETY: the callback only reads the loader's records and writes slots as documented there; `data` outlives the call.
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
    for (table, size) in tables.relocations.into_iter().filter(|t| t.0 != 0) {
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
            // SAFETY: an aligned pointer-sized slot of the object's own, which the loader filled; others read it at the same time.
            let slot = unsafe { &*(slot as *const AtomicUsize) };
            let Some(name) = imported(&tables, symbol) else { continue };
            let now = slot.load(Ordering::Relaxed);
            if let Some(address) = who.replacement(name, now, &own).filter(|a| *a != now) {
                write(slot, address, sealed.as_ref());
            }
        }
    }
}

/// The name of a symbol that the object does not define itself.
fn imported(tables: &Tables, index: usize) -> Option<&'static [u8]> {
    let entry = (tables.symbols as *const libc::Elf64_Sym).wrapping_add(index);
    // SAFETY: an index from the object's own relocations into its own symbol table.
    let symbol = unsafe { entry.read_unaligned() };
    if symbol.st_shndx != UNDEFINED {
        return None;
    }
    // SAFETY: an offset into the object's own string table.
    Some(unsafe { CStr::from_ptr((tables.strings + u64::from(symbol.st_name)) as *const c_char) }.to_bytes())
}

fn write(slot: &AtomicUsize, address: usize, sealed: Option<&Range<u64>>) {
    let at = std::ptr::from_ref(slot) as usize;
    let page = (at & !4095) as *mut c_void;
    let is_sealed = sealed.is_some_and(|r| r.contains(&(at as u64)));
    if is_sealed {
        // SAFETY: one page of the object's own relocated data, which the loader sealed read-only.
        if unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return;
        }
    }
    slot.store(address, Ordering::Release);
    if is_sealed {
        // SAFETY: seals the page again.
        unsafe { libc::mprotect(page, 4096, libc::PROT_READ) };
    }
}
