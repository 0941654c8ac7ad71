// SPDX-License-Identifier: Apache-2.0
//! The memory of an analysis of many devices: what is known of the host is looked at for one device after the other, not
//! kept for all of them. Alone in its file: the heap is the process's.

#[path = "chrome/heap.rs"]
mod heap;

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// One thread that launches to each device in turn.
fn recording(devices: u32, launches: u32) -> Vec<u8> {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    let kernel = b.kernel("k", 32, 16);
    for i in 0..launches {
        let at = 1_000_000 + u64::from(i) * 10_000;
        let mut call = Event::new(Kind::Call, at, at + 4_000);
        (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, i + 1);
        b.on_thread(5, call);
        let mut op = Event::new(Kind::Kernel, at + 5_000, at + 9_000);
        (op.a, op.b, op.correlation) = (kernel, 1, i + 1);
        b.on_stream(i % devices, 1, 7, op);
    }
    b.finish()
}

#[test]
fn memory_grows_with_the_events_not_with_events_times_devices() {
    let peak = |devices: u32| {
        let bytes = recording(devices, 100_000);
        let run = analyzer::load(bytes.as_slice()).unwrap();
        assert_eq!(run.devices.len(), devices as usize);
        let before = heap::reset_peak();
        let a = analyzer::analyze(&run);
        assert_eq!(a.devices.len(), devices as usize);
        heap::peak_megabytes() - before
    };
    let (one, many) = (peak(1), peak(200));
    // five bytes a call and device, were they kept: 100 MB
    assert!(many < one + 20.0, "{one:.1} MB for one device, {many:.1} MB for 200");
}
