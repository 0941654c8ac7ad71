// SPDX-License-Identifier: Apache-2.0
//! Purpose: a client of CUPTI's V2 API (torch.profiler with CuspyConfig, cupti-python) cannot share
//! a process with one of V1, as we are: it would be answered MULTIPLE_SUBSCRIBERS. Its records are
//! the same with us as without, a hundred times on and off, whether it comes before us or later: we
//! stay away, or leave for good, with one line and what was recorded until then. The client is
//! ctypes, in the order of calls of PyTorch's `_cuspy`; what CUPTI answers is the real one's
//! (second_api.rs of the simulated driver).

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{Run, Victim};
use trace::event::Unobserved;

const RELEASE: &str = "13.5";

/// A hundred times on and off.
fn client(when: &str) -> Victim {
    let program = root().join("tests/gpu/programs/v2_profiled.py");
    let cupti = built().sim.join(RELEASE).join("libcupti.so.13");
    let words = [program.to_str().expect("UTF-8"), cupti.to_str().expect("UTF-8"), when, "100"];
    Victim::of("python3", &words, RELEASE).limit(std::time::Duration::from_secs(60))
}

/// With us and without: the same output, and one line of ours.
fn same(when: &str) -> Run {
    let (alone, with) = (client(when).alone().run(), client(when).run());
    assert_eq!(alone.ending(), 0, "{}", alone.stderr);
    assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{}", with.stderr);
    assert!(
        alone.stdout.lines().all(|l| l == "100 kernels, 100 with times, 100 launches"),
        "{}",
        alone.stdout
    );
    with
}

#[test]
fn it_gets_its_records_before_us_and_we_stay_away() {
    let with = same("first");
    assert!(with.stderr.contains("not recording: a client of CUPTI's V2 API"), "{}", with.stderr);
    assert_eq!((with.lines().len(), with.summary().is_some()), (1, false), "{}", with.stderr);
    let ours = ["cuptiSubscribe", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiFinalize"];
    let truth = with.truth();
    let done = truth.cupti.iter().find(|c| ours.contains(&c.name.as_str()) && c.result == 0);
    assert!(done.is_none(), "we do nothing to CUPTI: {done:?}");
}

#[test]
fn it_gets_its_records_after_us_and_what_came_before_is_kept() {
    let with = same("later");
    assert!(with.stderr.contains("recording ends here: a client of CUPTI's V2 API"), "{}", with.stderr);
    let recorded = with.recorded();
    assert_eq!(recorded.kernels().len(), 300, "those before it, and none of the {} after", 200 * 100);
    let off = recorded.off();
    assert!(!off.is_empty() && off.iter().all(|s| s.a == Unobserved::Yielded as u32), "{off:?}");
    let torn_down = with.truth().cupti.iter().filter(|c| c.name == "cuptiFinalize").count();
    assert_eq!(torn_down, 1, "once: we do not come back");
}
