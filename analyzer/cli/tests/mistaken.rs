// SPDX-License-Identifier: Apache-2.0
//! Purpose: who gives a file that is no trace is told what it is, and the command that gets the
//! trace. Plain or compressed: what it is does not depend on it.

use std::io::Write as _;

use formats::ReadError;

fn read(bytes: &[u8]) -> ReadError {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("gapprobe-mistaken-{}-{n}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let read = formats::read(&path, &Default::default());
    std::fs::remove_file(&path).unwrap();
    read.map(|i| i.events).expect_err("it is no trace")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn tar(name: &str, text: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[257..263].copy_from_slice(b"ustar\0");
    header.extend_from_slice(text);
    header.resize(2048, 0);
    header
}

/// What begins so is that, and the way out has this in it.
fn mistaken() -> Vec<(Vec<u8>, &'static str, &'static str)> {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 99\n";
    let plane = b"\x0a\xf4\x03\x08\x01\x12\x0d/device:GPU:0\x1a\x10";
    let host = b"\x0a\x85\x80\x04\x12\x09/host:CPU\x1a\x10";
    let pickle = b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]";
    let all: [(&[u8], &str, &str); 24] = [
        (pointer, "a git LFS pointer instead of the file itself, which has 99 bytes", "git lfs pull"),
        (
            b"<!DOCTYPE html>\n<html><head><title>trace at main</title>",
            "an HTML page, not a trace (\"trace at main\")",
            "curl -LO",
        ),
        (b"\r\n  <HTML lang=en>", "an HTML page, not a trace", "curl -LO"),
        (
            b"<html><head><title>GPU Memory Timeline HTML</title>",
            "a page with a memory timeline",
            "export_chrome_trace",
        ),
        (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "an XML document", "download"),
        (b"404: Not Found", "what a web server answered", "address"),
        (plane, "a profile of XLA in protobuf (xplane.pb)", ".trace.json.gz"),
        (host, "a profile of XLA in protobuf (xplane.pb)", ".trace.json.gz"),
        (pickle, "a snapshot of torch's memory", "export_chrome_trace"),
        (b"\x80\x02}q\x00.", "a Python pickle", "export_chrome_trace"),
        (b"[[1, 2, 3], [[0, 0], [1, 1]]]", "a memory timeline", "export_chrome_trace"),
        (b" [ [1700000000, 0, 512, 3], [1700000001, 1, 512, 3]]", "a memory timeline", "export_chrome_trace"),
        (b"{\"segments\": [], \"device_traces\": []}", "a snapshot of torch's memory", "export_chrome_trace"),
        (
            b"{\"schema\": \"1.1.1-chakra.0.0.4\", \"pid\": 1, \"nodes\": []}",
            "an execution trace",
            "export_chrome_trace",
        ),
        (
            b"[ {}\n,{\"name\": \"process_name\", \"ph\": \"M\", \"pid\":\"2\",\"args\":{\"name\":\"GPU2\"}}\n\
              ,{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\":\"2\",\"args\":{\"sort_index\":\"1000002\"}}\n]",
            "a trace of rocmProfileData",
            "export_chrome_trace",
        ),
        (
            b"{\"rocprofiler-sdk-tool\":[{\"metadata\":{\"pid\":908}}]}",
            "a result of rocprofv3",
            "export_chrome_trace",
        ),
        (
            b"{\"data\":[\"a\",\"b\"]}\n{\"Type\":80,\"CudaEvent\":{\"startNs\":\"1\"}}\n",
            "JSON lines, as nsys export",
            "nsys export --type sqlite",
        ),
        (b"{\"a\": 1}\n{\"a\": 2}\n", "JSON lines (one object a line)", "nsys export --type sqlite"),
        (b"{\"a\": 1}", "a JSON file without a list of traceEvents", "export_chrome_trace"),
        (b"PK\x03\x04\x14\x00", "a zip archive", "unpack it"),
        (b"\x28\xb5\x2f\xfd\x04", "compressed by zstd", "zstd -d FILE"),
        (b"\x89HDF\r\n\x1a\n\x00", "an HDF5 file", "nsys export --type sqlite"),
        (b"PAR1\x15\x04", "a Parquet file", "nsys export --type sqlite"),
        (b"BZh91AY", "compressed by bzip2", "bzip2 -d FILE"),
    ];
    let mut all: Vec<_> = all.into_iter().map(|(bytes, what, how)| (bytes.to_vec(), what, how)).collect();
    all.push((tar("run/trace.json", b"{}"), "a tar archive", "tar x"));
    all
}

#[test]
fn each_is_called_what_it_is_with_the_way_out() {
    for (bytes, what, how) in mistaken() {
        for (bytes, is_packed) in [(bytes.clone(), false), (packed(&bytes), true)] {
            let error = read(&bytes);
            assert!(error.what.contains(what), "{what}: {} (packed: {is_packed})", error.what);
            assert!(error.hint.contains(how), "{what}: {} (packed: {is_packed})", error.hint);
            // one sentence, and one line of advice
            assert!(error.what.len() < 120 && !error.hint.is_empty(), "{} {}", error.what, error.hint);
            assert!(!error.what.contains('\n') && !error.hint.contains('\n'));
        }
    }
}

#[test]
fn the_cases_are_called_what_they_are() {
    let case = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
        formats::read(&path, &Default::default()).map(|i| i.events).expect_err(name).what
    };
    let pointer = "a git LFS pointer instead of the file itself, which has 12345678 bytes";
    assert_eq!(case("git_lfs_pointer.json"), pointer);
    assert_eq!(case("html_page.json"), "an HTML page, not a trace (\"trace.json at main\")");
    assert_eq!(case("gz_in_gz.json.gz"), "compressed twice (gzip inside gzip)");
}

#[test]
fn what_is_packed_twice_says_how_to_unpack_it() {
    let twice = packed(&packed(b"{\"traceEvents\": []}"));
    let error = read(&twice);
    assert_eq!(error.what, "compressed twice (gzip inside gzip)");
    assert!(error.hint.contains("gunzip -c FILE | gunzip -c"), "{}", error.hint);
    let archive = read(&packed(&tar("a.json", b"")));
    assert_eq!(archive.what, "a tar archive, compressed by gzip (its first entry: a.json)");
    assert!(archive.hint.contains("tar xzf FILE"), "{}", archive.hint);
}

/// What is hidden in names of others is written out, and cannot speak to a terminal.
#[test]
fn names_in_a_message_are_safe_to_show() {
    let archive = read(&tar("a\x1b[31m.json", b""));
    assert!(archive.what.contains("a\\u{1b}[31m.json"), "{}", archive.what);
    let page = read(b"<html><title>a\x1b]0;x\x07</title>");
    assert!(!page.what.contains('\x1b'), "{}", page.what);
}

/// A text that begins with a line feed, as protobuf's first field does, is a text.
#[test]
fn a_trace_that_speaks_of_devices_is_no_protobuf() {
    let error = read(b"\n{\"name\": \"/device:GPU:0\", \"host\": \"/host:CPU\"}");
    assert!(error.what.contains("without a list of traceEvents"), "{}", error.what);
}
