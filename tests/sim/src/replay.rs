// SPDX-License-Identifier: Apache-2.0
//! GPRAWREC: raw CUPTI records as recorded on real hardware, and their replay (`play`).
//!
//! Written by the injected library under its test switch, read here and by tools. Little endian, no
//! padding:
//!
//! ```text
//! header   8 bytes  magic "GPRAWREC"
//!          u32      version of this format, 1
//!          u32      what cuptiGetVersion said
//!          32 bytes soname of libcupti, zero filled ("libcupti.so.12")
//!          u64      CLOCK_MONOTONIC ns when the recording began
//! chunk    u32      type
//!          u32      length of the payload in bytes
//!          u64      CLOCK_MONOTONIC ns when this was seen
//!          payload
//! type 1   the valid bytes of one activity buffer, as handed to bufferCompleted
//! type 2   u64 the value of a name pointer in records that follow, then the bytes of the string (one NUL at the
//!          end is dropped);
//!          a pointer seen again replaces the earlier one from there on; a name may also come after the first
//!          buffer that needs it
//! type 3   a callback: u32 domain, u32 cbid, u32 site (0 enter, 1 exit), u32 correlation, u32 kernel thread id
//! ```
//!
//! Chunks of other types are skipped. A file may end in the middle of a chunk (the process was
//! killed): what came before counts. Record times must be in CLOCK_MONOTONIC, as the injected
//! library's timestamp callback makes them.

mod play;

use std::fmt;

/// First bytes of a recording.
pub const MAGIC: &[u8; 8] = b"GPRAWREC";
/// The only version there is.
pub const VERSION: u32 = 1;
/// Bytes before the first chunk.
pub const HEADER: usize = 56;
/// Bytes of a chunk before its payload.
pub const CHUNK_HEADER: usize = 16;

/// One recording, its chunks borrowed from the file's bytes.
#[derive(Debug)]
pub struct Recording<'a> {
    /// What cuptiGetVersion said.
    pub cupti_version: u32,
    /// Soname of the library, without the zero filling.
    pub soname: String,
    /// CLOCK_MONOTONIC ns of the beginning.
    pub began: u64,
    /// In the order of the file.
    pub chunks: Vec<Chunk<'a>>,
    /// True when the file ends inside a chunk.
    pub cut: bool,
}

/// One chunk: when it was seen (CLOCK_MONOTONIC ns) and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// CLOCK_MONOTONIC ns.
    pub at: u64,
    /// Payload.
    pub what: What<'a>,
}

/// What a chunk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// Activity records.
    Buffer(&'a [u8]),
    /// A name pointer's string.
    Name {
        /// Value of the pointer.
        pointer: u64,
        /// Without NUL.
        text: &'a [u8],
    },
    /// A callback.
    Callback(Callback),
}

/// One callback as the client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Callback {
    /// CUPTI's domain.
    pub domain: u32,
    /// Id within the domain.
    pub cbid: u32,
    /// 0 enter, 1 exit.
    pub site: u32,
    /// Correlation id.
    pub correlation: u32,
    /// Kernel thread id.
    pub thread: u32,
}

/// Why a file is no recording.
#[derive(Debug, PartialEq, Eq)]
pub enum NoRecording {
    /// Shorter than a header.
    Short,
    /// Not the magic bytes.
    Magic,
    /// A version from the future.
    Version(u32),
}

impl fmt::Display for NoRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRecording::Short => write!(f, "shorter than a GPRAWREC header"),
            NoRecording::Magic => write!(f, "not a GPRAWREC file"),
            NoRecording::Version(version) => {
                write!(f, "GPRAWREC version {version}, this reader knows {VERSION}")
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads a recording; a cut end is no error.
pub fn parse(bytes: &[u8]) -> Result<Recording<'_>, NoRecording> {
    let header = bytes.get(..HEADER).ok_or(NoRecording::Short)?;
    if header.get(..8) != Some(MAGIC.as_slice()) {
        return Err(NoRecording::Magic);
    }
    let field = |at| u32_at(header, at).unwrap_or(0);
    if field(8) != VERSION {
        return Err(NoRecording::Version(field(8)));
    }
    let soname = header.get(16..48).unwrap_or_default();
    let soname = String::from_utf8_lossy(soname).trim_end_matches('\0').to_owned();
    let mut recording = Recording {
        cupti_version: field(12),
        soname,
        began: u64_at(header, 48).unwrap_or(0),
        chunks: Vec::new(),
        cut: false,
    };
    let mut rest = bytes.get(HEADER..).unwrap_or_default();
    while !rest.is_empty() {
        let whole = u32_at(rest, 4).map(|len| CHUNK_HEADER + len as usize);
        let Some((chunk, after)) = whole.and_then(|whole| rest.split_at_checked(whole)) else {
            recording.cut = true;
            break;
        };
        recording.chunks.extend(read_chunk(chunk));
        rest = after;
    }
    Ok(recording)
}

