// SPDX-License-Identifier: Apache-2.0
//! torch.profiler's (Kineto's) Chrome JSON, and gapprobe's own: plain or compressed, object or array form, old and new
//! category names, microseconds or nanoseconds, whole or cut off.
//!
//! ```text
//! blocks.rs  the text in blocks of whole events     head.rs  what stands around the events
//! scan.rs    tokens          time.rs  exact ns      event.rs  an event into a part
//! part.rs    what a block held                      join.rs  parts -> Run
//! ```
//! Time: one pass over the text, on all cores. Memory: about 40 bytes an operation or call, 32 a range, besides the
//! mapped file, or two blocks a core of a compressed one.

mod blocks;
mod event;
mod head;
mod join;
mod part;
mod scan;
mod time;

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use blocks::{Block, Blocks, BLOCK};
use head::Head;
use part::Part;
use scan::{next_object, Bad, Scan};

use super::{Progress, ReadError};
use crate::run::Run;

pub use part::Refused;

/// The list of events must begin within this many bytes of a compressed file.
const MOST_HEAD: usize = 64 << 20;

/// A damaged compressed text is unpacked into memory up to this many bytes.
const MOST_WHOLE: u64 = 2 << 30;

/// A trace as read.
#[derive(Debug)]
pub struct Kineto {
    /// The run.
    pub run: Run,
    /// What could not be used.
    pub refused: Refused,
    /// Events in the file, of any kind.
    pub events: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// The stamps were whole microseconds (traces before PyTorch 2.4): gaps and short kernels are rounded.
    pub rounded: bool,
}

/// Reads a mapped text.
pub fn read_mapped(bytes: &[u8], progress: &Progress) -> Result<Kineto, ReadError> {
    read_in_blocks(bytes, BLOCK, progress)
}

/// The same in blocks of about `size` bytes: the result does not depend on it (tests and fuzzing hold that).
#[doc(hidden)]
pub fn read_in_blocks(bytes: &[u8], size: usize, progress: &Progress) -> Result<Kineto, ReadError> {
    match read(Blocks::mapped(bytes, size), progress)? {
        Some(kineto) => Ok(kineto),
        // an event was not where it seemed to begin: once more, in one piece
        None => read_whole(bytes, progress),
    }
}

/// Reads a compressed text; `open` gives the inflated text from its begin.
pub fn read_inflated<'a>(
    mut open: impl FnMut() -> Box<dyn Read + Send + 'a>,
    progress: &Progress,
) -> Result<Kineto, ReadError> {
    if let Some(kineto) = read(Blocks::inflating(open(), BLOCK), progress)? {
        return Ok(kineto);
    }
    let mut all = Vec::new();
    // what can be read is read; that the rest is missing shows where the text ends
    let _ = open().take(MOST_WHOLE).read_to_end(&mut all);
    if all.len() as u64 == MOST_WHOLE {
        let text = "damaged, and too large to be read in one piece while it is compressed";
        return Err(ReadError::new(text, "unpack it: gunzip FILE"));
    }
    read_whole(&all, progress)
}

/// `None`: the blocks do not fit together.
fn read(mut blocks: Blocks<'_>, progress: &Progress) -> Result<Option<Kineto>, ReadError> {
    let mut head = Head::default();
    begin(&mut blocks, &mut head)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let blocks = Mutex::new(blocks);
    let parts = Mutex::new(Vec::<(usize, Part)>::new());
    let (misfit, tail) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let work = || loop {
        if misfit.load(Ordering::Relaxed) {
            return;
        }
        let block = {
            let Ok(mut blocks) = blocks.lock() else { return };
            let block = blocks.next();
            progress.at(blocks.bytes);
            block
        };
        let Some(block) = block else { return };
        let part = events(&block);
        // text that is no JSON may have hidden where events begin: only reading it in one piece tells what is lost
        let whole = block.last && block.index == 0;
        if (!block.last && (part.refused.cut || part.ended)) || (!whole && part.refused.broken > 0) {
            misfit.store(true, Ordering::Relaxed);
            return;
        }
        if part.ended {
            if let (Ok(mut tail), Some(rest)) = (tail.lock(), block.text.bytes().get(part.stopped..)) {
                *tail = rest.to_vec();
            }
        }
        if let Ok(mut parts) = parts.lock() {
            parts.push((block.index, part));
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads {
            s.spawn(work);
        }
        work();
    });
    if misfit.into_inner() {
        return Ok(None);
    }
    let mut parts = parts.into_inner().unwrap_or_default();
    parts.sort_by_key(|p| p.0);
    let tail = tail.into_inner().unwrap_or_default();
    let blocks = blocks.into_inner().map_err(|_| ReadError::internal())?;
    finish(parts.into_iter().map(|p| p.1).collect(), head, &tail, blocks.bytes, blocks.damage.is_some())
        .map(Some)
}

