// SPDX-License-Identifier: Apache-2.0
//! torch.profiler's (Kineto's) Chrome JSON, XLA's, and gapprobe's own: plain or compressed, object
//! or array form, old and new
//! category names, microseconds or nanoseconds, whole or cut off.
//!
//! ```text
//! blocks.rs   the text in blocks of whole events     head.rs       what stands around the events
//! scan.rs     tokens                                 time.rs       exact ns
//! event.rs    an event into a part                   args.rs       its arguments, and numbers
//! part.rs     what a block held                      join.rs       parts -> Run
//! own.rs      what only our own traces say           xla.rs        profiles of JAX and TensorFlow
//! recover.rs  events that are no JSON                operators.rs  inputs and memory
//! ```
//! Time: one pass over the text, on all cores. Memory: about 40 bytes an operation or call, 32 a
//! range (some 80 more of an operator whose shapes were recorded), besides the mapped file, or two
//! blocks a core of a compressed one.

mod args;
mod blocks;
mod event;
mod head;
mod join;
mod merged;
mod operators;
mod own;
mod part;
mod recover;
mod scan;
mod time;
mod xla;

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use blocks::{Block, Blocks, BLOCK};
use head::Head;
use part::Part;
use scan::{next_object, Bad, Scan, Scanned};
use verdict::run::Run;

use super::mistaken::{self, Json};
use super::{Operators, Progress, ReadError};

pub use part::Refused;

/// The list of events must begin within this many bytes of a compressed file.
const MOST_HEAD: usize = 64 << 20;

/// Events that turn out to be none, in a damaged text, may cost so many passes over it; then what
/// is left is given up.
const MOST_PASSES: usize = 16;

/// A damaged compressed text is unpacked into memory up to this many bytes.
const MOST_WHOLE: u64 = 2 << 30;

/// A trace as read.
#[derive(Debug)]
pub struct Kineto {
    /// The run.
    pub run: Run,
    /// What no verdict rests on.
    pub operators: Operators,
    /// What could not be used.
    pub refused: Refused,
    /// Events in the file, of any kind.
    pub events: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Bytes of text behind the end of the trace, which are not read.
    pub behind: u64,
    /// It is a trace that gapprobe wrote.
    pub own: bool,
    /// The run's time of the stamp 0 of one, ns.
    pub zero: u64,
    /// The line that was said when it was written, of one that gapprobe wrote.
    pub said: Option<String>,
    /// It is a profile of XLA.
    pub xla: bool,
    /// The stamps were whole microseconds (traces before PyTorch 2.4): gaps and short kernels are
    /// rounded.
    pub rounded: bool,
}

/// Reads a mapped text.
pub fn read_mapped(bytes: &[u8], progress: &Progress) -> Result<Kineto, ReadError> {
    read_in_blocks(bytes, BLOCK, progress)
}

