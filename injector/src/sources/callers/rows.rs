// SPDX-License-Identifier: Apache-2.0
// HOT (`walk`), WARM (`learn`, `forget`), COLD (`prepare`)
//! What is known about return addresses inside CUDA's libraries: where the next one lies. By these
//! rows a thread walks its own stack from our callback to the function that called CUDA, about ten
//! frames, without reading any table of the libraries.
//!
//! A row is the row of `.eh_frame` at that address, in one word. So each step reads a place that
//! the unwind tables say holds the caller's return address: no word is taken for one because it
//! looks like one. An address without a row ends the walk; the drain thread learns it from a copy
//! of the stack ([`super::captures`]).

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::platform::memory;

/// Return addresses known at most: some twenty for each way through CUDA's libraries and one for
/// each call in the program.
const ROWS: usize = 8192;
/// Places a return address may stand at.
const WAYS: usize = 8;
/// Frames between our callback and CUDA's caller at most: libcupti, libcuda and libcudart have
/// about ten.
pub(super) const MOST_FRAMES: usize = 48;
/// Longest frame of CUDA's libraries, bytes.
const LONGEST_FRAME: u64 = 1 << 20;

/// How a frame is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Row {
    /// To the frame outside of it.
    Frame(Frame),
    /// Not at all: this is outside of CUDA's libraries, the caller.
    Caller,
    /// It has no row that we can follow.
    Refused,
}

/// A function of CUDA's libraries at one of its calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// Its canonical frame address counts from rbp; else from the stack pointer behind the return
    /// address.
    pub(super) from_rbp: bool,
    /// That many bytes up; of a realigned one, down.
    pub(super) offset: u32,
    /// It aligned its stack: from rbp it counts to a word that holds its canonical frame address,
    /// and rbp points to its caller's.
    pub(super) realigned: bool,
    /// So far below the canonical frame address it has put the rbp of its caller; 0: it left that
    /// one alone.
    pub(super) rbp_below: u32,
    /// It is libcudart's.
    pub(super) in_cudart: bool,
}

impl Row {
    const FRAME: u64 = 1;
    const CALLER: u64 = 2;
    const REFUSED: u64 = 3;

    /// Never 0.
    fn pack(self) -> u64 {
        match self {
            Row::Caller => Row::CALLER,
            Row::Refused => Row::REFUSED,
            Row::Frame(f) => {
                Row::FRAME
                    | u64::from(f.from_rbp) << 2
                    | u64::from(f.in_cudart) << 3
                    | u64::from(f.realigned) << 4
                    | u64::from(f.offset) << 8
                    | u64::from(f.rbp_below) << 36
            }
        }
    }

    fn unpack(word: u64) -> Option<Row> {
        match word & 3 {
            Row::FRAME => Some(Row::Frame(Frame {
                from_rbp: word >> 2 & 1 == 1,
                in_cudart: word >> 3 & 1 == 1,
                realigned: word >> 4 & 1 == 1,
                offset: (word >> 8) as u32 & 0x0fff_ffff,
                rbp_below: (word >> 36) as u32 & 0x0fff_ffff,
            })),
            Row::CALLER => Some(Row::Caller),
            Row::REFUSED => Some(Row::Refused),
            _ => None,
        }
    }
}

impl Frame {
    /// One that can be packed, and whose places lie inside of it.
    pub(super) fn checked(self) -> Option<Frame> {
        if self.realigned {
            let fits = (8..=LONGEST_FRAME).contains(&self.offset.into()) && self.offset % 8 == 0;
            return fits.then_some(self);
        }
        let fits = self.offset >= 8 && u64::from(self.offset) <= LONGEST_FRAME && self.offset % 8 == 0;
        let saved = self.rbp_below == 0 || (self.rbp_below >= 16 && self.rbp_below % 8 == 0);
        let inside = self.from_rbp || self.rbp_below <= self.offset;
        (fits && saved && inside && u64::from(self.rbp_below) <= LONGEST_FRAME).then_some(self)
    }
}

/// Where a walk stands: at a return address that has not been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Where on the stack it lies.
    pub(crate) at: u64,
    /// What rbp holds in the function it returns to.
    pub(crate) rbp: u64,
    /// libcudart was seen on the way.
    pub(crate) through_cudart: bool,
}

