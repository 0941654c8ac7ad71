// SPDX-License-Identifier: Apache-2.0
//! Whose a source file is, by its path: the user's, an installed package's, Python's own.
//!
//! A path tells it as Python's loaders write it into code objects; nothing is looked up on a disk,
//! the trace may be of another machine.

/// Whose a frame's file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin<'a> {
    /// The user's program, notebook or archive.
    User,
    /// An installed package (or PyTorch's own source tree), by the name of its folder.
    Package(&'a str),
    /// Python's library, generated code, console scripts: nothing a user would change.
    Standard,
}

/// Folders that hold installed packages.
const INSTALLED: [&str; 2] = ["site-packages/", "dist-packages/"];

/// Below a folder `torch` these are PyTorch's own wherever it lies (a source checkout, a frozen
/// program): a project that calls its folder `torch` has none of them.
const TORCH: [&str; 15] = [
    "_tensor.py",
    "_ops.py",
    "_compile.py",
    "functional.py",
    "serialization.py",
    "nn/modules/",
    "nn/functional.py",
    "nn/parallel/",
    "autograd/",
    "optim/",
    "utils/data/",
    "utils/_contextlib.py",
    "_dynamo/",
    "_inductor/",
    "_functorch/",
];

/// In angle brackets stands code without a file. The user's are these; others are generated
/// (`<frozen runpy>`, `<eval_with_key>.0` of torch.fx, `<__array_function__ internals>`).
const TYPED: [&str; 7] =
    ["<stdin>", "<string>", "<ipython-input", "<command-", "<console>", "<input>", "<doctest"];

/// Packages that start other people's programs: where they stand outermost the program is what they
/// call.
const LAUNCHERS: [&str; 24] = [
    "torch",
    "accelerate",
    "ray",
    "joblib",
    "cloudpickle",
    "hydra",
    "click",
    "typer",
    "fire",
    "absl",
    "tyro",
    "jsonargparse",
    "debugpy",
    "coverage",
    "line_profiler",
    "_pytest",
    "pytest",
    "pluggy",
    "IPython",
    "ipykernel",
    "traitlets",
    "tornado",
    "uvicorn",
    "gunicorn",
];

impl<'a> Origin<'a> {
    /// By the file and the function as the interpreter names them.
    pub(crate) fn of(file: &'a str, function: &str) -> Origin<'a> {
        if file.is_empty() {
            return Origin::Standard;
        }
        if file.starts_with('<') {
            // dataclasses and named tuples compile their `__init__` and `__eq__` from text, too,
            // and Inductor what launches a kernel (`torch/_inductor/runtime/triton_heuristics.py`)
            let is_made = |f: &str| f.starts_with("__") || f == "launcher";
            let made = file == "<string>" && function.rsplit('.').next().is_some_and(is_made);
            let typed = TYPED.iter().any(|t| file.starts_with(t)) && !made;
            return if typed { Origin::User } else { Origin::Standard };
        }
        for folder in INSTALLED {
            if let Some((_, inside)) = file.rsplit_once(folder) {
                return package(inside);
            }
        }
        if let Some((_, inside)) = file.rsplit_once(".whl/") {
            return package(inside); // pex and Bazel keep wheels unpacked under their own names
        }
        if is_library(file) {
            return Origin::Standard;
        }
        if is_below(file, "torch", &TORCH) {
            return Origin::Package("torch");
        }
        if is_below(file, "gapprobe", &["__init__.py", "__main__.py", "_find.py", "_marks.py"]) {
            return Origin::Standard;
        }
        if is_console_script(file) || is_inductors(file) {
            return Origin::Standard;
        }
        Origin::User
    }

    /// A package that starts programs of others.
    pub(crate) fn is_launcher(self) -> bool {
        matches!(self, Origin::Package(p) if LAUNCHERS.contains(&p))
    }
}

fn package(inside: &str) -> Origin<'_> {
    // an egg is a folder, or an archive, of its own
    let inside = match inside.split_once(".egg/") {
        Some((egg, rest)) if !egg.contains('/') => rest,
        _ => inside,
    };
    let name = inside.split('/').next().unwrap_or(inside);
    match name.trim_end_matches(".py") {
        "gapprobe" => Origin::Standard,
        name => Origin::Package(name),
    }
}

