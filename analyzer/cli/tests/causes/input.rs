// SPDX-License-Identifier: Apache-2.0
//! INPUT and its kinds, by samples of the launching thread, of the thread that pins, and of the
//! workers' CPU time; and what is close by. In all of them a step is 1.4 ms of kernels and `AWAY`
//! of fetching.

use trace::event::sample::RUNNABLE;
use verdict::analysis::Bucket;
use verdict::{Analysis, Run};

use super::program::{Pose, TICK};
use super::samples::{names, stack, standing, work, AWAY};
use super::{run, verdict, Program};

pub(super) const NEXT: (&str, &str, u32) =
    ("_BaseDataLoaderIter.__next__", "@/utils/data/dataloader.py", 733);
pub(super) const SINGLE: (&str, &str, u32) =
    ("_SingleProcessDataLoaderIter._next_data", "@/utils/data/dataloader.py", 789);
const GET: (&str, &str, u32) =
    ("_MultiProcessingDataLoaderIter._try_get_data", "@/utils/data/dataloader.py", 1251);
pub(super) const ITEM: (&str, &str, u32) = ("ImageSet.__getitem__", "/job/gpt/data.py", 17);

#[test]
fn data_read_by_the_launching_thread() {
    let found = standing(|p| Pose::computing(stack(p, &[ITEM, SINGLE, NEXT])));
    names(&found, "INPUT-MAIN", 17);
    let d = &found.1.devices[0];
    assert!(
        d.buckets.share(Bucket::Input) > 0.5
            && d.buckets.get(Bucket::Host) < d.buckets.get(Bucket::Input) / 10
    );
    // 12 ms of fetching in steps of less than 2 ms without it: eight workers
    let (text, fix) = (&found.1.verdict.text(), found.1.verdict.advice.long);
    assert!(text.contains("; no workers; num_workers=") && text.ends_with(" would keep up"), "{text}");
    assert!(fix.contains("persistent_workers=True") && fix.contains("non_blocking=True"), "{fix}");
    // the same work outside of a loader
    names(&standing(|p| Pose::computing(stack(p, &[ITEM]))), "HOST", 17);
}

/// Seen on the H200: ten seconds in front of the first step, a hundred samples for each of a
/// step's, outvoted the fetching.
#[test]
fn a_long_wait_before_the_first_step_is_no_vote_on_the_others() {
    let mut begun = false;
    let (_, a) = run(|p| {
        if !begun {
            work(p);
            let waits = Pose::blocked(stack(p, &[("wait", "/job/gpt/gate.py", 9)]), 0);
            p.stand(3_000_000_000, waits);
            begun = true;
        }
        work(p);
        let fetch = stack(p, &[ITEM, SINGLE, NEXT]);
        p.stand(AWAY, Pose::computing(fetch));
    });
    verdict(&a, "INPUT-MAIN");
}

/// Frames that come and go while they are read (a collator's lambdas; 132 of 216 samples on the
/// H200) are no stack, and no vote.
#[test]
fn samples_without_a_stack_do_not_outvote_those_that_have_one() {
    let mut n = 0;
    let found = standing(|p| {
        n += 1;
        Pose::computing(if n % 3 == 0 { stack(p, &[ITEM, SINGLE, NEXT]) } else { 0 })
    });
    names(&found, "INPUT-MAIN", 17);
    // how long it takes is known by the host's time between launches; behind the last step there is
    // none
    let (text, d) = (&found.1.verdict.text(), &found.1.devices[0]);
    let a_step = d.fetched_ns as f64 / super::STEPS as f64;
    assert!((a_step / AWAY as f64 - 1.0).abs() < 0.05, "{a_step}");
    let takes = format!("fetching data takes about {:.1} ms a step, hidden ", a_step / 1e6);
    let hidden: f64 = text.split(&takes).nth(1).and_then(|t| t.split('%').next()?.parse().ok()).expect(text);
    // the kernels of a step run for 1.4 of these 12 ms
    assert!(hidden < 20.0, "{text}");
    // where no sample has one there is no Python to read
    names(&standing(|_| Pose::computing(0)), "HOST", 0);
}

