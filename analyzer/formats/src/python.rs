// SPDX-License-Identifier: Apache-2.0
//! Python functions of another tool's trace as call stacks: those open on a thread when it called
//! the runtime are where the call was made, as in our own recordings.
//!
//! torch.profiler (`with_stack=True`): `train.py(42): log_loss`, `<built-in method item of Tensor
//! object at 0x7f00>`. XLA's Python tracer: `$train.py:42 log_loss`, `$builtins isinstance`. The
//! line is where the function begins. torch cuts off what `sys.path` has in front of a file, XLA
//! all folders: a file of a known package or of Python's library gets a folder back that says so,
//! as whose line it is goes by the path (`sites/origin.rs`).

use std::borrow::Cow;
use std::collections::HashMap;

use trace::define::{Definition, MAX_FRAMES};
use trace::{FrameInfo, Language};

use verdict::run::{RangeKind, Run, Thread};

/// Ids of texts that only frames have: beyond those of the events' texts.
const FIRST_TEXT: u32 = 1 << 29;
/// Id of the first frame and stack.
pub(super) const FIRST: u32 = 1;
/// The same beside the ones of a trace of ours: stacks from 1 on, frames from 2^30 on.
pub(super) const FIRST_OF_OWN: u32 = 1 << 28;
/// Stacks further apart than this are not told apart: calls beyond have none.
const MOST_STACKS: usize = 1 << 22;

/// Packages by the folder that they import as; a project of the user's is rarely called so.
const PACKAGES: &str = " torch torchvision torchaudio torchtext torchmetrics torchrec torchao torchtitan \
 functorch transformers accelerate datasets diffusers peft trl tokenizers safetensors huggingface_hub \
 evaluate timm einops lightning lightning_fabric lightning_utilities pytorch_lightning fabric deepspeed \
 apex xformers flash_attn triton bitsandbytes fairscale composer streaming fastai fastcore ignite monai \
 torch_geometric torch_scatter torch_sparse dgl mmcv mmengine transformer_engine vllm sglang ray hydra \
 omegaconf wandb tensorboard tensorboardX mlflow numpy scipy pandas sklearn PIL cv2 matplotlib tqdm \
 albumentations webdataset jax jaxlib flax optax orbax haiku equinox tensorflow keras tf_keras \
 tensorflow_datasets tensorflow_probability IPython ipykernel traitlets tornado zmq joblib cloudpickle \
 click typer fire absl tyro jsonargparse pytest _pytest pluggy debugpy coverage line_profiler uvicorn \
 gunicorn fastapi starlette pydantic yaml requests urllib3 aiohttp fsspec h5py numba cupy sympy networkx \
 six attr psutil regex sentencepiece nltk spacy rich setuptools pkg_resources torch_npu \
 intel_extension_for_pytorch habana_frameworks aiter nvidia dali flashinfer flash_attn_interface \
 liger_kernel cutlass xfuser lmcache xgrammar compressed_tensors ";

/// Modules of Python's library that stand in stacks, less names that people give to their own
/// files.
const LIBRARY: &str = " _collections_abc _weakrefset abc argparse ast asyncio base64 bisect codecs \
 collections concurrent configparser contextlib contextvars copy copyreg ctypes dataclasses datetime \
 decimal difflib dis email encodings enum fnmatch fractions functools gc genericpath getpass glob gzip \
 hashlib heapq hmac html http importlib inspect io ipaddress itertools json keyword linecache locale \
 logging lzma mimetypes multiprocessing ntpath numbers opcode os pathlib pdb pickle pickletools pkgutil \
 posixpath pprint random re reprlib runpy sched selectors shlex shutil signal site socket socketserver \
 sqlite3 sre_compile sre_parse ssl stat string struct subprocess sysconfig tarfile tempfile textwrap \
 threading tokenize traceback tracemalloc typing unittest urllib uuid warnings weakref xml zipfile \
 zipimport zoneinfo queue ";

/// Files of JAX, Flax and TensorFlow by their name alone, as XLA's tracer has them.
const OF_XLA: &str =
    " ad ad_util api api_util array array_methods basearray batching bfc_allocator cache_key \
 compilation_cache compiler config core custom_derivatives custom_vjp debugging deprecations dispatch \
 dtypes eager_pmap ffi indexing lax lax_numpy linear_util lru_cache mlir monitoring \
 named_sharding nest numpy_ops op_shardings partial_eval pjit prng profiler pxla random_internal \
 reductions shard_alike sharding sharding_impls slicing source_info_util stages \
 traceback_util tree_util ufunc_api ufuncs util values weakref_lru_cache \
 xla xla_bridge xla_client xla_metadata def_function polymorphic_function execute \
 tensor_conversion script_ops tracing_compiler atomic_function ";