fn read_whole(bytes: &[u8], progress: &Progress) -> Result<Kineto, ReadError> {
    let mut head = Head::default();
    let mut blocks = Blocks::mapped(bytes, BLOCK);
    let from = begin(&mut blocks, &mut head)?;
    let text = bytes.get(from..).unwrap_or(&[]);
    let part = events(&Block { index: 0, text: blocks::Text::Mapped(text), last: true });
    progress.at(bytes.len() as u64);
    let tail = text.get(part.stopped..).unwrap_or(&[]).to_vec();
    finish(vec![part], head, &tail, bytes.len() as u64, false)
}

/// Steps to behind the `[` of the list of events and learns how events begin. Returns how far that was.
fn begin(blocks: &mut Blocks<'_>, head: &mut Head) -> Result<usize, ReadError> {
    let mut least = 1 << 20;
    let from = loop {
        let text = blocks.look(least);
        let (found, length) = (head::before_events(text, head), text.len());
        match found {
            Ok(Some(from)) => break from,
            Err(Bad::End(_)) if !blocks.is_all() && length < MOST_HEAD => least = length * 4,
            Ok(None) => return Err(ReadError::no_events()),
            Err(Bad::End(at)) => return Err(ReadError::json(at, "the file ends before any event")),
            Err(Bad::Syntax(at)) => return Err(ReadError::json(at, "this is no JSON")),
        }
    };
    blocks.skip(from);
    let mut key = Vec::new();
    let mut scan = Scan::new(blocks.look(64 << 10), 0);
    if scan.expect(b'{').is_ok() {
        key = scan.string().map(<[u8]>::to_vec).unwrap_or_default();
    }
    blocks.first_key = key;
    Ok(from)
}

/// Reads the events of a block.
fn events(block: &Block<'_>) -> Part {
    let bytes = block.text.bytes();
    let mut part = Part::default();
    let mut scan = Scan::new(bytes, 0);
    loop {
        let bad = match scan.peek() {
            Ok(b'{') => {
                let begin = scan.at();
                event::event(&mut scan, &mut part).err().map(|bad| (bad, begin))
            }
            Ok(b',') => scan.expect(b',').err().map(|bad| (bad, scan.at())),
            Ok(b']') => {
                part.ended = scan.expect(b']').is_ok();
                break;
            }
            Ok(_) => Some((Bad::Syntax(scan.at()), scan.at())),
            // the text ends between events, as every block but the last should
            Err(_) => break,
        };
        match bad {
            None => {}
            Some((Bad::End(_), _)) => {
                part.refused.cut = true;
                break;
            }
            Some((Bad::Syntax(_), begin)) => {
                part.refused.broken += 1;
                match resume(bytes, begin + 1) {
                    Some(at) => scan = Scan::new(bytes, at),
                    None => break,
                }
            }
        }
    }
    part.refused.cut |= block.last && !part.ended;
    part.stopped = scan.at();
    part
}

/// Behind a place that is no JSON: where an event may begin again.
fn resume(bytes: &[u8], from: usize) -> Option<usize> {
    let keys: [&[u8]; 3] = [b"ph", b"name", b"cat"];
    keys.iter().filter_map(|key| next_object(bytes, from, key)).min()
}

fn finish(
    parts: Vec<Part>,
    mut head: Head,
    tail: &[u8],
    bytes: u64,
    damaged: bool,
) -> Result<Kineto, ReadError> {
    let behind = head::after_events(tail, &mut head);
    let mut kineto = join::join(parts, &head)?;
    kineto.bytes = bytes;
    kineto.refused.cut |= damaged || behind.is_err();
    Ok(kineto)
}
