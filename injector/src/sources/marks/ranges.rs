// SPDX-License-Identifier: Apache-2.0
// HOT (`push`, `pop`, `mark`, `start`, `end`), WARM (`Ranges`)
//! Named ranges, those of include/gapprobe.h and of NVTX: from the program's thread into its ring,
//! and from there, on the drain thread, into events.
//!
//! ```text
//! slot    [time, number, name handle | domain << 32, tag | style << 8 | name slots << 12 | id << 16]
//! follows [24 bytes of the name, tag | bytes << 8]     up to four of them, where the name is no handle
//! ```
//! Slots of one range are published together, so they come out of the ring together. Ranges that
//! are pushed and popped nest within their thread and their domain; those that are started and
//! ended are told by their id, whatever threads do it. After a slot had to be refused (a full ring)
//! the next one stored is preceded by [`TAG_GAP`]: what was open on the thread is then forgotten,
//! else a later pop would end the wrong range.

use std::collections::HashMap;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};

use trace::define::TrackInfo;
use trace::event::{Event, Kind, MARK, OPEN_ENDED, PAYLOAD, PAYLOAD_REAL, PAYLOAD_SIGNED, START_END};
use trace::Loss;

use crate::platform::{lifecycle, losses, ticks};
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::hostpool;
use crate::sources::marks::nvtx::handles;
use crate::sources::marks::program::Capture;
use crate::store::Store;

/// Tags in the kind byte of a ring slot; see [`Tag`].
const TAG_PUSH: u64 = Tag::RangePush as u64;
const TAG_POP: u64 = Tag::RangePop as u64;
const TAG_NAME: u64 = Tag::RangeName as u64;
const TAG_MARK: u64 = Tag::RangeMark as u64;
const TAG_START: u64 = Tag::RangeStart as u64;
const TAG_END: u64 = Tag::RangeEnd as u64;
const TAG_GAP: u64 = Tag::RangeGap as u64;

/// Style bits of a slot.
const HAS_NUMBER: u64 = 1;
const SIGNED: u64 = 2;
const REAL: u64 = 4;
/// Its name found no room (threads beyond the pool): the range keeps its place in the nesting and
/// is not stored.
const NAMELESS: u64 = 8;

/// Slots a name may take, and bytes of it in each.
const NAME_SLOTS: usize = 4;
const SLOT_BYTES: usize = 24;
/// Bytes of a name that are kept.
const NAME_BYTES: usize = NAME_SLOTS * SLOT_BYTES;
/// Open ranges kept in one domain of one thread.
const MAX_DEPTH: usize = 64;
/// Started ranges kept open at a time, and ends that wait for their start.
const MAX_STARTED: usize = 16_384;
/// Stacks kept before those of nothing are dropped (threads come and go).
const MANY_STACKS: usize = 4096;
const ID_BITS: u64 = 48;

/// The domain of include/gapprobe.h: its ranges nest by themselves, and are in no NVTX domain.
pub(crate) const PROGRAM: u32 = u32::MAX;

/// A name's own bytes, cut to what is kept.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl Text {
    const EMPTY: Text = Text { bytes: [0; NAME_BYTES], len: 0 };

    /// # Safety
    /// `at` is null or a C string.
    pub(crate) unsafe fn narrow(at: *const c_char) -> Text {
        let mut text = Text::EMPTY;
        if !at.is_null() {
            // SAFETY: reads up to the zero, and no more than is kept.
            text.len = unsafe { libc::strnlen(at, NAME_BYTES) };
            // SAFETY: strnlen looked at these bytes; they are the program's and do not overlap
            // ours.
            unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), text.bytes.as_mut_ptr(), text.len) };
        }
        text
    }

    /// Of 32-bit characters (`wchar_t`), as UTF-8.
    ///
    /// # Safety
    /// `at` is null or a string of 32-bit characters that ends with a zero.
    pub(crate) unsafe fn wide(at: *const u32) -> Text {
        let mut text = Text::EMPTY;
        if at.is_null() {
            return text;
        }
        for i in 0..NAME_BYTES {
            // SAFETY: not beyond the zero: we stop there.
            let unit = unsafe { at.wrapping_add(i).read_unaligned() };
            if unit == 0 || !text.put(unit) {
                break;
            }
        }
        text
    }

    /// Appends a character; `false` where it has no room.
    fn put(&mut self, unit: u32) -> bool {
        let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
        let mut encoded = [0; 4];
        let encoded = character.encode_utf8(&mut encoded).as_bytes();
        let Some(room) = self.bytes.get_mut(self.len..self.len + encoded.len()) else { return false };
        for (to, from) in room.iter_mut().zip(encoded) {
            *to = *from;
        }
        self.len += encoded.len();
        true
    }
}

