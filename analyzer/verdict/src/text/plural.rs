// SPDX-License-Identifier: Apache-2.0
//! Counts in sentences: "1 event", "2 events".

/// A count and what is counted, whose plural ends in s.
pub fn counted(n: u64, one: &str) -> String {
    format!("{n} {one}{}", of(n, "", "s"))
}

/// The word for one or the word for many.
pub fn of<'a>(n: u64, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 {
        one
    } else {
        many
    }
}

/// A count, thousands set apart.
pub fn thousands(n: impl std::fmt::Display) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_none_are_many() {
        let all: Vec<String> =
            (0..3).map(|n| format!("{} {}", counted(n, "step"), of(n, "is", "are"))).collect();
        assert_eq!(all, ["0 steps are", "1 step is", "2 steps are"]);
    }
}
