// SPDX-License-Identifier: Apache-2.0
//! Purpose: a program's NVTX calls arrive as they were made: nested by domain and thread, with
//! registered names and numbers, started on one thread and ended on another; what cannot be kept is
//! counted to the piece; what makes no sense harms nobody; and before the first use of a GPU they
//! do nothing. Programs: our own stand-in for an object with NVTX (victims/nvtx.h), the Python
//! package `nvtx`; the Rust crate in `marks.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{skipped, Recorded, Run, Victim};
use trace::define::TrackInfo;
use trace::event::{MARK, OPEN_ENDED, PAYLOAD, PAYLOAD_REAL, PAYLOAD_SIGNED, START_END};
use trace::reader::Track;
use trace::{Event, Kind, Loss, Total};

/// A range as recorded: its thread, the event.
type Placed = (u32, Event);

struct Ranges {
    recorded: Recorded,
    all: Vec<Placed>,
}

impl Ranges {
    fn of(run: &Run) -> Ranges {
        let recorded = run.recorded();
        assert_eq!(recorded.problems, Default::default());
        let all = recorded.of(Kind::Range).map(|(track, e)| match track {
            Track::Of(TrackInfo::Thread { tid, .. }) => (*tid, *e),
            other => panic!("a range on {other:?}"),
        });
        Ranges { all: all.collect(), recorded }
    }

    fn text(&self, id: u32) -> &str {
        self.recorded.definitions.string(id).unwrap_or("")
    }

    /// Ranges and marks of this domain and name, in order.
    fn named(&self, domain: &str, name: &str) -> Vec<Placed> {
        let is = |e: &Event| self.text(e.b) == domain && self.text(e.a) == name;
        let mut found: Vec<Placed> = self.all.iter().filter(|(_, e)| is(e)).copied().collect();
        found.sort_by_key(|(_, e)| e.start);
        found
    }

    /// How many of each domain and name.
    fn counts(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for (_, e) in &self.all {
            *counts.entry((self.text(e.b).to_owned(), self.text(e.a).to_owned())).or_default() += 1;
        }
        counts
    }
}

fn number(e: &Event) -> u64 {
    u64::from(e.correlation) | u64::from(e.c) << 32
}

