// SPDX-License-Identifier: Apache-2.0
// COLD
//! Clients that find CUPTI by `dlsym` (XLA's plugin, Triton's Proton) do not reach our exported wrappers, and cannot be
//! stepped aside for: measured with JAX 0.11 on the H200, XLA registers its buffers, gets ours back, frees them and
//! dies of `free(): invalid pointer`. So in these libraries, and in no other, the import of `dlsym` is pointed at
//! [`dlsym_of_client`], which hands out our wrappers for the names we wrap and the real thing for all others.

use std::ffi::{c_char, c_int, c_void, CStr};

use crate::guard::guard;
use crate::{exports, neighbours};

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

/// What the clients get for `dlsym`.
unsafe extern "C" fn dlsym_of_client(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the client's own arguments to dlsym.
    let real = unsafe { libc::dlsym(handle, name) };
    if real.is_null() || name.is_null() {
        return real;
    }
    // SAFETY: dlsym just read it as a C string.
    let name = unsafe { CStr::from_ptr(name) };
    // the real function, handed out after a fault of ours, would let the client free our buffers: comparing cannot fail
    guard(None, || Some(wrapper_of(name))).unwrap_or_else(|| wrapper_of(name)).unwrap_or(real)
}

/// Ours for a function of CUPTI's, where there is one.
fn wrapper_of(name: &CStr) -> Option<*mut c_void> {
    let wrapper: *const c_void = match name.to_bytes() {
        b"cuptiSubscribe" => exports::cuptiSubscribe as *const c_void,
        b"cuptiActivityRegisterCallbacks" => exports::cuptiActivityRegisterCallbacks as *const c_void,
        b"cuptiActivityEnable" => exports::cuptiActivityEnable as *const c_void,
        b"cuptiActivityDisable" => exports::cuptiActivityDisable as *const c_void,
        b"cuptiActivityFlushAll" => exports::cuptiActivityFlushAll as *const c_void,
        b"cuptiFinalize" => exports::cuptiFinalize as *const c_void,
        _ => return None,
    };
    Some(wrapper.cast_mut())
}

/// Reroutes `dlsym` in every client library mapped now. Harmless to repeat.
pub(crate) fn clients() {
    // SAFETY: the callback only reads the loader's records and patches slots as documented there.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    guard(1, || {
        // SAFETY: the loader passes a valid record for the duration of the callback.
        let info = unsafe { &*info };
        if info.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: a C string of the loader's.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy();
        if neighbours::DLSYM_CLIENTS.iter().any(|part| name.contains(part)) {
            patch(info);
        }
        0
    })
}

fn patch(info: &libc::dl_phdr_info) {
    let base = info.dlpi_addr;
    // SAFETY: the loader's own table of that many program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return };
    let relro = headers.iter().find(|h| h.p_type == libc::PT_GNU_RELRO).map(|h| {
        let from = base + h.p_vaddr;
        from..from + h.p_memsz
    });
    let mut entry = (base + dynamic.p_vaddr) as *const Dynamic;
    let (mut strings, mut symbols) = (0, 0);
    let (mut tables, mut sizes) = ([0u64; 2], [0u64; 2]);
    let [rela, jmprel] = &mut tables;
    let [rela_size, jmprel_size] = &mut sizes;
    for _ in 0..512 {
        // SAFETY: the dynamic section of a mapped object, ended by DT_NULL.
        let d = unsafe { entry.read() };
        // glibc has already added the base to these addresses; other loaders may not have
        let address = if d.value < base { d.value + base } else { d.value };
        match d.tag {
            DT_NULL => break,
            DT_STRTAB => strings = address,
            DT_SYMTAB => symbols = address,
            DT_RELA => *rela = address,
            DT_RELASZ => *rela_size = d.value,
            DT_JMPREL => *jmprel = address,
            DT_PLTRELSZ => *jmprel_size = d.value,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    if strings == 0 || symbols == 0 {
        return;
    }
    for (table, size) in tables.into_iter().zip(sizes) {
        if table == 0 {
            continue;
        }
        for i in 0..size / size_of::<Relocation>() as u64 {
            let entry = (table as *const Relocation).wrapping_add(i as usize);
            // SAFETY: inside the relocation table whose address and size the dynamic section gave.
            let r = unsafe { entry.read_unaligned() };
            let (symbol, kind) = ((r.info >> 32) as usize, r.info as u32);
            if symbol != 0
                && ADDRESS_SLOTS.contains(&kind)
                && symbol_name(symbols, strings, symbol) == b"dlsym"
            {
                write_slot(base + r.offset, relro.as_ref());
            }
        }
    }
}

fn symbol_name(symbols: u64, strings: u64, index: usize) -> &'static [u8] {
    let entry = (symbols as *const libc::Elf64_Sym).wrapping_add(index);
    // SAFETY: an index from the object's own relocations into its own symbol table.
    let symbol = unsafe { entry.read_unaligned() };
    // SAFETY: an offset into the object's own string table.
    unsafe { CStr::from_ptr((strings + u64::from(symbol.st_name)) as *const c_char) }.to_bytes()
}

fn write_slot(slot: u64, relro: Option<&std::ops::Range<u64>>) {
    let page = slot & !4095;
    let sealed = relro.is_some_and(|r| r.contains(&slot));
    if sealed {
        // SAFETY: one page of the object's own relocated data, which the loader sealed read-only.
        if unsafe { libc::mprotect(page as *mut c_void, 4096, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return;
        }
    }
    // SAFETY: an aligned pointer-sized slot that holds the address of dlsym; readers see the old or the new one.
    unsafe {
        (*(slot as *const std::sync::atomic::AtomicUsize))
            .store(dlsym_of_client as *const () as usize, std::sync::atomic::Ordering::Release)
    };
    if sealed {
        // SAFETY: seals the page again.
        unsafe { libc::mprotect(page as *mut c_void, 4096, libc::PROT_READ) };
    }
}
