// SPDX-License-Identifier: Apache-2.0
//! What a thread was doing when it was sampled: by its frames, the system call it is blocked in, whether it had a CPU.
//!
//! Facts come before guesses: a collector that runs, a lock of the interpreter that is waited for and a CPU that is not
//! given are what the sample itself says, whatever the frames; then the frames, then the system call. What none of them
//! tells is [`Doing::Unknown`].

use trace::event::sample::{COLLECTING, RUNNABLE, WAITS_GIL};
use trace::{FrameInfo, Language};

use super::origin::Origin;
use crate::run::{Run, Sample};

/// A thread that waited for a CPU for this part of the time is starved, permille; one that had one for it computes.
const MOST: u16 = 500;

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Doing {
    /// Reads or prepares data below a loader, in this thread.
    FetchesHere,
    /// Puts samples together to a batch, in this thread.
    Collates,
    /// Waits for a loader's workers.
    FetchesFromWorkers,
    /// In a loader of which it is not known who does the work.
    Fetches,
    /// Python's garbage collector runs.
    Collects,
    /// Waits for Python's global lock.
    WaitsForGil,
    /// Wants to run and is given no CPU.
    Starves,
    /// Compiles kernels or traces Python for it.
    Compiles,
    /// Writes a checkpoint.
    Saves,
    /// Logs, or reports to a tracking service.
    Logs,
    /// Blocked writing to a file or terminal.
    Writes,
    /// Blocked reading a file or pipe.
    Reads,
    /// Blocked on a socket.
    Talks,
    /// Waits for another thread or process.
    Waits,
    /// Waits, without any CUDA call, for a copy from the device (an array of JAX is read): found by `gaps/standing.rs`.
    WaitsForDevice,
    /// Sleeps by its own wish.
    Sleeps,
    /// Waits for somebody to ask for something.
    Idles,
    /// Allocates or gives back memory of the host.
    Allocates,
    /// Computes.
    Computes,
    /// Computes in native code that its line of Python called, without Python's lock: found by `gaps/standing.rs`.
    ComputesNatively,
    /// None of these can be told.
    Unknown,
}

impl Doing {
    /// All of them.
    pub const ALL: [Doing; 21] = [
        Doing::FetchesHere,
        Doing::Collates,
        Doing::FetchesFromWorkers,
        Doing::Fetches,
        Doing::Collects,
        Doing::WaitsForGil,
        Doing::Starves,
        Doing::Compiles,
        Doing::Saves,
        Doing::Logs,
        Doing::Writes,
        Doing::Reads,
        Doing::Talks,
        Doing::Waits,
        Doing::WaitsForDevice,
        Doing::Sleeps,
        Doing::Idles,
        Doing::Allocates,
        Doing::Computes,
        Doing::ComputesNatively,
        Doing::Unknown,
    ];

