// SPDX-License-Identifier: Apache-2.0
//! The program's named ranges (NVTX, `record_function`, `gapprobe_range`), nested, and what was
//! launched in them. Operators and Python functions of a profiler are no ranges of the program.

use verdict::run::{Op, RangeKind, Run, Span};

use super::launches::Launches;

/// Ranges nested deeper than this have no part in the tables of what was launched in them: work
/// stays linear.
pub(super) const MOST_LEVELS: u32 = 64;

/// A named range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Index of its thread.
    pub(super) thread: usize,
    /// Begin and end on the host.
    pub(super) span: Span,
    /// String id of its name.
    pub(super) name: u32,
    /// Whether it ends on the thread it began on, innermost first, in nsys's words.
    pub(super) style: &'static str,
    /// Named ranges it is in, on its thread.
    pub(super) level: u32,
    /// Named ranges directly in it.
    pub(super) children: u32,
    /// A library's own (NCCL): no part of the program's step.
    pub(super) librarys: bool,
}

/// All named ranges, by thread, then by begin (the longer first).
pub(super) fn named(run: &Run) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    for (thread, t) in run.threads.iter().enumerate() {
        let mut open: Vec<usize> = Vec::new();
        for r in t.ranges.iter().filter(|r| r.kind == RangeKind::User) {
            let ended = |i: &usize| found.get(*i).is_none_or(|o| o.span.end <= r.span.start);
            while open.last().is_some_and(ended) {
                open.pop();
            }
            let level = open.len() as u32;
            if let Some(parent) = open.last().and_then(|&i| found.get_mut(i)) {
                parent.children += 1;
            }
            open.push(found.len());
            let style = if r.is_start_end() { "StartEnd" } else { "PushPop" };
            let librarys = run.is_librarys(r);
            found.push(Named { thread, span: r.span, name: r.name, style, level, children: 0, librarys });
        }
    }
    found
}

impl Named {
    /// Device index and operation of all that calls inside the range launched: calls of its thread
    /// that begin and end in it. None for ranges nested too deep.
    pub(super) fn ops<'a>(
        &self,
        run: &'a Run,
        launches: &'a Launches,
    ) -> impl Iterator<Item = (usize, &'a Op)> + use<'a> {
        let span = self.span;
        let (thread, level) = (self.thread, self.level);
        let calls = run.threads.get(thread).map_or(&[][..], |t| &t.calls);
        let from = calls.partition_point(|c| c.start < span.start);
        let calls = if level < MOST_LEVELS { calls.get(from..).unwrap_or(&[]) } else { &[] };
        calls
            .iter()
            .enumerate()
            .take_while(move |(_, c)| c.start <= span.end)
            .filter(move |(_, c)| c.end <= span.end)
            .flat_map(move |(i, _)| launches.of(run, run.flat(thread, from + i)))
    }
}

/// The operator in a range of `torch.autograd.profiler.emit_nvtx`, `aten::linear, op_id = 314279`:
/// its numbers make each range another one.
pub(super) fn unnumbered(name: &str) -> &str {
    let ends = [", seq = ", ", op_id = "].iter().filter_map(|n| name.find(n));
    ends.min().map_or(name, |end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::build::Builder;
    use trace::call::{pack, Class, RUNTIME};
    use trace::{Event, Kind};

    /// Ranges (name, begin, end) and launches (begin, end) of one thread; each launch starts a
    /// kernel of 10 ns.
    fn run(ranges: &[(&str, u64, u64)], launches: &[(u64, u64)]) -> Run {
        let mut b = Builder::new();
        b.on_recorder(Event::clock_pair(1, 1));
        for &(name, start, end) in ranges {
            let mut e = Event::new(Kind::Range, start, end);
            e.a = b.string(name);
            b.on_thread(5, e);
        }
        let kernel = b.kernel("k", 32, 16);
        for (&(start, end), correlation) in launches.iter().zip(1..) {
            let mut call = Event::new(Kind::Call, start, end);
            (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
            b.on_thread(5, call);
            let mut op = Event::new(Kind::Kernel, end + 1, end + 11);
            (op.a, op.b, op.correlation) = (kernel, 1, correlation);
            b.on_stream(0, 1, 7, op);
        }
        verdict::load(b.finish().as_slice()).expect("a recording")
    }

    #[test]
    fn ranges_nest_and_hold_the_launches_inside_them() {
        let ranges = [
            ("outer", 100, 500),
            ("first", 100, 200),
            ("deep", 110, 150),
            ("second", 200, 300),
            ("next", 500, 600),
        ];
        // in deep; across the end of first; in second; exactly outer's end; in none
        let run = run(&ranges, &[(120, 130), (190, 210), (250, 260), (480, 500), (700, 710)]);
        let launches = Launches::new(&run);
        let found: Vec<(&str, u32, u32, usize)> = named(&run)
            .iter()
            .map(|r| {
                let name = run.definitions.string(r.name).unwrap_or("");
                (name, r.level, r.children, r.ops(&run, &launches).count())
            })
            .collect();
        let expected = [
            ("outer", 0, 2, 4),
            ("first", 1, 1, 1),
            ("deep", 2, 0, 1),
            ("second", 1, 0, 1),
            ("next", 0, 0, 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn work_stays_linear_however_deep_ranges_are() {
        let deep: Vec<(&str, u64, u64)> = (0..3000).map(|i| ("r", 1000 + i, 1_000_000 - i)).collect();
        let calls: Vec<(u64, u64)> = (0..1000).map(|i| (10_000 + i * 100, 10_050 + i * 100)).collect();
        let run = run(&deep, &calls);
        let launches = Launches::new(&run);
        let found: usize = named(&run).iter().map(|r| r.ops(&run, &launches).count()).sum();
        assert_eq!(found, 64 * 1000);
    }

    #[test]
    fn operators_numbers_are_left_out() {
        assert_eq!(unnumbered("aten::linear, op_id = 314279"), "aten::linear");
        assert_eq!(unnumbered("aten::mm, seq = 5, op_id = 7, sizes = [[1, 2]]"), "aten::mm");
        assert_eq!(unnumbered("forward, all"), "forward, all");
    }
}
