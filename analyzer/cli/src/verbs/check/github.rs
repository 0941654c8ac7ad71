// SPDX-License-Identifier: Apache-2.0
//! A workflow command of GitHub Actions: an annotation at the line of Python that a pull request
//! shows.

use cli::compare::gate::Answer;

use super::Checked;

/// One command: an error where a condition is not met, a warning where one cannot be judged.
pub(super) fn command(o: &Checked<'_>) -> String {
    let kind = match o.all() {
        Answer::Ok => "notice",
        Answer::Failed => "error",
        Answer::Unjudged => "warning",
    };
    let place = o.place().map(|(file, line)| format!("file={},line={line},", property(&file)));
    format!("::{kind} {}title={}::{}", place.unwrap_or_default(), property(&o.title()), data(&o.message()))
}

/// As GitHub takes a command's text apart.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The same of a value in front of it.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_property_or_a_command_is_escaped() {
        assert_eq!(data("50% idle: a, b\r\n::error::c"), "50%25 idle: a, b%0D%0A::error::c");
        assert_eq!(property("C:\\a,b%.py\n"), "C%3A\\a%2Cb%25.py%0A");
    }
}
