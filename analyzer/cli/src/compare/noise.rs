// SPDX-License-Identifier: Apache-2.0
//! How far a figure of many steps can be believed, and whether two of them differ.
//!
//! # Within a run
//! Steps are no independent draws: in the recordings of the H200 a step resembles the one before it
//! (correlation up to 0.9: clocks, another phase of the program, a queue that fills and drains in
//! turns). The standard error of independent values would be several times too small, and call
//! drift a difference. So the steps, in order of time, are cut into B sections of equal length, and
//! their spread stands for that of the whole ("sectioning": Asmussen, Glynn, Stochastic Simulation,
//! 2007, chapter III; for the mean it is the method of batch means):
//!
//! ```text
//! f      the figure (mean or median) of all steps          f_s    of the steps of section s
//! B      whole root of the number of steps, at least 5, at most 20
//! se^2 = sum over s of (f_s - f)^2 / ((B - 1) * B)         degrees of freedom: B - 1
//! ```
//! Warm-up is left out. With fewer than 5 steps there is no estimate.
//!
//! # From run to run
//! Steps of one run do not tell how the next run differs. Measured on the H200's shared host: the
//! host side of one and the same loop varies by 15 % between runs (Python-bound steps by up to 50
//! %). So a difference must also exceed [`RUN_HOST`] of the time in which the GPU waits for the
//! host or for other ranks, and [`RUN_GPU`] of the rest, or what the user says instead.
//!
//! # The band
//! For the difference d = b - k a, where k is 1 or a limit on the ratio b / a:
//!
//! ```text
//! band^2 = t^2 * (se_b^2 + k^2 se_a^2) + (run to run, ns)^2
//! ```
//! t: 97.5 % quantile of Student's distribution, degrees of freedom by Welch (Biometrika 34, 1947),
//! rounded down. d beyond the band is a difference at 95 %.

use verdict::stats::median_of;

/// With fewer steps there is no band.
pub const MIN_STEPS: usize = 5;
/// Most sections: more do not make the band narrower by much, but shorter sections hide less
/// correlation.
const MOST_SECTIONS: usize = 20;
/// Two runs' host-side times (idle gaps, collectives) differ by up to this share without a cause
/// (see the module).
pub const RUN_HOST: f64 = 0.15;
/// The same of times in which the GPU computes or copies. Our choice: within one process the
/// kernels of two equal programs agree to a percent (H200, gpt_item 30.6 and 30.5 ms, gpt_bound
/// 51.9 and 51.9 ms, tests/gpu/results 7754a9d); between processes it has not been measured, and
/// clocks drift (own_host_sleep_fixed: 4.5 to 5.1 ms within fifty steps).
pub const RUN_GPU: f64 = 0.02;

/// A figure of many steps, and how far off it may be.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The figure, ns a step.
    pub value: f64,
    /// Its standard error; `None` with fewer than [`MIN_STEPS`] steps.
    pub error: Option<StandardError>,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StandardError {
    /// ns.
    pub se: f64,
    /// Degrees of freedom, 4 to 19.
    pub freedom: f64,
}

/// Estimates `figure` of values in order of time.
pub fn estimate(values: &[f64], figure: fn(&[f64]) -> f64) -> Estimate {
    let n = values.len();
    let value = figure(values);
    if n < MIN_STEPS {
        return Estimate { value, error: None };
    }
    let sections = n.isqrt().clamp(MIN_STEPS, MOST_SECTIONS);
    let squares: f64 = (0..sections)
        .map(|s| values.get(s * n / sections..(s + 1) * n / sections).map_or(value, figure))
        .map(|of_section| (of_section - value).powi(2))
        .sum();
    let freedom = (sections - 1) as f64;
    Estimate {
        value,
        error: Some(StandardError { se: (squares / (freedom * sections as f64)).sqrt(), freedom }),
    }
}

/// Mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Median, of an even number the mean of the middle two; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec()).unwrap_or(0.0)
}

/// Where `b` lies against `k` times `a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Below it, beyond the band.
    Below,
    /// Within the band.
    Inside,
    /// Above it, beyond the band.
    Above,
}

/// The difference of two estimates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// b - k a, ns.
    pub ns: f64,
    /// Half the width of the 95 % interval, ns; `None` where either side has no estimate of its
    /// error.
    pub band: Option<f64>,
}

impl Difference {
    /// b - k a. `run_ns`: what runs differ by without a cause, ns.
    pub fn new(a: &Estimate, b: &Estimate, k: f64, run_ns: f64) -> Difference {
        let ns = b.value - k * a.value;
        let band = a.error.zip(b.error).map(|(a, b)| {
            let (va, vb) = ((k * a.se).powi(2), b.se.powi(2));
            let weight = va.powi(2) / a.freedom + vb.powi(2) / b.freedom;
            let freedom = if weight > 0.0 { (va + vb).powi(2) / weight } else { a.freedom + b.freedom };
            (t_quantile(freedom).powi(2) * (va + vb) + run_ns.powi(2)).sqrt()
        });
        Difference { ns, band }
    }

