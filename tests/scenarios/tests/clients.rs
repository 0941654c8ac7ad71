// SPDX-License-Identifier: Apache-2.0
//! Purpose: another client of CUPTI in the same process gets the same records with gapprobe as
//! without, twice; we record before and after, and the span between is unobserved, never idle. One
//! client as Kineto (linked, through the PLT), one as XLA (dlsym, frees every buffer it is handed,
//! may tear CUPTI down at its end), one as Proton (its kinds first).

use gapprobe_scenarios::built::{self, built, root};
use gapprobe_scenarios::pythons::pythons;
use gapprobe_scenarios::{cases, Run, Victim};
use trace::call::Class;
use trace::event::Unobserved;
use trace::header::sources;
use trace::Loss;

/// Kernels that ran outside the spans the recording calls unobserved are in it, and none inside.
/// Returns how many are.
fn holds_what_it_observed(run: &Run, label: &str) -> usize {
    let (truth, recorded) = (run.truth(), run.recorded());
    let spans = recorded.unobserved();
    assert!(!spans.is_empty(), "{label}: the other's spans are said to be unobserved");
    assert!(recorded.off().iter().all(|s| s.a == Unobserved::Yielded as u32), "{label}: {spans:?}");
    let have: std::collections::HashSet<u32> =
        recorded.kernels().iter().map(|(_, k)| k.correlation).collect();
    let outside = |start: u64, end: u64| spans.iter().all(|s| end < s.start || start > s.end);
    for kernel in truth.kernels().filter(|k| outside(k.start, k.end)) {
        assert!(have.contains(&kernel.correlation), "{label}: {kernel:?} is missing; unobserved: {spans:?}");
    }
    // and so are the calls that launched them: without these a kernel waits for no reason
    let calls: std::collections::HashSet<u32> =
        recorded.calls(Class::Launch).iter().map(|(_, c)| c.correlation).collect();
    for call in truth.calls.iter().filter(|c| c.name.contains("Launch") && outside(c.start, c.end)) {
        assert!(calls.contains(&call.correlation), "{label}: {call:?} is missing; unobserved: {spans:?}");
    }
    let real: std::collections::HashMap<u32, (u64, u64)> =
        truth.kernels().map(|k| (k.correlation, (k.start, k.end))).collect();
    for (_, kernel) in recorded.kernels() {
        assert_eq!(real.get(&kernel.correlation), Some(&(kernel.start, kernel.end)), "{label}: {kernel:?}");
    }
    for lost in [Loss::CaughtPanic, Loss::ForeignBuffer, Loss::BufferNotReturned] {
        assert_eq!(recorded.loss(lost), 0, "{label}: {:?}", recorded.losses());
    }
    have.len()
}

fn both(victim: impl Fn() -> Victim, label: &str) -> Run {
    let (alone, with) = (victim().alone().run(), victim().run());
    assert_eq!(alone.ending(), 0, "{label}: {} {}", alone.stdout, alone.stderr);
    assert_eq!((with.ending(), &with.stdout), (0, &alone.stdout), "{label}: {}", with.stderr);
    assert_eq!(with.others(), alone.others(), "{label}");
    assert!(with.lines().len() <= 1, "{label}: {}", with.stderr);
    with
}

#[test]
fn a_client_like_kineto_gets_the_same_records_twice() {
    for &release in cases(&["13.0", "12.4"]) {
        let with = both(|| Victim::ours(release, &["kineto_pauses", "300", "2"]), release);
        let recorded = with.recorded();
        assert_ne!(recorded.header.sources & sources::GAVE_UP, 0, "{release}");
        let have = holds_what_it_observed(&with, release);
        // of 300 before, 300 in, 300 after each profile: the 300 before each are ours for certain
        assert!(have >= 600, "{release}: {have} kernels; {:?}", recorded.unobserved());
        assert_eq!(recorded.off().len(), 2, "{release}: we were back between the two");
        let spans = recorded.unobserved();
        let idle = with.summary().expect("a summary")["coverage"]["unobserved_ns"].as_u64().unwrap_or(0);
        let total: u64 = spans.iter().map(|s| s.end - s.start).sum();
        assert!(idle > 0 && idle <= total, "{release}: the report knows: {idle} of {total}");
    }
}