#[test]
fn every_sort_of_range_arrives_as_it_was_made() {
    for release in ["11.8", "13.0"] {
        let run = Victim::ours(release, &["nvtx_calls", "story"]).run();
        let alone = Victim::ours(release, &["nvtx_calls", "story"]).alone().run();
        assert_eq!(alone.stdout, "tables -1 -1\ndepth -2\nlaunched 14\n");
        // both objects are served; a depth is not told, as without a tool
        assert_eq!(
            (run.ending(), run.stdout.as_str()),
            (0, "tables 1 1\ndepth -2\nlaunched 14\n"),
            "{}",
            run.stderr
        );
        let r = Ranges::of(&run);
        let main = run.truth().pid;

        let expected = [
            (("", "outer"), 1),
            (("training", "phase"), 10 + 7 + 1),
            (("other", "text in attributes"), 10),
            (("", "wide \u{20ac}"), 10),
            (("training", "weit \u{e4} \u{1f600}"), 1),
            (("NCCL", "ncclAllReduce"), 2),
            (("", "a moment"), 5),
            (("", "ended here"), 1),
            (("training", "ended there"), 1),
            (("", "on its own thread"), 1),
            (("", "never ended"), 1),
            (("", "deep"), 64),
            (("", ""), 2),
            (("", "left open"), 1),
        ];
        let mut expected: BTreeMap<(String, String), usize> =
            expected.map(|((d, n), count)| ((d.to_owned(), n.to_owned()), count)).into();
        expected.insert((String::new(), "n".repeat(96)), 1);
        assert_eq!(r.counts(), expected, "{release}");

        // domains nest by themselves: they were popped in another order than pushed
        let outer = r.named("", "outer")[0].1;
        let loops = |domain, name| r.named(domain, name).into_iter().take(10).map(|(_, e)| e);
        let (phases, others) = (loops("training", "phase"), loops("other", "text in attributes"));
        for ((p, o), w) in phases.zip(others).zip(loops("", "wide \u{20ac}")) {
            assert!(outer.start < p.start && p.start < o.start && o.start < w.start);
            assert!(p.end < w.end && w.end < o.end && o.end < outer.end);
            assert_eq!((p.x, o.x, w.x, outer.x), (0, 0, 1, 0), "depth in its own domain");
        }

        let numbers: Vec<(u8, u64)> =
            r.named("training", "phase")[10..17].iter().map(|(_, e)| (e.flags, number(e))).collect();
        let (signed, real) = (PAYLOAD | PAYLOAD_SIGNED, PAYLOAD | PAYLOAD_REAL);
        assert_eq!(
            numbers,
            [
                (PAYLOAD, u64::MAX),
                (signed, -5i64 as u64),
                (PAYLOAD, 7),
                (signed, -7i64 as u64),
                (PAYLOAD, 0),
                (real, 2.5f64.to_bits()),
                (real, 0.5f64.to_bits()),
            ]
        );
        let nccl: Vec<(u8, u64)> =
            r.named("NCCL", "ncclAllReduce").iter().map(|(_, e)| (e.flags, number(e))).collect();
        assert_eq!(nccl, [(PAYLOAD, 3 << 20), (0, 0)], "bytes of the call, where the layout is known");

        for (_, e) in r.named("", "a moment") {
            assert_eq!((e.flags, e.duration()), (MARK, 0));
        }
        let (_, mark) = r.named("training", "phase")[17];
        assert_eq!((mark.flags, mark.duration(), number(&mark)), (MARK | PAYLOAD, 0, 42));

        let here = r.named("", "ended here")[0];
        let there = r.named("training", "ended there")[0];
        let own = r.named("", "on its own thread")[0];
        assert!(here.1.start < there.1.start && here.1.end < there.1.end, "they overlap");
        assert_eq!((here.0, there.0, here.1.flags, there.1.flags), (main, main, START_END, START_END));
        assert!(own.0 != main && there.1.start < own.1.start && own.1.end < there.1.end);
        let named = r.recorded.events.iter().find_map(|(track, _)| match track {
            Track::Of(TrackInfo::Thread { tid, name }) if *tid == own.0 => Some(*name),
            _ => None,
        });
        assert_eq!(named.map(|n| r.text(n)), Some("the one that ends"));

        assert_eq!(r.named("", "never ended")[0].1.flags, START_END | OPEN_ENDED);
        assert_eq!(r.named("", "left open")[0].1.flags, OPEN_ENDED);
        // the pop of a push before recording, the second end, the end of nothing, the pop of
        // nothing
        assert_eq!(r.recorded.loss(Loss::RangeUnbalanced), 4, "{:?}", r.recorded.losses());
        assert_eq!(r.recorded.loss(Loss::RangeTooDeep), 36);
        assert_eq!(r.recorded.losses().len(), 2, "{:?}", r.recorded.losses());
    }
}

/// Rows of nvtx_sum by name: instances and style.
fn table(run: &Run) -> BTreeMap<String, (u64, String)> {
    let is_trace =
        |p: &&PathBuf| p.to_string_lossy().contains(".json") && !p.to_string_lossy().contains("summary");
    let left = run.left();
    let trace = left.iter().find(is_trace).unwrap_or_else(|| panic!("a trace: {left:?}"));
    let mut command = Command::new(&built().command);
    command.args(["stats", "--report", "nvtx_sum", "--format", "json"]).arg(trace);
    let output = command.output().expect("gapprobe");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = &said["nvtx_sum"];
    let cell = |row: &serde_json::Value, names: [&str; 2]| names.iter().find_map(|n| row.get(*n).cloned());
    let rows = rows.as_array().expect("rows").iter().map(|row| {
        let text = |names| cell(row, names).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let instances = cell(row, ["Instances", "instances"]).and_then(|v| v.as_u64()).unwrap_or(0);
        (text(["Range", "range"]), (instances, text(["Style", "style"])))
    });
    rows.collect()
}

#[test]
fn the_table_shows_them_as_nsys_does() {
    let run = Victim::ours("13.0", &["nvtx_calls", "story"]).run();
    let rows = table(&run);
    let row = |name: &str| rows.get(name).map(|(n, style)| (*n, style.as_str()));
    assert_eq!(row("outer"), Some((1, "PushPop")), "{rows:?}");
    assert_eq!(row("training:phase"), Some((17, "PushPop")), "its mark is none: {rows:?}");
    assert_eq!(row("other:text in attributes"), Some((10, "PushPop")));
    assert_eq!(row("NCCL:ncclAllReduce"), Some((2, "PushPop")));
    assert_eq!(row("training:ended there"), Some((1, "StartEnd")));
    assert_eq!(row("a moment"), None, "a mark is no range");
}

