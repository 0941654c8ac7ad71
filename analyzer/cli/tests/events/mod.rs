// SPDX-License-Identifier: Apache-2.0
//! The events of another tool's trace, to be changed one by one.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Those of a trace of this repository.
pub(crate) fn events_of(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/{name}.json.gz"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    match all["traceEvents"].take() {
        Value::Array(events) => events,
        _ => panic!("no list of events"),
    }
}
