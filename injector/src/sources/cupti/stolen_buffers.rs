// SPDX-License-Identifier: Apache-2.0
// WARM
//! A client of CUPTI that we do not know of (it found `cuptiActivityRegisterCallbacks` by `dlsym`
//! and is not on the list of `neighbours`) takes our buffers away, and nothing tells us: the device
//! would look idle from then on. But while we hold the subscription our callbacks go on, and calls
//! that put work on the device or wait for it leave records. Where they do, and a plain flush later
//! neither a buffer was asked for or came back nor one that is lent holds anything, the records go
//! to somebody else: the time since the last buffer is unobserved, until one is asked for again.
//! Nothing is switched: should we be wrong, a span without any record is called unobserved instead
//! of idle.

use trace::call::Class;
use trace::Event;

/// So many calls without a record, from the first of them to the flush so long, ns.
const CALLS: u32 = 10;
const SPAN: u64 = 500_000_000;

/// What is known of the buffers.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    /// Last time one was asked for or came back, ns.
    pub(crate) touched: u64,
    /// One that is lent holds records.
    pub(crate) pending: bool,
    /// Everything before this time was delivered (`flushing::complete_to`), ns.
    pub(crate) complete_to: u64,
}

/// Calls since the last sign of a buffer.
#[derive(Default)]
pub(crate) struct Unanswered {
    first: u64,
    calls: u32,
    /// Since when the records go to somebody else.
    since: Option<u64>,
}

impl Unanswered {
    /// A call, from its callback.
    pub(crate) fn call(&mut self, event: &Event) {
        let leaves_records = matches!(
            Class::from_u8(event.x),
            Some(Class::Launch | Class::GraphLaunch | Class::Copy | Class::Memset | Class::Sync)
        );
        if leaves_records && event.b == 0 {
            self.first = if self.calls == 0 { event.end } else { self.first };
            self.calls = self.calls.saturating_add(1);
        }
    }

    /// After the calls so far were taken in. A span that has ended: not observed from, to.
    pub(crate) fn look(&mut self, buffers: Buffers) -> Option<(u64, u64)> {
        if self.calls == 0 {
            return None;
        }
        if buffers.pending || buffers.touched >= self.first {
            self.calls = 0;
            return self.since.take().map(|since| (since, buffers.touched.max(since)));
        }
        if self.calls >= CALLS && buffers.complete_to.saturating_sub(self.first) >= SPAN {
            self.since.get_or_insert(buffers.touched);
        }
        None
    }

    /// At the end, after the last flush: since when nothing is observed, if so.
    pub(crate) fn at_the_end(&mut self, buffers: Buffers) -> Option<u64> {
        let answered = buffers.pending || buffers.touched >= self.first;
        let now = self.calls >= CALLS && !answered && buffers.complete_to > self.first;
        self.since.or(now.then_some(buffers.touched))
    }

    /// Another client has the buffers and we know (`arbiter`).
    pub(crate) fn forget(&mut self) {
        *self = Unanswered::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Kind;

    const MS: u64 = 1_000_000;

    fn call(class: Class, at: u64, result: u32) -> Event {
        let mut e = Event::new(Kind::Call, at, at + 1000);
        (e.x, e.b) = (class as u8, result);
        e
    }

    fn buffers(touched: u64, pending: bool, complete_to: u64) -> Buffers {
        Buffers { touched, pending, complete_to }
    }

    /// A call every 20 ms from `from` to `to`, ms; a look after each with the state that `state`
    /// gives.
    fn calls(u: &mut Unanswered, from: u64, to: u64, state: impl Fn(u64) -> Buffers) -> Vec<(u64, u64)> {
        let times = (from..to).step_by(20).map(|t| t * MS);
        times
            .filter_map(|t| {
                u.call(&call(Class::Sync, t, 0));
                u.look(state(t))
            })
            .collect()
    }

    #[test]
    fn calls_whose_records_come_are_answered() {
        let mut u = Unanswered::default();
        // a buffer comes back after every call; a buffer that is lent holds them; no flush comes to
        // an end
        assert_eq!(calls(&mut u, 0, 3000, |t| buffers(t + 2000, false, t)), []);
        assert_eq!(calls(&mut u, 3000, 6000, |t| buffers(2990 * MS, true, t)), []);
        assert_eq!(calls(&mut u, 6000, 9000, |_| buffers(2990 * MS, false, 2990 * MS)), []);
        assert_eq!(u.at_the_end(buffers(2990 * MS, false, 2990 * MS)), None);
    }

    #[test]
    fn calls_whose_records_go_elsewhere_are_found_out() {
        let mut u = Unanswered::default();
        assert_eq!(calls(&mut u, 0, 1000, |t| buffers(t + 2000, false, t)), []);
        let last = 999 * MS;
        assert_eq!(calls(&mut u, 1000, 3000, |t| buffers(last, false, t)), []);
        assert_eq!(u.at_the_end(buffers(last, false, 3000 * MS)), Some(last));
        // and where a buffer is asked for again, the span ends there
        assert_eq!(calls(&mut u, 3000, 3100, |t| buffers(t + 2000, false, t)), [(last, 3000 * MS + 2000)]);
        assert_eq!(u.at_the_end(buffers(3100 * MS, false, 3100 * MS)), None);
    }

    #[test]
    fn a_few_calls_and_calls_that_leave_nothing_prove_nothing() {
        let mut u = Unanswered::default();
        for n in 0..CALLS - 1 {
            u.call(&call(Class::Sync, u64::from(n) * MS, 0));
        }
        for n in 0..1000 {
            u.call(&call(Class::Alloc, n * MS, 0));
            u.call(&call(Class::Launch, n * MS, 700));
        }
        assert_eq!(u.look(buffers(0, false, 5000 * MS)), None);
        assert_eq!(u.at_the_end(buffers(0, false, 5000 * MS)), None);
        u.call(&call(Class::Copy, 900 * MS, 0));
        assert_eq!(u.at_the_end(buffers(0, false, 5000 * MS)), Some(0));
        u.forget();
        assert_eq!(u.at_the_end(buffers(0, false, 5000 * MS)), None);
    }
}
