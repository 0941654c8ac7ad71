// SPDX-License-Identifier: Apache-2.0
//! The first 4 KiB of a recording: who recorded what, and how far it can be believed.

use crate::segment::SEGMENT_BYTES;
use crate::Total;
use crate::{loss, total};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// "GAPPROBE", little endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"GAPPROBE");
/// Readers refuse another major number; a higher minor number only adds.
pub const VERSION_MAJOR: u16 = 1;
/// See [`VERSION_MAJOR`].
pub const VERSION_MINOR: u16 = 6;

/// Where the field `state` lies.
pub const STATE_AT: usize = 16;
/// Where the field `valid_from` lies.
pub const VALID_FROM_AT: usize = 80;

/// Where a command of the same user leaves until when recording is to be held on, CLOCK_MONOTONIC
/// ns: the last word of the header, and the only one in the file that its process reads and does
/// not write. (Who recorded says in `held_until` that it was heard.)
pub const HOLD_AT: usize = HEADER_BYTES - 8;
/// Longest time ahead that is heeded, ns: who wants more says so again. What a killed command left
/// ends with it.
pub const LONGEST_HOLD: u64 = 5_000_000_000;

const LOSSES_AT: usize = 2048;
const TOTALS_AT: usize = 2560;
const HOST_AT: usize = 1024;
const HOST_BYTES: usize = 64;
const COMMAND_AT: usize = 1088;
const COMMAND_BYTES: usize = 512;
const VERSION_TEXT_AT: usize = 1600;
const VERSION_TEXT_BYTES: usize = 64;

/// How a recording stands (field `state`).
pub mod state {
    /// Being written; in a file of a dead process: it ended without its exit handlers (a signal,
    /// `_exit`, exec), or before they were done (`GAPPROBE_EXIT_MS`).
    pub const RECORDING: u32 = 1;
    /// The exit handler flushed everything it could.
    pub const CLOSED: u32 = 2;
    /// Trace and line were already written from it.
    pub const REPORTED: u32 = 3;
    /// The process has said its line, but its trace or its summary could not be written, or holds
    /// less than is here. (What does not know this takes it for [`CLOSED`].)
    pub const LINE_SAID: u32 = 4;
    /// As [`REPORTED`], of a recording that was [`RECORDING`] when its process was no more. (What
    /// does not know this takes it for [`CLOSED`].)
    pub const REPORTED_UNFINISHED: u32 = 5;
}

/// How events reached the recorder (field `sources`, bits).
pub mod sources {
    /// The CUPTI subscription was held: calls come from callbacks.
    pub const CALLBACKS: u32 = 1;
    /// Launch calls come from CUPTI's per-call filter.
    pub const CALL_FILTER: u32 = 2;
    /// Graph launches are recorded as one op, not node by node.
    pub const GRAPH_LEVEL: u32 = 4;
    /// The subscription was given up to another client during the run.
    pub const GAVE_UP: u32 = 8;
    /// No launch times at all: neither filter nor callbacks.
    pub const NO_LAUNCHES: u32 = 16;
    /// After another client of CUPTI calls come from the whole kinds RUNTIME and DRIVER: its filter
    /// had none left.
    pub const CALL_KINDS: u32 = 32;
    /// Waits come from callbacks all the time: CUPTI's kind SYNCHRONIZATION, which makes every call
    /// of the runtime slower, was never on. Not set by gapprobe before 2026-11-23, which always had
    /// it on.
    pub const WAITS_BY_CALLS: u32 = 64;
    /// Who writes the recording holds a lock on it as long as it lives (`spool::writer_lock`).
    /// Not set by gapprobe before 2026-11-26.
    pub const WRITER_LOCK: u32 = 128;
    /// Another client of CUPTI has the GPU's records when this is written.
    pub const YIELDED: u32 = 256;
}

