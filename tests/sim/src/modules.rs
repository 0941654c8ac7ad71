// SPDX-License-Identifier: Apache-2.0
//! Kernels: their names, durations, and the memory in which CUPTI's name pointers live and die.
//!
//! A name lives as long as its module. By default its memory outlives the process;
//! SIM_FAULT=name=unmapped unmaps it when the module is unloaded, name=reused writes another name
//! over it, name=null hands out NULL.

use crate::foreign::lock;
use crate::gpu::{index, tag};
use crate::settings::settings;
use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::{Arc, Mutex};

/// Duration of a kernel whose name states none.
const DEFAULT_NS: u64 = 10_000;
/// One page per name, so that one can be unmapped alone.
const PAGE: usize = 4096;

/// One kernel.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) duration: u64,
    name_at: usize,
    module: usize,
}

impl Function {
    /// What a record's name field holds.
    pub(crate) fn name_pointer(&self) -> usize {
        if settings().fault_is("name", "null") {
            0
        } else {
            self.name_at
        }
    }

    /// The name for callbacks, which always see live memory.
    pub(crate) fn symbol(&self) -> *const c_char {
        self.name_at as *const c_char
    }
}

struct Table {
    functions: Vec<Arc<Function>>,
    /// Host stub pointers of programs that never registered them.
    stubs: HashMap<usize, usize>,
    loaded: Vec<bool>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn with<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    let mut table = lock(&TABLE);
    // Module 0 is the program's own code: it is never unloaded.
    work(table.get_or_insert_with(|| Table {
        functions: Vec::new(),
        stubs: HashMap::new(),
        loaded: vec![true],
    }))
}

fn keep_name(name: &str) -> usize {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh anonymous mapping; the name is cut to fit it with its NUL.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return 0;
        }
        std::ptr::copy_nonoverlapping(name.as_ptr(), at.cast(), name.len().min(PAGE - 1));
        at as usize
    }
}

fn add(table: &mut Table, name: &str, duration: u64, module: usize) -> usize {
    let function = Function { name: name.into(), duration, name_at: keep_name(name), module };
    table.functions.push(Arc::new(function));
    table.functions.len() - 1
}

/// Registers a kernel of the program itself; its handle, also usable as the host stub pointer of
/// cudaLaunchKernel.
pub(crate) fn register(name: &str, duration: u64) -> usize {
    with(|table| tag::FUNCTION + add(table, name, duration, 0))
}

/// A new module; its handle.
pub(crate) fn load() -> usize {
    with(|table| {
        table.loaded.push(true);
        tag::MODULE + table.loaded.len() - 1
    })
}

/// True for a loaded module.
pub(crate) fn is_loaded(handle: usize) -> bool {
    index(handle, tag::MODULE).is_some_and(|m| with(|t| t.loaded.get(m).copied().unwrap_or(false)))
}

/// Unloads a module: its functions are gone, and their names fare as SIM_FAULT says.
pub(crate) fn unload(handle: usize) {
    let Some(module) = index(handle, tag::MODULE) else { return };
    let (unmap, reuse) = (settings().fault_is("name", "unmapped"), settings().fault_is("name", "reused"));
    with(|table| {
        if let Some(loaded) = table.loaded.get_mut(module) {
            *loaded = false;
        }
        for function in table.functions.iter().filter(|f| f.module == module && f.name_at != 0) {
            let other = b"somebody_elses_memory\0";
            // SAFETY: `name_at` is a mapping of PAGE bytes made by keep_name; the fault wants it
            // gone or overwritten.
            unsafe {
                if unmap {
                    libc::munmap(function.name_at as *mut libc::c_void, PAGE);
                } else if reuse {
                    std::ptr::copy_nonoverlapping(other.as_ptr(), function.name_at as *mut u8, other.len());
                }
            }
        }
    });
}

/// `gemm:250` or `gemm:0.5`: the name, and the duration in µs behind its last colon.
fn split_name(text: &str) -> (&str, u64) {
    match text.rsplit_once(':').map(|(name, us)| (name, us.parse::<f64>())) {
        Some((name, Ok(us))) if us >= 0.0 && !name.is_empty() => (name, (us * 1_000.0) as u64),
        _ => (text, DEFAULT_NS),
    }
}

/// The function of a module by name (one handle a name).
pub(crate) fn find(module_handle: usize, text: &str) -> Option<usize> {
    let module = index(module_handle, tag::MODULE)?;
    with(|table| {
        if !table.loaded.get(module).copied().unwrap_or(false) {
            return None;
        }
        let (name, duration) = split_name(text);
        let same = |f: &Arc<Function>| f.module == module && f.name == name && f.duration == duration;
        let known = table.functions.iter().position(same);
        Some(tag::FUNCTION + known.unwrap_or_else(|| add(table, name, duration, module)))
    })
}

/// The function behind a handle, or behind a host stub pointer, which gets a name of its own. None:
/// unloaded.
pub(crate) fn function(handle: usize) -> Option<Arc<Function>> {
    with(|table| {
        let at = match index(handle, tag::FUNCTION) {
            Some(at) => at,
            None if handle > 0x1_0000_0000 => match table.stubs.get(&handle) {
                Some(at) => *at,
                None => {
                    let at = add(table, &format!("kernel_{handle:x}"), DEFAULT_NS, 0);
                    table.stubs.insert(handle, at);
                    at
                }
            },
            None => return None,
        };
        let found = table.functions.get(at)?;
        table.loaded.get(found.module).copied().unwrap_or(false).then(|| found.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::split_name;

    #[test]
    fn durations_are_read_from_names() {
        assert_eq!(split_name("gemm:250"), ("gemm", 250_000));
        assert_eq!(split_name("gemm:0.5"), ("gemm", 500));
        assert_eq!(split_name("ns::kernel"), ("ns::kernel", 10_000));
        assert_eq!(split_name("plain"), ("plain", 10_000));
    }
}
