// SPDX-License-Identifier: Apache-2.0
//! Reads a recording back. Every byte may be wrong: cut off, stale, half overwritten, or made up.
//!
//! Two passes: [`Recording::open`] reads the header, all segment headers and the definitions; then
//! [`Recording::for_each_event`] streams the events track by track. Memory is bounded by 40 bytes a
//! segment plus the definitions. Nothing panics, nothing is silently dropped: what cannot be used
//! is counted in [`Problems`].

use crate::define::{Definition, TrackInfo};
use crate::definitions::Definitions;
use crate::event::{Event, Kind, EVENT_BYTES, EVENT_WORDS};
use crate::header::{Header, HeaderError, HEADER_BYTES};
use crate::segment::{
    SegmentHeader, SEGMENT_BYTES, SEGMENT_EVENTS, SEGMENT_HEADER_BYTES, SEGMENT_PAYLOAD, TRACK_DEFINITIONS,
    TRACK_OVERFLOW, TRACK_RECORDER,
};

/// Where the bytes of a recording come from: a file, a byte slice, the live image in memory.
pub trait Source {
    /// Bytes there are now: of a file that grows, more each time. The reader asks once it has the
    /// header, which is written behind all that it counts: the two fit together, whenever the
    /// source was opened.
    fn len(&self) -> u64;

    /// Fills `out` from `offset`; `false` where that many bytes cannot be had.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool;

    /// No bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Source for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        let Ok(at) = usize::try_from(offset) else { return false };
        match at.checked_add(out.len()).and_then(|end| self.get(at..end)) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

/// Why a recording cannot be opened at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// Shorter than its header.
    TooShort(u64),
    /// The header is not ours or not readable.
    Header(HeaderError),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::TooShort(n) => write!(f, "too short for a recording ({n} bytes, the header alone has {HEADER_BYTES})"),
            OpenError::Header(HeaderError::NotARecording) => write!(f, "not a gapprobe recording (no GAPPROBE at byte 0)"),
            OpenError::Header(HeaderError::Version(v)) => write!(
                f,
                "written by an incompatible gapprobe (recording version {v}, this one reads {}): use the gapprobe it came from",
                crate::header::VERSION_MAJOR
            ),
            OpenError::Header(HeaderError::Layout) => write!(f, "damaged header (segment size at byte 24)"),
        }
    }
}

impl std::error::Error for OpenError {}

/// What a reader could not use, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Problems {
    /// Segments with impossible headers.
    pub bad_segments: u64,
    /// Segments that were being written anew when read (a live or killed process); their old events
    /// are gone by design.
    pub busy_segments: u64,
    /// Segments cut off by the end of the file. Their payload is written before the header that
    /// counts it, so that a killed program's recording has none: the file was cut later, and how
    /// much is missing is not known.
    pub cut_segments: u64,
    /// Events of unknown kind or with impossible times.
    pub bad_events: u64,
    /// Definition records that could not be read.
    pub bad_definitions: u64,
    /// Events on tracks that are not defined.
    pub unknown_tracks: u64,
}

impl Problems {
    /// Items that are missing because of damage (not by design).
    pub fn damaged(&self) -> u64 {
        self.bad_segments + self.cut_segments + self.bad_events + self.bad_definitions + self.unknown_tracks
    }

    /// Events that are missing because of damage, at most: a segment that cannot be read may have
    /// been full.
    pub fn events(&self) -> u64 {
        self.damaged().saturating_add(self.bad_segments.saturating_mul(SEGMENT_EVENTS as u64 - 1))
    }
}

/// The track an event belongs to, as the reader hands it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Track {
    /// A CUDA stream or host thread.
    Of(TrackInfo),
    /// The recorder itself: clock pairs, unobserved spans, loss marks.
    Recorder,
}

#[derive(Clone, Copy)]
struct Placed {
    index: u32,
    header: SegmentHeader,
}

impl Placed {
    fn reaches_into(&self, from: u64, to: u64) -> bool {
        self.header.last_end >= from && self.header.first_start <= to
    }
}

/// An opened recording.
pub struct Recording {
    /// The header.
    pub header: Header,
    /// What ids stand for.
    pub definitions: Definitions,
    /// Problems met while opening.
    pub problems: Problems,
    segments: Vec<Placed>,
}

impl Recording {
    /// Reads header, segment headers and definitions.
    pub fn open<S: Source + ?Sized>(source: &S) -> Result<Recording, OpenError> {
        let mut bytes = [0; HEADER_BYTES];
        if !source.read_at(0, &mut bytes) {
            return Err(OpenError::TooShort(source.len()));
        }
        let header = Header::decode(&bytes).map_err(OpenError::Header)?;
        let mut r = Recording {
            header,
            definitions: Definitions::default(),
            problems: Problems::default(),
            segments: Vec::new(),
        };
        r.scan(source);
        Ok(r)
    }

