// SPDX-License-Identifier: Apache-2.0
//! Purpose: the tables `gpu_lines`, `gpu_modules` and `gpu_ops` say what each kernel was for, by
//! hand; and the same once the recording has been written as a trace and read again.

use std::io::Read;

use cli::tables;
use cli::tables::{Format, NameStyle, Source};
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::define::NativeStack;
use trace::{Event, Kind};
use verdict::output::chrome;
use verdict::output::chrome::ChromeOptions;
use verdict::run::operators::Operator;
use verdict::run::Run;

const TORCH: &str = "/usr/lib/python3/dist-packages/torch";

/// Thread 5 calls a model, whose backward pass thread 9 makes: kernels of 10 us and so on up.
fn recording() -> Vec<u8> {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    b.device(0, "GPU", 132);
    let (module, linear) = (format!("{TORCH}/nn/modules/module.py"), format!("{TORCH}/nn/modules/linear.py"));
    let (main, forward) = (("main", "/job/train.py", 40), ("Net.forward", "/job/net.py", 12));
    let call = ("Module._call_impl", &*module, 1500);
    let up = b.stack(&[("Linear.forward", &linear, 114), call, forward, call, main]);
    b.in_module(up, "blocks.3.up", "Linear");
    let outer = b.stack(&[("Net.forward", "/job/net.py", 14), call, main]);
    b.in_module(outer, "", "Net");
    let not_known = b.stack(&[("Net.forward", "/job/net.py", 14), call, main]);
    let update =
        b.stack(&[("Adam.step", &format!("{TORCH}/optim/adam.py"), 9), ("main", "/job/train.py", 44)]);
    let own = b.stack(&[("Own.backward", "/job/own.py", 7)]);
    let kernel = b.kernel("_Z4gemmPf", 256, 64);
    let nodes = ["N5torch8autograd9generated14AddmmBackward0E", "N5torch8autograd14AccumulateGradE"];
    let [addmm, sums] = nodes.map(|name| b.string(name));
    for (number, stack) in [(20, up), (21, outer)] {
        let made = Event::new(Kind::ForwardNode, 900 + u64::from(number), 900 + u64::from(number));
        b.on_thread(5, Event { b: number, c: stack, correlation: 1, ..made });
    }
    let evaluated = [
        (300_000, addmm, 21, 1),
        (320_000, addmm, 20, 1),
        (340_000, sums, u32::MAX, 0),
        (360_000, addmm, 20, 2),
    ];
    for (at, kind, number, thread) in evaluated {
        let node = Event::new(Kind::BackwardNode, at, at + 15_000);
        b.on_thread(9, Event { a: kind, b: number, correlation: thread, ..node });
    }
    let launches = [
        (5, 100_000, up),
        (5, 110_000, outer),
        (5, 120_000, not_known),
        (5, 130_000, update),
        (9, 301_000, 0),
        (9, 321_000, 0),
        (9, 325_000, own), // the program was called in the node
        (9, 341_000, 0),   // a node that no forward has made
        (9, 361_000, 0),   // one of another thread's
        (9, 399_000, 0),   // in none
    ];
    for (n, (tid, at, stack)) in (1..).zip(launches) {
        let mut launch = Event::new(Kind::Call, at, at + 4_000);
        (launch.a, launch.x, launch.correlation, launch.c) =
            (pack(RUNTIME, 211), Class::Launch as u8, n, stack);
        b.on_thread(tid, launch);
        let start = 400_000 + u64::from(n) * 200_000;
        let mut op = Event::new(Kind::Kernel, start, start + u64::from(n) * 10_000);
        (op.a, op.b, op.correlation) = (kernel, 1, n);
        b.on_stream(0, 1, 7, op);
    }
    b.attribute("cwd", "/job");
    b.finish()
}

