// SPDX-License-Identifier: Apache-2.0
//! Files that are whole and odd: what is said of them is true, word by word.

use std::fs;
use std::io::Write;

use crate::place::{code, err, out, Place};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/h200_gptsync.json.gz");

/// `gzip -d` gives the whole text: nothing is lost, so there is a verdict, and it is the same.
#[test]
fn bytes_behind_compressed_data_are_ignored_and_that_is_said() {
    let place = Place::new("behind");
    let whole = fs::read(TRACE).unwrap();
    let line = |tail: &[u8]| {
        fs::write(place.out().join("t.json.gz"), [whole.as_slice(), tail].concat()).unwrap();
        let output = place.run(&["analyze", "--strict", "--line", "t.json.gz"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        (out(&output), err(&output))
    };
    let (wanted, nothing) = line(b"");
    assert!(!wanted.contains("lost") && nothing.is_empty(), "{wanted}{nothing}");
    for (tail, said) in [
        (&b"<html>502</html>"[..], "16 bytes stand after the end of the compressed data and are ignored"),
        (b"\n", "1 byte stands after the end of the compressed data and is ignored"),
    ] {
        let (line, remarks) = line(tail);
        assert_eq!(line, wanted);
        assert_eq!(remarks, format!("gapprobe: t.json.gz: {said}\n"));
    }
    assert_eq!(line(&[0; 4096]), (wanted.clone(), String::new()), "padding");
    // in two members, as appending compressors write it
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(whole.as_slice()), &mut text).unwrap();
    let halves = text.split_at(text.len() / 2);
    let packed = [halves.0, halves.1].map(|half| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(half).unwrap();
        gz.finish().unwrap()
    });
    fs::write(place.out().join("t.json.gz"), packed.concat()).unwrap();
    let output = place.run(&["analyze", "--strict", "--line", "t.json.gz"]);
    assert_eq!((code(&output), out(&output), err(&output)), (0, wanted, String::new()));
}

#[test]
fn one_of_a_thing_is_no_plural() {
    let place = Place::new("one");
    let kernel = r#"{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":5,
        "args":{"correlation":0,"device":0,"stream":7,"context":1}}"#;
    fs::write(place.out().join("t.json"), format!(r#"{{"traceEvents":[{kernel}]}}"#)).unwrap();
    let output = place.run(&["analyze", "t.json"]);
    let screen = out(&output);
    assert!(screen.contains("1 event, 1 GPU,") && screen.contains("(1 GPU operation in"), "{screen}");
    for many in ["1 events", "1 operations", "1 GPUs", "1 kernels", "1 steps", "1 calls"] {
        for args in [
            &["analyze", "t.json"][..],
            &["stats", "t.json"],
            &["diff", "t.json", "t.json"],
            &["gaps", "t.json"],
        ] {
            let output = place.run(args);
            let said = out(&output) + &err(&output);
            assert!(!said.contains(many), "{args:?}: {said}");
        }
    }
}
