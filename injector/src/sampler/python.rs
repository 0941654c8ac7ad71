// SPDX-License-Identifier: Apache-2.0
// WARM
//! The Python in this process, seen from outside: its threads, its global lock, its collector. No
//! function of it that needs its lock is called and none of its memory is trusted: everything is
//! read through `remote`.

use std::ffi::{c_int, c_void, CStr};

use super::remote::{Batch, Child};
use super::stack::Reader;
use crate::platform::memory::{i32_at, is_address, read, u64_at, word};
use crate::sources::python::interpreter::Interpreter;
use crate::sources::python::layout::threads::{
    From, Layout, GC_GENERATIONS, GIL_HOLDER, GIL_LOCKED, GIL_WAITED,
};
use crate::sources::{hostpool, python};

/// Threads of the interpreter that are looked at.
const MOST_THREADS: usize = 512;

/// ... of a child.
const MOST_THREADS_OF_CHILD: usize = 16;

/// Bytes of `_PyRuntime` in which the main interpreter is looked for.
const RUNTIME_HEAD: usize = 1280;

/// A thread of the interpreter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PyThread {
    /// Kernel thread id.
    pub(super) tid: u32,
    /// Its PyThreadState.
    pub(super) state: u64,
    /// Its pthread_t.
    pub(super) thread: u64,
}

/// Who holds the global lock, and is garbage collected: at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Locks {
    /// PyThreadState that holds it; 0: nobody.
    pub(super) holder: u64,
    /// The collector runs.
    pub(super) is_collecting: bool,
}

/// The interpreter.
pub(super) struct Python {
    /// Major and minor version.
    pub(super) version: (u32, u32),
    /// Its frames and code objects.
    pub(super) known: Interpreter,
    /// Where it keeps the rest.
    pub(super) layout: Layout,
    /// The main interpreter's state.
    pub(super) interpreter: u64,
    /// Where a pointer to that lies; 0: not found.
    pub(super) main: u64,
    /// The global lock, where its place was confirmed.
    pub(super) gil: Option<u64>,
    gc: Option<u64>,
    threads: Vec<PyThread>,
    listed_at: u64,
}