    /// Which side of zero it lies on; `None` without a band.
    pub fn place(&self) -> Option<Place> {
        let band = self.band?;
        Some(match self.ns {
            ns if ns < -band => Place::Below,
            ns if ns > band => Place::Above,
            _ => Place::Inside,
        })
    }
}

/// 97.5 % quantile of Student's distribution, 1 to 40 degrees of freedom (any statistics table).
const T: [f64; 40] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    2.040, 2.037, 2.035, 2.032, 2.030, 2.028, 2.026, 2.024, 2.023, 2.021,
];

/// Degrees of freedom are rounded down: the wider band.
fn t_quantile(freedom: f64) -> f64 {
    let row = (freedom.max(1.0) as usize).min(T.len());
    T.get(row - 1).copied().unwrap_or(T[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 and 12 around 10, five sections of one: squares 4 * 5 = 20, over 4 * 5.
    #[test]
    fn the_error_is_that_of_the_formula() {
        let e = estimate(&[8.0, 12.0, 8.0, 12.0, 10.0], mean);
        let error = e.error.unwrap();
        assert_eq!((e.value, error.freedom), (10.0, 4.0));
        assert!((error.se - (16.0f64 / 20.0).sqrt()).abs() < 1e-12, "{e:?}");
        assert_eq!(estimate(&[1.0, 2.0, 9.0, 3.0], median), Estimate { value: 2.5, error: None });
        // 10 steps, 5 sections of two: steps that take turns cancel in each
        let turns: Vec<f64> = (0..10).map(|i| if i % 2 == 0 { 5.0 } else { 7.0 }).collect();
        assert_eq!(estimate(&turns, mean).error.unwrap().se, 0.0);
    }

    /// se 3 and 4 with 4 degrees each: 5 together; freedom 625 / (81/4 + 256/4) = 7.4, so t =
    /// 2.365.
    #[test]
    fn the_band_is_that_of_welch() {
        let of = |value, se| Estimate { value, error: Some(StandardError { se, freedom: 4.0 }) };
        let d = Difference::new(&of(100.0, 3.0), &of(112.0, 4.0), 1.0, 0.0);
        assert_eq!(d.ns, 12.0);
        assert!((d.band.unwrap() - 2.365 * 5.0).abs() < 1e-9, "{d:?}");
        assert_eq!(d.place(), Some(Place::Above));
        // 12 run to run beside 11.8: no difference any more
        let d = Difference::new(&of(100.0, 3.0), &of(112.0, 4.0), 1.0, 12.0);
        assert!((d.band.unwrap() - (11.825f64.powi(2) + 144.0).sqrt()).abs() < 1e-9);
        assert_eq!(d.place(), Some(Place::Inside));
        // against twice a
        let d = Difference::new(&of(100.0, 3.0), &of(112.0, 4.0), 2.0, 0.0);
        assert_eq!((d.ns, d.place()), (-88.0, Some(Place::Below)));
        let none = Estimate { value: 1.0, error: None };
        assert_eq!(Difference::new(&none, &of(112.0, 4.0), 1.0, 0.0).place(), None);
    }

    /// Normal enough: the sum of twelve uniform values. xorshift64*.
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }

        /// Steps of 10 with deviation 0.5, each correlated to the one before it.
        fn steps(&mut self, n: usize, correlation: f64) -> Vec<f64> {
            let mut x = self.normal();
            let own = (1.0 - correlation * correlation).sqrt();
            let mut next = || {
                x = correlation * x + own * self.normal();
                10.0 + 0.5 * x
            };
            (0..n).map(|_| next()).collect()
        }
    }

    /// The same process twice is called different in about 5 %, also where steps resemble each
    /// other.
    #[test]
    fn twice_the_same_is_no_difference() {
        for (correlation, most) in [(0.0, 0.07), (0.5, 0.10), (0.8, 0.20), (-0.8, 0.07)] {
            for figure in [mean as fn(&[f64]) -> f64, median] {
                let mut random = Random(7);
                let wrong = (0..1000).filter(|_| {
                    let a = estimate(&random.steps(100, correlation), figure);
                    let b = estimate(&random.steps(100, correlation), figure);
                    Difference::new(&a, &b, 1.0, 0.0).place() != Some(Place::Inside)
                });
                let share = wrong.count() as f64 / 1000.0;
                assert!(share <= most, "correlation {correlation}: {share}");
            }
        }
    }

    /// And a difference of four standard errors is seen.
    #[test]
    fn a_difference_is_seen() {
        let mut random = Random(11);
        let seen = (0..1000).filter(|_| {
            let a = estimate(&random.steps(100, 0.0), mean);
            let b: Vec<f64> = random.steps(100, 0.0).iter().map(|x| x + 0.28).collect();
            Difference::new(&a, &estimate(&b, mean), 1.0, 0.0).place() == Some(Place::Above)
        });
        assert!(seen.count() > 900);
    }
}
