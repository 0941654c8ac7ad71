// SPDX-License-Identifier: Apache-2.0
// WARM (one writer: whoever holds the recorder's lock, normally the drain thread)
//! The rings of the recording: every track (stream, thread, the recorder itself) is a list of
//! segments from one pool. A track takes free segments while there are any; then the closed segment
//! whose newest event is the oldest of all is written anew. So a busy stream does not shorten a
//! quiet one's memory, and what is left is always the newest part of the run: it is valid from the
//! end of the newest event overwritten ([`Store::valid_from`]).
//!
//! (The first design had one ring of fixed size a stream and a sequence number a slot. One pool of
//! segments keeps more of the run in the same memory, saves 8 bytes an event, and lets the mirror
//! write runs instead of slots.)

pub(crate) mod definitions;
pub(crate) mod image;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use trace::define::{Definition, TrackInfo};
use trace::event::{Event, Kind};
use trace::segment::{
    SegmentHeader, SEGMENT_BYTES, SEGMENT_EVENTS, SEGMENT_PAYLOAD, TRACK_DEFINITIONS, TRACK_OVERFLOW,
    TRACK_RECORDER,
};
use trace::{Header, Loss};

use crate::platform::losses;
use image::Image;

/// Tracks with segments of their own; streams and threads beyond share the overflow track.
pub(crate) const MAX_TRACKS: usize = 512;

/// Bytes of the process's memory that segments have taken so far: they count as resident once they
/// are written.
static TOUCHED: AtomicU64 = AtomicU64::new(0);

/// Of what is resident, this much is the recording's, bytes.
pub(crate) fn touched() -> u64 {
    TOUCHED.load(Ordering::Relaxed)
}

/// A segment being filled.
#[derive(Clone, Copy)]
struct Open {
    index: u32,
    header: SegmentHeader,
}

/// How the recording stood at one time, as far as it had changed: what the file is to be brought
/// to.
pub(crate) struct Snapshot {
    /// How far each changed segment was filled.
    pub(crate) segments: Vec<(u32, SegmentHeader)>,
    /// The header as of then.
    pub(crate) header: Header,
}

/// The writer's side of the image.
pub(crate) struct Store {
    /// The memory itself.
    pub(crate) image: Image,
    /// Definitions made so far.
    pub(crate) dictionary: definitions::Dictionary,
    open: HashMap<u32, Open>,
    tracks: HashMap<TrackInfo, u32>,
    /// Names given to threads by the program.
    thread_names: HashMap<u32, u32>,
    next_free: u32,
    next_number: u64,
    closed: BinaryHeap<Reverse<(u64, u32)>>,
    generations: Vec<u32>,
    definition_segments: u32,
    valid_from: u64,
    recycled: u64,
    overwritten: u64,
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
}

impl Store {
    /// An empty store over `image`.
    pub(crate) fn new(image: Image) -> Store {
        let n = image.segments() as usize;
        Store {
            image,
            dictionary: definitions::Dictionary::default(),
            open: HashMap::new(),
            tracks: HashMap::new(),
            thread_names: HashMap::new(),
            next_free: 0,
            next_number: 1,
            closed: BinaryHeap::new(),
            generations: vec![0; n],
            definition_segments: 0,
            valid_from: 0,
            recycled: 0,
            overwritten: 0,
            dirty: Vec::new(),
            is_dirty: vec![false; n],
        }
    }

    /// End of the newest event that was overwritten, ns; 0 while nothing was.
    pub(crate) fn valid_from(&self) -> u64 {
        self.valid_from
    }

    /// Segments begun so far, from the first of the image on.
    pub(crate) fn begun(&self) -> u32 {
        self.next_free
    }

    /// Segments written anew and events that went with them.
    pub(crate) fn overwritten(&self) -> (u64, u64) {
        (self.recycled, self.overwritten)
    }

