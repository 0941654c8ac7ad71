// SPDX-License-Identifier: Apache-2.0
//! How well a job scales from A's GPUs to B's.
//!
//! ```text
//! each GPU does all of A's work (weak):       efficiency = step A / step B
//! A's work is shared out (strong):            efficiency = (step A * GPUs A) / (step B * GPUs B)
//! ```
//! Which it is, the kernels tell (collectives aside): the same kernels in the same grids on each GPU are weak scaling. Where
//! they are not the same, both are given and none is claimed.

use crate::analysis::Bucket;

use super::work::Sameness;
use super::{words, Comparison};

/// The efficiency, and what it rests on.
#[derive(Clone, PartialEq, Debug)]
pub struct Scaling {
    /// GPUs of A and B.
    pub gpus: (u32, u32),
    /// How each is known.
    pub known_by: (&'static str, &'static str),
    /// Each GPU of B does what one of A did.
    pub weak: bool,
    /// 0 to 1 (above: faster than linear), if the work of each GPU stays; `None` without steps.
    pub if_weak: Option<f64>,
    /// If A's work is shared out.
    pub if_strong: Option<f64>,
    /// The bucket that grew most beyond the noise, and by how much, ns a step.
    pub lost_to: Option<(Bucket, f64)>,
}

impl Scaling {
    pub(super) fn new(c: &Comparison<'_>, told: Option<(u32, u32)>) -> Scaling {
        let (a, b) = (c.a.gpus(), c.b.gpus());
        let (gpus, known_by) = match told {
            Some(gpus) => (gpus, ("--gpus", "--gpus")),
            None => ((a.0, b.0), (a.1, b.1)),
        };
        let ratio = c.step.filter(|s| s.b.value > 0.0).map(|s| s.a.value / s.b.value);
        let grown = c.buckets.iter().filter(|(_, f)| f.moved() && f.difference.ns > 0.0);
        let most = grown.max_by(|x, y| x.1.difference.ns.total_cmp(&y.1.difference.ns));
        Scaling {
            gpus,
            known_by,
            weak: c.work.sameness == Sameness::Same,
            if_weak: ratio,
            if_strong: ratio.filter(|_| gpus.1 > 0).map(|r| r * f64::from(gpus.0) / f64::from(gpus.1)),
            lost_to: most.map(|(bucket, f)| (*bucket, f.difference.ns)),
        }
    }

    /// One line.
    pub fn text(&self) -> String {
        let ((a, b), (by_a, by_b)) = (self.gpus, self.known_by);
        let known = if by_a == by_b { by_a.to_owned() } else { format!("A: {by_a}, B: {by_b}") };
        let mut out = format!("{a} -> {b} GPUs ({known})");
        if a == 0 || b == 0 || a == b {
            out.push_str(": not another number of GPUs; --gpus A,B tells it");
            return out;
        }
        let (Some(weak), Some(strong)) = (self.if_weak, self.if_strong) else {
            out.push_str(": no step time");
            return out;
        };
        match self.weak {
            true => out.push_str(&format!(
                ": each GPU does what it did in A (weak scaling): efficiency {}",
                words::percent(weak)
            )),
            false => out.push_str(&format!(
                ": efficiency {} if each GPU does all of A's work (weak), {} if that is shared out (strong): the kernels do not tell which",
                words::percent(weak),
                words::percent(strong)
            )),
        }
        if let Some((bucket, ns)) = self.lost_to {
            out.push_str(&format!(
                "; most is lost to {} (+{} a step)",
                words::bucket(bucket),
                words::time(ns)
            ));
        }
        out
    }
}
