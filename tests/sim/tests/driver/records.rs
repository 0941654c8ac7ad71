// SPDX-License-Identifier: Apache-2.0
//! What a client of CUPTI is told, and the buffers that it comes in.

use crate::harness::{number, run, Run};

#[test]
fn a_runtime_call_and_its_driver_call_share_correlation_and_keep_their_own_data() {
    let settings = [("REC_CALLBACKS", "2.211,1.307,3.1,3.5"), ("REC_FILTER", "2.211")];
    let run = run("13.0", &["loop", "1", "20", "10"], &settings);
    assert!(run.errors().is_empty(), "{:?}", run.errors());
    assert!(run.has("C 3.5") && run.has("C 3.1") && run.has("second 39") && run.has("null-clock 1"));
    let (outer, inner) = (run.callbacks("2.211"), run.callbacks("1.307"));
    assert_eq!((outer.len(), inner.len()), (40, 40));
    for (outer, inner) in outer.chunks(2).zip(inner.chunks(2)) {
        assert_eq!([&outer[0]["site"], &outer[1]["site"]], ["0", "1"]);
        assert_eq!(outer[0]["corr"], inner[0]["corr"]);
        assert_eq!(outer[0]["shared"], outer[1]["shared"], "enter's 8 bytes reach exit");
        assert_ne!(outer[0]["shared"], inner[0]["shared"], "and are not the nested call's");
        assert_eq!((outer[1]["ret"].as_str(), outer[1]["user"].as_str()), ("0", "77"));
    }
    let (kernels, calls) = (run.records(10), run.records(5));
    assert_eq!((kernels.len(), calls.len()), (20, 20), "the filter records launches only");
    for (kernel, call) in kernels.iter().zip(&calls) {
        assert_eq!(kernel["corr"], call["corr"]);
        assert!(number(kernel, "start") > number(call, "start"));
        assert_eq!(call["tid"], call["pid"], "the launching thread is the main thread");
    }
}

#[test]
fn whole_kinds_record_every_call_and_external_ids() {
    let run = run("13.0", &["loop", "1", "5", "10"], &[("REC_KINDS", "10,4,5,39"), ("REC_EXTERNAL", "4711")]);
    let (runtime, driver) = (run.records(5), run.records(4));
    assert!(runtime.iter().any(|r| number(r, "cbid") == 165), "cudaDeviceSynchronize too");
    assert!(driver.iter().filter(|r| number(r, "cbid") == 307).count() == 5);
    let external = run.records(39);
    assert!(external.len() >= 5 && external.iter().all(|r| number(r, "id") == 4711));
}

#[test]
fn graph_nodes_carry_the_launch_and_their_own_ids() {
    let run = run("13.0", &["loop", "3", "40", "2", "0", "1", "g"], &[("REC_CALLBACKS", "2.311")]);
    let kernels = run.records(10);
    assert_eq!(kernels.len(), 120);
    let launches: Vec<_> = run.callbacks("2.311").iter().map(|c| c["corr"].clone()).collect();
    assert_eq!(launches.len(), 6);
    for (n, chunk) in kernels.chunks(40).enumerate() {
        assert!(chunk.iter().all(|k| k["corr"] == launches[2 * n]));
        assert!(chunk.iter().all(|k| number(k, "graph") != 0 && number(k, "node") != 0));
        let gap = number(&chunk[1], "start") - number(&chunk[0], "end");
        assert_eq!(gap, 400);
    }
    let nodes: std::collections::HashSet<_> = kernels.iter().map(|k| k["node"].clone()).collect();
    assert_eq!(nodes.len(), 40, "one id a node, the same in every launch");
}

#[test]
fn a_captured_node_is_told_in_its_launch_and_leads_to_those_that_are_played() {
    let settings = [("REC_CALLBACKS", "2.211,3.13,3.20")];
    let run = run("13.0", &["loop", "3", "40", "2", "0", "1", "g"], &settings);
    let (made, copied, records) = (run.callbacks("3.13"), run.callbacks("3.20"), run.records(10));
    assert_eq!((made.len(), copied.len(), records.len()), (80, 40, 120));
    let in_launches = run.lines.windows(3).filter(|lines| {
        lines[0].starts_with("C 2.211 site=0")
            && lines[1].starts_with("C 3.13")
            && lines[2].starts_with("C 2.211 site=1")
    });
    assert_eq!(in_launches.count(), 40);
    for (n, (node, copy)) in made.iter().zip(&copied).enumerate() {
        assert_eq!((&copy["original"], &copy["type"]), (&node["node"], &"0".to_owned()));
        assert!(records.iter().skip(n).step_by(40).all(|played| played["node"] == copy["node"]));
    }
}

