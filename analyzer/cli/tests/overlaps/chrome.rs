// SPDX-License-Identifier: Apache-2.0
//! Operations as torch.profiler's JSON, in all the ways in which it was ever written.

use std::fmt::Write;

use proptest::prelude::*;
use trace::Kind;

use super::Work;

/// How a trace is written.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// A bare list of events, not an object with one in it.
    array: bool,
    /// The trace's time of the work's time 0, ns.
    zero: u64,
    /// `baseTimeNanoseconds`, where it is told.
    base: Option<u64>,
    /// How times stand in the text.
    numbers: Numbers,
    /// Categories as before PyTorch 1.9, streams as texts, no ids of devices but the process's.
    old: bool,
    /// Events of other kinds between the operations.
    others: bool,
    /// Bytes of a block that one thread reads.
    pub(crate) block: usize,
}

#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// `4337620158978.646`, `12.000`.
    Three,
    /// `12.5`, `12`.
    Shortest,
    /// `1.2345e4`.
    Exponent,
    /// `"12.5"`.
    Quoted,
}

pub(crate) fn form() -> impl Strategy<Value = Form> {
    let numbers = [Numbers::Three, Numbers::Shortest, Numbers::Exponent, Numbers::Quoted];
    // from the trace's begin; since the machine was started; since 1970; whatever fits
    let zero = [0, 4_337_620_158_978_646, 1_795_000_000_123_456_789, i64::MAX as u64 - 5_000_000];
    let base = [None, Some(0), Some(1_795_000_000_000_000_000)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let select = (
        proptest::sample::select(numbers.to_vec()),
        proptest::sample::select(zero.to_vec()),
        proptest::sample::select(base.to_vec()),
        proptest::sample::select(vec![usize::MAX, 1, 300, 2_000]),
    );
    (select, flags).prop_map(|((numbers, zero, base, block), (array, old, others))| Form {
        array,
        zero,
        base,
        numbers,
        old,
        others,
        block,
    })
}

/// Nanoseconds as microseconds.
fn time(ns: u64, numbers: Numbers) -> String {
    let three = format!("{}.{:03}", ns / 1000, ns % 1000);
    let shortest = three.trim_end_matches('0').trim_end_matches('.');
    match numbers {
        Numbers::Three => three,
        Numbers::Shortest => shortest.to_owned(),
        Numbers::Quoted => format!("\"{shortest}\""),
        Numbers::Exponent => {
            let digits = ns.to_string();
            let (first, rest) = digits.split_at(1);
            let power = digits.len() as i32 - 1 - 3;
            format!("{first}.{rest}0e{power}")
        }
    }
}

/// The text of a trace with this work in this order.
pub(crate) fn text(work: &[Work], form: &Form) -> String {
    let mut events: Vec<String> = Vec::new();
    for (w, n) in work.iter().zip(1..) {
        events.push(event(w, n, form));
        if form.others {
            events.push(other(w, n, form));
        }
    }
    let list = format!("[\n{}\n]", events.join(",\n"));
    match (form.array, form.base) {
        (true, _) => list,
        (false, None) => format!("{{\"schemaVersion\": 1, \"traceEvents\": {list}}}"),
        // in front of the events or behind them
        (false, Some(base)) if work.len() % 2 == 0 => {
            format!("{{\"baseTimeNanoseconds\": {base}, \"traceEvents\": {list}}}")
        }
        (false, Some(base)) => {
            format!("{{\"traceEvents\": {list}, \"traceName\": \"a\", \"baseTimeNanoseconds\": {base}}}")
        }
    }
}

fn event(w: &Work, correlation: usize, form: &Form) -> String {
    let category = match (w.what, form.old) {
        (Kind::Kernel, false) => "kernel",
        (Kind::Kernel, true) => "Kernel",
        (Kind::Memcpy, false) => "gpu_memcpy",
        (Kind::Memcpy, true) => "Memcpy",
        (_, false) => "gpu_memset",
        (_, true) => "Memset",
    };
    let Work { device, stream, .. } = w;
    let mut out = String::from("{\"ph\": \"X\", ");
    let _ = match form.old {
        true => write!(out, "\"pid\": {device}, \"tid\": \"stream {stream}\", "),
        false => write!(out, "\"pid\": {device}, \"tid\": {stream}, "),
    };
    let _ = write!(out, "\"cat\": \"{category}\", \"name\": \"k\\\"{correlation}\", ");
    let _ = write!(out, "\"ts\": {}, ", time(form.zero + w.start, form.numbers));
    // also where it is 0: no trace known leaves it out, and what has none is a loss
    // (tests/kineto.rs)
    let _ = write!(out, "\"dur\": {}, ", time(w.end - w.start, form.numbers));
    let ids = match form.old {
        true => String::new(),
        false => format!("\"device\": {device}, \"context\": 1, \"stream\": {stream}, "),
    };
    let _ = write!(out, "\"args\": {{{ids}\"correlation\": {correlation}}}}}");
    out
}

/// What stands between operations and is none: an operator, an arrow, a counter, a mark, a name.
fn other(w: &Work, n: usize, form: &Form) -> String {
    let (ts, dur) = (time(form.zero + w.start, form.numbers), time(900_000, form.numbers));
    let head = format!("{{\"ph\": \"X\", \"ts\": {ts}, \"pid\": 9, \"tid\": 9");
    match n % 5 {
        0 => format!("{head}, \"dur\": {dur}, \"cat\": \"cpu_op\", \"name\": \"aten::add\"}}"),
        1 => format!("{{\"ph\": \"s\", \"id\": {n}, \"pid\": 9, \"tid\": 9, \"ts\": {ts}, \"cat\": \"ac2g\", \"name\": \"ac2g\"}}"),
        2 => format!("{{\"ph\": \"C\", \"pid\": 0, \"ts\": {ts}, \"name\": \"kernel\", \"args\": {{\"kernel\": 3}}}}"),
        3 => format!("{head}, \"dur\": {dur}, \"cat\": \"gpu_user_annotation\", \"name\": \"kernel\"}}"),
        _ => r#"{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "{\"ph\":"}}"#.to_owned(),
    }
}