    /// What the launching thread does, in words.
    pub fn words(self) -> &'static str {
        match self {
            Doing::FetchesHere => "reads data itself",
            Doing::Collates => "puts batches together itself",
            Doing::FetchesFromWorkers => "waits for the workers",
            Doing::Fetches => "waits for the loader",
            Doing::Collects => "runs Python's garbage collector",
            Doing::WaitsForGil => "waits for Python's lock (GIL)",
            Doing::Starves => "is given no CPU",
            Doing::Compiles => "compiles",
            Doing::Saves => "writes a checkpoint",
            Doing::Logs => "logs",
            Doing::Writes => "writes to a file or terminal",
            Doing::Reads => "reads a file or pipe",
            Doing::Talks => "talks to the network",
            Doing::Waits => "waits for another thread or process",
            Doing::WaitsForDevice => "waits for a copy from the GPU",
            Doing::Sleeps => "sleeps",
            Doing::Idles => "waits for requests",
            Doing::Allocates => "allocates host memory",
            Doing::Computes => "computes on the CPU",
            Doing::ComputesNatively => "computes on the CPU in native code",
            Doing::Unknown => "is elsewhere",
        }
    }

    /// Fetches data, by itself or by others.
    pub fn is_fetching(self) -> bool {
        self.is_fetching_here() || matches!(self, Doing::FetchesFromWorkers | Doing::Fetches)
    }

    /// Fetches data by itself.
    pub fn is_fetching_here(self) -> bool {
        matches!(self, Doing::FetchesHere | Doing::Collates)
    }

    /// It ends when another thread, another process or the clock says so.
    pub fn waits_for_others(self) -> bool {
        use Doing::{Fetches, FetchesFromWorkers, Idles, Sleeps, Talks, Waits};
        matches!(self, Fetches | FetchesFromWorkers | Idles | Sleeps | Talks | Waits)
    }

    /// Never part of dispatching an operation.
    pub fn is_no_dispatch(self) -> bool {
        !matches!(
            self,
            Doing::Unknown
                | Doing::Computes
                | Doing::ComputesNatively
                | Doing::Waits
                | Doing::Starves
                | Doing::WaitsForGil
                | Doing::Allocates
        )
    }
}

/// What a stack's frames tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// A loader.
    Loader(Doing),
    Compile,
    Save,
    Log,
    /// `queue.Queue.get` and its relatives.
    Queue,
    /// The main thread stands in `backward()`: what is done is done by autograd's own thread.
    Backward,
    /// A loop of asynchronous events.
    EventLoop,
    /// Another process' pipe.
    Pipe,
    /// An array of JAX is read.
    Array,
    /// The innermost frame is the user's.
    User,
    Other,
}

impl Frames {
    /// Of a stack.
    pub(crate) fn of(run: &Run, stack: u32) -> Frames {
        let frames: Vec<(&str, &str, Origin)> = run
            .definitions
            .stack(stack)
            .filter(|f| f.language == Language::Python)
            .map(|f: &FrameInfo| {
                let text = |id| run.definitions.string(id).unwrap_or("");
                (text(f.file), text(f.function), Origin::of(text(f.file), text(f.function)))
            })
            .collect();
        if let Some(found) = loader(&frames) {
            return Frames::Loader(found);
        }
        let any = |is: fn(&str, &str) -> bool| frames.iter().any(|f| is(f.0, last(f.1)));
        if any(compiles) {
            return Frames::Compile;
        }
        if any(saves) {
            return Frames::Save;
        }
        // tqdm and a logger may also stand around the program's own code: only what the user's frame called counts
        let inner = || frames.iter().take_while(|f| f.2 != Origin::User);
        if inner().any(|f| logs(f.0, f.2)) {
            return Frames::Log;
        }
        let innermost = |is: fn(&str, &str) -> bool| inner().any(|f| is(f.0, last(f.1)));
        match () {
            () if innermost(|file, f| library(file, "queue.py") && f == "get") => Frames::Queue,
            () if innermost(|file, _| file.contains("torch/autograd/")) => Frames::Backward,
            () if innermost(|file, _| library(file, "selectors.py") || library(file, "socketserver.py")) => {
                Frames::EventLoop
            }
            () if innermost(|file, _| library(file, "multiprocessing/connection.py")) => Frames::Pipe,
            () if innermost(|file, _| {
                file.ends_with("jax/_src/array.py") || file.ends_with("jax/_src/api.py")
            }) =>
            {
                Frames::Array
            }
            () if frames.first().is_some_and(|f| f.2 == Origin::User) => Frames::User,
            () => Frames::Other,
        }
    }
}

