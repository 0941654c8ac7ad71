// SPDX-License-Identifier: Apache-2.0
//! A few rows in columns: numbers to the right, texts to the left, the last column as long as it
//! is.

use cli::terminal_width;

/// Lays rows out, headings first; `left`: columns of text. Lines wider than `most` are cut in their
/// last column.
pub(crate) fn lay_out(rows: &[Vec<String>], left: &[usize], most: Option<usize>) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest =
        |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| terminal_width::width(t)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (c, text) in row.iter().enumerate() {
            let room = widths[c].saturating_sub(terminal_width::width(text));
            let last = c + 1 == columns;
            match left.contains(&c) {
                true if last => {
                    let rest =
                        most.map_or(usize::MAX, |m| m.saturating_sub(terminal_width::width(&line)).max(8));
                    line.push_str(&terminal_width::middle(text, rest));
                }
                true => line.push_str(&format!("{text}{}", " ".repeat(room))),
                false => line.push_str(&format!("{}{text}", " ".repeat(room))),
            }
            if !last {
                line.push_str("  ");
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_stand_below_each_other_and_the_last_text_is_cut() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let rows = [row("PID", "PROGRAM"), row("1234", "python a_program_of_a_long_name.py")];
        assert_eq!(super::lay_out(&rows, &[1], None)[1], "1234  python a_program_of_a_long_name.py");
        assert_eq!(super::lay_out(&rows, &[1], Some(20)), [" PID  PROGRAM", "1234  python …ame.py"]);
    }
}
