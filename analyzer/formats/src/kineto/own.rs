// SPDX-License-Identifier: Apache-2.0
//! What gapprobe's own traces say beside their events (`chrome/facts.rs` writes it): the header of
//! the recording, and who recorded it. Numbers that cannot be are cut to what can.

use serde_json::Value as Json;
use trace::define::{Definition, InModule, MAX_FRAMES};
use trace::{FrameInfo, Header, Language, Loss, Total};

use verdict::output::chrome::facts::{
    numbers, times, COMMAND, JUDGED_BY, MOST_BACKWARD, MOST_MARKS, MOST_OPERATORS, MOST_READINGS,
    MOST_SAMPLES,
};
use verdict::run::autograd::{Captured, InBackward, Work};
use verdict::run::operators::Operator;
use verdict::run::{
    Child, ChildSample, LossMark, Reading, Recorder, Run, Sample, Span, Thread, Uncalled, MAX_TIME,
};

/// Longest command line that is read.
const MOST_COMMAND: usize = 4096;

/// Facts of a trace of ours.
#[derive(Debug, Clone)]
pub(super) struct Own {
    facts: Json,
    /// The recording's time of the trace's zero, ns.
    pub(super) base: i64,
}

impl Own {
    /// `None` where it is no object.
    pub(super) fn new(facts: Json) -> Option<Own> {
        let base = facts.as_object()?.get("base_monotonic_ns").and_then(Json::as_u64).unwrap_or(0);
        Some(Own { base: base.min(MAX_TIME) as i64, facts })
    }

    /// Who recorded it.
    pub(super) fn recorder(&self) -> Recorder {
        let key = self.facts.get("recorder").and_then(Json::as_str);
        Recorder::ALL.into_iter().find(|r| Some(r.key()) == key).unwrap_or_default()
    }

    /// Puts what it says into a run of the trace's events.
    pub(super) fn apply(&self, run: &mut Run) {
        let number = |of: &Json, key: &str| of.get(key).and_then(Json::as_u64);
        run.recorder = self.recorder();
        let told =
            |key: &str| self.facts.get("uncalled").and_then(|t| number(t, key)).unwrap_or(0).min(1 << 40);
        run.uncalled = Uncalled {
            calls: told("calls"),
            ops: told("operations"),
            copies: told("copies"),
            early: told("early"),
            unidentified: told("unidentified"),
            unidentified_kernels: told("unidentified_kernels"),
        };
        run.missing = self.facts.get("missing").and_then(Json::as_str).unwrap_or("").to_owned();
        let command = self.facts.get(COMMAND).and_then(Json::as_str).unwrap_or("");
        run.header.command = command.chars().take(MOST_COMMAND).collect();
        run.slowed_host |= self.facts.get("slowed_host").and_then(Json::as_bool).unwrap_or(false);
        for (key, to) in numbers(&mut run.header) {
            *to = number(&self.facts, key).and_then(|n| u32::try_from(n).ok()).unwrap_or(*to);
        }
        for (key, to) in times(&mut run.header) {
            *to = number(&self.facts, key).unwrap_or(*to).min(MAX_TIME);
        }
        let Header { losses, totals, .. } = &mut run.header;
        let of = |table: &str, key: &str| self.facts.get(table).and_then(|t| number(t, key)).unwrap_or(0);
        for loss in Loss::ALL {
            losses[loss.code() as usize] = of("losses", loss.key());
        }
        for total in Total::ALL {
            totals[*total as usize] = of("totals", total.key());
        }
        let marks = self.facts.get("loss_marks").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for mark in marks.iter().take(MOST_MARKS) {
            let n = |i: usize| mark.get(i).and_then(Json::as_u64);
            let small = |i: usize| n(i).and_then(|n| u32::try_from(n).ok());
            if let (Some(at), Some(code), Some(count)) = (n(0), small(1), small(2)) {
                let at = at.min(MAX_TIME);
                let span = Span::new(n(3).unwrap_or(at).min(at), at);
                run.loss_marks.push(LossMark { span, code, count, before: small(4).unwrap_or(0) });
            }
        }
        self.host(run);
        let damage = |key: &str| number(&self.facts, key).unwrap_or(0).min(1 << 40);
        run.problems.cut_segments += damage("cut_segments");
        run.problems.bad_segments += damage("bad_segments");
        run.problems.bad_events += damage("bad_events");
        run.foreign = run.recorder != Recorder::Gapprobe;
    }

