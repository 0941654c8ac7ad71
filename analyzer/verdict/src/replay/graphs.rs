// SPDX-License-Identifier: Apache-2.0
//! [`super::Fix::Launch`]: which launches go into one graph. One for each step, cut wherever the
//! host is needed: by a call that stays, by a copy to the host or from pageable memory, by host
//! work that is too long to be dispatch, or that fetches data, and by an optimizer that works on
//! lists of tensors: `reduce-overhead` leaves it as it is, and capturing it fails unless it is
//! `capturable`.

use std::collections::HashSet;

use super::prepare::{Item, Prepared, Role};
use super::{Fixes, CAPTURABLE_NS};

/// What becomes of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Stays as it is: no launch, or alone between two calls that stay.
    None,
    /// The launch of a graph.
    First,
    /// A node of the graph launched before.
    Inner,
}

impl Item {
    /// The host's time before it is dispatch, or little enough to go with a graph.
    pub(super) fn may_be_captured(&self) -> bool {
        self.pace.is_none() && (!self.long || (!self.fetch && self.think <= CAPTURABLE_NS))
    }
}

/// Substring of kernels that work on lists of tensors, and what those of `fused` optimizers have
/// besides: one launch for all of the update, and a short one of the first kind for the step
/// counts.
const OF_LISTS: &str = "multi_tensor_apply_kernel";
const FUSED: &str = "Fused";

/// The ids of the kernels that no graph holds, of these with their names: of an optimizer that
/// works on lists of tensors and is not fused.
pub(super) fn stay<'a>(kernels: impl Iterator<Item = (u32, &'a str)>) -> HashSet<u32> {
    let mut of_lists = HashSet::new();
    for (id, name) in kernels.filter(|(_, name)| name.contains(OF_LISTS)) {
        if name.contains(FUSED) {
            return HashSet::new();
        }
        of_lists.insert(id);
    }
    of_lists
}

impl Prepared {
    /// The calls, by flat number, of launches that no graph holds.
    pub(crate) fn in_no_graph(&self) -> HashSet<u32> {
        self.items.iter().filter(|i| i.stays).map(|i| i.call).collect()
    }

    /// By item.
    pub(super) fn graphs(&self, fixes: Fixes, at: &dyn Fn(u32) -> bool) -> Vec<Part> {
        let mut parts = vec![Part::None; self.items.len()];
        // the launches found so far for a graph, by chain
        let mut open: Vec<Vec<u32>> = vec![Vec::new(); self.chains.max(1)];
        for (n, item) in self.items.iter().enumerate() {
            let Some(open) = open.get_mut(usize::from(item.chain)) else { continue };
            let launch = item.role == Role::Launch && !item.for_host && !item.stays;
            if (launch && (item.first_of_step || !item.may_be_captured()))
                || (!launch && (item.for_host || item.stays || !Prepared::is_left_out(item, fixes, at)))
            {
                close(open, &mut parts);
            }
            let to = self.items.get(n + 1).map_or(self.works.len() as u32, |i| i.first_op);
            if launch && to > item.first_op {
                open.push(n as u32);
            }
        }
        open.iter_mut().for_each(|open| close(open, &mut parts));
        parts
    }
}

fn close(open: &mut Vec<u32>, parts: &mut [Part]) {
    if open.len() > 1 {
        for (i, &n) in open.iter().enumerate() {
            if let Some(part) = parts.get_mut(n as usize) {
                *part = if i == 0 { Part::First } else { Part::Inner };
            }
        }
    }
    open.clear();
}

#[cfg(test)]
mod tests {
    use super::stay;

    #[test]
    fn an_optimizer_of_lists_stays_and_a_fused_one_does_not() {
        let of = |with: &str| format!("_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_{with}");
        let (update, fused) =
            (of("18TensorListMetadataILi3EEE"), of("36FusedOptimizerTensorListMetadataILi4EEE"));
        let add = "_ZN2at6native29vectorized_elementwise_kernelILi4EEE";
        assert_eq!(stay([(1, add), (2, update.as_str())].into_iter()), [2].into());
        assert!(stay([(1, add), (2, update.as_str()), (3, fused.as_str())].into_iter()).is_empty());
    }
}
