// SPDX-License-Identifier: Apache-2.0
//! Purpose: the recording holds every kernel the device ran, with its true times, and the call that
//! launched it: 200,000 kernels from four threads over three streams, graphs among them, on every
//! release of CUPTI.

use std::collections::HashMap;

use gapprobe_scenarios::truth::Op;
use gapprobe_scenarios::{releases, Run, Victim};
use trace::call::Class;
use trace::{Loss, Total};

/// Every kernel of the truth is in the recording once, with its times, its stream's and its
/// launching thread's track.
fn holds_every_kernel(run: &Run, release: &str) {
    let (truth, recorded) = (run.truth(), run.recorded());
    let launched = run.launched();
    assert_eq!(recorded.problems, Default::default(), "{release}");
    let data_lost: Vec<_> = Loss::ALL
        .iter()
        .filter(|l| l.severity() == trace::loss::Severity::Data && recorded.loss(**l) > 0)
        .map(|l| (l.key(), recorded.loss(*l)))
        .collect();
    assert!(data_lost.is_empty(), "{release}: {data_lost:?}");
    let kernels = recorded.kernels();
    assert_eq!(kernels.len() as u64, launched, "{release}: {:?}", recorded.losses());
    assert_eq!(recorded.total(Total::Kernels), launched);

    // (start, end) of each correlation's ops, in time's order; a graph launch has several
    let mut true_ops: HashMap<u32, Vec<&Op>> = HashMap::new();
    for op in truth.kernels() {
        true_ops.entry(op.correlation).or_default().push(op);
    }
    let mut seen: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
    for (_, kernel) in &kernels {
        seen.entry(kernel.correlation).or_default().push((kernel.start, kernel.end));
    }
    assert_eq!(seen.len(), true_ops.len(), "{release}: correlations");
    for (correlation, ops) in &true_ops {
        let mut wanted: Vec<_> = ops.iter().map(|o| (o.start, o.end)).collect();
        let mut got = seen.get(correlation).cloned().unwrap_or_default();
        wanted.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, wanted, "{release}: correlation {correlation}");
    }

    let mut calls = recorded.calls(Class::Launch);
    let graphs = recorded.calls(Class::GraphLaunch);
    // the calls of a capture launch nothing, and are calls all the same
    let made = truth.calls.iter().filter(|c| c.name.ends_with("LaunchKernel")).count();
    let missing = || {
        let have: std::collections::HashSet<u32> = calls.iter().map(|(_, e)| e.correlation).collect();
        let lost =
            truth.calls.iter().filter(|c| c.name.ends_with("LaunchKernel") && !have.contains(&c.correlation));
        lost.take(5).cloned().collect::<Vec<_>>()
    };
    assert_eq!(calls.len(), made, "{release}: launch calls; missing {:?}", missing());
    calls.extend(graphs);
    let threads: HashMap<u32, (u32, u64, u64)> =
        calls.iter().map(|(tid, e)| (e.correlation, (*tid, e.start, e.end))).collect();
    assert_eq!(threads.len(), calls.len(), "{release}: one call a correlation");
    for (correlation, ops) in &true_ops {
        let (tid, start, _) = threads.get(correlation).unwrap_or_else(|| panic!("no call {correlation}"));
        assert_eq!(*tid, ops[0].tid, "{release}: the launching thread");
        assert!(ops.iter().all(|o| o.start >= *start), "{release}: a kernel starts after its launch began");
    }
}

#[test]
fn two_hundred_thousand_kernels_in_every_release() {
    for &release in releases() {
        // a launch of 6 us: four threads on two cores give about 200,000 a second with the truth
        // written beside
        let run = Victim::ours(release, &["many", "4", "50000"]).env("SIM_LAUNCH_NS", "6000").whole().run();
        assert_eq!(run.ending(), 0, "{release}: {}", run.stderr);
        assert_eq!(run.launched(), 200_000);
        holds_every_kernel(&run, release);
    }
}

#[test]
fn threads_that_use_the_gpu_first_all_at_once_lose_nothing() {
    for release in ["12.4", "13.0", "13.5"] {
        let run = Victim::sim(release, &["threads", "1", "16", "50", "own"]).run();
        assert_eq!((run.ending(), run.launched()), (0, 800), "{release}: {}", run.stderr);
        holds_every_kernel(&run, release);
    }
}

#[test]
fn driver_calls_and_graphs_and_copies_in_every_release() {
    for &release in releases() {
        for flags in ["d", "g", "ps"] {
            let run = Victim::sim(release, &["loop", "30", "50", "8", "300", "2", flags]).run();
            assert_eq!((run.ending(), run.launched()), (0, 1500), "{release} {flags}: {}", run.stderr);
            holds_every_kernel(&run, release);
            let copies = run.truth().ops.iter().filter(|o| o.kind == "memcpy").count() as u64;
            assert_eq!(run.recorded().total(Total::Copies), copies, "{release} {flags}");
        }
    }
}

/// What CUPTI's own thread has taken to deliver and not yet delivered is in nobody's flush. Leaving
/// waits for it ...
#[test]
fn buffers_on_their_way_when_the_program_ends() {
    for release in ["11.8", "13.0"] {
        let victim = Victim::sim(release, &["loop", "100", "200", "4", "0", "1"]);
        let run = victim.env("SIM_FAULT", "worker=slow:5ms").env("SIM_LAUNCH_NS", "8000").run();
        assert_eq!((run.ending(), run.launched()), (0, 20_000), "{release}: {}", run.stderr);
        holds_every_kernel(&run, release);
    }
}

/// ... as long as it can, and says what it did not get.
#[test]
fn buffers_that_come_too_late_are_counted() {
    let victim = Victim::sim("13.0", &["loop", "100", "200", "4", "0", "1"]);
    let run = victim.env("SIM_FAULT", "worker=slow:9000ms").env("SIM_LAUNCH_NS", "8000").run();
    assert_eq!((run.ending(), run.launched()), (0, 20_000), "{}", run.stderr);
    let recorded = run.recorded();
    let missing = run.launched() - recorded.kernels().len() as u64;
    let buffers = recorded.loss(Loss::BufferNotReturned);
    assert!(missing > 0, "what the worker took first comes after the end");
    // a buffer of 128 KB holds at most 606 kernels of 216 bytes
    assert!(buffers > 0 && missing <= buffers * 606, "{missing} kernels in {buffers} buffers");
    assert!(run.stderr.contains("[GP199]"), "{}", run.stderr);
}
