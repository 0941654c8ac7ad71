// SPDX-License-Identifier: Apache-2.0
//! Purpose: what the GPU's own counters say of the steady steps is in the line of a GPU-bound run,
//! in its summary, on the screen and in the trace; with the FLOPs of a step, MFU. Where the GPU has
//! no counters it is said why.

mod program;

use cli::phases::{Kind as Phase, Phases};
use cli::tables::{Cell, NameStyle, Source};
use cli::{live, overview, tables};
use program::Program;
use trace::define::STEP_TFLOP;
use trace::event::Gauge;
use trace::{Event, Kind};
use verdict::output::summary::{summary, Around};
use verdict::output::{chrome, sentence};
use verdict::{Analysis, Run};

const SECOND: u64 = 1_000_000_000;
/// Steps of 0.1 s.
const STEPS: u32 = 60;

/// A program that keeps its GPU at work.
fn computing() -> Program {
    let mut p = Program::new();
    for n in 0..STEPS {
        let begin = p.t;
        for _ in 0..5 {
            p.launch("my_kernel", 132, 20_000_000);
        }
        p.sync();
        let end = std::mem::replace(&mut p.t, begin);
        p.mark(n, end);
        p.t = end;
    }
    p
}

/// The same figures for each second: of the first one others, as half of it lies before the steps.
fn read(p: &mut Program, of: &[(Gauge, u64)]) {
    for second in 0..6 {
        for &(gauge, value) in of {
            let from = SECOND / 2 + SECOND * second;
            let mut e = Event::new(Kind::Gauge, from, from + SECOND);
            let value = if second == 0 { 10_000 } else { value };
            (e.a, e.b, e.c) = (gauge as u32, value as u32, (value >> 32) as u32);
            p.b.on_recorder(e);
        }
    }
}

fn line(run: &Run, a: &Analysis) -> String {
    sentence::line(run, a, None)
}

#[test]
fn a_gpu_bound_run_says_how_well_the_gpu_is_used() {
    let mut p = computing();
    read(
        &mut p,
        &[
            (Gauge::TensorActive, 1250),
            (Gauge::DramActive, 6100),
            (Gauge::SmActive, 9800),
            (Gauge::SmOccupancy, 4400),
            (Gauge::Fp32Active, 3100),
            (Gauge::Fp64Active, 40),
            (Gauge::NvlinkReceived, 12_340_000_000),
        ],
    );
    p.b.attribute(STEP_TFLOP, "25");
    let (run, a) = p.analyze();
    let counters = a.devices[0].counters.expect("counters");
    assert_eq!((counters.tensor, counters.memory, counters.fp16), (Some(0.125), Some(0.61), None));
    assert_eq!(counters.ns, 5 * SECOND, "of whole readings in the steady steps");
    let line = line(&run, &a);
    assert!(
        line.contains("GPU-bound: kernels run >99% of the time, tensor cores 12%, memory bandwidth 61%"),
        "{line}"
    );
    let text = a.verdict.text();
    assert!(text.contains("its tensor cores are 12% busy, 61% of its memory bandwidth is used"), "{text}");

    let said = overview::gauges(&run, &a);
    // 25 TFLOP in 100 ms, of 989.5 TFLOP/s
    assert_eq!(
        said,
        ["GPU counters: tensor cores 12%, memory bandwidth 61%, multiprocessors 98%, occupancy 44%, FP32 pipe 31%, \
          NVLink in 12.3 GB/s.", "MFU 25% of 989.5 TFLOP/s in 16 bits, by the step's FLOPs."]
    );
    let object = summary(&run, &a, &Around::default());
    let device = &object["devices"][0]["counters"];
    assert_eq!(device["tensor_active_share"], 0.125);
    assert_eq!(device["nvlink_received_bytes_per_s"], 12_340_000_000.0);
    assert!(device["nvlink_sent_bytes_per_s"].is_null());
    assert_eq!(object["verdict"]["figures"]["tensor_share"], 0.125);

    let figures = live::Figures::new(&run);
    assert_eq!(figures.devices[0].counters.and_then(|c| c.tensor), Some(0.125));

    let written = chrome::write(&run, &a, Vec::new(), &chrome::ChromeOptions::default()).unwrap().0;
    let mut trace = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&written[..]), &mut trace).unwrap();
    let points = trace.matches("\"name\":\"GPU 0 tensor cores %\"").count();
    assert_eq!(points, 7, "one a reading, and the end");
}

