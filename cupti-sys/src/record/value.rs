// SPDX-License-Identifier: Apache-2.0
//! Numbers at an offset of a byte slice: unaligned, in the machine's own byte order, never out of
//! bounds.

/// A number that a record may hold.
pub(super) trait Value: Sized {
    /// Reads the number at `offset`; `None` if the slice ends before it does.
    fn get(bytes: &[u8], offset: usize) -> Option<Self>;
    /// Writes the number at `offset`; false if the slice ends before it does.
    fn put(self, bytes: &mut [u8], offset: usize) -> bool;
}

macro_rules! value {
    ($($type:ty),*) => {$(
        impl Value for $type {
            #[inline]
            fn get(bytes: &[u8], offset: usize) -> Option<Self> {
                bytes.get(offset..)?.first_chunk().map(|chunk| Self::from_ne_bytes(*chunk))
            }

            #[inline]
            fn put(self, bytes: &mut [u8], offset: usize) -> bool {
                let chunk = bytes.get_mut(offset..).and_then(<[u8]>::first_chunk_mut);
                chunk.map(|chunk| *chunk = self.to_ne_bytes()).is_some()
            }
        }
    )*};
}

value!(u8, u16, u32, u64, i32);
