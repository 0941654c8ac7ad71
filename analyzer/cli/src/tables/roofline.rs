// SPDX-License-Identifier: Apache-2.0
//! Operators, or kernels, against the peaks of their device: an estimate (`crate::roofline`).
//!
//! ```text
//! Time        Total Time in the time of all kernels, copies and memsets
//! Total Time  of those it launched itself; copies from and to the host are not told
//! Of Peak     the shortest time that the device could take for it, in Total Time: above 100 % where
//!             it needs less than was counted (convolutions by transforms, what a cache still has)
//! Limit       what that time is of: memory, tensor cores, FP32 pipe
//! ```
//! What has no estimate is one row. Of products in float32 the kernels of the trace say whether
//! they run in TF32; where some do and some do not, no limit is told.

use foldhash::{HashMap, HashMapExt};
use formats::vendors::{self, Vendor};
use trace::Kind;
use verdict::analysis::peaks::{self, Peaks};
use verdict::causes::kernel_names::{is_fp32_product, is_tf32};

use super::groups::by_total;
use super::operators::operators;
use super::table::{number, percent, percent_of, row, spare_text, text, Cell, Column, Row, TIME, TOTAL};
use super::{Report, Source};
use crate::roofline::inputs::Inputs;
use crate::roofline::{kernels, operators::work, Pipe, Roof, Work};

const FLOPS: Column = number("TFLOP/s", "tflop_per_s");
const BYTES: Column = number("GB/s", "gb_per_s");
const INTENSITY: Column = number("FLOP/Byte", "flop_per_byte");

pub(super) static REPORT: Report = Report {
    name: "roofline",
    title: "Roofline (Estimate)",
    what: "what operators or kernels compute and move at least, against the device's peaks: an estimate",
    needs: "operators with shapes (torch.profiler: record_shapes=True), or PyTorch's elementwise kernels on CUDA, at least one of them in 16 bits",
    usual: false,
    shown: 50,
    columns: &[
        TIME,
        TOTAL,
        number("Instances", "instances"),
        FLOPS,
        BYTES,
        INTENSITY,
        percent("Of Peak", "of_peak_pct"),
        text("Limit", "limit"),
        text("Name", "name"),
        spare_text("Input Shapes", "shapes"),
    ],
    rows,
    each: None,
};

#[derive(Clone, Copy, Default)]
struct Sum {
    ns: u128,
    count: u64,
    work: Work,
    pipe: Pipe,
}

/// By name, and shapes and types or none.
type Sums<'s> = HashMap<(std::borrow::Cow<'s, str>, u32, u32), Sum>;

fn rows(source: &Source<'_>) -> Vec<Row> {
    let sums = if source.operators.inputs.is_empty() { of_kernels(source) } else { of_operators(source) };
    let all: u128 = source.ops().map(|(_, op)| u128::from(op.span().ns())).sum();
    let at_work = source.run.devices.iter().filter(|d| d.streams.iter().any(|s| !s.ops.is_empty()));
    let mut devices = at_work.map(|d| peaks::of_device(source.string(d.info.name)));
    // (which of several kinds of devices did the work is not known)
    let peaks = devices.next().flatten().filter(|first| devices.all(|d| d == Some(*first)));
    // (what would not fit is not what was there: a sparse matrix)
    let memory = source.run.devices.iter().map(|d| d.info.memory).max().filter(|&b| b > 0);
    let fits = |s: &Sum| memory.is_none_or(|most| s.work.bytes <= most as f64 * s.count as f64);
    let is_known = |s: &Sum| fits(s) && s.ns > 0 && s.work.flops.is_finite() && s.work.bytes.is_finite();
    let rows = sums.into_iter().filter(|(_, s)| is_known(s)).map(|((name, shapes, _), s)| {
        let a_second = |of: f64, unit: f64| of / (s.ns as f64 * 1e-9) / unit;
        let (of_peak, limit) = peaks.and_then(|p| limit(&s, p)).unzip();
        let is_product = s.work.flops > 0.0;
        let head = row![
            percent_of(s.ns, all),
            s.ns,
            s.count,
            is_product.then(|| a_second(s.work.flops, 1e12)),
            a_second(s.work.bytes, 1e9),
            is_product.then(|| s.work.flops / s.work.bytes),
            of_peak,
        ];
        let shapes = Some(source.string(shapes)).filter(|s| !s.is_empty());
        (s.ns, head, row![limit, &*name, shapes])
    });
    let mut rows: Vec<(u128, Row, Row)> = rows.collect();
    let rest = all.saturating_sub(rows.iter().map(|r| r.0).sum());
    if rest > 0 && !rows.is_empty() {
        let mut head = row![percent_of(rest, all), rest];
        head.resize(HEAD, Cell::Nothing);
        rows.push((rest, head, row![None::<&str>, NOT_ESTIMATED, None::<&str>]));
    }
    by_total(rows)
}

