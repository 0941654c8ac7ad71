// SPDX-License-Identifier: Apache-2.0
//! Purpose: profiles of JAX and TensorFlow, as XLA's profiler writes them (`*.trace.json.gz`), are
//! read: idle time to the nanosecond, launches joined, steps by what the program annotated or by
//! the module it executes, the Python line. What has no GPU in it is called what it is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use formats::{Format, Input, ReadError};
use trace::Kind;
use verdict::analysis::StepSource;
use verdict::output::chrome;
use verdict::run::Recorder;
use verdict::Analysis;

fn case() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/jax_xla.trace.json")
}

fn parse(text: impl AsRef<[u8]>) -> Result<Input, ReadError> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("gapprobe-xla-{}-{n}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let read = formats::read(&path, &Default::default());
    std::fs::remove_file(path).unwrap();
    read
}

fn read(text: impl AsRef<[u8]>) -> (Input, Analysis) {
    let input = parse(text).unwrap_or_else(|e| panic!("{e} ({})", e.hint));
    let a = verdict::analyze(&input.run);
    (input, a)
}

#[test]
fn the_case_is_read_as_what_it_is() {
    let input = formats::read(&case(), &Default::default()).unwrap();
    let a = verdict::analyze(&input.run);
    assert_eq!((input.format, input.run.recorder), (Format::Xla, Recorder::Xla));
    assert_eq!(input.refused.lost(), 0);
    // 60 kernels of 20 us, one each 100 us
    assert_eq!((input.run.devices[0].ops(), a.devices[0].busy_ns), (60, 1_200_000));
    assert_eq!(a.devices[0].idle_ns, 59 * 80_000);
    assert_eq!((input.run.unjoined, input.run.uncalled.calls), (0, 0));
    assert_eq!((a.steps.steps.len(), a.steps.median_ns), (12, 500_000));
    assert_eq!((a.verdict.cause, &a.verdict.inconclusive), ("LAUNCH", &None), "{}", a.verdict.text());
}

/// What a run of JAX looks like, with or without some of its parts.
#[derive(Clone, Copy)]
struct Shape {
    modules: bool,
    annotated: bool,
    executions: bool,
    python: bool,
    device: &'static str,
}

const WHOLE: Shape =
    Shape { modules: true, annotated: false, executions: true, python: true, device: "GPU:0" };

