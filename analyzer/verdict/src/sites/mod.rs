// SPDX-License-Identifier: Apache-2.0
//! Whose line it is: from a call stack, the frame that the user of a framework can change.
//!
//! 1. The innermost frame that is not a framework's: no installed package (`site-packages`,
//!    `dist-packages`, unpacked wheels, PyTorch's own source tree), not Python's library, no
//!    generated code (`<frozen runpy>`, `<eval_with_key>`), no console script. `.item()` and
//!    `print` are C functions without a frame: then it is the very line they stand in. For
//!    `loss.backward()`, or a Lightning or Hugging Face loop that waits by itself, it is the line
//!    that calls it, and the function called there is told with it ([`Site::via`]). A callback of
//!    the user inside such a loop is nearer and so wins.
//! 2. Without such a frame the program itself is installed (`python -m package`): the outermost
//!    package that does not only start programs (`accelerate`, `ray`, `pytest` ...), and its
//!    innermost frame. Not if the stack was cut: what is missing is outermost.
//! 3. Without any Python frame: the function that called CUDA, which the recorder found; in another
//!    tool's call chain the innermost function of the executable itself, not of a library.
//!
//! Else there is no site. A wrong line is worse than none.
//!
//! What a kernel is for ([`Sites::of_kernel`]) stands nearer: in a module that an installed package
//! defines and runs (Hugging Face's models under their `Trainer`) it is the package's line.
//!
//! Here: [`Site`], [`Sites`]. `origin.rs`: whose a file is. `activity.rs`: what a sampled thread
//! was doing; `frames.rs`: what its frames tell of it; `workers.rs`: those that work for a
//! DataLoader. `dispatch.rs`: what kind of dispatching it was.

pub mod activity;
pub(crate) mod dispatch;
pub(crate) mod frames;
mod origin;
pub(crate) mod workers;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

pub use trace::define::DIRECTORY;
use trace::define::MAX_FRAMES;
use trace::{Definitions, FrameInfo, Language};

use crate::run::Run;
use crate::text::kernel_name::symbol;
use dispatch::Break;
use origin::Origin;

/// Functions that only call another: not worth telling.
const WRAPPERS: [&str; 11] = [
    "_wrapped_call_impl",
    "_call_impl",
    "__call__",
    "wrapper",
    "wrapped",
    "decorate_context",
    "_use_grad",
    "inner",
    "_fn",
    "_call_and_handle_interrupt",
    "wrapped_func",
];

/// A line of the program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Site {
    /// Its file as the interpreter names it; without Python the source file where that is known,
    /// else the module. Empty of a range that stands for it (`causes/ranges.rs`).
    pub path: String,
    /// The same, short: below the directory the program was started in, else with one folder; a
    /// module without folders.
    pub file: String,
    /// 1 the first; 0 where it is not known.
    pub line: u32,
    /// The function it is in; empty at the top of a file. Of machine code without a line:
    /// `step(int)+0x1c`, or where it has no symbol the address in its module's file.
    pub function: String,
    /// The framework's function that is called there; `None` where there is none, or not always the
    /// same.
    pub via: Option<String>,
}

impl Site {
    /// What it is, to say "this ... alone": without a line it may be no more than the module.
    pub fn word(&self) -> &'static str {
        match self.function.as_str() {
            _ if self.line > 0 => "line",
            "" => "module",
            // one address
            f if f.starts_with("0x") || f.contains("+0x") => "place",
            _ => "function",
        }
    }

    /// `train.py:88`; of machine code without a line as it is shown.
    pub fn place(&self) -> String {
        match self.line {
            0 => self.to_string(),
            line => format!("{}:{line}", self.file),
        }
    }

    /// The same place in the program, whatever is called there.
    pub fn is_same_line(&self, other: &Site) -> bool {
        (&self.path, self.line, &self.function) == (&other.path, other.line, &other.function)
    }
}

