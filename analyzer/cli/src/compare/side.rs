// SPDX-License-Identifier: Apache-2.0
//! One of the two runs: its steps by bucket, its kernels by name. Facts only.

use std::collections::HashMap;

use formats::{Format, Input};
use trace::Kind;
use verdict::analysis::{working, Analysis, Bucket, Buckets, Step, StepSource};
use verdict::output::line;
use verdict::run::{Op, Run, Stream};
use verdict::text::kernel_name::{demangled, shortened};
use verdict::timeline::kernels::{KernelFacts, KernelTable};

use crate::tables::steps::parts;

use super::noise::{estimate, mean, median, Estimate};

/// A run as it is compared.
#[derive(Debug)]
pub struct Side<'a> {
    /// How reports call it: its file.
    pub name: String,
    /// What the file is.
    pub format: Format,
    /// The facts.
    pub run: &'a Run,
    /// What was found in them.
    pub analysis: &'a Analysis,
    /// Index of the device whose time is compared.
    pub device: Option<usize>,
    /// The steps that count (warm-up left out), in order of time.
    pub steps: Vec<StepTime>,
    /// Kernels of the device in those steps (without steps: in the steady span), by name.
    pub kernels: HashMap<String, Kernels>,
    /// The same of all devices together.
    pub all_kernels: HashMap<String, Kernels>,
    /// Copied from the host to all devices, bytes a step that counts; 0 without steps.
    pub bytes_from_host: f64,
}

/// One step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTime {
    /// All of it, ns.
    pub ns: u64,
    /// What was observed of it, by bucket, ns.
    pub buckets: Buckets,
}

/// All launches of one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kernels {
    /// How many.
    pub count: u64,
    /// Sum of their durations, ns.
    pub ns: u64,
    /// Sum of the blocks of their grids; 0 where the trace does not tell.
    pub blocks: u64,
    /// Moves data between ranks.
    pub collective: bool,
}

/// The devices to compare: the one that A's line is about, and the same one of B where it works
/// there too.
pub fn devices(a: &Analysis, b: &Analysis) -> (Option<usize>, Option<usize>) {
    let ordinal = a.worst.and_then(|w| a.devices.get(w)).map(|d| d.ordinal);
    let same = working(&b.devices).find(|(_, d)| Some(d.ordinal) == ordinal);
    (a.worst, same.map(|(i, _)| i).or(b.worst))
}

impl<'a> Side<'a> {
    /// Takes a run apart. Linear in its operations.
    pub fn new(name: &str, input: &'a Input, analysis: &'a Analysis, device: Option<usize>) -> Side<'a> {
        let run = &input.run;
        let facts = KernelTable::new(run);
        let all = device.map(|d| parts(run, analysis, d, &facts.collectives())).unwrap_or_default();
        let steps = analysis.steps.steps.iter().zip(all).skip(analysis.steps.warm_up);
        let steps: Vec<_> = steps.map(|(s, p)| StepTime { ns: s.span.ns(), buckets: p.buckets }).collect();
        let streams = |d: usize| run.devices.get(d).map_or(&[][..], |d| &d.streams);
        let of_device = device.map(|d| kernels(run, analysis, streams(d), &facts)).unwrap_or_default();
        let all_kernels = match run.devices.len() {
            1 => of_device.clone(),
            _ => kernels(run, analysis, run.devices.iter().flat_map(|d| &d.streams), &facts),
        };
        let bytes_from_host = match steps.len() {
            0 => 0.0,
            n => bytes_from_host(run, analysis) as f64 / n as f64,
        };
        let (name, format) = (name.to_owned(), input.format);
        let kernels = of_device;
        Side { name, format, run, analysis, device, steps, kernels, all_kernels, bytes_from_host }
    }

    /// Mean step, ns.
    pub fn mean(&self) -> Estimate {
        self.estimate(|s| s.ns, mean)
    }

    /// Median step, ns.
    pub fn median(&self) -> Estimate {
        self.estimate(|s| s.ns, median)
    }

    /// Mean of one bucket, ns a step.
    pub fn bucket(&self, bucket: Bucket) -> Estimate {
        self.estimate(|s| s.buckets.get(bucket), mean)
    }

    /// Mean of what was not observed of the steps, ns.
    pub fn not_seen(&self) -> Estimate {
        self.estimate(|s| s.ns.saturating_sub(s.buckets.total()), mean)
    }

    fn estimate(&self, of: impl Fn(&StepTime) -> u64, figure: fn(&[f64]) -> f64) -> Estimate {
        let values: Vec<f64> = self.steps.iter().map(|s| of(s) as f64).collect();
        estimate(&values, figure)
    }

    /// Share of the observed time that a bucket is, 0 to 1: of the steps, or without steps of the
    /// steady time.
    pub fn share(&self, bucket: Bucket) -> f64 {
        self.time().share(bucket)
    }

    /// Share of it in which the device runs nothing, 0 to 1.
    pub fn idle(&self) -> f64 {
        let time = self.time();
        verdict::analysis::share(time.idle(), time.total())
    }

    fn time(&self) -> Buckets {
        if self.steps.is_empty() {
            return self
                .device
                .and_then(|d| self.analysis.devices.get(d))
                .map(|d| d.buckets)
                .unwrap_or_default();
        }
        let mut all = Buckets::default();
        for bucket in Bucket::ALL {
            all.add(bucket, self.steps.iter().map(|s| s.buckets.get(bucket)).sum());
        }
        all
    }

    /// The device's name, "" where the trace does not tell.
    pub fn gpu(&self) -> &str {
        let info = self.device.and_then(|d| self.run.devices.get(d)).map(|d| d.info);
        info.and_then(|i| self.run.definitions.string(i.name)).unwrap_or("")
    }

    /// GPUs that the job ran on, and how that is known: the launcher's world size, else the devices
    /// that work in the trace.
    pub fn gpus(&self) -> (u32, &'static str) {
        match self.run.header.world_size {
            0 => (self.working(), "devices in the trace"),
            world => (world, "world size"),
        }
    }

    /// What little was lost, in words, where the verdict stands all the same.
    pub fn lost(&self) -> Option<String> {
        let (run, a) = (self.run, self.analysis);
        let lost = a.data_losses > 0 || run.uncalled.calls > 0;
        (lost && a.verdict.inconclusive.is_none()).then(|| format!("losses {}", line::losses(run, a)))
    }

    /// The trace holds the whole run: what does not occur in it did not occur.
    pub fn whole(&self) -> bool {
        let (run, a) = (self.run, self.analysis);
        a.data_losses == 0
            && run.uncalled.calls == 0
            && run.missing.is_empty()
            && !a.coverage.overwritten
            && run.left_out == 0
            && run.problems.cut_segments == 0
    }

    /// Kernels a step on all devices; without steps in all.
    pub fn kernels_a_step(&self) -> f64 {
        let all: u64 = self.all_kernels.values().map(|k| k.count).sum();
        all as f64 / self.steps.len().max(1) as f64
    }

    /// Devices that work in the trace.
    pub fn working(&self) -> u32 {
        working(&self.analysis.devices).count() as u32
    }
}

