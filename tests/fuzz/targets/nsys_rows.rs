// SPDX-License-Identifier: Apache-2.0
//! Exports of nsys that SQLite itself wrote, with any value in any column: no panic, what `sound`
//! asks for, and each row of work is an operation or is counted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparse::{rows, sound, Kept};

fuzz_target!(|input: &[u8]| {
    let file = Kept::new();
    let written = rows::write(&file.0, input).expect("SQLite takes any value in any column");
    let Ok(input) = formats::read(&file.0, &Default::default()) else { return };
    sound::check(&input);
    if written.only_work {
        let ops: usize = input.run.devices.iter().map(|d| d.ops()).sum();
        let counted = input.refused.lost() + input.refused.duplicates;
        assert_eq!(ops as u64 + counted, written.work, "{:?}", input.refused);
    }
});
