// SPDX-License-Identifier: Apache-2.0
// WARM
//! Which modules were loaded where, at a moment: the loader's own list, copied while it holds
//! still. Whether an address meant the same module a moment ago is told by the loader's two counts,
//! of modules ever added and ever removed.

use std::ffi::{c_int, c_void, CStr};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::platform::guard::guard;
use crate::platform::{loader, memory};

/// Modules looked at most; beyond that there are no callers.
const MAX_MODULES: usize = 8192;
/// Tables of notes looked at, of a module.
const NOTES: usize = 4;

/// The loader's counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// Whose code a module is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The driver, CUPTI: never the caller.
    Cuda,
    /// The runtime as a library: neither.
    Cudart,
    /// The program, or a library that uses CUDA.
    Program,
}

/// A module as it is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Module {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) base: u64,
    /// Its file as the loader names it; the program's own is empty there, and is its link in /proc
    /// here.
    pub(super) path: Vec<u8>,
    /// Where `.eh_frame_hdr` is; 0: it has none.
    pub(super) unwind: u64,
    /// In hex; empty where it has none.
    pub(super) build_id: String,
    /// It is there for as long as the process: the program itself, and what was loaded with it.
    pub(super) permanent: bool,
    /// What tells two files of one name apart where there is no build id: inode and times.
    pub(super) file: [i64; 4],
}

impl Module {
    pub(super) fn kind(&self) -> Kind {
        kind(self.path.rsplit(|b| *b == b'/').next().unwrap_or(&[]))
    }
}

/// By the file's name: `libcudart.so.13`, and as wheels rename it, `libcudart-d0da41ae.so.11.0`.
fn kind(name: &[u8]) -> Kind {
    let is = |library: &[u8]| {
        name.strip_prefix(library).is_some_and(|rest| matches!(rest.first(), Some(b'.' | b'-')))
    };
    if is(b"libcudart") {
        return Kind::Cudart;
    }
    let drivers = is(b"libcuda")
        || is(b"libcupti")
        || is(b"libcudadebugger")
        || name.starts_with(b"libnvidia-")
        // what stands between the program and the runtime while windows are used
        // (`duty_cycle/waits.rs`)
        || is(b"libgapprobe");
    if drivers {
        Kind::Cuda
    } else {
        Kind::Program
    }
}

/// What was loaded at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Modules {
    pub(super) counts: Counts,
    list: Vec<Module>,
}

impl Modules {
    /// Which of them holds this address.
    pub(super) fn find(&self, address: u64) -> Option<&Module> {
        let next = self.list.partition_point(|m| m.from <= address);
        self.list.get(next.checked_sub(1)?).filter(|m| address < m.to)
    }

    /// Is this very module there?
    pub(super) fn holds(&self, module: &Module) -> bool {
        self.find(module.from) == Some(module)
    }
}

/// The module an address was in at every moment between two looks at the loader's list at which
/// there was one; `None` where that is not certain.
pub(super) fn certain<'a>(address: u64, before: &'a Modules, after: &'a Modules) -> Option<&'a Module> {
    let (old, new) = (before.find(address), after.find(address));
    let added = after.counts.added.wrapping_sub(before.counts.added);
    let removed = after.counts.removed.wrapping_sub(before.counts.removed);
    match (added, removed) {
        (_, 0) => new,
        (0, _) => old,
        // the only one that came, and the only one that went
        (1, _) if old.is_none() => new,
        (_, 1) if new.is_none() => old,
        // for another one to have been in its place meanwhile, both had to come, and both to go
        _ => new.filter(|m| old == new && (m.permanent || added < 2 || removed < 2)),
    }
}

/// Modules that were loaded with the program; 0: not known.
static AT_START: AtomicU64 = AtomicU64::new(0);

/// In our constructor, before the program's own code: what is loaded is never unloaded, if we came
/// with it.
pub(super) fn remember_start() {
    let now = counts();
    AT_START.store(if now.removed == 0 { now.added } else { 0 }, Ordering::Relaxed);
}

/// The loader's counts now. Allocates nothing: the loader's lock is held.
pub(super) fn counts() -> Counts {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
        guard((), || {
            if let Some(counts) = counts_of(info, size) {
                // SAFETY: `data` is the Counts of `counts`, alive during the walk.
                unsafe { data.cast::<Counts>().write(counts) };
            }
        });
        1
    }
    let mut found = Counts::default();
    // SAFETY: the callback only writes `found`.
    unsafe { loader::walk(first, std::ptr::from_mut(&mut found).cast()) };
    found
}