    /// What the host side knows: `chrome/facts.rs` has the order of the numbers.
    fn host(&self, run: &mut Run) {
        let mut texts = Texts::default();
        let list = |key: &str| self.facts.get(key).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        for stack in list("stacks") {
            let Some(id) = small(stack, 0).filter(|id| *id > 0) else { continue };
            let mut bytes = Vec::new();
            for frame in stack.get(1).and_then(Json::as_array).into_iter().flatten().take(MAX_FRAMES) {
                let text = |i: usize| frame.get(i).and_then(Json::as_str).unwrap_or("");
                let (function, file) = (texts.id(run, text(1)), texts.id(run, text(2)));
                let language = small(frame, 0).and_then(Language::from_u32).unwrap_or_default();
                let frame = FrameInfo { language, function, file, line: small(frame, 3).unwrap_or(0) };
                let number = texts.next();
                run.definitions.insert(number, Definition::Frame(frame));
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            run.definitions.insert(id, Definition::Stack(&bytes));
            if let Some([path, class]) = stack.get(2).and_then(Json::as_array).map(Vec::as_slice) {
                let text = |of: &Json| of.as_str().unwrap_or("").to_owned();
                let (path, class) = (texts.id(run, &text(path)), texts.id(run, &text(class)));
                run.definitions.insert(id, Definition::InModule(InModule { path, class }));
            }
        }
        for calls in list("backward") {
            let Some((tid, stack)) = small(calls, 0).zip(small(calls, 1)) else { continue };
            let node = texts.id(run, calls.get(2).and_then(Json::as_str).unwrap_or(""));
            let Some(thread) = run.threads.iter_mut().find(|t| t.tid == tid) else { continue };
            let begins = calls.get(3).and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_u64);
            let begins = begins.scan(0u64, |start, more| {
                *start = start.saturating_add(more);
                Some(*start)
            });
            let calls = begins.take(MOST_BACKWARD).map(|start| InBackward { start, stack, node });
            thread.backward.extend(calls);
        }
        for thread in &mut run.threads {
            thread.backward.sort_by_key(|c| c.start);
        }
        for launch in list("captured").iter().take(MOST_OPERATORS) {
            if let (Some(id), Some(site), Some(stack)) =
                (small(launch, 0), small(launch, 1), small(launch, 2))
            {
                let node = launch.get(3).and_then(Json::as_str).map(|node| texts.id(run, node));
                run.captured.insert(id, Captured { work: Work { stack, node }, site });
            }
        }
        for pair in list("stacks_alike").iter().take(MOST_OPERATORS) {
            if let Some((stack, other)) = small(pair, 0).zip(small(pair, 1)) {
                run.operators.add_alike(stack, other);
            }
        }
        for way in list("operators").iter().take(MOST_OPERATORS) {
            let text = |i: usize| way.get(i).and_then(Json::as_str);
            if let (Some(stack), Some(node), Some(kernel)) = (small(way, 0), text(1), text(2)) {
                let operator = text(3).map(|name| Operator { name, nodes: text(4).unwrap_or("") });
                run.operators.add(stack, node, kernel, operator);
            }
        }
        for thread in list("samples") {
            let Some(tid) = small(thread, 0) else { continue };
            let samples: Vec<Sample> = thread
                .get(2)
                .and_then(Json::as_array)
                .into_iter()
                .flatten()
                .take(MOST_SAMPLES)
                .filter_map(sample)
                .collect();
            let name = thread.get(1).and_then(Json::as_str).unwrap_or("");
            match run.threads.iter_mut().find(|t| t.tid == tid) {
                Some(t) => t.samples = samples,
                None => {
                    // its place among the others is by its id, as in the recording; it has no calls
                    // to be numbered
                    let (name, at) = (texts.id(run, name), run.threads.partition_point(|t| t.tid < tid));
                    run.threads.insert(at, Thread { tid, name, samples, ..Thread::default() });
                    let base = run.call_base.get(at).copied().unwrap_or_default();
                    run.call_base.insert(at.min(run.call_base.len()), base);
                }
            }
        }
        let child = |c: &Json| {
            let part = |i| small(c, i).and_then(|n| u16::try_from(n).ok());
            Some(Child {
                span: span(c)?,
                pid: small(c, 2)?,
                on_cpu: part(3)?,
                on_disk: part(4)?,
                read_kib: small(c, 5)?,
                // (traces of before 2026-11-28 end with what was read)
                run_queue: part(6).unwrap_or(0),
            })
        };
        run.children.extend(list("children").iter().take(MOST_SAMPLES).filter_map(child));
        // (traces of before 2026-11-25 end with the stack)
        let stood = |s: &Json| {
            Some(ChildSample {
                span: span(s)?,
                pid: small(s, 2)?,
                stack: small(s, 3)?,
                waits: small(s, 4).and_then(|n| n.checked_sub(1)),
                bits: small(s, 5).and_then(|n| u8::try_from(n).ok()).unwrap_or(0),
            })
        };
        run.child_samples.extend(list("child_samples").iter().take(MOST_SAMPLES).filter_map(stood));
        let reading = |r: &Json| {
            let device = small(r, 3).and_then(|n| u8::try_from(n).ok())?;
            Some(Reading { span: span(r)?, gauge: small(r, 2)?, device, value: r.get(4)?.as_u64()? })
        };
        run.readings.extend(list("readings").iter().take(MOST_READINGS).filter_map(reading));
        for key in JUDGED_BY {
            let Some(value) = self.facts.get(key).and_then(Json::as_str) else { continue };
            let (key, value) = (texts.id(run, key), texts.id(run, value));
            run.definitions.insert(0, Definition::Attribute(key, value));
        }
        run.header.cpus =
            self.facts.get("cpus").and_then(Json::as_u64).map_or(run.header.cpus, |n| n.min(1 << 20) as u32);
    }
}

