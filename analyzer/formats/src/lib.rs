// SPDX-License-Identifier: Apache-2.0
//! Traces of every kind into a [`Run`]. What a file is, its first bytes tell, never its name.
//!
//! `kineto/` torch.profiler's Chrome JSON, XLA's, and our own (which says who recorded it); `nsys/`
//! Nsight Systems' SQLite exports; `assemble.rs`, `settle.rs` and `processes.rs` what foreign
//! readers share; `vendors.rs` the calls of other vendors' runtimes; `python.rs` stacks of Python
//! functions; `mistaken.rs` files that are no traces. Our own recordings are read by
//! `verdict::load`. Not here: opinions.

mod assemble;
mod gzip;
pub mod kineto;
#[expect(unsafe_code, reason = "a mapped file")]
mod map;
mod mistaken;
mod nsys;
mod processes;
mod python;
mod settle;
mod sniff;
mod uncalled;
pub mod vendors;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub use kineto::Refused;
use verdict::run::{Recorder, Run, Span};
use verdict::text::plural;
use verdict::text::plural::counted;

/// How far reading has come: bytes read of bytes there, for whoever draws a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    of: AtomicU64,
}

impl Progress {
    /// (bytes read, bytes there; 0: not known).
    pub fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }

    fn at(&self, bytes: u64) {
        self.done.fetch_max(bytes, Ordering::Relaxed);
    }

    fn of(&self, bytes: u64) {
        self.of.store(bytes, Ordering::Relaxed);
    }
}

/// What a file turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A recording of `libgapprobe.so`.
    Recording,
    /// torch.profiler's Chrome JSON.
    Kineto,
    /// The Chrome JSON of XLA's profiler (JAX, TensorFlow).
    Xla,
    /// Nsight Systems' export in SQLite, or a report that it was made from.
    Nsys,
    /// Chrome JSON that gapprobe wrote, of what another recorder may have seen.
    Own(Recorder),
}

impl Format {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Recording => "gapprobe recording",
            Format::Kineto => "torch.profiler trace",
            Format::Xla => "XLA profile",
            Format::Nsys => "nsys export",
            Format::Own(Recorder::Gapprobe) => "gapprobe trace",
            Format::Own(Recorder::Torch) => "gapprobe trace of a torch.profiler trace",
            Format::Own(Recorder::Nsys) => "gapprobe trace of an nsys export",
            Format::Own(Recorder::Xla) => "gapprobe trace of an XLA profile",
        }
    }

    /// Who recorded what is in it: times of one recorder can be compared, whatever they are written
    /// in.
    pub const fn recorder(self) -> Recorder {
        match self {
            Format::Recording => Recorder::Gapprobe,
            Format::Kineto => Recorder::Torch,
            Format::Xla => Recorder::Xla,
            Format::Nsys => Recorder::Nsys,
            Format::Own(recorder) => recorder,
        }
    }
}

/// A trace, read.
#[derive(Debug)]
pub struct Input {
    /// What it was.
    pub format: Format,
    /// The facts.
    pub run: Run,
    /// Of a trace that gapprobe wrote the run's time of its stamp 0, ns.
    pub zero: u64,
    /// What could not be used.
    pub refused: Refused,
    /// Events in the file.
    pub events: u64,
    /// Bytes of text or recording (of a compressed file: what it holds).
    pub bytes: u64,
    /// Remarks for the reader of the report, one sentence each.
    pub notes: Vec<String>,
    /// Calls into the operating system, in the order of the file (nsys with `--trace=osrt`).
    pub os_calls: Vec<OsCall>,
    /// What torch.profiler tells of operators beyond their time.
    pub operators: Operators,
}

/// What torch.profiler tells of operators beyond their time. No verdict rests on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Operators {
    /// Of `record_shapes=True`, in the order of the file.
    pub inputs: Vec<Inputs>,
    /// Of `profile_memory=True`, in the order of time; none of several processes.
    pub memory: Vec<MemoryChange>,
    /// When the profiler itself was at work: on which thread, the trace does not say.
    pub overhead: Vec<Span>,
    /// Kernel thread id of the process's first thread, which mostly stops the profiler; `None`: not
    /// seen, or of several processes.
    pub main_thread: Option<u32>,
}

