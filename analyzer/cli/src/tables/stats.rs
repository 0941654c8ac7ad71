// SPDX-License-Identifier: Apache-2.0
//! Figures of a set of times or sizes, from whole numbers, exactly.
//!
//! ```text
//! total   sum of x, in 128 bits
//! avg     total / n
//! med     the middle one of the sorted x; of an even number the mean of the middle two
//! stddev  sqrt( sum of (x - avg)^2 / (n - 1) ): of a sample, as nsys has it; 0 for one value
//!         computed as sqrt( (n * S2 - S1^2) / (n * (n - 1)) ), S1 = sum of (x - m), S2 = sum of (x - m)^2,
//!         m = avg rounded down: whole numbers up to the root, so nothing cancels
//! ```
//! A quotient is the nearest double, as SQLite's AVG gives it: figures printed by nsys agree to the
//! last digit.

use verdict::stats::exact_median;

/// Values on their way to [`Stats`].
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<u64>);

/// Figures of a set that is not empty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stats {
    /// How many.
    pub count: u64,
    /// Sum.
    pub total: u128,
    /// Mean.
    pub avg: f64,
    /// Median.
    pub med: f64,
    /// Least.
    pub min: u64,
    /// Greatest.
    pub max: u64,
    /// Standard deviation of a sample.
    pub stddev: f64,
}

impl Samples {
    /// One more.
    pub fn push(&mut self, value: u64) {
        self.0.push(value);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sum.
    pub fn total(&self) -> u128 {
        self.0.iter().map(|&x| u128::from(x)).sum()
    }

    /// The figures; `None` of nothing. Linear time.
    pub fn stats(mut self) -> Option<Stats> {
        let n = self.0.len();
        let (min, max) = (*self.0.iter().min()?, *self.0.iter().max()?);
        let total = self.total();
        let stddev = stddev(&self.0, total);
        let med = exact_median(&mut self.0)?;
        Some(Stats { count: n as u64, total, avg: total as f64 / n as f64, med, min, max, stddev })
    }
}

/// See the module. In doubles where whole numbers of 128 bits are too small (values of years).
fn stddev(values: &[u64], total: u128) -> f64 {
    let n = values.len() as u128;
    if n < 2 {
        return 0.0;
    }
    let middle = (total / n) as u64; // a mean of u64 is one
    let exact = || {
        let (mut s1, mut s2) = (0i128, 0u128);
        for &x in values {
            s1 += i128::from(x) - i128::from(middle);
            let off = u128::from(x.abs_diff(middle));
            s2 = s2.checked_add(off.checked_mul(off)?)?;
        }
        // s1 lies between 0 and n
        n.checked_mul(s2)?.checked_sub(s1.unsigned_abs().checked_pow(2)?)
    };
    let variance = match exact() {
        Some(sum) => sum as f64 / (n * (n - 1)) as f64,
        None => values.iter().map(|&x| (x.abs_diff(middle) as f64).powi(2)).sum::<f64>() / (n - 1) as f64,
    };
    variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Stats {
        let mut s = Samples::default();
        values.iter().for_each(|&x| s.push(x));
        s.stats().expect("values")
    }

    #[test]
    fn figures_are_those_of_the_formulas() {
        // 2 4 4 4 5 5 7 9: sum 40, mean 5, squares of the distances 9+1+1+1+0+0+4+16 = 32, over 7
        let s = of(&[4, 9, 2, 4, 5, 7, 4, 5]);
        assert_eq!((s.count, s.total, s.avg, s.med, s.min, s.max), (8, 40, 5.0, 4.5, 2, 9));
        assert_eq!(s.stddev, (32.0f64 / 7.0).sqrt());
        // odd: 1 2 6: mean 3, 4+1+9 = 14, over 2
        let s = of(&[6, 1, 2]);
        assert_eq!((s.avg, s.med, s.stddev), (3.0, 2.0, 7f64.sqrt()));
        // a mean that is no whole number: 1 2: 0.5, distances 0.5, 0.5 over 1
        assert_eq!(of(&[1, 2]).stddev, 0.5f64.sqrt());
        let s = of(&[7]);
        assert_eq!((s.avg, s.med, s.min, s.max, s.stddev), (7.0, 7.0, 7, 7, 0.0));
        assert!(Samples::default().stats().is_none());
    }

    #[test]
    fn large_equal_values_do_not_cancel() {
        // squares of doubles would lose the 1 in 10^15
        let s = of(&[1_000_000_000_000_000, 1_000_000_000_000_001, 1_000_000_000_000_002]);
        assert_eq!((s.stddev, s.med), (1.0, 1_000_000_000_000_001.0));
        let s = of(&[u64::MAX, 0, u64::MAX, 0]);
        assert!((s.stddev / (u64::MAX as f64 / 3f64.sqrt()) - 1.0).abs() < 1e-12, "{}", s.stddev);
        assert_eq!((s.total, s.med), (2 * u128::from(u64::MAX), u64::MAX as f64 / 2.0));
    }
}
