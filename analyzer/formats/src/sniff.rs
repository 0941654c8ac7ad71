// SPDX-License-Identifier: Apache-2.0
//! Opens a file, sees by its first bytes what it is, and hands it to its reader.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::AtomicU64;

use trace::header::{Header, HEADER_BYTES};
use trace::segment::SEGMENT_BYTES;
use verdict::load;
use verdict::output::report::ReportError;
use verdict::run::Recorder;
use verdict::text::escape::visible;
use verdict::text::plural;
use verdict::text::plural::counted;

use super::gzip::Members;
use super::kineto::{self, Kineto};
use super::nsys::{self, Nsys};
use super::{mistaken, Format, Input, Operators, Progress, ReadError, Refused};

const GZIP: &[u8] = &[0x1f, 0x8b];
const SQLITE: &[u8] = b"SQLite format 3\0";
const RECORDING: &[u8] = b"GAPPROBE";
/// So many bytes tell a format that is read.
const FIRST: usize = 32;
/// What to do about a file that is not whole.
const ONCE_MORE: &str = "copy it once more, whole: gzip -t FILE tells whether it is";
const ONCE_MORE_WHOLE: &str = "copy it once more, whole";

/// See [`super::read`].
pub(super) fn read(path: &Path, progress: &Progress) -> Result<Input, ReadError> {
    // asked before it is opened: opening a pipe waits for its writer
    let kind = std::fs::metadata(path).map_err(|e| ReadError::io(&e))?.file_type();
    if !kind.is_file() {
        return Err(ReadError::new(
            "not a regular file",
            "give the trace itself (a pipe can be written to a file first)",
        ));
    }
    let file = File::open(path).map_err(|e| ReadError::io(&e))?;
    let map = super::map::map(&file).map_err(|e| ReadError::io(&e))?;
    let bytes: &[u8] = &map;
    progress.of(bytes.len() as u64);
    if bytes.is_empty() {
        return Err(ReadError::new("the file is empty", "did the program that wrote it end early?"));
    }
    if bytes.starts_with(GZIP) {
        return compressed(bytes, progress);
    }
    if bytes.starts_with(RECORDING) {
        return recording(bytes);
    }
    if bytes.starts_with(SQLITE) {
        drop(map);
        return nsys::read(path, progress).map(from_nsys);
    }
    if bytes.starts_with(nsys::REPORT) {
        drop(map);
        return nsys::read_report(path, progress).map(from_nsys);
    }
    if let Some(other) = mistaken::for_a_trace(bytes.get(..mistaken::ENOUGH).unwrap_or(bytes), false) {
        return Err(other);
    }
    encoding(bytes)?;
    kineto::read_mapped(bytes, progress).map(from_kineto)
}

/// JSON is UTF-8 and has no zeros; a text in another encoding shows by its mark or by where the
/// zeros stand.
fn encoding(first: &[u8]) -> Result<(), ReadError> {
    let begins = |b: u8| b"{[ \t\r\n".contains(&b);
    let name = match *first {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => "UTF-32",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16",
        [b, 0, 0, 0, ..] | [0, 0, 0, b, ..] if begins(b) => "UTF-32",
        [b, 0, 1..=255, 0, ..] | [0, b, 0, 1..=255, ..] if begins(b) => "UTF-16",
        _ => return Ok(()),
    };
    Err(ReadError::new(
        format!("a text in {name}; JSON is UTF-8"),
        format!(
            "convert it: iconv -f {name} -t UTF-8 FILE > NEW.json (Windows PowerShell's > writes UTF-16)"
        ),
    ))
}

/// A `.gz` of any of them.
fn compressed(bytes: &[u8], progress: &Progress) -> Result<Input, ReadError> {
    let behind = AtomicU64::new(0);
    let mut input = inflated(bytes, &behind, progress)?;
    let behind = behind.into_inner();
    if behind > 0 {
        input.notes.push(behind_the_end(behind, "compressed data", "ignored"));
    }
    Ok(input)
}

/// The same; `behind` is told what stands behind what is compressed.
fn inflated(bytes: &[u8], behind: &AtomicU64, progress: &Progress) -> Result<Input, ReadError> {
    let inflate = || Members::new(bytes, behind);
    let mut first = [0u8; mistaken::ENOUGH];
    let got = read_up_to(&mut inflate(), &mut first).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::new(
            format!(
                "the compressed file is truncated after byte {}, before anything can be unpacked",
                bytes.len()
            ),
            ONCE_MORE,
        ),
        _ => ReadError::new("damaged at its very begin: it cannot be unpacked", "gzip -t FILE tells more"),
    })?;
    if first[..got].starts_with(RECORDING) {
        // as much as its header says, and a little to see that there is more
        let mut all = Vec::new();
        let mut from = inflate().telling(progress);
        let mut end = from.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut all);
        let known = all.first_chunk::<HEADER_BYTES>().and_then(|h| Header::decode(h).ok());
        let segments = known.map_or(0, |h| u64::from(h.segments) * SEGMENT_BYTES as u64);
        if end.is_ok() {
            end = from.by_ref().take(segments).read_to_end(&mut all);
        }
        let Err(e) = end else { return recording(&all) };
        // what was unpacked before it is a recording that is truncated, as one that was cut
        // without being compressed
        let place = match e.kind() {
            io::ErrorKind::UnexpectedEof => format!("it is truncated after byte {}", bytes.len()),
            _ => format!("it is damaged at about byte {}", bytes.len() - from.left()),
        };
        let mut input = recording(&all).map_err(|e| {
            ReadError::new(
                format!("of the compressed recording too little is left: {place} ({})", e.what),
                ONCE_MORE,
            )
        })?;
        input.run.problems.cut_segments = input.run.problems.cut_segments.max(1);
        input.notes.push(format!("{place}: what followed is missing ({ONCE_MORE})"));
        return Ok(input);
    }
    if first[..got].starts_with(SQLITE) {
        return nsys::read_packed(inflate(), bytes.len() as u64, progress).map(from_nsys);
    }
    if first[..got].starts_with(nsys::REPORT) {
        return Err(ReadError::new("a compressed nsys report", "unpack it: gunzip FILE"));
    }
    if let Some(other) = mistaken::for_a_trace(first.get(..got).unwrap_or(&[]), true) {
        return Err(other);
    }
    encoding(first.get(..got).unwrap_or(&[]))?;
    // how much text there is, nobody knows: what is told is how much of the file was unpacked
    let text = Progress::default();
    kineto::read_inflated(|| Box::new(inflate().telling(progress)), &text).map(from_kineto)
}

