// SPDX-License-Identifier: Apache-2.0
//! Text for people in the room there is: widths as a terminal counts them, names shortened in the
//! middle (what tells kernels apart stands at both ends), sentences over several lines, columns of
//! a table.
//!
//! A number is never shortened, nor is that of a line behind its file (`train.py:88 in step`).
//! Where a table is too wide its texts are; then columns are left out, and whoever prints says so:
//! first those that say nothing, then numbers from the right, then texts.

use std::borrow::Cow;
use std::ops::Range;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use verdict::text::plural::thousands;

/// Nothing is laid out for less, columns.
pub const LEAST: usize = 20;
/// Texts keep this many columns while there are more numbers in a table than [`NUMBERS`] ...
const READABLE: usize = 24;
/// ... which are left out before names cannot be read any more.
const NUMBERS: usize = 3;
/// Texts keep this many columns before the last numbers and other texts are left out.
const LEAST_TEXT: usize = 12;
/// Between two columns of a table.
const GAP: usize = 2;

/// Columns that `text` takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// An amount of data: three digits and a unit (powers of ten).
pub fn bytes(n: f64) -> String {
    let (value, unit) = match n {
        n if n >= 1e12 => (n / 1e12, "TB"),
        n if n >= 1e9 => (n / 1e9, "GB"),
        n if n >= 1e6 => (n / 1e6, "MB"),
        n if n >= 1e3 => (n / 1e3, "kB"),
        n => return format!("{n:.0} B"),
    };
    match value {
        v if v >= 99.95 => format!("{v:.0} {unit}"),
        v if v >= 9.995 => format!("{v:.1} {unit}"),
        v => format!("{v:.2} {unit}"),
    }
}

/// `text` in at most so many columns, its middle replaced by `…` where it is wider; of `file:line
/// in function` the ends of the file and of the function are.
pub fn middle(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    if let Some(short) = around_a_line_number(text, most) {
        return Cow::Owned(short);
    }
    let room = most.saturating_sub(1);
    let head = fitting(text.chars(), room.div_ceil(2));
    let tail = fitting(text.chars().rev(), room / 2);
    let mut out: String = text.chars().take(head).collect();
    out.push('…');
    let all = text.chars().count();
    out.extend(text.chars().skip(all.saturating_sub(tail)));
    Cow::Owned(out)
}

/// `…layers.py:17 in st…`; `None` where the text names no line, or there is room for nothing beside
/// its number.
fn around_a_line_number(text: &str, most: usize) -> Option<String> {
    let number = line_number(text)?;
    let (file, behind) = (text.get(..number.start)?, text.get(number.end..)?);
    let number = text.get(number)?;
    let room = most.checked_sub(width(number))?;
    // a third for what stands behind, or what the file leaves
    let behind_room = match room.saturating_sub(width(file)).max(room / 3).min(width(behind)) {
        // less than two letters of the function say nothing
        few if few < width(behind) && few < " in ab…".chars().count() => room.saturating_sub(1).min(1),
        enough => enough,
    };
    let file_room = room - behind_room;
    if file_room == 0 {
        return None;
    }
    let mut out = String::new();
    if width(file) > file_room {
        out.push('…');
        let all = file.chars().count();
        let tail = fitting(file.chars().rev(), file_room - 1);
        out.extend(file.chars().skip(all - tail));
    } else {
        out.push_str(file);
    }
    out.push_str(number);
    if width(behind) > behind_room && behind_room > 0 {
        let head = fitting(behind.chars(), behind_room - 1);
        let head: String = behind.chars().take(head).collect();
        out.push_str(head.trim_end());
        out.push('…');
    } else if behind_room > 0 {
        out.push_str(behind);
    }
    Some(out)
}

/// Where `:88` stands, behind a file and in front of ` in step`, or at the end.
fn line_number(text: &str) -> Option<Range<usize>> {
    text.match_indices(':').find_map(|(at, _)| {
        let rest = text.get(at + 1..)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let behind = rest.get(digits..)?;
        let ends = behind.starts_with(" in ") || behind.bytes().all(|b| b",.;:)]".contains(&b));
        (at > 0 && digits > 0 && ends).then_some(at..at + 1 + digits)
    })
}