#[test]
fn workers_beyond_the_cpus_are_no_advice() {
    let with = |cpus| {
        let fetches = run(|p| {
            p.b.header.cpus = cpus;
            work(p);
            let pose = Pose::computing(stack(p, &[ITEM, SINGLE, NEXT]));
            p.stand(AWAY, pose);
        });
        let v = fetches.1.verdict;
        assert_eq!(v.cause, "INPUT-MAIN");
        (v.text(), v.advice.long, (AWAY as f64 / v.promise.unwrap().ns()).ceil() as u32)
    };
    let (text, fix, wanted) = with(64);
    assert!(
        wanted > 4 && text.ends_with(&format!("; num_workers={wanted} would keep up")),
        "{wanted}: {text}"
    );
    assert!(!fix.contains("DALI"), "{fix}");
    // (as many would be wanted with four, which promise less)
    let (text, fix, _) = with(4);
    assert!(text.ends_with(&format!("; {wanted} would keep up and there are 4 CPUs")), "{text}");
    assert!(fix.contains("DALI") && fix.contains("cache"), "{fix}");
}

/// Fetches that wait (a remote store) use no CPU: as many overlap as the store serves, whatever the
/// number of CPUs.
#[test]
fn fetches_that_wait_are_not_bounded_by_the_cpus() {
    let with = |on_cpu, meanwhile: bool| {
        let fetches = run(|p| {
            p.b.header.cpus = 2;
            work(p);
            let frames = [("Queue.get", "%/queue.py", 171), ITEM, SINGLE, NEXT];
            let pose = Pose { on_cpu, ..Pose::blocked(stack(p, &frames), 202) };
            let tick = p.t.next_multiple_of(TICK);
            p.stand(AWAY, pose);
            if meanwhile {
                let other = stack(p, &[("decode", "/job/gpt/data.py", 7), ("run", "%/threading.py", 9)]);
                p.sample(300, tick + 300_000, Pose::computing(other));
            }
        });
        let v = fetches.1.verdict;
        assert_eq!(v.cause, "INPUT-MAIN");
        (v.text(), v.advice.long)
    };
    let (text, fix) = with(20, false);
    assert!(text.contains("; it waits, on a CPU for 2% of it: num_workers="), "{text}");
    assert!(text.ends_with(" would keep up if what it waits for serves as many at a time"), "{text}");
    assert!(!fix.contains("DALI"), "{fix}");
    // where it has a CPU for a third of the time, three CPUs are needed; and what another thread
    // computes meanwhile needs one, too
    for (on_cpu, meanwhile) in [(400, false), (20, true)] {
        let (text, fix) = with(on_cpu, meanwhile);
        assert!(text.ends_with(" would keep up and there are 2 CPUs") && fix.contains("DALI"), "{text}");
    }
}

/// The loss is read after every step: the GPU has nothing to do while the next batch is fetched. A
/// sample's span reaches back into the step before (seen: "hidden 34 %").
#[test]
fn nothing_is_hidden_where_the_gpu_never_works_meanwhile() {
    let (_, a) = run(|p| {
        work(p);
        p.item();
        let pose = Pose::computing(stack(p, &[ITEM, SINGLE, NEXT]));
        p.stand(AWAY, pose);
    });
    let input =
        a.findings.iter().find(|f| f.cause == "INPUT-MAIN").unwrap_or_else(|| panic!("{:?}", a.findings));
    assert!(input.text().contains(", hidden 0%, exposed 100%"), "{}", input.text());
}

const FETCH: (&str, &str, u32) = ("_MapDatasetFetcher.fetch", "@/utils/data/_utils/fetch.py", 57);

#[test]
fn batches_put_together_by_the_launching_thread() {
    let below = |inner: &[(&'static str, &'static str, u32)]| {
        let frames = [inner, &[FETCH, SINGLE, NEXT]].concat();
        standing(move |p| Pose::computing(stack(p, &frames)))
    };
    let own = ("Padding.__call__", "/job/gpt/data.py", 22);
    let found = below(&[("<lambda>", "/job/gpt/data.py", 23), own]);
    names(&found, "INPUT-COLLATE", 23);
    assert!(
        found.1.verdict.text().contains(" samples in the collate function; num_workers="),
        "{}",
        found.1.verdict.text()
    );
    let torchs = below(&[("collate_tensor_fn", "@/utils/data/_utils/collate.py", 200)]);
    names(&torchs, "INPUT-COLLATE", 60);
    // the data set's own work, also below a decorator's function; and a fetcher of which nothing is
    // known
    names(&below(&[ITEM]), "INPUT-MAIN", 17);
    names(&below(&[ITEM, ("timed.<locals>.wrapper", "/job/gpt/data.py", 5)]), "INPUT-MAIN", 17);
    names(&below(&[]), "INPUT-MAIN", 60);
    let iterable = ("_IterableDatasetFetcher.fetch", "@/utils/data/_utils/fetch.py", 33);
    let rows = ("rows", "/job/gpt/data.py", 31);
    names(&standing(|p| Pose::computing(stack(p, &[rows, iterable, SINGLE, NEXT]))), "INPUT-MAIN", 31);
}

