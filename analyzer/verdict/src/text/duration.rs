// SPDX-License-Identifier: Apache-2.0
//! A time for people, of any length.

/// A span for people: 850 us, 84 s, 6.2 h.
pub fn long(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    match s {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
