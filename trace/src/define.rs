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

mod encoding;

pub(crate) use encoding::u32_at;
pub use encoding::MAX_RECORD;

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