/// How a trace writes its Python functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// torch.profiler.
    Torch,
    /// XLA's tracer.
    Xla,
}

/// A frame in words.
#[derive(PartialEq, Eq, Debug)]
struct Frame<'a> {
    function: Cow<'a, str>,
    /// "": a function of C.
    file: Cow<'a, str>,
    line: u32,
}

/// A function as the trace names it; `None` where it is none (`nn.Module: Linear_0`).
fn frame(name: &str, written: Written) -> Option<Frame<'_>> {
    match written {
        Written::Torch => {
            if let Some(built_in) = name.strip_prefix('<').and_then(built_in) {
                return Some(Frame { function: built_in, file: "".into(), line: 0 });
            }
            let (file, rest) = name.rsplit_once("): ").and_then(|(begin, function)| {
                let (file, line) = begin.rsplit_once('(')?;
                Some((file, (line.parse::<u32>().ok()?, function)))
            })?;
            // (where a file begins tells nothing of where in it the program is)
            let line = if rest.1 == "<module>" && rest.0 == 1 { 0 } else { rest.0 };
            Some(Frame { function: rest.1.into(), file: placed(file), line })
        }
        Written::Xla => {
            let (place, function) = name.strip_prefix('$')?.split_once(' ')?;
            let Some((file, line)) = place.rsplit_once(':') else {
                let of = if place == "<unknown>" { "" } else { place };
                let function = match of {
                    "" | "builtins" => function.into(),
                    module => format!("{module}.{function}").into(),
                };
                return Some(Frame { function, file: "".into(), line: 0 });
            };
            Some(Frame { function: function.into(), file: placed_by_name(file), line: line.parse().ok()? })
        }
    }
}

/// `built-in method item of Tensor object at 0x7f00>`: `Tensor.item`. Without the address, which is
/// another one each time.
fn built_in(name: &str) -> Option<Cow<'_, str>> {
    let rest = name.strip_suffix('>').unwrap_or(name);
    if let Some(function) = rest.strip_prefix("built-in function ") {
        return Some(function.into());
    }
    let rest = rest.strip_prefix("built-in method ").or_else(|| rest.strip_prefix("bound method "))?;
    let Some((method, of)) = rest.split_once(" of ") else { return Some(rest.into()) };
    let of = of.split_once(" object at ").map_or(of, |o| o.0);
    let of = of.rsplit('.').next().unwrap_or(of);
    Some(match of {
        "type" | "module" | "builtin_function_or_method" | "PyCapsule" => method.into(),
        // classes that pybind makes have long names
        of if of.starts_with("pybind11_") => method.into(),
        of => format!("{of}.{method}").into(),
    })
}

fn is_one_of(list: &str, word: &str) -> bool {
    let apart = |byte: Option<&u8>| byte == Some(&b' ');
    let (list, word) = (list.as_bytes(), word.as_bytes());
    !word.is_empty()
        && !word.contains(&b' ')
        && memchr::memmem::find_iter(list, word)
            .any(|at| apart(list.get(at.wrapping_sub(1))) && apart(list.get(at + word.len())))
}

/// A file as torch.profiler names it, with a folder in front where that was cut off and is known.
fn placed(file: &str) -> Cow<'_, str> {
    if file.starts_with(['/', '<', '.']) || file.contains(":\\") {
        return file.into();
    }
    let top = file.split('/').next().unwrap_or(file);
    let top = top.strip_suffix(".py").unwrap_or(top);
    match () {
        () if is_one_of(PACKAGES, top) => format!("site-packages/{file}").into(),
        () if is_one_of(LIBRARY, top) => format!("lib/python3/{file}").into(),
        () => file.into(),
    }
}

/// The same of a file of which the name alone is known.
fn placed_by_name(file: &str) -> Cow<'_, str> {
    let stem = file.strip_suffix(".py").unwrap_or(file);
    match () {
        () if file.starts_with('<') => file.into(),
        () if is_one_of(LIBRARY, stem) => format!("lib/python3/{file}").into(),
        () if is_one_of(OF_XLA, stem) || stem.starts_with("__") => format!("site-packages/jax/{file}").into(),
        () => file.into(),
    }
}