/// How many of the characters fit.
fn fitting(chars: impl Iterator<Item = char>, room: usize) -> usize {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    chars.take_while(fits).count()
}

/// Adds a sentence over as many lines as it takes, the later ones set in. A word that is wider than
/// a line stays whole; with `shorten` it does not.
pub fn wrap(out: &mut String, indent: &str, text: &str, most: usize, shorten: bool) {
    let mut used = 0;
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let word = match shorten {
            true => middle(word, most.saturating_sub(indent.len() + 2).max(1)),
            false => Cow::Borrowed(word),
        };
        let length = width(&word);
        if used == 0 {
            out.push_str(indent);
            used = indent.len() + length;
        } else if used + 1 + length > most {
            out.push('\n');
            out.push_str(indent);
            out.push_str("  ");
            used = indent.len() + 2 + length;
        } else {
            out.push(' ');
            used += 1 + length;
        }
        out.push_str(&word);
    }
    out.push('\n');
}

/// Text whose lines fit: those that are wider than `most` columns go over several, set in as they
/// begin. `None`: as it is.
pub fn lines(text: &str, most: Option<usize>) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match most.map(|m| m.max(LEAST)).filter(|&m| width(line) > m) {
            Some(most) => {
                let (indent, rest) = line.split_at(line.len() - line.trim_start_matches(' ').len());
                wrap(&mut out, indent, rest, most, true);
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// A column of a table before it has its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Of its widest cell, heading included.
    pub width: usize,
    /// Of the heading.
    pub heading: usize,
    /// Holds texts, which stand left and may be shortened.
    pub text: bool,
    /// Some cell is neither empty nor zero.
    pub says: bool,
    /// Left out last.
    pub keep: bool,
    /// Of columns that are parts of a whole, how much of it: the smallest are left out first. 0 of
    /// others.
    pub weight: u128,
}

/// The widths of the columns of a table in lines of at most `most` columns (`None`: as wide as it
/// is); `None` for columns that are left out. Each column takes [`line()`]'s gap as well.
pub fn layout(wanted: &[Wanted], most: Option<usize>) -> Vec<Option<usize>> {
    let mut layout = Layout {
        wanted,
        widths: wanted.iter().map(|w| Some(w.width)).collect(),
        most: most.map_or(usize::MAX, |m| m.max(LEAST)),
        first: wanted.iter().position(|w| w.text && w.says),
    };
    layout.fit();
    layout.widths
}

struct Layout<'a> {
    wanted: &'a [Wanted],
    widths: Vec<Option<usize>>,
    most: usize,
    /// The first text: with the first column it says what a row is about.
    first: Option<usize>,
}

