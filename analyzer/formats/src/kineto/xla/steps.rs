// SPDX-License-Identifier: Apache-2.0
//! Steps of XLA's profiles: annotated by the program (`StepTraceAnnotation`: `step_num`), else each
//! execution of the module that takes most of the time, as its lane or the host tells, or by its
//! kernels.

use std::collections::HashMap;

use verdict::steps::MIN_STEPS;

use super::super::part::{Part, RawMark, ThreadKey};
use super::{Execution, Launched, Whole};

/// The module whose executions are steps takes at least this part of what all take.
const MAJORITY: f64 = 0.5;
/// So many of its executions have a launch that tells when the host began them.
const NEARLY_ALL: f64 = 0.9;

/// Steps as marks of the host, in the first part.
pub(super) fn mark_steps(parts: &mut [Part], whole: Whole) {
    let Some(part) = parts.first_mut() else { return };
    let marks = annotated(&whole.annotated)
        .or_else(|| by_device(&whole))
        .or_else(|| by_host(&whole))
        .or_else(|| by_kernels(&whole))
        .unwrap_or_default();
    for (e, number) in marks {
        let thread = part.threads.number(e.key);
        part.marks.push(RawMark { start: e.start, end: e.end, thread, number, flags: 0 });
    }
}

type Marks = Vec<(Execution, u32)>;

fn annotated(of: &[(Execution, u32)]) -> Option<Marks> {
    let mut marks = of.to_vec();
    marks.sort_by_key(|m| m.0.start);
    marks.dedup_by_key(|m| m.1);
    (!marks.is_empty()).then_some(marks)
}

/// Executions of the one module that takes most of the time, by the lane of a device: from the
/// first launch of each to its last.
fn by_device(whole: &Whole) -> Option<Marks> {
    let (&device, lane) =
        whole.on_device.iter().max_by_key(|(device, of)| (of.len(), u32::MAX - **device))?;
    let mut taken: HashMap<u64, i64> = HashMap::new();
    for e in lane {
        *taken.entry(e.module).or_default() += e.end - e.start;
    }
    let steps = main_module(&taken, lane)?;
    let of = whole.ops.iter().filter(|o| o.device == device);
    let mut ops: Vec<(i64, u32)> = of.map(|o| (o.start, o.correlation)).collect();
    ops.sort_unstable();
    let marks: Marks = steps
        .iter()
        .zip(0..)
        .filter_map(|(e, number)| {
            let from = ops.partition_point(|o| o.0 < e.start);
            let inside = ops.get(from..)?.iter().take_while(|o| o.0 < e.end);
            let mut calls = inside.filter_map(|o| whole.calls.get(&o.1));
            let &(key, start, end) = calls.next()?;
            let end = calls.filter(|c| c.0 == key).map(|c| c.2).fold(end, i64::max);
            Some((Execution { start, end, key, module: e.module }, number))
        })
        .collect();
    (marks.len() as f64 >= steps.len() as f64 * NEARLY_ALL && marks.len() >= MIN_STEPS).then_some(marks)
}

/// The same by what the host says of executions.
fn by_host(whole: &Whole) -> Option<Marks> {
    let mut found = whole.on_host.iter().filter(|of| of.len() >= MIN_STEPS);
    let of = found.next()?;
    let known = of.iter().any(|e| whole.taken.contains_key(&e.module));
    let mut taken: HashMap<u64, i64> = HashMap::new();
    for e in of {
        let ns = if known { whole.taken.get(&e.module).copied().unwrap_or(0) } else { e.end - e.start };
        let sum = taken.entry(e.module).or_default();
        *sum = if known { ns } else { *sum + ns };
    }
    let steps = main_module(&taken, of)?;
    // several devices are begun by a thread each: one of them tells
    let mut threads: HashMap<ThreadKey, usize> = HashMap::new();
    steps.iter().for_each(|e| *threads.entry(e.key).or_default() += 1);
    let (&key, _) = threads.iter().max_by_key(|(key, n)| (**n, std::cmp::Reverse(**key)))?;
    let marks: Marks = steps.into_iter().filter(|e| e.key == key).zip(0..).collect();
    (marks.len() >= MIN_STEPS).then_some(marks)
}

/// The same where only kernels say of what module they are: each execution of it launches the same
/// ones in the same order.
fn by_kernels(whole: &Whole) -> Option<Marks> {
    let all: i64 = whole.taken.values().sum();
    let (&module, &most) = whole.taken.iter().max_by_key(|(module, ns)| (**ns, **module))?;
    if module == 0 || (most as f64) < all as f64 * MAJORITY {
        return None;
    }
    let of_module = || whole.ops.iter().filter(|o| o.module == module);
    let device = of_module().map(|o| o.device).min()?;
    let mut ops: Vec<Launched> = of_module().filter(|o| o.device == device).copied().collect();
    ops.sort_by_key(|o| o.start);
    let period = period(&ops.iter().map(|o| o.title).collect::<Vec<u64>>())?;
    let first = ops.chunks(period).filter(|c| c.len() == period).zip(0..);
    let marks: Marks = first
        .filter_map(|(execution, number)| {
            let call = |o: &Launched| whole.calls.get(&o.correlation).copied();
            let (key, start, end) = call(execution.first()?)?;
            let calls = execution.iter().filter_map(call).filter(|c| c.0 == key);
            let end = calls.map(|c| c.2).fold(end, i64::max);
            Some((Execution { start, end, key, module }, number))
        })
        .collect();
    (marks.len() >= MIN_STEPS).then_some(marks)
}

/// After how many names the same ones come again, nearly all of them; three times at least.
fn period(names: &[u64]) -> Option<usize> {
    /// Places where the first name comes again that are tried.
    const TRIED: usize = 64;
    let first = names.first()?;
    let again = (1..=names.len() / MIN_STEPS).filter(|&p| names.get(p) == Some(first)).take(TRIED);
    again.into_iter().find(|&p| {
        let rest = names.get(p..).unwrap_or(&[]);
        let same = rest.iter().zip(names).filter(|(a, b)| a == b).count();
        same as f64 >= rest.len() as f64 * NEARLY_ALL
    })
}

/// The executions, by begin, of the module that takes most, where it takes enough.
fn main_module(taken: &HashMap<u64, i64>, of: &[Execution]) -> Option<Vec<Execution>> {
    let all: i64 = taken.values().sum();
    let (&module, &most) = taken.iter().max_by_key(|(module, ns)| (**ns, **module))?;
    let mut steps: Vec<Execution> = of.iter().filter(|e| e.module == module).copied().collect();
    steps.sort_by_key(|e| e.start);
    (most as f64 >= all as f64 * MAJORITY && steps.len() >= MIN_STEPS).then_some(steps)
}