/// `/usr/lib/python3.11/threading.py`, `/opt/conda/lib/python3.12/..`, `lib64`, `python311.zip/`.
fn is_library(file: &str) -> bool {
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let below = |folder: &str| {
        file.match_indices(folder).any(|(at, _)| {
            let rest = file.get(at + folder.len()..).unwrap_or("");
            let inside = file.as_bytes().get(at.wrapping_sub(1)).is_none_or(|b| *b == b'/');
            inside && numbered(rest) && rest.contains('/')
        })
    };
    below("lib/python") || below("lib64/python") || {
        let zipped = file.split_once(".zip/").and_then(|(zip, _)| zip.rsplit('/').next());
        zipped.and_then(|z| z.strip_prefix("python")).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// One of `paths` stands right below a folder of this name.
fn is_below(file: &str, folder: &str, paths: &[&str]) -> bool {
    file.match_indices(folder).any(|(at, _)| {
        let begins = at == 0 || file.as_bytes().get(at - 1) == Some(&b'/');
        let rest = file.get(at + folder.len()..).and_then(|r| r.strip_prefix('/'));
        begins
            && rest.is_some_and(|r| {
                paths.iter().any(|p| if p.ends_with('/') { r.starts_with(p) } else { r == *p })
            })
    })
}

/// `/tmp/torchinductor_me/ov/cov463qhi2m2kw6ldmzzijfv5t3cjjklfci3qly3nsw6upcskct3.py`: code that
/// torch.compile made, below two letters of its own name.
fn is_inductors(file: &str) -> bool {
    const LEAST: usize = 40;
    let mut parts = file.rsplit('/');
    let Some(stem) = parts.next().and_then(|name| name.strip_suffix(".py")) else { return false };
    let is_hash =
        stem.len() >= LEAST && stem.starts_with('c') && stem.bytes().all(|b| b.is_ascii_alphanumeric());
    is_hash && parts.next().is_some_and(|folder| stem.get(1..3) == Some(folder))
}

/// `/venv/bin/accelerate`: made by pip, calls a package's `main`.
fn is_console_script(file: &str) -> bool {
    let mut parts = file.rsplit('/');
    let name = parts.next().unwrap_or("");
    parts.next() == Some("bin") && !name.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_users_packages_and_python() {
        for file in [
            "train.py",
            "/home/me/project/train.py",
            "/home/me/torch/train.py",
            "/home/me/torch/utils/metrics.py",
            "/workspace/lib/python/train.py",
            "/home/me/bin/train.py",
            "<stdin>",
            "<ipython-input-3-0a1b2c>",
            "/tmp/ipykernel_123/2345.py",
            "/home/me/job.pyz/train/loop.py",
            "/home/me/gapprobe/train.py",
            "ov/cov.py",
            "data/cov463qhi2m2kw6ldmzzijfv5t3cjjklfci3qly3nsw6upcskct3.py",
            "/root/.pex/unzipped_pexes/0a1b/train.py",
        ] {
            assert_eq!(Origin::of(file, "f"), Origin::User, "{file}");
        }
        for (file, name) in [
            ("/usr/lib/python3/dist-packages/numpy/core/numeric.py", "numpy"),
            ("/venv/lib/python3.11/site-packages/torch/_tensor.py", "torch"),
            ("/venv/lib/python3.11/site-packages/six.py", "six"),
            ("/venv/lib/python3.11/site-packages/thing-1.0-py3.11.egg/thing/loop.py", "thing"),
            ("/root/.pex/installed_wheels/0a1b/torch-2.5.1-cp311-none.whl/torch/nn/functional.py", "torch"),
            ("/workspace/pytorch/torch/nn/modules/module.py", "torch"),
            ("torch/optim/adamw.py", "torch"),
        ] {
            assert_eq!(Origin::of(file, "f"), Origin::Package(name), "{file}");
        }
        for file in [
            "",
            "/usr/lib/python3.11/threading.py",
            "/opt/conda/lib/python3.12/runpy.py",
            "/usr/lib64/python3.9/logging/__init__.py",
            "/tmp/torchinductor_me/ov/cov463qhi2m2kw6ldmzzijfv5t3cjjklfci3qly3nsw6upcskct3.py",
            "ov/cov463qhi2m2kw6ldmzzijfv5t3cjjklfci3qly3nsw6upcskct3.py",
            "/opt/app/python311.zip/queue.py",
            "<frozen runpy>",
            "<eval_with_key>.0",
            "<__array_function__ internals>",
            "/venv/bin/accelerate",
            "/venv/lib/python3.11/site-packages/gapprobe/_marks.py",
            "/work/python/gapprobe/_marks.py",
        ] {
            assert_eq!(Origin::of(file, "f"), Origin::Standard, "{file}");
        }
    }

    #[test]
    fn text_given_to_python_is_the_users_and_what_libraries_make_is_not() {
        assert_eq!(Origin::of("<string>", "step"), Origin::User);
        assert_eq!(Origin::of("<string>", "<module>"), Origin::User);
        assert_eq!(Origin::of("<string>", "Config.__init__"), Origin::Standard);
        assert_eq!(Origin::of("<string>", "launcher"), Origin::Standard);
    }
}