fn behind_the_end(bytes: u64, what: &str, how: &str) -> String {
    let (stand, are) = (plural::of(bytes, "stands", "stand"), plural::of(bytes, "is", "are"));
    format!("{} {stand} after the end of the {what} and {are} {how}", counted(bytes, "byte"))
}

fn read_up_to(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < to.len() {
        match from.read(&mut to[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            // of a file that ends there, what it has tells what it is
            Err(_) if got >= FIRST => break,
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

fn recording(bytes: &[u8]) -> Result<Input, ReadError> {
    let mut run =
        load(bytes).map_err(|e| ReadError::new(e.to_string(), "gapprobe recover FILE tells more"))?;
    if run.events == 0 && run.problems.damaged() > 0 {
        let why = ReportError::Damaged { segments: run.header.segments, bytes: bytes.len() as u64 };
        return Err(ReadError::new(why.to_string(), ONCE_MORE_WHOLE));
    }
    verdict::symbols::name_with_lines(&mut run, None);
    let (events, bytes) = (run.events, bytes.len() as u64);
    Ok(Input {
        format: Format::Recording,
        run,
        zero: 0,
        refused: Refused::default(),
        events,
        bytes,
        notes: Vec::new(),
        os_calls: Vec::new(),
        operators: Operators::default(),
    })
}

fn from_nsys(n: Nsys) -> Input {
    let Nsys { mut run, refused, rows, bytes, mut notes, os_calls } = n;
    notes.extend(refused.nowhere());
    run.problems.bad_events = refused.lost();
    run.recorder = Recorder::Nsys;
    Input {
        format: Format::Nsys,
        run,
        zero: 0,
        refused,
        events: rows,
        bytes,
        notes,
        os_calls,
        operators: Operators::default(),
    }
}

fn from_kineto(k: Kineto) -> Input {
    let mut notes = Vec::new();
    if k.rounded {
        notes.push("stamps are whole microseconds: shorter kernels and gaps are rounded".to_owned());
    }
    if k.xla && !k.run.functions.is_empty() {
        let note = "Python functions were traced, which slows the host: by how much is not known";
        notes.push(note.to_owned());
    }
    if k.refused.cut {
        notes.push("the file is truncated: what followed is missing".to_owned());
    }
    if k.refused.damaged {
        notes.push("the file is damaged: what follows the damage cannot be read".to_owned());
    }
    notes.extend(k.refused.nowhere());
    notes.extend(k.refused.beside());
    if k.behind > 0 {
        notes.push(behind_the_end(k.behind, "trace", "not read"));
    }
    if k.refused.left_out > 0 {
        notes.push(format!(
            "{} {} left out of it when it was written, to keep it small: the recording has them",
            counted(k.refused.left_out, "event"),
            plural::of(k.refused.left_out, "was", "were")
        ));
    }
    if k.refused.older > 0 {
        notes.push(format!(
            "{} older {} left out of it when it was written, to keep it small: what is said is of the part it has whole; \
             the recording, where it was kept, has them all",
            k.refused.older,
            plural::of(k.refused.older, "event was", "events were")
        ));
    }
    if let Some(line) = k.said.filter(|_| k.refused.older > 0 || k.refused.left_out > 0) {
        notes.push(format!("of the whole run was said: {}", visible(&line)));
    }
    let Kineto { mut run, operators, refused, events, bytes, own, zero, xla, .. } = k;
    let ends = u64::from(refused.cut) + u64::from(refused.damaged);
    run.problems.bad_events += refused.lost() - ends;
    run.problems.cut_segments += u64::from(refused.cut);
    run.problems.bad_segments += u64::from(refused.damaged);
    let format = match (own, xla) {
        (true, _) => Format::Own(run.recorder),
        (false, true) => Format::Xla,
        (false, false) => Format::Kineto,
    };
    // (what was exported of such a trace has its ranges, too)
    if format.recorder() == Recorder::Torch {
        run.take_operators();
    }
    Input { format, run, zero, refused, events, bytes, notes, os_calls: Vec::new(), operators }
}