fn read_chunk(chunk: &[u8]) -> Option<Chunk<'_>> {
    let (kind, at) = (u32_at(chunk, 0)?, u64_at(chunk, 8)?);
    let payload = chunk.get(CHUNK_HEADER..)?;
    let what = match kind {
        1 => What::Buffer(payload),
        2 => {
            let text = payload.get(8..)?;
            What::Name { pointer: u64_at(payload, 0)?, text: text.strip_suffix(b"\0").unwrap_or(text) }
        }
        3 => What::Callback(Callback {
            domain: u32_at(payload, 0)?,
            cbid: u32_at(payload, 4)?,
            site: u32_at(payload, 8)?,
            correlation: u32_at(payload, 12)?,
            thread: u32_at(payload, 16)?,
        }),
        _ => return None,
    };
    Some(Chunk { at, what })
}

/// Writes a recording; what `parse` reads back.
#[must_use]
pub fn write(recording: &Recording<'_>) -> Vec<u8> {
    let mut out = Vec::from(MAGIC.as_slice());
    out.extend(VERSION.to_le_bytes());
    out.extend(recording.cupti_version.to_le_bytes());
    let mut soname = [0u8; 32];
    for (to, from) in soname.iter_mut().take(31).zip(recording.soname.bytes()) {
        *to = from;
    }
    out.extend(soname);
    out.extend(recording.began.to_le_bytes());
    for chunk in &recording.chunks {
        let (kind, payload) = match chunk.what {
            What::Buffer(bytes) => (1u32, bytes.to_vec()),
            What::Name { pointer, text } => (2, [&pointer.to_le_bytes(), text].concat()),
            What::Callback(c) => {
                let words = [c.domain, c.cbid, c.site, c.correlation, c.thread];
                (3, words.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
        };
        out.extend(kind.to_le_bytes());
        out.extend((payload.len() as u32).to_le_bytes());
        out.extend(chunk.at.to_le_bytes());
        out.extend(payload);
    }
    out
}

/// The release (major * 100 + minor) behind a version number and soname; None for one that is not
/// known.
#[must_use]
pub fn release_of(cupti_version: u32, soname: &str) -> Option<u32> {
    Some(match cupti_version {
        17 => 1107,
        18 if soname.contains("11.8") => 1108,
        18 => 1200,
        20..=23 => 1182 + cupti_version,
        24 => 1206,
        26 => 1208,
        28 => 1209,
        130_000..=139_999 => 1300 + (cupti_version / 100) % 100,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Recording<'static> {
        let callback = Callback { domain: 2, cbid: 211, site: 0, correlation: 5, thread: 77 };
        let chunks = vec![
            Chunk { at: 10, what: What::Name { pointer: 0x7f00_1234, text: b"gemm" } },
            Chunk { at: 11, what: What::Callback(callback) },
            Chunk { at: 12, what: What::Buffer(&[1, 2, 3]) },
        ];
        Recording { cupti_version: 22, soname: "libcupti.so.12".into(), began: 9, chunks, cut: false }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = write(&sample());
        let read = parse(&bytes).expect("a recording");
        assert_eq!((read.cupti_version, read.soname.as_str(), read.began), (22, "libcupti.so.12", 9));
        assert_eq!(read.chunks, sample().chunks);
        assert!(!read.cut);
    }

    #[test]
    fn every_cut_is_readable_and_other_files_are_refused() {
        let bytes = write(&sample());
        for end in HEADER..bytes.len() {
            let read = parse(&bytes[..end]).expect("a recording");
            assert!(read.chunks.len() < 3 && read.chunks == sample().chunks[..read.chunks.len()]);
        }
        assert_eq!(parse(&bytes[..HEADER - 1]).err(), Some(NoRecording::Short));
        assert_eq!(parse(&[b'x'; 80]).err(), Some(NoRecording::Magic));
    }

    #[test]
    fn releases_are_told_from_versions() {
        let cases =
            [(18, "libcupti.so.11.8", 1108), (18, "libcupti.so.12", 1200), (22, "libcupti.so.12", 1204)];
        assert!(cases
            .iter()
            .all(|(version, soname, release)| release_of(*version, soname) == Some(*release)));
        assert_eq!(release_of(28, "libcupti.so.12"), Some(1209));
        assert_eq!(release_of(130_001, "libcupti.so.13"), Some(1300));
        assert_eq!(release_of(130_500, "libcupti.so.13"), Some(1305));
        assert_eq!(release_of(7, ""), None);
    }
}
