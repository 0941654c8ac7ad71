// SPDX-License-Identifier: Apache-2.0
//! Workers of a loader that wait for data: who waits for a slow store is INPUT-STORAGE, at the
//! workers' line, with the number of workers that would keep up; who waits for another process, for
//! the loop, or beside a child that computes, is not.

use trace::event::sample::PIPE;
use trace::event::PAGE_FAULT;
use verdict::Analysis;

use super::input::{ITEM, NEXT};
use super::program::Pose;
use super::samples::{stack, work, AWAY};
use super::{run, verdict, Program};

type Frame = (&'static str, &'static str, u32);

const GET: Frame = ("_MultiProcessingDataLoaderIter._try_get_data", "@/utils/data/dataloader.py", 1251);
const FETCH: Frame = ("_MapDatasetFetcher.fetch", "@/utils/data/_utils/fetch.py", 57);
const LOOP: Frame = ("_worker_loop", "@/utils/data/_utils/worker.py", 349);
const READ: Frame = ("read", "/job/gpt/store.py", 52);
const RECEIVES: u32 = 45;
const READS: u32 = 0;

/// Four workers on a CPU for 3 % of the time, one of them looked at in each step; `look` says where
/// the n-th look finds one: frames below its loop, system call and bits; `None`: blocked in
/// something that is told of no time. A fifth waits for its turn all the while.
fn with_looks(look: impl Fn(u32) -> Option<(&'static [Frame], u32, u8)>, beside: u32) -> Analysis {
    let (mut turn, mut before) = (0, [None; 5]);
    run(|p: &mut Program| {
        p.b.header.cpus = 64;
        let from = p.t;
        work(p);
        let pose = Pose::blocked(stack(p, &[GET, NEXT]), 7);
        p.stand(AWAY, pose);
        for pid in 1000..1005 {
            p.child(pid, from, if pid == 1004 { 10 } else { 30 }, 0, 0);
        }
        p.child(2000, from, beside, 0, 0);
        let one = turn % 5;
        let since = before[one as usize].replace(p.t).unwrap_or(from);
        let found = if one == 4 { Some((FOR_THE_LOOP, 7, 0)) } else { look(turn) };
        if turn == 4 {
            // it fetched once, before
            let at = stack(p, &[READ, ITEM, FETCH, LOOP]);
            p.child_waits(1004, p.t, at, (RECEIVES, 0));
        }
        let at = stack(p, &[found.map_or(FOR_THE_LOOP, |f| f.0), &[LOOP]].concat());
        match found {
            Some((_, call, bits)) => p.child_waits(1000 + one, since, at, (call, bits)),
            None => p.child_stands(1000 + one, p.t, at),
        }
        turn += 1;
    })
    .1
}

fn with_waits(look: impl Fn(u32) -> (&'static [Frame], u32, u8), beside: u32) -> Analysis {
    with_looks(|n| Some(look(n)), beside)
}

const AT_STORE: &[Frame] = &[READ, ITEM, FETCH];
const FOR_THE_LOOP: &[Frame] = &[("Connection.poll", "%/multiprocessing/connection.py", 257)];

#[test]
fn workers_that_wait_for_a_socket_are_told_at_their_line_and_how_many_would_keep_up() {
    let a = with_waits(|_| (AT_STORE, RECEIVES, 0), 0);
    verdict(&a, "INPUT-STORAGE");
    let v = &a.verdict;
    assert!(v.text().contains("; 4 workers, 3% on a CPU, waiting for a socket in "), "{}", v.text());
    assert!(v.text().contains(", most at gpt/store.py:52 in read; "), "{}", v.text());
    // all of their time is waiting: as many times four as the step is longer now
    let wanted = (4.0 * v.step_ns / v.promise.unwrap().ns()).ceil();
    assert!(
        v.text()
            .ends_with(&format!("; {wanted} would keep up if what they wait for serves as many at a time")),
        "{}",
        v.text()
    );
    // the loop's line is where the number of workers is to be changed
    assert_eq!(v.site.as_ref().map(|s| s.line), Some(60), "{}", v.text());
}

#[test]
fn files_and_pages_of_them_are_storage_too() {
    for call in [READS, PAGE_FAULT, 257] {
        let a = with_waits(move |_| (AT_STORE, call, 0), 0);
        verdict(&a, "INPUT-STORAGE");
        let pages = call == PAGE_FAULT;
        let what = if pages { "pages of memory (of a mapped file, or too little memory)" } else { "a file" };
        assert!(a.verdict.text().contains(&format!(", waiting for {what} in ")), "{}", a.verdict.text());
        assert_eq!(a.verdict.text().contains(" would keep up"), !pages, "{}", a.verdict.text());
    }
}

#[test]
fn half_of_the_looks_at_fetching_workers_have_to_agree() {
    // two of three stand in the loop's queue: they do not fetch, and say nothing of what fetching
    // waits for
    let idle = with_waits(|n| if n % 3 == 0 { (AT_STORE, RECEIVES, 0) } else { (FOR_THE_LOOP, 7, 0) }, 0);
    verdict(&idle, "INPUT-STORAGE");
    // two of three wait for a decoder's pipe
    let piped = with_waits(|n| if n % 3 == 0 { (AT_STORE, RECEIVES, 0) } else { (AT_STORE, READS, PIPE) }, 0);
    verdict(&piped, "INPUT");
}

#[test]
fn what_other_processes_make_is_no_storage() {
    // a pipe; a socket, beside a child that computes; the loop's own queue
    verdict(&with_waits(|_| (AT_STORE, READS, PIPE), 0), "INPUT");
    verdict(&with_waits(|_| (AT_STORE, RECEIVES, 0), 900), "INPUT");
    verdict(&with_waits(|_| (FOR_THE_LOOP, 7, 0), 0), "INPUT");
}

/// Seven of eight in `sem_wait` around one file: the lock is what is waited for, and more workers
/// win nothing.
#[test]
fn workers_that_wait_for_something_else_most_of_the_time_are_no_storage() {
    verdict(&with_looks(|n| (n % 4 == 0).then_some((AT_STORE, READS, 0)), 0), "INPUT");
}
