// SPDX-License-Identifier: Apache-2.0
//! Work that takes longer than a second says on a terminal how far it is, and takes that away
//! again. (How long the rest will take hangs on the machine: the estimate is a unit test of
//! `talk.rs`.)

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use flate2::write::GzEncoder;
use flate2::Compression;

use crate::place::Place;
use crate::terminal::terminal;

/// A trace of torch.profiler that takes this build seconds to read.
fn large(place: &Place) -> &'static str {
    let mut text = "{\"schemaVersion\":1,\"traceEvents\":[\n".to_owned();
    for i in 0..400_000u64 {
        let (launch, kernel) = (i * 20, i * 20 + 12);
        writeln!(text, "{{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,\"ts\":{launch}.5,\"dur\":3.25,\"args\":{{\"correlation\":{i}}}}},").unwrap();
        writeln!(text, "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm{}\",\"pid\":0,\"tid\":7,\"ts\":{kernel}.5,\"dur\":6.75,\"args\":{{\"correlation\":{i},\"stream\":7,\"device\":0}}}},", i % 9).unwrap();
    }
    text.truncate(text.len() - 2);
    text += "]}\n";
    let file = File::create(place.out().join("large.json.gz")).unwrap();
    let mut gz = GzEncoder::new(file, Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    gz.finish().unwrap();
    "large.json.gz"
}

#[test]
fn a_large_trace_is_read_with_a_bar() {
    let place = Place::new("progress");
    let trace = large(&place);
    let (mut ours, theirs) = terminal(100);
    let mut command = place.gapprobe(&["analyze", "--line", trace]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::from(theirs)).spawn().unwrap();
    drop(command); // it holds the terminal open
    let mut shown = Vec::new();
    let _ = ours.read_to_end(&mut shown); // EIO: the other side is closed
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let shown = String::from_utf8(shown).unwrap();
    let (bars, after) = shown.rsplit_once("\r\x1b[K").unwrap_or_else(|| panic!("no bar: {shown:?}"));
    assert!(!after.contains('['), "the bar is taken away: {after:?}");
    let bars: Vec<&str> = bars.split("\r\x1b[K").filter(|bar| bar.starts_with("reading ")).collect();
    let parts: Vec<u32> = bars
        .iter()
        .map(|bar| bar.split(']').nth(1).unwrap().split('%').next().unwrap().trim().parse().unwrap())
        .collect();
    // (one says 100 % already where the file is read and what it says is not yet sorted)
    assert!(!parts.is_empty() && parts.is_sorted(), "{bars:#?}");
}
