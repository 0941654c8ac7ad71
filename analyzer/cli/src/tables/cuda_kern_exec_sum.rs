// SPDX-License-Identifier: Apache-2.0
//! From launch to end, kernels by name: the launching call, the time in the queue, the kernel.
//!
//! ```text
//! API time    the call that launched it, begin to return              A...
//! queue time  from the call's return to the kernel's begin            Q...   only where it is positive: QCount
//! kernel time begin to end                                            K...
//! total       from the call's begin to its return or the kernel's end, whichever is later    T...
//! ```
//! Kernels whose launching call is not in the trace are not counted. A graph's kernels all have the
//! one launching call.

use foldhash::{HashMap, HashMapExt};
use trace::Kind;

use super::cuda_gpu_kern_sum::{CLASS, FLAGS, OCCUPANCY, REGISTERS, WAVES};
use super::groups::{by_total, Groups};
use super::occupancy::Filling;
use super::stats::Samples;
use super::table::{five, naming, ns, number, row, text, Cell, Row};
use super::{Report, Source};

pub(super) static REPORT: Report = Report {
    name: "cuda_kern_exec_sum",
    title: "CUDA Kernel Launch & Exec Time Summary",
    what: "kernels by name and launching call: API time, queue time, kernel time",
    needs: "kernels with their launching calls",
    usual: false,
    shown: 0,
    columns: &[
        number("PID", "pid"),
        number("TID", "tid"),
        naming("DevId", "device"),
        number("Count", "count"),
        number("QCount", "queue_count"),
        ns("TAvg", "total_avg_ns"),
        ns("TMed", "total_med_ns"),
        ns("TMin", "total_min_ns"),
        ns("TMax", "total_max_ns"),
        ns("TStdDev", "total_stddev_ns"),
        ns("AAvg", "api_avg_ns"),
        ns("AMed", "api_med_ns"),
        ns("AMin", "api_min_ns"),
        ns("AMax", "api_max_ns"),
        ns("AStdDev", "api_stddev_ns"),
        ns("QAvg", "queue_avg_ns"),
        ns("QMed", "queue_med_ns"),
        ns("QMin", "queue_min_ns"),
        ns("QMax", "queue_max_ns"),
        ns("QStdDev", "queue_stddev_ns"),
        ns("KAvg", "kernel_avg_ns"),
        ns("KMed", "kernel_med_ns"),
        ns("KMin", "kernel_min_ns"),
        ns("KMax", "kernel_max_ns"),
        ns("KStdDev", "kernel_stddev_ns"),
        text("API Name", "api_name"),
        text("Kernel Name", "kernel_name"),
        CLASS,
        WAVES,
        OCCUPANCY,
        REGISTERS,
        FLAGS,
    ],
    rows,
    each: None,
};

/// What a row is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    thread: usize,
    device: usize,
    call: &'a str,
    kernel: usize,
}

/// The parts that [`Groups`] does not hold.
#[derive(Default)]
struct Parts {
    api: Samples,
    queue: Samples,
    kernel: Samples,
    filling: Filling,
}

fn rows(source: &Source<'_>) -> Vec<Row> {
    let (run, kernels, fits) = (source.run, source.kernels(), source.fits());
    let mut names: HashMap<u32, &str> = HashMap::new();
    let mut groups = Groups::new();
    let mut parts: Vec<Parts> = Vec::new();
    for (device, op) in source.ops().filter(|(_, o)| o.kind == Kind::Kernel) {
        let Some((thread, call)) = run.call(op.call) else { continue };
        let name = *names.entry(call.packed).or_insert_with(|| run.call_name(call));
        let key = Key { thread, device, call: name, kernel: kernels.number(op.a) };
        let number = groups.add(key, call.end.max(op.end).saturating_sub(call.start));
        if number == parts.len() {
            parts.push(Parts::default());
        }
        let Some(p) = parts.get_mut(number) else { continue };
        p.api.push(call.span().ns());
        p.kernel.push(op.span().ns());
        if op.start > call.end {
            p.queue.push(op.start - call.end);
        }
        p.filling.add(fits, device, op);
    }
    let rows = groups
        .stats()
        .into_iter()
        .zip(parts)
        .map(|((key, total), p)| {
            let tid = run.threads.get(key.thread).map(|t| t.tid);
            let device = run.devices.get(key.device).map(|d| d.ordinal);
            let mut head = row![source.pid(), tid, device, total.count, p.queue.len()];
            head.extend(five(&total));
            for samples in [p.api, p.queue, p.kernel] {
                head.extend(samples.stats().map_or([const { Cell::Nothing }; 5], |s| five(&s)));
            }
            let mut tail = row![key.call];
            tail.extend(kernels.cells(key.kernel));
            tail.extend(p.filling.cells());
            (total.total, head, tail)
        })
        .collect();
    by_total(rows)
}
