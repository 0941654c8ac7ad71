// SPDX-License-Identifier: Apache-2.0
//! Purpose: the bar, the longest idle and the why-idle track say what one sees beside them: time in
//! which the host fetches data or computes is INPUT or HOST, although a wait had set it off. What a
//! fix of the wait wins, and that it is the wait, stays in the verdict.

mod made;
mod program;

use cli::tables;
use cli::tables::{Cell, NameStyle, Source};
use made::{case, gapprobe, line, read, Trace};
use program::{Pose, Program};
use verdict::analysis::{Analysis, Bucket, IdleSlice};

/// All of the time is in one bucket or another, and in the slices what is in the buckets.
fn sums_up(a: &Analysis) {
    for d in &a.devices {
        assert_eq!(d.buckets.total(), d.wall_ns);
        for bucket in Bucket::ALL.into_iter().filter(|b| b.is_gap()) {
            let slices = d.slices.iter().filter(|s| s.bucket == bucket);
            let ns: u64 = slices.map(|s| a.counts.measure(s.span())).sum();
            assert_eq!(ns, d.buckets.get(bucket), "{bucket:?}");
        }
    }
}

/// Each gap lies inside of `enumerate(DataLoader)`: a wait before it does not make it one.
#[test]
fn fetching_behind_a_wait_is_input() {
    let path = case("sync_credit_over_dataloader.json");
    let (input, a) = read(&path);
    sums_up(&a);
    let b = &a.devices[0].buckets;
    assert!(b.share(Bucket::Input) > 0.49 && b.share(Bucket::Sync) < 0.01, "{b:?}");
    let longest = a.devices[0].slices.iter().max_by_key(|s| s.end - s.start).expect("a gap");
    assert_eq!(longest.bucket, Bucket::Input);
    // cause and promise are the wait's, as before, and the text says where its time shows
    assert_eq!(a.verdict.cause, "SYNC");
    assert!((a.verdict.promise.unwrap().ns() - 70.25e6).abs() < 0.1e6, "{}", a.verdict.promise.unwrap().ns());
    let said = line(&input, &a);
    assert!(said.contains("counted as SYNC <1%, as INPUT 4"), "{said}");
    let (text, _) = gapprobe(&["analyze"], &path);
    let rows = text.split("Longest idle").nth(1).expect("the section").lines().skip(1).take(3);
    for row in rows {
        assert!(row.contains("INPUT"), "{row}");
    }
}

/// The table of blocking calls has what they set off, whatever shows of it.
#[test]
fn the_call_that_is_named_costs_what_it_set_off() {
    let path = case("sync_credit_over_dataloader.json");
    let (input, a) = read(&path);
    let source = Source::new(&input.run, NameStyle::Whole);
    let report = tables::find("syncs").expect("a report");
    let [idle, busy] = ["idle_ns", "host_busy_ns"].map(|key| report.column(key).expect("a column"));
    let rows = report.table(&source).rows;
    let sum = |column: usize| {
        let cells = rows.iter().map(|r| r.get(column).cloned().unwrap_or(Cell::Nothing));
        cells.map(|c| if let Cell::Whole(ns) = c { ns } else { 0 }).sum::<u128>()
    };
    let ns = |is: fn(&IdleSlice) -> bool| {
        let slices = a.devices[0].slices.iter().filter(|s| s.charged == Bucket::Sync && is(s));
        slices.map(|s| u128::from(s.end - s.start)).sum::<u128>()
    };
    assert_eq!(sum(idle), ns(|_| true));
    assert_eq!(sum(busy), ns(|s| s.bucket == Bucket::Input));
    assert!(sum(busy) * 2 > sum(idle), "{rows:?}");
    let (text, _) = gapprobe(&["analyze"], &path);
    let calls = text.split("Blocking calls").nth(1).expect("the section");
    let named = calls.lines().find(|l| l.contains("cudaStreamSynchronize")).expect("the call");
    assert!(!named.contains("costs 0"), "{text}");
}

/// A loop that waits for the GPU and then does something for `pause` us.
fn waiting(pause: u64, name: &str) -> Trace {
    let mut t = Trace::new();
    for _ in 0..30 {
        let from = t.t;
        t.t += pause;
        if !name.is_empty() {
            t.range(name, from);
        }
        t.layers(10, 100);
        t.synchronize();
    }
    t
}

/// What a range that lies in the gap tells is seen; of what nobody tells the wait is all that is
/// known.
#[test]
fn what_the_host_is_seen_to_do_behind_a_wait_is_what_shows() {
    for (name, bucket) in [("next_batch", Bucket::Input), ("metrics", Bucket::Host), ("", Bucket::Sync)] {
        let (_, a) = waiting(2_000, name).read();
        sums_up(&a);
        let b = &a.devices[0].buckets;
        let waits = [Bucket::Input, Bucket::Host, Bucket::Sync];
        assert!(b.share(bucket) > 0.25, "{name}: {b:?}");
        assert!(waits.iter().all(|&w| w == bucket || b.share(w) < 0.02), "{name}: {b:?}");
    }
}

/// Launching behind a wait is what the wait costs.
#[test]
fn a_queue_that_fills_again_stays_the_waits() {
    let (_, a) = waiting(40, "").read();
    sums_up(&a);
    let b = &a.devices[0].buckets;
    assert!(b.share(Bucket::Sync) > 0.008 && b.get(Bucket::Host) == 0, "{b:?}");
}

/// Our own recording of a loop that waits for the GPU and then stands somewhere for 4 ms.
fn standing(pose: impl Fn(&mut Program) -> Option<Pose>) -> Analysis {
    let mut p = Program::new();
    for _ in 0..100 {
        p.train_step(6, 20_000);
        p.sync();
        match pose(&mut p) {
            Some(pose) => p.stand(4_000_000, pose),
            None => p.t += 4_000_000,
        }
    }
    p.analyze().1
}

/// What samples of the launching thread show behind a wait shows, too; what a fix wins is what it
/// was.
#[test]
fn what_samples_show_behind_a_wait_is_what_shows() {
    let unseen = standing(|_| None);
    sums_up(&unseen);
    let of = |a: &Analysis, bucket| a.devices[0].buckets.share(bucket);
    assert!(of(&unseen, Bucket::Sync) > 0.1, "{:?}", unseen.devices[0].buckets);
    let computes = standing(|p| {
        let stack = p.b.stack(&[("prepare", "/job/train.py", 41), ("<module>", "/job/train.py", 60)]);
        Some(Pose::computing(stack))
    });
    sums_up(&computes);
    let moved = of(&computes, Bucket::Host) - of(&unseen, Bucket::Host);
    assert!(of(&computes, Bucket::Sync) < 0.01, "{:?}", computes.devices[0].buckets);
    assert!((moved - of(&unseen, Bucket::Sync)).abs() < 0.01, "{moved}");
    let charged = |a: &Analysis| {
        let slices = a.devices[0].slices.iter().filter(|s| s.charged == Bucket::Sync);
        slices.map(|s| a.counts.measure(s.span())).sum::<u64>()
    };
    assert_eq!(charged(&computes), charged(&unseen));
    let won = |a: &Analysis| a.findings.iter().find(|f| f.cause == "SYNC").map(|f| f.promise);
    assert_eq!(won(&computes), won(&unseen));
    // of fewer samples, or such that do not tell, the wait is all that is known
    let unknown = standing(|_| Some(Pose::default()));
    assert!(of(&unknown, Bucket::Sync) > 0.1, "{:?}", unknown.devices[0].buckets);
}
