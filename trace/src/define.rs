// SPDX-License-Identifier: Apache-2.0
//! Definitions: what the ids in events stand for. Append-only records in segments of their own.
//!
//! ```text
//! u16 length of the whole record, a multiple of 4 | u8 tag | u8 0 | u32 id | payload
//! tag 1 string     u32 byte length, UTF-8 bytes (any other byte is replaced when read)
//! tag 2 kernel     u32 name (string id), u32 block x, y, z, u32 registers/thread, u32 static,
//!                  u32 dynamic shared bytes, u32 id of what was captured as this graph node
//!                  (from 1.6 on)
//! tag 3 track      u32 class (0 stream, 1 thread), u32 device, u32 context, u32 stream or tid, u32 name (string id, 0 none)
//! tag 4 device     u32 multiprocessors, u32 compute major, u32 minor, u32 name (string id), u64 memory bytes
//! tag 5 attribute  u32 key (string id), u32 value (string id)
//! tag 6 frame      u32 language (0 Python, 1 native), u32 function, u32 file (string ids), u32 line (0 unknown)
//! tag 7 stack      u32 count, count times u32 frame id, innermost first
//! tag 8 module     u32 path, u32 build id in hex (string ids, 0 none), u64 load base
//! tag 9 caller     u32 module (its id), u32 1: the function is not known, u64 return address less the load base
//! tag 10 in module u32 path (0: the outermost module), u32 class (string ids); the id is a stack's
//! tag 11 native    u32 Python stack, u32 node type, u32 kernel (string ids), u32 stack of callers
//! tag 12 captured  u32 stack, u32 node type (string id), u32 stack in which its evaluation began,
//!                  u32 stack that made it
//! ```
//! String id 0 is "no string". A later definition of the same id replaces the earlier one.

/// Longest string stored; longer ones are cut at a character boundary.
pub const MAX_STRING: usize = 4096;

/// A kernel as launched: function and the part of its launch configuration that rarely changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct KernelInfo {
    /// Mangled name, a string id (0: unknown).
    pub name: u32,
    /// Threads of a block.
    pub block: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory a block, bytes.
    pub static_shared: u32,
    /// Dynamic shared memory a block, bytes.
    pub dynamic_shared: u32,
    /// A node of a CUDA graph: id of the [`CapturedLaunch`]; 0: not known, or no node.
    pub captured: u32,
}

/// The attribute that says in which directory the program was started: relative paths of code count
/// from there.
pub const DIRECTORY: &str = "cwd";
/// The attribute that says how many CPUs the process may run on, by its affinity.
pub const CPUS: &str = "host.cpus";
/// The attribute that says how many CPUs the tightest quota of its control groups allows: "1.50".
/// Absent where there is none.
pub const CPU_QUOTA: &str = "host.cgroup_cpus";
/// Key of a recording's attribute: which job it is a start of (program, arguments, directory,
/// rank), 16 hexadecimal digits.
pub const START: &str = "start";

/// The attribute that says which windows there were, where the run was recorded in windows.
pub const WINDOWS: &str = "windows";
/// The attribute that says why there was no flight recorder, where one was asked for.
pub const FLIGHT: &str = "flight";
/// Value of [`WINDOWS`] and [`FLIGHT`]: neither was possible.
pub const UNSEEN: &str = "none: launches are not seen without CUPTI";
/// Value of [`WINDOWS`]: as [`UNSEEN`], and the run went on for longer than is recorded of it.
pub const ENDED: &str = "none: recording ended for good, launches are not seen without CUPTI";
/// Value of [`WINDOWS`] and [`FLIGHT`]: they go by steps, and nothing told them.
pub const NO_STEPS: &str = "none: no steps are known";
/// The attribute that says how many TFLOP a step does on one GPU, as the user has given it.
pub const STEP_TFLOP: &str = "step.tflop";
/// The attribute that names the job, as the batch system or launcher numbers it.
pub const JOB: &str = "job";

/// The attribute that carries the UUID of the device with this ordinal, as NVML writes it.
pub fn gpu_uuid(ordinal: u32) -> String {
    format!("gpu.{ordinal}.uuid")
}

/// The attribute that says which `gapprobe run` started the process.
pub const RUN: &str = "run.id";

/// Frames of a stack stored at most, the innermost ones.
pub const MAX_FRAMES: usize = 64;