impl Layout<'_> {
    fn fit(&mut self) {
        if self.over() == 0 {
            return;
        }
        self.shorten(READABLE);
        self.leave_out(|_, w| !w.says, 0);
        self.leave_out(|kept, w| !kept && !w.text, NUMBERS);
        self.shorten(LEAST_TEXT);
        self.leave_out(|kept, w| !kept && !w.text, 0);
        self.leave_out(|kept, _| !kept, 0);
        self.leave_out(|_, w| !w.text, 0);
        self.spread();
        // one text alone may still be too wide
        let over = self.over();
        if let Some(Some(width)) = self.first.and_then(|n| self.widths.get_mut(n)) {
            *width = width.saturating_sub(over).max(1);
        }
    }

    /// Columns beyond the room.
    fn over(&self) -> usize {
        let used: usize = self.widths.iter().flatten().map(|w| w + GAP).sum();
        used.saturating_sub(self.most)
    }

    /// Gives texts so much room, those that need more.
    fn shorten(&mut self, most: usize) {
        for (width, wanted) in self.widths.iter_mut().zip(self.wanted) {
            if let (Some(width), true) = (width, wanted.text) {
                *width = wanted.width.min(most.max(wanted.heading));
            }
        }
    }

    /// Leaves columns out, the smallest parts first and from the right, until it fits, as long as
    /// more than so many numbers are there.
    fn leave_out(&mut self, goes: impl Fn(bool, &Wanted) -> bool, numbers: usize) {
        let mut order: Vec<(usize, &Wanted)> = self.wanted.iter().enumerate().rev().collect();
        order.sort_by_key(|(_, w)| w.weight);
        for (n, wanted) in order {
            let kept = n == 0 || wanted.keep || Some(n) == self.first;
            let there =
                self.wanted.iter().zip(&self.widths).filter(|(w, width)| !w.text && width.is_some()).count();
            let last = self.widths.iter().flatten().count() == 1;
            if self.over() > 0 && !last && goes(kept, wanted) && (numbers == 0 || there > numbers) {
                if let Some(width) = self.widths.get_mut(n) {
                    *width = None;
                }
            }
        }
    }

    /// What is left goes to the texts, the shortest first: each gets what it needs, or as much as
    /// the others.
    fn spread(&mut self) {
        let used: usize = self.widths.iter().flatten().map(|w| w + GAP).sum();
        let mut room = self.most.saturating_sub(used);
        let mut texts: Vec<(&Wanted, &mut usize)> = self
            .wanted
            .iter()
            .zip(&mut self.widths)
            .filter_map(|(w, width)| Some((w, width.as_mut()?)).filter(|_| w.text))
            .collect();
        texts.sort_by_key(|t| t.0.width);
        let count = texts.len();
        for (i, (wanted, width)) in texts.into_iter().enumerate() {
            let more = (wanted.width - *width).min(room / (count - i));
            *width += more;
            room -= more;
        }
    }
}

