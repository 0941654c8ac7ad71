// SPDX-License-Identifier: Apache-2.0
//! Shares and middle values.

/// `part` of `whole`, 0 where there is no whole.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// The middle one of the values, of an even number the mean of the middle two (half a nanosecond
/// rounded up); 0 of none. Every median of step times is this one (`tables/stats.rs` and
/// `compare/noise.rs` keep the half nanosecond).
pub fn median(values: &mut [u64]) -> u64 {
    let count = values.len();
    if count == 0 {
        return 0;
    }
    let (lower, upper, _) = values.select_nth_unstable(count / 2);
    match lower.iter().max() {
        Some(&below) if count % 2 == 0 => *upper - (*upper - below) / 2,
        _ => *upper,
    }
}
