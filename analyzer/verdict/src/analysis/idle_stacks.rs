// SPDX-License-Identifier: Apache-2.0
//! Idle time by where in the program the blamed call was made: the named ranges, operators and
//! Python functions that were open on its thread when it began.

use std::cmp::Reverse;

use trace::{FrameInfo, Language};

use crate::analysis::{Bucket, DeviceAnalysis, IdleSlice};
#[cfg(feature = "readers")]
use crate::run::Span;
use crate::run::{Call, Range, RangeKind, Run, Thread};
use crate::text::kernel_name::symbol;
use crate::timeline::Observed;

/// One piece of idle time.
pub struct IdleStack<'a> {
    /// Ranges open around the blamed call, outermost first; with the call, or `None` where no call
    /// is blamed.
    pub blamed: Option<(&'a [&'a Range], &'a Call)>,
    /// Stack of the program: of the call, or, in HOST and INPUT, where the launching thread stood
    /// before (0: not known).
    pub stack: u32,
    /// Why the device was idle.
    pub bucket: Bucket,
    /// ns of it in the steady span.
    pub ns: u64,
}

impl<'a> IdleStack<'a> {
    /// The ranges around the blamed call, less Python functions that its stack has as frames.
    pub fn ranges(&self) -> impl Iterator<Item = &'a Range> + use<'a> {
        let (all, framed) = (self.blamed.map_or(&[][..], |b| b.0), self.stack != 0);
        all.iter().copied().filter(move |r| !framed || r.kind != RangeKind::Python)
    }
}

/// Calls `visit` for every piece of the device's idle time in what `steady` observed. O(n log n).
pub fn idle_stacks(
    run: &Run,
    found: &DeviceAnalysis,
    steady: &Observed,
    mut visit: impl FnMut(IdleStack<'_>),
) {
    let mut blamed: Vec<(usize, &Call, &IdleSlice, u64)> = Vec::new();
    for slice in &found.slices {
        let ns = steady.measure(slice.span());
        match slice.call().and_then(|c| run.call(c)) {
            _ if ns == 0 => {}
            Some((thread, call)) => blamed.push((thread, call, slice, ns)),
            None => visit(IdleStack { blamed: None, stack: 0, bucket: slice.bucket, ns }),
        }
    }
    blamed.sort_by_key(|b| (b.0, b.1.start));
    for of_thread in blamed.chunk_by(|a, b| a.0 == b.0) {
        let Some(thread) = of_thread.first().and_then(|b| run.threads.get(b.0)) else { continue };
        let mut open = Open::new(thread);
        for &(_, call, slice, ns) in of_thread {
            let stack = match found.stack_of(slice) {
                0 => call.site,
                stood => stood,
            };
            visit(IdleStack { blamed: Some((open.at(call.start), call)), stack, bucket: slice.bucket, ns });
        }
    }
}

/// Calls `visit` for the parts of these times of a thread, which are in order: the ranges that are
/// open on it, outermost first, and for how long.
#[cfg(feature = "readers")]
pub(crate) fn open_in(thread: &Thread, spans: &[Span], mut visit: impl FnMut(&[&Range], u64)) {
    let mut open = Open::new(thread);
    for span in spans {
        let mut at = span.start;
        while at < span.end {
            open.at(at);
            let until = open.until().min(span.end).max(at + 1);
            visit(&open.open, until - at);
            at = until;
        }
    }
}

/// The ranges of a thread that are open at a time; times are asked for in order.
struct Open<'a> {
    ranges: Vec<&'a Range>,
    next: usize,
    open: Vec<&'a Range>,
}