/// The tables: total and backward ns, how many, what.
fn said(source: &Source<'_>) -> String {
    let table = |name| {
        let mut out = Vec::new();
        let table = tables::find(name).unwrap().table(source);
        tables::write(&table, 0, Format::Csv, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows =
            text.lines().skip(1).map(|row| row.split_once(',').unwrap().1.trim_end_matches(',').to_owned());
        rows.collect::<Vec<_>>().join("\n")
    };
    format!("{}\n--\n{}\n--\n{}\n", table("gpu_lines"), table("gpu_modules"), table("gpu_ops"))
}

/// As if the machine code on the way had been recorded.
fn know_operators(run: &mut Run) {
    let lines = run.threads[0].calls.iter().map(|c| c.site);
    let of_modules: Vec<u32> = lines.take(3).collect();
    for stack in of_modules {
        run.operators.add(stack, "", "_Z4gemmPf", Some(Operator { name: "aten::linear", nodes: "" }));
    }
    run.operators.add(
        0,
        "N5torch8autograd9generated14AddmmBackward0E",
        "_Z4gemmPf",
        Some(Operator { name: "aten::mm", nodes: "" }),
    );
}

const EXPECTED: &str = "\
100000,50000,3,net.py:14 in Net.forward
100000,0,1,unattributed,thread 9
90000,90000,1,unattributed,AddmmBackward0
80000,80000,1,unattributed,AccumulateGrad
70000,60000,2,net.py:12 in Net.forward via Linear.forward
70000,70000,1,own.py:7 in Own.backward
40000,0,1,train.py:44 in main via Adam.step
--
110000,70000,2,outside of modules
100000,0,1,unattributed,,thread 9
90000,90000,1,unattributed,,AddmmBackward0
80000,80000,1,unattributed,,AccumulateGrad
70000,50000,2,(outermost),Net
70000,60000,2,blocks.3.up,Linear
30000,0,1,unattributed,,thread 5
--
200000,200000,3,aten::mm
100000,0,1,unattributed,thread 9
80000,80000,1,unattributed,AccumulateGrad
70000,70000,1,unattributed,AddmmBackward0
60000,0,3,aten::linear
40000,0,1,unattributed,thread 5
";

fn written(run: &Run) -> Vec<u8> {
    let a = verdict::analyze(run);
    chrome::write(run, &a, Vec::new(), &ChromeOptions::default()).unwrap().0
}

#[test]
fn each_kernel_is_of_its_line_and_module_forward_and_backward() {
    let bytes = recording();
    let mut run = verdict::load(bytes.as_slice()).unwrap();
    know_operators(&mut run);
    let text = said(&Source::new(&run, NameStyle::Short));
    assert_eq!(text, EXPECTED);
    let path = std::env::temp_dir().join(format!("gapprobe-gpu-work-{}.json.gz", std::process::id()));
    std::fs::write(&path, written(&run)).unwrap();
    let again = formats::read(&path, &Default::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(said(&Source::of(&again, NameStyle::Short)), EXPECTED, "through the trace");
}

/// The same kernels as stacks: the module below the frames, then the node, then the operator.
#[test]
fn folded_stacks_name_the_module_and_the_operator() {
    let bytes = recording();
    let mut run = verdict::load(bytes.as_slice()).unwrap();
    know_operators(&mut run);
    let mut out = Vec::new();
    cli::export::gpu_folded(&run, &verdict::analyze(&run), &mut out).unwrap();
    let (call, main) = ("Module._call_impl (module.py:1500)", "main (train.py:40)");
    let up = format!(
        "{main};{call};Net.forward (net.py:12);{call};Linear.forward (linear.py:114);blocks.3.up: Linear"
    );
    let outer = format!("{main};{call};Net.forward (net.py:14)");
    let expected = [
        format!("{outer};(outermost): Net;AddmmBackward0;aten::mm;gemm 50"),
        format!("{outer};(outermost): Net;aten::linear;gemm 20"),
        format!("{outer};aten::linear;gemm 30"),
        format!("{up};AddmmBackward0;aten::mm;gemm 60"),
        format!("{up};aten::linear;gemm 10"),
        "main (train.py:44);Adam.step (adam.py:9);gemm 40".to_owned(),
        "Own.backward (own.py:7);AddmmBackward0;gemm 70".to_owned(),
        "AccumulateGrad;gemm 80".to_owned(),
        "AddmmBackward0;aten::mm;gemm 90".to_owned(),
        "thread 9;gemm 100".to_owned(),
    ];
    let mut expected = expected.map(|stack| format!("GPU 0;{stack}"));
    expected.sort();
    assert_eq!(String::from_utf8_lossy(&out).lines().collect::<Vec<_>>(), expected);
}

/// `top --lines` says the same of a process that runs.
#[test]
fn the_live_view_attributes_as_the_table_does() {
    let bytes = recording();
    let header = verdict::load(bytes.as_slice()).unwrap().header;
    let mut run = cli::live::load_tail(bytes.as_slice(), &header, u64::MAX, u64::MAX).unwrap();
    let lines = cli::live::lines::lines(&mut run).unwrap();
    let said: Vec<(u64, Option<&str>, Option<&str>)> =
        lines.iter().map(|l| (l.gpu_ns, l.line.as_deref(), l.module.as_deref())).collect();
    let expected = [
        (270_000, None, None),
        (100_000, Some("net.py:14 in Net.forward"), Some("(outermost)")),
        (70_000, Some("net.py:12 in Net.forward via Linear.forward"), Some("blocks.3.up")),
        (70_000, Some("own.py:7 in Own.backward"), None),
        (40_000, Some("train.py:44 in main via Adam.step"), None),
    ];
    assert_eq!(said, expected);
    assert!((lines[0].share - 270.0 / 550.0).abs() < 1e-9);
}

/// A copy that machine code asked for has that caller in both.
#[test]
fn the_live_view_names_callers_in_machine_code() {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    b.device(0, "GPU", 132);
    let caller = b.caller(("/nowhere/libloader.so", "", 0x7000), 64);
    let mut call = Event::new(Kind::Call, 1_000, 2_000);
    (call.a, call.x, call.correlation, call.c) = (pack(RUNTIME, 41), Class::Copy as u8, 1, caller);
    b.on_thread(5, call);
    b.on_stream(0, 1, 7, Event { correlation: 1, ..Event::new(Kind::Memcpy, 3_000, 4_000) });
    let bytes = b.finish();
    let mut whole = verdict::load(bytes.as_slice()).unwrap();
    let mut run = cli::live::load_tail(bytes.as_slice(), &whole.header, u64::MAX, u64::MAX).unwrap();
    let lines = cli::live::lines::lines(&mut run).unwrap();
    assert_eq!(lines.iter().map(|l| l.line.as_deref()).collect::<Vec<_>>(), [Some("0x40 in libloader.so")]);
    verdict::symbols::name_with_lines(&mut whole, None);
    let text = said(&Source::new(&whole, NameStyle::Short));
    assert!(text.starts_with("1000,0,1,0x40 in libloader.so\n"), "{text}");
}

/// Forty steps of 1 ms: kernels of 600 us for one line, half of them in its backward pass, and of
/// 350 us for another.
#[test]
fn what_is_gpu_bound_says_which_line_its_work_is_for() {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    b.device(0, "GPU", 132);
    let attention = b.stack(&[("Block.forward", "/job/net.py", 40), ("main", "/job/train.py", 9)]);
    let head = b.stack(&[("Net.forward", "/job/net.py", 60), ("main", "/job/train.py", 9)]);
    let (kernel, addmm) = (b.kernel("gemm", 256, 64), b.string("14AddmmBackward0"));
    b.attribute("cwd", "/job");
    let mut correlation = 0;
    for step in 0..40u32 {
        let at = 10_000_000 + u64::from(step) * 1_000_000;
        b.on_thread(5, Event { a: step, ..Event::new(Kind::Step, at, at + 1_000_000) });
        let made = Event::new(Kind::ForwardNode, at + 500, at + 500);
        b.on_thread(5, Event { b: step, c: attention, correlation: 1, ..made });
        let node = Event::new(Kind::BackwardNode, at + 30_000, at + 40_000);
        b.on_thread(9, Event { a: addmm, b: step, correlation: 1, ..node });
        let launches = [(5, 1_000, attention, 300_000), (5, 10_000, head, 350_000), (9, 31_000, 0, 300_000)];
        let mut end = at + 20_000;
        for (tid, after, stack, ns) in launches {
            correlation += 1;
            let mut launch = Event::new(Kind::Call, at + after, at + after + 4_000);
            (launch.a, launch.x, launch.c) = (pack(RUNTIME, 211), Class::Launch as u8, stack);
            b.on_thread(tid, Event { correlation, ..launch });
            let start = end.max(at + after + 5_000) + 1_000;
            end = start + ns;
            b.on_stream(
                0,
                1,
                7,
                Event { a: kernel, b: 132, correlation, ..Event::new(Kind::Kernel, start, end) },
            );
        }
    }
    let run = verdict::load(b.finish().as_slice()).unwrap();
    let a = verdict::analyze(&run);
    assert_eq!(a.verdict.cause, "GPU-BOUND");
    let said = "63% of the GPU's work is for net.py:40 in Block.forward: 32% forward, 32% backward";
    assert!(a.verdict.text().contains(said), "{}", a.verdict.text());
}

/// Python that Inductor wrote calls a kernel of its own making; the machine code on the way is no
/// operator's.
#[test]
fn a_kernel_of_torch_compile_is_of_what_inductor_says() {
    let code = std::env::temp_dir().join(format!("gapprobe-inductor-{}.py", std::process::id()));
    let text = "def call(args):\n    # Topologically Sorted Source Nodes: [h, out], Original ATen: [aten.add, aten.relu]\n    triton_poi_fused_0.run(buf0)\n";
    std::fs::write(&code, text).unwrap();
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    b.device(0, "GPU", 132);
    let (file, name) = (code.to_str().unwrap(), "triton_poi_fused_0");
    let outer =
        b.stack(&[("CachingAutotuner.run", &format!("{TORCH}/_inductor/runtime.py"), 9), ("call", file, 3)]);
    let (kernel, string) = (b.kernel(name, 256, 64), b.string(name));
    let native = b.caller(("/lib/launcher.so", "", 0x7000), 64);
    b.native(NativeStack { outer, node: 0, kernel: string, native });
    let mut launch = Event::new(Kind::Call, 1_000, 2_000);
    (launch.a, launch.x, launch.correlation, launch.c) = (pack(RUNTIME, 211), Class::Launch as u8, 1, outer);
    b.on_thread(5, launch);
    b.on_stream(0, 1, 7, Event { a: kernel, b: 1, correlation: 1, ..Event::new(Kind::Kernel, 3_000, 4_000) });
    let bytes = b.finish();
    let mut run = verdict::load(bytes.as_slice()).unwrap();
    verdict::symbols::name(&mut run, None);
    std::fs::remove_file(&code).unwrap();
    let op = &run.devices[0].streams[0].ops[0];
    let operator = run.operator(&run.origin(op).unwrap(), op);
    assert_eq!(operator, Some(Operator { name: "aten::add+aten::relu", nodes: "h, out" }));
    let mut trace = String::new();
    flate2::read::GzDecoder::new(written(&run).as_slice()).read_to_string(&mut trace).unwrap();
    assert!(trace.contains(r#""operator":"aten::add+aten::relu","source nodes":"h, out""#), "{trace}");
}