#[test]
fn graph_level_gives_one_record_a_launch() {
    let run = run("13.0", &["loop", "3", "40", "2", "0", "1", "g"], &[("REC_KINDS", "10,51")]);
    assert_eq!((run.records(51).len(), run.records(10).len()), (3, 0));
}

#[test]
fn a_plain_flush_keeps_unfinished_buffers_and_a_forced_one_gives_them_up_once() {
    let queued = &["ways_out", "return", "100", "150"];
    let plain = run("13.0", queued, &[("REC_BUFFER", "65536")]);
    assert!(plain.records(10).len() < 250, "the buffer with unfinished work stays");
    assert!(plain.records(10).iter().all(|k| number(k, "end") != 0));
    let forced = run("13.0", queued, &[("REC_FLUSH", "forced")]);
    let unfinished = forced.records(10).iter().filter(|k| number(k, "end") == 0).count();
    assert_eq!(forced.records(10).len(), 250, "all of them, once");
    assert!((140..=150).contains(&unfinished), "{unfinished}");
}

#[test]
fn buffers_are_bounded_by_size_and_by_count_and_full_ones_come_back_without_a_flush() {
    let run = run("13.0", &["loop", "10", "50", "2", "20000"], &[("REC_MOST", "7"), ("REC_FLUSH", "none")]);
    let valid: Vec<u64> = run.lines.iter().filter_map(|l| l.strip_prefix("B 65536 ")?.parse().ok()).collect();
    assert!(valid.len() > 50 && valid.iter().all(|v| *v == 7 * 216), "{valid:?}");
    let small = self::run("13.0", &["loop", "2", "200", "2"], &[("REC_BUFFER", "1000")]);
    assert_eq!(small.records(10).len(), 400);
    let tiny = self::run("13.0", &["loop", "1", "5", "2"], &[("REC_BUFFER", "100")]);
    assert_eq!(tiny.records(10).len(), 0, "no record fits");
    assert_eq!(tiny.output.status.code(), Some(0));
}

#[test]
fn threads_have_buffers_of_their_own_unless_told_otherwise() {
    let victim = &["threads", "3", "4", "50"];
    let requests = |run: &Run| -> u32 {
        let line = run.lines.iter().find_map(|l| l.strip_prefix("requests ")).expect("requests");
        line.parse().expect("a number")
    };
    let own = run("13.0", victim, &[("REC_KINDS", "10")]);
    assert_eq!((own.records(10).len(), requests(&own)), (600, 12));
    let shared = run("13.0", victim, &[("REC_KINDS", "10"), ("REC_PER_THREAD", "0")]);
    assert_eq!(shared.records(10).len(), 600);
    // 600 records fill two buffers, and four threads may each find that one is needed at the same
    // moment
    assert!((2..=8).contains(&requests(&shared)), "{}", requests(&shared));
}

#[test]
fn times_follow_the_client_clock() {
    let tick = run("13.0", &["loop", "3", "20", "100"], &[("REC_CLOCK", "tick")]);
    for kernel in tick.records(10) {
        let span = number(&kernel, "end") - number(&kernel, "start");
        assert!(span.abs_diff(25_000) <= 300, "100 us are 25,000 ticks of 4 ns: {span}");
    }
    let real = run("13.0", &["loop", "3", "20", "100"], &[("REC_CLOCK", "real")]);
    let meta = &real.truth[0];
    let shift = meta["real_ns"].as_u64().unwrap_or(0) - meta["mono_ns"].as_u64().unwrap_or(0);
    let op = real.ops("kernel")[0]["start"].as_u64().unwrap_or(0);
    assert!(number(&real.records(10)[0], "start").abs_diff(op + shift) < 100_000);
}
