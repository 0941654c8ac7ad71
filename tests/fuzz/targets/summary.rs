// SPDX-License-Identifier: Apache-2.0
//! Any bytes as the summaries of a job, one a line: no panic, one line that is a line, JSON that is
//! JSON.
#![no_main]

use cli::fleet;
use cli::fleet::Fleet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let texts = input.split(|&b| b == b'\n');
    let ranks: Vec<_> =
        texts.zip(0..).filter_map(|(t, n)| fleet::read(&format!("{n}.json"), t).ok()).collect();
    if ranks.is_empty() {
        return;
    }
    let fleet = Fleet::new(ranks);
    let (line, table, json) = (fleet::line(&fleet), fleet::table(&fleet, None).0, fleet.json().to_string());
    assert!(!line.trim().is_empty(), "no line");
    assert!(line.trim_end_matches('\n').chars().all(|c| !c.is_control()), "control characters: {line:?}");
    assert!(table.chars().all(|c| !c.is_control() || c == '\n'), "control characters: {table:?}");
    assert!(!json.is_empty() && !line.contains("NaN") && !line.contains("inf "), "{line:?}");
    let shares: f64 = fleet.buckets().iter().map(|b| b.1).sum();
    assert!(shares < 1.000_001, "{shares}");
});