impl<'a> Open<'a> {
    fn new(thread: &'a Thread) -> Open<'a> {
        let mut ranges: Vec<&Range> = thread.ranges.iter().collect();
        // of two that begin together the longer is around the other
        ranges.sort_by_key(|r| (r.span.start, Reverse(r.span.end), r.depth));
        Open { ranges, next: 0, open: Vec::new() }
    }

    fn at(&mut self, time: u64) -> &[&'a Range] {
        while let Some(range) = self.ranges.get(self.next).filter(|r| r.span.start <= time) {
            // what has ended when another begins is never asked for again: the list stays as long
            // as the nesting
            self.open.retain(|o| o.span.end > range.span.start);
            self.open.push(range);
            self.next += 1;
        }
        self.open.retain(|o| o.span.end > time);
        &self.open
    }

    /// When the next range begins or ends.
    #[cfg(feature = "readers")]
    fn until(&self) -> u64 {
        let begin = self.ranges.get(self.next).map(|r| r.span.start);
        self.open.iter().map(|r| r.span.end).chain(begin).min().unwrap_or(u64::MAX)
    }
}

/// A frame of a call stack for people: `train_step (train.py:88)`.
pub fn frame_name(run: &Run, frame: &FrameInfo) -> String {
    let text = |id| run.definitions.string(id).unwrap_or("?");
    let file = text(frame.file);
    let file = file.rsplit('/').next().unwrap_or(file);
    let function = match frame.language {
        Language::Caller => symbol(run.definitions.string(frame.function).unwrap_or("")),
        Language::Python | Language::Native => text(frame.function).to_owned(),
    };
    match frame.line {
        // of C, in a trace of others: no file is known
        0 if frame.file == 0 && frame.language == Language::Python => function,
        0 if function.is_empty() => file.to_owned(),
        0 => format!("{function} ({file})"),
        line => format!("{function} ({file}:{line})"),
    }
}

/// `ProfilerStep#17` and `step 17` as one frame for all steps.
pub fn without_number(name: &str) -> String {
    step_stem(name).map_or_else(|| name.to_owned(), |stem| format!("{stem}…"))
}

/// What stands before the number in a step's name: `ProfilerStep#` of `ProfilerStep#17`.
pub(crate) fn step_stem(name: &str) -> Option<&str> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_step = matches!(stem.strip_suffix(['#', ' ', '_']), Some("ProfilerStep" | "step"));
    (is_step && stem.len() < name.len()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Span;

    #[test]
    fn open_ranges_are_those_around_a_time_outermost_first() {
        let range = |name, start, end| {
            let span = Span::new(start, end);
            Range { span, name, ..Range::default() }
        };
        let ranges = vec![range(2, 0, 50), range(1, 0, 100), range(3, 10, 20), range(4, 60, 90)];
        let thread = Thread { ranges, ..Thread::default() };
        let mut open = Open::new(&thread);
        let mut names = |t| open.at(t).iter().map(|r| r.name).collect::<Vec<_>>();
        assert_eq!(names(15), [1, 2, 3]);
        assert_eq!(names(20), [1, 2], "an end is not inside");
        assert_eq!(names(55), [1]);
        assert_eq!(names(60), [1, 4]);
        assert_eq!(names(100), [0; 0]);
    }

    #[test]
    #[cfg(feature = "readers")]
    fn times_are_parted_by_what_is_open() {
        let range = |name, start, end| Range { span: Span::new(start, end), name, ..Range::default() };
        let thread = Thread {
            ranges: vec![range(1, 10, 40), range(2, 20, 30), range(3, 60, 70)],
            ..Thread::default()
        };
        let mut parts: Vec<(Vec<u32>, u64)> = Vec::new();
        let spans = [Span::new(0, 25), Span::new(28, 50), Span::new(65, 80)];
        open_in(&thread, &spans, |open, ns| parts.push((open.iter().map(|r| r.name).collect(), ns)));
        let wanted: [(&[u32], u64); 8] =
            [(&[], 10), (&[1], 10), (&[1, 2], 5), (&[1, 2], 2), (&[1], 10), (&[], 10), (&[3], 5), (&[], 10)];
        assert_eq!(parts, wanted.map(|(open, ns)| (open.to_vec(), ns)));
    }

    #[test]
    fn steps_are_one_frame_and_layers_are_not() {
        assert_eq!(without_number("ProfilerStep#17"), without_number("ProfilerStep#18"));
        assert_eq!(without_number("step_3"), "step_…");
        for name in ["layer 3", "step", "ProfilerStep#", "Optimizer.step#AdamW.step", "step_x"] {
            assert_eq!(without_number(name), name);
        }
    }
}
