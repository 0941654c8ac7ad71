// SPDX-License-Identifier: Apache-2.0
// HOT
//! `nvtxEventAttributes_t`, the structure that tells an event's message and payload. The program
//! fills it in, by headers of any age: a field is read only where the structure's own size says
//! that it is there.
//!
//! ```text
//! u16 version 0, u16 size 2, u32 category 4, i32 colour type 8, u32 colour 12, i32 payload type 16, i32 reserved 20,
//! u64 payload 24, i32 message type 32, pointer message 40                                            48 bytes
//! ```

use std::ffi::{c_char, c_void};

use super::handles;
use crate::sources::marks::ranges::{Name, Number, Text};

const SIZE: usize = 2;
const PAYLOAD_TYPE: usize = 16;
const RESERVED: usize = 20;
const PAYLOAD: usize = 24;
const MESSAGE_TYPE: usize = 32;
const MESSAGE: usize = 40;

/// `NVTX_PAYLOAD_TYPE_EXT`: the payload is the address of `reserved` [`Extended`].
const EXTENDED: u32 = 0xdfbd_0009;
/// Extended payloads of one event that are looked at.
const MOST_EXTENDED: i32 = 4;

/// `nvtxPayloadData_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extended {
    schema: u64,
    size: usize,
    payload: *const c_void,
}

/// An event's attributes, somewhere in the program's memory.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    at: *const u8,
    size: usize,
}

impl Attributes {
    /// `None` for null and for a structure too small to hold anything.
    ///
    /// # Safety
    /// `at` is null or points to a structure as large as the size in it says.
    pub(crate) unsafe fn new(at: *const c_void) -> Option<Attributes> {
        let at = at.cast::<u8>();
        if at.is_null() {
            return None;
        }
        // SAFETY: by contract there are at least the two numbers in front.
        let size = unsafe { at.wrapping_add(SIZE).cast::<u16>().read_unaligned() };
        (usize::from(size) > PAYLOAD_TYPE).then_some(Attributes { at, size: usize::from(size) })
    }

    fn field<T: Copy>(self, offset: usize) -> Option<T> {
        if offset + size_of::<T>() > self.size {
            return None;
        }
        // SAFETY: inside the structure, by its own size (contract of `new`); any bits are a T
        // (numbers and raw pointers).
        Some(unsafe { self.at.wrapping_add(offset).cast::<T>().read_unaligned() })
    }

    /// The event's message.
    pub(crate) fn name(self) -> Name {
        let (Some(kind), Some(message)) =
            (self.field::<i32>(MESSAGE_TYPE), self.field::<*const c_void>(MESSAGE))
        else {
            return Name::NONE;
        };
        match kind {
            // SAFETY: the program says that it is a string of this kind.
            1 => Name::Text(unsafe { Text::narrow(message.cast::<c_char>()) }),
            // SAFETY: as above.
            2 => Name::Text(unsafe { Text::wide(message.cast::<u32>()) }),
            3 => Name::Handle(handles::index(message)),
            _ => Name::NONE,
        }
    }

    /// The event's number. Of extended payloads: the bytes of a NCCL call.
    pub(crate) fn number(self, domain: u32) -> Option<Number> {
        let bits = self.field::<u64>(PAYLOAD)?;
        Some(match self.field::<u32>(PAYLOAD_TYPE)? {
            1 => Number::unsigned(bits),
            2 => Number::signed(bits as i64),
            3 => Number::real(f64::from_bits(bits)),
            4 => Number::unsigned(bits & 0xffff_ffff),
            5 => Number::signed(i64::from(bits as i32)),
            6 => Number::real(f64::from(f32::from_bits(bits as u32))),
            EXTENDED if domain != 0 && domain == handles::nccl() => {
                let count = self.field::<i32>(RESERVED)?;
                return nccl_bytes(bits as usize as *const Extended, count).map(Number::unsigned);
            }
            _ => return None,
        })
    }
}

/// Bytes of the message of a NCCL call.
fn nccl_bytes(list: *const Extended, count: i32) -> Option<u64> {
    if list.is_null() {
        return None;
    }
    (0..count.clamp(0, MOST_EXTENDED)).find_map(|i| {
        // SAFETY: the program says that there are `count` of them.
        let one = unsafe { list.wrapping_add(i as usize).read_unaligned() };
        let offset = bytes_at(one.schema, one.size)?;
        if one.payload.is_null() {
            return None;
        }
        // SAFETY: `bytes_at` answers only where offset and 8 bytes lie within the size that the
        // program says.
        Some(unsafe { one.payload.cast::<u8>().wrapping_add(offset).cast::<u64>().read_unaligned() })
    })
}

