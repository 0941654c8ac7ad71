// SPDX-License-Identifier: Apache-2.0
//! What torch.profiler tells of an operator beyond its time: the shapes of its inputs
//! (`record_shapes`), and memory that was allocated and freed meanwhile (`profile_memory`).

use memchr::memmem;

use super::args::number;
use super::part::{Part, RawMemory};
use super::scan::{Scan, Value};

/// What an operator was called with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Inputs<'a> {
    /// The shapes as PyTorch groups by them, `[[32, 64], [], [64]]`, `[]` for what is no tensor and
    /// for a list of tensors.
    pub(super) shapes: Vec<u8>,
    /// `["float", "Scalar"]`; empty where it is not told.
    pub(super) types: &'a [u8],
    /// What are no tensors, `["", "[1, 1]"]`, of those for whose FLOPs it is needed; empty where it
    /// is not told (before PyTorch 2.1).
    pub(super) values: &'a [u8],
}

/// `None` without shapes.
pub(super) fn inputs<'a>(name: &[u8], args: &'a [u8]) -> Option<Inputs<'a>> {
    // operators are many: one that has none costs a search, no reading (PyTorch 1.8: "Input dims")
    memmem::find(args, b"\"Input ")?;
    let (mut dims, mut told) = (None, Inputs::default());
    let has_values = [&b"conv"[..], b"attention"].iter().any(|of| memmem::find(name, of).is_some());
    let _ = Scan::new(args, 0).object(|key, s| {
        match (key, s.value()?) {
            (b"Input Dims" | b"Input dims", Value::Nested(text)) => dims = Some(text),
            (b"Input type", Value::Nested(text)) => told.types = text,
            (b"Concrete Inputs", Value::Nested(text)) if has_values => told.values = text,
            _ => {}
        }
        Ok(())
    });
    told.shapes = without_lists(dims?);
    Some(told)
}

/// `[[[64, 3], [64]],[8]]` as `[[], [8]]`.
fn without_lists(dims: &[u8]) -> Vec<u8> {
    let mut kept: Vec<u8> = Vec::with_capacity(dims.len());
    let (mut depth, mut input) = (0, 0);
    for &byte in dims.iter().filter(|b| !b.is_ascii_whitespace()) {
        depth += i32::from(byte == b'[');
        match (byte, depth) {
            (b'[', 2) => input = kept.len() + 1,
            (b'[', 3) => kept.truncate(input),
            _ => {}
        }
        if depth <= 2 {
            kept.push(byte);
            if byte == b',' {
                kept.push(b' ');
            }
        }
        depth -= i32::from(byte == b']');
    }
    kept
}

/// Bytes that were allocated, or freed, at a moment. Numbers of devices as `c10::DeviceType` has
/// them: 0, 2 and 5 are the host's memory, 1, 6, 12 and 20 a GPU's (CUDA, ROCm, Intel's, others).
pub(super) fn memory(args: &[u8], at: i64, part: &mut Part) {
    let (mut bytes, mut device) = (None, None);
    let read = Scan::new(args, 0).object(|key, s| {
        match (key, s.value()?) {
            (b"Bytes", v) => bytes = number(v),
            (b"Device Type", v) => device = number(v),
            _ => {}
        }
        Ok(())
    });
    part.refused.aside += u64::from(read.is_err());
    let on_gpu = match device {
        Some(0 | 2 | 5) => false,
        Some(1 | 6 | 12 | 20) => true,
        _ => return,
    };
    if let Some(bytes) = bytes {
        part.memory.push(RawMemory { at, bytes, on_gpu });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_as_they_stand_there() {
        let args = br#"{"External id": 5, "Input Dims": [[32, 64], [], [64]], "Ev Idx": 0}"#;
        let told = inputs(b"aten::add", args).unwrap();
        assert_eq!((&told.shapes[..], told.types), (&b"[[32, 64], [], [64]]"[..], &b""[..]));
        let list = b"{\"Input Dims\": [[[64, 3], [64]],\n [8],[[1]], []]}";
        assert_eq!(inputs(b"aten::cat", list).unwrap().shapes, b"[[], [8], [], []]");
        let all =
            br#"{"Concrete Inputs": ["", "1"], "Input type": ["float", "Scalar"], "Input Dims": [[8], []]}"#;
        let told = |name| inputs(name, all).map(|told| (told.types, told.values)).unwrap();
        assert_eq!(told(b"aten::cudnn_convolution"), (&br#"["float", "Scalar"]"#[..], &br#"["", "1"]"#[..]));
        assert_eq!(told(b"aten::pow").1, b"");
        for none in [&br#"{"Ev Idx": 1}"#[..], br#"{"Input Dims": "#, b""] {
            assert!(inputs(b"aten::add", none).is_none());
        }
    }

    #[test]
    fn memory_is_the_hosts_or_a_gpus() {
        let mut part = Part::default();
        memory(br#"{"Bytes": -512, "Device Type": 1, "Device Id": 0}"#, 7, &mut part);
        memory(br#"{"Bytes": 64, "Device Type": 0}"#, 8, &mut part);
        memory(br#"{"Bytes": 64, "Device Type": 99}"#, 9, &mut part);
        memory(br#"{"Device Type": 0}"#, 9, &mut part);
        let told: Vec<_> = part.memory.iter().map(|m| (m.at, m.bytes, m.on_gpu)).collect();
        assert_eq!(told, [(7, -512, true), (8, 64, false)]);
    }
}