/// The last part of a qualified name.
fn last(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// A file of Python's library.
fn library(file: &str, path: &str) -> bool {
    file.ends_with(path) && Origin::of(file, "") == Origin::Standard
}

/// Packages whose frames fetch data: in the calling thread, or in threads of their own.
const READERS: [(&str, Doing); 8] = [
    ("datasets", Doing::FetchesHere),
    ("webdataset", Doing::FetchesHere),
    ("streaming", Doing::FetchesHere),
    ("litdata", Doing::FetchesHere),
    ("torchdata", Doing::FetchesHere),
    ("grain", Doing::Fetches),
    ("ffcv", Doing::Fetches),
    ("tensorflow_datasets", Doing::Fetches),
];

fn loader(frames: &[(&str, &str, Origin)]) -> Option<Doing> {
    let torch = |f: &&(&str, &str, Origin)| f.0.ends_with("torch/utils/data/dataloader.py");
    let next = ["__next__", "_next_data", "_try_get_data", "_get_data"];
    if frames.iter().filter(torch).any(|f| next.contains(&last(f.1))) {
        let waits = |f: &(&str, &str, Origin)| ["_try_get_data", "_get_data"].contains(&last(f.1));
        let here = |f: &(&str, &str, Origin)| {
            f.1.contains("_SingleProcess") || f.0.ends_with("torch/utils/data/_utils/fetch.py")
        };
        return Some(match () {
            () if frames.iter().filter(torch).any(waits) => Doing::FetchesFromWorkers,
            () if collates(frames) => Doing::Collates,
            () if frames.iter().any(here) => Doing::FetchesHere,
            () => Doing::Fetches,
        });
    }
    // an epoch begins: workers are started
    if frames.iter().filter(torch).any(|f| f.1.contains("_MultiProcessing") && last(f.1) == "__init__") {
        return Some(Doing::Fetches);
    }
    if frames.iter().any(|f| f.0.contains("tensorflow/python/data/") || f.0.contains("nvidia/dali/")) {
        return Some(Doing::Fetches);
    }
    let reader = |f: &(&str, &str, Origin)| match f.2 {
        Origin::Package(name) => READERS.iter().find(|r| r.0 == name).map(|r| r.1),
        _ => None,
    };
    frames.iter().find_map(reader)
}

/// `fetch` calls the data set for samples, and then `collate_fn` to make a batch of them. Whose function is neither of a data
/// set's nor of an iterator's is that one, whatever it is called; of what an iterable data set is nothing is known but its
/// own names.
fn collates(frames: &[(&str, &str, Origin)]) -> bool {
    let Some(fetch) = frames.iter().position(|f| f.0.ends_with("torch/utils/data/_utils/fetch.py")) else {
        return false;
    };
    let Some(called) = fetch.checked_sub(1).and_then(|inner| frames.get(inner)) else { return false };
    let by_name = |f: &(&str, &str, Origin)| {
        f.0.ends_with("torch/utils/data/_utils/collate.py") || f.1.to_ascii_lowercase().contains("collat")
    };
    if by_name(called) {
        return true;
    }
    let of_data_set = ["__getitem__", "__getitems__", "<listcomp>", "__iter__", "__next__"];
    let maps = frames.get(fetch).is_some_and(|f| f.1.contains("_MapDatasetFetcher"));
    // further in, too: a data set's method may be wrapped by a decorator's function
    let inner = frames.get(..fetch).unwrap_or(&[]);
    maps && !inner.iter().any(|f| of_data_set.contains(&last(f.1)))
}

/// Not what runs compiled code: `torch/_dynamo/eval_frame.py` stands on the stack of each compiled call.
fn compiles(file: &str, function: &str) -> bool {
    let always = [
        "torch/_dynamo/convert_frame.py",
        "torch/_dynamo/symbolic_convert.py",
        "torch/_inductor/graph.py",
        "torch/_inductor/scheduler.py",
        "torch/_inductor/async_compile.py",
        "triton/compiler/compiler.py",
        "jax/_src/compiler.py",
    ];
    always.iter().any(|f| file.ends_with(f))
        || file.contains("torch/_inductor/codegen/")
        || (file.ends_with("torch/_inductor/compile_fx.py") && function.contains("compile"))
}

fn saves(file: &str, function: &str) -> bool {
    let plain = function.trim_start_matches('_');
    (file.ends_with("torch/serialization.py")
        && (plain.starts_with("save") || plain.starts_with("legacy_save")))
        || (file.contains("torch/distributed/checkpoint/") && function.contains("save"))
        || (file.contains("site-packages/safetensors/") && function.contains("save"))
}

fn logs(file: &str, origin: Origin) -> bool {
    let packages =
        ["wandb", "mlflow", "tensorboard", "tensorboardX", "loguru", "comet_ml", "neptune", "tqdm", "rich"];
    file.contains("torch/utils/tensorboard/")
        || library(file, "logging/__init__.py")
        || library(file, "logging/handlers.py")
        || matches!(origin, Origin::Package(p) if packages.contains(&p))
}

/// Where the thread of a DataLoader that pins batches stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pinning {
    /// It pins a batch, or takes one over from a worker, tensor by tensor.
    Works,
    /// Between two batches.
    Waits,
}