/// Adds a line of a table, its cells (text or not, width, content) as [`layout`] placed them: texts
/// left, numbers right.
pub fn line<'a>(out: &mut String, cells: impl Iterator<Item = (bool, Option<usize>, Cow<'a, str>)>) {
    let begin = out.len();
    for (text, most, cell) in cells {
        let Some(most) = most else { continue };
        let cell = if text { middle(&cell, most) } else { cell.as_ref().into() };
        let gap = std::iter::repeat_n(' ', most.saturating_sub(width(&cell)));
        out.extend(std::iter::repeat_n(' ', GAP));
        if text {
            out.push_str(&cell);
            out.extend(gap);
        } else {
            out.extend(gap);
            out.push_str(&cell);
        }
    }
    let end = out.trim_end_matches(' ').len().max(begin);
    out.truncate(end);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shortened_in_its_middle_to_exactly_the_room() {
        for (text, most, short) in [
            ("abcdefgh", 8, "abcdefgh"),
            ("abcdefgh", 7, "abc…fgh"),
            ("abcdefgh", 6, "abc…gh"),
            ("abcdefgh", 2, "a…"),
            ("abcdefgh", 1, "…"),
            // two columns each
            ("行列行列行列", 12, "行列行列行列"),
            ("行列行列行列", 11, "行列…行列"),
            ("行列行列行列", 8, "行列…列"),
        ] {
            assert_eq!(middle(text, most), short, "{text} {most}");
            assert!(width(&middle(text, most)) <= most);
        }
    }

    #[test]
    fn the_number_of_a_line_is_never_shortened() {
        let site = "causes/sync_item_layers.py:17 in train_one_step";
        for (text, most, short) in [
            (site, 47, site),
            (site, 46, "causes/sync_item_layers.py:17 in train_one_st…"),
            (site, 34, "…/sync_item_layers.py:17 in train…"),
            (site, 20, "…_item_layers.py:17…"),
            (site, 12, "…yers.py:17…"),
            (site, 5, "…:17…"),
            ("(causes/sync_item_layers.py:1234),", 20, "…em_layers.py:1234),"),
            ("/a/long/path/to/train.py:88", 15, "…to/train.py:88"),
            // these are no lines
            ("at::native::abcdefgh", 9, "at::…efgh"),
            ("cuda:0 and more of it", 9, "cuda…f it"),
        ] {
            assert_eq!(middle(text, most), short, "{text} {most}");
            assert!(width(&middle(text, most)) <= most, "{text} {most}");
        }
    }

    #[test]
    fn sentences_are_broken_at_blanks() {
        let mut out = String::new();
        wrap(&mut out, "", "one two three four", 9, false);
        assert_eq!(out, "one two\n  three\n  four\n");
        out.clear();
        wrap(&mut out, "  ", "a/very/long/path b", 10, false);
        assert_eq!(out, "  a/very/long/path\n    b\n");
        out.clear();
        wrap(&mut out, "  ", "a/very/long/path b", 10, true);
        assert_eq!(out, "  a/v…th b\n");
    }

    #[test]
    fn lines_that_fit_stay_as_they_are() {
        let text = "A  run\n   one two three\n\nend\n";
        assert_eq!(lines(text, None), text);
        assert_eq!(lines(text, Some(80)), text);
        let long = "   one two three four five six\nA  run\n";
        assert_eq!(lines(long, Some(20)), "   one two three\n     four five six\nA  run\n");
    }

    fn number(width: usize, says: bool) -> Wanted {
        Wanted { width, heading: width, says, ..Wanted::default() }
    }

    fn text(width: usize) -> Wanted {
        Wanted { width, heading: 4, text: true, says: true, ..Wanted::default() }
    }

    #[test]
    fn a_table_that_fits_or_has_no_limit_is_as_wide_as_it_is() {
        let columns = [number(8, true), text(100), number(5, false)];
        let all = vec![Some(8), Some(100), Some(5)];
        assert_eq!(layout(&columns, None), all);
        assert_eq!(layout(&columns, Some(119)), all);
        assert_ne!(layout(&columns, Some(118)), all);
    }

    #[test]
    fn texts_are_shortened_before_columns_go() {
        let columns = [number(8, true), text(100), text(10), number(5, true)];
        assert_eq!(layout(&columns, Some(60)), [Some(8), Some(29), Some(10), Some(5)]);
        // two long texts share alike
        let columns = [text(100), text(80), text(10)];
        assert_eq!(layout(&columns, Some(76)), [Some(30), Some(30), Some(10)]);
    }

    #[test]
    fn columns_that_say_nothing_go_first_then_numbers_from_the_right() {
        let (ten, none) = (number(10, true), number(10, false));
        let columns = [number(8, true), none, ten, ten, ten, text(40)];
        // 48 and 24, and 12 between
        assert_eq!(layout(&columns, Some(84)), [Some(8), Some(10), Some(10), Some(10), Some(10), Some(24)]);
        assert_eq!(layout(&columns, Some(83)), [Some(8), None, Some(10), Some(10), Some(10), Some(35)]);
        // three numbers stay and the name becomes short, then they go
        assert_eq!(layout(&columns, Some(60)), [Some(8), None, Some(10), Some(10), None, Some(24)]);
        assert_eq!(layout(&columns, Some(50)), [Some(8), None, Some(10), Some(10), None, Some(14)]);
        assert_eq!(layout(&columns, Some(40)), [Some(8), None, Some(10), None, None, Some(16)]);
        let mut kept = columns;
        kept[4].keep = true;
        assert_eq!(
            layout(&kept, Some(40)),
            [Some(8), None, None, None, Some(10), Some(16)],
            "the sorted column"
        );
    }

    /// Whatever the columns, no line is wider than asked, and something is left.
    #[test]
    fn no_line_is_wider_than_the_room() {
        for most in LEAST..200 {
            for columns in [
                vec![number(8, true), number(40, true), text(300), text(2)],
                vec![text(300), text(300), text(300)],
                vec![number(12, true); 14],
                vec![number(15, true), Wanted { heading: 30, ..text(90) }],
            ] {
                let widths = layout(&columns, Some(most));
                let mut out = String::new();
                let cell = |w: &Wanted| Cow::Owned("x".repeat(w.width));
                line(&mut out, columns.iter().zip(&widths).map(|(w, &width)| (w.text, width, cell(w))));
                assert!(width(out.trim_end()) <= most, "{most}: {out}");
                assert!(widths.iter().any(Option::is_some));
            }
        }
    }
}
