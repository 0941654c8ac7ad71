// SPDX-License-Identifier: Apache-2.0
//! Names that foreign programs chose, safe to show: nothing invisible, nothing that turns the text
//! around, no novels.

use std::collections::HashMap;

use trace::Kind;

use verdict::run::{Op, Run};
use verdict::text::escape;
use verdict::text::kernel_name::{demangled, shortened};

/// Longest text that is kept, characters.
const MOST_CHARS: usize = 400;

/// `text` with what cannot be seen written as `\u{202e}`, cut to [`MOST_CHARS`]. Markup is no
/// danger here: `embed.rs` and the page take every text for a text.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MOST_CHARS));
    for (i, c) in text.chars().enumerate() {
        if i == MOST_CHARS {
            out.push('…');
            break;
        }
        escape::push(&mut out, c);
    }
    out
}

/// Whole and short name of a kernel definition.
pub(super) fn kernel(run: &Run, id: u32) -> (String, String) {
    let whole = demangled(run.definitions.kernel_name(id));
    (clean(&whole), clean(&shortened(&whole)))
}

/// Texts by number, each once.
#[derive(Debug, Default)]
pub(super) struct Texts {
    numbers: HashMap<String, usize>,
    kernels: HashMap<u32, usize>,
    all: Vec<String>,
}

impl Texts {
    /// The number of a text, cleaned.
    pub(super) fn number(&mut self, text: &str) -> usize {
        let text = clean(text);
        if let Some(&n) = self.numbers.get(&text) {
            return n;
        }
        self.all.push(text.clone());
        self.numbers.insert(text, self.all.len() - 1);
        self.all.len() - 1
    }

    /// The number of what an operation is called.
    pub(super) fn op(&mut self, run: &Run, op: &Op) -> usize {
        match op.kind {
            Kind::Kernel => {
                if let Some(&n) = self.kernels.get(&op.a) {
                    return n;
                }
                let n = self.number(&kernel(run, op.a).1);
                self.kernels.insert(op.a, n);
                n
            }
            Kind::Memcpy if op.is_unified() => self.number(match op.copy().direction {
                1 => "Unified Memory, host to device",
                2 => "Unified Memory, device to host",
                _ => "Unified Memory, device to device",
            }),
            Kind::Memcpy => self.number(match op.copy().direction {
                1 => "copy, host to device",
                2 => "copy, device to host",
                8 => "copy, device to device",
                10 => "copy, device to another device",
                _ => "copy",
            }),
            Kind::Memset => self.number("memset"),
            _ => self.number("CUDA graph"),
        }
    }

    /// All of them, by number.
    pub(super) fn into_all(self) -> Vec<String> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out_and_the_rest_stays() {
        assert_eq!(clean("gemm<float>(\"a\", 'b') & ä 行列"), "gemm<float>(\"a\", 'b') & ä 行列");
        assert_eq!(
            clean("a\u{202e}b\u{2066}c\u{200b}d\0e\u{2028}"),
            "a\\u{202e}b\\u{2066}c\\u{200b}d\\u{0}e\\u{2028}"
        );
        assert_eq!(clean(&"x".repeat(5000)).chars().count(), MOST_CHARS + 1);
    }
}