/// Where a host thread stood: one function of a call stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct FrameInfo {
    /// What the function is written in.
    pub language: Language,
    /// Its name (Python: qualified where the interpreter has that; native: symbol), a string id.
    pub function: u32,
    /// Python: the file as the interpreter names it; native: the module. A string id.
    pub file: u32,
    /// Line, 1 the first; 0 where there is none.
    pub line: u32,
}

/// What a [`FrameInfo`] is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u32)]
pub enum Language {
    /// Python.
    #[default]
    Python = 0,
    /// Machine code, by module and symbol.
    Native = 1,
    /// Machine code that called CUDA, found by the recorder: a [`CallerInfo`], by symbol or file
    /// and line once those were read.
    Caller = 2,
}

impl Language {
    /// The one with this number.
    pub fn from_u32(number: u32) -> Option<Language> {
        [Language::Python, Language::Native, Language::Caller].into_iter().find(|l| *l as u32 == number)
    }
}

/// An executable or shared object as it was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct ModuleInfo {
    /// Its file, a string id.
    pub path: u32,
    /// Its build id in hex, a string id (0: it has none).
    pub build_id: u32,
    /// What was added to the addresses of its file.
    pub base: u64,
}

/// Where machine code called CUDA. It shares its ids with frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct CallerInfo {
    /// Id of the module.
    pub module: u32,
    /// The call was made in this module, but by a function of it that is not known (a CUDA runtime
    /// linked into it, without symbols).
    pub module_only: bool,
    /// Return address of the call, as an address of the module's file.
    pub offset: u64,
}

/// The innermost module of PyTorch's (`torch.nn.Module`) that a stack is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct InModule {
    /// Its path below the outermost module that was called, as of `named_modules()`: a string id; 0
    /// is that one itself.
    pub path: u32,
    /// Its class, a string id.
    pub class: u32,
}

/// By which machine code a line of Python, or a node of PyTorch's backward pass, comes to what it
/// puts on the GPU: seen once, the same each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct NativeStack {
    /// The Python stack that calls it; 0: none does.
    pub outer: u32,
    /// Mangled name of the type of the node that was evaluated, a string id; 0: none was.
    pub node: u32,
    /// Mangled name of the kernel, a string id; 0: a copy, or a memset.
    pub kernel: u32,
    /// The callers between them, a stack.
    pub native: u32,
}

/// Launches that were captured as nodes of CUDA graphs, as far as they are alike. Their kernels run
/// for as long as the program plays the graph, when the events of the capture may be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct CapturedLaunch {
    /// Stack of the launch; 0: not known.
    pub stack: u32,
    /// Mangled name of the type of the node of PyTorch's that was evaluated, a string id; 0: none
    /// was.
    pub node: u32,
    /// The stack in which its evaluation began; 0: not known, or none.
    pub evaluated: u32,
    /// The stack of the forward pass that made it; 0: not known.
    pub made: u32,
}

/// Whose events a track holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TrackInfo {
    /// A CUDA stream: CUPTI's device, context and stream ids.
    Stream {
        /// Device ordinal in this process.
        device: u32,
        /// CUPTI context id.
        context: u32,
        /// CUPTI stream id (not the CUstream pointer).
        stream: u32,
    },
    /// A host thread.
    Thread {
        /// Kernel thread id in the process's own pid namespace.
        tid: u32,
        /// Its name when first seen, a string id (0: none).
        name: u32,
    },
}

/// A GPU of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceInfo {
    /// Multiprocessors (0: unknown).
    pub multiprocessors: u32,
    /// Compute capability, major.
    pub compute_major: u32,
    /// Compute capability, minor.
    pub compute_minor: u32,
    /// Name, a string id (0: unknown).
    pub name: u32,
    /// Memory, bytes (0: unknown).
    pub memory: u64,
}

/// One definition, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition<'a> {
    /// Tag 1.
    String(&'a [u8]),
    /// Tag 2.
    Kernel(KernelInfo),
    /// Tag 3.
    Track(TrackInfo),
    /// Tag 4; the id is the device ordinal.
    Device(DeviceInfo),
    /// Tag 5: key and value, string ids.
    Attribute(u32, u32),
    /// Tag 6.
    Frame(FrameInfo),
    /// Tag 7: frame ids, innermost first, each four little-endian bytes (a record is not aligned).
    Stack(&'a [u8]),
    /// Tag 8.
    Module(ModuleInfo),
    /// Tag 9.
    Caller(CallerInfo),
    /// Tag 10; the id is that of the stack.
    InModule(InModule),
    /// Tag 11.
    Native(NativeStack),
    /// Tag 12.
    Captured(CapturedLaunch),
}

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
