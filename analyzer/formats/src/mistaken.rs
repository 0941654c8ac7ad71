// SPDX-License-Identifier: Apache-2.0
//! Files that people have at hand and give instead of a trace: what each is, and the command that
//! gets the trace. Told by first bytes, plain or inside gzip; JSON of other kinds by how it begins.

use verdict::text::escape::visible;

use super::ReadError;

/// So many bytes tell what a file is (a tar's mark stands at 257).
pub(super) const ENOUGH: usize = 2048;

const GZIP: &[u8] = &[0x1f, 0x8b];
/// Other things that people have at hand, and what to do with them.
const OTHERS: [(&[u8], &str, &str); 6] = [
    (b"PK\x03\x04", "a zip archive", "unpack it and give the trace inside"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it: zstd -d FILE"),
    (b"\xfd7zXZ\0", "compressed by xz", "unpack it: xz -d FILE"),
    (b"BZh", "compressed by bzip2", "unpack it: bzip2 -d FILE"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", TO_SQLITE),
    (b"PAR1", "a Parquet file", TO_SQLITE),
];
const TO_SQLITE: &str = "if nsys exported it: nsys export --type sqlite REPORT, and give that file";
const BY_TORCH: &str = "record time with torch.profiler: prof.export_chrome_trace(\"trace.json.gz\")";

/// What begins with these bytes, if it is no trace. `packed`: they were compressed by gzip.
pub(super) fn for_a_trace(first: &[u8], packed: bool) -> Option<ReadError> {
    if packed && first.starts_with(GZIP) {
        let how = "unpack it twice: gunzip -c FILE | gunzip -c > trace.json, and give that";
        return Some(ReadError::new("compressed twice (gzip inside gzip)", how));
    }
    if let Some((_, what, hint)) = OTHERS.iter().find(|o| first.starts_with(o.0)) {
        return Some(match packed {
            true => ReadError::new(
                format!("{what}, compressed once more by gzip"),
                format!("gunzip FILE; {hint}"),
            ),
            false => ReadError::new(*what, *hint),
        });
    }
    lfs_pointer(first)
        .or_else(|| tar(first, packed))
        .or_else(|| xplane(first))
        .or_else(|| pickle(first))
        .or_else(|| page(first))
        .or_else(|| answer(first))
        .or_else(|| rocm_profile_data(first))
}

/// JSON without a list of events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Json<'a> {
    /// One object.
    Object(&'a [u8]),
    /// One object a line.
    Lines(&'a [u8]),
    /// A list of lists.
    Lists(&'a [u8]),
}

impl<'a> Json<'a> {
    /// As much of the text as tells what it is.
    pub(super) fn begin(self) -> &'a [u8] {
        const ENOUGH: usize = 64 << 10;
        let (Json::Object(text) | Json::Lines(text) | Json::Lists(text)) = self;
        text.get(..ENOUGH).unwrap_or(text)
    }
}

/// What JSON is that holds no list of events.
pub(super) fn for_events(json: Json<'_>) -> ReadError {
    let has = |words: &[&[u8]]| words.iter().any(|w| memchr::memmem::find(json.begin(), w).is_some());
    match json {
        Json::Lines(_) => match has(&[b"CudaEvent", b"TraceProcessEvent", b"NvtxEvent", b"\"data\":["]) {
            true => ReadError::new(
                "JSON lines, as nsys export --type jsonlines writes them",
                "nsys export --type sqlite REPORT, and give that file",
            ),
            false => ReadError::new(
                "JSON lines (one object a line), not a trace",
                "of nsys: nsys export --type sqlite REPORT; of torch: prof.export_chrome_trace(\"trace.json.gz\")",
            ),
        },
        Json::Lists(_) => ReadError::new(
            "a memory timeline (prof.export_memory_timeline), not a trace: it has sizes and no kernels",
            format!("give the trace of the same profile, or {BY_TORCH}"),
        ),
        Json::Object(_) if has(&[b"\"device_traces\"", b"\"segments\""]) => {
            ReadError::new("a snapshot of torch's memory, not a trace: it has no kernels", BY_TORCH)
        }
        Json::Object(_) if has(&[b"\"rocprofiler-sdk-tool\""]) => ReadError::new(
            "a result of rocprofv3 in JSON, which is not read",
            BY_TORCH,
        ),
        Json::Object(_) if has(&[b"chakra", b"\"nodes\""]) && has(&[b"\"schema\""]) => ReadError::new(
            "an execution trace (ExecutionTraceObserver), not a profile: it has no times of the GPU",
            BY_TORCH,
        ),
        Json::Object(_) => ReadError::no_events(),
    }
}

/// `version https://git-lfs.github.com/spec/v1`, `oid sha256:..`, `size N`.
fn lfs_pointer(first: &[u8]) -> Option<ReadError> {
    if !first.starts_with(b"version https://git-lfs.github.com/spec/") {
        return None;
    }
    let text = String::from_utf8_lossy(first);
    let size = text.lines().find_map(|l| l.strip_prefix("size ")?.trim().parse::<u64>().ok());
    let size = size.map_or(String::new(), |n| format!(", which has {n} bytes"));
    Some(ReadError::new(
        format!("a git LFS pointer instead of the file itself{size}"),
        "in the clone: git lfs install && git lfs pull --include FILE",
    ))
}

fn tar(first: &[u8], packed: bool) -> Option<ReadError> {
    if first.get(257..262)? != b"ustar" {
        return None;
    }
    let name = first.get(..100)?.split(|&b| b == 0).next().map(String::from_utf8_lossy)?;
    let (what, flags) = match packed {
        true => ("a tar archive, compressed by gzip", "xzf"),
        false => ("a tar archive", "xf"),
    };
    Some(ReadError::new(
        format!("{what} (its first entry: {})", visible(&name)),
        format!("unpack it and give the trace inside: tar {flags} FILE"),
    ))
}

/// XLA's own profile: a protobuf message whose first field is a plane, which has a name.
fn xplane(first: &[u8]) -> Option<ReadError> {
    const PLANES: [&[u8]; 4] = [b"/host:", b"/device:", b"Task Environment", b"/task:"];
    let begin = first.get(..64.min(first.len()))?;
    let named = PLANES.iter().any(|name| memchr::memmem::find(begin, name).is_some());
    // (a JSON text may begin with the byte of the field, a newline)
    let is_json = matches!(begin.trim_ascii_start().first(), Some(b'{' | b'['));
    let is = first.first() == Some(&0x0a) && named && !is_json;
    is.then(|| {
        ReadError::new(
            "a profile of XLA in protobuf (xplane.pb)",
            "give the .trace.json.gz beside it (plugins/profile/DATE/); where there is none, open it in XProf's trace viewer, or record anew: jax.profiler.trace(DIR, create_perfetto_trace=True)",
        )
    })
}

/// Protocols 2 to 5; torch's memory snapshot is one.
fn pickle(first: &[u8]) -> Option<ReadError> {
    let is = first.first() == Some(&0x80) && first.get(1).is_some_and(|p| (2..=5).contains(p));
    let has = |word: &[u8]| memchr::memmem::find(first, word).is_some();
    is.then(|| match has(b"segments") || has(b"device_traces") || has(b"frames") {
        true => ReadError::new(
            "a snapshot of torch's memory (_dump_snapshot), not a trace: it has no kernels",
            format!("look at it at pytorch.org/memory_viz; {BY_TORCH}"),
        ),
        false => {
            ReadError::new("a Python pickle, not a trace (torch's memory snapshots are such files)", BY_TORCH)
        }
    })
}

fn page(first: &[u8]) -> Option<ReadError> {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
    let begins = |with: &[u8]| text.get(..with.len()).is_some_and(|t| t.eq_ignore_ascii_case(with));
    if begins(b"<?xml") || begins(b"<Error>") {
        return Some(ReadError::new(
            "an XML document, not a trace (storage services answer so when access is denied)",
            "look at it, and download the file anew with access to it",
        ));
    }
    if ![&b"<!doctype html"[..], b"<html", b"<head", b"<!--"].iter().any(|b| begins(b)) {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let title = title.map(|(title, _)| visible(title.trim()).into_owned()).unwrap_or_default();
    if title.contains("Memory Timeline") {
        let how = format!("give the trace of the same profile, or {BY_TORCH}");
        return Some(ReadError::new("a page with a memory timeline, not a trace", how));
    }
    let title = if title.is_empty() { String::new() } else { format!(" (\"{title}\")") };
    Some(ReadError::new(
        format!("an HTML page, not a trace{title}"),
        "download the file itself: of GitHub curl -LO https://github.com/OWNER/REPOSITORY/raw/BRANCH/PATH; a page that asks to log in takes a login first",
    ))
}

/// What rocmProfileData's rpd2tracing.py writes begins with an empty event and the GPUs' names.
fn rocm_profile_data(first: &[u8]) -> Option<ReadError> {
    let has = |words: &[u8]| memchr::memmem::find(first, words).is_some();
    let is = has(b"[ {}") && has(b"{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\":");
    is.then(|| {
        ReadError::new(
            "a trace of rocmProfileData (rpd2tracing.py), which is not read: operations have no kind and no launch",
            BY_TORCH,
        )
    })
}

/// What a web server says instead of a file.
fn answer(first: &[u8]) -> Option<ReadError> {
    let line = first.split(|&b| b == b'\n').next()?.trim_ascii();
    let says = [&b"404: "[..], b"403: ", b"401: ", b"Not Found", b"Access Denied"];
    let is = line.len() < 80 && says.iter().any(|s| line.starts_with(s));
    is.then(|| {
        let line = String::from_utf8_lossy(line);
        ReadError::new(
            format!("what a web server answered instead of the file: {}", visible(&line)),
            "is the address right, and may you read it?",
        )
    })
}
