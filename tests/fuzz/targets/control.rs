// SPDX-License-Identifier: Apache-2.0
//! Lines on a control socket, from either side: no panic, and what is understood is said in one way
//! only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::control::{Answer, Request, MOST_BYTES};

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = Request::parse(line) {
        let said = request.to_string();
        assert!(said.len() <= MOST_BYTES && Request::parse(said.as_bytes()) == Ok(request), "{said:?}");
    }
    if let Some(answer) = Answer::parse(line) {
        let said = answer.to_string();
        assert!(said.len() <= MOST_BYTES && Answer::parse(said.as_bytes()) == Some(answer), "{said:?}");
    }
});