#[test]
fn fewer_than_half_in_the_collate_function_is_the_reading() {
    let mut n = 0;
    let found = standing(|p| {
        n += 1;
        let called = if n % 3 == 0 { ("Padding.__call__", "/job/gpt/data.py", 22) } else { ITEM };
        Pose::computing(stack(p, &[called, FETCH, SINGLE, NEXT]))
    });
    names(&found, "INPUT-MAIN", 17);
}

const LOOP: (&str, &str, u32) = ("_worker_loop", "@/utils/data/_utils/worker.py", 349);

/// A child that uses `on_cpu` permille of a CPU, a disk and KiB, and stands in a worker's loop.
pub(super) fn worker(p: &mut Program, pid: u32, from: u64, (on_cpu, on_disk, kib): (u32, u32, u32)) {
    p.child(pid, from, on_cpu, on_disk, kib);
    let at = stack(p, &[("Queue.get", "%/multiprocessing/queues.py", 103), LOOP]);
    p.child_stands(pid, from, at);
}

/// The launching thread waits for its loader's workers.
pub(super) fn waits_for_workers(p: &mut Program) -> Pose {
    Pose::blocked(stack(p, &[GET, NEXT]), 7)
}

/// The launching thread waits for the queue behind the thread that pins; workers use `on_cpu`
/// permille.
pub(super) fn with_pinning(on_cpu: u32, pin: impl Fn(&mut Program) -> Pose) -> (Run, Analysis) {
    run(|p| {
        p.b.header.cpus = 8;
        let from = p.t;
        work(p);
        let tick = p.t.next_multiple_of(TICK);
        let waits = Pose::blocked(stack(p, &[("Queue.get", "%/queue.py", 180), GET, NEXT]), 202);
        p.stand(AWAY, waits);
        let pose = pin(p);
        p.sample(300, tick, pose);
        for n in 0..4 {
            worker(p, 1000 + n, from, (on_cpu, 0, 0));
        }
    })
}

/// In the loop of the thread that pins.
fn pinning_loop(p: &mut Program, inner: &[(&str, &str, u32)]) -> u32 {
    let frames = [
        inner,
        &[
            ("_pin_memory_loop.<locals>.do_one_step", "@/utils/data/_utils/pin_memory.py", 34),
            ("_pin_memory_loop", "@/utils/data/_utils/pin_memory.py", 52),
        ],
    ];
    stack(p, &frames.concat())
}

pub(super) fn pins(p: &mut Program) -> Pose {
    Pose::blocked(pinning_loop(p, &[("pin_memory", "@/utils/data/_utils/pin_memory.py", 57)]), 28)
}

pub(super) fn waits_for_batches(p: &mut Program) -> Pose {
    Pose::blocked(pinning_loop(p, &[("Connection.poll", "%/multiprocessing/connection.py", 257)]), 7)
}

#[test]
fn the_thread_that_pins_is_what_is_waited_for() {
    let receives = |p: &mut Program| {
        let inner = ("Connection.recv_bytes", "%/multiprocessing/connection.py", 216);
        Pose::computing(pinning_loop(p, &[inner]))
    };
    let takes_over = |p: &mut Program| {
        let inner = [
            ("recvfds", "%/multiprocessing/reduction.py", 157),
            ("rebuild_storage_fd", "@/multiprocessing/reductions.py", 540),
        ];
        Pose::blocked(pinning_loop(p, &inner), 47)
    };
    for found in [with_pinning(200, pins), with_pinning(200, receives), with_pinning(200, takes_over)] {
        verdict(&found.1, "INPUT-PIN");
        let v = &found.1.verdict;
        assert!(
            v.text().contains("the thread that pins batches is busy in ")
                && v.text().contains("4 workers 20% on a CPU")
        );
        assert!(!v.text().contains("workers are too few"), "{}", v.text());
        assert_eq!(v.site.as_ref().map(|s| s.line), Some(60), "{}", v.text());
    }
    // it waits itself; or the workers have no time either
    verdict(&with_pinning(200, waits_for_batches).1, "INPUT");
    verdict(&with_pinning(950, pins).1, "INPUT-WORKERS");
}

