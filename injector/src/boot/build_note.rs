// SPDX-License-Identifier: Apache-2.0
//! An ELF note that says what this file was built from. `gapprobe --version --json` reads it off
//! the file; in the process nobody does (COLD).

use spool::elf;

/// Bytes of version and commit, zeros behind them.
const TEXT: usize = 64;

#[repr(C, align(4))]
struct Note {
    name_length: u32,
    length: u32,
    kind: u32,
    name: [u8; 12],
    text: [u8; TEXT],
}

// (the linker keeps notes)
#[used]
#[link_section = ".note.gapprobe"]
static NOTE: Note = Note {
    name_length: elf::BUILD_NOTE.0.len() as u32,
    length: TEXT as u32,
    kind: elf::BUILD_NOTE.1 as u32,
    name: padded(&[elf::BUILD_NOTE.0]),
    text: padded(&[
        env!("CARGO_PKG_VERSION").as_bytes(),
        b" ",
        match option_env!("GAPPROBE_COMMIT") {
            Some(commit) => commit.as_bytes(),
            None => b"",
        },
    ]),
};

/// The parts in a row, and zeros.
#[expect(clippy::indexing_slicing, reason = "computed by the compiler: what is too long does not build")]
const fn padded<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let (mut all, mut at, mut part) = ([0; N], 0, 0);
    while part < parts.len() {
        let mut n = 0;
        while n < parts[part].len() {
            all[at] = parts[part][n];
            (at, n) = (at + 1, n + 1);
        }
        part += 1;
    }
    all
}