/// [`trace::event::Copy::direction`]: from host to device.
const FROM_HOST: u8 = 1;
/// From host to a device's array (texture memory).
const FROM_HOST_TO_ARRAY: u8 = 3;

/// A name that was cut is cut here, characters: its end depends on how long the numbers in front of
/// it are.
const CUT: usize = 60;

/// Words in front of the digits of a type's width: `f16`, `bf16`, `tf32`, `int8_t`, `BFloat16`.
const TYPES: [&str; 13] =
    ["f", "bf", "tf", "fp", "s", "u", "i", "b", "int", "uint", "float", "bfloat", "ufloat"];
/// Words of which 4 is a vector's length (`float4`), not a width.
const VECTORS: [&str; 3] = ["int", "uint", "float"];

/// A word and the digits behind it name a type: that kernels compute in another one is no choice of
/// tiles. `tail`: what follows the digits; `e4` of `e4m3` is known by its `m`, and that by the `e4`
/// in front (`in_float`).
fn is_type(word: &str, digits: &str, tail: &str, in_float: bool) -> bool {
    let word = word.to_ascii_lowercase();
    match (word.as_str(), digits) {
        ("e" | "ue", _) => tail.starts_with(['m', 'M']),
        ("m", _) => in_float,
        (word, "4") if VECTORS.contains(&word) => false,
        (word, "1" | "4" | "8" | "16" | "32" | "64") => TYPES.contains(&word),
        _ => false,
    }
}

/// A kernel's name for the comparison: short, as in our traces, with `#` for each run of digits, so
/// that tile sizes and vector widths that a library picks anew each time do not make another kernel
/// of it. Types keep theirs.
pub fn base_name(name: &str) -> String {
    let short = shortened(&demangled(name));
    let mut folded = String::with_capacity(short.len());
    let (mut rest, mut in_float) = (short.as_str(), false);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, behind) = rest.split_at(at);
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (digits, tail) = behind.split_at(end);
        let word = before.rfind(|c: char| !c.is_ascii_alphabetic()).map_or(before, |i| {
            let next = before.get(i..).and_then(|b| b.chars().next()).map_or(0, char::len_utf8);
            before.get(i + next..).unwrap_or("")
        });
        let kept = is_type(word, digits, tail, in_float);
        in_float = kept && word.to_ascii_lowercase().ends_with('e');
        folded.push_str(before);
        folded.push_str(if kept { digits } else { "#" });
        rest = tail;
    }
    folded.push_str(rest);
    if !folded.ends_with('…') {
        return folded;
    }
    folded.chars().take(CUT).chain(['…']).collect()
}

