// SPDX-License-Identifier: Apache-2.0
//! How many bytes a record takes, by kind and release. `tests/layout/walk.rs` holds the table
//! against the libraries' own walk.

use crate::{kind, Release};

/// Records start at multiples of this many bytes.
pub const ALIGNMENT: usize = 8;

/// One step of a kind's growth: from release `since` (major, minor) on a record has `bytes` bytes.
type Growth = ((u8, u8), usize);

const KERNEL: &[Growth] = &[
    ((11, 7), 176),
    ((11, 8), 200),
    ((12, 0), 208),
    ((13, 0), 216),
    ((13, 1), 224),
    ((13, 3), 232),
    ((13, 4), 248),
];
const MEMCPY: &[Growth] = &[((11, 7), 88), ((12, 8), 96), ((13, 4), 112)];
const MEMCPY_PEER: &[Growth] = &[((11, 7), 96)];
const MEMSET: &[Growth] = &[((11, 7), 88), ((13, 4), 104)];
const SYNCHRONIZATION: &[Growth] = &[((11, 7), 40), ((12, 8), 56)];
const API: &[Growth] = &[((11, 7), 40)];
const GRAPH_TRACE: &[Growth] = &[((11, 7), 48), ((12, 3), 56)];
const OVERHEAD: &[Growth] = &[((11, 7), 40), ((12, 3), 48), ((12, 4), 56)];
const CUDA_EVENT: &[Growth] = &[((11, 7), 24), ((12, 8), 56), ((13, 5), 80)];
const STREAM: &[Growth] = &[((11, 7), 24)];

/// Bytes from one record to the next, for kinds we read and releases we know: 11.7 and newer. A
/// release newer than the table counts as its newest. `None` for any other kind, an older release,
/// or one whose minor is not known.
#[must_use]
pub fn size(kind: u32, release: Release) -> Option<usize> {
    release.minor?;
    let growth = match kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => KERNEL,
        kind::MEMCPY => MEMCPY,
        kind::MEMCPY2 => MEMCPY_PEER,
        kind::MEMSET => MEMSET,
        kind::SYNCHRONIZATION => SYNCHRONIZATION,
        kind::DRIVER | kind::RUNTIME => API,
        kind::GRAPH_TRACE => GRAPH_TRACE,
        kind::OVERHEAD => OVERHEAD,
        kind::CUDA_EVENT => CUDA_EVENT,
        kind::STREAM => STREAM,
        _ => return None,
    };
    growth
        .iter()
        .rev()
        .find(|((major, minor), _)| release.is_at_least(*major, *minor))
        .map(|(_, bytes)| *bytes)
}
