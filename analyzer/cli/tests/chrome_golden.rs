// SPDX-License-Identifier: Apache-2.0
//! The trace file of a small recording, byte for byte: tests/chrome/small.json. `GAPPROBE_BLESS=1
//! cargo test` writes it.

use std::io::Read;
use std::path::Path;

use trace::build::Builder;
use trace::call::{pack, Class, DRIVER, RUNTIME};
use trace::{Event, Kind};
use verdict::output::chrome::{write, ChromeOptions};

/// Four steps on two streams: launch, pageable copy, synchronize; one kernel overlaps the next.
fn small() -> Vec<u8> {
    let mut b = Builder::new();
    b.header.pid = 4711;
    b.header.rank = 1;
    b.header.world_size = 2;
    b.header.host = "node1".into();
    b.header.command = "python train.py".into();
    b.header.gapprobe = "test".into();
    b.header.start_realtime = 1_795_000_000_000_000_000;
    b.header.start_monotonic = 10_000_000_000;
    b.device(0, "SIM", 132);
    let gemm = b.kernel("_ZN3lib4gemmIfEEvPT_", 256, 64);
    let add = b.kernel("add \"quoted\"", 128, 16);
    let forward = b.string("forward");
    for step in 0..4u64 {
        let t = 10_000_000_000 + step * 1_000_000;
        let id = 10 * step as u32;
        let mut mark = Event::new(Kind::Step, t, t + 1_000_000);
        mark.a = step as u32;
        b.on_thread(4711, mark);
        let mut range = Event::new(Kind::Range, t + 1_000, t + 120_000);
        range.a = forward;
        b.on_thread(4711, range);
        let mut call = |start: u64, end: u64, domain: u8, number: u32, class: Class, correlation: u32| {
            let mut e = Event::new(Kind::Call, t + start, t + end);
            (e.a, e.x, e.correlation) = (pack(domain, number), class as u8, correlation);
            b.on_thread(4711, e);
        };
        call(2_000, 6_001, RUNTIME, 211, Class::Launch, id + 1);
        call(7_000, 11_500, DRIVER, 307, Class::Launch, id + 2);
        call(20_000, 300_000, RUNTIME, 31, Class::Copy, id + 3);
        call(310_000, 700_123, RUNTIME, 165, Class::Sync, id + 4);
        let mut kernel = Event::new(Kind::Kernel, t + 12_000, t + 200_007);
        (kernel.a, kernel.b, kernel.correlation) = (gemm, 1024, id + 1);
        b.on_stream(0, 1, 7, kernel);
        let mut kernel = Event::new(Kind::Kernel, t + 199_000, t + 250_000);
        (kernel.a, kernel.b, kernel.correlation) = (add, 8, id + 2);
        b.on_stream(0, 1, 7, kernel);
        let copy = trace::event::Copy { bytes: 4096, direction: 1, source: 1, destination: 3, peer: false };
        let mut memcpy = Event::new(Kind::Memcpy, t + 260_000, t + 290_000);
        (memcpy.a, memcpy.b) = copy.pack();
        memcpy.correlation = id + 3;
        b.on_stream(0, 1, 13, memcpy);
    }
    let mut blind = Event::new(Kind::Unobserved, 10_004_000_000, 10_005_000_000);
    blind.a = 2;
    b.on_recorder(blind);
    b.finish()
}

#[test]
fn the_trace_of_a_small_recording_is_as_it_was() {
    let bytes = small();
    let run = verdict::load(bytes.as_slice()).unwrap();
    let analysis = verdict::analyze(&run);
    for threaded in [true, false] {
        let options = ChromeOptions { line: "the line", threaded, ..ChromeOptions::default() };
        let (file, written) = write(&run, &analysis, Vec::new(), &options).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file.as_slice()).read_to_string(&mut text).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["traceEvents"].as_array().unwrap().len() as u64, written.events);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chrome/small.json");
        if std::env::var_os("GAPPROBE_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        for (ours, theirs) in text.lines().zip(expected.lines()) {
            assert_eq!(
                ours, theirs,
                "tests/chrome/small.json differs; if that is meant: GAPPROBE_BLESS=1 cargo test"
            );
        }
        assert_eq!(text.lines().count(), expected.lines().count());
    }
}