impl Pinning {
    /// It works, and does not wait for the workers to have made a batch.
    pub(crate) fn is_busy(self, sample: &Sample) -> bool {
        self == Pinning::Works || sample.on_cpu >= MOST
    }
}

/// `None`: no such thread's stack.
pub(crate) fn pins(run: &Run, stack: u32) -> Option<Pinning> {
    let text = |id| run.definitions.string(id).unwrap_or("");
    let frames = || run.definitions.stack(stack).map(|f| (text(f.file), last(text(f.function))));
    let own = |f: &(&str, &str)| f.0.ends_with("torch/utils/data/_utils/pin_memory.py");
    if !frames().any(|f| own(&f) && f.1 == "_pin_memory_loop") {
        return None;
    }
    // a tensor's storage comes by a message of its own, for which it may have to wait: the batch is there
    let takes_over = frames().any(|f| f.0.ends_with("torch/multiprocessing/reductions.py"));
    let pins = frames().find(own).is_some_and(|f| f.1 == "pin_memory");
    Some(if pins || takes_over { Pinning::Works } else { Pinning::Waits })
}

/// Where a process stands that works for a DataLoader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Worker {
    /// [`Doing::Collates`] or [`Doing::FetchesHere`].
    pub(crate) doing: Doing,
    /// So many frames, the innermost ones, are its own: what is outside of them the launching process stood in when it was forked.
    pub(crate) own: usize,
}

/// `None`: no such process's stack, or one that waits for what it is to do.
pub(crate) fn works(run: &Run, stack: u32) -> Option<Worker> {
    let text = |id| run.definitions.string(id).unwrap_or("");
    let frames = run.definitions.stack(stack);
    let frames: Vec<(&str, &str, Origin)> = frames
        .map(|f| (text(f.file), text(f.function), Origin::of(text(f.file), text(f.function))))
        .collect();
    let own = frames.iter().position(|f| f.0.ends_with("torch/utils/data/_utils/worker.py"))?;
    let frames = frames.get(..own)?;
    let fetches = frames.iter().any(|f| f.0.ends_with("torch/utils/data/_utils/fetch.py"));
    let doing = if collates(frames) { Doing::Collates } else { Doing::FetchesHere };
    fetches.then_some(Worker { doing, own })
}

/// System calls of x86-64 Linux, the only one there are recordings of.
mod call {
    pub(super) const READ: [u32; 5] = [0, 17, 19, 295, 327];
    pub(super) const WRITE: [u32; 12] = [1, 18, 20, 26, 40, 74, 75, 77, 277, 296, 326, 328];
    pub(super) const SOCKET: [u32; 8] = [42, 44, 45, 46, 47, 299, 307, 49];
    pub(super) const POLL: [u32; 2] = [7, 271];
    pub(super) const SELECT: [u32; 2] = [23, 270];
    pub(super) const SLEEP: [u32; 2] = [35, 230];
    pub(super) const EVENTS: [u32; 5] = [232, 281, 441, 43, 288];
    pub(super) const FUTEX: [u32; 2] = [202, 449];
    pub(super) const CHILD: [u32; 2] = [61, 247];
    pub(super) const MEMORY: [u32; 5] = [9, 10, 11, 12, 28];
}