fn counts_of(info: *const libc::dl_phdr_info, size: usize) -> Option<Counts> {
    if size < std::mem::offset_of!(libc::dl_phdr_info, dlpi_subs) + 8 {
        return None;
    }
    // SAFETY: the loader passes a valid record, long enough to have the field (checked).
    let added = unsafe { (*info).dlpi_adds };
    // SAFETY: as above.
    let removed = unsafe { (*info).dlpi_subs };
    Some(Counts { added, removed })
}

/// A module as the loader's walk shows it; its name is a piece of [`Walk::names`].
struct Raw {
    base: u64,
    from: u64,
    to: u64,
    unwind: u64,
    /// Address and length of its tables of notes, of which one has the build id.
    notes: [(u64, u64); NOTES],
    name: (usize, usize),
}

/// Room that was made before the walk: while it lasts the loader's lock is held, and nothing may be
/// allocated.
struct Walk {
    counts: Counts,
    list: Vec<Raw>,
    names: Vec<u8>,
    full: bool,
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, size: usize, data: *mut c_void) -> c_int {
    guard(1, || {
        // SAFETY: `data` is the Walk of `look`, alive during the walk.
        let walk = unsafe { &mut *data.cast::<Walk>() };
        if let Some(counts) = counts_of(info, size) {
            walk.counts = counts;
        }
        // SAFETY: the loader passes a valid record for the duration of the callback.
        walk.add(unsafe { &*info })
    })
}

impl Walk {
    /// One module. 1: there is no room for it, and the walk ends.
    fn add(&mut self, info: &libc::dl_phdr_info) -> c_int {
        let name: &[u8] = match info.dlpi_name.is_null() {
            true => &[],
            // SAFETY: a C string of the loader's, valid during the callback.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
        };
        if self.list.len() == self.list.capacity() || name.len() > self.names.capacity() - self.names.len() {
            self.full = true;
            return 1;
        }
        let mut raw = Raw {
            base: info.dlpi_addr,
            from: u64::MAX,
            to: 0,
            unwind: 0,
            notes: [(0, 0); NOTES],
            name: (self.names.len(), name.len()),
        };
        self.names.extend_from_slice(name);
        // SAFETY: the loader's own table of that many program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        for header in headers {
            let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
            match header.p_type {
                libc::PT_LOAD => {
                    raw.from = raw.from.min(at);
                    raw.to = raw.to.max(at.saturating_add(header.p_memsz));
                }
                libc::PT_GNU_EH_FRAME => raw.unwind = at,
                libc::PT_NOTE => {
                    if let Some(free) = raw.notes.iter_mut().find(|n| n.1 == 0) {
                        *free = (at, header.p_memsz);
                    }
                }
                _ => {}
            }
        }
        self.list.push(raw);
        0
    }
}

/// What is loaded now. Nothing where the loader does not say, or has too many.
pub(super) fn look() -> Modules {
    let mut room = 256;
    while room <= MAX_MODULES {
        let mut walk = Walk {
            counts: Counts::default(),
            list: Vec::with_capacity(room),
            names: Vec::with_capacity(room * 160),
            full: false,
        };
        // SAFETY: the callback only touches `walk`.
        unsafe { loader::walk(visit, std::ptr::from_mut(&mut walk).cast()) };
        if !walk.full {
            return walk.finish();
        }
        room *= 2;
    }
    Modules::default()
}

impl Walk {
    /// The rest, which needs memory and files; what was unloaded since cannot be read and is left
    /// out.
    fn finish(self) -> Modules {
        let all = 0..self.list.len();
        let mut list: Vec<Module> = all.filter_map(|n| self.module(n, n < self.at_start())).collect();
        list.sort_by_key(|m| m.from);
        Modules { counts: self.counts, list }
    }

    /// How many were loaded with the program: the list is in the order of loading. A preloaded
    /// library stands before libc; one that came later does not know what came with the program.
    fn at_start(&self) -> usize {
        let at = |address: u64| self.list.iter().position(|m| (m.from..m.to).contains(&address));
        let (own, libc) = (at(remember_start as *const () as u64), at(libc::getpid as *const () as u64));
        let preloaded = own.zip(libc).is_some_and(|(own, libc)| own < libc);
        if preloaded {
            AT_START.load(Ordering::Relaxed).max(1) as usize
        } else {
            1
        }
    }

    fn module(&self, number: usize, permanent: bool) -> Option<Module> {
        let raw = self.list.get(number)?;
        let name = self.names.get(raw.name.0..raw.name.0 + raw.name.1)?;
        let path = match name {
            [] if number == 0 => executable()?,
            name => name.to_vec(),
        };
        let build_id = raw.notes.into_iter().find_map(build_id).unwrap_or_default();
        let file = if build_id.is_empty() { signature(&path) } else { [0; 4] };
        let Raw { base, from, to, unwind, .. } = *raw;
        (from < to).then_some(Module { from, to, base, path, unwind, build_id, permanent, file })
    }
}