/// Where windows may open and close launches are told by callbacks, until another client takes the
/// subscription.
#[test]
fn launches_go_on_where_a_client_takes_the_callbacks_that_told_them() {
    for &release in cases(&["13.0", "12.4"]) {
        let victim = || Victim::ours(release, &["kineto_pauses", "300", "2", "subscribe"]);
        let with = both(|| victim().env("GAPPROBE_BUDGET", "99"), release);
        let recorded = with.recorded();
        assert_ne!(recorded.header.sources & sources::GAVE_UP, 0, "{release}");
        let kernels: std::collections::HashSet<u32> =
            recorded.kernels().iter().map(|(_, k)| k.correlation).collect();
        let calls: std::collections::HashSet<u32> =
            recorded.calls(Class::Launch).iter().map(|(_, c)| c.correlation).collect();
        let without = kernels.difference(&calls).count();
        assert_eq!((kernels.len(), without), (1800, 0), "{release}: {:?}", recorded.losses());
    }
}

/// As above where nothing switches: what callbacks told of waits and copies is told by records from
/// then on.
#[test]
fn calls_go_on_where_a_client_takes_the_subscription_and_asks_for_no_records() {
    for &release in cases(&["13.0", "12.4", "13.5"]) {
        let with = both(|| Victim::ours(release, &["kineto_pauses", "300", "2", "subscribe"]), release);
        let (truth, recorded) = (with.truth(), with.recorded());
        assert_ne!(recorded.header.sources & sources::GAVE_UP, 0, "{release}");
        for (class, word, made) in
            [(Class::Launch, "Launch", 1800), (Class::Sync, "Synchronize", 6), (Class::Copy, "Memcpy", 10)]
        {
            let have: std::collections::HashSet<u32> =
                recorded.calls(class).iter().map(|(_, c)| c.correlation).collect();
            let all: Vec<_> = truth.calls.iter().filter(|c| c.name.contains(word)).collect();
            let missing = all.iter().filter(|c| !have.contains(&c.correlation)).count();
            assert_eq!((all.len(), missing), (made, 0), "{release}: {word}: {:?}", recorded.losses());
        }
    }
}

/// What we switch off when we step aside may be what the other has switched on already: CUPTI has
/// one switch a kind.
#[test]
fn a_client_that_switches_its_kinds_on_before_it_registers_its_buffers() {
    for &release in cases(&["13.0", "12.4"]) {
        let with = both(|| Victim::ours(release, &["kineto_pauses", "300", "2", "kinds_first"]), release);
        let have = holds_what_it_observed(&with, release);
        assert!(have >= 600, "{release}: {have} kernels");
    }
}

#[test]
fn a_client_like_kineto_that_profiles_without_a_pause() {
    let with = both(|| Victim::sim("13.0", &["kineto_cupti", "200", "4"]), "no pause");
    holds_what_it_observed(&with, "no pause");
}

/// Kineto with `TEARDOWN_CUPTI=1`: CUPTI is torn down after each profile, in the exit of the next
/// call (once we have come back, or before), and subscribed to anew for the next one. We do not
/// come back after the first.
#[test]
fn a_client_like_kineto_that_tears_cupti_down_after_each_profile() {
    for &(release, how) in cases(&[("13.0", "teardown_late"), ("12.9", "teardown")]) {
        let label = format!("{release}, {how}");
        let with = both(|| Victim::ours(release, &["kineto_pauses", "300", "2", how]), &label);
        assert!(with.stdout.contains("torn down 2\n"), "{label}: {}", with.stdout);
        let recorded = with.recorded();
        let have = holds_what_it_observed(&with, &label);
        // those before the first profile; and what the call launched in whose exit it happened, if
        // we were back
        assert!((300..=301).contains(&have), "{label}: {have} kernels; {:?}", recorded.unobserved());
        let last = recorded.unobserved().iter().map(|s| s.end).max();
        assert!(last >= Some(recorded.header.exit_monotonic), "{label}: after the tear-down nothing is seen");
    }
}