/// A stack as its innermost frame and what it was called from.
#[derive(Clone, Copy)]
struct Node {
    parent: u32,
    frame: u32,
    used: bool,
}

/// Stacks and frames, each once. Number 0: none.
#[derive(Default)]
struct Stacks {
    first: u32,
    /// By the name of the function.
    frames: HashMap<u32, u32>,
    by_frame: HashMap<FrameInfo, u32>,
    texts: HashMap<String, u32>,
    nodes: Vec<Node>,
    inside: HashMap<(u32, u32), u32>,
}

impl Stacks {
    fn text(&mut self, run: &mut Run, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.texts.get(text) {
            return id;
        }
        let id = FIRST_TEXT + self.texts.len() as u32;
        run.definitions.insert(id, Definition::String(text.as_bytes()));
        self.texts.insert(text.to_owned(), id);
        id
    }

    /// The frame that each function's name stands for.
    fn all_frames(&mut self, run: &mut Run, written: Written) {
        // by name, as functions are many and their names few; texts of a trace are numbered from 1
        // on
        let mut named: Vec<bool> = Vec::new();
        for r in run.threads.iter().flat_map(|t| &t.ranges).filter(|r| r.kind == RangeKind::Python) {
            let at = (r.name as usize).min(FIRST_TEXT as usize);
            if at >= named.len() {
                named.resize(at + 1, false);
            }
            if let Some(named) = named.get_mut(at) {
                *named = true;
            }
        }
        for name in (0u32..).zip(named).filter(|n| n.1).map(|n| n.0) {
            let text = run.definitions.string(name).unwrap_or("").to_owned();
            let Some(f) = frame(&text, written) else { continue };
            let (function, file) = (self.text(run, &f.function), self.text(run, &f.file));
            let info = FrameInfo { language: Language::Python, function, file, line: f.line };
            let next = self.first + self.by_frame.len() as u32;
            let number = *self.by_frame.entry(info).or_insert_with(|| {
                run.definitions.insert(next, Definition::Frame(info));
                next
            });
            self.frames.insert(name, number);
        }
    }

    /// The stack of `frame` called from the stack `parent`.
    fn node(&mut self, parent: u32, frame: u32) -> u32 {
        if frame == 0 || self.nodes.len() >= MOST_STACKS {
            return parent;
        }
        let (nodes, first) = (&mut self.nodes, self.first);
        *self.inside.entry((parent, frame)).or_insert_with(|| {
            nodes.push(Node { parent, frame, used: false });
            first + nodes.len() as u32 - 1
        })
    }

    fn get(&self, stack: u32) -> Option<Node> {
        self.nodes.get(stack.checked_sub(self.first)? as usize).copied()
    }

    fn mark(&mut self, stack: u32) {
        let at = stack.checked_sub(self.first);
        let node = at.and_then(|at| self.nodes.get_mut(at as usize));
        if let Some(node) = node {
            node.used = true;
        }
    }

    /// Defines the stacks that calls have.
    fn define(&self, run: &mut Run) {
        for (id, node) in (self.first..).zip(&self.nodes).filter(|(_, n)| n.used) {
            let mut bytes = node.frame.to_le_bytes().to_vec();
            let mut at = node.parent;
            while let Some(outer) = self.get(at).filter(|_| bytes.len() < 4 * MAX_FRAMES) {
                bytes.extend_from_slice(&outer.frame.to_le_bytes());
                at = outer.parent;
            }
            run.definitions.insert(id, Definition::Stack(&bytes));
        }
    }
}

/// A Python function that is open; `stack` once somebody asked for it.
struct Open {
    end: u64,
    name: u32,
    stack: Option<u32>,
}

