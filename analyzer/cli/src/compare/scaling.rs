// SPDX-License-Identifier: Apache-2.0
//! How well a job scales from A's GPUs to B's.
//!
//! ```text
//! each GPU does all of A's work (weak):       efficiency = step A / step B
//! A's work is shared out (strong):            efficiency = (step A * GPUs A) / (step B * GPUs B)
//! ```
//! Which it is, the kernels tell (collectives aside): the same kernels in the same grids on each
//! GPU are weak scaling. Where they are not the same, both are given and none is claimed. Where
//! nothing can be said of the step times, there is no efficiency either.

use verdict::analysis::Bucket;

use super::work::Sameness;
use super::{words, Comparison, Outcome};

/// The efficiency, and what it rests on.
#[derive(Clone, PartialEq, Debug)]
pub struct Scaling {
    /// GPUs of A and B.
    pub gpus: (u32, u32),
    /// How each is known.
    pub known_by: (&'static str, &'static str),
    /// Each GPU of B does what one of A did.
    pub weak: bool,
    /// 0 to 1 (above: faster than linear), if the work of each GPU stays; `None` where step times
    /// cannot be compared.
    pub if_weak: Option<f64>,
    /// From and to of `if_weak`, 95 %.
    pub range: Option<(f64, f64)>,
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
        let judged = matches!(c.outcome, Outcome::Faster | Outcome::Slower | Outcome::NoDifference);
        let step = c.step.filter(|s| judged && s.b.value > 0.0);
        let ratio = step.map(|s| s.a.value / s.b.value);
        let range = step.and_then(|s| {
            let band = s.difference.band.filter(|band| *band < s.b.value)?;
            Some((s.a.value / (s.b.value + band), s.a.value / (s.b.value - band)))
        });
        let grown = c.buckets.iter().filter(|(_, f)| f.moved() && f.difference.ns > 0.0);
        let most = grown.max_by(|x, y| x.1.difference.ns.total_cmp(&y.1.difference.ns));
        Scaling {
            gpus,
            known_by,
            weak: c.work.sameness == Sameness::Same,
            if_weak: ratio,
            range,
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
            out.push_str(": no efficiency, the step times cannot be compared");
            return out;
        };
        let range = match self.range {
            Some((low, high)) => format!(" ({} to {})", words::percent(low), words::percent(high)),
            None => String::new(),
        };
        match self.weak {
            true => out.push_str(&format!(
                ": each GPU does what it did in A (weak scaling): efficiency {}{range}",
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
