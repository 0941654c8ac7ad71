// SPDX-License-Identifier: Apache-2.0
//! Names that others chose (kernels, ranges, hosts, files), safe to show to people. A name may hold
//! terminal escapes, line breaks, characters that turn the text around or cannot be seen.
//! Everything that prints for people asks here; what programs read keeps the bytes.
//!
//! Escapes are Rust's: `\n`, `\r`, `\t`, else `\u{1b}`. A backslash stays one: C++ names and paths
//! are to be read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Controls (C0, C1, DEL), bidi controls, zero-width characters, line separators, tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// `c`, written out where it cannot be seen.
pub fn push(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if is_hidden(c) => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c)); // to a String: cannot fail
        }
        c => out.push(c),
    }
}

/// `text` on one line, what cannot be seen written out.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push(&mut out, c));
    Cow::Owned(out)
}

/// JSON text that is as safe: hidden characters become `\u009b`, which any reader takes for the
/// character itself. Line feeds are the layout's: inside of strings JSON has none.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| c != '\n' && is_hidden(c);
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}"); // to a String: cannot fail
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// `text` as one word of a shell command to copy: quoted where a shell would take it apart or obey
/// it, what cannot be seen as bash's `$'\x1b'` (zsh, ksh and POSIX 2024 have it too).
pub fn word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| (c.is_alphanumeric() || "/._-+:@%,=".contains(c)) && !is_hidden(c);
    if text.chars().all(plain) && !text.is_empty() {
        return Cow::Borrowed(text);
    }
    if !text.contains(is_hidden) {
        return Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")));
    }
    let mut out = String::from("$'");
    for c in text.chars() {
        let _ = match (c, u32::from(c)) {
            ('\'' | '\\', _) => write!(out, "\\{c}"),
            (c, n @ ..0x80) if is_hidden(c) => write!(out, "\\x{n:02x}"),
            (c, n @ ..0x1_0000) if is_hidden(c) => write!(out, "\\u{n:04x}"),
            (c, n) if is_hidden(c) => write!(out, "\\U{n:08x}"),
            (c, _) => write!(out, "{c}"),
        }; // to a String: cannot fail
    }
    out.push('\'');
    Cow::Owned(out)
}

/// The words of a command as a shell would take it apart, quotes and all.
pub fn words(command: &str) -> Vec<&str> {
    let (mut words, mut begin) = (Vec::new(), 0);
    let (mut quoted, mut ansi, mut before) = (false, false, ' ');
    let mut chars = command.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if !quoted || ansi => drop(chars.next()), // the next one is no quote and no blank
            '\'' => {
                quoted = !quoted;
                ansi = quoted && before == '$';
            }
            ' ' if !quoted => {
                words.push(command.get(begin..at).unwrap_or(""));
                begin = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    words.push(command.get(begin..).unwrap_or(""));
    words.retain(|w| !w.is_empty());
    words
}

/// The way to a terminal for text that is for programs (csv, stacks): line by line, each made
/// visible. Ends of lines stay.
#[derive(Debug)]
pub struct Terminal<W> {
    out: W,
    /// The line that has not ended.
    line: Vec<u8>,
}

impl<W: Write> Terminal<W> {
    /// In front of `out`.
    pub fn new(out: W) -> Terminal<W> {
        Terminal { out, line: Vec::new() }
    }

    fn show(&mut self, length: usize) -> io::Result<()> {
        let text: Vec<u8> = self.line.drain(..length).collect();
        for line in String::from_utf8_lossy(&text).split_inclusive('\n') {
            let body = line.strip_suffix('\n').unwrap_or(line);
            let body = body.strip_suffix('\r').unwrap_or(body);
            self.out.write_all(visible(body).as_bytes())?;
            if line.ends_with('\n') {
                self.out.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|&b| b == b'\n') {
            self.show(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.show(self.line.len())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out_and_the_rest_stays() {
        for plain in ["gemm<float>(\"a\", 'b') & ä 行列 ½ \\", "", "e\u{301}"] {
            assert!(matches!(visible(plain), Cow::Borrowed(p) if p == plain), "{plain}");
        }
        for (text, shown) in [
            ("a\x1b[31mb\u{9b}31m\u{7f}", "a\\u{1b}[31mb\\u{9b}31m\\u{7f}"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\u{0}"),
            (
                "\u{202e}abc\u{2066}\u{2028}\u{200b}\u{feff}",
                "\\u{202e}abc\\u{2066}\\u{2028}\\u{200b}\\u{feff}",
            ),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let text = "a\x1b\u{9b}\u{202e}\u{e0041}\"\\\nä";
        let value = serde_json::json!({"k": text, "n": [1, 2]});
        for json in [format!("{value}"), format!("{value:#}")] {
            let safe = visible_json(&json);
            assert!(!safe.contains(|c| c != '\n' && is_hidden(c)), "{safe}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
            assert_eq!(safe.lines().count(), json.lines().count());
        }
    }

    #[test]
    fn a_path_is_one_word_to_a_shell_whatever_is_in_it() {
        for (text, expected) in [
            ("/tmp/gapprobe-0/a.gpr", "/tmp/gapprobe-0/a.gpr"),
            ("/my disk/it's", "'/my disk/it'\\''s'"),
            ("$(rm x);`y`", "'$(rm x);`y`'"),
            ("", "''"),
            ("a\x1b[2J\nb'\\\u{202e}\u{e0041}ä", "$'a\\x1b[2J\\x0ab\\'\\\\\\u202e\\U000e0041ä'"),
        ] {
            assert_eq!(word(text), expected);
            assert!(!word(text).contains(is_hidden));
            // bash says what it takes it for
            let script = format!("printf %s {} x", word(text));
            let output =
                std::process::Command::new("bash").args(["-c", &script]).env("LC_ALL", "C.UTF-8").output();
            assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), format!("{text}x"));
            let command = format!("gapprobe  stats {} -r gaps", word(text));
            assert_eq!(words(&command), ["gapprobe", "stats", &word(text), "-r", "gaps"]);
        }
    }

    #[test]
    fn a_terminal_gets_lines_whatever_the_pieces() {
        let text = "ä,\x1b[2J\r\n\"x\ry\",1\r\nrest\u{202e}";
        for piece in 1..text.len() {
            let mut out = Vec::new();
            let mut terminal = Terminal::new(&mut out);
            for bytes in text.as_bytes().chunks(piece) {
                terminal.write_all(bytes).unwrap();
            }
            terminal.flush().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), "ä,\\u{1b}[2J\n\"x\\ry\",1\nrest\\u{202e}");
        }
    }
}
