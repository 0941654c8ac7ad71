// SPDX-License-Identifier: Apache-2.0
//! A torch.profiler trace of events made by hand, and the small traces of `cases/`. Times are us.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(unreachable_pub, missing_docs, reason = "a test module")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use formats::Input;
use verdict::Analysis;

/// Where host and GPU stand, and what they did.
#[derive(Default)]
pub struct Trace {
    events: String,
    /// The host's time.
    pub t: u64,
    /// When the GPU will be free.
    pub free: u64,
    pub correlation: u64,
}

impl Trace {
    pub fn new() -> Trace {
        Trace { t: 1_000_000, ..Trace::default() }
    }

    pub fn raw(&mut self, event: &str) {
        let comma = if self.events.is_empty() { "" } else { ",\n" };
        let _ = write!(self.events, "{comma}{event}");
    }

    pub fn event(&mut self, cat: &str, name: &str, tid: u32, (start, length): (u64, u64), args: &str) {
        // stamps that are no whole microseconds: as torch.profiler has written them since 2.4
        self.raw(&format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":{tid},"ts":{start}.125,"dur":{length}.000,"args":{{{args}}}}}"#
        ));
    }

    /// A call of the runtime's that takes this long; the host goes on behind it.
    pub fn call(&mut self, name: &str, length: u64) {
        self.correlation += 1;
        let args = format!(r#""correlation":{}"#, self.correlation);
        self.event("cuda_runtime", name, 1, (self.t, length), &args);
        self.t += length;
    }

    /// A kernel of this name and length, launched now.
    pub fn kernel(&mut self, name: &str, length: u64) {
        self.call("cudaLaunchKernel", 5);
        self.kernel_of(name, length, self.correlation);
        self.t += 5;
    }

    /// A kernel that runs next, under this id.
    pub fn kernel_of(&mut self, name: &str, length: u64, correlation: u64) {
        let start = (self.t + 3).max(self.free + 1);
        let args = format!(r#""device":0,"stream":7,"grid":[264,1,1],"correlation":{correlation}"#);
        self.event("kernel", name, 7, (start, length), &args);
        self.free = start + length;
    }

    /// Waits until the GPU is done.
    pub fn synchronize(&mut self) {
        let until = self.free.max(self.t) + 5;
        self.call("cudaDeviceSynchronize", until - self.t);
    }

    /// Layers of four kernels each.
    pub fn layers(&mut self, count: u32, length: u64) {
        for _ in 0..count {
            for kernel in ["gemm", "bias", "softmax", "norm"] {
                self.kernel(kernel, length);
            }
        }
    }

    /// A range that began at `from` and ends now.
    pub fn range(&mut self, name: &str, from: u64) {
        self.event("user_annotation", name, 1, (from, self.t - from), "");
    }

    pub fn text(&self) -> String {
        format!("{{\"traceEvents\":[\n{}\n]}}", self.events)
    }

    pub fn read(&self) -> (Input, Analysis) {
        let file = File::new(self.text().as_bytes());
        read(&file.0)
    }
}

/// A file of these bytes, removed in the end.
pub struct File(pub PathBuf);

impl File {
    pub fn new(bytes: &[u8]) -> File {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gapprobe-made-{}-{}.json", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("a file");
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

pub fn read(path: &Path) -> (Input, Analysis) {
    let input = formats::read(path, &Default::default()).expect("a trace");
    let a = verdict::analyze(&input.run);
    (input, a)
}

pub fn line(input: &Input, a: &Analysis) -> String {
    verdict::output::line::evidence(&input.run, a).join("; ")
}

/// What the command prints, and its exit code.
pub fn gapprobe(arguments: &[&str], file: &Path) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gapprobe"));
    let (verb, options) = arguments.split_first().expect("a verb");
    let output = command.arg(verb).arg(file).args(options).output().expect("the command");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}
