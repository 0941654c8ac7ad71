// SPDX-License-Identifier: Apache-2.0
//! Recordings with wrong bytes in them: the trace is still JSON, and no two slices of a track
//! cross.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;
use verdict::output::chrome::{write, ChromeOptions, Written};

#[path = "chrome/million.rs"]
mod million;

use million::Random;

fn trace(bytes: &[u8], options: &ChromeOptions<'_>) -> (Value, Written) {
    let run = verdict::load(bytes).unwrap();
    let analysis = verdict::analyze(&run);
    let (file, written) = write(&run, &analysis, Vec::new(), options).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file.as_slice()).read_to_string(&mut text).unwrap();
    (serde_json::from_str(&text).unwrap(), written)
}

/// Microseconds with three decimals as ns; exact below 2^53 ns.
fn ns(value: &Value) -> u64 {
    (value.as_f64().unwrap() * 1000.0).round() as u64
}

/// Slices of a track lie beside or whole inside one another.
fn assert_nothing_crosses(trace: &Value) {
    let mut tracks: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X") {
        let start = ns(&event["ts"]);
        tracks.entry(event["tid"].as_u64().unwrap()).or_default().push((start, start + ns(&event["dur"])));
    }
    for (tid, mut slices) in tracks {
        slices.sort_by_key(|s| (s.0, std::cmp::Reverse(s.1)));
        let mut open: Vec<u64> = Vec::new();
        for (start, end) in slices {
            while open.last().is_some_and(|&e| e <= start) {
                open.pop();
            }
            assert!(open.last().is_none_or(|&e| end <= e), "track {tid}: {start}..{end} crosses {open:?}");
            open.push(end);
        }
    }
}

#[test]
fn wrong_bytes_anywhere_give_json_without_crossing_slices() {
    let good = million::recording(400);
    let mut random = Random(99);
    for round in 0..100 {
        let mut bytes = good.clone();
        // times and durations first: they are what lanes are made from
        for _ in 0..1 + round % 40 {
            let event = 4096 + random.below((bytes.len() - 4096) as u64) as usize / 32 * 32;
            let at = event + random.below(16) as usize;
            if let Some(b) = bytes.get_mut(at) {
                // low bytes of times: a time of the next century only makes the track long
                *b = random.below(256) as u8;
            }
        }
        let (parsed, written) =
            trace(&bytes, &ChromeOptions { threaded: round % 2 == 0, ..Default::default() });
        assert_eq!(parsed["traceEvents"].as_array().unwrap().len() as u64, written.events);
        if parsed["traceEvents"].as_array().unwrap().iter().all(|e| e["ts"].as_f64().unwrap_or(0.0) < 1e12) {
            assert_nothing_crosses(&parsed);
        }
    }
}

#[test]
fn an_empty_recording_gives_an_empty_trace() {
    let bytes = trace::build::Builder::new().finish();
    let (parsed, written) = trace(&bytes, &ChromeOptions::default());
    assert_eq!(written.ops + written.calls, 0);
    assert!(parsed["traceEvents"].as_array().unwrap().iter().all(|e| e["ph"] == "M"));
}