#[test]
fn attributes_that_make_no_sense_harm_nobody() {
    let run = Victim::ours("13.0", &["nvtx_calls", "hostile"]).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "alive\n"), "{}", run.stderr);
    assert_eq!(run.lines().len(), 1, "{}", run.stderr);
    let r = Ranges::of(&run);
    assert_eq!(r.recorded.loss(Loss::CaughtPanic), 0);
    assert!(!r.all.is_empty());
    assert_eq!(r.recorded.kernels().len(), 1001, "everything else is recorded");
}

#[test]
fn without_a_use_of_the_device_nothing_is_left() {
    let run = Victim::ours("13.0", &["nvtx_calls", "no_cuda"]).run();
    assert_eq!((run.ending(), run.stdout.as_str(), run.stderr.as_str()), (0, "alive\n", ""));
    assert!(run.left_anywhere().is_empty() && run.recordings().is_empty(), "{:?}", run.left_anywhere());
}

#[test]
fn a_ring_that_overflows_never_ends_the_wrong_range() {
    let run = Victim::ours("13.0", &["nvtx_calls", "burst"]).run();
    assert_eq!((run.ending(), run.launched()), (0, 2), "{}", run.stderr);
    let r = Ranges::of(&run);
    assert!(r.recorded.loss(Loss::RangeDropped) > 0, "{:?}", r.recorded.losses());
    // ranges cost no event: XLA's compiler makes thousands of them in a few ms, and the verdict is
    // not theirs
    assert_eq!(r.recorded.loss(Loss::HostRingFull), 0, "{:?}", r.recorded.losses());
    assert_eq!(r.recorded.total(Total::Syncs), 61);
    // what is whole is right: y in x, both short; the ones after the burst as they were
    let (after, inside) = (r.named("", "after"), r.named("", "inside"));
    assert_eq!((after.len(), inside.len()), (1, 1), "{:?}", r.counts());
    assert!(after[0].1.start < inside[0].1.start && inside[0].1.end < after[0].1.end);
    assert_eq!((after[0].1.x, inside[0].1.x), (0, 1), "what was open before the gap is forgotten");
    let burst: Vec<Event> =
        [r.named("", "x"), r.named("", "y")].concat().into_iter().map(|(_, e)| e).collect();
    assert!(burst.iter().all(|e| e.end < after[0].1.start), "none was ended by a later pop");
    assert!(r.named("", "around").len() <= 1);
    // whose end may have been dropped is not said to have lasted to the end of the run
    assert!(r.all.iter().all(|(_, e)| e.flags & OPEN_ENDED == 0), "{:?}", r.counts());
}

#[test]
fn threads_beyond_the_pool_keep_their_nesting() {
    let run = Victim::ours("13.0", &["nvtx_calls", "crowd"]).run();
    assert_eq!((run.ending(), run.launched()), (0, 64), "{}", run.stderr);
    let r = Ranges::of(&run);
    let (registered, text) = (r.named("crowd", "registered"), r.named("crowd", "text"));
    // a registered name takes one slot and so has room everywhere; a text of their own only in a
    // ring of their own
    assert_eq!(registered.len(), 64);
    let lost = r.recorded.loss(Loss::OverflowRingFull);
    assert_eq!(text.len() as u64 + lost, 64, "{:?}", r.recorded.losses());
    assert!(lost >= 16, "some threads had no ring");
    for (tid, inner) in &text {
        let (_, outer) = registered.iter().find(|(t, _)| t == tid).expect("its own outer range");
        assert!(outer.start <= inner.start && inner.end <= outer.end);
    }
    assert_eq!(r.recorded.loss(Loss::RangeUnbalanced), 0);
}

#[test]
fn a_fork_child_is_silent_and_its_parent_goes_on() {
    let run = Victim::ours("13.0", &["nvtx_calls", "fork"]).run();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "child 0\nlaunched 2\n"), "{}", run.stderr);
    let r = Ranges::of(&run);
    assert_eq!(r.counts().into_keys().collect::<Vec<_>>(), [(String::new(), "parent".to_owned())]);
}

