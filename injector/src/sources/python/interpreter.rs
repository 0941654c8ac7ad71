// SPDX-License-Identifier: Apache-2.0
// COLD
//! The Python interpreter of this process: its functions and types by name, its version, its
//! layout. It may be static in the executable or a libpython: whatever the global scope has.
//! Nothing of it is called here but `Py_GetVersion`.

use std::ffi::{c_char, c_int, c_void, CStr};

use super::layout::frames::Layout;
use crate::platform::memory::{read_string, word};

/// A function that takes nothing and returns a pointer.
pub(crate) type Pointer = unsafe extern "C" fn() -> *mut c_void;
/// A function from one object to another.
pub(crate) type Step = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
/// A function that takes nothing and returns an `int`.
pub(crate) type Int = unsafe extern "C" fn() -> c_int;
/// A function that takes an object.
pub(crate) type Take = unsafe extern "C" fn(*mut c_void);
/// A function from an object to an `int`.
pub(crate) type IntOf = unsafe extern "C" fn(*mut c_void) -> c_int;

/// In a type object, and what an object's head has more in this build: its name, its size without
/// items, its deallocator.
const TYPE_NAME: u64 = 24;
const TYPE_SIZE: u64 = 32;
const TYPE_DEALLOCATE: usize = 48;

/// What the walk needs.
#[derive(Clone)]
pub(crate) struct Interpreter {
    /// Offsets.
    pub(crate) layout: Layout,
    /// `PyGILState_GetThisThreadState`: the calling thread's state, also while it has released the
    /// GIL.
    pub(crate) this_thread: Pointer,
    /// Has finalisation begun?
    pub(crate) finalizing: Int,
    /// `&PyCode_Type`.
    pub(crate) code_type: usize,
    /// `&PyUnicode_Type`.
    pub(crate) str_type: u64,
    /// `&PyBytes_Type`.
    pub(crate) bytes_type: u64,
    /// For comparing, where the GIL is held.
    pub(crate) api: Option<Api>,
}

/// The interpreter's own view of a thread's frames; only with the GIL.
#[derive(Clone)]
pub(crate) struct Api {
    /// The thread state that is current: the calling thread's own only while it holds the GIL.
    pub(crate) current: Pointer,
    /// The innermost frame: a new reference (`PyThreadState_GetFrame`, 3.9).
    pub(crate) frame: Step,
    /// The next outer frame: a new reference.
    pub(crate) back: Step,
    /// Its code: a new reference.
    pub(crate) code: Step,
    /// Its line.
    pub(crate) line: IntOf,
    /// Gives a reference back.
    pub(crate) release: Take,
    /// The cyclic collector off and on (3.10): before 3.12 making a frame object could start it,
    /// and with it finalizers.
    pub(crate) collector: Option<(Int, Int)>,
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; RTLD_DEFAULT looks through the global scope.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// The function of this name as `$type`.
macro_rules! function {
    ($name:literal as $type:ty) => {
        symbol($name).map(|at| {
            // SAFETY: CPython's documented signature of the function of that name.
            unsafe { std::mem::transmute::<*mut c_void, $type>(at) }
        })
    };
}

/// An address in the object that is the interpreter (the program, or libpython), where there is
/// one.
pub(crate) fn address() -> Option<u64> {
    symbol(c"Py_GetVersion").map(|at| at as u64)
}

/// The version's text: "3.12.1".
pub(crate) fn version() -> Option<String> {
    let get = function!(c"Py_GetVersion" as unsafe extern "C" fn() -> *const c_char)?;
    // SAFETY: takes nothing and returns a C string of its own; needs no GIL and no initialised
    // interpreter (documented).
    let text = unsafe { get() };
    if text.is_null() {
        return None;
    }
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    Some(text.split_whitespace().next()?.to_owned())
}

fn number(text: Option<&str>) -> u32 {
    let digits = text.unwrap_or("").split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

/// The interpreter of `version`, or why its frames are not read.
pub(crate) fn find(version: &str) -> Result<Interpreter, String> {
    let mut parts = version.split('.');
    let (major, minor) = (number(parts.next()), number(parts.next()));
    let hex = symbol(c"Py_Version").map_or(0, |at| {
        // SAFETY: `const unsigned long Py_Version` (3.11 and newer).
        unsafe { at.cast::<u64>().read() }
    });
    let runtime = symbol(c"_PyRuntime").map_or(0, |at| at as u64);
    let layout = Layout::of(major, minor, hex as u32, runtime)?;
    let missing = |name: &str| format!("it has no {name}");
    let type_at = |name: &CStr, called: &[u8]| {
        let at = symbol(name).ok_or_else(|| missing(&name.to_string_lossy()))? as u64;
        let its = word(at + TYPE_NAME + layout.head as u64).and_then(read_string);
        (its.as_deref() == Some(called))
            .then_some(at)
            .ok_or_else(|| "its types are laid out otherwise".to_owned())
    };
    let code_type = type_at(c"PyCode_Type", b"code")?;
    if word(code_type + TYPE_SIZE + layout.head as u64) != Some(layout.code_size as u64) {
        return Err("its code objects are of another size".into());
    }
    let finalizing = function!(c"Py_IsFinalizing" as Int).or_else(|| function!(c"_Py_IsFinalizing" as Int));
    Ok(Interpreter {
        layout,
        this_thread: function!(c"PyGILState_GetThisThreadState" as Pointer)
            .ok_or_else(|| missing("PyGILState_GetThisThreadState"))?,
        finalizing: finalizing.ok_or_else(|| missing("Py_IsFinalizing"))?,
        code_type: code_type as usize,
        str_type: type_at(c"PyUnicode_Type", b"str")?,
        bytes_type: type_at(c"PyBytes_Type", b"bytes")?,
        api: api(),
    })
}

fn api() -> Option<Api> {
    let current = function!(c"PyThreadState_GetUnchecked" as Pointer)
        .or_else(|| function!(c"_PyThreadState_UncheckedGet" as Pointer))?;
    Some(Api {
        current,
        frame: function!(c"PyThreadState_GetFrame" as Step)?,
        back: function!(c"PyFrame_GetBack" as Step)?,
        code: function!(c"PyFrame_GetCode" as Step)?,
        line: function!(c"PyFrame_GetLineNumber" as IntOf)?,
        release: function!(c"Py_DecRef" as Take)?,
        collector: function!(c"PyGC_Disable" as Int).zip(function!(c"PyGC_Enable" as Int)),
    })
}

impl Interpreter {
    /// Where the type of code objects keeps the pointer to its name, which lies in the
    /// interpreter's file, too.
    pub(crate) fn name_of_code_type(&self) -> u64 {
        self.code_type as u64 + TYPE_NAME + self.layout.head as u64
    }

    /// The same in a process where everything of the interpreter's file lies by so much further.
    pub(crate) fn moved_by(&self, bias: u64) -> Interpreter {
        let by = |at: u64| at.wrapping_add(bias);
        let code_type = by(self.code_type as u64) as usize;
        Interpreter {
            code_type,
            str_type: by(self.str_type),
            bytes_type: by(self.bytes_type),
            ..self.clone()
        }
    }

    /// Where the type of code objects keeps its deallocator.
    pub(crate) fn deallocator(&self) -> *mut c_void {
        (self.code_type + TYPE_DEALLOCATE + self.layout.head) as *mut c_void
    }
}
