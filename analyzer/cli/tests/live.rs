// SPDX-License-Identifier: Apache-2.0
//! The newest seconds of a long recording cost what they hold, in time and memory, not what the
//! recording holds. Alone in its file: the heap is the process's.

use std::cell::Cell;
use std::process::Command;
use std::time::Instant;

use cli::live::{load_tail, Figures, MOST_EVENTS};
use trace::header::{state, HEADER_BYTES};
use trace::segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES};
use trace::{Header, Source};

#[path = "chrome/heap.rs"]
mod heap;
#[path = "chrome/million.rs"]
mod million;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Bytes that tell how much was read of them.
struct Counted<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
}

impl Source for Counted<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        self.read.set(self.read.get() + out.len() as u64);
        self.bytes.read_at(offset, out)
    }
}

fn header(bytes: &[u8]) -> Header {
    Header::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap()
}

#[test]
fn what_lies_before_the_last_seconds_is_not_read() {
    let bytes = million::recording(200_000);
    let h = header(&bytes);
    let run_ns = h.gpu_complete_to - h.start_monotonic;
    let counted = Counted { bytes: &bytes, read: Cell::new(0) };
    let whole = verdict::load(&counted).unwrap();
    let all = counted.read.replace(0);
    let run = load_tail(&counted, &h, run_ns / 100, MOST_EVENTS).unwrap();
    let kept = run.events - run.left_out;
    // each segment's header once, and what is inside twice (to count, to take)
    let segments = (bytes.len() / SEGMENT_BYTES) as u64;
    let read = counted.read.get();
    assert!(kept > 1000 && kept < whole.events / 30, "{kept} of {}", whole.events);
    assert!(read < all / 10, "{read} of {all} bytes");
    assert!(
        read <= segments * SEGMENT_HEADER_BYTES as u64 + 2 * 32 * kept + 20 * SEGMENT_BYTES as u64,
        "{read}"
    );
    // and those are the last ones of the whole, no others
    let starts = |r: &verdict::Run| {
        r.devices[0].streams.iter().flat_map(|s| &s.ops).map(|o| o.start).collect::<Vec<_>>()
    };
    let (mut part, mut every) = (starts(&run), starts(&whole));
    part.sort_unstable();
    every.sort_unstable();
    let tail = every[every.len() - part.len()..].to_vec();
    assert_eq!(part, tail);
    let from = run.header.valid_from;
    assert_eq!(from, h.gpu_complete_to - run_ns / 100);
    assert!(every.iter().filter(|&&s| s >= from).all(|s| part.binary_search(s).is_ok()));
}

#[test]
fn a_program_of_very_many_launches_takes_no_more_memory_than_another() {
    let bytes = million::recording(400_000);
    let before = heap::reset_peak();
    let run = load_tail(bytes.as_slice(), &header(&bytes), u64::MAX, MOST_EVENTS).unwrap();
    let figures = Figures::new(&run);
    let peak = heap::peak_megabytes() - before;
    assert!(run.events - run.left_out <= MOST_EVENTS && run.left_out > 0);
    assert!(figures.seen_ns > 0 && figures.devices.len() == 1);
    assert!(peak < 40.0, "{peak} MB");
}

/// Prints what `gapprobe top --once` takes of a recording of 256 MB. The command:
/// GAPPROBE_TEST_COMMAND, built optimised.
#[test]
#[ignore = "a measurement"]
fn one_look_at_a_recording_of_256_megabytes() {
    let folder = std::env::temp_dir().join(format!("gapprobe-live-{}", std::process::id()));
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    let private = folder.join(format!("gapprobe-{uid}"));
    std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700)
        .create(&private)
        .unwrap();
    let mut bytes = million::recording(4_000_000);
    let mut h = header(&bytes);
    let own = spool::liveness::own();
    (h.state, h.pid, h.process_start) = (state::RECORDING, own.pid, own.start);
    (h.pid_namespace, h.boot_id) = (own.namespace, own.boot);
    bytes[..HEADER_BYTES].copy_from_slice(&h.encode());
    std::fs::write(private.join("long.gpr"), &bytes).unwrap();
    let seconds = (h.gpu_complete_to - h.start_monotonic) as f64 / 1e9;
    println!("{:.0} MB, {seconds:.0} s", bytes.len() as f64 / 1e6);
    let command = std::env::var("GAPPROBE_TEST_COMMAND");
    let command = command.unwrap_or_else(|_| env!("CARGO_BIN_EXE_gapprobe").to_owned());
    for last in ["100ms", "1s", "10s", "60s"] {
        for _ in 0..3 {
            let begun = Instant::now();
            let mut look = Command::new("/usr/bin/env");
            look.args([
                "python3",
                "-c",
                "import os, resource, sys
status = os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN))",
            ]);
            look.args([&command, "top", "--once", "--json", "--last", last]).env("TMPDIR", &folder);
            let output = look.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let wanted = ["seen_ns", "ru_utime", "ru_stime", "maxrss"];
            let told = text.split([',', '(', '\n']).filter(|w| wanted.iter().any(|n| w.contains(n)));
            println!("{last}: {:?} with python's start;{}", begun.elapsed(), told.collect::<String>());
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
