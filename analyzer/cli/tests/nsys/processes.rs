// SPDX-License-Identifier: Apache-2.0
//! Two processes in one export: their ids and their GPUs are not mixed up.

use verdict::run::NONE;

use super::fixture::{export, global, training, Schema, Workload, BOTH};
use super::{measured, read, union};

/// Busy and idle of what these processes did with these GPUs.
fn truth(w: &Workload, of: &[(u32, u32)]) -> (u64, u64) {
    union(w.ops.iter().filter(|o| of.contains(&(o.pid, o.device))).map(|o| (o.start, o.end)).collect())
}

#[test]
fn each_operation_is_joined_to_a_call_of_its_own_process() {
    for schema in BOTH {
        // both count correlation ids from 1, both work at the same time
        let w = training(30, &[(100, &[0]), (200, &[1])], 3);
        let input = read(&export(&w, schema, |_| ())).unwrap();
        let run = &input.run;
        assert_eq!((run.unjoined, run.devices.len(), run.threads.len()), (0, 2, 2));
        let mut joined = 0;
        for d in &run.devices {
            let tid = if d.ordinal == 0 { 107 } else { 207 };
            for o in d.streams.iter().flat_map(|s| &s.ops) {
                let (thread, call) = run.call(o.call).unwrap();
                assert_eq!(run.threads[thread].tid, tid, "{schema:?}");
                assert!(call.start < o.start && call.correlation == o.correlation);
                joined += 1;
            }
        }
        assert_eq!(joined, w.ops.len());
        assert_eq!(measured(&input), [(0, truth(&w, &[(100, 0)])), (1, truth(&w, &[(200, 1)]))]);
        assert_eq!((input.refused, input.notes.len()), (Default::default(), 0));
        // a graph of one process is not the other's
        let graphs = |ordinal: u32| {
            let d = run.devices.iter().find(|d| d.ordinal == ordinal).unwrap();
            d.streams.iter().flat_map(|s| &s.ops).map(|o| o.graph).find(|&g| g != 0).unwrap()
        };
        assert_ne!(graphs(0), graphs(1));
    }
}

#[test]
fn the_same_number_is_the_same_gpu_if_the_export_says_so() {
    let mut w = training(20, &[(100, &[0]), (200, &[0])], 4);
    w.gpus = vec![(100, 0, 5), (200, 0, 5)];
    let input = read(&export(&w, Schema::New, |_| ())).unwrap();
    assert_eq!(measured(&input), [(0, truth(&w, &[(100, 0), (200, 0)]))]);
    assert_eq!(input.run.unjoined, 0);
    assert!(input.notes.is_empty());
}

#[test]
fn the_same_number_is_another_gpu_if_the_export_says_so() {
    let mut w = training(20, &[(100, &[0]), (200, &[0, 1])], 4);
    w.gpus = vec![(100, 0, 3), (200, 0, 2), (200, 1, 7)];
    let gpus = "INSERT INTO TARGET_INFO_GPU (vmId, id, name, smCount, computeMajor, computeMinor, totalMemory)
        VALUES (1, 2, 'H100', 132, 9, 0, 85899345920), (1, 3, 'A100', 108, 8, 0, 42949672960), (1, 7, 'H200', 132, 9, 0, 1)";
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(gpus).unwrap())).unwrap();
    let wanted = [(2, truth(&w, &[(200, 0)])), (3, truth(&w, &[(100, 0)])), (7, truth(&w, &[(200, 1)]))];
    assert_eq!(measured(&input), wanted);
    let infos: Vec<_> = input
        .run
        .devices
        .iter()
        .map(|d| {
            (d.info.multiprocessors, d.info.compute_major, input.run.definitions.string(d.info.name).unwrap())
        })
        .collect();
    assert_eq!(infos, [(132, 9, "H100"), (108, 8, "A100"), (132, 9, "H200")]);
}

#[test]
fn gpus_are_told_apart_by_uuid_where_there_are_no_ids() {
    let mut w = training(20, &[(100, &[0]), (200, &[0]), (300, &[0])], 4);
    w.gpus = vec![(100, 0, 1), (200, 0, 2), (300, 0, 1)];
    let change = "UPDATE TARGET_INFO_CUDA_DEVICE SET uuid = 'GPU-' || gpuId, gpuId = NULL";
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(change).unwrap())).unwrap();
    assert_eq!(measured(&input), [(0, truth(&w, &[(100, 0), (300, 0)])), (1, truth(&w, &[(200, 0)]))]);
}

#[test]
fn the_same_number_is_two_gpus_with_a_note_if_nothing_is_said() {
    for schema in BOTH {
        let w = training(20, &[(100, &[0]), (200, &[0])], 4);
        let input = read(&export(&w, schema, |_| ())).unwrap();
        assert_eq!(measured(&input), [(0, truth(&w, &[(100, 0)])), (1, truth(&w, &[(200, 0)]))]);
        assert_eq!(input.notes.len(), 1, "{:?}", input.notes);
        assert!(input.notes[0].contains("taken as different ones"), "{:?}", input.notes);
    }
}