/// What a range is called.
pub(crate) enum Name {
    /// A registered string.
    Handle(u32),
    /// Told with the call.
    Text(Text),
}

impl Name {
    /// It has none.
    pub(crate) const NONE: Name = Name::Handle(0);
}

/// A number that came with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    /// As stored: two's complement where negative, IEEE 754 binary64 where real.
    pub(crate) bits: u64,
    /// Style bits.
    pub(crate) style: u64,
}

impl Number {
    pub(crate) fn unsigned(n: u64) -> Number {
        Number { bits: n, style: HAS_NUMBER }
    }

    /// One that is not negative is like any unsigned one.
    pub(crate) fn signed(n: i64) -> Number {
        Number { bits: n as u64, style: if n < 0 { HAS_NUMBER | SIGNED } else { HAS_NUMBER } }
    }

    pub(crate) fn real(n: f64) -> Number {
        Number { bits: n.to_bits(), style: HAS_NUMBER | REAL }
    }
}

/// Stores a range's begin (or a mark). `false`: not stored.
#[inline]
fn begin(tag: u64, domain: u32, name: &Name, number: Option<Number>, id: u64) -> bool {
    let mut slots = [[0u64; SLOT_WORDS]; NAME_SLOTS + 1];
    let (bits, style) = number.map_or((0, 0), |n| (n.bits, n.style));
    let (mut handle, mut used) = (0, 0);
    match name {
        Name::Handle(n) => handle = *n,
        Name::Text(text) => {
            let kept = text.bytes.chunks_exact(SLOT_BYTES).take(text.len.div_ceil(SLOT_BYTES));
            for (slot, piece) in slots.iter_mut().skip(1).zip(kept) {
                for (word, part) in slot.iter_mut().zip(piece.chunks_exact(8)) {
                    *word = part.try_into().map_or(0, u64::from_le_bytes);
                }
                let bytes = (text.len - used * SLOT_BYTES).min(SLOT_BYTES);
                if let Some(last) = slot.last_mut() {
                    *last = TAG_NAME | (bytes as u64) << 8;
                }
                used += 1;
            }
        }
    }
    let (time, place) = (ticks::now(), u64::from(handle) | u64::from(domain) << 32);
    let head =
        |style: u64, used: usize| [time, bits, place, tag | style << 8 | (used as u64) << 12 | id << 16];
    if let Some(first) = slots.first_mut() {
        *first = head(style, used);
    }
    let alone = head(if used == 0 { style } else { style | NAMELESS }, 0);
    slots.get(..=used).is_some_and(|s| hostpool::push_ranges(s, alone, GAP))
}

const GAP: [u64; SLOT_WORDS] = [0, 0, 0, TAG_GAP];

fn one(slot: [u64; SLOT_WORDS]) {
    hostpool::push_ranges(&[slot], slot, GAP);
}

/// A range begins on this thread.
#[inline]
pub(crate) fn push(domain: u32, name: &Name, number: Option<Number>) {
    begin(TAG_PUSH, domain, name, number, 0);
}

/// A range of include/gapprobe.h begins.
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe fn push_plain(name: *const c_char) {
    if lifecycle::is_live() && !name.is_null() {
        // SAFETY: by contract.
        push(PROGRAM, &Name::Text(unsafe { Text::narrow(name) }), None);
    }
}