/// Found by the thread sanitizer's slow runs: our flush was under way while the other registered
/// its buffers, and handed ours to it.
#[test]
fn a_flush_of_ours_that_is_under_way_hands_nothing_to_the_other() {
    for &release in cases(&["13.0", "12.4"]) {
        let late =
            || Victim::ours(release, &["kineto_pauses", "300", "4"]).env("SIM_FAULT", "hand_out=slow:400ms");
        let with = both(late, release);
        assert!(holds_what_it_observed(&with, release) >= 600, "{release}");
    }
}

/// Threads that go on launching while the other registers its buffers leave it none of ours: before
/// they were collected again after our kinds were off it got 2 of 40 on average. What remains is a
/// thread that stands still between being given a buffer and the record.
#[test]
fn threads_that_launch_meanwhile_leave_none_of_our_buffers_to_the_other() {
    let foreign = ["12.4", "13.0", "12.4", "13.0"].map(|release| {
        // (such a client switches kinds beside launches itself, which CUPTI does not bear: not what
        // this is about)
        let with = Victim::ours(release, &["kineto_threads", "40"]).env("SIM_SWITCHING", "0").run();
        assert_eq!(with.ending(), 0, "{release}: {} {}", with.stdout, with.stderr);
        assert!(with.others().is_empty() && with.lines().len() <= 1, "{release}: {}", with.stderr);
        assert_eq!(with.recorded().loss(Loss::CaughtPanic), 0, "{release}");
        let said =
            with.stdout.strip_prefix("profiles 40, buffers of others ").map(|n| n.trim().parse::<u32>());
        said.unwrap_or_else(|| panic!("{release}: {}", with.stdout)).expect("a number")
    });
    assert!(foreign.iter().sum::<u32>() <= 2, "{foreign:?}");
}

/// `early`: the plugin is mapped before CUDA is used. `finalize`: it tears CUPTI down at its end.
fn like_xla(release: &str, early: bool, finalize: bool) {
    let plugin = built().victims.join(release).join("libxla_cuda_plugin_victim.so");
    let words = [early, finalize].map(|b| if b { "1" } else { "0" });
    let with = Victim::ours(release, &["plugin_host", &plugin.to_string_lossy(), words[0], words[1]]).run();
    let label = format!("{release}, early {early}, finalize {finalize}");
    let profile = "xla: subscribe 0, kernels 200 of 200, others 0\n"; // as without us
    assert_eq!(with.stdout, format!("{profile}{profile}launched 1200\n"), "{label}: {}", with.stderr);
    assert_eq!((with.ending(), with.others().len()), (0, 0), "{label}: {}", with.stderr);
    let recorded = with.recorded();
    let have = holds_what_it_observed(&with, &label);
    assert!(have >= 600, "{label}: {have} kernels; {:?}", recorded.unobserved());
    if finalize {
        let last = recorded.unobserved().iter().map(|s| s.end).max();
        assert!(last >= Some(recorded.header.exit_monotonic), "{label}: after the tear-down nothing is seen");
    }
}

#[test]
fn the_client_like_xla_says_the_same_without_us() {
    let plugin = built().victims.join("13.0/libxla_cuda_plugin_victim.so");
    let alone = Victim::ours("13.0", &["plugin_host", &plugin.to_string_lossy(), "1", "1"]).alone().run();
    let profile = "xla: subscribe 0, kernels 200 of 200, others 0\n";
    assert_eq!(
        (alone.ending(), alone.stdout.as_str()),
        (0, format!("{profile}{profile}launched 1200\n").as_str())
    );
}

#[test]
fn a_client_like_xla_that_is_there_first() {
    like_xla("13.0", true, false);
}

#[test]
fn a_client_like_xla_that_comes_later() {
    like_xla("12.9", false, false);
}

#[test]
fn a_client_like_xla_that_tears_cupti_down() {
    like_xla("12.9", true, true);
}

#[test]
fn a_client_like_xla_that_comes_later_and_tears_cupti_down() {
    like_xla("13.0", false, true);
}