/// Columns in front of the limit; the name of what has no estimate.
const HEAD: usize = 7;
const NOT_ESTIMATED: &str = "(not estimated)";

/// Its shortest time in the one it took, percent, and what that is of.
fn limit(s: &Sum, peaks: Peaks) -> Option<(f64, &'static str)> {
    let (ns, is_memory) = Roof::of(s.work, s.pipe, peaks).limit()?;
    let limit = match s.pipe {
        _ if is_memory => "memory",
        Pipe::Fp32 => "FP32 pipe",
        Pipe::Tensor16 | Pipe::Tf32 => "tensor cores",
        Pipe::Unknown => return None,
    };
    Some((100.0 * ns / s.ns as f64, limit))
}

fn of_operators<'s>(source: &Source<'s>) -> Sums<'s> {
    let pipe_of_32_bits = pipe_of_32_bits(source);
    // by name and inputs
    let mut known = HashMap::new();
    let mut sums = Sums::new();
    operators(source, |o| {
        if o.own.gpu == 0 || o.own.copies > 0 || o.what.is_named {
            return;
        }
        let inputs = [o.what.shapes, o.what.types, o.what.values];
        let of = known.entry((o.what.name, inputs)).or_insert_with(|| {
            let [shapes, types, values] = inputs.map(|id| source.string(id));
            work(o.what.name, &Inputs::new(shapes, types, values)?)
        });
        let Some((work, pipe)) = *of else { return };
        let sum = sums.entry((o.what.name.into(), o.what.shapes, o.what.types)).or_default();
        sum.ns += o.own.gpu;
        sum.count += 1;
        sum.work += work;
        sum.pipe = if pipe == Pipe::Tf32 { pipe_of_32_bits } else { pipe };
    });
    sums
}

/// On what products of float32 run.
fn pipe_of_32_bits(source: &Source<'_>) -> Pipe {
    let (mut tf32, mut fp32) = (false, false);
    for (_, kernel) in source.run.definitions.kernels() {
        let name = source.run.definitions.string(kernel.name).unwrap_or("");
        tf32 |= is_tf32(name);
        fp32 |= is_fp32_product(name);
    }
    match (tf32, fp32) {
        (true, false) => Pipe::Tf32,
        (false, true) => Pipe::Fp32,
        _ => Pipe::Unknown,
    }
}

fn of_kernels<'s>(source: &'s Source<'_>) -> Sums<'s> {
    let definitions = &source.run.definitions;
    let mut sums = Sums::new();
    // (for ROCm PyTorch has other grids)
    if vendors::of(source.run) != Vendor::Nvidia {
        return sums;
    }
    let names = definitions.kernels().map(|(id, _)| definitions.kernel_name(id));
    let Some(release) = kernels::Release::of(names) else { return sums };
    for (_, op) in source.ops().filter(|(_, op)| op.kind == Kind::Kernel) {
        let Some(kernel) = definitions.kernel(op.a) else { continue };
        let threads = kernel.block.iter().map(|&n| u64::from(n)).product();
        let work = kernels::work(definitions.kernel_name(op.a), release, u64::from(op.b), threads);
        let Some(work) = work.filter(|_| op.b > 0) else { continue };
        let sum = sums.entry((source.operation(op), 0, 0)).or_default();
        sum.ns += u128::from(op.span().ns());
        sum.count += 1;
        sum.work += work;
    }
    sums
}