/// Where a payload of NCCL's schema of this number and size has its bytes. Two layouts are about:
/// since 2.24 or so each begins with the communicator, before that with the bytes
/// (nccl/src/include/nvtx_payload_schemas.h; collectives.cc of 2.19). Other sizes belong to layouts
/// we do not know.
fn bytes_at(schema: u64, size: usize) -> Option<usize> {
    const FIRST: u64 = 1 << 24;
    match (schema.checked_sub(FIRST)?, size) {
        // AllGather, AlltoAll: communicator and bytes
        (4 | 16, 16) => Some(8),
        (4, 8) => Some(0),
        // AllReduce, Broadcast, ReduceScatter, Reduce, Send, Recv, Gather, Scatter: and one or two
        // ints
        (5..=10 | 17 | 18, 24) => Some(8),
        (5..=10, 16) => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The structure as a C program of today fills it in.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Raw {
        version: u16,
        size: u16,
        category: u32,
        colour: [u32; 2],
        payload_type: u32,
        reserved: i32,
        payload: u64,
        message_type: i32,
        pad: i32,
        message: usize,
    }

    fn raw() -> Raw {
        Raw { version: 3, size: 48, ..Raw::default() }
    }

    fn read(raw: &Raw) -> Option<Attributes> {
        // SAFETY: a whole structure; the tests set a size larger than it nowhere.
        unsafe { Attributes::new(std::ptr::from_ref(raw).cast()) }
    }

    #[test]
    fn numbers_of_each_type_keep_their_value() {
        let number = |payload_type, payload| {
            read(&Raw { payload_type, payload, ..raw() }).and_then(|a| a.number(0)).map(|n| (n.bits, n.style))
        };
        let told = |n: Number| Some((n.bits, n.style));
        assert_eq!(number(1, u64::MAX), told(Number::unsigned(u64::MAX)));
        assert_eq!(number(2, -5i64 as u64), told(Number::signed(-5)));
        assert_eq!(number(3, 2.5f64.to_bits()), told(Number::real(2.5)));
        // a union's upper half is whatever was there before
        assert_eq!(number(4, 0xdead_beef_0000_0007), told(Number::unsigned(7)));
        assert_eq!(number(5, 0xdead_beef_ffff_fff9), told(Number::signed(-7)));
        assert_eq!(number(6, 0xdead_beef_0000_0000 | u64::from(1.5f32.to_bits())), told(Number::real(1.5)));
        for kind in [0, 7, u32::MAX, EXTENDED] {
            assert_eq!(number(kind, 9), None, "{kind}");
        }
    }

    #[test]
    fn nothing_is_read_past_the_size_that_is_told() {
        let text = c"name";
        let whole =
            Raw { payload_type: 1, payload: 7, message_type: 1, message: text.as_ptr() as usize, ..raw() };
        for size in 0..=48u16 {
            let cut = Raw { size, ..whole };
            let a = read(&cut);
            assert_eq!(a.is_some(), size > 16, "{size}");
            let Some(a) = a else { continue };
            assert_eq!(a.number(0).is_some(), size >= 32, "{size}");
            assert_eq!(matches!(a.name(), Name::Text(_)), size == 48, "{size}");
        }
        // SAFETY: null is answered.
        assert!(unsafe { Attributes::new(std::ptr::null()) }.is_none());
    }

    #[test]
    fn bytes_of_nccl_calls_of_both_layouts_and_of_no_other() {
        let domain = handles::domain(b"NCCL");
        assert_eq!(domain, handles::nccl());
        let number = |schema: u64, words: &[u64], size: usize, count: i32, domain: u32| {
            let data = Extended { schema: (1 << 24) + schema, size, payload: words.as_ptr().cast() };
            let payload = std::ptr::from_ref(&data) as u64;
            let raw = Raw { payload_type: EXTENDED, payload, reserved: count, ..raw() };
            read(&raw).and_then(|a| a.number(domain)).map(|n| n.bits)
        };
        let words = [77, 1 << 20, 3];
        assert_eq!(number(5, &words, 24, 1, domain), Some(1 << 20), "AllReduce with its communicator");
        assert_eq!(number(4, &words, 16, 1, domain), Some(1 << 20), "AllGather");
        assert_eq!(number(5, &words[1..], 16, 1, domain), Some(1 << 20), "AllReduce of old");
        assert_eq!(number(4, &words[1..], 8, 1, domain), Some(1 << 20), "AllGather of old");
        assert_eq!(number(5, &words, 24, 1, domain + 1), None, "another domain has schemas of its own");
        assert_eq!(number(5, &words, 24, 0, domain), None);
        assert_eq!(number(5, &words, 24, -3, domain), None);
        for size in [0, 4, 7, 12, 32, usize::MAX] {
            assert_eq!(number(5, &words, size, 1, domain), None, "{size}");
        }
        assert_eq!(number(0, &words, 24, 1, domain), None, "ncclCommInitRank moves nothing");
        let raw = Raw { payload_type: EXTENDED, payload: 0, reserved: 1, ..raw() };
        assert!(read(&raw).unwrap().number(domain).is_none());
    }
}