/// JAX without a profile: its plugin asks us first, so that the subscription is ours until it does.
/// (It was given up as soon as the plugin was there, and each call of CUDA's was a record.)
#[test]
fn a_client_that_never_profiles_leaves_us_the_callbacks() {
    let plugin = built().victims.join("13.0/libxla_cuda_plugin_victim.so");
    let all = [built::preload(), ":".into(), plugin.into()].into_iter().collect::<std::ffi::OsString>();
    let run = Victim::ours("13.0", &["steps", "300", "6", "100"]).env("LD_PRELOAD", all).run();
    assert_eq!(run.ending(), 0, "{}", run.stderr);
    let recorded = run.recorded();
    let sources = recorded.header.sources & (sources::CALLBACKS | sources::GAVE_UP);
    assert_eq!(sources, sources::CALLBACKS, "{}", run.stderr);
    assert_eq!(recorded.kernels().len() as u64, run.launched(), "{}", run.stderr);
}

/// Programs of XLA's died of records of copies beside flushes that CUPTI's own thread did not do,
/// and beside records of API calls: there is neither, before XLA profiles itself nor after, and
/// nothing is lost by it.
#[test]
fn beside_xla_cuptis_own_thread_hands_the_buffers_out() {
    const CALL_KINDS: [u64; 2] = [4, 5];
    for &(release, words) in
        cases(&[("13.0", &["early"][..]), ("12.9", &["late"]), ("13.0", &["early", "profile"])])
    {
        let plugin = built().victims.join(release).join("libxla_cuda_plugin_victim.so");
        let words = [&["xla_host", plugin.to_str().expect("a path"), "3000", "500"], words].concat();
        let run = Victim::ours(release, &words).env("GAPPROBE_BUDGET", "100").run();
        let label = format!("{words:?}: {} {}", run.stdout, run.stderr);
        assert_eq!((run.ending(), run.others().len()), (0, 0), "{label}");
        let truth = run.truth();
        let calls = |name: &str| truth.cupti.iter().filter(|c| c.name == name).collect::<Vec<_>>();
        let last_launch = truth.ops.iter().map(|op| op.start).max().expect("launches");
        let early = calls("cuptiActivityFlushAll").iter().filter(|c| c.at < last_launch).count();
        let periods = calls("cuptiActivityFlushPeriod").len();
        let of_calls =
            calls("cuptiActivityEnable").iter().filter(|c| CALL_KINDS.contains(&c.argument)).count();
        assert_eq!(of_calls, 0, "{label}");
        assert_eq!(run.recorded().header.sources & sources::NO_LAUNCHES, 0, "{label}");
        if words.contains(&"profile") {
            assert_eq!(periods, 2, "{label}: XLA sets its own");
            assert!(holds_what_it_observed(&run, &label) > 10_000, "{label}");
        } else {
            assert_eq!((periods, early), (1, 0), "{label}");
            let recorded = run.recorded();
            let have = [recorded.kernels().len(), recorded.calls(Class::Launch).len()];
            assert_eq!(have.map(|n| n as u64), [run.launched(); 2], "{label}");
        }
    }
}

/// Triton's Proton: every session ends with `cuptiFinalize`, so what comes after the first is not
/// observed.
#[test]
fn a_client_like_proton_gets_its_kernels() {
    for &(release, early) in cases(&[("13.0", "1"), ("12.9", "0")]) {
        let plugin = built().victims.join(release).join("libproton.so");
        let with =
            both(|| Victim::ours(release, &["plugin_host", &plugin.to_string_lossy(), early, "2"]), release);
        let have = holds_what_it_observed(&with, release);
        assert!(have >= 200, "{release}: {have} kernels before the first session");
        let last = with.recorded().unobserved().iter().map(|s| s.end).max();
        assert!(last >= Some(with.recorded().header.exit_monotonic), "{release}: {last:?}");
    }
}

