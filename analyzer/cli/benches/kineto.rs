// SPDX-License-Identifier: Apache-2.0
//! How fast a torch.profiler trace becomes a verdict, and how much memory that takes.
//!
//! ```text
//! cargo bench -p gapprobe-cli --bench kineto                     10, 100, 1000 MB; 1000 MB as .gz
//! cargo bench -p gapprobe-cli --bench kineto -- 4000             that many MB
//! cargo bench -p gapprobe-cli --bench kineto -- --tile MB FILE   only writes the trace
//! ```
//! The trace is a real one (tests/traces/h200_tiny.json.gz, PyTorch 2.11 on an H200, CPU and CUDA
//! activities), repeated with its times and correlation ids moved on, so that it stays a valid
//! trace of a longer run.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/h200_tiny.json.gz");
/// Time between two repetitions, ns: the source's 218 ms and a little.
const PERIOD_NS: u64 = 220_000_000;
/// Between the correlation ids of two repetitions: the source's lie in 73,300, and none is to be
/// shared.
const IDS: u64 = 100_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [flag, mb, file] = args.as_slice() {
        assert_eq!(flag, "--tile", "unknown option {flag}");
        tile(Path::new(file), mb.parse().expect("MB, a whole number"));
        return;
    }
    if let [path] = args.as_slice() {
        if path.parse::<u64>().is_err() {
            return child(Path::new(path));
        }
    }
    let sizes: Vec<u64> = args.iter().map(|a| a.parse().expect("MB, a whole number")).collect();
    let sizes = if sizes.is_empty() { vec![10, 100, 1000] } else { sizes };
    let folder = std::env::temp_dir().join(format!("gapprobe-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    println!(
        "{:>10} {:>6} {:>9} {:>9} {:>9} {:>10} {:>12}",
        "text MB", "form", "events", "read s", "whole s", "MB/s", "heap MB"
    );
    for mb in sizes {
        let path = folder.join("trace.json");
        tile(&path, mb);
        run(&path);
        if mb == 1000 {
            let packed = folder.join("trace.json.gz");
            let mut to = flate2::write::GzEncoder::new(
                File::create(&packed).expect("a file"),
                flate2::Compression::fast(),
            );
            std::io::copy(&mut File::open(&path).expect("the trace"), &mut to).expect("room");
            to.finish().expect("room");
            run(&packed);
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// A process of its own: its peak is the trace's.
fn run(path: &Path) {
    let me = std::env::current_exe().expect("own path");
    let done = std::process::Command::new(me).arg(path).status().expect("own program");
    assert!(done.success());
}

fn child(path: &Path) {
    // the kernel keeps no peak of anonymous memory alone
    let peak = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let watched = peak.clone();
    std::thread::spawn(move || loop {
        watched.fetch_max(anonymous_mb() as u64, std::sync::atomic::Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(5));
    });
    let begin = Instant::now();
    let input = formats::read(path, &formats::Progress::default()).expect("a trace");
    let read = begin.elapsed().as_secs_f64();
    let analysis = verdict::analyze(&input.run);
    let line = verdict::output::sentence::line(&input.run, &analysis, None);
    let whole = begin.elapsed().as_secs_f64();
    assert!(line.contains("LAUNCH"), "{line}");
    let mb = input.bytes as f64 / 1e6;
    let form = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    println!(
        "{mb:>10.0} {form:>6} {:>9} {read:>9.2} {whole:>9.2} {:>10.0} {:>12}",
        input.events,
        mb / whole,
        peak.load(std::sync::atomic::Ordering::Relaxed)
    );
}

/// Memory that is no file's, now, MB.
fn anonymous_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
}

/// Pieces of an event's text between the numbers that move.
enum Piece {
    Text(Vec<u8>),
    /// Microseconds with three decimals, as ns.
    Time(u64),
    Id(u64),
}

fn tile(path: &Path, mb: u64) {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(File::open(SOURCE).expect(SOURCE)).read_to_end(&mut text).expect("gzip");
    let begin = find(&text, b"\"traceEvents\": [").expect("events") + 16;
    let end = text.iter().rposition(|&b| b == b']').expect("the end of the events");
    let mut pieces = Vec::new();
    let events = &text[begin..end];
    let mut at = 0;
    let mut plain = 0;
    while let Some(n) = events[at..].iter().position(|&b| b == b'"') {
        at += n;
        let key = [&b"\"ts\": "[..], b"\"correlation\": ", b"\"id\": "]
            .into_iter()
            .find(|k| events[at..].starts_with(k));
        let Some(key) = key else {
            at += 1;
            continue;
        };
        at += key.len();
        pieces.push(Piece::Text(events[plain..at].to_vec()));
        let digits = events[at..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let number = std::str::from_utf8(&events[at..at + digits]).expect("digits");
        pieces.push(if key == b"\"ts\": " {
            let (whole, part) = number.split_once('.').unwrap_or((number, ""));
            Piece::Time(format!("{whole}{part:0<3}").parse().expect("a time"))
        } else {
            Piece::Id(number.parse().expect("an id"))
        });
        at += digits;
        plain = at;
    }
    pieces.push(Piece::Text(events[plain..].to_vec()));
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file to write"));
    out.write_all(&text[..begin]).expect("room");
    let mut size = begin as u64;
    for round in 0.. {
        if round > 0 && size >= mb * 1_000_000 {
            break;
        }
        if round > 0 {
            out.write_all(b",").expect("room");
        }
        let mut block = Vec::with_capacity(events.len() + 1024);
        for piece in &pieces {
            match piece {
                Piece::Text(t) => block.extend_from_slice(t),
                Piece::Time(ns) => {
                    let ns = ns + round * PERIOD_NS;
                    write!(block, "{}.{:03}", ns / 1000, ns % 1000).expect("memory");
                }
                Piece::Id(id) => write!(block, "{}", id + round * IDS).expect("memory"),
            }
        }
        size += block.len() as u64;
        out.write_all(&block).expect("room");
    }
    out.write_all(&text[end..]).expect("room");
    out.flush().expect("room");
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}
