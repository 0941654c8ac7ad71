// SPDX-License-Identifier: Apache-2.0
//! Purpose: a trace is judged by what happened, whoever made the accelerator. The same run under
//! the names of HIP has the verdict that it has under CUDA's; of Intel's and Gaudi's, of which no
//! real trace was at hand, at least the cause. The next tool is the vendor's, and a runtime that
//! nobody knows is called that.

use std::path::{Path, PathBuf};

use formats::Input;
use verdict::Analysis;

fn case(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn read(text: &str) -> (Input, Analysis) {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path: PathBuf = std::env::temp_dir().join(format!("gapprobe-vendors-{}-{n}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let input = formats::read(&path, &Default::default()).unwrap();
    std::fs::remove_file(path).unwrap();
    let a = verdict::analyze(&input.run);
    (input, a)
}

/// Cause, confidence, step and promise.
fn verdict(a: &Analysis) -> String {
    let v = &a.verdict;
    format!(
        "{} {:?} {:?} {:.0} {:.0}",
        v.cause,
        v.confidence,
        v.why_inconclusive(),
        v.step_ns,
        v.promise.map_or(0.0, |p| p.ns())
    )
}

fn renamed(text: &str, names: &[(&str, &str)]) -> String {
    names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[test]
fn launches_of_hip_are_judged_as_those_of_cuda() {
    let (_, hip) = read(&case("rocm_hip_names.json"));
    let (_, cuda) = read(&case("rocm_same_with_cuda_names.json"));
    assert_eq!(verdict(&hip), verdict(&cuda));
    assert_eq!(hip.verdict.cause, "LAUNCH");
    assert_eq!(hip.devices[0].buckets, cuda.devices[0].buckets);
}

const HIP: [(&str, &str); 3] = [
    ("cudaLaunchKernel", "hipExtModuleLaunchKernel"),
    ("cudaMemcpyAsync", "hipMemcpyAsync"),
    ("cudaStreamSynchronize", "hipStreamSynchronize"),
];

/// What waits is told by its class, which the name tells: here a wait in each step, seen as such.
#[test]
fn waits_of_hip_are_judged_as_those_of_cuda() {
    let cuda = case("with_stack.json");
    let (_, of_cuda) = read(&cuda);
    let (input, of_hip) = read(&renamed(&cuda, &HIP));
    assert_eq!(of_cuda.verdict.cause, "SYNC");
    assert_eq!(verdict(&of_hip), verdict(&of_cuda));
    assert_eq!(of_hip.verdict.site, of_cuda.verdict.site);
    let names = input.run.threads.iter().flat_map(|t| &t.calls).map(|c| input.run.call_name(c));
    assert!(names.clone().any(|n| n == "hipStreamSynchronize"), "shown by its own name");
    assert!(names.clone().all(|n| n.starts_with("hip")));
}

/// Copies by the names of ROCm's own tracer, older than Kineto's words for them.
#[test]
fn copies_of_rocm_have_the_way_that_their_name_tells() {
    let old = [&HIP[..], &[("Memcpy DtoH (Device -> Pageable)", "CopyDeviceToHost")]].concat();
    let (input, a) = read(&renamed(&case("with_stack.json"), &old));
    assert_eq!(a.verdict.cause, "SYNC", "{}", a.verdict.text());
    let copies = input.run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    let copies: Vec<_> = copies.filter(|o| o.kind == trace::Kind::Memcpy).collect();
    assert!(copies.len() == 48 && copies.iter().all(|o| o.copy().direction == 2));
}

/// By names only: no trace of these was at hand.
#[test]
fn waits_of_intel_and_gaudi_are_waits() {
    let intel = [
        ("\"cuda_runtime\"", "\"xpu_runtime\""),
        ("cudaLaunchKernel", "urEnqueueKernelLaunch"),
        ("cudaMemcpyAsync", "urEnqueueUSMMemcpy"),
        ("cudaStreamSynchronize", "urQueueFinish"),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy D2M (Device -> Memory)"),
    ];
    let gaudi = [
        ("\"cuda_runtime\"", "\"hpu_op\""),
        ("cudaLaunchKernel", "synLaunch"),
        ("cudaMemcpyAsync", "synMemCopyAsync"),
        ("cudaStreamSynchronize", "synStreamSynchronize"),
    ];
    for names in [&intel[..], &gaudi] {
        let (input, a) = read(&renamed(&case("with_stack.json"), names));
        assert_eq!((a.verdict.cause, &a.verdict.inconclusive), ("SYNC", &None), "{}", a.verdict.text());
        let copies = input.run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
        let copies: Vec<_> = copies.filter(|o| o.kind == trace::Kind::Memcpy).collect();
        assert!(copies.len() == 48 && copies.iter().all(|o| o.copy().direction == 2));
    }
}

#[test]
fn a_runtime_that_nobody_knows_is_not_called_unrecorded() {
    let strange = renamed(
        &case("rocm_hip_names.json"),
        &[("hipLaunchKernel", "qpuEnqueue"), ("hipDeviceSynchronize", "qpuWait")],
    );
    let (_, a) = read(&strange);
    let why = a.verdict.why_inconclusive().unwrap_or_default();
    assert!(why.contains("calls launch is not known") && why.contains("qpu"), "{why}");
}

/// A run that is GPU-bound: whose profiler comes next.
fn next(names: &[(&str, &str)], device: &str) -> String {
    let mut text = format!(r#"{{"deviceProperties":[{{"id":0,"name":"{device}"}}],"traceEvents":["#);
    for n in 0..200 {
        let (at, begin) = (1000 + n * 100, 1010 + n * 100);
        text.push_str(&format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{at},"dur":5,"args":{{"correlation":{0}}}}},
               {{"ph":"X","cat":"kernel","name":"big_{1}","pid":0,"tid":7,"ts":{begin},"dur":99,"args":{{"device":0,"stream":7,"correlation":{0}}}}},"#,
            n + 1,
            n % 4
        ));
    }
    text.push_str("{}]}");
    let (input, a) = read(&renamed(&text, names));
    assert_eq!(a.verdict.cause, "GPU-BOUND", "{}", a.verdict.text());
    cli::overview::next(&input.run, &a).unwrap()
}

/// ROCm's kernels have no grid in Kineto's traces: that is not one block.
#[test]
fn kernels_without_a_grid_are_not_of_few_blocks() {
    let mut text = String::from(r#"{"traceEvents":["#);
    for n in 0..400 {
        let begin = 100 + 100 * n;
        text.push_str(&format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":1,"tid":1,"ts":{},"dur":5,"args":{{"correlation":{}}}}},
               {{"ph":"X","cat":"kernel","name":"Cijk_{}","pid":0,"tid":7,"ts":{begin},"dur":99,"args":{{"device":0,"stream":7,"correlation":{}}}}},"#,
            10 * n, n + 1, n % 4, n + 1
        ));
    }
    text.push_str("{}]}");
    let (input, a) = read(&text);
    assert_eq!((a.verdict.cause, a.devices[0].small.share), ("GPU-BOUND", 0.0), "{}", a.verdict.text());
    let kernels = || input.run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops);
    assert!(kernels().count() == 400 && kernels().all(|op| op.b == 0));
}

#[test]
fn the_next_tool_is_that_of_the_vendor() {
    let launch = |name| [("cudaLaunchKernel", name)];
    assert!(next(&[], "NVIDIA H100").starts_with("ncu --set detailed --kernel-name big_0 --launch-skip"));
    let amd = "rocprof-compute profile --name gapprobe --kernel big_0 -- python train.py";
    assert_eq!(next(&launch("hipLaunchKernel"), ""), amd);
    assert_eq!(next(&launch("unknownLaunch"), "AMD Instinct MI300X"), amd, "by the device");
    let intel = "unitrace --metric-query --include-kernels big_0 python train.py";
    assert_eq!(next(&launch("zeCommandListAppendLaunchKernel"), ""), intel);
    assert!(next(&launch("synLaunch"), "").contains("HABANA_PROFILE=1"));
}
