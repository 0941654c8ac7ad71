// SPDX-License-Identifier: Apache-2.0
//! `trace::reader` on any bytes: no panic, no event that is not counted, the same answer twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::reader::Recording;

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
    assert_eq!(once.damaged() - opened.damaged(), recording.problems.damaged() - once.damaged());
});