#[test]
fn one_gpu_in_the_machine_is_everybodys() {
    let w = training(20, &[(100, &[0]), (200, &[0])], 4);
    let gpu = "INSERT INTO TARGET_INFO_GPU (vmId, id, name, smCount) VALUES (1, 0, 'A100', 108)";
    for schema in BOTH {
        let input = read(&export(&w, schema, |c| c.execute_batch(gpu).unwrap())).unwrap();
        assert_eq!(measured(&input), [(0, truth(&w, &[(100, 0), (200, 0)]))]);
        assert_eq!(input.run.devices[0].info.multiprocessors, 108);
    }
}

/// A record of a wait names its stream by its number alone, and both processes have a stream 7.
#[test]
fn a_wait_for_an_event_is_not_taken_for_another_processs() {
    let w = training(6, &[(100, &[0]), (200, &[1])], 4);
    let wait = |pid: u32, correlation: u32, what: u32, stream: u32| {
        format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start, end, deviceId, contextId, streamId, correlationId,
             globalPid, syncType, eventId) VALUES (6000000, 6000400, 0, 1, {stream}, {correlation}, {}, {what}, 1);",
            global(pid, 0)
        )
    };
    // of the first process, of the second; a stream that only one of them has; one that its own has
    // nothing in
    let waits =
        [wait(100, 900, 2, 7), wait(200, 900, 2, 7), wait(200, 901, 2, 21), wait(100, 902, 2, 21)].concat();
    let only = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 21 WHERE streamId = 13 AND deviceId = 1;
        UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET streamId = 21 WHERE streamId = 13 AND deviceId = 1;
        UPDATE CUPTI_ACTIVITY_KIND_MEMSET SET streamId = 21 WHERE streamId = 13 AND deviceId = 1;";
    let input = read(&export(&w, Schema::New, |c| c.execute_batch(&(waits + only)).unwrap())).unwrap();
    let streams: Vec<u32> = input.run.waits.iter().map(|w| w.stream).collect();
    assert_eq!(streams, [NONE, NONE, 21, NONE]);
    assert_ne!(input.run.waits[0].correlation, input.run.waits[1].correlation);
}

/// Rows that name no process belong to the only one there is; among several nobody knows, and it is
/// counted.
#[test]
fn rows_without_a_process() {
    let nameless = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL";
    let alone = training(6, &[(100, &[0])], 4);
    // exports of 2019 have 0 where there is nothing
    for sql in [nameless, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = 0"] {
        let input = read(&export(&alone, Schema::New, |c| c.execute_batch(sql).unwrap())).unwrap();
        assert_eq!((input.run.unjoined, input.refused.orphans), (0, 0));
    }
    let two = training(6, &[(100, &[0]), (200, &[1])], 4);
    let kernels =
        two.ops.iter().filter(|o| matches!(o.what, super::fixture::What::Kernel(..))).count() as u64;
    let input = read(&export(&two, Schema::New, |c| c.execute_batch(nameless).unwrap())).unwrap();
    assert_eq!(input.refused.orphans, kernels);
}

/// Where one process's ids end and the other's begin, what was launched before the recording is
/// told from what was lost.
#[test]
fn missing_calls_are_counted_for_each_process() {
    for schema in BOTH {
        let whole = training(30, &[(100, &[0]), (200, &[1])], 9);
        let launched = |pid: u32, correlation: u32| {
            whole.ops.iter().any(|o| (o.pid, o.correlation) == (pid, correlation))
        };
        // from the 40th call of each process on the recorder saw them, then lost the 90th and the
        // 100th
        let kept = |pid: u32, n: u32| pid == 200 || (n >= 40 && n != 90 && n != 100);
        let mut w = whole.clone();
        w.calls.retain(|c| c.correlation == 0 || kept(c.pid, c.correlation));
        assert!(launched(100, 90) && launched(100, 100) && launched(100, 39));
        let run = read(&export(&w, schema, |_| ())).unwrap().run;
        let of = |n: u32| whole.ops.iter().filter(|o| (o.pid, o.correlation) == (100, n)).count() as u64;
        assert_eq!((run.uncalled.calls, run.uncalled.ops), (2, of(90) + of(100)), "{schema:?}");
        // and the head of the second one, behind the ids of the first
        let kept = |pid: u32, n: u32| pid == 100 || n >= 40;
        let mut w = whole.clone();
        w.calls.retain(|c| c.correlation == 0 || kept(c.pid, c.correlation));
        let run = read(&export(&w, schema, |_| ())).unwrap().run;
        assert!(run.unjoined >= 39, "{}", run.unjoined);
        assert_eq!(run.uncalled.calls, 0, "{schema:?}");
    }
}