/// Blocked on a futex, without any frame: a thread of a pool, autograd's for one.
pub(crate) fn waits_for_its_turn(sample: &Sample) -> bool {
    sample.stack == 0 && sample.on_cpu < MOST && sample.syscall.is_some_and(|n| call::FUTEX.contains(&n))
}

/// Off the CPU, and not by its own wish or another thread's: in a system call that reads, or in none (a page is fetched). Not
/// who could run: the kernel counts a wait for a CPU when it ends, so that one that goes on is in no figure yet.
pub(crate) fn blocked_reading(sample: &Sample) -> bool {
    let reads = sample.syscall.is_none_or(|n| call::READ.contains(&n) || call::SOCKET.contains(&n));
    reads && sample.bits & RUNNABLE == 0 && sample.on_cpu < MOST && sample.run_queue < MOST
}

/// Blocked on a futex that is not Python's lock, whatever was done since the sample before.
pub(crate) fn stands_on_futex(sample: &Sample) -> bool {
    sample.bits & (WAITS_GIL | RUNNABLE) == 0 && sample.syscall.is_some_and(|n| call::FUTEX.contains(&n))
}

/// Blocked on a futex by native code that the program's own line, or the reading of an array, called: no lock, queue or
/// event of Python's, whose frames would be there.
pub(crate) fn blocked_natively(sample: &Sample, frames: Frames) -> bool {
    let natively = matches!(frames, Frames::User | Frames::Array);
    natively
        && sample.bits == 0
        && sample.syscall.is_some_and(|n| call::FUTEX.contains(&n))
        && sample.on_cpu < MOST
}

/// From this release on `time.sleep` waits by a call of the clock's: who selects waits for files.
const SLEEPS_BY_CLOCK: (u32, u32) = (3, 11);