fn kernels<'a>(
    run: &Run,
    analysis: &Analysis,
    streams: impl IntoIterator<Item = &'a Stream>,
    facts: &KernelTable,
) -> HashMap<String, Kernels> {
    let mut by_id: HashMap<u32, Kernels> = HashMap::new();
    let ops = streams.into_iter().flat_map(|s| &s.ops).filter(|o| o.kind == Kind::Kernel);
    for op in ops.filter(|o| counts(run, analysis, o)) {
        let kernels = by_id.entry(op.a).or_default();
        kernels.count += 1;
        kernels.ns += op.span().ns();
        kernels.blocks += u64::from(op.b);
    }
    let mut by_name: HashMap<String, Kernels> = HashMap::new();
    for (id, of_id) in by_id {
        let KernelFacts { collective, .. } = facts.get(id);
        let sum = by_name.entry(base_name(run.definitions.kernel_name(id))).or_default();
        sum.count += of_id.count;
        sum.ns += of_id.ns;
        sum.blocks += of_id.blocks;
        sum.collective |= collective;
    }
    by_name
}

/// What the steps that count got from the host.
fn bytes_from_host(run: &Run, analysis: &Analysis) -> u64 {
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let copies = ops.filter(|o| matches!(o.copy().direction, FROM_HOST | FROM_HOST_TO_ARRAY));
    copies.filter(|o| counts(run, analysis, o)).map(Op::bytes).fold(0, u64::saturating_add)
}

/// An operation of the steps that count.
fn counts(run: &Run, analysis: &Analysis, op: &Op) -> bool {
    match analysis.steps.source {
        StepSource::None => analysis.counts.contains(op.start),
        _ => step_of(run, analysis, op).is_some(),
    }
}

/// Which of the steps that count an operation belongs to. Marks and ranges are set on the host:
/// there the launch decides, for work beside the steps may run in later ones than its own.
fn step_of(run: &Run, analysis: &Analysis, op: &Op) -> Option<usize> {
    let steps = analysis.steps.steady();
    let launch = || run.call(op.call).map(|(_, call)| call.start);
    let at = match analysis.steps.source {
        StepSource::Marks | StepSource::Ranges => launch(),
        StepSource::Period | StepSource::None => None,
    };
    let span = |s: &Step| if at.is_some() { s.host } else { s.span };
    let at = at.unwrap_or(op.start);
    let index = steps.partition_point(|s| span(s).start <= at).checked_sub(1)?;
    steps.get(index).filter(|s| at < span(s).end).map(|_| index)
}

#[cfg(test)]
mod tests {
    use super::base_name;

    #[test]
    fn variants_of_a_kernel_have_one_name_and_other_kernels_another() {
        let gemm = base_name("sm80_xmma_gemm_bf16_128x64_tn");
        assert_eq!(gemm, "sm#_xmma_gemm_bf16_#x#_tn");
        assert_eq!(gemm, base_name("sm90_xmma_gemm_bf16_256x128_tn"));
        assert_ne!(gemm, base_name("sm80_xmma_gemm_bf16_128x64_nn"));
        // a type is no tile size
        for (one, other) in [
            ("sm90_gemm_f16_128x128", "sm90_gemm_f32_128x128"),
            ("gemm_bf16f32_tn", "gemm_bf16bf16_tn"),
            ("conv_int8_nhwc", "conv_int4_nhwc"),
            ("attention_fp8_e4m3", "attention_fp8_e5m2"),
            ("xmma_gemm_e4m3_tn", "xmma_gemm_e5m2_tn"),
            ("gemm_s8_tn", "gemm_u8_tn"),
            ("cutlass::gemm<cutlass::float_e4m3_t>", "cutlass::gemm<cutlass::float_e5m2_t>"),
            ("gemm_tf32f32_tn", "gemm_f32f32_tn"),
        ] {
            assert_ne!(base_name(one), base_name(other));
        }
        let of = |width, functor: &str| {
            base_name(&format!(
                "void at::native::vectorized_elementwise_kernel<{width}, at::native::{functor}<float> >(int)"
            ))
        };
        assert_eq!(of(4, "AddFunctor"), "vectorized_elementwise_kernel<#, AddFunctor<float>>");
        assert_eq!(of(4, "AddFunctor"), of(16, "AddFunctor"));
        assert_ne!(of(4, "AddFunctor"), of(4, "MulFunctor"));
        // namespaces with numbers in them, names that are cut, and names that a trace has short
        // already
        let long = |width| {
            format!(
                "void c10::run<c10::BFloat16, {width}, {}>(c10::BFloat16*, int)",
                "c10::Half, ".repeat(20)
            )
        };
        assert!(base_name(&long(4)).starts_with("run<BFloat16, #, Half, Half"), "{}", base_name(&long(4)));
        assert_eq!(base_name(&long(4)), base_name(&long(1024)));
        for whole in [long(4), "void a::add<2, float>(int)".to_owned()] {
            assert_eq!(base_name(&verdict::text::kernel_name::shortened(&whole)), base_name(&whole));
        }
    }
}