/// What was found.
pub(super) enum Search {
    /// No Python in this process, or not started yet.
    None,
    /// One that cannot be read: why.
    Unknown(String),
    /// This.
    Found(Box<Python>),
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; RTLD_DEFAULT looks through the global scope (Python is in the executable
    // or a libpython).
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Major and minor version of "3.12.1".
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Python {
    /// Looks for a running interpreter.
    pub(super) fn find() -> Search {
        let (Some(is_initialized), Some(main)) =
            (symbol(c"Py_IsInitialized"), symbol(c"PyInterpreterState_Main"))
        else {
            return Search::None;
        };
        // SAFETY: CPython's documented signature; reads one word, needs no lock.
        let is_initialized: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(is_initialized) };
        // SAFETY: as above.
        if unsafe { is_initialized() } == 0 {
            return Search::None;
        }
        // SAFETY: as above.
        let main: unsafe extern "C" fn() -> *mut c_void = unsafe { std::mem::transmute(main) };
        // SAFETY: as above.
        let state = unsafe { main() } as u64;
        let Some(known) = python::interpreter() else {
            return Search::Unknown("its frames are not read: see python.sites".into());
        };
        let version = python::interpreter::version().as_deref().and_then(version);
        let (Some(version), Some(runtime)) = (version, symbol(c"_PyRuntime")) else {
            return Search::Unknown("it has no version or no _PyRuntime".into());
        };
        let Some(layout) = Layout::of(version, runtime as u64) else {
            return Search::Unknown(format!("no offsets for the threads of {}.{}", version.0, version.1));
        };
        let mut found = Box::new(Python {
            version,
            layout,
            known: known.clone(),
            interpreter: state,
            main: pointer_to(state, runtime as u64).unwrap_or(0),
            gil: None,
            gc: None,
            threads: Vec::new(),
            listed_at: 0,
        });
        found.list();
        if found.threads.is_empty() {
            return Search::Unknown(format!("threads of {}.{} not found", version.0, version.1));
        }
        let place = |from: From| match from {
            From::Runtime(at) => Some(runtime as u64 + at as u64),
            From::Interpreter(at) => Some(state + at as u64),
            From::Pointer(at) => word(state + at as u64),
            From::Nowhere => None,
        };
        found.gil = place(layout.gil).filter(|gil| found.is_gil(*gil));
        found.gc = place(layout.gc).filter(|gc| is_gc(*gc, &layout));
        Search::Found(found)
    }

    /// One of these layouts, for tests.
    #[cfg(test)]
    pub(super) fn of(version: (u32, u32), known: Interpreter, layout: Layout) -> Python {
        let (gil, gc, threads) = (None, None, Vec::new());
        Python { version, known, layout, interpreter: 0x7000, main: 0, gil, gc, threads, listed_at: 0 }
    }

    /// The same Python in a child where everything of the interpreter's file lies by `bias`
    /// further; `None` where it has not begun.
    pub(super) fn of_child(&self, bias: u64, reader: &mut Reader<Child>) -> Option<Python> {
        let main = self.main.wrapping_add(bias);
        let interpreter = u64_at(&reader.read_one(main, 8)?, 0);
        Some(Python {
            version: self.version,
            known: self.known.moved_by(bias),
            layout: self.layout,
            interpreter,
            main,
            gil: None,
            gc: None,
            threads: Vec::new(),
            listed_at: 0,
        })
    }

    /// Has it begun to end?
    pub(super) fn is_ending(&self) -> bool {
        // SAFETY: CPython's documented signature; reads a variable of the interpreter, needs no
        // lock.
        unsafe { (self.known.finalizing)() != 0 }
    }

    /// What is known of it, for the recording.
    pub(super) fn describe(&self) -> String {
        let known = |what: &str, is: bool| if is { what.to_owned() } else { format!("{what} unknown") };
        let gil = match self.layout.gil {
            From::Nowhere => "no GIL".to_owned(),
            _ => known("GIL", self.gil.is_some()),
        };
        let gc = known("GC", self.gc.is_some());
        format!("{}.{}: frames, {gil}, {gc}", self.version.0, self.version.1)
    }

    /// Is the state of a global lock there: held or not, by nobody or a thread we know?
    fn is_gil(&self, address: u64) -> bool {
        let Some(bytes) = read(address, GIL_WAITED.start as usize) else { return false };
        let holder = u64_at(&bytes, GIL_HOLDER);
        matches!(i32_at(&bytes, GIL_LOCKED), 0 | 1)
            && (holder == 0 || self.threads.iter().any(|t| t.state == holder))
    }

    /// The interpreter's threads anew.
    fn list(&mut self) {
        self.threads.clear();
        let layout = &self.layout;
        let Some(mut next) = word(self.interpreter + layout.threads as u64) else { return };
        let mut batch: Batch = Batch::default();
        for _ in 0..MOST_THREADS {
            batch.clear();
            let Some(slot) = batch.want(next, layout.thread_bytes()) else { return };
            if !batch.read() {
                return;
            }
            let bytes = batch.bytes(slot);
            let (state, thread) = (next, u64_at(bytes, layout.thread));
            if u64_at(bytes, layout.interpreter) != self.interpreter {
                return; // freed while we looked
            }
            next = u64_at(bytes, layout.next);
            let native = layout.native.map(|at| u64_at(bytes, at) as u32);
            // glibc's own descriptor knows the kernel's id; where both are known they agree
            let told = hostpool::tid_offset().and_then(|at| word(thread + at as u64)).map(|w| w as u32);
            let tid = match (native, told) {
                (Some(n), Some(t)) if n != t => continue,
                (native, told) => native.or(told),
            };
            if let Some(tid) = tid.filter(|t| *t != 0) {
                if !self.threads.iter().any(|t| t.tid == tid) {
                    self.threads.push(PyThread { tid, state, thread });
                }
            }
        }
    }

    /// The main thread of the child that this is the Python of.
    pub(super) fn main_thread(&self, pid: u32, reader: &mut Reader<Child>) -> Option<PyThread> {
        let layout = &self.layout;
        let at_tid = hostpool::tid_offset()? as u64;
        let first = reader.read_one(self.interpreter + layout.threads as u64, 8)?;
        let mut state = u64_at(&first, 0);
        // (a worker has one or two besides: what it sends is sent by a thread)
        for _ in 0..MOST_THREADS_OF_CHILD {
            let bytes = reader.read_one(state, layout.thread_bytes())?;
            if u64_at(&bytes, layout.interpreter) != self.interpreter {
                return None;
            }
            let thread = u64_at(&bytes, layout.thread);
            let tid = i32_at(&reader.read_one(thread + at_tid, 4)?, 0) as u32;
            if tid == pid {
                return Some(PyThread { tid, state, thread });
            }
            state = u64_at(&bytes, layout.next);
        }
        None
    }

    /// The interpreter's thread with this kernel id. The list is made anew every second, and where
    /// a thread is missing twice as often.
    pub(super) fn thread(&mut self, tid: u32, now: u64) -> Option<PyThread> {
        self.which(now, |t| t.tid == tid)
    }

    /// The interpreter's thread of this PyThreadState.
    pub(super) fn thread_of(&mut self, state: u64, now: u64) -> Option<PyThread> {
        (state != 0).then(|| self.which(now, |t| t.state == state))?
    }

    fn which(&mut self, now: u64, is: impl Fn(&PyThread) -> bool) -> Option<PyThread> {
        let find = |threads: &[PyThread]| threads.iter().find(|t| is(t)).copied();
        let known = find(&self.threads);
        let age = now.saturating_sub(self.listed_at);
        if age > 1_000_000_000 || (known.is_none() && age > 500_000_000) {
            self.listed_at = now;
            self.list();
            return find(&self.threads);
        }
        known
    }

    /// A thread's state was not what it was: the list is made anew with the next question.
    pub(super) fn distrust(&mut self) {
        self.threads.clear();
        self.listed_at = 0;
    }

    /// Lock and collector now.
    pub(super) fn locks(&self) -> Locks {
        let mut batch: Batch = Batch::default();
        let gil = self.gil.and_then(|at| batch.want(at, GIL_WAITED.start as usize));
        let gc = self.gc.and_then(|at| batch.want(at + self.layout.collecting as u64, 4));
        if !batch.read() {
            return Locks::default();
        }
        let holder = gil.map_or(0, |slot| {
            let bytes = batch.bytes(slot);
            if i32_at(bytes, GIL_LOCKED) == 1 {
                u64_at(bytes, GIL_HOLDER)
            } else {
                0
            }
        });
        Locks { holder, is_collecting: gc.is_some_and(|slot| i32_at(batch.bytes(slot), 0) == 1) }
    }

    /// Is a futex at this address one of the global lock's: who sleeps on it waits for the lock?
    pub(super) fn is_of_gil(&self, futex: u64) -> bool {
        self.gil.is_some_and(|gil| GIL_WAITED.contains(&futex.wrapping_sub(gil)))
    }
}

/// Where near the beginning of `_PyRuntime` (all of it is 1.4 KB in 3.8 and more later) the state
/// of the main interpreter is pointed to.
fn pointer_to(state: u64, runtime: u64) -> Option<u64> {
    let bytes = read(runtime, RUNTIME_HEAD)?;
    let word = bytes.chunks_exact(8).position(|word| word == state.to_le_bytes())?;
    Some(runtime + word as u64 * 8)
}

/// Is the state of a collector there: running or not, on or off, and its pointer to the youngest
/// generation, where there is one, into itself?
fn is_gc(address: u64, layout: &Layout) -> bool {
    let last = layout.collecting.max(layout.generation0.map_or(0, |at| at + 4));
    let Some(bytes) = read(address, last + 4) else { return false };
    let is_flag = |at: usize| matches!(i32_at(&bytes, at), 0 | 1);
    let points_home = |at: usize| u64_at(&bytes, at) == address + GC_GENERATIONS as u64;
    is_address(address)
        && is_flag(layout.collecting)
        && is_flag(layout.enabled)
        && layout.generation0.is_none_or(points_home)
}
