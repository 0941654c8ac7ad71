// SPDX-License-Identifier: Apache-2.0
//! Purpose: a GPU that would run something all the time without the profiler waits for no host.
//! "GPU busy up to 100 %, still SYNC" contradicts itself: what runs is named.

mod made;

use made::{line, Trace};

/// Steps of a kernel, a copy to the device or a collective beside it, and a wait behind each of the
/// two. The host is away for `pause` us in a step.
fn taking_turns(kernel: u64, copy: u64, collective: u64, pause: u64) -> Trace {
    let mut t = Trace::new();
    for _ in 0..60 {
        t.event("cpu_op", "aten::mm", 1, (t.t, 10), "");
        t.kernel("gemm", kernel);
        t.synchronize();
        if copy > 0 {
            t.call("cudaMemcpyAsync", 5);
            let start = t.t.max(t.free + 1);
            let args = format!(r#""device":0,"stream":20,"bytes":16000000,"correlation":{}"#, t.correlation);
            t.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 20, (start, copy), &args);
            t.free = start + copy;
            t.synchronize();
        }
        if collective > 0 {
            t.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", collective);
            t.synchronize();
        }
        t.t += pause;
    }
    t
}

/// What the line says of the trace without its profiler.
fn without_the_profiler(trace: &Trace) -> (f64, &'static str, String) {
    let (input, a) = trace.read();
    let p = a.verdict.profiled.expect("operators are in the trace");
    (p.busy, p.cause, line(&input, &a))
}

#[test]
fn a_full_gpu_is_not_said_to_wait_for_the_host() {
    for (kernel, copy, collective, wanted) in [
        (1_500, 1_000, 0, &["COPY", "GPU-BOUND"][..]),
        (1_000, 1_500, 0, &["COPY"]),
        (500, 0, 2_000, &["COMM"]),
        (1_600, 300, 300, &["COPY", "COMM", "GPU-BOUND"]),
    ] {
        let (busy, cause, line) = without_the_profiler(&taking_turns(kernel, copy, collective, 30));
        assert!(busy >= 0.95, "{busy}: {line}");
        assert!(wanted.contains(&cause), "{kernel}, {copy}, {collective}: {line}");
    }
}

/// Where the GPU still waits, it is as before.
#[test]
fn a_gpu_that_idles_waits_for_whom_it_did() {
    let (busy, cause, line) = without_the_profiler(&taking_turns(1_500, 0, 0, 900));
    assert!(busy < 0.95, "{busy}: {line}");
    assert!(!["COPY", "COMM"].contains(&cause), "{line}");
}
