// SPDX-License-Identifier: Apache-2.0
//! `simReplay`: hands the records of SIM_REPLAY to the CUPTI client of this process, as if they
//! happened now.
//!
//! Every time in the records is moved by one amount; kernel names point to live copies. Callbacks
//! are delivered on the calling thread, to whoever subscribed to them.

use super::{parse, release_of, Callback, Recording, What};
use crate::clock;
use crate::cupti::layout::{kind, record_size, set_release};
use crate::cupti::{buffers, subscriber, timestamps};
use crate::settings::settings;
use std::collections::HashMap;

/// Offsets of the time fields and of the name pointer in a kind's records, the same in all
/// releases.
fn fields(kind: u32) -> (&'static [usize], Option<usize>) {
    match kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => (&[16, 24, 32], Some(104)),
        kind::MEMCPY | kind::MEMSET | kind::MEMCPY2 => (&[16, 24], None),
        kind::DRIVER | kind::RUNTIME | kind::SYNCHRONIZATION | kind::GRAPH_TRACE => (&[8, 16], None),
        kind::OVERHEAD => (&[24, 32], None),
        kind::MARKER => (&[8], Some(40)),
        kind::CUDA_EVENT => (&[40], None),
        _ => (&[], None),
    }
}

fn word(record: &[u8], at: usize) -> u64 {
    let field = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    field.map_or(0, u64::from_le_bytes)
}

fn set_word(record: &mut [u8], at: usize, value: u64) {
    if let Some(field) = record.get_mut(at..at + 8) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Records of a buffer, by the sizes of `release`; stops at a kind that has none.
fn records(mut bytes: &[u8], release: u32) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let kind = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let (record, rest) = bytes.split_at_checked(record_size(kind, release)?)?;
        bytes = rest;
        Some((kind, record))
    })
}

/// Earliest and latest time in any record.
fn span(recording: &Recording<'_>, release: u32) -> Option<(u64, u64)> {
    let buffers = recording.chunks.iter().filter_map(|chunk| match chunk.what {
        What::Buffer(bytes) => Some(bytes),
        _ => None,
    });
    let times = buffers.flat_map(|bytes| records(bytes, release)).flat_map(|(kind, record)| {
        fields(kind).0.iter().map(move |at| word(record, *at)).filter(|time| *time != 0)
    });
    times.fold(None, |seen, time| match seen {
        None => Some((time, time)),
        Some((first, last)) => Some((time.min(first), time.max(last))),
    })
}

struct Player {
    release: u32,
    /// Added to every time.
    shift: i64,
    /// Recorded name pointers and their live copies, which are never freed.
    names: HashMap<u64, u64>,
    /// The 8 bytes that enter and exit of one call share.
    shared: HashMap<(u32, u32, u32), u64>,
    played: i64,
}

impl Player {
    fn learn(&mut self, what: &What<'_>) {
        if let What::Name { pointer, text } = what {
            let live = [*text, b"\0".as_slice()].concat().leak().as_ptr();
            self.names.insert(*pointer, live as u64);
        }
    }

    fn buffer(&mut self, bytes: &[u8]) {
        // (address, size, used) of the client's buffer being filled.
        let mut lent: Option<(usize, usize, usize)> = None;
        for (kind, record) in records(bytes, self.release) {
            let mut record = record.to_vec();
            let (times, name) = fields(kind);
            for at in times {
                let time = word(&record, *at);
                if time != 0 {
                    set_word(&mut record, *at, time.wrapping_add_signed(self.shift));
                }
            }
            if let Some(at) = name {
                let live = self.names.get(&word(&record, at)).copied().unwrap_or(0);
                set_word(&mut record, at, live);
            }
            if lent.is_some_and(|(_, size, used)| used + record.len() > size) {
                lent.take().into_iter().for_each(|(at, size, used)| buffers::complete(at, size, used));
            }
            let into = lent.take().or_else(|| buffers::lend().map(|(at, size)| (at, size, 0)));
            match into {
                Some((at, size, used)) if used + record.len() <= size => {
                    // SAFETY: the client lent `size` bytes at `at`, and the record fits behind the
                    // `used` ones.
                    unsafe {
                        std::ptr::copy_nonoverlapping(record.as_ptr(), (at + used) as *mut u8, record.len())
                    };
                    lent = Some((at, size, used + record.len()));
                    self.played += 1;
                }
                too_small => {
                    lent = too_small;
                    buffers::drop_one();
                }
            }
        }
        lent.into_iter().for_each(|(at, size, used)| buffers::complete(at, size, used));
    }

    fn callback(&mut self, recorded: &Callback) {
        if !subscriber::enabled(recorded.domain, recorded.cbid) {
            return;
        }
        let params = [0u64; 16];
        let key = (recorded.thread, recorded.domain, recorded.correlation);
        let shared = self.shared.entry(key).or_insert(0);
        let result = 0i32;
        let data = subscriber::CallbackData {
            site: recorded.site,
            function_name: c"replayed".as_ptr(),
            function_params: params.as_ptr().cast(),
            return_value: if recorded.site == 1 { (&raw const result).cast() } else { std::ptr::null() },
            symbol_name: std::ptr::null(),
            context: 0,
            context_uid: 0,
            correlation_data: shared,
            correlation_id: recorded.correlation,
        };
        subscriber::deliver(recorded.domain, recorded.cbid, std::ptr::from_ref(&data).cast());
        if recorded.site == 1 {
            self.shared.remove(&key);
        }
    }
}

/// Replays SIM_REPLAY; the number of activity records handed out, negative when the file cannot be
/// replayed.
///
/// `speed` 1.0: with the recorded spacing, the recording's first time becoming now. `speed` 2.0:
/// chunks come twice as fast (record times keep their distances). `speed` 0: all at once, the
/// recording's last time becoming now, so that nothing lies in the future. Record sizes are those
/// of the recorded release from here on.
#[no_mangle]
extern "C" fn simReplay(speed: f64) -> i64 {
    let Some(bytes) = settings().replay.as_ref().and_then(|path| std::fs::read(path).ok()) else { return -1 };
    let Ok(recording) = parse(&bytes) else { return -2 };
    let Some(release) = release_of(recording.cupti_version, &recording.soname) else { return -3 };
    set_release(release);
    let now = timestamps::now();
    let shift = span(&recording, release).map_or(0, |(first, last)| {
        let origin = if speed > 0.0 { first } else { last };
        now as i64 - origin as i64
    });
    let mut player = Player { release, shift, names: HashMap::new(), shared: HashMap::new(), played: 0 };
    let (began, first) = (clock::now(), recording.chunks.first().map_or(0, |chunk| chunk.at));
    // A name may be written after the first buffer that needs it: until then its first string
    // counts.
    for chunk in recording.chunks.iter().rev() {
        player.learn(&chunk.what);
    }
    for chunk in &recording.chunks {
        if speed > 0.0 {
            clock::sleep_until(began + (chunk.at.saturating_sub(first) as f64 / speed) as u64);
        }
        match &chunk.what {
            What::Buffer(bytes) => player.buffer(bytes),
            What::Name { .. } => player.learn(&chunk.what),
            What::Callback(callback) => player.callback(callback),
        }
    }
    player.played
}
