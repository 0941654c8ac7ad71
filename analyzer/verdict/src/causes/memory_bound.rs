// SPDX-License-Identifier: Apache-2.0
//! GP137 MEMORY-BOUND: elementwise operations follow one another, each through memory.
//!
//! # What it means
//! An activation, a norm or a loss written as several operations reads and writes the whole tensor
//! for each of them, and computes next to nothing. One fused kernel reads and writes it once.
//!
//! # How it is recognised
//! By chains: PyTorch kernels that work on each element, or sum elements up, one right after the
//! other on a stream, in one step, launched by one function and module of the program, in the
//! forward or the backward pass. Any other kernel, and a copy to the host, ends a chain. So does a
//! kernel that works on another tensor: the same kernel from the same line; the same copy, sum,
//! norm or softmax from any line; a grid for a tensor of another size. Gradients of weights and
//! biases are not part of a chain. Chains of nothing but casts, copies and sums do not count, nor
//! do those below 20 us. The lines of the program must be known.
//!
//! # How sure
//! Which kernels follow one another, and for how long, is exact. The prediction has a chain take
//! as long as its longest kernel, or six tenths of that where the chain converts types, since what
//! goes in or comes out is then half as wide. That all of it works on one tensor is likely, not
//! known: the confidence is medium. It is reported from 15% of a step on, as every loss makes a
//! short chain.
//!
//! # Example
//! ```python
//! # slow: eight passes over x
//! y = 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
//! # fixed: one
//! y = F.gelu(x, approximate="tanh")
//! ```
//!
//! # What to change
//! `@torch.compile` on that function, or the operation that PyTorch has for it: `F.gelu`,
//! `F.layer_norm`, `F.rms_norm`, `F.cross_entropy`; a custom kernel (Triton) where there is none.
//! Keep intermediate results in bfloat16 where float32 is not needed.

use std::collections::HashMap;

use trace::{Definitions, Kind};

use super::kernel_names::{is_cast, is_copy_or_fill, is_of_rows, is_pointwise, is_reduction};
use super::kernels::{as_kernel, goes_on_or_ends, Kernels};
use super::Case;
use crate::analysis::{Advice, Fact, Figure, Finding};
use crate::replay::Kernel;
use crate::run::autograd::type_name;
use crate::run::Op;
use crate::sites::Sites;

/// Stable code.
pub const CODE: &str = "GP137";
/// Name in the line.
pub const NAME: &str = "MEMORY-BOUND";

/// Part of a step from which on it is worth the work: every loss makes a short chain.
pub(super) const LEAST_WIN: f64 = 0.15;
/// A chain that takes less than this is bound by its launches, ns.
const LEAST_NS: u64 = 20_000;
/// What a chain takes once fused that converts types, of its longest kernel: it reads and writes
/// 16 bits of each number where its kernels move 24 to 64 (H200, 2026-11-29: a norm 0.52, a loss
/// 0.49 of it).
const NARROW: f64 = 0.6;
/// Sizes are the same within this: the last block is not full.
const ALIKE: f64 = 0.02;
/// Autograd's nodes whose operations on each element are of weights and biases.
const OF_WEIGHTS: [&str; 4] = ["AddmmBackward0", "MmBackward0", "BmmBackward0", "ConvolutionBackward0"];

/// What tells a chain: a function of the program, by the first of its lines that was met, the
/// module (a string id; 0: none) and whether it is its backward pass.
type Of = (u32, u32, bool);

pub(super) fn evaluate(case: &Case) -> Option<Finding> {
    let device = case.recorded_device()?;
    let mut search = Search::new(case);
    for stream in &device.streams {
        stream.ops.iter().filter(|op| goes_on_or_ends(op)).for_each(|op| search.next(op));
        search.end();
    }
    let chains = Kernels::these(case, search.found.into_iter())?;
    let seen = Fact::new("elementwise kernels that could be fused run {often} and take {share} of the time")
        .with("often", case.rhythm(chains.count))
        .with("share", Figure::Share(chains.share()));
    let mut f = chains.finding((CODE, NAME), seen).filter(|f| f.win.share() >= LEAST_WIN)?;
    f.advice = Advice::new(
        "torch.compile, or PyTorch's fused operation",
        "put @torch.compile on the function that makes them, or use PyTorch's operation for it (F.gelu, F.rms_norm, F.cross_entropy)",
    );
    if let Some(memory) = case.device.counters.and_then(|c| c.own()?.memory) {
        f.facts
            .say(Fact::new("{memory} of the memory bandwidth is used").with("memory", Figure::Share(memory)));
    }
    Some(f)
}

/// What the name of a kernel tells of its place in a chain.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) is_pointwise: bool,
    is_cast: bool,
    /// It is done once to a tensor.
    is_once: bool,
    /// What it works on may be another tensor than what stands beside it does: it computes nothing,
    /// or a few numbers.
    is_by_itself: bool,
}

