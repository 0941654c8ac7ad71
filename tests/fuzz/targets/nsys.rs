// SPDX-License-Identifier: Apache-2.0
//! Any bytes as an SQLite file of nsys (runs of zeros written short, see `sparse`): no panic, and
//! what `sound` asks for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparse::{sound, Kept};

fuzz_target!(|input: &[u8]| {
    let bytes = sparse::expand(input);
    let file = Kept::new();
    std::fs::write(&file.0, &bytes).expect("room for the file");
    if let Ok(input) = formats::read(&file.0, &Default::default()) {
        sound::check(&input);
    }
});
