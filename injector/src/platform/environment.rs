// SPDX-License-Identifier: Apache-2.0
// COLD
//! The environment, read and extended without libc's `getenv`/`setenv`: bash exports its own under
//! those names, and in its constructor phase they are not ready.

use std::ffi::{c_char, CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::memory::Reader;

extern "C" {
    static mut environ: *mut *mut c_char;
}

fn list() -> *mut *mut c_char {
    let variable = &raw const environ;
    // SAFETY: reading the pointer itself; the program may replace it, which is a word-sized store.
    unsafe { ptr::read_volatile(variable) }
}

/// The environment as it was at a call of [`keep`], and at the one before: never freed, since
/// values of both are in use.
struct Kept {
    entries: Vec<CString>,
    _before: Option<&'static Kept>,
}

/// The last of them; null before the first.
static KEPT: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());

fn kept() -> Option<&'static Kept> {
    // SAFETY: null, or what `keep` made and nobody frees.
    unsafe { KEPT.load(Ordering::Acquire).as_ref() }
}

/// How often the environment is read again because it changed meanwhile.
const TRIES: u32 = 100;
/// Most entries that are read, and the longest, bytes: the kernel hands none on that is longer
/// (`MAX_ARG_STRLEN`).
const MOST: usize = 100_000;
const LONGEST: usize = 32 * 4096;

/// From now on, and until called again, the environment is what it is now: another thread of the
/// program may change it, which frees libc's array, whenever we look. So the kernel reads it, until
/// it reads the same twice; where a container forbids that, it is looked at as ever.
pub(crate) fn keep() {
    let mut copied = copy();
    for _ in 0..TRIES {
        let again = copy();
        let is_same = again.is_some() && again == copied;
        copied = again.or(copied);
        if is_same {
            break;
        }
    }
    if let Some(entries) = copied {
        let now = Box::new(Kept { entries, _before: kept() });
        KEPT.store(Box::into_raw(now), Ordering::Release);
    }
}

/// The entries that can be read; `None` where the array cannot be.
fn copy() -> Option<Vec<CString>> {
    let mut reader = Reader::default();
    let text = |pointer| CString::new(reader.string(pointer, LONGEST)?).ok();
    Some(pointers(list() as u64)?.into_iter().filter_map(text).collect())
}

/// The words of the array at `array`, to the null pointer that ends it.
fn pointers(array: u64) -> Option<Vec<u64>> {
    let mut reader = Reader::default();
    let mut all = Vec::new();
    while array != 0 && all.len() < MOST {
        match reader.word(array + 8 * all.len() as u64)? {
            0 => break,
            pointer => all.push(pointer),
        }
    }
    Some(all)
}

fn entries() -> impl Iterator<Item = &'static CStr> {
    let kept = kept().map(|k| k.entries.as_slice());
    let list = if kept.is_none() { list() } else { ptr::null_mut() };
    let mut i = 0;
    let live = std::iter::from_fn(move || {
        if list.is_null() {
            return None;
        }
        // SAFETY: `environ` is an array ended by a null pointer; `i` stops there.
        let entry = unsafe { list.wrapping_add(i).read() };
        if entry.is_null() {
            return None;
        }
        i += 1;
        // SAFETY: entries are C strings that live as long as they are in the environment. Before
        // `keep` only the constructor looks, on the only thread there is; after it this is reached
        // only where the kernel did not read, and then rests on nobody changing it meanwhile.
        Some(unsafe { CStr::from_ptr(entry) })
    });
    kept.into_iter().flatten().map(CString::as_c_str).chain(live)
}

/// The value of a variable, as bytes.
pub(crate) fn get(name: &str) -> Option<&'static [u8]> {
    entries().find_map(|e| e.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The value; `None` where unset or empty.
pub(crate) fn value(name: &str) -> Option<&'static [u8]> {
    get(name).filter(|v| !v.is_empty())
}

/// The value as text; `None` where unset, empty or not UTF-8.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    std::str::from_utf8(value(name)?).ok()
}

/// The value as a path, which need not be UTF-8; `None` where unset or empty.
pub(crate) fn path(name: &str) -> Option<&'static Path> {
    value(name).map(|v| Path::new(OsStr::from_bytes(v)))
}

/// Names of variables that begin with `prefix`; those that are not UTF-8 are left out.
pub(crate) fn names(prefix: &'static str) -> impl Iterator<Item = &'static str> {
    let named = |e: &'static CStr| std::str::from_utf8(e.to_bytes().split(|b| *b == b'=').next()?).ok();
    entries().filter_map(named).filter(move |n| n.starts_with(prefix))
}

/// Adds `NAME=value` (C strings, which must live for ever) to the environment of this process and
/// its children. What had one of these names goes. The array is replaced by a longer copy, as
/// libc's own `setenv` does. Only from the constructor: other threads there are at most those of
/// another tool's constructors.
pub(crate) fn add(new: &[*mut c_char]) {
    change(new, &[]);
}

/// The same, and takes away what has one of the names `gone`.
pub(crate) fn change(new: &[*mut c_char], gone: &[&str]) {
    let name = |entry: &CStr| entry.to_bytes().split(|b| *b == b'=').next().map(<[u8]>::to_vec);
    let stays = |old: &&CStr| {
        let is_gone = |g: &&str| name(old).as_deref() == Some(g.as_bytes());
        // SAFETY: C strings, as said above.
        !new.iter().any(|n| name(unsafe { CStr::from_ptr(*n) }) == name(old)) && !gone.iter().any(is_gone)
    };
    let mut list: Vec<*mut c_char> = entries().filter(stays).map(|e| e.as_ptr().cast_mut()).collect();
    list.extend_from_slice(new);
    list.push(ptr::null_mut());
    let variable = &raw mut environ;
    // SAFETY: one pointer-sized store of a complete array, which lives as long as the process.
    unsafe { ptr::write_volatile(variable, list.leak().as_mut_ptr()) };
}
