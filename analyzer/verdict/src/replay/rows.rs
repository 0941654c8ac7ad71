// SPDX-License-Identifier: Apache-2.0
//! Rows of small copies that one line makes, each with its wait: `[t.to(device) for t in batch]`,
//! `[s.cpu() for s in statistics]`. Taking the waits out leaves hundreds of calls; what is to be
//! done about them is to put the values together and copy them once. So with [`super::Fix::Sync`]
//! the first of a row stays, and the others cost what putting together costs. To the host the first
//! one is waited for as well: the program goes on with the values.

use super::prepare::{op, Placed, Prepared, Role};
use crate::gaps::SMALL_COPY_BYTES;
use crate::run::{Device, Op, Run};
use trace::call::Class;
use trace::Kind;

/// So many copies in a row are worth putting together.
const LEAST_COPIES: usize = 8;
/// What putting one value to the others takes the host, ns: half of it for the copy, half for the
/// wait.
pub(super) const GATHER_NS: u64 = 500;
/// CUPTI's number for copies on a device.
const ON_DEVICE: u8 = 8;

/// A row as far as it is known.
#[derive(Default)]
struct Row {
    /// Stack of its line.
    stack: u32,
    copies: usize,
    /// The values go to the host.
    to_host: bool,
    /// The first copy and the wait behind it, and all that follows.
    first: Vec<usize>,
    others: Vec<usize>,
}

impl Prepared {
    /// Marks what follows the first copy of each row, and, of values that go to the host, that one:
    /// it is waited for.
    pub(super) fn find_rows(&mut self, run: &Run, device: &Device, placed: &[Placed]) {
        let mut rows: Vec<Row> = (0..self.chains.max(1)).map(|_| Row::default()).collect();
        for n in 0..self.items.len() {
            let Some(item) = self.items.get(n).copied() else { continue };
            let Some(row) = rows.get_mut(usize::from(item.chain)) else { continue };
            let stack = run.call(item.call).map_or(0, |(_, c)| run.python_stack(c.site));
            let to = self.items.get(n + 1).map_or(placed.len(), |i| i.first_op as usize);
            let own = placed.get(item.first_op as usize..to).unwrap_or(&[]);
            let is_copy = !own.is_empty()
                && run.call(item.call).is_some_and(|(_, c)| c.class == Some(Class::Copy))
                && own.iter().all(|w| op(device, w).is_some_and(is_small));
            let is_wait = own.is_empty() && item.role == Role::Sync;
            let goes_on = (is_copy || is_wait) && stack != 0 && stack == row.stack;
            if !goes_on {
                let done = std::mem::take(row);
                self.mark(&done);
            }
            let Some(row) = rows.get_mut(usize::from(item.chain)).filter(|_| goes_on || is_copy) else {
                continue;
            };
            row.stack = stack;
            row.copies += usize::from(is_copy);
            row.to_host |= own.iter().any(|w| op(device, w).is_some_and(Op::is_copy_to_host));
            let part = if row.copies > 1 { &mut row.others } else { &mut row.first };
            part.push(n);
        }
        rows.iter().for_each(|row| self.mark(row));
    }

    fn mark(&mut self, row: &Row) {
        if row.copies < LEAST_COPIES {
            return;
        }
        for &n in &row.others {
            if let Some(item) = self.items.get_mut(n) {
                item.again = true;
            }
        }
        for &n in row.first.iter().filter(|_| row.to_host) {
            if let Some(item) = self.items.get_mut(n) {
                item.stands = true;
            }
        }
    }

    /// Does a line, as its calls' flat numbers tell, copy in rows?
    pub(crate) fn copies_in_rows(&self, is_of: impl Fn(u32) -> bool) -> bool {
        self.items.iter().any(|i| i.again && is_of(i.call))
    }
}

fn is_small(op: &Op) -> bool {
    op.kind == Kind::Memcpy && op.bytes() <= SMALL_COPY_BYTES && op.copy().direction != ON_DEVICE
}
