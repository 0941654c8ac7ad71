// SPDX-License-Identifier: Apache-2.0
//! Purpose: what other tools' traces say of a call: its name, though no table of ours has it, and
//! the id that its kernel has, too; an id that says nothing is no kernel that is missing.

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

/// 32 of 160 kernels have the id 0: they are there, and whose they are is not told.
#[test]
fn kernels_without_an_id_of_their_own_are_not_missing() {
    let (input, a) = read(&case("correlation_zero.json"));
    let said = line(&input, &a);
    assert_eq!((a.unanswered, input.run.uncalled.unidentified), (0, 32));
    assert!(said.contains("which calls launched 32 of its 160 operations is not told"), "{said}");
    assert!(said.contains("losses 0"), "{said}");
}

/// The same where they all have the id of one launch, before and behind it.
#[test]
fn an_id_that_kernels_share_is_nobodys() {
    for (shared, is_many) in [(true, true), (true, false), (false, true)] {
        let mut t = Trace::new();
        for n in 0..40 {
            t.layers(3, 4);
            if is_many || n % 20 == 5 {
                t.call("cudaLaunchKernel", 5);
                let id = if shared { 7 } else { t.correlation };
                t.kernel_of("ncclDevKernel_AllReduce", 6, id);
            }
            t.synchronize();
        }
        let (input, a) = t.read();
        let said = line(&input, &a);
        assert_eq!(a.unanswered, 0, "{said}");
        assert_eq!(input.run.uncalled.early, 0, "{said}");
        let told = said.contains("operations is not told: their correlation ids are 0 or shared");
        assert_eq!(told, shared && is_many, "{said}");
    }
}

/// Launches whose kernels are nowhere are missing, whatever ids others have.
#[test]
fn kernels_that_are_not_there_stay_missing() {
    let mut t = Trace::new();
    for _ in 0..40 {
        t.layers(3, 40);
        t.call("cudaLaunchKernel", 5);
        t.synchronize();
    }
    let (input, a) = t.read();
    assert!((39..=40).contains(&a.unanswered), "{}: {}", a.unanswered, line(&input, &a));
}
