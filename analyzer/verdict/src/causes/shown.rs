// SPDX-License-Identifier: Apache-2.0
//! What at least half of the samples show, where that is a cause of its own.

use super::NAMED_WIN;
use crate::analysis::Finding;
use crate::gaps::sample_index::ALL_OF_IT;

/// A kind of a cause, and its part of it.
pub(super) struct Shown {
    pub(super) code: &'static str,
    /// Share of the samples, 0 to 1; 1 from [`ALL_OF_IT`] on.
    pub(super) part: f64,
}

impl Shown {
    /// By `n` of `all` samples.
    pub(super) fn new(code: &'static str, n: u32, all: u32) -> Shown {
        Shown { code, part: part(n, all) }
    }

    /// Its part of a win that would be named is too small to be: then the whole stays together.
    pub(super) fn leaves_too_little(&self, f: &Finding) -> bool {
        is_too_little(f.win.share(), self.part)
    }
}

/// Share of the time that `n` of `all` samples stand for, 0 to 1; 1 from [`ALL_OF_IT`] on.
pub(super) fn part(n: u32, all: u32) -> f64 {
    let part = f64::from(n) / f64::from(all.max(1));
    if part >= ALL_OF_IT {
        1.0
    } else {
        part
    }
}

/// See [`Shown::leaves_too_little`].
pub(super) fn is_too_little(win: f64, part: f64) -> bool {
    win >= NAMED_WIN && win * part < NAMED_WIN
}
