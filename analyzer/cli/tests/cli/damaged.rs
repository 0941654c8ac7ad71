// SPDX-License-Identifier: Apache-2.0
//! Damaged recordings are named with file and place.

use std::fs;
use std::io::Read;

use crate::place::{code, err, out, recording, Place};

#[test]
fn damaged_recordings_are_named_with_file_and_place() {
    let place = Place::new("damaged");
    let good = recording(|_| {});
    let mut version = good.clone();
    version[8] = 9;
    let mut layout = good.clone();
    layout[24] = 1;
    let mut segments = good.clone();
    for segment in segments[4096..].chunks_mut(32 * 1024) {
        segment[..4].copy_from_slice(b"JUNK");
    }
    for (name, bytes, expected) in [
        ("empty.gpr", Vec::new(), "too short for a recording (0 bytes, the header alone has 4096)"),
        ("short.gpr", good[..4095].to_vec(), "too short for a recording (4095 bytes"),
        ("text.gpr", vec![b'x'; 9000], "not a gapprobe recording (no GAPPROBE at byte 0)"),
        ("version.gpr", version, "recording version 9, this one reads 1"),
        ("layout.gpr", layout, "damaged header (segment size at byte 24)"),
        ("segments.gpr", segments, "no event can be read"),
    ] {
        let file = place.0.join(name);
        fs::write(&file, &bytes).unwrap();
        let output = place.run(&["recover", file.to_str().unwrap()]);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{name}: {}", err(&output));
        let said = err(&output);
        assert!(said.starts_with(&format!("gapprobe: {}: ", file.display())), "{said}");
        assert!(said.contains(expected) && said.contains("\nhint: "), "{said}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "left as it is");
    }
    // the other verbs make nothing of nothing, either
    let file = place.0.join("header.gpr");
    fs::write(&file, &good[..4096]).unwrap();
    let path = file.to_str().unwrap();
    for words in
        [&["recover", path][..], &["analyze", path], &["report", path], &["export", path], &["stats", path]]
    {
        let output = place.run(words);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{words:?}: {}", err(&output));
        assert!(err(&output).contains("no event can be read"), "{words:?}: {}", err(&output));
    }
    assert!(place.results().is_empty(), "{:?}", place.results());
    let missing = place.run(&["recover", "/nonexistent.gpr"]);
    assert_eq!(code(&missing), 4);
    assert!(err(&missing).contains("/nonexistent.gpr: no such file"));
    // cut off, but most of it is there: a trace, and the damage in the summary
    let file = place.0.join("cut.gpr");
    fs::write(&file, &good[..good.len() - 20_000]).unwrap();
    let output = place.run(&["recover", "--json", file.to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let summary: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(summary["reading_problems"]["cut_segments"], 1);
}

/// How much is missing behind the end of a file nobody knows: one lost segment is not "one lost
/// event".
#[test]
fn a_cut_recording_gets_no_verdict_and_passes_no_check() {
    let place = Place::new("cut");
    let mut real = Vec::new();
    let packed =
        fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/own_gpt_bound.gprec.gz"));
    flate2::read::GzDecoder::new(packed.unwrap()).read_to_end(&mut real).unwrap();
    let made = recording(|_| {});
    let part = |all: &[u8], percent: usize| all[..all.len() * percent / 100].to_vec();
    let mut cut: Vec<Vec<u8>> = [25, 33, 40, 50, 60].iter().map(|&p| part(&real, p)).collect();
    cut.extend([25, 40, 60, 90].iter().map(|&p| part(&made, p)));
    // between two segments, where nothing that is read is cut in two
    cut.extend((1..(made.len() - 4096) / 32_768).map(|n| made[..4096 + n * 32_768].to_vec()));
    let file = place.0.join("cut.gpr");
    let name = file.to_str().unwrap();
    for bytes in cut {
        fs::write(&file, &bytes).unwrap();
        let output = place.run(&["check", name, "--max-idle", "99%"]);
        // 4: so little is left that nothing can be read
        let all = format!("{} bytes: {}{}", bytes.len(), out(&output), err(&output));
        assert!(code(&output) == 5 || code(&output) == 4 && bytes.len() < 70_000, "{all}");
        let line = out(&place.run(&["analyze", "--line", name]));
        assert!(code(&output) == 4 || line.contains("no verdict: the file is truncated"), "{all}{line}");
    }
    for whole in [&real, &made] {
        fs::write(&file, whole).unwrap();
        assert_eq!(code(&place.run(&["check", name, "--max-idle", "99%"])), 0);
    }
}

/// One segment that cannot be read is up to a thousand events, wherever it lies; not "one lost
/// event" of many thousands.
#[test]
fn a_recording_with_a_damaged_segment_gets_no_verdict() {
    let place = Place::new("segment");
    let mut real = Vec::new();
    let packed =
        fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/own_gpt_bound.gprec.gz"));
    flate2::read::GzDecoder::new(packed.unwrap()).read_to_end(&mut real).unwrap();
    let file = place.0.join("damaged.gpr");
    let name = file.to_str().unwrap();
    fs::write(&file, &real).unwrap();
    assert!(!out(&place.run(&["analyze", "--line", name])).contains("no verdict"));
    let segment = |n: usize| 4096 + n * 32_768;
    let all = (real.len() - 4096) / 32_768;
    for n in [all / 3, all / 2, all - 2] {
        let mut bytes = real.clone();
        bytes[segment(n)..segment(n) + 64].fill(0xff);
        fs::write(&file, &bytes).unwrap();
        let line = out(&place.run(&["analyze", "--line", name]));
        assert!(line.contains("no verdict: up to 102"), "{line}");
        assert!(line.contains(" records lost"), "{line}");
        assert_eq!(code(&place.run(&["check", name, "--max-idle", "99%"])), 5);
    }
}

/// A copy of a compressed recording that broke off, or was damaged on its way: named with file and
/// place, what is there is read, and no verdict rests on it.
#[test]
fn a_compressed_recording_that_is_cut_or_damaged_says_where() {
    let place = Place::new("cut-gz");
    let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/own_gpt_bound.gprec.gz");
    let packed = fs::read(whole).unwrap();
    let file = place.0.join("run.gpr.gz");
    let name = file.to_str().unwrap();
    for percent in [30, 60, 95] {
        let length = packed.len() * percent / 100;
        fs::write(&file, &packed[..length]).unwrap();
        let output = place.run(&["analyze", "--line", name]);
        let said = format!("{}{}", out(&output), err(&output));
        assert_eq!(code(&output), 0, "{said}");
        assert!(out(&output).contains("no verdict: the file is truncated"), "{said}");
        assert!(err(&output).contains(&format!("{name}: ")), "{said}");
        assert!(err(&output).contains(&format!("it is truncated after byte {length}")), "{said}");
        assert!(err(&output).contains("copy it once more"), "{said}");
        assert_eq!(code(&place.run(&["check", name, "--max-idle", "99%"])), 5);
    }
    // bytes in the middle turned over: what stands behind them cannot be unpacked
    let mut bytes = packed.clone();
    let at = bytes.len() / 2;
    bytes[at..at + 64].iter_mut().for_each(|b| *b = !*b);
    fs::write(&file, &bytes).unwrap();
    let output = place.run(&["analyze", "--line", name]);
    let said = format!("{}{}", out(&output), err(&output));
    assert!(
        out(&output).contains("no verdict") && err(&output).contains("it is damaged at about byte "),
        "{said}"
    );
    // not even its header is there
    for length in [3, 40, 300] {
        fs::write(&file, &packed[..length]).unwrap();
        let output = place.run(&["analyze", name]);
        let said = err(&output);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{said}");
        assert!(said.starts_with(&format!("gapprobe: {name}: ")), "{said}");
        assert!(
            said.contains(&format!("after byte {length}")) && said.contains("\nhint: copy it once more"),
            "{said}"
        );
    }
}