/// Makes frames of the Python functions, and gives each call that has none the stack that it was
/// made from. To be called once ranges are sorted by begin, the longer first. `first`: [`FIRST`],
/// or [`FIRST_OF_OWN`] of a trace of ours, which defines stacks and frames itself.
pub(super) fn give_stacks(run: &mut Run, written: Written, first: u32) {
    let has_any = |t: &Thread| t.ranges.iter().any(|r| r.kind == RangeKind::Python);
    let mut stacks = Stacks { first, ..Stacks::default() };
    stacks.all_frames(run, written);
    if stacks.frames.is_empty() {
        return;
    }
    let mut threads = std::mem::take(&mut run.threads);
    for thread in threads.iter_mut().filter(|t| has_any(t)) {
        let mut ranges = thread.ranges.iter().filter(|r| r.kind == RangeKind::Python).peekable();
        let mut open: Vec<Open> = Vec::new();
        for call in thread.calls.iter_mut().filter(|c| c.site == 0) {
            while let Some(r) = ranges.next_if(|r| r.span.start <= call.start) {
                while open.last().is_some_and(|o| o.end <= r.span.start) {
                    open.pop();
                }
                // what ends behind the function that called it is damage
                let end = open.last().map_or(r.span.end, |o| r.span.end.min(o.end));
                open.push(Open { end, name: r.name, stack: None });
            }
            while open.last().is_some_and(|o| o.end <= call.start) {
                open.pop();
            }
            // those that were asked for before are the outer ones
            let known = open.partition_point(|o| o.stack.is_some());
            let outer = known.checked_sub(1).and_then(|at| open.get(at)?.stack);
            let mut stack = outer.unwrap_or(0);
            for o in open.iter_mut().skip(known) {
                let frame = stacks.frames.get(&o.name).copied().unwrap_or(0);
                stack = *o.stack.insert(stacks.node(stack, frame));
            }
            stacks.mark(stack);
            call.site = stack;
        }
    }
    run.threads = threads;
    stacks.define(run);
    run.functions = stacks.frames;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(name: &'a str, written: Written) -> Option<(String, String, u32)> {
        frame(name, written).map(|f: Frame<'a>| (f.function.into_owned(), f.file.into_owned(), f.line))
    }

    #[test]
    fn names_of_torch_are_frames_whose_file_says_whose_it_is() {
        for (name, function, file, line) in [
            ("train.py(42): log_loss", "log_loss", "train.py", 42),
            ("/home/me/train.py(7): <module>", "<module>", "/home/me/train.py", 7),
            ("models/net (copy).py(3): forward", "forward", "models/net (copy).py", 3),
            (
                "torch/nn/modules/module.py(1927): __getattr__",
                "__getattr__",
                "site-packages/torch/nn/modules/module.py",
                1927,
            ),
            ("threading.py(900): _bootstrap", "_bootstrap", "lib/python3/threading.py", 900),
            ("transformers/trainer.py(1): train", "train", "site-packages/transformers/trainer.py", 1),
            ("<string>(1): <module>", "<module>", "<string>", 0),
            ("<built-in method item of Tensor object at 0x7f00>", "Tensor.item", "", 0),
            ("<built-in method sum of numpy.ndarray object at 0x7f00>", "ndarray.sum", "", 0),
            (
                "<built-in method _get_tracing_state of PyCapsule object at 0x7f00>",
                "_get_tracing_state",
                "",
                0,
            ),
            ("<built-in method to of type object at 0x7f00>", "to", "", 0),
            ("<built-in function linear>", "linear", "", 0),
        ] {
            let wanted = Some((function.to_owned(), file.to_owned(), line));
            assert_eq!(of(name, Written::Torch), wanted, "{name}");
        }
        for name in ["nn.Module: Linear_0", "", "train.py", "train.py(x): f", "<"] {
            assert_eq!(of(name, Written::Torch), None, "{name}");
        }
    }

    #[test]
    fn names_of_xla_are_frames_too() {
        for (name, function, file, line) in [
            ("$train.py:42 log_loss", "log_loss", "train.py", 42),
            ("$array.py:1171 shard_device_array", "shard_device_array", "site-packages/jax/array.py", 1171),
            ("$enum.py:1267 __hash__", "__hash__", "lib/python3/enum.py", 1267),
            ("$builtins isinstance", "isinstance", "", 0),
            ("$<unknown> append", "append", "", 0),
            ("$time sleep", "time.sleep", "", 0),
        ] {
            let wanted = Some((function.to_owned(), file.to_owned(), line));
            assert_eq!(of(name, Written::Xla), wanted, "{name}");
        }
        assert_eq!(of("PjitFunction(step)", Written::Xla), None);
    }

    #[test]
    fn words_are_found_whole() {
        assert!(is_one_of(PACKAGES, "torch") && is_one_of(PACKAGES, "dali") && is_one_of(LIBRARY, "queue"));
        assert!(
            !is_one_of(PACKAGES, "tor") && !is_one_of(PACKAGES, "") && !is_one_of(PACKAGES, "torch numpy")
        );
        assert!(!is_one_of(PACKAGES, "train") && !is_one_of(LIBRARY, "main"));
    }
}