/// An operator's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inputs {
    /// Kernel thread id.
    pub tid: u32,
    /// The operator's range.
    pub span: Span,
    /// Its name, a string id of the run's definitions.
    pub name: u32,
    /// Their shapes as the trace has them, `[[32, 64], []]`, a string id.
    pub shapes: u32,
    /// Their types, `["float", "Scalar"]`, a string id.
    pub types: u32,
    /// Those that are no tensors, `["", "[1, 1]"]`, a string id.
    pub values: u32,
}

/// Memory that PyTorch's allocators handed out or took back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryChange {
    /// When, in the run's time, ns.
    pub at: u64,
    /// Bytes; below zero: freed.
    pub bytes: i64,
    /// A GPU's memory, else the host's.
    pub on_gpu: bool,
}

/// A call into the operating system's libraries: `poll`, `pthread_cond_wait`, `ioctl` ...
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OsCall {
    /// Begin and end, in the run's time. Many begin long before the run's first event.
    pub span: Span,
    /// Name, a string id of the run's definitions (0: unknown).
    pub name: u32,
    /// Kernel thread id; the thread need not be among the run's.
    pub tid: u32,
}

/// Why a file cannot be read, and what to do about it.
#[derive(Debug)]
pub struct ReadError {
    /// One sentence, without the file's name.
    pub what: String,
    /// One line of advice.
    pub hint: String,
    /// The file, once known.
    pub path: PathBuf,
    /// The content is of no known kind.
    unknown: bool,
}

impl ReadError {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> ReadError {
        ReadError { what: what.into(), hint: hint.into(), path: PathBuf::new(), unknown: false }
    }

    fn json(at: usize, what: &str) -> ReadError {
        let error = ReadError::new(
            format!("{what} (byte {at})"),
            "gapprobe reads its own recordings and traces, torch.profiler's and XLA's Chrome JSON, and SQLite exports of nsys, plain or .gz",
        );
        ReadError { unknown: true, ..error }
    }

    fn no_events() -> ReadError {
        ReadError::new(
            "a JSON file without a list of traceEvents",
            "is it a trace? torch.profiler writes one with prof.export_chrome_trace(\"trace.json.gz\")",
        )
    }

    fn nothing_of_the_gpu(events: u64, lost: u64) -> ReadError {
        let lost = if lost > 0 { format!(", {lost} of which could not be read") } else { String::new() };
        ReadError::new(
            format!("no GPU operation among its {}{lost}", counted(events, "event")),
            "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], while the GPU works; of other tools' Chrome JSON only complete events (\"ph\": \"X\") of category kernel, gpu_memcpy and gpu_memset are read",
        )
    }

    /// Of JAX or TensorFlow.
    fn xla_without_gpu(events: u64, tpu: bool) -> ReadError {
        let events = counted(events, "event");
        match tpu {
            true => ReadError::new(
                format!("an XLA profile of a TPU ({events}); gapprobe reads those of GPUs"),
                "XProf (pip install xprof) shows it",
            ),
            false => ReadError::new(
                format!("an XLA profile without any GPU operation ({events})"),
                "profile while a GPU works: jax.profiler.start_trace(DIR) around some steps that have been compiled before",
            ),
        }
    }

    /// torch.profiler writes the host's events first.
    fn cut_before_the_gpu(events: u64) -> ReadError {
        ReadError::new(
            format!(
                "the file is truncated, before any GPU operation ({} {} read)",
                counted(events, "event"),
                plural::of(events, "was", "were")
            ),
            "copy it once more, whole; if it is so where it was written: did the program end, or the disk fill, while it was written?",
        )
    }

    fn internal() -> ReadError {
        ReadError::new("a reading thread ended early", "this is a fault in gapprobe: please report it")
    }

    fn io(error: &io::Error) -> ReadError {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "is the path right?",
            io::ErrorKind::PermissionDenied => "who may read it? (ls -l)",
            _ => "",
        };
        ReadError::new(error.to_string(), hint)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for ReadError {}

/// Reads a file of any known format.
pub fn read(path: &Path, progress: &Progress) -> Result<Input, ReadError> {
    sniff::read(path, progress).map_err(|e| {
        // the name decides nothing; where the content is of no known kind it tells what was meant
        let report = path.extension().is_some_and(|e| e == "nsys-rep" || e == "qdrep");
        let hint = match report && e.unknown {
            true => "export it where it was recorded: nsys export --type sqlite REPORT, and give that file"
                .to_owned(),
            false => e.hint,
        };
        ReadError { path: path.to_owned(), hint, ..e }
    })
}