impl Place {
    /// The return address of the function that this one returns to. `load` reads a word of the
    /// stack.
    #[inline]
    pub(super) fn outward(self, frame: Frame, load: impl Fn(u64) -> Option<u64>) -> Option<Place> {
        let inside = self.at.wrapping_add(8); // the stack pointer behind the call
        if frame.realigned {
            let word = self.rbp.wrapping_sub(u64::from(frame.offset));
            let is_inside = (inside..self.rbp).contains(&word) && self.rbp - inside <= LONGEST_FRAME;
            if !is_inside || self.rbp % 8 != 0 {
                return None;
            }
            let cfa = load(word)?;
            if !(self.rbp + 8..=inside + LONGEST_FRAME).contains(&cfa) || cfa % 8 != 0 {
                return None;
            }
            let (rbp, through_cudart) = (load(self.rbp)?, self.through_cudart | frame.in_cudart);
            return Some(Place { at: cfa - 8, rbp, through_cudart });
        }
        let from = if frame.from_rbp { self.rbp } else { inside };
        let cfa = from.wrapping_add(u64::from(frame.offset));
        let length = cfa.wrapping_sub(inside);
        if !(8..=LONGEST_FRAME).contains(&length) || length % 8 != 0 {
            return None;
        }
        let rbp = match u64::from(frame.rbp_below) {
            0 => self.rbp,
            below if below <= length => load(cfa - below)?,
            _ => return None,
        };
        Some(Place { at: cfa - 8, rbp, through_cudart: self.through_cudart | frame.in_cudart })
    }
}

/// Where a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The return address of the call of CUDA.
    Caller(u64),
    /// At a return address without a row.
    Unknown(Place),
    /// At one that cannot be left, or too deep.
    Refused,
}

/// A return address and its row (0: none). An address stays where it was put; its row may come and
/// go.
#[repr(C)]
struct Entry {
    address: AtomicU64,
    row: AtomicU64,
}

/// All-zero: nothing known.
#[repr(C)]
pub(super) struct Rows([Entry; ROWS]);

static TABLE: AtomicPtr<Rows> = AtomicPtr::new(std::ptr::null_mut());

/// Memory for the rows. COLD, once; `false` where it cannot be had.
pub(super) fn prepare() -> bool {
    let Some(table) = memory::map(size_of::<Rows>(), true) else { return false };
    TABLE.store(table.as_ptr().cast(), Ordering::Release);
    true
}

/// The rows; `None` before [`prepare`].
#[inline]
pub(super) fn rows() -> Option<&'static Rows> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never
    // unmapped; all fields are atomics for which zero is valid.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

impl Rows {
    #[inline]
    fn ways(&self, address: u64) -> &[Entry] {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let from = hash as usize % (ROWS / WAYS) * WAYS;
        self.0.get(from..from + WAYS).unwrap_or(&[])
    }

    /// The row of a return address.
    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<Row> {
        // Acquire pairs with the Release of `learn`: with the address its row is there. Rows are
        // one word each, never torn.
        let entry = self.ways(address).iter().find(|e| e.address.load(Ordering::Acquire) == address)?;
        Row::unpack(entry.row.load(Ordering::Relaxed))
    }

    /// Notes a row. `false`: no room for it. Only the drain thread.
    pub(super) fn learn(&self, address: u64, row: Row) -> bool {
        let ways = self.ways(address);
        let at = |wanted: u64| ways.iter().find(|e| e.address.load(Ordering::Relaxed) == wanted);
        let Some(entry) = at(address).or_else(|| at(0)) else { return false };
        entry.row.store(row.pack(), Ordering::Relaxed);
        entry.address.store(address, Ordering::Release);
        true
    }

    /// Takes the rows away of addresses for which `goes` says so. Only the drain thread.
    pub(super) fn forget(&self, mut goes: impl FnMut(u64, Row) -> bool) {
        for entry in &self.0 {
            let (address, row) = (entry.address.load(Ordering::Relaxed), entry.row.load(Ordering::Relaxed));
            if address != 0 && Row::unpack(row).is_some_and(|row| goes(address, row)) {
                entry.row.store(0, Ordering::Relaxed);
            }
        }
    }

