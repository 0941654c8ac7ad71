// SPDX-License-Identifier: Apache-2.0
//! Shares and middle values: every median of ours is one of these.

/// `part` of `whole`, 0 where there is no whole.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// The middle one, of an even number the larger of the middle two: always one of the values. `None`
/// of none. Linear time; the values change their places.
pub fn middle<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    let at = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(at).1)
}

/// The median: the middle one, of an even number the mean of the middle two. `None` of none. Linear
/// time; the values change their places.
pub fn exact_median(values: &mut [u64]) -> Option<f64> {
    middle_two(values).map(|(below, above)| (u128::from(below) + u128::from(above)) as f64 / 2.0)
}

/// The same in whole numbers, half of one rounded up; 0 of none. Every median of step times is this
/// one.
pub fn median(values: &mut [u64]) -> u64 {
    middle_two(values).map_or(0, |(below, above)| above - (above - below) / 2)
}

/// The middle two of an even number, the middle one twice of an odd one.
fn middle_two(values: &mut [u64]) -> Option<(u64, u64)> {
    let above = middle(values)?;
    let (lower, _) = values.split_at(values.len() / 2);
    let below = lower.iter().max().copied().filter(|_| values.len() % 2 == 0);
    Some((below.unwrap_or(above), above))
}

/// The median of real numbers: the middle one, of an even number the mean of the middle two. `None`
/// of none. Sorts.
pub fn median_of(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let above = *values.get(values.len() / 2)?;
    let below = values.get((values.len() - 1) / 2).copied().unwrap_or(above);
    Some((below + above) / 2.0)
}

/// The middle one, of an even number the smaller of the middle two: of two ranks the faster. `None`
/// of none. Sorts.
pub fn lower_middle(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_and_of_none() {
        assert_eq!(middle(&mut [3, 1, 2]), Some(2));
        assert_eq!(middle(&mut [4, 1, 2, 3]), Some(3), "one of the values");
        assert_eq!(middle::<u32>(&mut []), None);
        assert_eq!((median(&mut [5, 1, 2]), exact_median(&mut [5, 1, 2])), (2, Some(2.0)));
        assert_eq!((median(&mut [4, 1, 2, 9]), exact_median(&mut [4, 1, 2, 9])), (3, Some(3.0)));
        assert_eq!((median(&mut [1, 2]), exact_median(&mut [1, 2])), (2, Some(1.5)), "half rounded up");
        assert_eq!((median(&mut []), exact_median(&mut [])), (0, None));
        assert_eq!(exact_median(&mut [u64::MAX, u64::MAX]), Some(u64::MAX as f64));
        assert_eq!(median_of(&mut [2.0, 1.0, 4.0, 3.0]), Some(2.5));
        assert_eq!(median_of(&mut [7.0]), Some(7.0));
        assert_eq!(median_of(&mut []), None);
        assert_eq!(lower_middle(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.0), "one of the values");
        assert_eq!(lower_middle(&mut []), None);
    }
}
