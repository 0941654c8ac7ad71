// SPDX-License-Identifier: Apache-2.0
// HOT (events), COLD (registering, naming)
//! The functions that the program's NVTX calls land in, by module and slot. Before the first use of
//! a GPU, in a fork child and where gapprobe is off, events cost one load; registering always
//! answers, since programs keep their handles.
//!
//! Answers are those that a program without a tool gets, where a tool need not choose: a push is
//! `-2` (depth not tracked), a range that is not stored has id 0.

use std::ffi::{c_char, c_int, c_void};

use trace::define::MAX_STRING;

use super::attributes::Attributes;
use super::handles;
use crate::platform::guard::guard;
use crate::platform::lifecycle;
use crate::sources::marks::ranges::{self, Name, Number, Text};

/// `NVTX_NO_PUSH_POP_TRACKING`.
const NOT_TRACKED: c_int = -2;

/// A string as the program passed it to NVTX: null, or ended by a zero. (None of these types is
/// made here: they are what the functions below are called with.)
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Narrow(*const c_char);

/// The same, of `wchar_t`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Wide(*const u32);

/// Attributes as the program passed them: null, or a structure as large as it says.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Event(*const c_void);

/// A domain's handle: whatever the program passed, 0 for the default domain.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Domain(*const c_void);

impl Narrow {
    fn name(self) -> Name {
        // SAFETY: the type's own promise.
        Name::Text(unsafe { Text::narrow(self.0) })
    }

    /// All of it that may be kept. COLD.
    fn whole(self) -> Vec<u8> {
        if self.0.is_null() {
            return Vec::new();
        }
        // SAFETY: the type's own promise.
        let length = unsafe { libc::strnlen(self.0, MAX_STRING) };
        // SAFETY: strnlen looked at these bytes.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), length) }.to_vec()
    }
}

impl Wide {
    fn name(self) -> Name {
        // SAFETY: the type's own promise.
        Name::Text(unsafe { Text::wide(self.0) })
    }

