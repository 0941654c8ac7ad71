// SPDX-License-Identifier: Apache-2.0
//! Purpose: what other tools' traces say of a call: its name, though no table of ours has it.

mod made;

use made::{case, line, read, Trace};

/// A call that our table does not have has the name that the trace gives it.
#[test]
fn calls_are_named_as_the_trace_names_them() {
    for (file, call) in
        [("driver_allocations.json", "cuMemAlloc_v2"), ("driver_allocations.sqlite", "cuMemAlloc_v2")]
    {
        let (input, a) = read(&case(file));
        let said = line(&input, &a);
        assert!(said.contains(call) && !said.contains("(unknown call)"), "{file}: {said}");
        let named = input.run.call(a.verdict.call).map(|(_, c)| input.run.call_name(c));
        assert_eq!(named, Some(call), "{file}");
    }
    // likewise a wait
    let mut t = Trace::new();
    for _ in 0..30 {
        t.layers(2, 100);
        let until = t.free.max(t.t) + 300;
        t.call("cudaStreamSynchronize_ptsz_v7000", until - t.t);
    }
    let (input, a) = t.read();
    let said = line(&input, &a);
    assert!(said.contains("cudaStreamSynchronize_ptsz drains") && a.verdict.cause == "SYNC", "{said}");
}
