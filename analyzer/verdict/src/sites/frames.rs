// SPDX-License-Identifier: Apache-2.0
//! What the frames of a Python stack tell of what its thread does, before the sample itself is
//! looked at: whose library it stands in.

use trace::{FrameInfo, Language};

use super::activity::Activity;
use super::origin::Origin;
use crate::run::Run;

/// What a stack's frames tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frames {
    /// A loader.
    Loader(Activity),
    Compile,
    Save,
    Log,
    /// `queue.Queue.get` and its relatives.
    Queue,
    /// The main thread stands in `backward()`: what is done is done by autograd's own thread.
    Backward,
    /// A loop of asynchronous events.
    EventLoop,
    /// asyncio's, of a program that is no server as far as its frames tell: what it awaits may be
    /// its own.
    Tasks,
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
        // tqdm and a logger may also stand around the program's own code: only what the user's
        // frame called counts
        let inner = || frames.iter().take_while(|f| f.2 != Origin::User);
        if inner().any(|f| logs(f.0, f.2)) {
            return Frames::Log;
        }
        let innermost = |is: fn(&str, &str) -> bool| inner().any(|f| is(f.0, last(f.1)));
        match () {
            () if innermost(|file, f| library(file, "queue.py") && f == "get") => Frames::Queue,
            () if innermost(|file, _| file.contains("torch/autograd/")) => Frames::Backward,
            () if inner().any(|f| is_asyncio(f.0)) && !frames.iter().any(|f| serves(f.2)) => Frames::Tasks,
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
pub(super) fn last(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// A file of Python's library.
fn library(file: &str, path: &str) -> bool {
    file.ends_with(path) && Origin::of(file, "") == Origin::Standard
}

fn is_asyncio(file: &str) -> bool {
    file.contains("/asyncio/") && Origin::of(file, "") == Origin::Standard
}

/// Packages that wait for requests in asyncio's loop.
const SERVERS: [&str; 14] = [
    "uvicorn",
    "hypercorn",
    "aiohttp",
    "sanic",
    "tornado",
    "gunicorn",
    "daphne",
    "grpc",
    "starlette",
    "fastapi",
    "quart",
    "websockets",
    "litserve",
    "bentoml",
];

fn serves(origin: Origin) -> bool {
    matches!(origin, Origin::Package(name) if SERVERS.contains(&name))
}

/// Packages whose frames fetch data: in the calling thread, or in threads of their own.
const READERS: [(&str, Activity); 8] = [
    ("datasets", Activity::FetchesHere),
    ("webdataset", Activity::FetchesHere),
    ("streaming", Activity::FetchesHere),
    ("litdata", Activity::FetchesHere),
    ("torchdata", Activity::FetchesHere),
    ("grain", Activity::Fetches),
    ("ffcv", Activity::Fetches),
    ("tensorflow_datasets", Activity::Fetches),
];

fn loader(frames: &[(&str, &str, Origin)]) -> Option<Activity> {
    let torch = |f: &&(&str, &str, Origin)| f.0.ends_with("torch/utils/data/dataloader.py");
    let next = ["__next__", "_next_data", "_try_get_data", "_get_data"];
    if frames.iter().filter(torch).any(|f| next.contains(&last(f.1))) {
        let waits = |f: &(&str, &str, Origin)| ["_try_get_data", "_get_data"].contains(&last(f.1));
        let here = |f: &(&str, &str, Origin)| {
            f.1.contains("_SingleProcess") || f.0.ends_with("torch/utils/data/_utils/fetch.py")
        };
        return Some(match () {
            () if frames.iter().filter(torch).any(waits) => Activity::FetchesFromWorkers,
            () if collates(frames) => Activity::Collates,
            () if frames.iter().any(here) => Activity::FetchesHere,
            () => Activity::Fetches,
        });
    }
    // an epoch begins: workers are started
    if frames.iter().filter(torch).any(|f| f.1.contains("_MultiProcessing") && last(f.1) == "__init__") {
        return Some(Activity::Fetches);
    }
    if frames.iter().any(|f| f.0.contains("tensorflow/python/data/") || f.0.contains("nvidia/dali/")) {
        return Some(Activity::Fetches);
    }
    let reader = |f: &(&str, &str, Origin)| match f.2 {
        Origin::Package(name) => READERS.iter().find(|r| r.0 == name).map(|r| r.1),
        _ => None,
    };
    frames.iter().find_map(reader)
}

/// `fetch` calls the data set for samples, and then `collate_fn` to make a batch of them. Whose
/// function is neither of a data set's nor of an iterator's is that one, whatever it is called; of
/// what an iterable data set is nothing is known but its own names.
pub(super) fn collates(frames: &[(&str, &str, Origin)]) -> bool {
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

/// Not what runs compiled code: `torch/_dynamo/eval_frame.py` stands on the stack of each compiled
/// call.
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
