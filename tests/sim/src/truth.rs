// SPDX-License-Identifier: Apache-2.0
//! SIM_TRUTH: what really happened, one JSON object a line, for tests that need exact busy and idle
//! time.
//!
//! Lines go into a shared file mapping as they happen: nothing is lost to SIGKILL, and there is no
//! system call per line. The unused tail of the file is zero bytes until the process ends normally;
//! a reader stops at the first one. An operation's line is written when it is issued, with the
//! start and end it will have: those after the moment of a kill were never played.

use crate::clock;
use crate::foreign::{lock, tid};
use crate::settings::settings;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// More than a program writes that closes all descriptors, the book's among them: only with it the
/// file can grow. (What is not written takes no room on a disk.)
const WINDOW: usize = 64 << 20;

struct Book {
    file: std::fs::File,
    window: *mut u8,
    window_at: u64,
    used: usize,
    line: Vec<u8>,
}

// SAFETY: the mapping is touched only under the mutex that holds the Book.
unsafe impl Send for Book {}

static CLOSED: AtomicBool = AtomicBool::new(false);

fn book() -> Option<&'static Mutex<Book>> {
    static BOOK: OnceLock<Option<Mutex<Book>>> = OnceLock::new();
    BOOK.get_or_init(|| {
        // `%p` is the process id: programs with several processes write one truth each.
        let path = settings().truth.as_ref()?.replace("%p", &std::process::id().to_string());
        let open = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        let mut book = Book {
            file: open.ok()?,
            window: std::ptr::null_mut(),
            window_at: 0,
            used: WINDOW,
            line: Vec::new(),
        };
        let (mono, real) = (clock::now(), clock::realtime());
        book.write(
            format!(
                "{{\"t\":\"meta\",\"pid\":{},\"mono_ns\":{mono},\"real_ns\":{real},\"devices\":{}}}\n",
                std::process::id(),
                settings().devices
            )
            .as_bytes(),
        );
        Some(Mutex::new(book))
    })
    .as_ref()
}

impl Book {
    fn map_next(&mut self) -> bool {
        if !self.window.is_null() {
            // SAFETY: `window` is the mapping made below, of this length.
            unsafe { libc::munmap(self.window.cast(), WINDOW) };
            self.window_at += WINDOW as u64;
            self.window = std::ptr::null_mut();
        }
        if self.file.set_len(self.window_at + WINDOW as u64).is_err() {
            return false;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping of a file that was just given this length.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                WINDOW,
                protection,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                self.window_at as i64,
            )
        };
        if at == libc::MAP_FAILED {
            return false;
        }
        self.window = at.cast();
        self.used = 0;
        true
    }

    fn write(&mut self, line: &[u8]) {
        let mut rest = line;
        while !rest.is_empty() {
            if (self.window.is_null() || self.used == WINDOW) && !self.map_next() {
                return;
            }
            let room = rest.len().min(WINDOW - self.used);
            // SAFETY: `used + room` stays within the mapping of WINDOW bytes.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), self.window.add(self.used), room) };
            self.used += room;
            rest = rest.get(room..).unwrap_or_default();
        }
    }
}

/// True when a truth is asked for and this process may still write it.
pub(crate) fn wanted() -> bool {
    settings().truth.is_some() && !CLOSED.load(Ordering::Relaxed)
}

/// In a forked child: the file is the parent's.
pub(crate) fn leave_to_parent() {
    CLOSED.store(true, Ordering::Relaxed);
}

fn add(format: std::fmt::Arguments<'_>) {
    if !wanted() {
        return;
    }
    if let Some(book) = book() {
        // Formatted under the lock, into the book's own line: thread-locals are gone when exit
        // handlers run.
        let mut book = lock(book);
        let mut line = std::mem::take(&mut book.line);
        line.clear();
        if line.write_fmt(format).is_ok() {
            book.write(&line);
        }
        book.line = line;
    }
}

/// One operation as the device plays it.
pub(crate) struct Op<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) correlation: u32,
    pub(crate) bytes: u64,
    pub(crate) graph: u32,
    pub(crate) node: u64,
}

/// Writes one operation.
pub(crate) fn op(op: &Op<'_>) {
    if wanted() {
        let name = op.name.replace('\\', "\\\\").replace('"', "\\\"");
        add(format_args!(
            "{{\"t\":\"op\",\"kind\":\"{}\",\"name\":\"{name}\",\"dev\":{},\"ctx\":{},\"stream\":{},\"start\":{},\"end\":{},\"corr\":{},\"bytes\":{},\"graph\":{},\"node\":{},\"tid\":{}}}\n",
            op.kind, op.device, op.context, op.stream, op.start, op.end, op.correlation, op.bytes, op.graph, op.node, tid()
        ));
    }
}

/// Writes one outermost call of the program into the driver or the runtime.
pub(crate) fn call(name: &str, start: u64, end: u64, correlation: u32, result: i32) {
    add(format_args!(
        "{{\"t\":\"call\",\"tid\":{},\"name\":\"{name}\",\"start\":{start},\"end\":{end},\"corr\":{correlation},\"ret\":{result}}}\n",
        tid()
    ));
}

/// Writes what a client did to CUPTI.
pub(crate) fn cupti(name: &str, argument: u32, result: i32) {
    add(format_args!(
        "{{\"t\":\"cupti\",\"tid\":{},\"name\":\"{name}\",\"arg\":{argument},\"at\":{},\"ret\":{result}}}\n",
        tid(),
        clock::now()
    ));
}

/// Normal end of the process: one last line, and the file cut to its length.
pub(crate) fn close() {
    if !wanted() {
        return;
    }
    add(format_args!("{{\"t\":\"exit\",\"mono_ns\":{}}}\n", clock::now()));
    CLOSED.store(true, Ordering::Relaxed);
    if let Some(book) = book() {
        let book = lock(book);
        let _ = book.file.set_len(book.window_at + book.used as u64);
    }
}