    /// From a return address outwards. `load` reads a word of the stack, which is there.
    #[inline]
    pub(super) fn walk(&self, mut place: Place, load: impl Fn(u64) -> u64) -> End {
        for _ in 0..MOST_FRAMES {
            let address = load(place.at);
            match self.get(address) {
                Some(Row::Frame(frame)) => match place.outward(frame, |at| Some(load(at))) {
                    Some(next) => place = next,
                    None => return End::Refused,
                },
                Some(Row::Caller) => return End::Caller(address),
                Some(Row::Refused) => return End::Refused,
                None => return End::Unknown(place),
            }
        }
        End::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Frame =
        Frame { from_rbp: false, offset: 32, realigned: false, rbp_below: 0, in_cudart: false };
    const REALIGNED: Frame = Frame { from_rbp: true, offset: 8, realigned: true, ..PLAIN };

    fn table() -> Box<Rows> {
        // SAFETY: atomics only, for which zero is valid.
        unsafe { Box::<Rows>::new_zeroed().assume_init() }
    }

    /// A stack at made-up addresses: words by their place.
    fn stack<'a>(words: &'a [(u64, u64)]) -> impl Fn(u64) -> u64 + 'a {
        move |at| words.iter().find(|w| w.0 == at).map_or_else(|| panic!("{at} was read"), |w| w.1)
    }

    #[test]
    fn rows_survive_their_packing() {
        let frame =
            Frame { from_rbp: true, offset: 1 << 20, realigned: false, rbp_below: 1 << 20, in_cudart: true };
        for row in [Row::Caller, Row::Refused, Row::Frame(PLAIN), Row::Frame(frame), Row::Frame(REALIGNED)] {
            assert_eq!(Row::unpack(row.pack()), Some(row));
        }
        assert_eq!(Row::unpack(0), None);
        for (offset, below) in [(0, 0), (12, 0), (16, 8), (16, 24), (1 << 21, 0)] {
            assert_eq!(Frame { offset, rbp_below: below, ..PLAIN }.checked(), None, "{offset} {below}");
        }
    }

    /// 0x10: a plain frame of 32 bytes that saved rbp; 0x20: one that counts from rbp; 0x30: the
    /// caller. Only places that the rows name are read.
    #[test]
    fn a_walk_reads_the_places_that_the_rows_name() {
        let rows = table();
        let start = Place { at: 1000, rbp: 77, through_cudart: false };
        let words = [(1000, 0x10), (1024, 1100), (1032, 0x20), (1112, 0x30), (1104, 5000)];
        assert_eq!(rows.walk(start, stack(&words)), End::Unknown(start));
        assert!(rows.learn(0x10, Row::Frame(Frame { rbp_below: 16, ..PLAIN })));
        let second = Place { at: 1032, rbp: 1100, through_cudart: false };
        assert_eq!(rows.walk(start, stack(&words)), End::Unknown(second));
        let by_rbp = Frame { from_rbp: true, offset: 24, in_cudart: true, ..PLAIN };
        assert!(rows.learn(0x20, Row::Frame(by_rbp)));
        let third = Place { at: 1116, rbp: 1100, through_cudart: true };
        assert_eq!(second.outward(by_rbp, |_| None), None, "not a whole number of words up");
        let by_rbp = Frame { offset: 20, ..by_rbp };
        assert_eq!(second.outward(by_rbp, |_| None), Some(Place { at: 1112, ..third }));
        assert!(rows.learn(0x20, Row::Frame(by_rbp)));
        assert!(rows.learn(0x30, Row::Caller));
        assert_eq!(rows.walk(start, stack(&words)), End::Caller(0x30));
        rows.forget(|address, row| (address, row) == (0x30, Row::Caller));
        assert!(matches!(rows.walk(start, stack(&words)), End::Unknown(Place { at: 1112, .. })));
        assert!(rows.learn(0x30, Row::Refused));
        assert_eq!(rows.walk(start, stack(&words)), End::Refused);
    }

    #[test]
    fn a_frame_that_leads_inwards_or_far_away_is_refused() {
        let rows = table();
        assert!(rows.learn(0x10, Row::Frame(Frame { from_rbp: true, offset: 16, ..PLAIN })));
        for rbp in [0, 900, 991, 1000 + (2 << 20), u64::MAX - 8] {
            let place = Place { at: 1000, rbp, through_cudart: false };
            assert_eq!(rows.walk(place, |_| 0x10), End::Refused, "{rbp}");
        }
        assert!(rows.learn(0x20, Row::Frame(PLAIN)));
        let place = Place { at: 1000, rbp: 0, through_cudart: false };
        assert_eq!(rows.walk(place, |_| 0x20), End::Refused, "a stack without an end");
    }

    #[test]
    fn a_realigned_frame_is_left_by_the_word_that_it_kept() {
        let start = Place { at: 1000, rbp: 1056, through_cudart: false };
        let words = [(1048, 1104), (1056, 7000)];
        let load = |at| words.iter().find(|w| w.0 == at).map(|w| w.1);
        let next = Place { at: 1096, rbp: 7000, through_cudart: false };
        assert_eq!(start.outward(REALIGNED, load), Some(next));
        // its own words must lie in it, and what they say outside of it
        for (rbp, cfa) in
            [(1008, 1104), (0, 1104), (1000 + (2 << 20), 1104), (1056, 1056), (1056, 1101), (1056, 4 << 20)]
        {
            let place = Place { rbp, ..start };
            // ... and nothing is read before the first is known
            let load = |at: u64| {
                assert!(rbp == 1056 && at == 1048, "{at} was read");
                Some(cfa)
            };
            assert_eq!(place.outward(REALIGNED, load), None, "{rbp} {cfa}");
        }
    }

    #[test]
    fn a_full_table_refuses_and_keeps_what_it_has() {
        let rows = table();
        let kept: Vec<u64> = (1..100_000u64).filter(|n| rows.learn(n * 16, Row::Caller)).collect();
        assert!(kept.len() <= ROWS && kept.len() > ROWS / 2, "{}", kept.len());
        assert!(kept.iter().all(|n| rows.get(n * 16) == Some(Row::Caller)));
    }
}