impl fmt::Display for Site {
    /// `train.py:88 in train_step`, `train.py:90 in train_step via Tensor.backward`,
    /// `step(int)+0x1c in libfoo.so`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            // a range of another tool's trace
            0 if self.file.is_empty() => f.write_str(&self.function)?,
            0 if !self.function.is_empty() => return write!(f, "{} in {}", self.function, self.file),
            0 => f.write_str(&self.file)?,
            line => write!(f, "{}:{line}", self.file)?,
        }
        if !self.function.is_empty() && !self.file.is_empty() {
            write!(f, " in {}", self.function)?;
        }
        match &self.via {
            Some(via) => write!(f, " via {via}"),
            None => Ok(()),
        }
    }
}

/// The sites of a run's stacks, each looked for once.
pub struct Sites<'a> {
    run: &'a Run,
    directory: Option<&'a str>,
    /// By stack, and whether the line is for a kernel.
    by_stack: HashMap<(u32, bool), Option<u32>>,
    /// By file, line and, where there is no line, function: numbers of `sites`.
    by_line: HashMap<(u32, u32, u32), u32>,
    sites: Vec<Site>,
}

impl<'a> Sites<'a> {
    /// Of a run.
    pub fn new(run: &'a Run) -> Sites<'a> {
        let directory = run.definitions.attributes().find(|a| a.0 == DIRECTORY).map(|a| a.1);
        let directory = directory.filter(|d| d.len() > 1);
        Sites { run, directory, by_stack: HashMap::new(), by_line: HashMap::new(), sites: Vec::new() }
    }

    /// Where a graph breaks, as a site.
    pub(crate) fn at_break(&self, at: &Break) -> Site {
        Site {
            path: at.file.clone(),
            file: short(&at.file, self.directory),
            line: at.line,
            function: plain(&at.resumed),
            via: None,
        }
    }

    /// Number of the site of a stack: equal for stacks of one line.
    pub fn of(&mut self, stack: u32) -> Option<u32> {
        self.known(stack, false)
    }

    /// Number of the site that a kernel launched from this stack is for. In the innermost module
    /// called that has a line outside of PyTorch, the user's innermost line, else its package's:
    /// the line that calls a `Trainer` is one for all kernels.
    pub fn of_kernel(&mut self, stack: u32) -> Option<u32> {
        self.known(stack, true)
    }

    fn known(&mut self, stack: u32, of_kernel: bool) -> Option<u32> {
        if stack == 0 {
            return None;
        }
        if let Some(&known) = self.by_stack.get(&(stack, of_kernel)) {
            return known;
        }
        let found = self.look(stack, of_kernel);
        self.by_stack.insert((stack, of_kernel), found);
        found
    }

    /// A site by its number.
    pub fn get(&self, site: u32) -> Option<&Site> {
        self.sites.get(site as usize)
    }

    fn text(&self, id: u32) -> &'a str {
        self.run.definitions.string(id).unwrap_or("")
    }

    fn look(&mut self, stack: u32, of_kernel: bool) -> Option<u32> {
        let frames: Vec<&FrameInfo> = self.run.definitions.stack(stack).collect();
        let in_package = if of_kernel { self.in_modules_package(&frames) } else { None };
        let at = in_package.or_else(|| self.choose(&frames))?;
        let via = frames.get(..at).and_then(|inner| inner.iter().rev().find_map(|f| self.called(f)));
        self.number(frames.get(at)?, via)
    }

    /// The program's own lines in a stack, innermost first, none twice; without those outside of
    /// any function, where a program only begins.
    pub(crate) fn all_of(&mut self, stack: u32) -> Vec<u32> {
        let run = self.run;
        let text = |id| run.definitions.string(id).unwrap_or("");
        let is_own = |f: &&FrameInfo| {
            let (file, function) = (text(f.file), text(f.function));
            let is_user = f.language == Language::Python && Origin::of(file, function) == Origin::User;
            is_user && !plain(function).is_empty()
        };
        let mut found: Vec<u32> = Vec::new();
        for frame in run.definitions.stack(stack).filter(is_own) {
            if let Some(site) = self.number(frame, None).filter(|site| !found.contains(site)) {
                found.push(site);
            }
        }
        found
    }

