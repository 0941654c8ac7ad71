// SPDX-License-Identifier: Apache-2.0
//! A recording is mostly zeros (32 KiB a segment); the fuzzer gets it with runs of zeros written
//! short, so that each byte it changes is one that somebody reads.
//!
//! SQLite's pages likewise. Here too: what the targets of other formats share.
//!
//! Byte 0 is followed by a u16 (little endian): that many zeros and one. Any other byte stands for
//! itself.

mod kept;
pub mod rows;
pub mod sound;

pub use kept::Kept;

/// No input grows beyond this.
const MOST: usize = 4 << 20;

/// The recording that a fuzzer's input stands for.
pub fn expand(mut input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&byte, rest)) = input.split_first() {
        input = rest;
        if byte != 0 {
            out.push(byte);
        } else if let Some((count, rest)) = input.split_first_chunk::<2>() {
            input = rest;
            out.resize(out.len() + usize::from(u16::from_le_bytes(*count)) + 1, 0);
        }
        if out.len() >= MOST {
            out.truncate(MOST);
            break;
        }
    }
    out
}

/// The input that stands for a recording.
pub fn compact(mut recording: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&byte, rest)) = recording.split_first() {
        if byte != 0 {
            out.push(byte);
            recording = rest;
            continue;
        }
        let zeros = recording.iter().take(1 << 16).take_while(|b| **b == 0).count();
        out.push(0);
        out.extend_from_slice(&((zeros - 1) as u16).to_le_bytes());
        recording = &recording[zeros..];
    }
    out
}
