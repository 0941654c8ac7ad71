// SPDX-License-Identifier: Apache-2.0
//! The segment: the unit in which rings grow, are overwritten, mirrored and read.
//!
//! ```text
//! byte 0   u32  magic "GPSG" (0 = never used)
//! byte 4   u32  generation: even = stable, odd = being written anew; a reader keeps what it copied only if the
//!               generation was even and the same before and after
//! byte 8   u32  track id (definition id of the track), or TRACK_DEFINITIONS
//! byte 12  u32  used: events, or bytes of definitions; grows while the segment is open, never past the capacity
//! byte 16  u64  allocation number, grows over the whole recording: order of segments within a track
//! byte 24  u64  smallest start of its events, ns
//! byte 32  u64  largest end of its events, ns
//! byte 40  zero
//! byte 64  payload
//! ```

use crate::event::EVENT_BYTES;

/// Bytes of a segment.
pub const SEGMENT_BYTES: usize = 32 * 1024;
/// Bytes of the segment header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
/// Events that fit into a segment.
pub const SEGMENT_EVENTS: usize = (SEGMENT_BYTES - SEGMENT_HEADER_BYTES) / EVENT_BYTES;
/// Payload bytes of a segment.
pub const SEGMENT_PAYLOAD: usize = SEGMENT_BYTES - SEGMENT_HEADER_BYTES;
/// "GPSG", little endian.
pub const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"GPSG");
/// Track number of segments that hold definitions.
pub const TRACK_DEFINITIONS: u32 = u32::MAX;
/// Track number of the shared overflow track (its events come in pairs, the first a
/// `Kind::TrackOf`).
pub const TRACK_OVERFLOW: u32 = u32::MAX - 1;
/// Track number of the recorder's own events (clock pairs, unobserved spans, loss marks).
pub const TRACK_RECORDER: u32 = u32::MAX - 2;

/// A segment's header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentHeader {
    /// Even: stable.
    pub generation: u32,
    /// Track id.
    pub track: u32,
    /// Events or bytes used.
    pub used: u32,
    /// Allocation number.
    pub number: u64,
    /// Smallest start, ns.
    pub first_start: u64,
    /// Largest end, ns.
    pub last_end: u64,
}

impl SegmentHeader {
    /// The eight words of the header.
    pub fn encode(&self) -> [u64; 8] {
        [
            u64::from(SEGMENT_MAGIC) | u64::from(self.generation) << 32,
            u64::from(self.track) | u64::from(self.used) << 32,
            self.number,
            self.first_start,
            self.last_end,
            0,
            0,
            0,
        ]
    }

    /// Decodes; `None` where the magic is missing (never used, or not ours).
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Option<SegmentHeader> {
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_le_bytes(w)
        };
        if word(0) as u32 != SEGMENT_MAGIC {
            return None;
        }
        Some(SegmentHeader {
            generation: (word(0) >> 32) as u32,
            track: word(1) as u32,
            used: (word(1) >> 32) as u32,
            number: word(2),
            first_start: word(3),
            last_end: word(4),
        })
    }
}
