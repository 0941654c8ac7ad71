// SPDX-License-Identifier: Apache-2.0
//! In which function of the program the host was while the device waited, by the Python functions
//! that another tool's trace holds (`with_stack=True`): the innermost one that is the user's. Our
//! own recordings have samples for that (`sample_index.rs`).

use std::collections::HashMap;

use crate::run::{Range, RangeKind, Run, Span, Thread};
use crate::sites::{Site, Sites};

/// The function in which the host was for at least half of the time of these slices, by thread;
/// `None` where there is none, or where no Python functions were recorded.
pub(crate) fn of_most(run: &Run, slices: impl Iterator<Item = (usize, Span)>) -> Option<Site> {
    if run.functions.is_empty() {
        return None;
    }
    let mut by_thread: HashMap<usize, Vec<Span>> = HashMap::new();
    slices.for_each(|(thread, span)| by_thread.entry(thread).or_default().push(span));
    let mut sites = Sites::new(run);
    let mut sums: HashMap<Option<u32>, u64> = HashMap::new();
    for (thread, mut spans) in by_thread {
        let Some(thread) = run.threads.get(thread) else { continue };
        spans.sort_unstable();
        Walk::new(run, thread, &mut sites).over(&spans, &mut sums);
    }
    let all: u64 = sums.values().sum();
    let known = sums.iter().filter_map(|(site, &ns)| Some(((*site)?, ns)));
    let (site, ns) = known.max_by_key(|&(site, ns)| (ns, u32::MAX - site))?;
    (ns > 0 && ns >= all - ns).then(|| sites.get(site).cloned()).flatten()
}

/// A thread's Python functions in the order of their begin.
struct Walk<'a, 'b> {
    run: &'a Run,
    sites: &'b mut Sites<'a>,
    ranges: &'a [Range],
    /// Those from here on have not begun yet.
    next: usize,
    /// End, and the innermost line of the user's at this depth.
    open: Vec<(u64, Option<u32>)>,
}

impl<'a, 'b> Walk<'a, 'b> {
    fn new(run: &'a Run, thread: &'a Thread, sites: &'b mut Sites<'a>) -> Walk<'a, 'b> {
        Walk { run, sites, ranges: &thread.ranges, next: 0, open: Vec::new() }
    }

    /// The next function, whatever else is named in front of it.
    fn function(&mut self) -> Option<&'a Range> {
        loop {
            match self.ranges.get(self.next)? {
                r if r.kind == RangeKind::Python => return Some(r),
                _ => self.next += 1,
            }
        }
    }

    fn over(&mut self, spans: &[Span], sums: &mut HashMap<Option<u32>, u64>) {
        for span in spans {
            let mut at = span.start;
            while at < span.end {
                self.enter(at);
                let begins = self.function().map_or(u64::MAX, |f| f.span.start);
                let ends = self.open.last().map_or(u64::MAX, |o| o.0);
                let until = begins.min(ends).min(span.end).max(at + 1);
                let site = self.open.last().and_then(|o| o.1);
                *sums.entry(site).or_default() += until - at;
                at = until;
            }
        }
    }

    /// Opens what has begun by `at`, closes what has ended.
    fn enter(&mut self, at: u64) {
        while let Some(&Range { span, name, .. }) = self.function().filter(|f| f.span.start <= at) {
            self.leave(span.start);
            let outer = self.open.last().copied();
            let frame = self.run.functions.get(&name).copied().unwrap_or(0);
            let own = self.sites.of_users_frame(frame);
            // what ends behind the function that called it is damage
            let end = outer.map_or(span.end, |o| span.end.min(o.0));
            self.open.push((end, own.or(outer.and_then(|o| o.1))));
            self.next += 1;
        }
        self.leave(at);
    }

    fn leave(&mut self, at: u64) {
        while self.open.last().is_some_and(|o| o.0 <= at) {
            self.open.pop();
        }
    }
}