#[test]
fn where_there_are_no_counters_it_is_said_why() {
    let mut p = computing();
    p.b.attribute("nvml.gpm", "device 0: this GPU has none (Hopper and newer do)");
    p.b.attribute("nvml.gpm", "device 1: not permitted");
    let (run, a) = p.analyze();
    assert_eq!(a.devices[0].counters, None);
    assert!(line(&run, &a).contains("kernels run >99% of the time:"), "{}", line(&run, &a));
    assert_eq!(overview::gauges(&run, &a), ["GPU counters: this GPU has none (Hopper and newer do)."]);
    let (run, a) = computing().analyze();
    assert_eq!(overview::gauges(&run, &a), [""; 0], "nothing is known of them");
}

/// What a step does may be said afterwards, and then counts before what was said while recording.
#[test]
fn mfu_by_what_is_said_afterwards() {
    let mut p = computing();
    p.b.attribute(STEP_TFLOP, "25");
    let (mut run, a) = p.analyze();
    assert_eq!(overview::gauges(&run, &a), ["MFU 25% of 989.5 TFLOP/s in 16 bits, by the step's FLOPs."]);
    run.definitions.set_attribute(STEP_TFLOP, "495");
    let said =
        "MFU 501% of 989.5 TFLOP/s in 16 bits, more than there is: see how the step's FLOPs were counted.";
    assert_eq!(overview::gauges(&run, &a), [said]);
}

/// Another process may have been counted, too.
#[test]
fn another_process_on_the_device_is_said() {
    let mut p = computing();
    read(&mut p, &[(Gauge::SmActive, 9800), (Gauge::TensorActive, 1250), (Gauge::DramActive, 6100)]);
    let mut e = Event::new(Kind::Gauge, 2 * SECOND, 2 * SECOND);
    (e.a, e.b) = (Gauge::Processes as u32, 3);
    p.b.on_recorder(e);
    let (run, a) = p.analyze();
    assert_eq!(
        overview::gauges(&run, &a),
        ["GPU counters: tensor cores 12%, memory bandwidth 61%, multiprocessors 98%; 3 processes use the GPU and all count in these figures, so no verdict rests on them."]
    );
    assert!(!line(&run, &a).contains("tensor cores"), "{}", line(&run, &a));
}

/// A program that generates for two seconds a step, trains for three, and saves for a tenth.
#[test]
fn of_a_phase_that_lasts_it_is_said_how_well_the_gpu_is_used_in_it() {
    let mut p = Program::new();
    let mut spans = Vec::new();
    for n in 0..6 {
        let begin = p.t;
        for (name, kernels, duration) in
            [("rollout", 20, 110_000_000), ("forward", 30, 100_000_000), ("optimizer", 2, 50_000_000)]
        {
            let from = p.t;
            let kernels = if n == 0 { 2 * kernels } else { kernels };
            (0..kernels).for_each(|_| p.launch("my_kernel", 132, duration));
            p.sync();
            let mut e = Event::new(Kind::Range, from, p.t);
            e.a = p.b.string(name);
            p.b.on_thread(p.tid, e);
            spans.push((name, from, p.t));
        }
        let end = std::mem::replace(&mut p.t, begin);
        p.mark(n, end);
        p.t = end;
    }
    let half = SECOND / 2;
    for from in (0..p.t / half).map(|n| n * half) {
        let is_in =
            |s: &&(&str, u64, u64)| s.2.min(from + half).saturating_sub(s.1.max(from)) * 10 >= half * 9;
        let tensor = match spans.iter().find(is_in).map_or("", |s| s.0) {
            "rollout" => 800,
            "forward" if from < spans[2].2 => 500, // warming up: no step that counts
            "forward" => 5500,
            _ => 3000,
        };
        for (gauge, value) in [(Gauge::SmActive, 9800), (Gauge::TensorActive, tensor)] {
            let mut e = Event::new(Kind::Gauge, from, from + half);
            (e.a, e.b) = (gauge as u32, value);
            p.b.on_recorder(e);
        }
    }
    let (run, a) = p.analyze();
    let phases = Phases::of(&run, &a).expect("phases");
    let tensor = |kind| phases.get(kind).expect("a phase").counters.and_then(|c| c.tensor);
    assert_eq!((tensor(Phase::Forward), tensor(Phase::Optimizer)), (Some(0.55), None));
    let other = phases.other.counters.and_then(|c| c.tensor);
    assert_eq!(other, Some(0.08), "a rollout is no phase of a training step");
    let source = Source::new(&run, NameStyle::default());
    let table = tables::find("phases").expect("the table").table(&source);
    let column = |key| table.columns.iter().position(|c| c.key == key).expect("a column");
    let of = |name: &str| {
        let row = table.rows.iter().find(|r| r[column("phase")] == Cell::from(name)).expect("a row");
        match row[column("tensor_active_pct")] {
            Cell::Real(percent) => Some(percent.round()),
            _ => None,
        }
    };
    assert_eq!(["rollout", "forward", "optimizer"].map(of), [Some(8.0), Some(55.0), None]);
}
