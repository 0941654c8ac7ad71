// SPDX-License-Identifier: Apache-2.0
//! What `gapprobe recover` does, on any bytes: no panic, buckets that sum to the whole, a line that
//! is one line.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let bytes = sparse::expand(input);
    let Ok(run) = verdict::load(bytes.as_slice()) else { return };
    let analysis = verdict::analyze(&run);
    let line = verdict::output::sentence::line(&run, &analysis, None);
    assert!(!line.trim().is_empty() && !line.trim_end().contains('\n'), "not one line: {line:?}");
    assert!(line.chars().all(|c| !c.is_control() || c == '\n'), "control characters: {line:?}");
});
