// SPDX-License-Identifier: Apache-2.0
//! Readers and writers on hand-made bytes. What NVIDIA says of the same offsets is in tests/layout.

use super::*;
use crate::release_from;

#[test]
fn a_kernel_is_read_from_the_bytes_where_the_survey_says() {
    let mut bytes = [0xEE_u8; 248];
    bytes[0..4].copy_from_slice(&10_u32.to_ne_bytes());
    bytes[16..24].copy_from_slice(&1_000_000_007_u64.to_ne_bytes());
    bytes[24..32].copy_from_slice(&1_000_000_909_u64.to_ne_bytes());
    bytes[48..52].copy_from_slice(&7_u32.to_ne_bytes());
    bytes[92..96].copy_from_slice(&0xCAFE_u32.to_ne_bytes());
    bytes[104..112].copy_from_slice(&0x7f00_dead_beef_u64.to_ne_bytes());
    bytes[144..152].copy_from_slice(&(9_u64 << 32 | 5).to_ne_bytes());
    let kernel = Kernel::read(&bytes).unwrap();
    assert_eq!(kind_of(&bytes), Some(kind::CONCURRENT_KERNEL));
    assert_eq!((kernel.start, kernel.end, kernel.stream), (1_000_000_007, 1_000_000_909, 7));
    assert_eq!((kernel.correlation, kernel.name), (0xCAFE, 0x7f00_dead_beef));
    assert_eq!(kernel.graph_node, 9 << 32 | 5);
}

#[test]
fn every_length_below_the_need_is_refused_and_none_panics() {
    let bytes = [0_u8; 256];
    for length in 0..=bytes.len() {
        let slice = &bytes[..length];
        assert_eq!(Kernel::read(slice).is_some(), length >= Kernel::NEEDS);
        assert_eq!(Memcpy::read(slice).is_some(), length >= Memcpy::NEEDS);
        assert_eq!(Api::read(slice).is_some(), length >= Api::NEEDS);
        assert_eq!(kind_of(slice).is_some(), length >= 4);
        let mut room = vec![0xEE_u8; length];
        let written = Kernel::default().write(&mut room);
        assert_eq!(written, length >= Kernel::NEEDS);
        assert!(written || room.iter().all(|byte| *byte == 0xEE), "a refused write must write nothing");
    }
}

#[test]
fn fields_lie_inside_the_smallest_record_and_do_not_overlap() {
    let oldest = release_from(17, "libcupti.so.11.7");
    let all: [(u32, usize, &[Field]); 10] = [
        (kind::KERNEL, Kernel::NEEDS, Kernel::FIELDS),
        (kind::MEMCPY, Memcpy::NEEDS, Memcpy::FIELDS),
        (kind::MEMCPY2, MemcpyPeer::NEEDS, MemcpyPeer::FIELDS),
        (kind::MEMSET, Memset::NEEDS, Memset::FIELDS),
        (kind::SYNCHRONIZATION, Synchronization::NEEDS, Synchronization::FIELDS),
        (kind::RUNTIME, Api::NEEDS, Api::FIELDS),
        (kind::GRAPH_TRACE, GraphTrace::NEEDS, GraphTrace::FIELDS),
        (kind::OVERHEAD, Overhead::NEEDS, Overhead::FIELDS),
        (kind::CUDA_EVENT, CudaEvent::NEEDS, CudaEvent::FIELDS),
        (kind::STREAM, Stream::NEEDS, Stream::FIELDS),
    ];
    for (kind, needs, fields) in all {
        assert!(needs <= size(kind, oldest).unwrap(), "kind {kind} needs {needs} bytes");
        let mut taken = vec![false; needs];
        taken[..4].fill(true);
        for field in fields {
            for byte in &mut taken[field.offset..field.offset + field.size] {
                assert!(!*byte, "kind {kind}: {} overlaps", field.name);
                *byte = true;
            }
        }
    }
}

#[test]
fn what_is_written_is_read_back_and_nothing_else_is_touched() {
    let memcpy = Memcpy {
        copy_kind: 1,
        source_kind: 2,
        destination_kind: 3,
        flags: 1,
        bytes: u64::MAX,
        start: 5,
        end: 6,
        device: 7,
        context: 8,
        stream: 9,
        correlation: u32::MAX,
        graph_node: 10,
        graph: 11,
        channel: 12,
    };
    let mut bytes = [0xEE_u8; 112];
    assert!(memcpy.write(&mut bytes));
    assert_eq!(Memcpy::read(&bytes), Some(memcpy));
    for (index, byte) in bytes.iter().enumerate() {
        let in_a_field = Memcpy::FIELDS.iter().any(|f| (f.offset..f.offset + f.size).contains(&index));
        assert!(in_a_field || *byte == 0xEE, "byte {index} was touched");
    }
}

#[test]
fn sizes_follow_the_release() {
    let kernel = |version, soname| size(kind::CONCURRENT_KERNEL, release_from(version, soname));
    assert_eq!(kernel(18, "libcupti.so.11.8"), Some(200));
    assert_eq!(kernel(18, "libcupti.so.12"), Some(208));
    assert_eq!(kernel(130_202, "libcupti.so.13"), Some(224));
    assert_eq!(kernel(130_500, "libcupti.so.13"), Some(248));
    assert_eq!(kernel(140_000, "libcupti.so.14"), Some(248));
    assert_eq!(kernel(0, "libcupti.so.12"), None, "the minor is not known: no guess");
    assert_eq!(size(kind::MARKER, release_from(130_500, "")), None);
}