macro_rules! header {
    ($($(#[$doc:meta])* $name:ident : $ty:ident @ $at:literal;)*) => {
        /// The header, decoded.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Header {
            $($(#[$doc])* pub $name: $ty,)*
            /// Boot id of the kernel (random 16 bytes), zero where unknown.
            pub boot_id: [u8; 16],
            /// Host name, cut to 64 bytes.
            pub host: String,
            /// Command line, spaces between arguments, cut to 512 bytes.
            pub command: String,
            /// gapprobe's version and commit.
            pub gapprobe: String,
            /// Counters by `Loss` code.
            pub losses: [u64; loss::SLOTS],
            /// Counters by `Total` number.
            pub totals: [u64; total::SLOTS],
        }

        impl Default for Header {
            fn default() -> Header {
                Header {
                    $($name: 0,)*
                    boot_id: [0; 16], host: String::new(), command: String::new(), gapprobe: String::new(),
                    losses: [0; loss::SLOTS], totals: [0; total::SLOTS],
                }
            }
        }

        impl Header {
            fn encode_fields(&self, out: &mut [u8; HEADER_BYTES]) {
                $(put(out, $at, &self.$name.to_le_bytes());)*
            }

            fn decode_fields(&mut self, bytes: &[u8; HEADER_BYTES]) {
                $({
                    let mut b = [0; std::mem::size_of::<$ty>()];
                    b.copy_from_slice(&bytes[$at..$at + std::mem::size_of::<$ty>()]);
                    self.$name = <$ty>::from_le_bytes(b);
                })*
            }
        }
    };
}

header! {
    /// One of [`state`].
    state: u32 @ 16;
    /// Bits of [`sources`].
    sources: u32 @ 20;
    /// Segments the file has room for.
    segments: u32 @ 28;
    /// Process id, in the process's own namespace.
    pid: u32 @ 32;
    /// User id.
    uid: u32 @ 36;
    /// Inode of the pid namespace.
    pid_namespace: u64 @ 40;
    /// Start of the process, clock ticks since boot (field 22 of /proc/PID/stat).
    process_start: u64 @ 48;
    /// CLOCK_MONOTONIC when recording began, ns.
    start_monotonic: u64 @ 56;
    /// CLOCK_REALTIME at the same moment, ns since 1970.
    start_realtime: u64 @ 64;
    /// CLOCK_MONOTONIC of the last write to this header, ns.
    last_write: u64 @ 72;
    /// Events of overwritten segments end at or before this time: the recording is valid from here,
    /// ns.
    valid_from: u64 @ 80;
    /// Everything the GPU did before this time is in the recording, ns (0: nothing yet).
    gpu_complete_to: u64 @ 88;
    /// Every host event before this time is in the recording, ns.
    host_complete_to: u64 @ 96;
    /// cuptiGetVersion().
    cupti_version: u32 @ 104;
    /// cuDriverGetVersion(), e.g. 13000.
    driver_version: u32 @ 108;
    /// Rank + 1 where the launcher's variables tell it, else 0.
    rank: u32 @ 112;
    /// World size, else 0.
    world_size: u32 @ 116;
    /// Rank on this node + 1, else 0.
    local_rank: u32 @ 120;
    /// CPUs the process may run on.
    cpus: u32 @ 124;
    /// CUPTI's estimated cost of one recorded kernel launch on the launching thread, ns (an
    /// assumption, see H200 results).
    launch_cost_ns: u32 @ 128;
    /// CLOCK_MONOTONIC when the program's end reached us (exit handler), ns; 0 where it never did.
    exit_monotonic: u64 @ 136;
    /// CLOCK_MONOTONIC of the first GPU use (context or buffer), ns.
    first_use: u64 @ 144;
    /// Segments that had been begun when this header was written: they lie behind each other from
    /// the first, and are written before the header. 0: the recorder did not tell (before 1.1).
    segments_used: u32 @ 152;
    /// A command asked for recording to be held on until then ([`HOLD_AT`]), and is heard,
    /// CLOCK_MONOTONIC ns; 0: nobody does.
    held_until: u64 @ 160;
}

fn put(out: &mut [u8; HEADER_BYTES], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_text(out: &mut [u8; HEADER_BYTES], at: usize, room: usize, text: &str) {
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put(out, at, &text.as_bytes()[..end]);
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(b)
}

/// Why bytes are no header of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// The magic is missing: not a recording.
    NotARecording,
    /// Written by an incompatible version (major number given).
    Version(u16),
    /// Segment size or count that this version cannot have written.
    Layout,
}

impl Header {
    /// Was it not closed by its process? Of one that is no more: the end of its run is not in it.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.state, state::RECORDING | state::REPORTED_UNFINISHED)
    }

    /// By how much steps are longer while everything is recorded, as the process measured it, a
    /// share of others, 0 and more: the mean, and both ends of its 95 % interval. `None`: it made
    /// no measurement.
    pub fn longer(&self) -> Option<[f64; 3]> {
        let of = |t: Total| self.total(t) as f64 / 1e6;
        let most = of(Total::LongerMostPpm);
        (most > 0.0).then(|| [of(Total::LongerPpm), of(Total::LongerLeastPpm), most])
    }

    /// The 4 KiB as stored.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 8, &VERSION_MAJOR.to_le_bytes());
        put(&mut out, 10, &VERSION_MINOR.to_le_bytes());
        put(&mut out, 12, &(HEADER_BYTES as u32).to_le_bytes());
        put(&mut out, 24, &(SEGMENT_BYTES as u32).to_le_bytes());
        self.encode_fields(&mut out);
        put(&mut out, 1008, &self.boot_id);
        put_text(&mut out, HOST_AT, HOST_BYTES, &self.host);
        put_text(&mut out, COMMAND_AT, COMMAND_BYTES, &self.command);
        put_text(&mut out, VERSION_TEXT_AT, VERSION_TEXT_BYTES, &self.gapprobe);
        for (i, n) in self.losses.iter().enumerate() {
            put(&mut out, LOSSES_AT + i * 8, &n.to_le_bytes());
        }
        for (i, n) in self.totals.iter().enumerate() {
            put(&mut out, TOTALS_AT + i * 8, &n.to_le_bytes());
        }
        out
    }

    /// Decodes and checks what must hold before anything else is read.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        if u64_at(bytes, 0) != MAGIC {
            return Err(HeaderError::NotARecording);
        }
        let major = u16::from_le_bytes([bytes[8], bytes[9]]);
        if major != VERSION_MAJOR {
            return Err(HeaderError::Version(major));
        }
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u32_at(12) != HEADER_BYTES as u32 || u32_at(24) != SEGMENT_BYTES as u32 {
            return Err(HeaderError::Layout);
        }
        let mut h = Header::default();
        h.decode_fields(bytes);
        h.boot_id.copy_from_slice(&bytes[1008..1024]);
        h.host = text(&bytes[HOST_AT..HOST_AT + HOST_BYTES]);
        h.command = text(&bytes[COMMAND_AT..COMMAND_AT + COMMAND_BYTES]);
        h.gapprobe = text(&bytes[VERSION_TEXT_AT..VERSION_TEXT_AT + VERSION_TEXT_BYTES]);
        for (i, n) in h.losses.iter_mut().enumerate() {
            *n = u64_at(bytes, LOSSES_AT + i * 8);
        }
        for (i, n) in h.totals.iter_mut().enumerate() {
            *n = u64_at(bytes, TOTALS_AT + i * 8);
        }
        Ok(h)
    }

    /// The counter of one loss.
    pub fn loss(&self, loss: crate::Loss) -> u64 {
        self.losses[loss.code() as usize]
    }

    /// One run-wide total.
    pub fn total(&self, total: crate::Total) -> u64 {
        self.totals[total as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_encoding() {
        let mut h =
            Header { pid: 7, valid_from: u64::MAX, rank: 3, host: "node-ä".into(), ..Header::default() };
        h.command = "python ".repeat(100);
        h.losses[5] = 9;
        h.totals[63] = u64::MAX;
        h.first_use = 11;
        h.boot_id = [3; 16];
        let back = Header::decode(&h.encode()).unwrap();
        assert_eq!(back.command.len(), COMMAND_BYTES);
        h.command = back.command.clone();
        assert_eq!(back, h);
    }

    #[test]
    fn state_and_valid_from_lie_where_they_are_said_to() {
        let valid_from = u64::MAX;
        let mut bytes = Header { state: state::CLOSED, valid_from, ..Header::default() }.encode();
        assert_eq!(bytes[VALID_FROM_AT..VALID_FROM_AT + 8], u64::MAX.to_le_bytes());
        bytes[STATE_AT..STATE_AT + 4].copy_from_slice(&state::LINE_SAID.to_le_bytes());
        let spoken = Header { state: state::LINE_SAID, valid_from, ..Header::default() };
        assert_eq!(Header::decode(&bytes).unwrap(), spoken);
    }

    #[test]
    fn other_files_and_other_versions_are_refused_by_name() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), Err(HeaderError::NotARecording));
        let mut b = Header::default().encode();
        b[8] = 9;
        assert_eq!(Header::decode(&b), Err(HeaderError::Version(9)));
        let mut b = Header::default().encode();
        b[24] = 1;
        assert_eq!(Header::decode(&b), Err(HeaderError::Layout));
    }
}
