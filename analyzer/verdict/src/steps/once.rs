// SPDX-License-Identifier: Apache-2.0
//! Steps far longer than the others. What made them so happened once or twice, and is no cost of
//! each step; comes evenly, and is part of the mean step; or comes three times and more,
//! irregularly: it is a cost of the run, and nobody knows when it comes next.

use super::{LongSteps, Step, Steps};
use crate::run::Span;
use crate::timeline::buckets::NOTICED_SHARE;

/// So many times as long as nine of ten others take.
const FAR: u64 = 3;
/// Of fewer steps nine of ten are nobody: so many times as long as all others take.
const FAR_OF_FEW: u64 = 10;
const FEW: usize = 10;
/// Of fewer steps nobody knows what is usual.
const LEAST_STEPS: usize = 5;
/// What comes so often, or less, is no cost of each step.
const ONCE_OR_TWICE: usize = 2;
/// So many have a mean, evenly or not.
const MANY: usize = 10;
/// The steps from one to the next differ by no more than this share of their median, or by one.
const EVEN: f64 = 0.15;

/// Takes those that happened once or twice out of the steps.
pub(super) fn take_out(steps: &mut Steps) {
    let (times, last) = (times(steps.steady()), steps.steady().len().saturating_sub(1));
    let far = far(&times);
    let usual = crate::stats::median(&mut times.clone());
    let extra: u64 = far.iter().filter_map(|&i| times.get(i)).map(|ns| ns.saturating_sub(usual)).sum();
    let all: u64 = times.iter().sum();
    if (extra as f64) < NOTICED_SHARE * all as f64 {
        return;
    }
    let (once, recurring) = sorted(&far);
    let warm_up = steps.warm_up;
    let span_of = |&i: &usize| steps.steps.get(warm_up + i).map(|s: &Step| s.span);
    let spans: Vec<Span> = recurring.iter().filter_map(span_of).collect();
    steps.long = LongSteps { every: evenly(recurring), spans };
    steps.ends_long = once.contains(&last);
    for &i in once.iter().rev() {
        steps.once.insert(0, steps.steps.remove(warm_up + i));
    }
}

fn times(steps: &[Step]) -> Vec<u64> {
    steps.iter().map(|s| s.span.ns()).collect()
}

/// Which of them are far longer than the others, ascending.
fn far(times: &[u64]) -> Vec<usize> {
    if times.len() < LEAST_STEPS {
        return Vec::new();
    }
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (at, by) = match times.len() {
        n if n < FEW => (n - 2, FAR_OF_FEW),
        n => ((n * 9).div_ceil(10) - 1, FAR),
    };
    let limit = sorted.get(at).copied().unwrap_or(u64::MAX).saturating_mul(by);
    (0..times.len()).filter(|&i| times.get(i).is_some_and(|ns| *ns > limit)).collect()
}

/// Those that happened once or twice, and those that came again and again: of these the first and
/// the last may be others (a first load, the end of the run).
fn sorted(far: &[usize]) -> (Vec<usize>, &[usize]) {
    if far.len() <= ONCE_OR_TWICE {
        return (far.to_vec(), &[]);
    }
    let n = far.len();
    let even = [(0, n), (0, n - 1), (1, n), (1, n - 1)];
    let inner = even.into_iter().filter_map(|(from, to)| far.get(from..to));
    match inner.filter(|inner| evenly(inner).is_some()).max_by_key(|inner| inner.len()) {
        Some(inner) => (far.iter().copied().filter(|i| !inner.contains(i)).collect(), inner),
        None => (Vec::new(), far),
    }
}

/// How many steps it is from each of these to the next (their median), where there are three or
/// more of them and that is about the same each time.
pub(crate) fn evenly(at: &[usize]) -> Option<usize> {
    if at.len() <= ONCE_OR_TWICE {
        return None;
    }
    let gaps: Vec<u64> = at.windows(2).map(|w| (w[1] - w[0]) as u64).collect();
    let usual = crate::stats::median(&mut gaps.clone());
    let most = (usual as f64 * EVEN).max(1.0);
    let is_even = usual > 1 && gaps.iter().all(|gap| gap.abs_diff(usual) as f64 <= most);
    is_even.then_some(usual as usize)
}

impl LongSteps {
    /// They come too seldom, and too unevenly, to stand for a mean.
    pub fn are_uneven(&self) -> bool {
        self.every.is_none() && !self.spans.is_empty() && self.spans.len() < MANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_is_three_times_what_nine_of_ten_take() {
        let of = |n: usize, long: &[(usize, u64)]| {
            let mut times = vec![10; n];
            long.iter().for_each(|&(i, ns)| times[i] = ns);
            far(&times)
        };
        assert_eq!(of(20, &[(7, 31)]), [7]);
        assert_eq!(of(20, &[(7, 30)]), [0; 0]);
        assert_eq!(of(40, &[(7, 100), (20, 100), (39, 31)]), [7, 20, 39]);
        assert_eq!(of(20, &[(3, 100), (7, 100), (11, 100)]), [0; 0], "more than a tenth of them");
        assert_eq!((of(6, &[(5, 101)]), of(6, &[(5, 99)])), (vec![5], vec![]), "of few: ten times");
        assert_eq!(of(4, &[(3, 1000)]), [0; 0]);
    }

    #[test]
    fn what_comes_evenly_stays_and_what_stands_at_its_ends_may_be_something_else() {
        assert_eq!(sorted(&[19, 39, 59, 79]), (vec![], &[19, 39, 59, 79][..]));
        assert_eq!(sorted(&[19, 39, 59, 79, 85]), (vec![85], &[19, 39, 59, 79][..]));
        assert_eq!(sorted(&[9, 19, 39, 59, 64]), (vec![9, 64], &[19, 39, 59][..]));
        assert_eq!(sorted(&[7, 50]), (vec![7, 50], &[][..]), "twice is not evenly");
        assert_eq!(sorted(&[7, 11, 50]), (vec![], &[7, 11, 50][..]));
    }

    #[test]
    fn even_is_about_the_same_number_of_steps_each_time() {
        assert_eq!(evenly(&[19, 39, 59]), Some(20));
        assert_eq!(evenly(&[3, 10, 18, 25]), Some(7));
        assert_eq!(evenly(&[0, 20, 50]), None);
        assert_eq!(evenly(&[4, 5, 6]), None, "each step");
        assert_eq!(evenly(&[4, 24]), None);
    }
}
