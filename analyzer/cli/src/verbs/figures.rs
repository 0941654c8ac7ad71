// SPDX-License-Identifier: Apache-2.0
//! Figures on the command line: shares, factors, times. What is refused says what is allowed.

use std::time::Duration;

/// A share: `10%` or `0.1`. A plain number from 1 on is ambiguous, and refused.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let allowed = "a percentage such as 10%, or a fraction below 1 such as 0.1";
    let (number, percent) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (text.trim(), false),
    };
    let value = positive(number).ok_or_else(|| allowed.to_owned())?;
    match percent {
        true => Ok(value / 100.0),
        false if value < 1.0 => Ok(value),
        false => Err(format!("{allowed} ({number}% or {}?)", value / 100.0)),
    }
}

/// A share of a whole: at most 100%.
pub(crate) fn part(text: &str) -> Result<f64, String> {
    share(text).and_then(|s| if s <= 1.0 { Ok(s) } else { Err("at most 100%".to_owned()) })
}

/// Milliseconds, above 0.
pub(crate) fn ms(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("ms").trim_end();
    positive(number).filter(|v| *v > 0.0).ok_or_else(|| "milliseconds above 0, such as 50 or 0.8".to_owned())
}

/// A time: `15s`, `500ms`, `2m`, `1.5h`, or a plain number of seconds; from a millisecond to a day.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "" | "s" => Some(1.0),
        "ms" => Some(1e-3),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let value = seconds.and_then(|s| Some(positive(number)? * s));
    let allowed = "a time such as 15s, 500ms or 2m, at most 24h";
    let value = value.filter(|s| (0.001..=86_400.0).contains(s)).ok_or_else(|| allowed.to_owned())?;
    Ok(Duration::from_secs_f64(value))
}

/// A factor above 0: `1.1` or `1.1x`.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('x');
    positive(number).filter(|v| *v > 0.0).ok_or_else(|| "a factor above 0, such as 1.1".to_owned())
}

/// GPUs of two runs: `1,8`.
pub(crate) fn gpus(text: &str) -> Result<(u32, u32), String> {
    let number = |t: &str| t.trim().parse::<u32>().ok().filter(|n| *n > 0);
    let both = text.split_once(',').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    both.ok_or_else(|| "two numbers of GPUs, such as 1,8".to_owned())
}

/// Finite, not negative, written with digits (Rust's parser takes "inf" and "nan" too).
fn positive(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse::<f64>().ok().filter(|v| plain && v.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_and_fractions_are_shares() {
        for (text, value) in
            [("10%", 0.1), ("10 %", 0.1), ("0.1", 0.1), (".5", 0.5), ("0", 0.0), ("150%", 1.5), ("1%", 0.01)]
        {
            assert_eq!(share(text), Ok(value), "{text}");
        }
        assert_eq!((part("100%"), part("101%").is_err()), (Ok(1.0), true));
        for text in ["", "%", "10", "1", "-1%", "-0.1", "1e-2", "nan", "inf%", "ten%", "10%%", "0,1", "0.1.2"]
        {
            assert!(share(text).is_err(), "{text}");
        }
        assert!(share("10").unwrap_err().contains("10% or 0.1?"));
    }

    #[test]
    fn times_have_a_unit_and_a_limit() {
        for (text, ms) in
            [("15s", 15_000), ("15", 15_000), ("500ms", 500), ("2m", 120_000), ("1.5 h", 5_400_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "0", "-1s", "1e3", "25h", "nan", "1d", "1 2", "inf", "0.0001s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn factors_times_and_pairs() {
        assert_eq!(
            (factor("1.1"), factor("2x"), ms("50"), ms("0.8ms")),
            (Ok(1.1), Ok(2.0), Ok(50.0), Ok(0.8))
        );
        assert_eq!(gpus("1,8"), Ok((1, 8)));
        for text in ["", "0", "-3", "nan", "x", "ms", "1e400"] {
            assert!(factor(text).is_err() && ms(text).is_err(), "{text}");
        }
        for text in ["", "8", "0,8", "1,0", "1,8,9", "a,b"] {
            assert!(gpus(text).is_err(), "{text}");
        }
    }
}