fn executable() -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    // the thread's own link: the main thread may have ended
    let link = std::fs::read_link("/proc/thread-self/exe").ok()?;
    Some(link.into_os_string().into_vec())
}

fn signature(path: &[u8]) -> [i64; 4] {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(std::ffi::OsStr::from_bytes(path)) {
        Ok(m) => [m.ino() as i64, m.mtime(), m.mtime_nsec(), m.ctime()],
        Err(_) => [0; 4],
    }
}

fn build_id((at, length): (u64, u64)) -> Option<String> {
    let notes = memory::read(at, usize::try_from(length).ok().filter(|n| (16..=4096).contains(n))?)?;
    Some(spool::elf::build_id(&notes)?.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_found_by_its_addresses() {
        let modules = look();
        assert_eq!(modules.counts, counts());
        let here = modules.find(what_is_loaded_is_found_by_its_addresses as *const () as u64).unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!((here.path.as_slice(), here.kind()), (own.to_str().unwrap().as_bytes(), Kind::Program));
        assert!(here.unwind > here.from && here.unwind < here.to && here.permanent);
        let libc = modules.find(libc::getpid as *const () as u64).unwrap();
        assert!(libc.path.ends_with(b"libc.so.6") && !libc.build_id.is_empty(), "{libc:?}");
        assert!(modules.holds(libc) && !modules.holds(&Module { base: 1, ..libc.clone() }));
        assert!(modules.find(8).is_none() && modules.find(u64::MAX).is_none());
    }

    #[test]
    fn cudas_libraries_are_known_by_their_names() {
        for (name, expected) in [
            ("libcuda.so.1", Kind::Cuda),
            ("libcuda.so.550.54.14", Kind::Cuda),
            ("libcupti.so.13", Kind::Cuda),
            ("libnvidia-ptxjitcompiler.so.1", Kind::Cuda),
            ("libcudart.so.12", Kind::Cudart),
            ("libcudart-d0da41ae.so.11.0", Kind::Cudart),
            ("libcudnn.so.9", Kind::Program),
            ("libcudaprogram.so", Kind::Program),
            ("train", Kind::Program),
        ] {
            assert_eq!(kind(name.as_bytes()), expected, "{name}");
        }
    }

    /// Between two looks: what an address was is said only where nothing else can have been there.
    #[test]
    fn an_address_is_certain_where_nothing_came_and_went() {
        let module = |path: &str| Module {
            from: 100,
            to: 200,
            base: 100,
            path: path.into(),
            unwind: 0,
            build_id: String::new(),
            permanent: path == "libc",
            file: [0; 4],
        };
        let at = |added, removed, path: Option<&str>| Modules {
            counts: Counts { added, removed },
            list: path.into_iter().map(module).collect(),
        };
        let found = |before: &Modules, after: &Modules| certain(150, before, after).map(|m| m.path.clone());
        let (a, b) = (Some(b"a".to_vec()), Some(b"b".to_vec()));
        assert_eq!(found(&at(5, 1, Some("a")), &at(5, 1, Some("a"))), a);
        assert_eq!(found(&at(5, 1, None), &at(6, 1, Some("b"))), b, "only loaded");
        assert_eq!(found(&at(5, 1, Some("a")), &at(5, 2, None)), a, "only unloaded");
        assert_eq!(found(&at(5, 1, Some("a")), &at(6, 2, Some("b"))), None, "replaced");
        assert_eq!(found(&at(5, 1, None), &at(6, 2, None)), None, "came and went");
        assert_eq!(found(&at(5, 1, None), &at(6, 2, Some("b"))), b, "the only one that came");
        assert_eq!(found(&at(5, 1, None), &at(7, 2, Some("b"))), None, "one of two that came");
        assert_eq!(found(&at(5, 1, Some("a")), &at(6, 2, None)), a, "the only one that went");
        assert_eq!(found(&at(5, 1, Some("a")), &at(6, 3, None)), None, "one of two that went");
        assert_eq!(
            found(&at(5, 1, Some("a")), &at(6, 2, Some("a"))),
            a,
            "another one came and went elsewhere"
        );
        assert_eq!(found(&at(5, 1, Some("a")), &at(7, 3, Some("a"))), None, "b may have been there between");
        let libc = Some(b"libc".to_vec());
        assert_eq!(found(&at(5, 1, Some("libc")), &at(9, 5, Some("libc"))), libc, "never unloaded");
    }
}
