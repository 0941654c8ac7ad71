// SPDX-License-Identifier: Apache-2.0
//! Purpose: which stream a call waits for, or makes wait, is recorded with the call: by its
//! callback while we hold CUPTI's subscription (a handle that comes again for another stream is
//! told apart), by CUPTI's own records where somebody else has it. They are the dearest kind of
//! records there is (docs/run-cost.md), so they are never on beside callbacks.

use gapprobe_scenarios::built::{preload, shared_library};
use gapprobe_scenarios::{Run, Victim};
use trace::call::Class;
use trace::header::sources::WAITS_BY_CALLS;
use trace::{Event, Kind};

/// What CUPTI's numbers say of a wait.
const STREAM_WAITS: u32 = 2;
const WAITS_FOR_STREAM: u32 = 3;

fn waits(run: &Run, what: u32) -> Vec<Event> {
    let mut found: Vec<_> =
        run.recorded().of(Kind::SyncRecord).map(|w| w.1).filter(|w| w.a == what).collect();
    found.sort_by_key(|w| w.start);
    found
}

/// Each of the two calls of each kind behind a kernel names the kernel's stream.
fn names_streams(run: &Run, label: &str) {
    let recorded = run.recorded();
    let mut kernels = recorded.kernels();
    kernels.sort_by_key(|k| k.1.start);
    assert_eq!(kernels.len(), 60, "{label}");
    for (what, class) in [(WAITS_FOR_STREAM, Class::Sync), (STREAM_WAITS, Class::StreamWait)] {
        let found = waits(run, what);
        let streams: Vec<u32> = found.iter().map(|w| w.c).collect();
        let real: Vec<u32> = kernels.iter().flat_map(|k| [k.0, k.0]).collect();
        assert_eq!(streams, real, "{label}, {what}");
        for (_, call) in recorded.calls(class).iter().take(found.len()) {
            let own = found.iter().filter(|w| w.correlation == call.correlation).count();
            assert_eq!(own, 1, "{label}, {what}: {call:?}");
        }
    }
}

#[test]
fn a_call_says_which_stream_it_waits_for() {
    for release in ["11.8", "12.4", "13.0"] {
        let run = Victim::ours(release, &["streams", "20"]).run();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 60\n"), "{release}: {}", run.stderr);
        let header = run.recorded().header;
        assert!(header.sources & WAITS_BY_CALLS != 0, "{release}: {:#x}", header.sources);
        names_streams(&run, release);
    }
}

#[test]
fn where_somebody_else_may_have_the_subscription_cuptis_records_say_it() {
    // (by its name a client, whose `dlsym` no wrapper of ours can stand before: it has none)
    let plugin = shared_library("libtensorflow", "");
    let mut both = preload();
    both.push(":");
    both.push(&plugin);
    let run = Victim::ours("13.0", &["streams", "20"]).env("LD_PRELOAD", both).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 60\n"), "{}", run.stderr);
    let sources = run.recorded().header.sources;
    assert!(sources & WAITS_BY_CALLS == 0, "{sources:#x}");
    for what in [WAITS_FOR_STREAM, STREAM_WAITS] {
        assert_eq!(waits(&run, what).len(), 120, "{what}");
    }
    std::fs::remove_file(plugin).expect("it goes again");
}
