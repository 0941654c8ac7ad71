// SPDX-License-Identifier: Apache-2.0
// HOT (`site`), WARM (`standing`), COLD (`start`, `decide`)
//! The Python line at a CUDA call: which stack of Python functions the calling thread stands in.
//!
//! * [`layout`]: offsets of CPython 3.8 to 3.15. [`mod@interpreter`]: this process's Python, by
//!   name.
//! * [`check`]: once, at the first call from Python: is it as those say? Else nothing is ever
//!   walked.
//! * [`walk`]: HOT, at a call: a hash of the stack, and its raw frames with the first sight of it.
//!   `memo`: what the last walks found out.
//! * [`sites`]: WARM, on the drain thread: names and lines, by [`code`] and [`lines`], and
//!   PyTorch's modules among them, by [`modules`].
//!
//! Without a GIL we may read the calling thread's own frames only, and only until finalisation
//! begins: after that the interpreter frees the states of threads that are still inside a C call.

mod check;
pub(crate) mod code;
pub(crate) mod interpreter;
pub(crate) mod layout;
mod lines;
mod modules;
pub(crate) mod sites;
pub(crate) mod walk;

use crate::platform::settings;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::OnceLock;

use interpreter::Interpreter;

/// Nothing is walked.
const OFF: u8 = 0;
/// To be decided at the first call from Python.
const UNDECIDED: u8 = 1;
/// Somebody is deciding.
const DECIDING: u8 = 2;
const ON: u8 = 3;

/// What is known of the interpreter, and what was decided by it.
struct Python {
    state: AtomicU8,
    interpreter: OnceLock<Interpreter>,
    version: OnceLock<String>,
    /// What was decided: `python.sites`, `python.check`.
    decided: OnceLock<(String, &'static str)>,
}

static PYTHON: Python = Python {
    state: AtomicU8::new(OFF),
    interpreter: OnceLock::new(),
    version: OnceLock::new(),
    decided: OnceLock::new(),
};

/// The interpreter, where there is one that can be read.
pub(crate) fn interpreter() -> Option<&'static Interpreter> {
    PYTHON.interpreter.get()
}

/// Is there one in this process, as of its first GPU use?
#[inline]
pub(crate) fn is_here() -> bool {
    PYTHON.version.get().is_some()
}

fn off(why: &str) {
    PYTHON.decided.get_or_init(|| (format!("off: {why}"), ""));
    PYTHON.state.store(OFF, Ordering::Release);
}

/// At the first GPU use: which Python is it?
pub(crate) fn start() {
    if settings::get().is_some_and(|s| s.no_sites) {
        off("GAPPROBE_SITES=0");
        return;
    }
    let Some(version) = interpreter::version() else {
        off("no Python in this process at its first GPU use");
        return;
    };
    let version = PYTHON.version.get_or_init(|| version);
    match interpreter::find(version) {
        Ok(found) => {
            let found = PYTHON.interpreter.get_or_init(|| found);
            if walk::prepare(found) {
                PYTHON.state.store(UNDECIDED, Ordering::Release);
            } else {
                off("no memory");
            }
        }
        Err(why) => off(&format!("Python {version}: {why}")),
    }
}

/// The hash of the calling thread's Python stack, for the drain thread; 0 where there is none. Only
/// inside a CUDA call.
#[inline]
pub(crate) fn site() -> u64 {
    let state = PYTHON.state.load(Ordering::Acquire);
    if state == OFF {
        return 0;
    }
    let Some(interpreter) = interpreter() else { return 0 };
    // SAFETY: takes nothing; looks up a thread-local of the interpreter (null where this is no
    // thread of Python's).
    let thread = unsafe { (interpreter.this_thread)() };
    // SAFETY: takes nothing; reads a variable of the interpreter.
    if thread.is_null() || unsafe { (interpreter.finalizing)() } != 0 {
        return 0;
    }
    if state == ON || decide(interpreter, thread) {
        walk::site(interpreter, thread as usize)
    } else {
        0
    }
}

/// The self-check, once.
#[cold]
#[inline(never)]
fn decide(interpreter: &Interpreter, thread: *mut std::ffi::c_void) -> bool {
    if PYTHON.state.compare_exchange(UNDECIDED, DECIDING, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return false;
    }
    let how = match check::check(interpreter, thread) {
        check::Verdict::NoFrames => {
            PYTHON.state.store(UNDECIDED, Ordering::Release);
            return false;
        }
        check::Verdict::Failed(why) => {
            let version = PYTHON.version.get().map_or("", |v| v);
            off(&format!("Python {version}: {why}"));
            return false;
        }
        check::Verdict::Compared => "compared with the interpreter's own frames",
        check::Verdict::Structure => "structure of the frames (no GIL was held)",
    };
    PYTHON.decided.get_or_init(|| ("on".into(), how));
    PYTHON.state.store(ON, Ordering::Release);
    true
}

/// The recording's attributes about it, once it is decided or `at_the_end`.
pub(crate) fn standing(at_the_end: bool) -> Option<Vec<(&'static str, String)>> {
    let decided = match PYTHON.decided.get() {
        Some((sites, check)) => (sites.clone(), *check),
        None if at_the_end => ("off: no call came from Python".into(), ""),
        None => return None,
    };
    let mut all = vec![("python.sites", decided.0)];
    all.extend(PYTHON.version.get().map(|v| ("python.version", v.clone())));
    if !decided.1.is_empty() {
        all.push(("python.check", decided.1.into()));
    }
    Some(all)
}
