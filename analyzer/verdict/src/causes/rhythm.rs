// SPDX-License-Identifier: Apache-2.0
//! How often something happens, by the steps in which it does: "every step" and "12 times a step"
//! are said only of nearly all of them.

use std::collections::HashMap;

use super::case::Blame;
use super::spots::Spot;
use super::Case;
use crate::analysis::{Bucket, Often, Step};
use crate::run::Call;
use crate::sites::Sites;
use crate::steps::once::evenly;

/// Nearly all steps.
const NEARLY_ALL: f64 = 0.8;
/// Steps are alike if what they have differs from the mean by no more than this share of it, or by
/// [`ONE_OFF`].
const ALIKE: f64 = 0.25;
/// The same of few.
const ONE_OFF: f64 = 0.45;

impl Case<'_> {
    /// Of the function that costs most at this line.
    pub(super) fn rhythm_at(&self, bucket: Bucket, spot: &Spot) -> Often {
        let Some((_, there)) = self.run.call(spot.flat) else { return Often::Times(spot.calls) };
        let mut sites = Sites::new(self.run);
        let mut known: HashMap<u32, bool> = HashMap::new();
        let slices = self.device.slices.iter().filter(|s| s.bucket == bucket);
        for call in slices.filter_map(|s| Some(self.run.call(s.call)?.1)) {
            known.entry(call.site).or_insert_with(|| {
                let site = sites.of(call.site).and_then(|s| sites.get(s));
                site.is_some_and(|s| s.is_same_line(&spot.site))
            });
        }
        self.rhythm_of(bucket, |c| c.packed == there.packed && known.get(&c.site) == Some(&true))
    }

    /// Of one function, wherever it is called.
    pub(super) fn rhythm_by(&self, bucket: Bucket, top: &Blame<'_>) -> Often {
        let packed = self.run.call(top.flat).map(|(_, c)| c.packed);
        self.rhythm_of(bucket, |c| Some(c.packed) == packed)
    }

    /// Of the calls with idle time in a bucket for which `is` says so.
    fn rhythm_of(&self, bucket: Bucket, is: impl Fn(&Call) -> bool) -> Often {
        let slices = self.device.slices.iter().filter(|s| s.bucket == bucket);
        let costs = slices.filter(|s| self.analysis.counts.measure(s.span()) > 0);
        let theirs = costs.filter(|s| self.run.call(s.call).is_some_and(|(_, c)| is(c)));
        let mut moments: Vec<(u32, u64)> =
            theirs.map(|s| (s.call, s.start + (s.end - s.start) / 2)).collect();
        // a call can have several slices: the first counts
        moments.sort_unstable();
        moments.dedup_by_key(|m| m.0);
        let moments: Vec<u64> = moments.into_iter().map(|m| m.1).collect();
        often(&moments, self.analysis.steps.steady())
    }
}

/// `moments` in any order, `steps` in the order of time.
fn often(moments: &[u64], steps: &[Step]) -> Often {
    let times = moments.len() as u64;
    if steps.is_empty() {
        return Often::Times(times);
    }
    let mut by_step = vec![0u32; steps.len()];
    for &at in moments {
        let step = steps.partition_point(|s| s.span.end <= at);
        if let Some(n) = by_step.get_mut(step).filter(|_| steps[step].span.start <= at) {
            *n += 1;
        }
    }
    let (all, per) = (steps.len() as f64, moments.len() as f64 / steps.len() as f64);
    let those: Vec<usize> = (0..steps.len()).filter(|&i| by_step.get(i) != Some(&0)).collect();
    let with = those.len();
    let is_alike = |n: &&u32| (f64::from(**n) - per).abs() <= ONE_OFF.max(per * ALIKE);
    let alike = by_step.iter().filter(is_alike).count() as f64;
    let all_steps = steps.len() as u64;
    if let Some(every) = evenly(&those).filter(|_| with == moments.len()) {
        return Often::EverySteps(every as u64);
    }
    match () {
        () if alike >= all * NEARLY_ALL && (0.8..1.5).contains(&per) => Often::EveryStep,
        () if alike >= all * NEARLY_ALL && per >= 1.5 => Often::PerStep(per),
        () if with < moments.len() && (with as f64) < all * NEARLY_ALL => {
            Often::InSome { times, with: with as u64, steps: all_steps }
        }
        () => Often::Among { times, steps: all_steps },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Span;

    /// `counts`: how often in each of the steps, of 100 ns.
    fn of(counts: &[u64]) -> String {
        let step = |i: usize| Step {
            span: Span { start: i as u64 * 100, end: i as u64 * 100 + 100 },
            host: Span { start: i as u64 * 100, end: i as u64 * 100 + 100 },
            number: 0,
            warm_up: false,
            odd: false,
        };
        let steps: Vec<Step> = (0..counts.len()).map(step).collect();
        let moments = counts.iter().enumerate().flat_map(|(i, &n)| (0..n).map(move |k| i as u64 * 100 + k));
        often(&moments.collect::<Vec<_>>(), &steps).to_string()
    }

    #[test]
    fn every_step_is_nearly_all_of_them() {
        assert_eq!(of(&[1; 20]), "every step");
        assert_eq!(of(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 0]), "every step");
        assert_eq!(of(&[12, 11, 12, 12, 13, 9, 12, 12]), "12 times a step");
        assert_eq!(of(&[2; 20]), "2 times a step");
    }

    #[test]
    fn what_comes_in_bursts_is_told_with_its_steps() {
        let burst: Vec<u64> = (0..56).map(|i| if i % 7 == 6 { 7 } else { 0 }).collect();
        assert_eq!(of(&burst), "56 times in 8 of 56 steps");
        assert_eq!(of(&[1, 0, 0, 0, 1, 0, 0, 0]), "2 times in 8 steps");
        assert_eq!(of(&[0, 30, 0, 30]), "60 times in 2 of 4 steps");
    }

    #[test]
    fn what_comes_evenly_is_told_with_its_period() {
        let each = |n: u64| (0..100).map(|i| u64::from(i % n == n - 1)).collect::<Vec<u64>>();
        assert_eq!(of(&each(20)), "every 20 steps");
        assert_eq!(of(&each(2)), "every 2 steps");
        assert_eq!(of(&each(50)), "2 times in 100 steps", "twice is not evenly");
    }

    #[test]
    fn what_varies_from_step_to_step_has_no_number_a_step() {
        assert_eq!(of(&[1, 2, 1, 2, 1, 2, 1, 2, 2, 2]), "16 times in 10 steps");
        assert_eq!(of(&[1, 2, 1, 2, 1, 2, 1, 2]), "12 times in 8 steps");
        assert_eq!(of(&[1, 20, 1, 20, 1, 20]), "63 times in 6 steps");
    }

    #[test]
    fn without_steps_it_is_counted() {
        assert_eq!(often(&[3, 4], &[]), Often::Times(2));
    }
}
