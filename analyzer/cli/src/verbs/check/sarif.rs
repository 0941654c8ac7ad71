// SPDX-License-Identifier: Apache-2.0
//! SARIF 2.1.0, for code scanning: the cause is the rule, `explain` its help, and the result stands
//! at the line of Python.

use cli::compare::gate::Answer;
use serde_json::{json, Value};
use verdict::causes;

use super::Checked;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The log: one run, one result.
pub(super) fn log(o: &Checked<'_>) -> Value {
    let v = &o.side.analysis.verdict;
    let level = match o.all() {
        Answer::Ok => "note",
        Answer::Failed => "error",
        Answer::Unjudged => "warning",
    };
    let cause = causes::find(v.code);
    let (title, page) = cause.map_or_else(Default::default, |c| (c.title(), c.doc()));
    // (code scanning takes no result without a place: without a line it is the trace)
    let location = match o.place() {
        Some((file, line)) => {
            json!({"artifactLocation": {"uri": uri(&file)}, "region": {"startLine": line}})
        }
        None => json!({"artifactLocation": {"uri": uri(&o.side.name)}}),
    };
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "gapprobe",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [{
                    "id": v.code,
                    "name": v.cause,
                    "shortDescription": {"text": title},
                    "help": {"text": page, "markdown": page},
                }],
            }},
            "results": [{
                "ruleId": v.code,
                "ruleIndex": 0,
                "level": level,
                "message": {"text": o.message()},
                "locations": [{"physicalLocation": location}],
            }],
        }],
    })
}

/// A path as a reference (RFC 3986): absolute ones with their scheme, other characters as `%20`.
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_reference_that_any_reader_takes() {
        assert_eq!(uri("src/my model.py"), "src/my%20model.py");
        assert_eq!(uri("/job/a:b#é.py"), "file:///job/a%3Ab%23%C3%A9.py");
    }
}