    /// A segment for `track`: a free one, else the one whose newest event is oldest. `None` only
    /// where the image is smaller than the open segments.
    fn take_segment(&mut self, track: u32) -> Option<Open> {
        let index = if self.next_free < self.image.segments() {
            self.next_free += 1;
            TOUCHED.fetch_add(SEGMENT_BYTES as u64, Ordering::Relaxed);
            self.next_free - 1
        } else {
            let Reverse((last_end, index)) = self.closed.pop()?;
            self.valid_from = self.valid_from.max(last_end);
            self.image.put_valid_from(self.valid_from);
            self.recycled += 1;
            self.overwritten += SEGMENT_EVENTS as u64;
            index
        };
        let generation = self.generations.get_mut(index as usize)?;
        *generation = generation.wrapping_add(2);
        let header = SegmentHeader {
            generation: *generation,
            track,
            number: self.next_number,
            ..SegmentHeader::default()
        };
        self.next_number += 1;
        self.image.cells(index).begin(&header);
        self.mark_dirty(index);
        Some(Open { index, header })
    }

    fn mark_dirty(&mut self, index: u32) {
        if let Some(d) = self.is_dirty.get_mut(index as usize) {
            if !std::mem::replace(d, true) {
                self.dirty.push(index);
            }
        }
    }

    /// How it stands, as far as it has changed since the last call.
    pub(crate) fn standing(&mut self, header: Header) -> Snapshot {
        for &i in &self.dirty {
            if let Some(d) = self.is_dirty.get_mut(i as usize) {
                *d = false;
            }
        }
        let changed = std::mem::take(&mut self.dirty);
        let segments = changed.into_iter().filter_map(|i| Some((i, self.segment_header(i)?))).collect();
        Snapshot { segments, header }
    }

    /// Says that segments still have to be written to the file, and before others: what refers to
    /// them is newer.
    pub(crate) fn mark_again(&mut self, segments: &[u32]) {
        for &index in segments {
            self.mark_dirty(index);
        }
        let (mut first, rest): (Vec<u32>, Vec<u32>) = self.dirty.iter().partition(|i| segments.contains(i));
        first.extend(rest);
        self.dirty = first;
    }

    /// Adds an event to the track of a stream or thread.
    pub(crate) fn add(&mut self, info: TrackInfo, event: &Event) {
        match self.track_id(info) {
            Some(id) => self.append(id, &[event.encode()], event),
            None => {
                let mut owner = Event::new(Kind::TrackOf, event.start, event.start);
                match info {
                    TrackInfo::Stream { device, context, stream } => {
                        (owner.a, owner.b, owner.c) = (device, context, stream);
                    }
                    TrackInfo::Thread { tid, .. } => (owner.x, owner.a) = (1, tid),
                }
                self.append(TRACK_OVERFLOW, &[owner.encode(), event.encode()], event);
            }
        }
    }

    /// Adds an event of the recorder itself.
    pub(crate) fn add_recorder(&mut self, event: &Event) {
        self.append(TRACK_RECORDER, &[event.encode()], event);
    }

    fn track_id(&mut self, info: TrackInfo) -> Option<u32> {
        let key = match info {
            TrackInfo::Thread { tid, .. } => TrackInfo::Thread { tid, name: 0 },
            stream @ TrackInfo::Stream { .. } => stream,
        };
        if let Some(&id) = self.tracks.get(&key) {
            return Some(id);
        }
        if self.tracks.len() >= MAX_TRACKS {
            losses::add(Loss::TrackOverflow, 1);
            return None;
        }
        let named = match key {
            TrackInfo::Thread { tid, .. } => {
                let name = self.string(&definitions::thread_name(tid));
                TrackInfo::Thread { tid, name }
            }
            stream @ TrackInfo::Stream { .. } => stream,
        };
        let id = self.dictionary.fresh_id();
        self.define(id, Definition::Track(named));
        self.tracks.insert(key, id);
        Some(id)
    }

