// SPDX-License-Identifier: Apache-2.0
//! Where the bytes of a trace go: gzip, on several threads, into any writer.
//!
//! Compressing is nine tenths of the work of writing a trace. Blocks of text are compressed
//! independently (raw deflate, each ended by a sync flush) and put one after the other into one
//! gzip member, as pigz does; so the file is the same whatever the number of threads. Blocks travel
//! to the threads and come back empty: memory is [`BLOCK_BYTES`] times twice the threads, and the
//! compressors' windows, however long the trace. Where no thread can be had (limits of the program
//! we live in) the same is done in place. The threads inherit the signal mask of their creator: a
//! caller inside a foreign process blocks all signals first.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use flate2::{Compress, Compression, Crc, FlushCompress};

/// Bytes of JSON compressed at a time; a block does not refer to the one before (32 KiB), so not
/// too small.
pub(super) const BLOCK_BYTES: usize = 512 << 10;
/// Threads at most: beyond that formatting is what takes the time.
const THREADS: usize = 4;
/// Digits make up most of what is left after the repetitions, so trees made for the block pay:
/// level 1 has none. Measured on a million kernels, a million launches and 416,000 idle slices, CPU
/// time on a busy machine: level 1 about 66 MB in 1.1 s, 2: 46.7 MB in 1.5 s, 3: 44.3 MB in 1.9 s,
/// 4: 43.1 MB in 2.2 s.
const LEVEL: u32 = 2;
/// Gzip header: deflate, no name, no time, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// An empty stored block with the mark of the last one.
const LAST_BLOCK: [u8; 5] = [1, 0, 0, 0xff, 0xff];

/// A block and what became of it.
#[derive(Default)]
struct Piece {
    text: Vec<u8>,
    packed: Vec<u8>,
    crc: Crc,
    failed: bool,
}

/// Compresses `piece.text` into `piece.packed`.
fn pack(compressor: &mut Compress, piece: &mut Piece) -> Result<(), flate2::CompressError> {
    compressor.reset();
    piece.packed.clear();
    piece.crc.reset();
    piece.crc.update(&piece.text);
    loop {
        let done = compressor.total_in() as usize;
        let rest = piece.text.get(done..).unwrap_or(&[]);
        piece.packed.reserve(rest.len() / 2 + 4096);
        compressor.compress_vec(rest, &mut piece.packed, FlushCompress::Sync)?;
        // a flush is complete once it leaves room
        if compressor.total_in() as usize == piece.text.len() && piece.packed.len() < piece.packed.capacity()
        {
            return Ok(());
        }
    }
}

fn compressor() -> Compress {
    Compress::new(Compression::new(LEVEL), false)
}

/// Threads at work, and the pieces that are with them.
struct Team {
    jobs: Option<SyncSender<(u64, Piece)>>,
    done: Receiver<(u64, Piece)>,
    threads: Vec<JoinHandle<()>>,
    /// Number of the next piece handed out.
    given: u64,
    /// Pieces not yet written, from the oldest; `None`: still with a thread.
    back: VecDeque<Option<Piece>>,
}

impl Team {
    fn new() -> Option<Team> {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        if wanted < 2 {
            return None; // one core: a thread more only costs
        }
        let (jobs, incoming) = mpsc::sync_channel(2 * wanted);
        let incoming = Arc::new(Mutex::new(incoming));
        let (back, done) = mpsc::channel();
        let threads: Vec<_> = (0..wanted)
            .map_while(|_| {
                let (incoming, back) = (incoming.clone(), back.clone());
                let name = "gapprobe-gzip".to_owned();
                std::thread::Builder::new().name(name).spawn(move || work(&incoming, &back)).ok()
            })
            .collect();
        (!threads.is_empty()).then_some(Team {
            jobs: Some(jobs),
            done,
            threads,
            given: 0,
            back: VecDeque::new(),
        })
    }

    /// Waits for a piece to come back and puts it where it belongs.
    fn receive(&mut self) -> io::Result<()> {
        let (number, piece) =
            self.done.recv().map_err(|_| io::Error::other("the compressing threads stopped"))?;
        let oldest = self.given - self.back.len() as u64;
        if let Some(place) = self.back.get_mut((number - oldest) as usize) {
            *place = Some(piece);
        }
        Ok(())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // it has caught its own panics
        }
    }
}

/// What each thread does: take the next piece, compress it, send it back.
fn work(incoming: &Mutex<Receiver<(u64, Piece)>>, back: &Sender<(u64, Piece)>) {
    let mut compressor = compressor();
    loop {
        let next = incoming.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, mut piece)) = next else { return };
        // a piece that never came back would be waited for forever
        let packed = catch_unwind(AssertUnwindSafe(|| pack(&mut compressor, &mut piece)));
        piece.failed = !matches!(packed, Ok(Ok(())));
        if back.send((number, piece)).is_err() {
            return;
        }
    }
}

enum Way {
    Here(Box<Compress>, Piece),
    Threads(Team),
}

/// Compresses blocks in the order given.
pub(super) struct Sink<W: Write> {
    writer: W,
    way: Way,
    crc: Crc,
    written: u64,
}