/// The innermost range of this thread and domain ends.
#[inline]
pub(crate) fn pop(domain: u32) {
    if lifecycle::is_live() {
        one([ticks::now(), 0, u64::from(domain) << 32, TAG_POP]);
    }
}

/// A moment.
#[inline]
pub(crate) fn mark(domain: u32, name: &Name, number: Option<Number>) {
    begin(TAG_MARK, domain, name, number, 0);
}

/// A range begins that any thread may end: its id, 0 where nothing was stored.
#[inline]
pub(crate) fn start(domain: u32, name: &Name, number: Option<Number>) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let id = (LAST.fetch_add(1, Ordering::Relaxed) + 1) & ((1 << ID_BITS) - 1);
    match id != 0 && begin(TAG_START, domain, name, number, id) {
        true => id,
        false => 0,
    }
}

/// The range with this id ends.
#[inline]
pub(crate) fn end(id: u64) {
    if id != 0 && lifecycle::is_live() {
        one([ticks::now(), id, 0, TAG_END]);
    }
}

/// A range that has begun, or a mark.
#[derive(Clone)]
struct Begun {
    tid: u32,
    domain: u32,
    start: u64,
    handle: u32,
    text: Vec<u8>,
    number: u64,
    style: u64,
    depth: u8,
}

/// What the name slots that follow belong to.
enum Naming {
    Pushed(Begun),
    Marked(Begun),
    Started(u64, Begun),
}

/// The ranges of all threads, on their way into the store.
#[derive(Default)]
pub(crate) struct Ranges {
    /// By thread and domain: the open ones, and how many were pushed beyond what is kept.
    stacks: HashMap<(u32, u32), (Vec<Begun>, u32)>,
    started: HashMap<u64, Begun>,
    /// Ends seen before their start (another thread's ring is drained later): time, and rounds
    /// waited.
    ended: HashMap<u64, (u64, u8)>,
    naming: Option<(Naming, u64)>,
}

/// Where ranges go.
pub(crate) struct Sink<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) capture: &'a Capture,
}

impl Sink<'_> {
    fn range(&mut self, begun: &Begun, end: u64, flags: u8) {
        if begun.style & NAMELESS != 0 || !self.capture.covers(begun.start) {
            return;
        }
        let mut e = Event::new(Kind::Range, begun.start, end.max(begun.start));
        e.a = match handles::text(begun.handle) {
            Some(name) => self.store.string(name),
            None => self.store.string(&begun.text),
        };
        if let Some(domain) = handles::text(begun.domain) {
            e.b = self.store.string(domain);
        }
        e.flags = flags;
        if begun.style & HAS_NUMBER != 0 {
            let kind = [(SIGNED, PAYLOAD_SIGNED), (REAL, PAYLOAD_REAL)];
            e.flags |= kind.iter().filter(|k| begun.style & k.0 != 0).fold(PAYLOAD, |f, k| f | k.1);
            e.correlation = begun.number as u32;
            e.c = (begun.number >> 32) as u32;
        }
        e.x = begun.depth;
        self.store.add(TrackInfo::Thread { tid: begun.tid, name: 0 }, &e);
    }
}

