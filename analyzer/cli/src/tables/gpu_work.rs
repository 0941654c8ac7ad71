// SPDX-License-Identifier: Apache-2.0
//! The GPU's time by what of the program it was spent for: its line, and its module of PyTorch's.
//! Kernels, copies and memsets, each by the call that launched it, or that was captured as this
//! kernel of a CUDA graph: its line (`verdict::sites`), the
//! innermost module that was being called, PyTorch's outermost operator
//! (`verdict::run::operators`); those of a backward pass by the line and module of the forward pass
//! they belong to (`verdict::run::autograd`), and by the operator of their own.
//!
//! Of what has no such line it is told where it came from: the type of the autograd node, or the
//! thread.

use std::cmp::Reverse;
use std::hash::Hash;

use foldhash::{HashMap, HashMapExt};
use trace::define::InModule;
use verdict::run::autograd::{type_name, Origin};
use verdict::run::{Op, Span};
use verdict::sites::{calls_module, Site, Sites};

use super::groups::by_total;
use super::table::{number, part, percent_of, row, spare_text, text, Cell, Column, Row, TIME, TOTAL};
use super::{Report, Source};

const BACKWARD: Column = part("Backward", "backward_ns");
const INSTANCES: Column = number("Instances", "instances");
const FROM: Column = spare_text("From", "from");

pub(super) static BY_LINE: Report = Report {
    name: "gpu_lines",
    title: "GPU Time by Line",
    what: "kernels, copies and memsets by the line of the program that they were for; of them the backward pass's",
    needs: "GPU operations whose line is known (gapprobe records lines; torch.profiler: with_stack=True)",
    usual: false,
    shown: 0,
    columns: &[TIME, TOTAL, BACKWARD, INSTANCES, text("Line", "line"), FROM],
    rows: |source| {
        let mut sites = Sites::new(source.run);
        let shown = |sites: &Sites<'_>, site| row![sites.get(site).map(Site::to_string).as_deref()];
        rows(source, 1, &mut sites, |sites, done| sites.of_kernel(done.origin.work.stack), shown)
    },
    each: None,
};

pub(super) static BY_MODULE: Report = Report {
    name: "gpu_modules",
    title: "GPU Time by Module",
    what: "the same by the torch.nn.Module, named as by named_modules()",
    needs: "GPU operations whose module is known (gapprobe records modules)",
    usual: false,
    shown: 0,
    columns: &[
        TIME,
        TOTAL,
        BACKWARD,
        INSTANCES,
        text("Module", "module"),
        spare_text("Class", "class"),
        FROM,
    ],
    rows: |source| {
        let (run, d) = (source.run, &source.run.definitions);
        let is_in_module = |op: &Op| run.origin(op).is_some_and(|o| d.in_module(o.work.stack).is_some());
        if !source.ops().any(|(_, op)| is_in_module(op)) {
            return Vec::new();
        }
        let module = |sites: &mut Sites<'_>, done: Done<'_>| {
            let stack = done.origin.work.stack;
            match d.in_module(stack) {
                None if d.stack(stack).any(|f| calls_module(d, f)) => None,
                // (it has a line, and that is in no module)
                None => sites.of_kernel(stack).map(|_| None),
                found => Some(found),
            }
        };
        let shown = |_: &Sites<'_>, module: Option<InModule>| match module {
            Some(m) => row![d.string(m.path).unwrap_or(OUTERMOST), d.string(m.class)],
            None => row![OUTSIDE, None::<&str>],
        };
        rows(source, 2, &mut Sites::new(run), module, shown)
    },
    each: None,
};

pub(super) static BY_OPERATOR: Report = Report {
    name: "gpu_ops",
    title: "GPU Time by Operator",
    what: "the same by PyTorch's outermost operator",
    needs: "GPU operations of PyTorch's operators (torch.profiler: ProfilerActivity.CPU)",
    usual: false,
    shown: 0,
    columns: &[TIME, TOTAL, BACKWARD, INSTANCES, text("Operator", "operator"), FROM],
    rows: |source| {
        let run = source.run;
        let operator = |(): &mut (), d: Done<'_>| run.operator(d.origin, d.op).map(|o| o.name);
        rows(source, 1, &mut (), operator, |(), name| row![name])
    },
    each: None,
};

/// What has no line; what has one that is in no module; the path of the outermost module.
const UNATTRIBUTED: &str = "unattributed";
const OUTSIDE: &str = "outside of modules";
const OUTERMOST: &str = "(outermost)";

/// Whose work it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Owner<K> {
    Of(K),
    /// Nobody's: of a node of this type (string id; 0: not known).
    Node(u32),
    /// Nobody's: of a thread, by its index.
    Thread(usize),
    /// No call is known.
    Nobody,
}

/// An operation of the GPU's and what it goes back to.
#[derive(Clone, Copy)]
struct Done<'a> {
    op: &'a Op,
    origin: &'a Origin,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    total: u128,
    backward: u128,
    count: u64,
}

/// A line of the program, and what the GPU did for it.
pub(crate) struct LineTime {
    /// `None`: all that has no line.
    pub(crate) site: Option<Site>,
    /// Path of the module that most of it was for; `None`: none is known.
    pub(crate) module: Option<String>,
    /// Modules that it was for.
    pub(crate) modules: usize,
    /// Time of the operations, ns.
    pub(crate) ns: u64,
}

