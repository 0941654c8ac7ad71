// SPDX-License-Identifier: Apache-2.0
//! Purpose: the kernels of a CUDA graph are of the lines whose launches were captured, not of the
//! one that launches the graph, also where the recording does not go back to the capture; of a
//! backward pass of the line of its forward; and the same once the recording has been written as a
//! trace and read again. Where the capture is not known, they are of the line that launches the
//! graph. To all else a kernel is the same in a graph and outside of it.

use cli::tables::{self, Format, NameStyle, Source};
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::define::CapturedLaunch;
use trace::event::GRAPH_NODE;
use trace::{Event, Kind};
use verdict::output::chrome::{self, ChromeOptions};

/// Correlation ids of the launches of the graph.
const PLAYED: [u32; 2] = [20, 21];

fn recording() -> Vec<u8> {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    b.device(0, "GPU", 132);
    let line = |b: &mut Builder, line| b.stack(&[("step", "/job/net.py", line)]);
    let [up, down, play] = [12, 13, 40].map(|n| line(&mut b, n));
    for (correlation, at) in PLAYED.into_iter().zip([300_000, 400_000]) {
        let call = Event::new(Kind::Call, at, at + 4_000);
        let (a, x) = (pack(RUNTIME, 311), Class::GraphLaunch as u8);
        b.on_thread(6, Event { a, x, correlation, c: play, ..call });
    }
    let node = b.string("N5torch8autograd9generated14AddmmBackward0E");
    let of = |stack, node, made| CapturedLaunch { stack, node, evaluated: 0, made };
    // a second capture of the line, and a backward pass on a thread without Python
    let [first, second, again, backward] =
        [of(up, 0, 0), of(down, 0, 0), of(down, 0, 0), of(0, node, down)].map(|launch| b.captured(launch));
    let mut run = |captured, correlation, at, graph| {
        let kernel = b.graph_kernel("_Z4gemmPf", 256, 64, captured);
        let ran = Event::new(Kind::Kernel, at, at + 10_000);
        let flags = if graph > 0 { GRAPH_NODE } else { 0 };
        b.on_stream(0, 1, 7, Event { a: kernel, b: 1, c: graph, correlation, flags, ..ran });
    };
    run(0, 9, 230_000, 0);
    for (correlation, at) in PLAYED.into_iter().zip([310_000, 410_000]) {
        for (n, captured) in (0..).zip([first, second, again, backward, 0, 55]) {
            run(captured, correlation, at + n * 11_000, 4);
        }
    }
    b.attribute("cwd", "/job");
    b.finish()
}

fn said(source: &Source<'_>, name: &str) -> String {
    let mut out = Vec::new();
    let table = tables::find(name).unwrap().table(source);
    tables::write(&table, 0, Format::Csv, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const EXPECTED: &str = "\
60000,20000,6,net.py:13 in step
40000,0,4,net.py:40 in step
20000,0,2,net.py:12 in step
10000,0,1,unattributed
";

#[test]
fn kernels_of_a_graph_are_of_the_captured_lines() {
    let run = verdict::load(recording().as_slice()).unwrap();
    let lines = |source: &Source<'_>| {
        let text = said(source, "gpu_lines");
        let rows = text.lines().skip(1).map(|row| row.split_once(',').unwrap().1.trim_end_matches(','));
        rows.map(|row| format!("{row}\n")).collect::<String>()
    };
    let source = Source::new(&run, NameStyle::Short);
    assert_eq!(lines(&source), EXPECTED);
    let kernels = said(&source, "cuda_gpu_kern_sum");
    assert_eq!(kernels.lines().count(), 2, "one kernel: {kernels}");
    let ids: std::collections::HashSet<u32> = run.devices[0].streams[0].ops.iter().map(|op| op.a).collect();
    assert_eq!(ids.len(), 1);

    let mut stacks = Vec::new();
    cli::export::gpu_folded(&run, &verdict::analyze(&run), &mut stacks).unwrap();
    let expected = "\
GPU 0;step (net.py:12);gemm 20
GPU 0;step (net.py:13);AddmmBackward0;gemm 20
GPU 0;step (net.py:13);gemm 40
GPU 0;step (net.py:40);gemm 40
GPU 0;unattributed;gemm 10
";
    assert_eq!(String::from_utf8(stacks).unwrap(), expected);

    let written = chrome::write(&run, &verdict::analyze(&run), Vec::new(), &ChromeOptions::default());
    let path = std::env::temp_dir().join(format!("gapprobe-graph-lines-{}.json.gz", std::process::id()));
    std::fs::write(&path, written.unwrap().0).unwrap();
    let again = formats::read(&path, &Default::default()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(lines(&Source::of(&again, NameStyle::Short)), EXPECTED, "through the trace");
}
