// SPDX-License-Identifier: Apache-2.0
//! Purpose: an event that is no JSON is read where it can be, and weighs by what it was where not.

mod made;

use made::{case, gapprobe, line, read, Trace};

/// Three frames of Python have quotes in their names: they are read, and nothing is lost.
#[test]
fn quotes_in_names_are_read() {
    let (input, a) = read(&case("unescaped_quotes.json"));
    let r = input.refused;
    assert_eq!((r.recovered, r.aside, r.broken, r.lost()), (3, 0, 0, 0));
    assert!(input.notes.iter().any(|n| n.contains("3 events with quotes in the name")), "{:?}", input.notes);
    let (_, whole) = read(&case("with_stack.json"));
    assert_eq!((a.verdict.cause, a.verdict.confidence), (whole.verdict.cause, whole.verdict.confidence));
    assert_eq!(input.events, 1_260);
}

fn training() -> Trace {
    let mut t = Trace::new();
    for _ in 0..30 {
        t.layers(4, 200);
        t.synchronize();
    }
    t
}

/// What cannot be read weighs by what it was: a frame of Python is no kernel.
#[test]
fn a_lost_frame_is_no_lost_kernel() {
    let broken =
        |cat: &str| format!(r#"{{"ph":"X","cat":"{cat}","name":"f","pid":1 "tid":1,"ts":1,"dur":2}}"#);
    for (cat, weighs) in
        [("python_function", false), ("cpu_op", false), ("kernel", true), ("cuda_runtime", true)]
    {
        let mut t = training();
        (0..10).for_each(|_| t.raw(&broken(cat)));
        t.layers(1, 10);
        let (input, a) = t.read();
        let r = input.refused;
        assert_eq!((r.aside, r.broken), if weighs { (0, 10) } else { (10, 0) }, "{cat}");
        assert_eq!(a.verdict.cause == "INCONCLUSIVE", weighs, "{cat}: {}", line(&input, &a));
    }
}

/// The same of an event without a length, or with one below nothing.
#[test]
fn a_frame_without_a_length_is_no_lost_kernel() {
    for time in [r#""ts":1"#, r#""ts":1,"dur":-2"#] {
        for (cat, weighs) in [("python_function", false), ("cpu_op", false), ("kernel", true)] {
            let mut t = training();
            (0..10).for_each(|_| {
                t.raw(&format!(r#"{{"ph":"X","cat":"{cat}","name":"f","pid":1,"tid":1,{time}}}"#));
            });
            let (input, a) = t.read();
            let r = input.refused;
            let lost = if weighs { (0, 10) } else { (10, 0) };
            assert_eq!((r.aside, r.no_time + r.negative), lost, "{cat}");
            assert_eq!(a.verdict.cause == "INCONCLUSIVE", weighs, "{cat}: {}", line(&input, &a));
        }
    }
}

/// Of a kernel that cannot be read the launch is there: one loss, not two.
#[test]
fn a_kernel_that_cannot_be_read_is_lost_once() {
    let mut t = Trace::new();
    for n in 0..30 {
        t.layers(4, 200);
        if n % 10 == 5 {
            t.call("cudaLaunchKernel", 5);
            t.raw(r#"{"ph":"X","cat":"kernel","name":"k","pid":0 "tid":7,"ts":1,"dur":2}"#);
        }
        t.synchronize();
    }
    let (input, a) = t.read();
    let said = line(&input, &a);
    assert!(said.contains("3 events lost") && said.contains("losses 3 (damaged)"), "{said}");
}

/// The screen says what kind of event it was.
#[test]
fn what_was_read_all_the_same_is_a_remark() {
    let (text, code) = gapprobe(&["analyze", "--json"], &case("unescaped_quotes.json"));
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((all["input"]["refused"]["recovered"].as_u64(), code), (Some(3), Some(0)), "{text}");
}