/// The same in blocks of about `size` bytes: the result does not depend on it (tests and fuzzing
/// hold that).
#[doc(hidden)]
pub fn read_in_blocks(bytes: &[u8], size: usize, progress: &Progress) -> Result<Kineto, ReadError> {
    match read(Blocks::mapped(bytes, size), progress)? {
        Some(kineto) => Ok(kineto),
        // an event was not where it seemed to begin: once more, in one piece
        None => read_whole(bytes, None, progress),
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
    // what can be read is read
    let damage = open().take(MOST_WHOLE).read_to_end(&mut all).err();
    if all.len() as u64 == MOST_WHOLE {
        let text = "damaged, and too large to be read in one piece while it is compressed";
        return Err(ReadError::new(text, "unpack it: gunzip FILE"));
    }
    read_whole(&all, damage.as_ref(), progress)
}

/// `None`: the blocks do not fit together.
fn read(mut blocks: Blocks<'_>, progress: &Progress) -> Result<Option<Kineto>, ReadError> {
    let mut head = Head::default();
    begin(&mut blocks, &mut head)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let blocks = Mutex::new(blocks);
    let parts = Mutex::new(Vec::<(usize, Part)>::new());
    let (misfit, tail) = (AtomicBool::new(false), Mutex::new(None));
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
        // text that is no JSON may have hidden where events begin: only reading it in one piece
        // tells what is lost
        let whole = block.last && block.index == 0;
        let r = &part.refused;
        let is_odd = part.odd || r.broken > 0 || r.damaged;
        if (!block.last && (r.cut || part.ended)) || (!whole && is_odd) {
            misfit.store(true, Ordering::Relaxed);
            return;
        }
        if part.ended {
            if let (Ok(mut tail), Some(rest)) = (tail.lock(), block.text.bytes().get(part.stopped..)) {
                *tail = Some(rest.to_vec());
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
    let parts = parts.into_iter().map(|p| p.1).collect();
    finish(parts, head, tail.as_deref(), blocks.bytes, blocks.damage.as_ref()).map(Some)
}

/// `damage`: why the text may be only the begin of what was packed.
fn read_whole(bytes: &[u8], damage: Option<&io::Error>, progress: &Progress) -> Result<Kineto, ReadError> {
    let mut head = Head::default();
    let mut blocks = Blocks::mapped(bytes, BLOCK);
    let from = begin(&mut blocks, &mut head)?;
    let text = bytes.get(from..).unwrap_or(&[]);
    let part = events(&Block { index: 0, text: blocks::Text::Mapped(text), last: true });
    progress.at(bytes.len() as u64);
    let tail = text.get(part.stopped..).filter(|_| part.ended);
    finish(vec![part], head, tail, bytes.len() as u64, damage)
}

/// Steps to behind the `[` of the list of events and learns how events begin. Returns how far that
/// was.
fn begin(blocks: &mut Blocks<'_>, head: &mut Head) -> Result<usize, ReadError> {
    let mut least = 1 << 20;
    let from = loop {
        let text = blocks.look(least);
        let (found, length) = (head::before_events(text, head), text.len());
        if let Some(other) = is_another(&found, text, head) {
            return Err(other);
        }
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

/// JSON that holds no events: why it is not read.
fn is_another(found: &Scanned<Option<usize>>, text: &[u8], head: &Head) -> Option<ReadError> {
    let json = match *found {
        // of an array of events the first is an object
        Ok(Some(from)) if head.is_array() && text.get(from..).is_some_and(begins_a_list) => Json::Lists(text),
        Ok(None) if is_lines(text) => Json::Lines(text),
        Ok(None) => Json::Object(text),
        _ => return None,
    };
    Some(mistaken::for_events(json))
}

fn begins_a_list(rest: &[u8]) -> bool {
    rest.trim_ascii_start().first() == Some(&b'[')
}

/// Is it an object, and behind its end another one?
fn is_lines(text: &[u8]) -> bool {
    let mut scan = Scan::new(text, 0);
    scan.value().is_ok() && scan.peek() == Ok(b'{')
}

/// Reads the events of a block.
fn events(block: &Block<'_>) -> Part {
    let bytes = block.text.bytes();
    let mut part = Part::default();
    let mut scan = Scan::new(bytes, 0);
    let mut left = bytes.len().saturating_mul(MOST_PASSES);
    loop {
        let next = scan.peek();
        let begin = scan.at();
        let bad = match next {
            Ok(b'{') => event::event(&mut scan, &mut part).err(),
            Ok(b',') => scan.expect(b',').err(),
            Ok(b']') => {
                part.ended = scan.expect(b']').is_ok();
                break;
            }
            Ok(_) => Some(Bad::Syntax(scan.at())),
            // the text ends between events, as every block but the last should
            Err(_) => break,
        };
        let Some(bad) = bad else { continue };
        let (Bad::End(reached) | Bad::Syntax(reached)) = bad;
        if !block.last && matches!(bad, Bad::End(_)) {
            part.refused.cut = true;
            break;
        }
        // a quote or bracket too few and an event seems to go on to the end: if another one begins
        // in it, it is damaged
        left = left.saturating_sub(reached.saturating_sub(begin));
        let next = resume(bytes, begin + 1);
        let own = bytes.get(begin..next.unwrap_or(bytes.len())).unwrap_or(&[]);
        part.odd = true;
        if let Some(length) = recover::with_quotes(own, &mut part) {
            scan = Scan::new(bytes, begin + length);
            continue;
        }
        match next.filter(|_| left > 0) {
            Some(next) => {
                part.refused.lost_one(recover::is_aside(own), |r| &mut r.broken);
                scan = Scan::new(bytes, next);
            }
            None => {
                part.refused.damaged = left == 0 || matches!(bad, Bad::Syntax(_));
                break;
            }
        }
    }
    part.refused.cut |= block.last && !part.ended && !part.refused.damaged;
    part.stopped = scan.at();
    part
}

/// Behind a place that is no JSON: where an event may begin again.
fn resume(bytes: &[u8], from: usize) -> Option<usize> {
    next_object(bytes, from, &[b"ph", b"name", b"cat"])
}

/// `tail`: what stands behind the list of events, if its end was found.
fn finish(
    parts: Vec<Part>,
    mut head: Head,
    tail: Option<&[u8]>,
    bytes: u64,
    damage: Option<&io::Error>,
) -> Result<Kineto, ReadError> {
    let end = tail.map(|t| head::after_events(t, &mut head));
    let mut kineto = join::join(parts, &head)?;
    kineto.bytes = bytes;
    let r = &mut kineto.refused;
    match (end, tail) {
        (Some(Ok(at)), Some(tail)) => {
            let behind = tail.get(at..).unwrap_or(&[]).trim_ascii_end();
            kineto.behind = behind.len() as u64;
            r.broken += u64::from(kineto.behind > 0);
            r.damaged |= resume(behind, 0).is_some();
        }
        (Some(Err(Bad::End(_))), _) => r.cut = true,
        (Some(Err(Bad::Syntax(_))), _) => r.damaged = true,
        _ => {}
    }
    match damage.map(io::Error::kind) {
        Some(io::ErrorKind::UnexpectedEof) => r.cut = true,
        Some(_) => r.damaged = true,
        None => {}
    }
    r.cut &= !r.damaged;
    // of a trace that is not whole its head says more than there is
    match head.whole_from() {
        Some(_) => r.older = head.left_out,
        None => r.left_out = head.left_out,
    }
    kineto.run.foreign |= r.cut || r.damaged || r.left_out > 0;
    kineto.own = head.own.is_some();
    kineto.zero = head.own.as_ref().and_then(|own| u64::try_from(own.base).ok()).unwrap_or(0);
    kineto.said = head.line.take().filter(|line| kineto.own && !line.is_empty());
    if kineto.own && (kineto.refused.cut || kineto.refused.damaged) {
        known_to_the_last(&mut kineto.run);
    }
    Ok(kineto)
}

/// What the head says was complete was so in the recording; in a file that is truncated
/// nothing is known behind its last operation.
fn known_to_the_last(run: &mut Run) {
    let ops = run.devices.iter().flat_map(|d| &d.streams).filter_map(|s| s.ops.iter().map(|o| o.end).max());
    let last = ops.max().unwrap_or(0);
    let h = &mut run.header;
    for complete_to in [&mut h.gpu_complete_to, &mut h.host_complete_to] {
        *complete_to = (*complete_to).min(last);
    }
}