/// 20 steps of 500 us: five kernels of 60 us by module `jit_step`, one of 10 us by `jit_log`; a
/// copy to the host, which waits for that in `train.py` before it launches the next step.
fn profile(shape: Shape) -> String {
    let mut out =
        String::from(r#"{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":["#);
    let mut named = |pid: u32, tid: Option<u32>, name: &str| {
        let (tid, what) =
            tid.map_or((String::new(), "process_name"), |t| (format!("\"tid\":{t},"), "thread_name"));
        let _ = write!(out, r#"{{"ph":"M","pid":{pid},{tid}"name":"{what}","args":{{"name":"{name}"}}}},"#);
    };
    named(1, None, &format!("/device:{}", shape.device));
    named(1, Some(13), "Stream #13(Compute,MemcpyD2H)");
    named(1, Some(20), "XLA Modules - from #13");
    named(1, Some(21), "XLA Ops - from #13");
    named(1, Some(22), "Framework Name Scope");
    named(701, None, "/host:CPU");
    named(701, Some(9), "python");
    let mut event = |pid: u32, tid: u32, name: &str, ts: u64, dur: &str, args: &str| {
        let args = if args.is_empty() { String::new() } else { format!(",\"args\":{{{args}}}") };
        let _ = write!(
            out,
            r#"{{"ph":"X","pid":{pid},"tid":{tid},"ts":{ts}.5,"dur":{dur},"name":"{name}"{args}}},"#
        );
    };
    let mut id = 40;
    for step in 0..20u64 {
        let t = 5_000 + step * 500;
        if shape.annotated {
            event(701, 9, "train", t, "490", &format!("\"step_num\":\"{}\",\"_r\":\"1\"", step + 7));
        }
        if shape.python {
            event(701, 9, "$train.py:12 step", t, "480", "");
            event(701, 9, "$array.py:300 __float__", t + 250, "160", "");
        }
        let of = "\"module_name\":\"jit_step\"";
        if shape.executions {
            event(701, 9, "GpuExecutable::ExecuteThunks", t + 2, "160", of);
            event(701, 9, "GpuExecutable::ExecuteThunks", t + 200, "20", "\"module_name\":\"jit_log\"");
        }
        for k in 0..6 {
            id += 1;
            let module = if k < 5 { "jit_step" } else { "jit_log" };
            let (call, begin) = (t + 5 + k * 30, t + 20 + k * 70);
            let dur = if k < 5 { "60.0001" } else { "10" };
            event(701, 9, "cuLaunchKernel", call, "5", &format!("\"correlation_id\":\"{id}\""));
            let details = "regs:32 static_shared:16 dynamic_shared:0 grid:24,2,1 block:128,1,1 occ_pct:100";
            let args = format!(
                "\"correlation_id\":\"{id}\",\"hlo_module\":\"{module}\",\"hlo_op\":\"fusion.{k}\",\"kernel_details\":\"{details}\""
            );
            event(1, 13, &format!("loop_fusion_{k}"), begin, dur, &args);
            event(1, 21, &format!("fusion.{k}"), begin, dur, &args);
        }
        if shape.modules {
            event(1, 20, &format!("jit_step({})", 77 + step), t + 20, "340", "");
            event(1, 20, "jit_log(5)", t + 370, "10", "");
        }
        id += 1;
        event(701, 9, "cuMemcpyDtoHAsync_v2", t + 260, "4", &format!("\"correlation_id\":\"{id}\""));
        let copy = format!(
            "\"correlation_id\":\"{id}\",\"memcpy_details\":\"kind_src:device kind_dst:pinned size:64 dest:0 async:1\""
        );
        event(1, 13, "MemcpyD2H", t + 400, "2", &copy);
        event(701, 9, "cuStreamSynchronize", t + 270, "134", "");
        event(701, 9, "MemoryDeallocation", t + 450, "1e-06", "\"bytes_allocated\":\"4\"");
    }
    out.push_str("{}]}");
    out
}

#[test]
fn streams_calls_copies_and_kernels_are_read_once() {
    let (input, a) = read(profile(WHOLE));
    let run = &input.run;
    assert_eq!(
        (run.devices.len(), run.devices[0].ops()),
        (1, 140),
        "lanes that repeat the stream are not read"
    );
    assert_eq!(run.devices[0].streams[0].stream, 13);
    // times beyond the nanosecond are rounded
    assert_eq!(a.devices[0].busy_ns, 20 * (5 * 60_000 + 10_000 + 2_000));
    let copies: Vec<_> = run.devices[0].streams[0].ops.iter().filter(|o| o.kind == Kind::Memcpy).collect();
    let copy = copies[0].copy();
    assert_eq!((copies.len(), copy.direction, copy.source, copy.destination, copy.bytes), (20, 2, 3, 2, 64));
    let op = run.devices[0].streams[0].ops[0];
    let kernel = run.definitions.kernel(op.a).unwrap();
    assert_eq!((kernel.block, kernel.registers, kernel.static_shared, op.b), ([128, 1, 1], 32, 16, 48));
    assert_eq!((run.unjoined, run.uncalled.calls, input.refused.lost()), (0, 0, 0));
    let sync = run.threads.iter().flat_map(|t| &t.calls).find(|c| c.class == Some(trace::call::Class::Sync));
    assert_eq!(sync.map(|c| run.call_name(c)), Some("cuStreamSynchronize"));
}

/// On ROCm a copy's way is in its name alone: its details say `kind:Unknown`.
#[test]
fn copies_of_rocm_have_the_way_that_their_name_tells() {
    let (name, details) = ("MemcpyD2H", "kind_src:device kind_dst:pinned size:64 dest:0 async:1");
    for (rocms, way) in
        [("CopyHostToDevice", 1), ("CopyDeviceToHost", 2), ("CopyDeviceToDevice", 8), ("CopyHostToHost", 9)]
    {
        let unknown = "kind:Unknown size:64 dest:2 async:1";
        let text = profile(WHOLE).replace(&format!("\"{name}\""), &format!("\"{rocms}\""));
        let (input, _) = read(text.replace(details, unknown));
        let ops = &input.run.devices[0].streams[0].ops;
        let copies: Vec<_> = ops.iter().filter(|o| o.kind == Kind::Memcpy).map(|o| o.copy()).collect();
        assert_eq!(copies.len(), 20, "{rocms}");
        assert!(copies.iter().all(|c| c.direction == way && c.bytes == 64), "{rocms}: {:?}", copies[0]);
    }
}

#[test]
fn the_verdict_names_the_python_line() {
    let (input, a) = read(profile(WHOLE));
    assert_eq!((a.verdict.cause, &a.verdict.inconclusive), ("SYNC", &None), "{}", a.verdict.text());
    assert!(input.notes[0].contains("slows the host: by how much is not known"), "{:?}", input.notes);
    let site = a.verdict.site.map(|s| s.to_string());
    assert_eq!(site.as_deref(), Some("train.py:12 in step via __float__"), "not JAX's own array.py");
    let (input, a) = read(profile(Shape { python: false, ..WHOLE }));
    assert_eq!((a.verdict.cause, a.verdict.site), ("SYNC", None));
    assert!(input.notes.is_empty(), "{:?}", input.notes);
}

/// Annotated ones first, then executions of the main module: by the device, by the host, by
/// kernels.
#[test]
fn steps_are_those_of_the_program_or_of_its_main_module() {
    let bare = Shape { modules: false, annotated: false, executions: false, python: false, ..WHOLE };
    for (shape, source, first) in [
        (Shape { annotated: true, ..WHOLE }, StepSource::Marks, Some(7)),
        (WHOLE, StepSource::Marks, Some(0)),
        (Shape { modules: true, ..bare }, StepSource::Marks, Some(0)),
        (Shape { executions: true, ..bare }, StepSource::Marks, Some(0)),
        (bare, StepSource::Marks, Some(0)),
    ] {
        let (_, a) = read(profile(shape));
        assert_eq!(a.steps.source, source);
        assert!((19..=20).contains(&a.steps.steps.len()), "{}", a.steps.steps.len());
        assert_eq!(a.steps.median_ns, 500_000);
        assert!(first.is_none_or(|n| a.steps.steps[0].number == n));
    }
}

/// AMD's runtime copies by kernels: these are the copies that were called for.
#[test]
fn copies_that_are_kernels_are_not_missed() {
    let text = profile(WHOLE).replace("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync");
    let text = text.replace("cuLaunchKernel", "hipModuleLaunchKernel").replace("cuStream", "hipStream");
    let text =
        text.replace("\"MemcpyD2H\"", "\"__amd_rocclr_copyBuffer.kd\"").replace("memcpy_details", "details");
    let (input, a) = read(text);
    assert_eq!((input.run.missing.as_str(), &a.verdict.inconclusive), ("", &None));
    assert_eq!(a.verdict.cause, "SYNC", "{}", a.verdict.text());
    let name = input.run.definitions.kernel_name(input.run.devices[0].streams[0].ops[6].a);
    assert_eq!(name, "__amd_rocclr_copyBuffer", "a kernel's name has no suffix of its descriptor");
}

/// Of a device without streams its operations tell when it was busy.
#[test]
fn operations_of_xla_stand_for_streams_that_are_not_there() {
    let text = profile(WHOLE).replace("Stream #13(Compute,MemcpyD2H)", "Launch Stats");
    let (input, a) = read(text);
    assert_eq!((input.run.devices[0].ops(), a.devices[0].busy_ns), (120, 20 * 310_000));
    assert_eq!(input.format, Format::Xla);
}

#[test]
fn what_has_no_gpu_in_it_is_called_what_it_is() {
    let tpu = parse(profile(Shape { device: "TPU:0", ..WHOLE })).unwrap_err();
    assert!(tpu.what.contains("an XLA profile of a TPU"), "{}", tpu.what);
    let host = profile(WHOLE).replace("/device:GPU:0", "/host:metadata");
    let host = parse(&host).unwrap_err();
    assert!(host.what.contains("an XLA profile without any GPU operation"), "{}", host.what);
    assert!(host.hint.contains("jax.profiler"), "{}", host.hint);
}

/// Our own trace of it says the same, and whose it was.
#[test]
fn our_trace_of_it_says_the_same() {
    let (input, a) = read(profile(WHOLE));
    let (bytes, _) = chrome::write(&input.run, &a, Vec::new(), &chrome::ChromeOptions::default()).unwrap();
    let (again, b) = read(bytes);
    assert_eq!(again.format, Format::Own(Recorder::Xla));
    let said = |input: &Input, a: &Analysis| {
        let v = &a.verdict;
        let steps = a.steps.steps.len();
        format!("{} {} {:?} {steps} {}", v.code, v.text(), v.site, input.run.slowed_host)
    };
    assert_eq!(said(&again, &b), said(&input, &a));
}

/// What it is does not depend on the blocks it is read in, nor on being packed.
#[test]
fn blocks_and_compression_change_nothing() {
    let text = profile(WHOLE);
    let whole = formats::kineto::read_mapped(text.as_bytes(), &Default::default()).unwrap();
    for size in [200, 5_000] {
        let small = formats::kineto::read_in_blocks(text.as_bytes(), size, &Default::default()).unwrap();
        let facts = |k: &formats::kineto::Kineto| {
            let marks: Vec<_> = k.run.threads.iter().map(|t| (t.marks.clone(), t.calls.len())).collect();
            let ops: Vec<_> =
                k.run.devices[0].streams[0].ops.iter().map(|o| (o.start, o.end, o.call)).collect();
            format!("{:?} {marks:?} {ops:?}", (k.xla, k.events, k.run.events))
        };
        assert_eq!(facts(&small), facts(&whole), "{size}");
    }
}

/// A profile that is cut, or whose names are odd, costs what it lacks.
#[test]
fn odd_profiles_harm_nothing() {
    let whole = profile(WHOLE);
    for cut in (0..whole.len()).step_by(997) {
        let _ = parse(&whole.as_bytes()[..cut]).map(|i| verdict::analyze(&i.run));
    }
    for (from, to) in [
        ("Stream #13(", "Stream #99999999999999("),
        ("/device:GPU:0", "/device:GPU:4294967295"),
        ("grid:24,2,1", "grid:4294967295,4294967295,"),
        ("size:64", "size:-1"),
        ("\"correlation_id\":\"41\"", "\"correlation_id\":\"x\""),
        ("\"dur\":5", "\"dur\":-5"),
        ("$train.py:12 step", "$"),
        ("XLA Modules", "Stream #x"),
    ] {
        let _ = parse(whole.replace(from, to)).map(|i| verdict::analyze(&i.run));
    }
}