/// May a thread that selects, from the program's own line, be in `time.sleep`?
pub(crate) fn sleeps_by_select(run: &Run) -> bool {
    let version = run.definitions.attributes().find(|(key, _)| *key == "python.version").map(|(_, v)| v);
    let mut parts = version.unwrap_or_default().split('.').map(|n| n.parse().unwrap_or(0));
    version.is_none() || (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < SLEEPS_BY_CLOCK
}

/// What the thread did. `selects_to_sleep`: [`sleeps_by_select`].
pub(crate) fn doing(sample: &Sample, frames: Frames, selects_to_sleep: bool) -> Doing {
    if sample.bits & COLLECTING != 0 {
        return Doing::Collects;
    }
    if sample.bits & WAITS_GIL != 0 {
        return Doing::WaitsForGil;
    }
    if sample.run_queue >= MOST {
        return Doing::Starves;
    }
    match frames {
        Frames::Loader(doing) => return doing,
        Frames::Compile => return Doing::Compiles,
        Frames::Save => return Doing::Saves,
        Frames::Log => return Doing::Logs,
        Frames::Backward => return Doing::Unknown,
        _ => {}
    }
    let Some(n) = sample.syscall else {
        return if sample.on_cpu >= MOST { Doing::Computes } else { Doing::Unknown };
    };
    let is = |list: &[u32]| list.contains(&n);
    match () {
        () if is(&call::WRITE) => Doing::Writes,
        () if is(&call::READ) && frames == Frames::Pipe => Doing::Waits,
        () if is(&call::READ) => Doing::Reads,
        () if is(&call::SOCKET) => Doing::Talks,
        () if is(&call::SLEEP) => Doing::Sleeps,
        // time.sleep has no frame of its own; a library that selects has
        () if is(&call::SELECT) && frames == Frames::User && selects_to_sleep => Doing::Sleeps,
        () if is(&call::EVENTS) => Doing::Idles,
        () if (is(&call::SELECT) || is(&call::POLL)) && frames == Frames::EventLoop => Doing::Idles,
        () if is(&call::POLL) && frames == Frames::Pipe => Doing::Waits,
        () if is(&call::FUTEX) || is(&call::CHILD) => Doing::Waits,
        () if is(&call::MEMORY) => Doing::Allocates,
        () => Doing::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use trace::build::Builder;

    use super::*;
    use crate::run::Span;

    const TORCH: &str = "/venv/lib/python3.11/site-packages/torch";

    fn said(frames: &[(&str, &str, u32)], change: impl Fn(&mut Sample)) -> Doing {
        let paths: Vec<String> = frames
            .iter()
            .map(|f| {
                f.1.replace('@', "/venv/lib/python3.11/site-packages").replace('%', "/usr/lib/python3.11")
            })
            .collect();
        let frames: Vec<_> = frames.iter().zip(&paths).map(|(f, p)| (f.0, p.as_str(), f.2)).collect();
        let mut b = Builder::new();
        let stack = b.stack(&frames);
        let run = crate::load(b.finish().as_slice()).unwrap();
        let mut sample =
            Sample { span: Span::new(0, 1), stack, syscall: None, on_cpu: 1000, run_queue: 0, bits: 0 };
        change(&mut sample);
        doing(&sample, Frames::of(&run, stack), true)
    }

    fn blocked(n: u32) -> impl Fn(&mut Sample) {
        move |s| (s.syscall, s.on_cpu) = (Some(n), 0)
    }

    const LOOP: (&str, &str, u32) = ("<module>", "/job/train.py", 60);

    #[test]
    fn loaders() {
        let next = ("_BaseDataLoaderIter.__next__", "@/torch/utils/data/dataloader.py", 733);
        let single = ("_SingleProcessDataLoaderIter._next_data", "@/torch/utils/data/dataloader.py", 789);
        let get = ("_MultiProcessingDataLoaderIter._try_get_data", "@/torch/utils/data/dataloader.py", 1251);
        let item = ("ImageSet.__getitem__", "/job/data.py", 41);
        assert_eq!(said(&[item, single, next, LOOP], |_| ()), Doing::FetchesHere);
        assert_eq!(said(&[item, single, next, LOOP], blocked(0)), Doing::FetchesHere);
        assert_eq!(said(&[get, next, LOOP], blocked(7)), Doing::FetchesFromWorkers);
        assert_eq!(said(&[next, LOOP], |_| ()), Doing::Fetches);
        // without qualified names, up to Python 3.10
        let plain = ("_next_data", "@/torch/utils/data/dataloader.py", 600);
        let fetch = ("fetch", "@/torch/utils/data/_utils/fetch.py", 49);
        assert_eq!(said(&[item, fetch, plain, LOOP], |_| ()), Doing::FetchesHere);
        assert_eq!(
            said(&[("__getitem__", "@/datasets/arrow_dataset.py", 2800), LOOP], |_| ()),
            Doing::FetchesHere
        );
        assert_eq!(
            said(&[("__next__", "@/grain/_src/python/loader.py", 9), LOOP], blocked(202)),
            Doing::Fetches
        );
        // a user's own file of that name, and the loader being made
        assert_eq!(said(&[("__next__", "/job/data/dataloader.py", 9), LOOP], |_| ()), Doing::Computes);
        assert_eq!(
            said(&[("__init__", "@/torch/utils/data/dataloader.py", 9), LOOP], |_| ()),
            Doing::Computes
        );
    }

    #[test]
    fn what_the_sample_says_comes_before_its_frames() {
        let log = ("info", "%/logging/__init__.py", 1500);
        assert_eq!(said(&[log, LOOP], |s| s.bits = COLLECTING), Doing::Collects);
        assert_eq!(said(&[log, LOOP], |s| s.bits = WAITS_GIL), Doing::WaitsForGil);
        assert_eq!(said(&[log, LOOP], |s| (s.on_cpu, s.run_queue) = (100, 900)), Doing::Starves);
        assert_eq!(said(&[log, LOOP], |_| ()), Doing::Logs);
    }

    #[test]
    fn compiling_and_running_what_was_compiled() {
        let run = ("_fn", "@/torch/_dynamo/eval_frame.py", 700);
        assert_eq!(said(&[run, LOOP], |_| ()), Doing::Computes);
        assert_eq!(
            said(&[("run", "@/torch/_inductor/output_code.py", 5), run, LOOP], |_| ()),
            Doing::Computes
        );
        assert_eq!(
            said(&[("_compile", "@/torch/_dynamo/convert_frame.py", 9), run, LOOP], |_| ()),
            Doing::Compiles
        );
        let make = ("compile_fx_inner", "@/torch/_inductor/compile_fx.py", 9);
        assert_eq!(said(&[make, LOOP], |_| ()), Doing::Compiles);
    }

    #[test]
    fn a_progress_bar_around_the_loop_is_no_logging() {
        let bar = ("tqdm.__iter__", "@/tqdm/std.py", 1181);
        assert_eq!(said(&[("batches", "/job/data.py", 7), bar, LOOP], |_| ()), Doing::Computes);
        assert_eq!(said(&[("tqdm.refresh", "@/tqdm/std.py", 1300), bar, LOOP], |_| ()), Doing::Logs);
    }

    #[test]
    fn who_selects_sleeps_up_to_python_3_10() {
        let sleeps = |version: Option<&str>| {
            let mut b = Builder::new();
            version.iter().for_each(|v| b.attribute("python.version", v));
            sleeps_by_select(&crate::load(b.finish().as_slice()).unwrap())
        };
        assert_eq!(
            ["3.8.10", "3.10.4", "3.11.2", "3.14.0rc1"].map(|v| sleeps(Some(v))),
            [true, true, false, false]
        );
        assert!(sleeps(None), "not known");
        let sample =
            Sample { span: Span::new(0, 1), stack: 1, syscall: Some(270), on_cpu: 0, run_queue: 0, bits: 0 };
        assert_eq!(doing(&sample, Frames::User, false), Doing::Unknown);
    }

    #[test]
    fn system_calls() {
        for (n, expected) in [
            (1, Doing::Writes),
            (74, Doing::Writes),
            (0, Doing::Reads),
            (45, Doing::Talks),
            (230, Doing::Sleeps),
            (270, Doing::Sleeps),
            (232, Doing::Idles),
            (288, Doing::Idles),
            (202, Doing::Waits),
            (9, Doing::Allocates),
            (16, Doing::Unknown),
            (7, Doing::Unknown),
        ] {
            assert_eq!(said(&[LOOP], blocked(n)), expected, "{n}");
        }
        let selector = ("SelectSelector.select", "%/selectors.py", 300);
        assert_eq!(said(&[selector, LOOP], blocked(270)), Doing::Idles);
        let engine = ("_engine_run_backward", "@/torch/autograd/graph.py", 823);
        assert_eq!(said(&[engine, LOOP], blocked(202)), Doing::Unknown, "autograd's thread works meanwhile");
        assert_eq!(said(&[LOOP], |s| s.on_cpu = 300), Doing::Unknown);
        let save = ("_save", &*format!("{TORCH}/serialization.py"), 900);
        assert_eq!(said(&[save, LOOP], blocked(1)), Doing::Saves);
        let load = ("load", &*format!("{TORCH}/serialization.py"), 1400);
        assert_eq!(said(&[load, LOOP], blocked(0)), Doing::Reads);
    }
}