    /// All of it that may be kept. COLD.
    fn whole(self) -> Vec<u8> {
        let mut text = String::new();
        for i in 0..MAX_STRING / 4 {
            // SAFETY: null is not read; else not beyond the zero, where we stop: the type's own
            // promise.
            let unit = if self.0.is_null() { 0 } else { unsafe { self.0.wrapping_add(i).read_unaligned() } };
            if unit == 0 {
                break;
            }
            text.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        text.into_bytes()
    }
}

impl Event {
    /// Hands domain, name and number to a function of `ranges`.
    #[inline]
    fn to<R>(self, domain: u32, f: impl FnOnce(u32, &Name, Option<Number>) -> R) -> R {
        // SAFETY: the type's own promise.
        match unsafe { Attributes::new(self.0) } {
            Some(a) => f(domain, &a.name(), a.number(domain)),
            None => f(domain, &Name::NONE, None),
        }
    }
}

impl Domain {
    fn index(self) -> u32 {
        handles::index(self.0)
    }
}

/// Runs an event's body where somebody records.
#[inline]
#[cfg_attr(feature = "forced-panics", track_caller)]
fn live<R: Copy>(neutral: R, body: impl FnOnce() -> R) -> R {
    match lifecycle::is_live() {
        true => guard(neutral, body),
        false => neutral,
    }
}

/// A push's body.
#[inline]
#[cfg_attr(feature = "forced-panics", track_caller)]
fn pushed(body: impl FnOnce()) -> c_int {
    live((), body);
    NOT_TRACKED
}

extern "C" fn mark_ex(event: Event) {
    live((), || event.to(0, ranges::mark));
}

extern "C" fn mark_a(name: Narrow) {
    live((), || ranges::mark(0, &name.name(), None));
}

extern "C" fn mark_w(name: Wide) {
    live((), || ranges::mark(0, &name.name(), None));
}

extern "C" fn start_ex(event: Event) -> u64 {
    live(0, || event.to(0, ranges::start))
}

extern "C" fn start_a(name: Narrow) -> u64 {
    live(0, || ranges::start(0, &name.name(), None))
}

extern "C" fn start_w(name: Wide) -> u64 {
    live(0, || ranges::start(0, &name.name(), None))
}

extern "C" fn end(id: u64) {
    live((), || ranges::end(id));
}

extern "C" fn push_ex(event: Event) -> c_int {
    pushed(|| event.to(0, ranges::push))
}

extern "C" fn push_a(name: Narrow) -> c_int {
    pushed(|| ranges::push(0, &name.name(), None))
}

extern "C" fn push_w(name: Wide) -> c_int {
    pushed(|| ranges::push(0, &name.name(), None))
}

extern "C" fn pop() -> c_int {
    pushed(|| ranges::pop(0))
}

extern "C" fn domain_mark(domain: Domain, event: Event) {
    live((), || event.to(domain.index(), ranges::mark));
}

extern "C" fn domain_start(domain: Domain, event: Event) -> u64 {
    live(0, || event.to(domain.index(), ranges::start))
}

/// (The id alone tells the range.)
extern "C" fn domain_end(_domain: Domain, id: u64) {
    live((), || ranges::end(id));
}

extern "C" fn domain_push(domain: Domain, event: Event) -> c_int {
    pushed(|| event.to(domain.index(), ranges::push))
}

extern "C" fn domain_pop(domain: Domain) -> c_int {
    pushed(|| ranges::pop(domain.index()))
}

/// Registers; 0 in a fork child and where gapprobe is off.
#[cfg_attr(feature = "forced-panics", track_caller)]
fn registered(name: impl FnOnce() -> Vec<u8>, into: fn(&[u8]) -> u32) -> usize {
    if lifecycle::get() == lifecycle::State::Inert {
        return 0;
    }
    guard(0, || into(&name()) as usize)
}

extern "C" fn register_string_a(_domain: Domain, text: Narrow) -> usize {
    registered(|| text.whole(), handles::string)
}

extern "C" fn register_string_w(_domain: Domain, text: Wide) -> usize {
    registered(|| text.whole(), handles::string)
}

extern "C" fn domain_create_a(name: Narrow) -> usize {
    registered(|| name.whole(), handles::domain)
}

extern "C" fn domain_create_w(name: Wide) -> usize {
    registered(|| name.whole(), handles::domain)
}

/// (Ranges that are still open may end after it, and one of the same name may come again: it
/// stays.)
extern "C" fn domain_destroy(_domain: Domain) {}

extern "C" fn name_thread_a(thread: u32, name: Narrow) {
    guard((), || handles::name_thread(thread, registered(|| name.whole(), handles::string) as u32));
}

extern "C" fn name_thread_w(thread: u32, name: Wide) {
    guard((), || handles::name_thread(thread, registered(|| name.whole(), handles::string) as u32));
}

/// A slot of a module's table, and the function that goes there.
pub(crate) type Slot = (usize, fn() -> *const ());

/// `NvtxCallbackIdCore`.
pub(super) static CORE: [Slot; 13] = [
    (1, || mark_ex as *const ()),
    (2, || mark_a as *const ()),
    (3, || mark_w as *const ()),
    (4, || start_ex as *const ()),
    (5, || start_a as *const ()),
    (6, || start_w as *const ()),
    (7, || end as *const ()),
    (8, || push_ex as *const ()),
    (9, || push_a as *const ()),
    (10, || push_w as *const ()),
    (11, || pop as *const ()),
    (14, || name_thread_a as *const ()),
    (15, || name_thread_w as *const ()),
];

/// `NvtxCallbackIdCore2`.
pub(super) static CORE2: [Slot; 10] = [
    (1, || domain_mark as *const ()),
    (2, || domain_start as *const ()),
    (3, || domain_end as *const ()),
    (4, || domain_push as *const ()),
    (5, || domain_pop as *const ()),
    (10, || register_string_a as *const ()),
    (11, || register_string_w as *const ()),
    (12, || domain_create_a as *const ()),
    (13, || domain_create_w as *const ()),
    (14, || domain_destroy as *const ()),
];
