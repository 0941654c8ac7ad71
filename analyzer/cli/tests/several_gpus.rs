// SPDX-License-Identifier: Apache-2.0
//! Purpose: threads that launch to several GPUs at one time. What the host did before two launches
//! that stand beside each other is counted once: buckets sum to the time.

mod made;

use std::fmt::Write as _;

use made::{read, File};
use verdict::analysis::Bucket;

/// Steps of one kernel on each of two GPUs, launched by two threads, which take turns: the host is
/// away for 5 ms, then both launch, the one while the other's call stands (a module is loaded).
fn trace() -> String {
    let mut out = String::from("{\"traceEvents\":[");
    let mut event = |cat: &str, name: &str, tid: u32, ts: u64, dur: u64, args: &str| {
        let _ = write!(
            out,
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":{tid},"ts":{ts}.125,"dur":{dur},"args":{{{args}}}}},"#
        );
    };
    let mut n = 0;
    for step in 0..40u64 {
        let begin = 1_000_000 + step * 6_000;
        for (gpu, at, length) in [(1, 5_000, 300), (0, 5_020, 290)] {
            n += 1;
            let at = begin + at;
            let thread = 1 + (gpu + step as u32) % 2;
            event("cuda_runtime", "cudaLaunchKernel", thread, at, length, &format!("\"correlation\":{n}"));
            let on = format!("\"device\":{gpu},\"stream\":7,\"correlation\":{n}");
            event("kernel", "gemm", 70 + gpu, at + length + 5, 600, &on);
        }
    }
    out.push_str("{}]}");
    out
}

#[test]
fn time_before_launches_side_by_side_is_counted_once() {
    let file = File::new(trace().as_bytes());
    let (_, a) = read(&file.0);
    assert_eq!(a.devices.len(), 2);
    for d in &a.devices {
        assert_eq!(d.buckets.total(), d.wall_ns, "GPU {}: {:?}", d.ordinal, d.buckets);
        assert!(d.buckets.share(Bucket::Host) > 0.7, "GPU {}: {:?}", d.ordinal, d.buckets);
        assert!(d.slices.windows(2).all(|w| w[0].end <= w[1].start), "one after the other");
    }
}
