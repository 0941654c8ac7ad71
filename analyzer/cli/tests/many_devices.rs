// SPDX-License-Identifier: Apache-2.0
//! The memory of an analysis of many devices: what is known of the host is looked at for one device
//! after the other, not kept for all of them. Alone in its file: the heap is the process's.

#[path = "chrome/heap.rs"]
mod heap;

use cli::tables;
use cli::tables::{NameStyle, Source};
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

/// A row for every step of every device: written one after the other, and the same as in the whole
/// table.
fn rows_of_steps_take_no_memory() {
    let (devices, steps) = (200, 800);
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    let kernel = b.kernel("k", 32, 16);
    for i in 0..steps {
        let at = 1_000_000 + u64::from(i) * 100_000;
        let mut mark = Event::new(Kind::Step, at, at + 100_000);
        mark.a = i;
        b.on_thread(5, mark);
        let mut call = Event::new(Kind::Call, at + 100, at + 4_000);
        (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, i + 1);
        b.on_thread(5, call);
        // some reach far into the next steps
        let long = if i % 5 == 4 { 350_000 } else { 40_000 };
        let mut op = Event::new(Kind::Kernel, at + 5_000, at + 5_000 + long);
        (op.a, op.b, op.correlation) = (kernel, 1, i + 1);
        b.on_stream(i % devices, 1, 7, op);
    }
    let run = verdict::load(b.finish().as_slice()).unwrap();
    let source = Source::new(&run, NameStyle::Short);
    let found = source.analysis().steps.steps.len();
    assert!(found > 700, "{found} steps");
    let report = tables::find("steps").unwrap();
    let mut streamed = Sum::default();
    let before = heap::reset_peak();
    assert!(report.write_csv(&source, 0, &mut streamed).unwrap());
    let took = heap::peak_megabytes() - before;
    let mut whole = Sum::default();
    let before = heap::reset_peak();
    let table = report.table(&source);
    tables::write(&table, 0, tables::Format::Csv, &mut whole).unwrap();
    let kept = heap::peak_megabytes() - before;
    assert_eq!(streamed, whole);
    assert_eq!(streamed.lines, found * devices as usize + 1);
    assert!(took < 40.0 && kept > 1.5 * took, "{took:.1} MB row by row, {kept:.1} MB as a table");
    let mut few = Sum::default();
    assert!(report.write_csv(&source, 3, &mut few).unwrap());
    assert_eq!(few.lines, 4);
}

/// What was written, without keeping it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    lines: usize,
    bytes: usize,
    hash: u64,
}

impl std::io::Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for &b in bytes {
            self.lines += usize::from(b == b'\n');
            self.hash = (self.hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One test: the heap is one.
#[test]
#[ignore = "scripts/test thorough: 8 s"]
fn many_devices_take_no_more_memory() {
    memory_grows_with_the_events_not_with_events_times_devices();
    rows_of_steps_take_no_memory();
}

fn memory_grows_with_the_events_not_with_events_times_devices() {
    let peak = |devices: u32| {
        let bytes = recording(devices, 100_000);
        let run = verdict::load(bytes.as_slice()).unwrap();
        assert_eq!(run.devices.len(), devices as usize);
        let before = heap::reset_peak();
        let a = verdict::analyze(&run);
        assert_eq!(a.devices.len(), devices as usize);
        heap::peak_megabytes() - before
    };
    let (one, many) = (peak(1), peak(200));
    // five bytes a call and device, were they kept: 100 MB
    assert!(many < one + 20.0, "{one:.1} MB for one device, {many:.1} MB for 200");
}
