// SPDX-License-Identifier: Apache-2.0
// WARM
//! Steps through activity buffers, those that came back and those that are still lent, and hands
//! each record to `decode`. Only with CUPTI's own `GetNextRecord`: the distance between two records
//! differs by release.

use std::ptr::NonNull;

use super::decode::{Decoder, Sink};
use super::{buffers, calls};
use cupti_sys::{kind, record, Cupti};

/// Highest offset that is read of any record.
const MAX_RECORD_BYTES: usize = 224;

/// Where the records of a buffer lie: offsets that `GetNextRecord` gives, each inside `bytes`.
struct Offsets<'a> {
    cupti: &'a Cupti,
    base: NonNull<u8>,
    bytes: usize,
    next: *mut cupti_sys::bindings::CUpti_Activity,
}

impl Iterator for Offsets<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let base = self.base.as_ptr();
        // SAFETY: a buffer of ours with that many bytes, never unmapped; the record pointer starts
        // null and is only ever what CUPTI made it.
        let result = unsafe { (self.cupti.activity_get_next_record)(base, self.bytes, &mut self.next) };
        let offset = (self.next as usize).checked_sub(base as usize);
        offset.filter(|o| result.is_success() && *o < self.bytes && o % record::ALIGNMENT == 0)
    }
}

fn offsets(cupti: &Cupti, base: NonNull<u8>, bytes: usize) -> Offsets<'_> {
    Offsets { cupti, base, bytes, next: std::ptr::null_mut() }
}

/// When the first cudaProfilerStart of a buffer returned, ns. What was launched after it may lie
/// before its record is decoded, in this buffer or another.
pub(crate) fn first_start_in(cupti: &Cupti, full: &buffers::Full) -> Option<u64> {
    // SAFETY: the drain thread owns the buffer; `valid` is at most its size.
    let bytes = unsafe { std::slice::from_raw_parts(full.address.as_ptr(), full.valid) };
    offsets(cupti, full.address, full.valid)
        .filter_map(|offset| {
            let record = bytes.get(offset..)?;
            let runtime = match record::kind_of(record)? {
                kind::RUNTIME => true,
                kind::DRIVER => false,
                _ => return None,
            };
            let call = record::Api::read(record)?;
            calls::is_profiler_start(runtime, call.cbid).then_some(call.end).filter(|end| *end > 0)
        })
        .min()
}

impl Decoder {
    /// Decodes a buffer that came back, but for what was read in place before.
    pub(crate) fn buffer(&mut self, cupti: &Cupti, full: &buffers::Full, sink: &mut Sink<'_>) {
        // SAFETY: the drain thread owns the buffer; `valid` is at most its size.
        let bytes = unsafe { std::slice::from_raw_parts(full.address.as_ptr(), full.valid) };
        self.begin_buffer(bytes, sink.now);
        for offset in offsets(cupti, full.address, full.valid).skip(full.consumed) {
            let rest = bytes.get(offset..).unwrap_or(&[]);
            self.record(rest.get(..MAX_RECORD_BYTES).unwrap_or(rest), sink);
        }
        self.end_of_reading(sink);
    }

    /// Decodes the records at the front of a buffer that is still lent, as far as a flush has
    /// completed them in place. True if there is one that is not complete.
    pub(crate) fn front_of(&mut self, cupti: &Cupti, stuck: &buffers::Stuck, sink: &mut Sink<'_>) -> bool {
        let (mut read, mut launched, mut pending) = (0, 0, false);
        for offset in offsets(cupti, stuck.address, buffers::BUFFER_BYTES) {
            let (copy, length) = copy_of(stuck.address, offset);
            let bytes = copy.get(..length).unwrap_or(&copy);
            if !is_complete(bytes) {
                pending = true;
                break;
            }
            read += 1;
            if read <= stuck.consumed {
                continue;
            }
            if let (Some(kind::RUNTIME | kind::DRIVER), Some(r)) =
                (record::kind_of(bytes), record::Api::read(bytes))
            {
                launched = launched.max(r.start);
            }
            self.record(bytes, sink);
        }
        self.end_of_reading(sink);
        buffers::consumed(stuck, read.max(stuck.consumed), launched);
        pending
    }
}

/// A copy of the record at `offset` of a lent buffer, and its length. Volatile and a word at a time
/// because CUPTI may be finishing it: the checks of [`is_complete`] need all of its words.
fn copy_of(base: NonNull<u8>, offset: usize) -> ([u8; MAX_RECORD_BYTES], usize) {
    let length = MAX_RECORD_BYTES.min(buffers::BUFFER_BYTES - offset);
    let mut copy = [0u8; MAX_RECORD_BYTES];
    for (i, to) in copy.chunks_exact_mut(8).enumerate().take(length / 8) {
        let from = base.as_ptr().wrapping_add(offset + i * 8).cast::<u64>();
        // SAFETY: inside the buffer ([`Offsets`]) and aligned: records are at multiples of 8.
        to.copy_from_slice(&unsafe { std::ptr::read_volatile(from) }.to_ne_bytes());
    }
    (copy, length)
}

/// Has CUPTI finished this record? Until then its kind carries CUPTI's pending bit, or its end is 0
/// (seen on the H200; releases without the bit have the zero end).
fn is_complete(bytes: &[u8]) -> bool {
    macro_rules! has_times {
        ($record:ident) => {
            record::$record::read(bytes).is_some_and(|r| r.start != 0 && r.end != 0)
        };
    }
    match record::kind_of(bytes) {
        Some(kind::CONCURRENT_KERNEL) => has_times!(Kernel),
        Some(kind::MEMCPY) => has_times!(Memcpy),
        Some(kind::MEMCPY2) => has_times!(MemcpyPeer),
        Some(kind::MEMSET) => has_times!(Memset),
        Some(kind::SYNCHRONIZATION) => has_times!(Synchronization),
        Some(kind::RUNTIME | kind::DRIVER) => has_times!(Api),
        Some(kind::CONTEXT) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_complete_once_it_has_its_kind_and_both_times() {
        const PENDING: u32 = 1 << 31;
        let mut bytes = [0u8; MAX_RECORD_BYTES];
        for (start, end, complete) in [(0, 0, false), (5, 0, false), (5, 9, true)] {
            record::Kernel { start, end, ..Default::default() }.write(&mut bytes);
            for (pending, kind) in
                [(false, kind::CONCURRENT_KERNEL), (true, kind::CONCURRENT_KERNEL | PENDING)]
            {
                record::set_kind(&mut bytes, kind);
                assert_eq!(is_complete(&bytes), complete && !pending, "{start} {end} {pending}");
            }
        }
        assert!(!is_complete(&[]) && !is_complete(&[0; 64]));
    }
}