    /// The innermost of the program's lines that at least half of these stacks, by weight, have in
    /// them; and the weight of those that do.
    pub(crate) fn below(&mut self, stacks: impl Iterator<Item = (u32, u64)>) -> Option<(u32, u64)> {
        let mut weights: BTreeMap<u32, u64> = BTreeMap::new();
        stacks.for_each(|(stack, weight)| *weights.entry(stack).or_default() += weight);
        let all: u64 = weights.values().sum();
        // weight of the stacks that have it; and how far from the innermost it stands in them
        let mut lines: HashMap<u32, (u64, u64)> = HashMap::new();
        for (stack, weight) in weights {
            for (depth, site) in (0u64..).zip(self.all_of(stack)) {
                let (has, inside) = lines.entry(site).or_default();
                (*has, *inside) = (*has + weight, *inside + depth * weight);
            }
        }
        let depth = |(has, inside): (u64, u64)| inside as f64 / (has as f64).max(1.0);
        let most = lines.into_iter().filter(|l| l.1 .0 > 0 && l.1 .0 >= all - l.1 .0);
        let (line, (has, _)) =
            most.min_by(|x, y| depth(x.1).total_cmp(&depth(y.1)).then_with(|| x.0.cmp(&y.0)))?;
        Some((line, has))
    }

    /// Number of the site of a frame, if it is the user's own.
    #[cfg(feature = "readers")]
    pub(crate) fn of_users_frame(&mut self, frame: u32) -> Option<u32> {
        let frame = *self.run.definitions.frame(frame)?;
        let (file, function) = (self.text(frame.file), self.text(frame.function));
        let is_users = frame.language == Language::Python && Origin::of(file, function) == Origin::User;
        is_users.then(|| self.number(&frame, None)).flatten()
    }

    /// Number of the site of a frame; `via`: see [`Site::via`].
    fn number(&mut self, frame: &FrameInfo, via: Option<String>) -> Option<u32> {
        let named = if frame.line == 0 { frame.function } else { 0 };
        let key = (frame.file, frame.line, named);
        if let Some(&known) = self.by_line.get(&key) {
            if let Some(site) = self.sites.get_mut(known as usize).filter(|s| s.via != via) {
                site.via = None;
            }
            return Some(known);
        }
        let path = self.text(frame.file);
        let function = match frame.language {
            Language::Python => plain(self.text(frame.function)),
            Language::Native | Language::Caller => symbol(self.text(frame.function)),
        };
        let file = match (frame.language, frame.line) {
            (Language::Caller, 0) => path.rsplit('/').next().unwrap_or(path).to_owned(),
            _ => short(path, self.directory),
        };
        let number = self.sites.len() as u32;
        self.sites.push(Site { path: path.to_owned(), file, line: frame.line, function, via });
        self.by_line.insert(key, number);
        Some(number)
    }

    /// The line of an installed package in the innermost call of a module that has a line of the
    /// program or of a package; `None`: it has one of the program's, or there is none such.
    fn in_modules_package(&self, frames: &[&FrameInfo]) -> Option<usize> {
        let mut package = None;
        for (at, frame) in frames.iter().enumerate() {
            if calls_module(&self.run.definitions, frame) {
                if package.is_some() {
                    return package;
                }
                continue;
            }
            let origin = Origin::of(self.text(frame.file), self.text(frame.function));
            match origin {
                _ if frame.language != Language::Python => {}
                Origin::User => return None,
                Origin::Package(name) if !PYTORCHS.contains(&name) => package = package.or(Some(at)),
                Origin::Package(_) | Origin::Standard => {}
            }
        }
        None
    }