impl Ranges {
    /// Takes a ring slot if it is one of ours; `false`: it is not.
    pub(crate) fn take(&mut self, tid: u32, words: [u64; SLOT_WORDS], sink: &mut Sink<'_>) -> bool {
        let [time, number, place, tagged] = words;
        let tag = tagged & 0xff;
        match tag {
            TAG_PUSH | TAG_MARK | TAG_START => {
                let (handle, domain) = (place as u32, (place >> 32) as u32);
                let (style, slots) = (tagged >> 8 & 15, tagged >> 12 & 15);
                let (text, depth) = (Vec::new(), 0);
                let begun = Begun { tid, domain, start: time, handle, text, number, style, depth };
                let naming = match tag {
                    TAG_PUSH => Naming::Pushed(begun),
                    TAG_MARK => Naming::Marked(begun),
                    _ => Naming::Started(tagged >> 16, begun),
                };
                self.name(naming, slots, sink);
            }
            TAG_NAME => {
                if let Some((mut naming, left)) = self.naming.take() {
                    let (Naming::Pushed(b) | Naming::Marked(b) | Naming::Started(_, b)) = &mut naming;
                    let bytes = [time, number, place].map(u64::to_le_bytes);
                    let bytes = bytes.iter().flatten().take((tagged >> 8) as usize & 31);
                    b.text.extend(bytes);
                    self.name(naming, left.saturating_sub(1), sink);
                }
            }
            TAG_POP => self.popped(tid, (place >> 32) as u32, time, sink),
            TAG_END => match self.started.remove(&number) {
                Some(begun) => sink.range(&begun, time, START_END),
                None if self.ended.len() < MAX_STARTED => {
                    self.ended.insert(number, (time, 0));
                }
                None => losses::add(Loss::RangeUnbalanced, 1),
            },
            // their pops will be counted as they come
            TAG_GAP => self.stacks.retain(|key, _| key.0 != tid),
            _ => return false,
        }
        true
    }

    /// Waits for `left` more slots of the name, or goes on.
    fn name(&mut self, naming: Naming, left: u64, sink: &mut Sink<'_>) {
        if left > 0 {
            self.naming = Some((naming, left));
            return;
        }
        match naming {
            Naming::Pushed(mut begun) => {
                let (open, beyond) = self.stacks.entry((begun.tid, begun.domain)).or_default();
                if open.len() < MAX_DEPTH {
                    begun.depth = open.len() as u8;
                    open.push(begun);
                } else {
                    *beyond += 1;
                    losses::add(Loss::RangeTooDeep, 1);
                }
            }
            Naming::Marked(begun) => sink.range(&begun, begun.start, MARK),
            Naming::Started(id, begun) => match self.ended.remove(&id) {
                Some((end, _)) => sink.range(&begun, end, START_END),
                None if self.started.len() < MAX_STARTED => {
                    self.started.insert(id, begun);
                }
                None => losses::add(Loss::RangeTooDeep, 1),
            },
        }
    }

    fn popped(&mut self, tid: u32, domain: u32, end: u64, sink: &mut Sink<'_>) {
        match self.stacks.get_mut(&(tid, domain)) {
            Some((_, beyond)) if *beyond > 0 => *beyond -= 1,
            Some((open, _)) => match open.pop() {
                Some(begun) => sink.range(&begun, end, 0),
                None => losses::add(Loss::RangeUnbalanced, 1),
            },
            None => losses::add(Loss::RangeUnbalanced, 1),
        }
    }

    /// After each round: an end whose start did not come in this one or the next has none. (An end
    /// may be drained one round before its start: the start's ring was looked at before it was
    /// stored, the end's after.)
    pub(crate) fn settle(&mut self) {
        self.ended.retain(|_, (_, rounds)| {
            *rounds += 1;
            let waits = *rounds < 3;
            losses::add(Loss::RangeUnbalanced, u64::from(!waits));
            waits
        });
        if self.stacks.len() > MANY_STACKS {
            self.stacks.retain(|_, (open, beyond)| !open.is_empty() || *beyond > 0);
        }
    }

    /// At the end: ranges still open are stored as such. Where some begins or ends were dropped
    /// nobody knows whether they are: a range that ended would reach to the end of the run.
    pub(crate) fn finish(&mut self, now: u64, sink: &mut Sink<'_>) {
        losses::add(Loss::RangeUnbalanced, self.ended.drain().count() as u64);
        if losses::get(Loss::RangeDropped) > 0 {
            let open = self.stacks.drain().map(|(_, (open, _))| open.len()).sum::<usize>();
            losses::add(Loss::RangeUnbalanced, (open + self.started.drain().count()) as u64);
            return;
        }
        for (_, (open, _)) in self.stacks.drain() {
            open.iter().rev().for_each(|begun| sink.range(begun, now, OPEN_ENDED));
        }
        for (_, begun) in self.started.drain() {
            sink.range(&begun, now, OPEN_ENDED | START_END);
        }
    }
}