/// A folder with a libcupti of its own, of another release.
fn own_cupti(release: &str, other: &str) -> std::path::PathBuf {
    // (one each: a library that another test's program has mapped must not be written anew)
    static SERIAL: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = built().scratch.join(format!("proton-{release}-{other}-{}-{serial}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(built().sim.join(other).join("libcupti.so"), folder.join("libcupti.so")).expect("a copy");
    folder
}

/// Where Proton has begun with its own before we see it, or asks for more than ours has, it keeps
/// its own and we leave, for good. (Two copies silence each other: its profile may be empty. It was
/// a crash.)
#[test]
fn a_client_like_proton_that_keeps_its_libcupti() {
    for (release, other, when) in [("13.0", "12.9", "2"), ("11.8", "13.0", "0")] {
        let label = format!("{release} beside {other}");
        let plugin = built().victims.join(release).join("libproton.so");
        let folder = own_cupti(release, other);
        let victim = Victim::ours(release, &["plugin_host", &plugin.to_string_lossy(), when, "0"]);
        let with = victim.env("TRITON_CUPTI_LIB_PATH", &folder).run();
        assert!([0, 1].contains(&with.ending()), "{label}: {} {}", with.stdout, with.stderr);
        assert!(with.stdout.contains("launched "), "{label}: {}", with.stdout);
        assert!(with.others().is_empty(), "{label}: {}", with.stderr);
        holds_what_it_observed(&with, &label);
        let last = with.recorded().unobserved().iter().map(|s| s.end).max();
        assert!(last >= Some(with.recorded().header.exit_monotonic), "{label}: we left: {last:?}");
        std::fs::remove_dir_all(&folder).expect("it goes again");
    }
}

/// Proton brings a libcupti of its own. Loaded later than CUDA it is led to ours, of which it gets
/// all functions: wrappers around ours and the rest of the other copy is most likely what ended its
/// program on an H100. It opens its own all the same, which is no reason to leave.
#[test]
#[ignore = "scripts/test thorough: 20 s a release"]
fn a_client_like_proton_with_a_libcupti_of_its_own() {
    for &(release, other) in cases(&[("13.0", "12.9"), ("13.0", "13.0")]) {
        let label = format!("{release} beside {other}");
        let plugin = built().victims.join(release).join("libproton.so");
        let folder = own_cupti(release, other);
        let victim = |early: &str, finalize: &str| {
            Victim::ours(release, &["plugin_host", &plugin.to_string_lossy(), early, finalize])
                .env("TRITON_CUPTI_LIB_PATH", &folder)
        };
        let with = both(|| victim("0", "2"), &label);
        let have = holds_what_it_observed(&with, &label);
        assert!(have >= 200, "{label}: {have} kernels before the first session");
        // without its cuptiFinalize we come back
        let lasting = both(|| victim("0", "0"), &label);
        holds_what_it_observed(&lasting, &label);
        let back = lasting.recorded().unobserved().iter().map(|s| s.end).max();
        assert!(back < Some(lasting.recorded().header.exit_monotonic), "{label}: {back:?}");
        // where it is there before we attach it can do without us
        let off = both(|| victim("1", "2"), &label);
        let lines = off.lines();
        let is_told =
            |l: &&str| l.contains("not recording: Triton's Proton") && l.contains("GAPPROBE_FORCE=1");
        assert!(lines.len() == 1 && lines.iter().all(is_told), "{label}: {lines:?}");
        assert!(off.summary().is_none(), "{label}");
        let forced = both(|| victim("1", "2").env("GAPPROBE_FORCE", "1"), &label);
        assert!(holds_what_it_observed(&forced, &label) >= 200, "{label}");
        std::fs::remove_dir_all(&folder).expect("it goes again");
    }
}

/// Python imports it in the middle of the run and profiles at once: it is led to us before its
/// first call. (The flush thread looks four times a second. On an H100 Proton was first: its
/// `cuptiSubscribe` answered 39 because of us, and the program ended with 1.)
#[test]
fn a_client_like_proton_that_python_imports_and_uses_at_once() {
    let plugin = built().victims.join("13.0/libproton.so");
    let script = root().join("tests/scenarios/victims/proton_late.py");
    let words = [&script, &plugin].map(|p| p.to_str().expect("a path"));
    let pythons = pythons(&["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]);
    assert!(!pythons.is_empty(), "no Python to try it with");
    for (version, python) in pythons {
        let folder = own_cupti("13.0", "12.9");
        let victim = || Victim::of(&python, &words, "13.0").env("TRITON_CUPTI_LIB_PATH", &folder);
        let with = both(victim, version);
        holds_what_it_observed(&with, version);
        let back = with.recorded().unobserved().iter().map(|s| s.end).max();
        assert!(back < Some(with.recorded().header.exit_monotonic), "{version}: {back:?}");
        std::fs::remove_dir_all(&folder).expect("it goes again");
    }
}
