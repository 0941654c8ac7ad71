// SPDX-License-Identifier: Apache-2.0
//! CSV, read as RFC 4180 has it.

/// The records of a file, fields unquoted.
pub(crate) fn records(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut chars, mut quoted) = (text.chars().peekable(), false);
    while let Some(c) = chars.next() {
        match (quoted, c) {
            (true, '"') if chars.peek() == Some(&'"') => field.extend(chars.next()),
            (_, '"') => quoted = !quoted,
            (false, ',') => record.push(std::mem::take(&mut field)),
            (false, '\r') => {
                assert_eq!(chars.next(), Some('\n'), "a bare CR");
                record.push(std::mem::take(&mut field));
                all.push(std::mem::take(&mut record));
            }
            _ => field.push(c),
        }
    }
    assert!(!quoted && field.is_empty() && record.is_empty(), "the file ends in a record");
    all
}
