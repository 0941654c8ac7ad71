// SPDX-License-Identifier: Apache-2.0
//! Which CUPTI release is emulated, and the record sizes of each (measured in the headers of those
//! releases).
//!
//! Field offsets are the same in all of them, so `records` has them once.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Activity kinds by CUPTI's numbers.
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const KERNEL: u32 = 3;
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const RUNTIME: u32 = 5;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const MARKER: u32 = 12;
    pub(crate) const OVERHEAD: u32 = 17;
    pub(crate) const MEMCPY2: u32 = 22;
    pub(crate) const CUDA_EVENT: u32 = 36;
    pub(crate) const STREAM: u32 = 37;
    pub(crate) const SYNCHRONIZATION: u32 = 38;
    pub(crate) const EXTERNAL_CORRELATION: u32 = 39;
    pub(crate) const GRAPH_TRACE: u32 = 51;
    /// One above the largest kind any release knows.
    pub(crate) const COUNT: u32 = 64;
}

/// Release as major * 100 + minor: 1108, 1204, 1209, 1300, 1305.
static RELEASE: AtomicU32 = AtomicU32::new(1300);

/// Emulates this release from now on.
pub(crate) fn set_release(release: u32) {
    RELEASE.store(release, Ordering::Relaxed);
}

static COPY: AtomicUsize = AtomicUsize::new(0);
static SILENT: AtomicBool = AtomicBool::new(false);

/// A libcupti shim attached. A second copy of libcupti in a process silences both clients without
/// an error, as measured on an H200.
pub(crate) fn attach(release: u32, copy: usize) {
    let first = COPY.compare_exchange(0, copy, Ordering::Relaxed, Ordering::Relaxed);
    match first {
        Ok(_) => set_release(release),
        Err(known) if known != copy => SILENT.store(true, Ordering::Relaxed),
        Err(_) => {}
    }
}

/// True once two copies of libcupti were used.
pub(crate) fn silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// The emulated release.
pub(crate) fn release() -> u32 {
    RELEASE.load(Ordering::Relaxed)
}

/// What cuptiGetVersion says.
pub(crate) fn api_version(release: u32) -> u32 {
    match release {
        ..=1107 => 17,
        1108..=1201 => 18,
        1202 => 20,
        1203 => 21,
        1204 => 22,
        1205 => 23,
        1206..=1207 => 24,
        1208 => 26,
        1209..=1299 => 28,
        1300 => 130_001,
        1301 => 130_101,
        1302 => 130_202,
        1303 => 130_301,
        1304 => 130_401,
        _ => 130_500,
    }
}

/// Size of the callback-id tables: runtime, driver. Ids at or above are unknown to that release.
pub(crate) fn table_sizes(release: u32) -> (u32, u32) {
    match release {
        ..=1108 => (434, 677),
        ..=1204 => (465, 743),
        ..=1209 => (487, 784),
        ..=1300 => (523, 807),
        _ => (567, 877),
    }
}

/// Bytes of one record of `kind` in `release`; None for a kind that release does not have.
pub(crate) fn record_size(kind: u32, release: u32) -> Option<usize> {
    let size = match kind {
        kind::MEMCPY => match release {
            ..=1207 => 88,
            ..=1303 => 96,
            _ => 112,
        },
        kind::MEMSET => {
            if release < 1304 {
                88
            } else {
                104
            }
        }
        kind::KERNEL | kind::CONCURRENT_KERNEL => match release {
            ..=1107 => 176,
            1108 => 200,
            ..=1299 => 208,
            1300 => 216,
            ..=1302 => 224,
            1303 => 232,
            _ => 248,
        },
        kind::DRIVER | kind::RUNTIME => 40,
        kind::MARKER => 56,
        kind::OVERHEAD => match release {
            ..=1202 => 40,
            1203 => 48,
            _ => 56,
        },
        kind::MEMCPY2 => 96,
        kind::CUDA_EVENT => match release {
            ..=1207 => 24,
            ..=1304 => 56,
            _ => 80,
        },
        kind::SYNCHRONIZATION => {
            if release < 1208 {
                40
            } else {
                56
            }
        }
        kind::EXTERNAL_CORRELATION | kind::STREAM => 24,
        kind::GRAPH_TRACE => {
            if release < 1203 {
                48
            } else {
                56
            }
        }
        _ => return None,
    };
    Some(size)
}

/// True for a kind that may be enabled in `release`, whether or not the engine ever writes a record
/// of it.
pub(crate) fn knows_kind(kind: u32, release: u32) -> bool {
    let newest = match release {
        ..=1202 => 52,
        ..=1207 => 54,
        _ => 60,
    };
    kind > 0 && kind < newest
}