/// By the id of a kernel's definition.
pub(super) fn links(definitions: &Definitions) -> HashMap<u32, Link> {
    let link = |name| Link {
        is_pointwise: is_pointwise(name),
        is_cast: is_cast(name),
        is_once: is_copy_or_fill(name) || is_of_rows(name),
        is_by_itself: is_cast(name) || is_copy_or_fill(name) || is_reduction(name),
    };
    definitions.kernels().map(|(id, _)| (id, link(definitions.kernel_name(id)))).collect()
}

/// Do kernels of so many threads work on tensors of different sizes? (One takes half as many of a
/// type half as wide. What is much smaller is made from the other: a mean of each row.)
fn is_other_tensor(one: f64, other: f64) -> bool {
    let times = other / one;
    let is_near = |of: f64| (times / of - 1.0).abs() < ALIKE;
    (0.4..2.5).contains(&times) && ![0.5, 1.0, 2.0].into_iter().any(is_near)
}

/// Looks for chains, kernel after kernel.
struct Search<'c, 'a> {
    case: &'c Case<'a>,
    sites: Sites<'a>,
    links: HashMap<u32, Link>,
    /// By the number of a line: another line, the first that was met in the same function.
    by_line: HashMap<u32, u32>,
    /// Those first ones, by file and function.
    functions: HashMap<(Box<str>, Box<str>), u32>,
    /// Of the chain so far, and its step.
    of: Option<(Of, Option<usize>)>,
    chain: Vec<Kernel>,
    /// The most threads that one of its kernels has.
    largest: f64,
    /// Its kernels (ids of definitions), each with its line.
    met: Vec<(u32, u32)>,
    found: Vec<(Kernel, u64)>,
}

impl<'c, 'a> Search<'c, 'a> {
    fn new(case: &'c Case<'a>) -> Search<'c, 'a> {
        Search {
            case,
            sites: Sites::new(case.run),
            links: links(&case.run.definitions),
            by_line: HashMap::new(),
            functions: HashMap::new(),
            of: None,
            chain: Vec::new(),
            largest: 0.0,
            met: Vec::new(),
            found: Vec::new(),
        }
    }

    fn next(&mut self, op: &Op) {
        let link = self.links.get(&op.a).filter(|link| op.kind == Kind::Kernel && link.is_pointwise).copied();
        let link = link.filter(|_| self.case.analysis.counts.measure(op.span()) > 0);
        let Some((link, (of, line))) = link.and_then(|link| Some((link, self.of(op)?))) else {
            return self.end();
        };
        let kernel = as_kernel(op);
        // (the same again is done to another tensor)
        let of = Some((of, self.case.step_of(op)));
        let again = self.met.iter().any(|met| met.0 == kernel.id && (met.1 == line || link.is_once));
        let numbers = self.numbers(op);
        if self.of != of || again || is_other_tensor(self.largest, numbers) {
            self.end();
        }
        self.of = of;
        self.largest = self.largest.max(numbers);
        self.met.push((kernel.id, line));
        self.chain.push(kernel);
    }

    /// On how many threads it runs, if it takes a tensor's numbers one by one; 0: not known.
    fn numbers(&self, op: &Op) -> f64 {
        let definitions = &self.case.run.definitions;
        let block = definitions.kernel(op.a).map_or(0, |k| k.block.iter().product::<u32>());
        let is_each = definitions.kernel_name(op.a).contains("elementwise_kernel");
        if is_each {
            f64::from(op.b) * f64::from(block)
        } else {
            0.0
        }
    }

    /// Function, module and pass of a kernel, and its line.
    fn of(&mut self, op: &Op) -> Option<(Of, u32)> {
        let run = self.case.run;
        let work = run.origin(op)?.work;
        let node = work.node.and_then(|node| run.definitions.string(node)).map_or("", type_name);
        if OF_WEIGHTS.contains(&node) {
            return None;
        }
        let line = self.sites.of_kernel(work.stack)?;
        let function = match self.by_line.get(&line) {
            Some(function) => *function,
            None => {
                let site = self.sites.get(line)?;
                let function = (site.path.clone().into(), site.function.clone().into());
                let function = *self.functions.entry(function).or_insert(line);
                self.by_line.insert(line, function);
                function
            }
        };
        let module = run.definitions.in_module(work.stack).map_or(0, |module| module.path);
        Some(((function, module, work.node.is_some()), line))
    }

    /// The chain is done. (Of nothing but casts, copies and sums it is none: they are of several
    /// tensors.)
    fn end(&mut self) {
        (self.of, self.largest) = (None, 0.0);
        let chain = std::mem::take(&mut self.chain);
        self.met.clear();
        let all = chain.iter().fold(0u64, |sum, kernel| sum.saturating_add(kernel.ns));
        let longest = chain.iter().map(|kernel| kernel.ns).max().unwrap_or(0);
        let links: Vec<Link> = chain.iter().filter_map(|k| self.links.get(&k.id)).copied().collect();
        if chain.len() < 2 || links.iter().all(|link| link.is_by_itself) || all < LEAST_NS {
            return;
        }
        let converts = links.iter().any(|link| link.is_cast);
        let rest = longest as f64 * if converts { NARROW } else { 1.0 } / all as f64;
        self.found.extend(chain.into_iter().map(|k| (k, (k.ns as f64 * rest) as u64)));
    }
}
