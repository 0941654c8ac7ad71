// SPDX-License-Identifier: Apache-2.0
// WARM
//! Code objects of a process that was forked from this one: known where the very same one lies here, too.
//!
//! What was made before the fork lies at the same address in both. What either made since may lie where the other has another one, and
//! may say the same of itself: both go on counting from where they were (found by `where_forked_children_stand_...`: the
//! number that no two share is shared by one of each process). So what a code object points to is held against ours as well: its name with
//! the hash, the beginning of its file's name and of its line table.

use super::code::{head_bytes, Codes, Identity};
use super::layout::UNICODE_HASH;
use super::python::Python;
use super::remote::{u64_at, Batch, Memory};

/// Strings and bytes are compared from their length on, so many bytes at most: the length, the hash, the beginning of what is in them.
const LENGTH_AT: u64 = 16;
const COMPARED: usize = 64;
/// Between the length and the content of bytes, and of a string (40 from CPython 3.12 on, 48 before: then the end is not compared).
const HEAD_OF_BYTES: usize = 16;
const HEAD_OF_STRING: usize = 24;
/// The hash in these bytes.
const HASH: std::ops::Range<usize> = UNICODE_HASH - LENGTH_AT as usize..UNICODE_HASH - LENGTH_AT as usize + 8;

/// The same place in both processes.
struct Pair {
    theirs: Vec<u8>,
    ours: Vec<u8>,
}

/// Reads these places in both; `None` for one that cannot be read.
fn pairs<M: Memory>(theirs: &mut Batch<M>, places: &[(u64, usize)]) -> Vec<Option<Pair>> {
    let theirs = read_all(theirs, places);
    let ours = read_all(&mut Batch::<super::remote::Own>::default(), places);
    theirs.into_iter().zip(ours).map(|(theirs, ours)| Some(Pair { theirs: theirs?, ours: ours? })).collect()
}

fn read_all<M: Memory>(batch: &mut Batch<M>, places: &[(u64, usize)]) -> Vec<Option<Vec<u8>>> {
    batch.clear();
    let slots: Vec<_> = places.iter().map(|&(at, length)| batch.want(at, length)).collect();
    if batch.read() {
        return slots.iter().map(|slot| slot.map(|s| batch.bytes(s).to_vec())).collect();
    }
    // one of them is not there: which?
    places.iter().map(|&(at, length)| batch.read_one(at, length)).collect()
}

/// Of these code objects (0: none) those that are known here.
pub(super) fn known_here<M: Memory>(
    batch: &mut Batch<M>,
    python: &Python,
    addresses: &[u64],
    codes: &mut Codes,
) -> Vec<Option<u32>> {
    let (known, layout) = (python.known, &python.layout);
    let mut distinct: Vec<u64> = addresses.iter().copied().filter(|a| *a != 0).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let size = head_bytes(known);
    let heads: Vec<(u64, usize)> = distinct.iter().map(|&at| (at, size)).collect();
    let mut same: Vec<(u64, Vec<u8>, Identity)> = Vec::new();
    for (&address, pair) in distinct.iter().zip(pairs(batch, &heads)) {
        let Some(Pair { theirs, ours }) = pair else { continue };
        let (is, type_at) = (Identity::of(&ours, None, known, layout), known.layout.object_type());
        if Identity::of(&theirs, None, known, layout) == is
            && u64_at(&theirs, type_at) == u64_at(&ours, type_at)
        {
            same.push((address, ours, is));
        }
    }
    let contents = |i: &Identity| [i.name, i.file, i.table].map(|at| (at.wrapping_add(LENGTH_AT), COMPARED));
    let places: Vec<(u64, usize)> = same.iter().flat_map(|(_, _, i)| contents(i)).collect();
    let all = pairs(batch, &places);
    let mut ids = std::collections::HashMap::new();
    for ((address, head, _), contents) in same.iter().zip(all.chunks_exact(3)) {
        let [Some(name), Some(file), Some(table)] = contents else { continue };
        let is_same_name = name.theirs.get(HASH) == name.ours.get(HASH) && is_same(name, HEAD_OF_STRING);
        if !is_same_name || !is_same(file, HEAD_OF_STRING) || !is_same(table, HEAD_OF_BYTES) {
            continue;
        }
        let hash = layout.version.is_none().then(|| u64_at(&name.ours, HASH.start));
        ids.extend(codes.id(*address, head, hash, known, layout).map(|id| (*address, id)));
    }
    addresses.iter().map(|a| ids.get(a).copied()).collect()
}

/// Is it the same string, or bytes? But for the hash, which one of them may not have needed yet, and for what lies behind them.
fn is_same(of: &Pair, head: usize) -> bool {
    let length = usize::try_from(u64_at(&of.ours, 0)).unwrap_or(COMPARED);
    let end = head.saturating_add(length).min(of.ours.len());
    [0..HASH.start, HASH.end..end].into_iter().all(|part| of.theirs.get(part.clone()) == of.ours.get(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::remote::{Forked, Own};

    #[test]
    fn a_place_that_is_not_there_is_none_and_the_others_are_read() {
        let words = [7u64, 8, 9];
        let at = words.as_ptr() as u64;
        let read = read_all(&mut Batch::<Own>::default(), &[(at, 8), (4096, 8), (0, 8), (at + 16, 8)]);
        let read: Vec<_> = read.into_iter().map(|b| b.map(|b| u64_at(&b, 0))).collect();
        assert_eq!(read, [Some(7), None, None, Some(9)]);
        // (this process as its own fork)
        let mut theirs = Batch::of(Forked(std::process::id()));
        let both = pairs(&mut theirs, &[(at, 24), (4096, 8)]);
        assert!(
            both[1].is_none() && both[0].as_ref().is_some_and(|p| p.theirs == p.ours && p.ours.len() == 24)
        );
    }

    #[test]
    fn contents_are_the_same_whatever_their_hash_and_what_lies_behind_them() {
        let bytes = |length: u8, hash: u8, content: u8, behind: u8| {
            [&[length, 0, 0, 0, 0, 0, 0, 0][..], &[hash; 8], &[content; 5], &[behind; 43]].concat()
        };
        let same = |theirs, ours| is_same(&Pair { theirs, ours }, HEAD_OF_BYTES);
        assert!(same(bytes(5, 0xff, 7, 1), bytes(5, 3, 7, 2)));
        assert!(!same(bytes(5, 3, 7, 1), bytes(5, 3, 8, 1)), "another content");
        assert!(!same(bytes(5, 3, 7, 1), bytes(6, 3, 7, 1)), "another length");
        assert!(!same(bytes(200, 3, 7, 1), bytes(200, 3, 7, 2)), "a longer one, as far as it was read");
    }
}
