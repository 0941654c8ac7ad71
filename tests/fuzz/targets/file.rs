// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a file of any kind (runs of zeros written short, see `sparse`): recording, Chrome
//! JSON, SQLite, compressed or not. No panic, and what `sound` asks for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sparse::{sound, Kept};

fuzz_target!(|input: &[u8]| {
    let bytes = sparse::expand(input);
    let file = Kept::new();
    std::fs::write(&file.0, &bytes).expect("room for the file");
    match formats::read(&file.0, &Default::default()) {
        Ok(input) => sound::check(&input),
        Err(error) => assert!(!error.what.is_empty() && !error.to_string().contains('\n'), "{error}"),
    }
});