#[test]
fn another_tools_variable_stays_and_switched_off_means_off() {
    // a tool of the user's own receives NVTX: we set the other variable and leave this one
    let show = "echo $NVTX_INJECTION64_PATH $CUDA_INJECTION64_PATH";
    let shell = |set: &[(&str, &str)]| {
        let victim = Victim::of("/bin/sh", &["-c", show], "13.0");
        set.iter().fold(victim, |v, (name, value)| v.env(name, value)).run().stdout.clone()
    };
    let own = built().library.display().to_string();
    assert_eq!(shell(&[]), format!("{own} {own}\n"));
    assert_eq!(shell(&[("NVTX_INJECTION64_PATH", "/opt/tool.so")]), format!("/opt/tool.so {own}\n"));
    assert_eq!(shell(&[("CUDA_INJECTION64_PATH", "/opt/tool.so")]), "/opt/tool.so\n");
    assert_eq!(shell(&[("GAPPROBE", "0")]), "\n");
    let off = Victim::ours("13.0", &["nvtx_calls", "story"]).env("GAPPROBE", "0");
    let off = off.env("NVTX_INJECTION64_PATH", &own).run();
    assert_eq!(
        (off.ending(), off.stdout.as_str()),
        (0, "tables 0 0\ndepth -2\nlaunched 14\n"),
        "{}",
        off.stderr
    );
}

/// The Python package, where `scripts/nvtx-wheel` put it: interpreter and folder.
fn package() -> Option<(PathBuf, PathBuf)> {
    let output = Command::new(root().join("scripts/nvtx-wheel")).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (python, folder) = text.trim().split_once(' ')?;
    output.status.success().then(|| (PathBuf::from(python), PathBuf::from(folder)))
}

#[test]
fn the_python_package_with_its_domains_categories_and_registered_names() {
    let Some((python, folder)) = package() else {
        skipped("the Python package nvtx cannot be installed here (scripts/nvtx-wheel)");
        return;
    };
    let script = root().join("tests/scenarios/victims/nvtx_python.py");
    let script = script.to_string_lossy();
    let victim = |how: &str| Victim::of(&python, &[&script, how], "13.0").env("PYTHONPATH", &folder);
    let (alone, run) = (victim("cuda").alone().run(), victim("cuda").run());
    assert_eq!((run.ending(), &run.stdout), (0, &alone.stdout), "{}", run.stderr);
    assert_eq!(alone.stdout, "launched 241\n", "{}", alone.stderr);
    assert_eq!(run.others(), alone.others());
    let r = Ranges::of(&run);
    let expected = [
        (("", "epoch"), 1),
        (("", "moment"), 12),
        (("training", "step"), 12),
        (("training", "forward"), 12),
        (("training", "layer"), 12 * 20),
        (("", "across threads"), 1),
        (("", "worker"), 1),
    ];
    let expected: BTreeMap<(String, String), usize> =
        expected.map(|((d, n), count)| ((d.to_owned(), n.to_owned()), count)).into();
    assert_eq!(r.counts(), expected);
    let payloads: Vec<u64> = r.named("training", "step").iter().map(|(_, e)| number(e)).collect();
    assert_eq!(payloads, (100..112).collect::<Vec<_>>());
    let (_, across) = r.named("", "across threads")[0];
    assert_eq!((across.flags, number(&across)), (START_END | PAYLOAD | PAYLOAD_REAL, 0.25f64.to_bits()));
    assert!(r.named("", "moment").iter().all(|(_, e)| e.flags == MARK));
    let worker = r.named("", "worker")[0];
    assert!(worker.0 != run.truth().pid && worker.1.start > across.start && worker.1.end < across.end);
    // a module's own code is gone once it is imported: a call made from it may have no line, and is
    // counted
    let lost = r.recorded.losses().into_iter().filter(|(key, _)| *key != "frame_unreadable");
    assert_eq!(lost.collect::<Vec<_>>(), [], "no range is lost");
    assert_eq!(table(&run).get("training:layer"), Some(&(240, "PushPop".to_owned())));
    // a step that the program names in a domain of its own is one
    assert!(run.evidence().contains("12 steps"), "{}", run.evidence());

    // the same program without its GPU: nothing is left, nothing said
    let run = victim("no_cuda").run();
    assert_eq!((run.ending(), run.stdout.as_str(), run.stderr.as_str()), (0, "launched 0\n", ""));
    assert!(run.left_anywhere().is_empty() && run.recordings().is_empty());
}