    /// Names a thread that has a track, as the program calls it; nothing for others.
    pub(crate) fn name_thread(&mut self, tid: u32, name: &[u8]) {
        let Some(&id) = self.tracks.get(&TrackInfo::Thread { tid, name: 0 }) else { return };
        let name = self.string(name);
        if name != 0 && self.thread_names.insert(tid, name) != Some(name) {
            self.define(id, Definition::Track(TrackInfo::Thread { tid, name }));
        }
    }

    fn append(&mut self, track: u32, slots: &[[u64; 4]], event: &Event) {
        let count = slots.len() as u32;
        let mut open = match self.open.get(&track) {
            Some(o) if (o.header.used + count) as usize <= SEGMENT_EVENTS => *o,
            full => {
                if let Some(o) = full.copied() {
                    self.closed.push(Reverse((o.header.last_end, o.index)));
                }
                self.open.remove(&track);
                match self.take_segment(track) {
                    Some(o) => o,
                    None => {
                        losses::add(Loss::TrackOverflow, 1);
                        return;
                    }
                }
            }
        };
        let at = open.header.used as usize * 4;
        let h = &mut open.header;
        h.first_start = if h.used == 0 { event.start } else { h.first_start.min(event.start) };
        h.last_end = h.last_end.max(event.end);
        h.used += count;
        self.image.cells(open.index).append(at, slots.iter().flatten().copied(), h);
        self.open.insert(track, open);
        self.mark_dirty(open.index);
    }

    /// Writes a definition. Definitions are never overwritten; at most an eighth of the image is
    /// theirs.
    pub(crate) fn define(&mut self, id: u32, definition: Definition<'_>) {
        let mut record = [0; trace::define::MAX_RECORD + 8];
        let Some(length) = definition.encode(id, &mut record) else { return };
        let mut open = match self.open.get(&TRACK_DEFINITIONS) {
            Some(o) if o.header.used as usize + length <= SEGMENT_PAYLOAD => *o,
            _ => {
                self.open.remove(&TRACK_DEFINITIONS);
                if self.definition_segments >= (self.image.segments() / 8).max(2) {
                    losses::add(Loss::DefinitionsFull, 1);
                    return;
                }
                match self.take_segment(TRACK_DEFINITIONS) {
                    Some(o) => {
                        self.definition_segments += 1;
                        o
                    }
                    None => return,
                }
            }
        };
        // records are multiples of 4 bytes, words are 8: the word shared with the previous record
        // is written again
        let used = open.header.used as usize;
        let first_word = used / 8;
        let mut bytes = Vec::with_capacity(length + 8);
        if used % 8 == 4 {
            let mut before = [0; 4];
            let offset = Image::offset(open.index) + trace::segment::SEGMENT_HEADER_BYTES + first_word * 8;
            let mut word = [0; 8];
            if trace::Source::read_at(&self.image, offset as u64, &mut word) {
                before.copy_from_slice(word.get(..4).unwrap_or(&[0; 4]));
            }
            bytes.extend_from_slice(&before);
        }
        bytes.extend_from_slice(record.get(..length).unwrap_or(&[]));
        let words = bytes.chunks(8).map(|c| {
            let mut w = [0; 8];
            for (to, from) in w.iter_mut().zip(c) {
                *to = *from;
            }
            u64::from_le_bytes(w)
        });
        open.header.used += length as u32;
        let words: Vec<u64> = words.collect();
        self.image.cells(open.index).append(first_word, words.into_iter(), &open.header);
        self.open.insert(TRACK_DEFINITIONS, open);
        self.mark_dirty(open.index);
    }

    fn segment_header(&self, index: u32) -> Option<SegmentHeader> {
        let mut head = [0; trace::segment::SEGMENT_HEADER_BYTES];
        trace::Source::read_at(&self.image, Image::offset(index) as u64, &mut head)
            .then(|| SegmentHeader::decode(&head))
            .flatten()
    }
}

#[cfg(test)]
mod tests;