/// Every tenth step an epoch begins, with workers of its own: those of one time count, and that
/// they come and go is told.
#[test]
fn workers_that_each_epoch_starts_anew() {
    let epochs = |keeps: bool| {
        let mut step = 0;
        run(|p| {
            p.b.header.cpus = 16;
            let from = p.t;
            work(p);
            let start = ("_MultiProcessingDataLoaderIter.__init__", "@/utils/data/dataloader.py", 1100);
            let pose =
                Pose::computing(stack(p, &[("Popen._launch", "%/multiprocessing/popen_fork.py", 71), start]));
            p.stand(AWAY, pose);
            for n in 0..3 {
                worker(p, 1000 + n + if keeps { 0 } else { step / 10 * 10 }, from, (300, 0, 0));
            }
            step += 1;
        })
    };
    let (_, a) = epochs(false);
    verdict(&a, "INPUT");
    assert!(a.verdict.text().contains("; 6 workers were started anew"), "{}", a.verdict.text());
    assert!(a.verdict.advice.long.starts_with("persistent_workers=True"), "{}", a.verdict.advice.long);
    let (_, a) = epochs(true);
    verdict(&a, "INPUT");
    assert!(
        !a.verdict.text().contains("anew") && !a.verdict.advice.long.starts_with("persistent"),
        "{}",
        a.verdict.text()
    );
}

#[test]
fn data_that_waits_for_a_disk() {
    let found = standing(|p| Pose::blocked(stack(p, &[ITEM, SINGLE, NEXT]), 17));
    names(&found, "INPUT-STORAGE", 17);
}

/// On a machine with too much to do a thread that decodes has a CPU for less than half of the time,
/// and its last wait for one is in no figure yet (a real loader beside fourteen busy processes:
/// said INPUT-STORAGE).
#[test]
fn data_that_waits_for_a_cpu_does_not_wait_for_a_disk() {
    let faulting = |bits| {
        standing(move |p| {
            let stack = stack(p, &[ITEM, SINGLE, NEXT]);
            Pose { on_cpu: 400, run_queue: 300, bits, ..Pose::computing(stack) }
        })
    };
    names(&faulting(0), "INPUT-STORAGE", 17);
    names(&faulting(RUNNABLE), "INPUT-MAIN", 17);
}

/// `count` workers, each so much on a CPU and a disk, KiB a step; eight CPUs.
pub(super) fn with_workers(count: u32, on_cpu: u32, on_disk: u32, kib: u32) -> (Run, Analysis) {
    run(move |p| {
        p.b.header.cpus = 8;
        let from = p.t;
        work(p);
        let pose = Pose::blocked(stack(p, &[GET, NEXT]), 7);
        p.stand(AWAY, pose);
        for n in 0..count {
            worker(p, 1000 + n, from, (on_cpu, on_disk, kib));
        }
        p.child(999, from, 0, 0, 0); // the resource tracker
    })
}

#[test]
fn too_few_workers() {
    let (_, a) = with_workers(2, 980, 0, 100);
    verdict(&a, "INPUT-WORKERS");
    let v = &a.verdict;
    assert!(v.text().contains("; 2 workers, 98% on a CPU"), "{}", v.text());
    // 2 x 0.98 of a step's time in CPU, in a step without the wait: as many times as the step is
    // longer now
    let win = a.findings.iter().find(|f| f.cause == "INPUT-WORKERS").map_or(0.0, |f| f.win.share());
    let wanted = (1.96 / (1.0 - win)).ceil() as u64;
    assert!(
        wanted > 8 && v.text().contains(&format!(", {wanted} would keep up and there are 8 CPUs")),
        "{}",
        v.text()
    );
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(60), "the loop's line");
}

