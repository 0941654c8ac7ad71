// SPDX-License-Identifier: Apache-2.0
//! Definitions as bytes, and back.

use super::{
    CallerInfo, CapturedLaunch, Definition, DeviceInfo, FrameInfo, InModule, KernelInfo, Language,
    ModuleInfo, NativeStack, TrackInfo, MAX_FRAMES, MAX_STRING,
};

/// Longest encoded record.
pub const MAX_RECORD: usize = 8 + 4 + MAX_STRING;

impl Definition<'_> {
    /// Writes the record into `out` and returns its length, or `None` where `out` is too small.
    /// A string longer than [`MAX_STRING`] is cut.
    pub fn encode(&self, id: u32, out: &mut [u8]) -> Option<usize> {
        let mut w = Put { out, at: 8 };
        let tag = match *self {
            Definition::String(s) => {
                let s = cut(s);
                w.u32(s.len() as u32)?;
                w.bytes(s)?;
                1
            }
            Definition::Kernel(k) => {
                w.u32(k.name)?;
                for v in k.block {
                    w.u32(v)?;
                }
                w.u32(k.registers)?;
                w.u32(k.static_shared)?;
                w.u32(k.dynamic_shared)?;
                w.u32(k.captured)?;
                2
            }
            Definition::Track(t) => {
                let (class, device, context, number, name) = match t {
                    TrackInfo::Stream { device, context, stream } => (0, device, context, stream, 0),
                    TrackInfo::Thread { tid, name } => (1, 0, 0, tid, name),
                };
                for v in [class, device, context, number, name] {
                    w.u32(v)?;
                }
                3
            }
            Definition::Device(d) => {
                for v in [d.multiprocessors, d.compute_major, d.compute_minor, d.name] {
                    w.u32(v)?;
                }
                w.bytes(&d.memory.to_le_bytes())?;
                4
            }
            Definition::Attribute(k, v) => {
                w.u32(k)?;
                w.u32(v)?;
                5
            }
            Definition::Frame(f) => {
                for v in [f.language as u32, f.function, f.file, f.line] {
                    w.u32(v)?;
                }
                6
            }
            Definition::Stack(frames) => {
                let frames = frames.get(..MAX_FRAMES * 4).unwrap_or(frames);
                w.u32((frames.len() / 4) as u32)?;
                w.bytes(frames)?;
                7
            }
            Definition::Module(m) => {
                w.u32(m.path)?;
                w.u32(m.build_id)?;
                w.bytes(&m.base.to_le_bytes())?;
                8
            }
            Definition::Caller(c) => {
                w.u32(c.module)?;
                w.u32(u32::from(c.module_only))?;
                w.bytes(&c.offset.to_le_bytes())?;
                9
            }
            Definition::InModule(m) => {
                w.u32(m.path)?;
                w.u32(m.class)?;
                10
            }
            Definition::Native(n) => {
                for v in [n.outer, n.node, n.kernel, n.native] {
                    w.u32(v)?;
                }
                11
            }
            Definition::Captured(c) => {
                for v in [c.stack, c.node, c.evaluated, c.made] {
                    w.u32(v)?;
                }
                12
            }
        };
        let end = w.at.next_multiple_of(4);
        while w.at < end {
            w.bytes(&[0])?;
        }
        let out = w.out;
        out.get_mut(0..2)?.copy_from_slice(&(end as u16).to_le_bytes());
        out.get_mut(2..4)?.copy_from_slice(&[tag, 0]);
        out.get_mut(4..8)?.copy_from_slice(&id.to_le_bytes());
        Some(end)
    }

    /// Reads the record at the front of `bytes`: id, definition (`None` for an unknown tag) and
    /// length. `None` where the bytes are no record.
    pub fn decode(bytes: &[u8]) -> Option<(u32, Option<Definition<'_>>, usize)> {
        let length = usize::from(u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]));
        if length < 8 || length % 4 != 0 {
            return None;
        }
        let record = bytes.get(..length)?;
        let id = u32_at(record, 4)?;
        let body = record.get(8..)?;
        let definition = match record[2] {
            1 => Definition::String(body.get(4..4usize.checked_add(u32_at(body, 0)? as usize)?)?),
            2 => Definition::Kernel(KernelInfo {
                name: u32_at(body, 0)?,
                block: [u32_at(body, 4)?, u32_at(body, 8)?, u32_at(body, 12)?],
                registers: u32_at(body, 16)?,
                static_shared: u32_at(body, 20)?,
                dynamic_shared: u32_at(body, 24)?,
                captured: u32_at(body, 28).unwrap_or(0), // (from 1.6 on)
            }),
            3 => Definition::Track(match u32_at(body, 0)? {
                0 => TrackInfo::Stream {
                    device: u32_at(body, 4)?,
                    context: u32_at(body, 8)?,
                    stream: u32_at(body, 12)?,
                },
                1 => TrackInfo::Thread { tid: u32_at(body, 12)?, name: u32_at(body, 16)? },
                _ => return Some((id, None, length)),
            }),
            4 => Definition::Device(DeviceInfo {
                multiprocessors: u32_at(body, 0)?,
                compute_major: u32_at(body, 4)?,
                compute_minor: u32_at(body, 8)?,
                name: u32_at(body, 12)?,
                memory: u64_at(body, 16)?,
            }),
            5 => Definition::Attribute(u32_at(body, 0)?, u32_at(body, 4)?),
            6 => Definition::Frame(FrameInfo {
                language: match Language::from_u32(u32_at(body, 0)?) {
                    Some(language) => language,
                    None => return Some((id, None, length)),
                },
                function: u32_at(body, 4)?,
                file: u32_at(body, 8)?,
                line: u32_at(body, 12)?,
            }),
            7 => {
                let count = u32_at(body, 0)? as usize;
                Definition::Stack(body.get(4..4usize.checked_add(count.checked_mul(4)?)?)?)
            }
            8 => Definition::Module(ModuleInfo {
                path: u32_at(body, 0)?,
                build_id: u32_at(body, 4)?,
                base: u64_at(body, 8)?,
            }),
            9 => Definition::Caller(CallerInfo {
                module: u32_at(body, 0)?,
                module_only: u32_at(body, 4)? & 1 == 1,
                offset: u64_at(body, 8)?,
            }),
            10 => Definition::InModule(InModule { path: u32_at(body, 0)?, class: u32_at(body, 4)? }),
            11 => Definition::Native(NativeStack {
                outer: u32_at(body, 0)?,
                node: u32_at(body, 4)?,
                kernel: u32_at(body, 8)?,
                native: u32_at(body, 12)?,
            }),
            12 => Definition::Captured(CapturedLaunch {
                stack: u32_at(body, 0)?,
                node: u32_at(body, 4)?,
                evaluated: u32_at(body, 8)?,
                made: u32_at(body, 12)?,
            }),
            _ => return Some((id, None, length)),
        };
        Some((id, Some(definition), length))
    }
}