fn small(of: &Json, i: usize) -> Option<u32> {
    of.get(i).and_then(Json::as_u64).and_then(|n| u32::try_from(n).ok())
}

/// The first two numbers.
fn span(of: &Json) -> Option<Span> {
    let time = |i: usize| of.get(i).and_then(Json::as_u64).map(|t| t.min(MAX_TIME));
    Some(Span::new(time(0)?, time(1)?))
}

fn sample(of: &Json) -> Option<Sample> {
    let part = |i| small(of, i).and_then(|n| u16::try_from(n).ok());
    let bits = small(of, 6).and_then(|n| u8::try_from(n).ok())?;
    let syscall = small(of, 3)?.checked_sub(1);
    Some(Sample {
        span: span(of)?,
        stack: small(of, 2)?,
        syscall,
        on_cpu: part(4)?,
        run_queue: part(5)?,
        bits,
    })
}

/// Texts that only the facts have: ids beyond those of the events' texts.
#[derive(Default)]
struct Texts {
    known: std::collections::HashMap<String, u32>,
    used: u32,
}

impl Texts {
    const FIRST: u32 = 1 << 30;

    fn next(&mut self) -> u32 {
        self.used = self.used.saturating_add(1);
        Texts::FIRST.saturating_add(self.used)
    }

    fn id(&mut self, run: &mut Run, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.next();
        run.definitions.insert(id, Definition::String(text.as_bytes()));
        self.known.insert(text.to_owned(), id);
        id
    }
}
