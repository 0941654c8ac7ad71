// SPDX-License-Identifier: Apache-2.0
//! A page of text of a certain width: sentences, sections of rows with names in them, commands to
//! copy.

use std::borrow::Cow;

use verdict::text::escape::{visible, words};

use super::rows::Fields;
use crate::terminal_width;

/// Columns of bars and sentences where nobody says how many there are; names are whole there.
const USUAL: usize = 100;
/// Sentences are not wider, columns: they are read.
const SENTENCE: usize = 96;

/// The page.
pub(super) struct Page {
    pub(super) text: String,
    /// Columns of a line, at most.
    most: usize,
    /// There is a terminal that the lines must fit, or somebody said how wide they may be: paths
    /// and commands, too.
    fitted: bool,
}

impl Page {
    /// An empty page of so many columns; `None`: nobody said how many.
    pub(super) fn new(width: Option<usize>) -> Page {
        let most = width.unwrap_or(USUAL).max(terminal_width::LEAST);
        Page { text: String::new(), most, fitted: width.is_some() }
    }

    /// Columns that are left of a line behind `used`.
    pub(super) fn room(&self, used: usize) -> usize {
        self.most.saturating_sub(used)
    }

    /// A line that holds a path: over several where it must fit, else as it is.
    pub(super) fn line(&mut self, text: &str) {
        if self.fitted && terminal_width::width(text) > self.most {
            terminal_width::wrap(&mut self.text, "", text, self.most, true);
        } else {
            self.text.push_str(text);
            self.text.push('\n');
        }
    }

    /// A sentence.
    pub(super) fn sentence(&mut self, indent: &str, text: &str) {
        terminal_width::wrap(&mut self.text, indent, &visible(text), self.most.min(SENTENCE), self.fitted);
    }

    /// A command to copy. One that is too wide goes on behind backslashes, as a shell reads it; a
    /// word that is wider than a line stays whole, or it would be another word.
    pub(super) fn command(&mut self, text: &str) {
        let text = visible(text);
        let words = words(&text);
        // columns from this word to the end
        let rest = |n: usize| words.iter().skip(n).map(|w| terminal_width::width(w) + 1).sum::<usize>();
        let mut used = 0;
        for (n, word) in words.iter().enumerate() {
            let length = terminal_width::width(word);
            // two columns for the backslash, but behind the last word
            let room = self.most.saturating_sub(if used + rest(n) > self.most { 2 } else { 0 });
            if self.fitted && used > 0 && used + 1 + length > room {
                self.text.push_str(" \\\n    ");
                used = 4;
            } else if used > 0 {
                self.text.push(' ');
                used += 1;
            }
            self.text.push_str(word);
            used += length;
        }
        self.text.push('\n');
    }

    /// Rows under a title, nothing without rows. `row` makes one, its names in at most so many
    /// columns.
    pub(super) fn section<'a>(
        &mut self,
        title: &str,
        rows: impl Iterator<Item = Fields<'a>>,
        row: impl Fn(&Fields<'a>, usize) -> String,
    ) {
        self.section_with(title, rows, row, None);
    }

    /// As [`Page::section`], with a sentence below the rows.
    pub(super) fn section_with<'a>(
        &mut self,
        title: &str,
        rows: impl Iterator<Item = Fields<'a>>,
        row: impl Fn(&Fields<'a>, usize) -> String,
        foot: Option<&str>,
    ) {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return;
        }
        self.sentence("", title);
        let room = self.room(2);
        for fields in rows {
            if !self.fitted {
                self.text.push_str("  ");
                self.text.push_str(row(&fields, usize::MAX).trim_end());
                self.text.push('\n');
                continue;
            }
            // the longest names with which it fits
            let fits = |most: usize| terminal_width::width(row(&fields, most).trim_end()) <= room;
            let (mut low, mut high) = (LEAST_NAME, room.max(LEAST_NAME));
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if fits(middle) {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            if fits(low) {
                self.text.push_str("  ");
                self.text.push_str(row(&fields, low).trim_end());
                self.text.push('\n');
            } else {
                terminal_width::wrap(&mut self.text, "  ", &row(&fields, room / 2), self.most, true);
            }
        }
        if let Some(foot) = foot {
            self.sentence("  ", foot);
        }
        self.text.push('\n');
    }
}

/// A name is not made shorter than this, columns; the row goes on in another line instead.
const LEAST_NAME: usize = 12;

/// A name in at most so many columns.
pub(super) fn name(text: &str, most: usize) -> String {
    match visible(text) {
        Cow::Borrowed(text) => terminal_width::middle(text, most).into_owned(),
        Cow::Owned(text) => terminal_width::middle(&text, most).into_owned(),
    }
}
