// SPDX-License-Identifier: Apache-2.0
//! `trace::reader` on any bytes: no panic, no event that is not counted, the same answer twice.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use trace::reader::{Recording, Track};

/// Every part of it has what the whole has of that time: a segment's header may lie about what is
/// inside, and then takes its events with it, but makes none.
fn parts(bytes: &[u8], all: &[(Track, [u64; 4])]) {
    let Some((_, middle)) = all.get(all.len() / 2) else { return };
    let Ok(mut recording) = Recording::open(bytes) else { return };
    let bound = recording.event_bound();
    let left_out = recording.keep(middle[0], middle[1]);
    let whole: HashSet<[u64; 4]> = all.iter().map(|e| e.1).collect();
    let mut seen = 0;
    recording.for_each_event(bytes, |_, event| {
        seen += 1;
        assert!(whole.contains(&event.encode()), "an event that the whole has not");
    });
    assert!(seen + left_out <= bound, "{seen} seen, {left_out} left out, of {bound}");
}

fuzz_target!(|input: &[u8]| {
    let bytes = sparse::expand(input);
    let Ok(mut recording) = Recording::open(bytes.as_slice()) else { return };
    let opened = recording.problems;
    let bound = recording.event_bound();
    let read = |recording: &mut Recording| {
        let mut events = Vec::new();
        recording.for_each_event(bytes.as_slice(), |track, event| {
            assert!(event.start <= event.end, "an event that ends before it begins: {event:?}");
            events.push((track, event.encode()));
        });
        events
    };
    let first = read(&mut recording);
    let once = recording.problems;
    assert!(first.len() as u64 <= bound, "{} events, at most {bound} promised", first.len());
    assert!(read(&mut recording) == first, "two readings differ");
    parts(&bytes, &first);
    assert_eq!(once.damaged() - opened.damaged(), recording.problems.damaged() - once.damaged());
});
