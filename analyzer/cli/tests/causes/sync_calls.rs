// SPDX-License-Identifier: Apache-2.0
//! What to change about a wait, by the call that waits and PyTorch's frame above it; and programs
//! close by of which no more is known.

use std::io::Read;

use serde_json::Value;

use super::program::Program;
use super::samples::stack;
use super::{kept, run, verdict};

type Frame = (&'static str, &'static str, u32);

/// CUPTI's numbers.
const STREAM: u32 = 131;
const DEVICE: u32 = 165;
const EVENT: u32 = 137;
const TORCHS: Frame = ("synchronize", "@/cuda/__init__.py", 1040);

/// Steps that wait by this call, below these frames, after every few kernels that are longer than
/// their launches.
fn waits(p: &mut Program, call: u32, inner: &[Frame]) {
    for _ in 0..12 {
        for name in ["layer_norm_kernel", "gemm_a_kernel", "flash_kernel", "gemm_b_kernel"] {
            p.launch(name, 264, 14_000);
        }
        p.site = stack(p, inner);
        p.sync_by(call);
        p.site = 0;
    }
    p.optimizer(14_000);
}

fn fix(call: u32, inner: &[Frame]) -> &'static str {
    let (_, a) = run(|p| waits(p, call, inner));
    verdict(&a, "SYNC");
    assert!(a.verdict.site.is_some(), "{}", a.verdict.text());
    a.verdict.advice.long
}

fn is_of_torchs_timing(fix: &str) -> bool {
    ["torch.cuda.synchronize()", "torch.cuda.Event(enable_timing=True)", "read them later"]
        .iter()
        .all(|w| fix.contains(w))
}

/// What is left over from timing on the H200.
#[test]
fn torchs_synchronize_is_to_give_way_to_events() {
    let (_, a) = kept::recording("tests/gpu/recordings/sync_timing.slow");
    verdict(&a, "SYNC");
    assert!(a.verdict.text().contains("cudaDeviceSynchronize"), "{}", a.verdict.text());
    assert!(is_of_torchs_timing(a.verdict.advice.long), "{}", a.verdict.advice.long);
    // values read after each layer
    let (_, a) = kept::recording("tests/gpu/recordings/sync_item_layers.slow");
    verdict(&a, "SYNC");
    assert!(a.verdict.advice.long.starts_with("read the value later"), "{}", a.verdict.advice.long);
    let page = verdict::causes::find("SYNC").expect("SYNC").doc();
    assert!(
        page.contains("torch.cuda.Event(enable_timing=True)") && page.contains("event.query()"),
        "{page}"
    );
}

#[test]
fn each_way_of_waiting_has_its_own_way_out() {
    let own: Frame = ("synchronize", "/job/gpt/cuda/timing.py", 7);
    assert!(is_of_torchs_timing(fix(DEVICE, &[TORCHS])));
    // who says it is to time?
    for fix in [fix(DEVICE, &[]), fix(DEVICE, &[own])] {
        assert!(
            !fix.contains("torch") && fix.contains("where it is there to time, record CUDA events"),
            "{fix}"
        );
    }
    let of_event = fix(EVENT, &[("Event.synchronize", "@/cuda/streams.py", 223)]);
    assert!(
        of_event.contains("query()") && of_event.contains("later") && !of_event.contains("time,"),
        "{of_event}"
    );
    let stream: Frame = ("Stream.synchronize", "@/cuda/streams.py", 105);
    for fix in [fix(STREAM, &[]), fix(STREAM, &[own]), fix(STREAM, &[stream])] {
        assert!(
            fix.starts_with("read the value later") && !fix.contains("torch") && !fix.contains("query"),
            "{fix}"
        );
    }
}

/// One step has both: what the one is told is not said of the other.
#[test]
fn slices_of_the_trace_are_told_what_their_own_call_is() {
    let read: Frame = ("evaluate", "/job/gpt/train.py", 33);
    let (run, a) = run(|p| {
        waits(p, DEVICE, &[TORCHS]);
        waits(p, STREAM, &[read]);
    });
    verdict(&a, "SYNC");
    let options = verdict::output::chrome::ChromeOptions::default();
    let (packed, _) = verdict::output::chrome::write(&run, &a, Vec::new(), &options).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let slices = || {
        trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["cat"] == "idle" && e["name"] == "SYNC")
    };
    for (call, torchs) in [("cudaDeviceSynchronize", true), ("cudaStreamSynchronize", false)] {
        let of: Vec<&Value> = slices().filter(|e| e["args"]["call"] == call).collect();
        assert!(of.len() > super::STEPS, "{} of {call}", of.len());
        for slice in of {
            let said = slice["args"]["to change"].as_str().unwrap();
            assert_eq!(is_of_torchs_timing(said), torchs, "{slice}");
        }
    }
}