/// The GPU's time in `within` by line, most first, as the table of lines attributes it.
pub(crate) fn gpu_time_by_line(source: &Source<'_>, within: Span) -> Vec<LineTime> {
    let definitions = &source.run.definitions;
    let mut modules: HashMap<(u32, InModule), u128> = HashMap::new();
    let mut sites = Sites::new(source.run);
    let sums = sums(source, within, &mut (&mut sites, &mut modules), |(sites, modules), done| {
        let stack = done.origin.work.stack;
        let site = sites.of_kernel(stack)?;
        if let Some(module) = definitions.in_module(stack) {
            *modules.entry((site, module)).or_default() += u128::from(done.op.span().clip(within).ns());
        }
        Some(site)
    });
    let mut all: HashMap<Option<u32>, u128> = HashMap::new();
    for (owner, sum) in sums {
        let site = if let Owner::Of(site) = owner { Some(site) } else { None };
        *all.entry(site).or_default() += sum.total;
    }
    let path = |m: InModule| definitions.string(m.path).unwrap_or(OUTERMOST);
    let line = |(site, ns): (Option<u32>, u128)| {
        let of_site = || modules.iter().filter(|(key, _)| Some(key.0) == site);
        let most = of_site().max_by_key(|(key, ns)| (**ns, Reverse(path(key.1))));
        LineTime {
            site: site.and_then(|site| sites.get(site)).cloned(),
            module: most.map(|(key, _)| path(key.1).to_owned()),
            modules: of_site().count(),
            ns: u64::try_from(ns).unwrap_or(u64::MAX),
        }
    };
    let mut lines: Vec<LineTime> = all.into_iter().filter(|(_, ns)| *ns > 0).map(line).collect();
    lines.sort_by_cached_key(|l| (Reverse(l.ns), l.site.as_ref().map(Site::to_string)));
    lines
}

/// The time of operations in `within`, by `whose` they were.
fn sums<S, K: Copy + Eq + Hash>(
    source: &Source<'_>,
    within: Span,
    state: &mut S,
    whose: impl Fn(&mut S, Done<'_>) -> Option<K>,
) -> HashMap<Owner<K>, Sum> {
    let run = source.run;
    let mut sums: HashMap<Owner<K>, Sum> = HashMap::new();
    for (_, op) in source.ops() {
        let (mut owner, mut is_backward) = (Owner::Nobody, false);
        if let Some(origin) = &run.origin(op) {
            is_backward = origin.work.node.is_some();
            let is_named = |node: u32| !type_name(source.string(node)).is_empty();
            owner = match (whose(state, Done { op, origin }), origin.work.node, origin.launched) {
                (Some(of), ..) => Owner::Of(of),
                (None, Some(node), _) => Owner::Node(if is_named(node) { node } else { 0 }),
                (None, None, Some((thread, _))) => Owner::Thread(thread),
                (None, None, None) => Owner::Nobody,
            };
        }
        let (sum, ns) = (sums.entry(owner).or_default(), u128::from(op.span().clip(within).ns()));
        sum.total += ns;
        sum.backward += if is_backward { ns } else { 0 };
        sum.count += 1;
    }
    sums
}

/// The rows of a table with so many cells of whose it is: `whose` it was, and how those are
/// `shown`, by a state that both have.
fn rows<S, K: Copy + Eq + Hash>(
    source: &Source<'_>,
    named: usize,
    state: &mut S,
    whose: impl Fn(&mut S, Done<'_>) -> Option<K>,
    shown: impl Fn(&S, K) -> Row,
) -> Vec<Row> {
    let run = source.run;
    let sums = sums(source, Span::new(0, u64::MAX), state, whose);
    if !sums.keys().any(|owner| matches!(owner, Owner::Of(_))) {
        return Vec::new(); // (the trace does not tell: that is no table)
    }
    let all: u128 = sums.values().map(|s| s.total).sum();
    // (other recorders' traces do not say whose backward pass it is)
    let tells_backward = !run.foreign || run.threads.iter().any(|t| !t.backward.is_empty());
    let rows = sums.into_iter().map(|(owner, s)| {
        let head = row![percent_of(s.total, all), s.total, tells_backward.then_some(s.backward), s.count];
        let mut tail = match owner {
            Owner::Of(k) => shown(state, k),
            _ => row![UNATTRIBUTED],
        };
        tail.resize(named, Cell::Nothing);
        tail.push(from(source, owner).as_deref().into());
        (s.total, head, tail)
    });
    by_total(rows.collect())
}

/// Where work of nobody's came from.
fn from<K>(source: &Source<'_>, owner: Owner<K>) -> Option<String> {
    match owner {
        Owner::Node(kind) => Some(match type_name(source.string(kind)) {
            "" => "backward pass".to_owned(),
            node => node.to_owned(),
        }),
        Owner::Thread(thread) => {
            let thread = source.run.threads.get(thread)?;
            match source.string(thread.name) {
                "" => Some(format!("thread {}", thread.tid)),
                name if name.starts_with("thread ") => Some(name.to_owned()),
                name => Some(format!("thread {name}")),
            }
        }
        Owner::Of(_) | Owner::Nobody => None,
    }
}