/// Beside the loader there are other children. Real workers that wait (for a remote store) are seen
/// on no CPU, so no stack of theirs is read.
fn beside_waiting_workers(mut other: impl FnMut(&mut Program, u64)) -> Analysis {
    let (_, a) = run(|p| {
        p.b.header.cpus = 8;
        let from = p.t;
        work(p);
        let pose = Pose::blocked(stack(p, &[GET, NEXT]), 7);
        p.stand(AWAY, pose);
        for n in 0..4 {
            p.child(1000 + n, from, 8, 0, 0);
        }
        other(p, from);
    });
    a
}

/// Seen with a busy shell beside a loader whose workers sleep: "2 workers, 98 % on a CPU, 17 would
/// keep up".
#[test]
fn children_that_are_not_known_to_be_workers_are_not_judged_as_workers() {
    let a = beside_waiting_workers(|p, from| {
        p.child(2000, from, 980, 0, 0);
        p.child(2001, from, 980, 0, 0);
    });
    verdict(&a, "INPUT");
    let v = &a.verdict;
    assert!(
        v.text().contains("; 2 child processes, 98% on a CPU: whether that is the workers is not known"),
        "{}",
        v.text()
    );
    assert!(
        !v.text().contains("would keep up") && v.advice.long.starts_with("see what the workers do"),
        "{v:?}"
    );
    // a log shipper that reads from the page cache; and children that come and go
    let reads = beside_waiting_workers(|p, from| p.child(2000, from, 200, 0, 4000));
    verdict(&reads, "INPUT");
    let mut n = 2000;
    let come_and_go = beside_waiting_workers(|p, from| {
        n += 1;
        p.child(n, from, 900, 0, 0);
    });
    verdict(&come_and_go, "INPUT");
    assert!(!come_and_go.verdict.text().contains("anew"), "{}", come_and_go.verdict.text());
}

/// A child that runs the same Python elsewhere is none of them, however busy it is; those that are
/// known to be count alone.
#[test]
fn a_child_that_stands_elsewhere_is_no_worker() {
    let elsewhere = |p: &mut Program, from| {
        p.child(2000, from, 980, 0, 0);
        let at = stack(p, &[("compress", "/job/gpt/ship.py", 12)]);
        p.child_stands(2000, from, at);
    };
    let a = beside_waiting_workers(elsewhere);
    verdict(&a, "INPUT");
    assert!(!a.verdict.text().contains("child process"), "{}", a.verdict.text());
    let a = beside_waiting_workers(|p, from| {
        elsewhere(p, from);
        for n in 0..4 {
            worker(p, 1000 + n, from, (30, 0, 0));
        }
    });
    verdict(&a, "INPUT");
    let a = beside_waiting_workers(|p, from| {
        elsewhere(p, from);
        worker(p, 3000, from, (900, 0, 0));
    });
    verdict(&a, "INPUT-WORKERS");
    assert!(a.verdict.text().contains("; 1 worker, 90% on a CPU"), "{}", a.verdict.text());
}

type Frame = (&'static str, &'static str, u32);

/// Two forked workers that compute all the time stand in turn below their loop as `inner` says;
/// around it lie the frames of the launching process when it forked them.
fn workers_below(inner: &[&[Frame]]) -> (Run, Analysis) {
    let around = [
        ("_worker_loop", "@/utils/data/_utils/worker.py", 349),
        ("BaseProcess.run", "%/multiprocessing/process.py", 108),
        ("_MultiProcessingDataLoaderIter.__init__", "@/utils/data/dataloader.py", 1100),
        ("train", "/job/gpt/train.py", 60),
    ];
    let mut turn = 0;
    run(|p| {
        p.b.header.cpus = 8;
        let from = p.t;
        work(p);
        let pose = Pose::blocked(stack(p, &[GET, NEXT]), 7);
        p.stand(AWAY, pose);
        for worker in 1000..1002 {
            p.child(worker, from, 980, 0, 100);
            let at = stack(p, &[inner[turn % inner.len()], &around].concat());
            p.child_stands(worker, from, at);
            turn += 1;
        }
    })
}