/// `s` cut to [`MAX_STRING`] bytes, not inside a UTF-8 character.
fn cut(s: &[u8]) -> &[u8] {
    if s.len() <= MAX_STRING {
        return s;
    }
    let mut end = MAX_STRING;
    while end > 0 && s[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &s[..end]
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at.checked_add(4)?)?) << 32)
}

struct Put<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Put<'_> {
    fn bytes(&mut self, b: &[u8]) -> Option<()> {
        let end = self.at.checked_add(b.len())?;
        self.out.get_mut(self.at..end)?.copy_from_slice(b);
        self.at = end;
        Some(())
    }

    fn u32(&mut self, v: u32) -> Option<()> {
        self.bytes(&v.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_survives_its_encoding() {
        let all = [
            Definition::String(b"void gemm<float>(int)"),
            Definition::String(b""),
            Definition::Kernel(KernelInfo {
                name: 1,
                block: [256, 2, 3],
                registers: 128,
                static_shared: 5,
                dynamic_shared: 9,
                captured: 11,
            }),
            Definition::Track(TrackInfo::Stream { device: 1, context: 2, stream: 7 }),
            Definition::Track(TrackInfo::Thread { tid: 77, name: 3 }),
            Definition::Device(DeviceInfo {
                multiprocessors: 132,
                compute_major: 9,
                compute_minor: 0,
                name: 4,
                memory: 1 << 40,
            }),
            Definition::Attribute(8, 9),
            Definition::Frame(FrameInfo { language: Language::Native, function: 3, file: 4, line: 88 }),
            Definition::Stack(&[1, 0, 0, 0, 7, 1, 0, 0]),
            Definition::Stack(&[]),
            Definition::Module(ModuleInfo { path: 1, build_id: 2, base: 0x7f00_1234_5000 }),
            Definition::Caller(CallerInfo { module: 3, module_only: true, offset: 1 << 33 }),
            Definition::InModule(InModule { path: 5, class: 6 }),
            Definition::Native(NativeStack { outer: 1, node: 2, kernel: 3, native: 4 }),
            Definition::Captured(CapturedLaunch { stack: 1, node: 2, evaluated: 3, made: 4 }),
        ];
        let mut buffer = [0; MAX_RECORD];
        for d in all {
            let n = d.encode(42, &mut buffer).unwrap();
            assert_eq!(Definition::decode(&buffer[..n]), Some((42, Some(d), n)));
            assert_eq!(Definition::decode(&buffer[..n - 1]), None, "a cut record is no record");
        }
    }

    #[test]
    fn a_long_string_is_cut_at_a_character() {
        let long = "ä".repeat(MAX_STRING);
        let mut buffer = [0; MAX_RECORD];
        let n = Definition::String(long.as_bytes()).encode(1, &mut buffer).unwrap();
        let Some((1, Some(Definition::String(s)), _)) = Definition::decode(&buffer[..n]) else { panic!() };
        assert_eq!(std::str::from_utf8(s).unwrap().len(), MAX_STRING);
    }

    #[test]
    fn a_stack_longer_than_its_record_is_refused() {
        let mut b = [0u8; 64];
        b[..2].copy_from_slice(&16u16.to_le_bytes());
        b[2] = 7;
        for lie in [2u32, u32::MAX / 4, u32::MAX] {
            b[8..12].copy_from_slice(&lie.to_le_bytes());
            assert_eq!(Definition::decode(&b), None);
        }
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        for lie in [0u16, 4, 7, 9, 8000] {
            let mut b = [0u8; 64];
            b[..2].copy_from_slice(&lie.to_le_bytes());
            b[2] = 1;
            assert_eq!(Definition::decode(&b), None);
        }
        let mut b = [0u8; 64];
        b[..2].copy_from_slice(&16u16.to_le_bytes());
        b[2] = 1;
        b[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Definition::decode(&b), None, "a string longer than its record");
    }
}