    fn scan<S: Source + ?Sized>(&mut self, source: &S) {
        // not before the header was read: a file that grows would look cut off
        let room = source.len().saturating_sub(HEADER_BYTES as u64).div_ceil(SEGMENT_BYTES as u64);
        let count = u64::from(self.header.segments).min(room).min(u64::from(u32::MAX));
        let begun = self.header.segments_used.min(self.header.segments);
        self.problems.cut_segments += u64::from(begun).saturating_sub(count);
        let mut definitions = Vec::new();
        for index in 0..count as u32 {
            let mut head = [0; SEGMENT_HEADER_BYTES];
            if !source.read_at(offset(index), &mut head) {
                self.problems.cut_segments += 1;
                continue;
            }
            let Some(header) = SegmentHeader::decode(&head) else {
                // never used: zero, unless it had been begun (a hole in a copy). Anything else is
                // damage.
                if head[..4] != [0; 4] {
                    self.problems.bad_segments += 1;
                } else if index < begun {
                    self.problems.cut_segments += 1;
                }
                continue;
            };
            let limit = if header.track == TRACK_DEFINITIONS { SEGMENT_PAYLOAD } else { SEGMENT_EVENTS };
            if header.generation % 2 == 1 {
                self.problems.busy_segments += 1;
            } else if header.used as usize > limit {
                self.problems.bad_segments += 1;
            } else if header.track == TRACK_DEFINITIONS {
                definitions.push(Placed { index, header });
            } else {
                self.segments.push(Placed { index, header });
            }
        }
        definitions.sort_by_key(|s| s.header.number);
        let mut payload = vec![0; SEGMENT_PAYLOAD];
        for s in definitions {
            if let Some(used) = self.copy_payload(source, &s, 1, &mut payload) {
                self.define(&payload[..used]);
            }
        }
        self.segments.sort_by_key(|s| (s.header.track, s.header.number));
    }

    fn define(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((id, definition, length)) = Definition::decode(bytes) else {
                self.problems.bad_definitions += 1;
                return; // lengths chain: nothing after this can be found
            };
            match definition {
                Some(d) => self.definitions.insert(id, d),
                None => self.problems.bad_definitions += 1,
            }
            bytes = &bytes[length..];
        }
    }

    /// Copies the used payload and checks that the segment was not rewritten meanwhile. Returns the
    /// bytes copied.
    fn copy_payload<S: Source + ?Sized>(
        &mut self,
        source: &S,
        s: &Placed,
        unit: usize,
        payload: &mut [u8],
    ) -> Option<usize> {
        let bytes = (s.header.used as usize) * unit;
        let at = offset(s.index);
        if !source.read_at(at + SEGMENT_HEADER_BYTES as u64, &mut payload[..bytes]) {
            self.problems.cut_segments += 1;
            return None;
        }
        let mut head = [0; SEGMENT_HEADER_BYTES];
        let again = source.read_at(at, &mut head).then(|| SegmentHeader::decode(&head)).flatten();
        match again {
            Some(h) if h.generation == s.header.generation && h.number == s.header.number => Some(bytes),
            _ => {
                self.problems.busy_segments += 1;
                None
            }
        }
    }

    /// Upper bound of the number of events (for allocation and progress).
    pub fn event_bound(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.header.used)).sum()
    }

    /// The same of the segments with an event in `[from, to]`.
    pub fn event_bound_within(&self, from: u64, to: u64) -> u64 {
        self.segments.iter().filter(|s| s.reaches_into(from, to)).map(|s| u64::from(s.header.used)).sum()
    }

    /// From now on only segments with an event in `[from, to]` are read, which their headers tell:
    /// the newest seconds of a long recording cost what they hold. Returns how many events are left
    /// out.
    pub fn keep(&mut self, from: u64, to: u64) -> u64 {
        let mut left_out = 0;
        self.segments.retain(|s| {
            let kept = s.reaches_into(from, to);
            left_out += if kept { 0 } else { u64::from(s.header.used) };
            kept
        });
        left_out
    }

    /// Calls `f` for every event, track by track, within a track in the order written (GPU ops of a
    /// stream may be out of time order). Problems met are added to [`Recording::problems`].
    pub fn for_each_event<S: Source + ?Sized>(&mut self, source: &S, mut f: impl FnMut(Track, &Event)) {
        let segments = std::mem::take(&mut self.segments);
        let mut payload = vec![0; SEGMENT_PAYLOAD];
        for s in &segments {
            let track = match s.header.track {
                TRACK_RECORDER => Some(Track::Recorder),
                TRACK_OVERFLOW => None,
                id => match self.definitions.track(id) {
                    Some(info) => Some(Track::Of(info)),
                    None => {
                        self.problems.unknown_tracks += u64::from(s.header.used);
                        continue;
                    }
                },
            };
            let Some(bytes) = self.copy_payload(source, s, EVENT_BYTES, &mut payload) else { continue };
            let mut named = None; // overflow track: the true track of the next event
            for chunk in payload[..bytes].chunks_exact(EVENT_BYTES) {
                let mut words = [0u64; EVENT_WORDS];
                for (w, b) in words.iter_mut().zip(chunk.chunks_exact(8)) {
                    *w = u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
                }
                let Some(event) = Event::decode(words) else {
                    self.problems.bad_events += 1;
                    continue;
                };
                match (track, event.kind) {
                    (None, Kind::TrackOf) => named = Some(track_of(&event)),
                    (None, _) => match named.take() {
                        Some(t) => f(Track::Of(t), &event),
                        None => self.problems.bad_events += 1,
                    },
                    (Some(_), Kind::TrackOf) => self.problems.bad_events += 1,
                    (Some(t), _) => f(t, &event),
                }
            }
        }
        self.segments = segments;
    }
}

fn track_of(e: &Event) -> TrackInfo {
    match e.x {
        0 => TrackInfo::Stream { device: e.a, context: e.b, stream: e.c },
        _ => TrackInfo::Thread { tid: e.a, name: 0 },
    }
}

fn offset(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * SEGMENT_BYTES as u64
}
