// SPDX-License-Identifier: Apache-2.0
//! Traces that are damaged, in another encoding, or made to be awkward: what is lost is counted and
//! called what it is, and where it is unknown how much is lost there is no verdict.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use formats::{Input, ReadError};

/// A file of these bytes, removed at the end of the test.
struct Kept(PathBuf);

impl Kept {
    fn new(bytes: &[u8]) -> Kept {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gapprobe-hostile-{}-{n}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Kept(path)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read(bytes: &[u8]) -> Result<Input, ReadError> {
    let file = Kept::new(bytes);
    formats::read(&file.0, &Default::default())
}

/// A real trace of 2,740 operations.
fn graphs() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/h200_graphs.json.gz");
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut out).unwrap();
    out
}

const OPS: usize = 2740;

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn kernel(more: &str) -> String {
    format!(r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{{{more}}}}}"#)
}

/// Where the arguments of an event in the middle begin, behind the brace.
fn inside(text: &[u8]) -> usize {
    let middle = text.len() / 2;
    middle + text[middle..].windows(8).position(|w| w == b"\"args\": ").unwrap() + 9
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 11u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn verdict(input: &Input) -> Option<String> {
    verdict::analyze(&input.run).verdict.why_inconclusive()
}

#[test]
fn damage_in_the_middle_costs_what_it_hit_and_is_not_the_end_of_the_file() {
    let whole = graphs();
    let at = inside(&whole);
    let quote = at + whole[at..].iter().position(|&b| b == b'"').unwrap();
    // (what is put in at a place, bytes that it replaces, events that it can hit)
    let cases: [(usize, &[u8], usize, usize); 7] = [
        (at, b"[{[{[{", 0, 1),
        (at, b"\"", 0, 1),
        (quote, b"", 1, 1),
        (at, b"}}}]", 0, 2),
        (at, b"\"a\": nul", 0, 2),
        (at, &noise(4096), 0, 2),
        (at, &noise(40_000), 40_000, 150),
    ];
    for (place, new, replaced, hit) in cases {
        let text = [&whole[..place], new, &whole[place + replaced..]].concat();
        for bytes in [packed(&text), text] {
            let input = read(&bytes).unwrap();
            let what = String::from_utf8_lossy(&new[..new.len().min(8)]).into_owned();
            let r = input.refused;
            assert!(r.broken >= 1 && !r.cut && !r.damaged, "{what}: {r:?}");
            assert!(!input.notes.iter().any(|n| n.contains("is truncated")), "{what}: {:?}", input.notes);
            assert!(input.run.devices[0].ops() + hit >= OPS, "{what}: {} ops", input.run.devices[0].ops());
        }
    }
}

#[test]
fn nothing_but_garbage_from_some_place_on_is_damage_and_no_verdict() {
    let whole = graphs();
    let at = inside(&whole);
    for garbage in [noise(whole.len() - at), b"]]]".repeat(10_000)] {
        let text = [&whole[..at], &garbage].concat();
        for bytes in [packed(&text), text] {
            let input = read(&bytes).unwrap();
            assert!(input.refused.damaged && !input.refused.cut, "{:?}", input.refused);
            assert!(input.notes.iter().any(|n| n.contains("damaged")), "{:?}", input.notes);
            assert!(!input.notes.iter().any(|n| n.contains("is truncated")), "{:?}", input.notes);
            assert_eq!(verdict(&input).as_deref(), Some("the file is damaged"));
        }
    }
}

#[test]
fn a_compressed_file_with_a_wrong_byte_is_not_one_that_ends_early() {
    let bytes = packed(&graphs());
    let cut = read(&bytes[..bytes.len() / 2]).unwrap();
    assert!(cut.refused.cut && !cut.refused.damaged, "{:?}", cut.refused);
    let mut seen = 0;
    for part in 2..8 {
        let mut wrong = bytes.clone();
        let at = wrong.len() * part / 10;
        wrong[at..at + 64].fill(0xff);
        // unpacked to other text, it is refused or counted all the same
        let Ok(input) = read(&wrong) else { continue };
        assert!(input.refused.damaged && !input.refused.cut, "{part}: {:?}", input.refused);
        assert!(verdict(&input).is_some());
        seen += 1;
    }
    assert!(seen > 2);
}

#[test]
fn what_stands_behind_the_end_is_said_and_more_events_are_no_trifle() {
    let whole = graphs();
    let twice = [&whole[..], &whole[..]].concat();
    let array = format!("[{}]", kernel(r#""device":0,"stream":7"#));
    let stray = format!("[{0}],{0}]", kernel(r#""device":0,"stream":7"#));
    for (bytes, ops, events) in [
        (twice, OPS, true),
        ((array.clone() + &array).into(), 1, true),
        (stray.into(), 1, true),
        ((array + "  ,\n").into(), 1, false),
    ] {
        let input = read(&bytes).unwrap();
        let r = input.refused;
        assert_eq!((input.run.devices[0].ops(), r.broken, r.cut, r.damaged), (ops, 1, false, events));
        assert!(input.notes.iter().any(|n| n.contains("after the end of the trace")), "{:?}", input.notes);
        assert_eq!(verdict(&input).as_deref() == Some("the file is damaged"), events);
    }
}

#[test]
fn other_encodings_are_named_with_the_way_out() {
    let text = String::from_utf8(graphs()).unwrap();
    let (mut little, mut big) = (Vec::new(), Vec::new());
    for unit in text.encode_utf16() {
        little.extend(unit.to_le_bytes());
        big.extend(unit.to_be_bytes());
    }
    let (mut wide, mut wide_big) = (Vec::new(), Vec::new());
    for c in text.chars() {
        wide.extend((c as u32).to_le_bytes());
        wide_big.extend((c as u32).to_be_bytes());
    }
    let marked = |mark: &[u8], bytes: &[u8]| [mark, bytes].concat();
    for (bytes, name) in [
        (marked(b"\xff\xfe", &little), "UTF-16"),
        (marked(b"\xfe\xff", &big), "UTF-16"),
        (little, "UTF-16"),
        (big, "UTF-16"),
        (marked(b"\xff\xfe\0\0", &wide), "UTF-32"),
        (wide, "UTF-32"),
        (wide_big, "UTF-32"),
    ] {
        for bytes in [packed(&bytes), bytes] {
            let error = read(&bytes).unwrap_err();
            assert!(error.to_string().contains(name), "{error}: {:?}", &bytes[..8]);
            assert!(error.hint.contains(&format!("iconv -f {name} -t UTF-8")), "{}", error.hint);
        }
    }
    // the mark of UTF-8 itself is none of the text
    let input = read(&[b"\xef\xbb\xbf", text.as_bytes()].concat()).unwrap();
    assert_eq!((input.run.devices[0].ops(), input.refused), (OPS, Default::default()));
}

/// Each of these events seems to go on to the end of the file.
#[test]
fn events_without_an_end_do_not_cost_the_square_of_the_file() {
    for unit in [r#"{"ph":[{"#, r#"{"ph":"X","a":{"b":[1,"#, "{\"ph\" "] {
        let text = format!("[{},{}", kernel(r#""device":0,"stream":7"#), unit.repeat(300_000));
        let input = read(text.as_bytes()).unwrap();
        assert!(input.refused.cut || input.refused.damaged, "{:?}", input.refused);
        assert_eq!(input.run.devices[0].ops(), 1);
    }
}

#[test]
fn an_operation_of_no_device_that_can_be_is_counted() {
    let sound = kernel(r#""device":0,"stream":7"#);
    for device in ["-1", "4294967296", "1e30", "\"GPU\"", "[0]", "null"] {
        let text = format!("[{sound},{}]", kernel(&format!(r#""device":{device},"stream":7"#)));
        let input = read(text.as_bytes()).unwrap();
        let ops: Vec<_> = input.run.devices.iter().map(|d| (d.ordinal, d.ops())).collect();
        assert_eq!((ops, input.refused.unplaced), (vec![(0, 1)], 1), "{device}");
    }
}

/// More streams than can be told apart: refused and counted, so that there is no verdict.
#[test]
fn streams_without_end_are_counted() {
    let all = 70_000;
    let events: Vec<String> = (0..all).map(|n| kernel(&format!(r#""device":0,"stream":{n}"#))).collect();
    let input = read(format!("[{}]", events.join(",")).as_bytes()).unwrap();
    let ops = input.run.devices[0].ops();
    assert_eq!((ops as u64 + input.refused.unplaced, input.refused.lost()), (all, input.refused.unplaced));
    assert!(input.notes.iter().any(|n| n.contains("than can be told apart")), "{:?}", input.notes);
    assert!(verdict(&input).is_some_and(|v| v.contains("events lost")), "{:?}", verdict(&input));
}

/// Damage at the end of a block looks like the end of what can be read.
#[test]
fn damage_anywhere_reads_the_same_in_blocks_of_any_size() {
    let event = |n: u64| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{n},"dur":0.5,"args":{{"device":0,"correlation":{n}}}}}"#
        )
    };
    let events: Vec<String> = (0..30).map(event).collect();
    for bad in [r#"{"ph":"X","name":"k<"a":1}"#, r#"{"ph":"X","args":{"a":[1"#, "]]", "x", r#"{"ph" "#] {
        for place in 0..=events.len() {
            let mut events = events.clone();
            events.insert(place, bad.to_owned());
            let text = format!("[{}]", events.join(","));
            let read = |size| {
                let read = formats::kineto::read_in_blocks(text.as_bytes(), size, &Default::default());
                read.map(|k| (k.events, k.refused, k.behind, k.run.devices[0].ops()))
                    .map_err(|e| e.to_string())
            };
            let whole = read(usize::MAX);
            for size in (20..1_500).step_by(31) {
                assert_eq!(read(size), whole, "{bad} at {place}, {size}");
            }
        }
    }
}

/// torch.profiler writes the host's events first: the front half of a trace has none of the GPU,
/// and no advice about activities helps there.
#[test]
fn a_trace_cut_before_the_gpus_events_is_called_cut() {
    let cut = br#"{"traceEvents":[{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":1.0,"dur":2.0,"args":{"correlation":1}},{"ph":"X","cat":"cpu_op","na"#;
    let error = read(cut).unwrap_err();
    assert!(
        error.what.starts_with("the file is truncated") && error.what.contains("(1 event was read)"),
        "{}",
        error.what
    );
    assert!(error.hint.contains("copy it") && !error.hint.contains("activities"), "{}", error.hint);
    let whole = String::from_utf8_lossy(cut).replace(r#",{"ph":"X","cat":"cpu_op","na"#, "]}");
    let error = read(whole.as_bytes()).unwrap_err();
    assert!(error.what.contains("no GPU operation") && error.hint.contains("activities"), "{}", error.what);
}

/// The name decides nothing, but where the content is of no known kind it tells what was meant.
#[test]
fn a_report_of_an_unknown_kind_is_to_be_exported() {
    let path = std::env::temp_dir().join(format!("gapprobe-hostile-{}.nsys-rep", std::process::id()));
    std::fs::write(&path, b"QDSTRM-of-another-day\0\x01\x02").unwrap();
    let error = formats::read(&path, &Default::default()).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(error.hint.contains("nsys export --type sqlite"), "{}", error.hint);
    assert!(!read(b"QDSTRM-of-another-day").unwrap_err().hint.contains("nsys export --type"));
}