    /// The rules of the module's head, in their order.
    fn choose(&self, frames: &[&FrameInfo]) -> Option<usize> {
        let python = |f: &FrameInfo| f.language == Language::Python;
        if let Some(caller) = frames.iter().position(|f| f.language == Language::Caller) {
            return Some(caller);
        }
        if !frames.iter().any(|f| python(f)) {
            return frames.iter().position(|f| is_executable(self.text(f.file)) && f.function != 0);
        }
        let origins: Vec<Option<Origin>> = frames
            .iter()
            .map(|f| python(f).then(|| Origin::of(self.text(f.file), self.text(f.function))))
            .collect();
        if let Some(at) = origins.iter().position(|o| *o == Some(Origin::User)) {
            return Some(at);
        }
        if frames.len() >= MAX_FRAMES {
            return None;
        }
        let package =
            |o: &&Option<Origin>| o.is_some_and(|o| matches!(o, Origin::Package(_)) && !o.is_launcher());
        let outermost = origins.iter().rev().find(package)?;
        origins.iter().position(|o| o == outermost)
    }

    /// What a framework's frame is called, if that says something.
    fn called(&self, frame: &FrameInfo) -> Option<String> {
        if frame.language != Language::Python {
            return None;
        }
        let name = plain(self.text(frame.function));
        let last = name.rsplit('.').next().unwrap_or("");
        let says = !last.is_empty() && !last.starts_with('<') && !WRAPPERS.contains(&last);
        says.then_some(name)
    }
}

/// PyTorch's packages, which run modules of others.
const PYTORCHS: [&str; 3] = ["torch", "functorch", "triton"];

/// Does PyTorch call a module in this frame? (The recorder learns from the first such stacks which
/// module.)
pub fn calls_module(definitions: &Definitions, frame: &FrameInfo) -> bool {
    let text = |id| definitions.string(id).unwrap_or("");
    text(frame.function).ends_with("_call_impl") && text(frame.file).ends_with("torch/nn/modules/module.py")
}

/// Is a source file the user's own, and no package's?
pub fn is_users(path: &str) -> bool {
    Origin::of(path, "") == Origin::User
}

/// A module that is no library: the program.
fn is_executable(module: &str) -> bool {
    let name = module.rsplit('/').next().unwrap_or("");
    !name.is_empty() && !name.contains(".so") && !name.starts_with('[') && !name.starts_with("python")
}

/// A function's name for people: without the functions around it, nothing at the top of a file, and
/// what TorchDynamo cut a function into is that function.
fn plain(name: &str) -> String {
    let own = name.rsplit("<locals>.").next().unwrap_or(name);
    let last = own.rsplit('.').next().unwrap_or(own);
    if let Some((function, at)) =
        last.strip_prefix("torch_dynamo_resume_in_").and_then(|rest| rest.rsplit_once("_at_"))
    {
        if at.bytes().all(|b| b.is_ascii_digit()) {
            return function.to_owned();
        }
    }
    match own {
        "<module>" => String::new(),
        own => own.to_owned(),
    }
}

/// A path for people: see [`Site::file`].
fn short(path: &str, directory: Option<&str>) -> String {
    if path.starts_with('<') {
        return path.to_owned();
    }
    let whole = directory.filter(|_| !path.starts_with('/')).map(|d| absolute(d, path));
    let path = whole.as_deref().unwrap_or(path);
    let inside = directory.and_then(|d| path.strip_prefix(d)?.strip_prefix('/')).filter(|r| !r.is_empty());
    if let Some(inside) = inside.filter(|r| !r.contains("site-packages/")) {
        return inside.to_owned();
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    let slashes = path.rmatch_indices('/').nth(1).map(|(at, _)| at + 1);
    path.get(slashes.unwrap_or(0)..).unwrap_or(path).trim_start_matches('/').to_owned()
}

/// A relative path as seen from `directory`, by its words alone: the trace may be of another
/// machine.
fn absolute(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').collect();
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        match part {
            ".." if parts.len() > 1 => {
                parts.pop();
            }
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests;