#[test]
fn the_line_that_takes_the_workers_time_is_told() {
    let decode: &[Frame] = &[("decode", "/job/gpt/data.py", 44), ITEM, FETCH];
    let collate: &[Frame] = &[("Padding.__call__", "/job/gpt/data.py", 22), FETCH];
    let waits: &[Frame] = &[("Queue.get", "%/multiprocessing/queues.py", 103)];
    let (_, a) = workers_below(&[decode, decode, collate, waits]);
    verdict(&a, "INPUT-WORKERS");
    let text = &a.verdict.text();
    assert!(text.contains(" of "), "{text}");
    assert!(text.contains(" of their ") && text.ends_with(" samples at gpt/data.py:44 in decode"), "{text}");
    // the line where the loop waits is where to change it
    assert_eq!(a.verdict.site.as_ref().map(|s| s.line), Some(60), "{text}");
    // half of them in other lines each: none is told, nor one of the launching process's
    let torchs: &[Frame] = &[("default_collate", "@/utils/data/_utils/collate.py", 120), FETCH];
    let fetches: &[Frame] = &[FETCH];
    let (_, a) = workers_below(&[decode, fetches, fetches, torchs]);
    verdict(&a, "INPUT-WORKERS");
    assert!(!a.verdict.text().contains("their"), "{}", a.verdict.text());
}

#[test]
fn batches_put_together_by_workers() {
    let decode: &[Frame] = &[("decode", "/job/gpt/data.py", 44), ITEM, FETCH];
    let collate: &[Frame] =
        &[("<lambda>", "/job/gpt/data.py", 23), ("Padding.__call__", "/job/gpt/data.py", 22), FETCH];
    let torchs: &[Frame] = &[("default_collate", "@/utils/data/_utils/collate.py", 120), FETCH];
    let (_, a) = workers_below(&[collate, decode, collate]);
    verdict(&a, "INPUT-COLLATE");
    let text = &a.verdict.text();
    assert!(text.contains("; 2 workers, 98% on a CPU, "), "{text}");
    assert!(
        text.contains(" samples in the collate function, ")
            && text.ends_with(" at gpt/data.py:23 in <lambda>"),
        "{text}"
    );
    assert!(
        a.verdict.advice.long.contains("pad_sequence")
            && a.verdict.advice.long.contains("more DataLoader workers"),
        "{}",
        a.verdict.advice.long
    );
    let (_, a) = workers_below(&[torchs]);
    verdict(&a, "INPUT-COLLATE");
    assert!(a.verdict.text().ends_with(" samples in the collate function"), "{}", a.verdict.text());
    // fewer than half
    verdict(&workers_below(&[collate, decode, decode]).1, "INPUT-WORKERS");
}

/// Workers that decode in threads of their own: where their main threads wait is not where the time
/// goes (seen: "INPUT-COLLATE", by a `collate_fn` that asks futures for their results).
#[test]
fn workers_that_wait_for_threads_of_their_own_are_not_where_they_wait() {
    let result: &[Frame] = &[
        ("Condition.wait", "%/threading.py", 355),
        ("Future.result", "%/concurrent/futures/_base.py", 451),
        ("collate", "/job/gpt/data.py", 22),
        FETCH,
    ];
    let (_, a) = workers_below(&[result]);
    verdict(&a, "INPUT-WORKERS");
    assert!(
        a.verdict.text().ends_with(", whose main threads wait for threads or processes of their own"),
        "{}",
        a.verdict.text()
    );
}

#[test]
fn all_cpus_in_use() {
    let (_, a) = with_workers(8, 990, 0, 0);
    verdict(&a, "INPUT-WORKERS");
    assert!(a.verdict.advice.long.contains("CPUs are all in use"), "{}", a.verdict.advice.long);
}

#[test]
fn workers_that_wait_for_storage() {
    verdict(&with_workers(4, 200, 700, 4000).1, "INPUT-STORAGE");
    verdict(&with_workers(4, 200, 0, 4000).1, "INPUT-STORAGE");
}

/// Neither busy nor reading: why they are late is not known, and no kind is claimed.
#[test]
fn workers_that_wait_for_something_unknown_are_input() {
    verdict(&with_workers(4, 200, 0, 0).1, "INPUT");
    verdict(&with_workers(4, 600, 0, 4000).1, "INPUT");
    verdict(&with_workers(0, 0, 0, 0).1, "INPUT");
}