impl<W: Write> Sink<W> {
    /// A sink into `writer`; `threaded`: compress on other threads, where some can be had.
    pub(super) fn new(writer: W, threaded: bool) -> Sink<W> {
        let team = if threaded { Team::new() } else { None };
        let way = team.map_or_else(|| Way::Here(Box::new(compressor()), Piece::default()), Way::Threads);
        Sink { writer, way, crc: Crc::new(), written: 0 }
    }

    /// Takes the bytes of `block` and leaves it empty.
    ///
    /// # Errors
    /// What the writer returned.
    pub(super) fn take(&mut self, block: &mut Vec<u8>) -> io::Result<()> {
        if block.is_empty() {
            return Ok(());
        }
        match &mut self.way {
            Way::Here(compressor, piece) => {
                std::mem::swap(&mut piece.text, block);
                piece.failed = pack(compressor, piece).is_err();
                put(&mut self.writer, &mut self.crc, &mut self.written, piece)?;
                std::mem::swap(&mut piece.text, block);
            }
            Way::Threads(team) => {
                let mut piece = Piece::default();
                if team.back.len() >= 2 * team.threads.len() {
                    while team.back.front().is_some_and(Option::is_none) {
                        team.receive()?;
                    }
                    if let Some(mut oldest) = team.back.pop_front().flatten() {
                        put(&mut self.writer, &mut self.crc, &mut self.written, &oldest)?;
                        oldest.text.clear();
                        piece = oldest; // its memory goes round
                    }
                }
                if piece.text.capacity() == 0 {
                    piece.text.reserve(BLOCK_BYTES + BLOCK_BYTES / 8);
                }
                std::mem::swap(&mut piece.text, block);
                let jobs = team.jobs.as_ref().ok_or_else(|| io::Error::other("writing had ended"))?;
                jobs.send((team.given, piece))
                    .map_err(|_| io::Error::other("the compressing threads stopped"))?;
                team.given += 1;
                team.back.push_back(None);
            }
        }
        block.clear();
        Ok(())
    }

    /// Compressed bytes that have reached the writer.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Ends the gzip stream; gives the writer back, and the bytes it got.
    ///
    /// # Errors
    /// What the writer returned.
    pub(super) fn finish(mut self) -> io::Result<(W, u64)> {
        if let Way::Threads(team) = &mut self.way {
            while !team.back.is_empty() {
                while team.back.front().is_some_and(Option::is_none) {
                    team.receive()?;
                }
                if let Some(piece) = team.back.pop_front().flatten() {
                    put(&mut self.writer, &mut self.crc, &mut self.written, &piece)?;
                }
            }
        }
        let mut end = if self.written == 0 { HEADER.to_vec() } else { Vec::new() };
        end.extend_from_slice(&LAST_BLOCK);
        end.extend_from_slice(&self.crc.sum().to_le_bytes());
        end.extend_from_slice(&self.crc.amount().to_le_bytes());
        self.writer.write_all(&end)?;
        self.writer.flush()?;
        Ok((self.writer, self.written + end.len() as u64))
    }
}

/// Writes a compressed piece, the header before the first.
fn put<W: Write>(writer: &mut W, crc: &mut Crc, written: &mut u64, piece: &Piece) -> io::Result<()> {
    if piece.failed {
        return Err(io::Error::other("the compressor failed"));
    }
    if *written == 0 {
        writer.write_all(&HEADER)?;
        *written += HEADER.len() as u64;
    }
    writer.write_all(&piece.packed)?;
    crc.combine(&piece.crc);
    *written += piece.packed.len() as u64;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// A disk that is full after so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            if self.0 < buf.len() {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.0 -= buf.len();
            Ok(buf.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Bytes that do not compress to nothing.
    fn block(seed: u64, length: usize) -> Vec<u8> {
        let mut x = seed | 1;
        (0..length)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 60) as u8
            })
            .collect()
    }

    #[test]
    fn any_number_of_threads_gives_the_same_file_and_the_bytes_back() {
        for count in [0usize, 1, 14] {
            let files = [false, true].map(|threaded| {
                let mut sink = Sink::new(Vec::new(), threaded);
                let mut expected = Vec::new();
                for i in 0..count {
                    let mut b = block(i as u64, 1 + i * 9_973 % BLOCK_BYTES);
                    expected.extend_from_slice(&b);
                    sink.take(&mut b).unwrap();
                    assert!(b.is_empty());
                }
                let (file, bytes) = sink.finish().unwrap();
                assert_eq!(bytes, file.len() as u64);
                let mut back = Vec::new();
                // GzDecoder reads one member and checks its sum and length
                let mut gzip = flate2::read::GzDecoder::new(file.as_slice());
                gzip.read_to_end(&mut back).unwrap();
                assert!(back == expected);
                file
            });
            assert!(files[0] == files[1]);
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_hang() {
        for threaded in [false, true] {
            let mut sink = Sink::new(Full(600 << 10), threaded);
            let failed = (0..200).find_map(|i| sink.take(&mut block(i, BLOCK_BYTES)).err()).map(|e| e.kind());
            assert_eq!(failed, Some(io::ErrorKind::StorageFull), "threaded {threaded}");
        }
        let mut sink = Sink::new(Full(10), true);
        sink.take(&mut block(1, 100)).unwrap();
        assert_eq!(sink.finish().err().map(|e| e.kind()), Some(io::ErrorKind::StorageFull));
    }
}
