// SPDX-License-Identifier: Apache-2.0
//! `-` for a file: stdout where something is written, and said to be no input where a trace is
//! read.

use crate::place::{code, err, out, Place};
use crate::training::{put, Shape};

#[test]
fn what_is_written_goes_to_stdout() {
    let place = Place::new("dash-out");
    put(&place, "t", Shape::default());
    for (args, begins) in [
        (&["report", "t", "-o", "-"][..], "<!doctype html>"),
        (&["export", "t", "--to", "csv", "-o", "-"], "kind,"),
    ] {
        let output = place.run(args);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{args:?}");
        let text = out(&output).to_lowercase();
        assert!(text.starts_with(begins), "{args:?}: {:?}", text.get(..60));
        assert!(!place.out().join("-").exists(), "{args:?}");
    }
    // the page is the one that a file gets
    let page = out(&place.run(&["report", "t", "-o", "-"]));
    assert_eq!(code(&place.run(&["report", "t", "-o", "page.html"])), 0);
    assert_eq!(page, std::fs::read_to_string(place.out().join("page.html")).unwrap());
}

#[test]
fn a_trace_is_no_stdin() {
    let place = Place::new("dash-in");
    put(&place, "t", Shape::default());
    for args in
        [&["analyze", "-"][..], &["stats", "-"], &["check", "-"], &["diff", "t", "-"], &["report", "-"]]
    {
        let output = place.run(args);
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{args:?}");
        let said = err(&output);
        assert!(
            said.contains("a trace is not read from stdin") && said.contains("\nhint: "),
            "{args:?}: {said}"
        );
    }
    // who has a file of that name has it
    std::fs::rename(place.out().join("t"), place.out().join("-")).unwrap();
    assert_eq!(code(&place.run(&["analyze", "-"])), 0);
}
