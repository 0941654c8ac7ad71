// SPDX-License-Identifier: Apache-2.0
//! Cuts a recording down to its newest STEPS steps (0: all of it), gzip-compressed: how fixtures
//! are made from real recordings.
//!
//! `cargo run --release -p gapprobe-cli --example trim -- IN.gpr OUT.gprec.gz STEPS` Events
//! are copied as they are; what began before the first kept step, and the calls that launched it,
//! go.

use std::collections::HashMap;
use std::io::Write;

use trace::build::Builder;
use trace::define::TrackInfo;
use trace::event::{Gauge, FROM_RECORD};
use trace::reader::Track;
use trace::{Kind, Recording};

fn is_limit(gauge: u32) -> bool {
    [Gauge::PowerLimitMw, Gauge::SmClockMaxMhz].iter().any(|&g| g as u32 == gauge)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, steps] = args.as_slice() else { panic!("IN.gpr OUT.gprec.gz STEPS") };
    let steps: usize = steps.parse().expect("a number of steps");
    let bytes = std::fs::read(from).expect("readable file");
    let run = verdict::load(bytes.as_slice()).expect("a recording");
    let found = verdict::analyze(&run).steps.steps;
    let begin = match found.len().checked_sub(steps) {
        Some(first) if steps > 0 => found[first].span.start,
        _ => 0,
    };
    // the calls of the first kept ops began earlier
    let ops = run.devices.iter().flat_map(|d| &d.streams).flat_map(|s| &s.ops).filter(|o| o.start >= begin);
    let called = ops.filter_map(|o| run.call(o.call)).map(|(_, c)| c.start).min().unwrap_or(0).min(begin);
    let mut recording = Recording::open(bytes.as_slice()).expect("a recording");
    let mut builder = Builder::new();
    builder.header = recording.header.clone();
    builder.header.segments = 0;
    if begin > 0 {
        let shift = called.saturating_sub(builder.header.start_monotonic);
        builder.header.start_monotonic += shift;
        builder.header.start_realtime += shift;
        builder.header.first_use = builder.header.first_use.max(called);
    }
    for d in &run.devices {
        builder.device(d.ordinal, run.definitions.string(d.info.name).unwrap_or(""), d.info.multiprocessors);
    }
    for (key, value) in recording.definitions.attributes() {
        builder.attribute(key, value);
    }
    for t in run.threads.iter().filter(|t| t.name != 0) {
        builder.name_thread(t.tid, run.definitions.string(t.name).unwrap_or(""));
    }
    let mut kernels: HashMap<u32, u32> = HashMap::new();
    let mut stacks: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let mut stack = |builder: &mut Builder, old: u32| {
        *stacks.entry(old).or_insert_with(|| {
            let text = |id| run.definitions.string(id).unwrap_or("");
            let frames: Vec<_> = run.definitions.stack(old).copied().collect();
            let frames: Vec<_> =
                frames.iter().map(|f| (f.language, text(f.function), text(f.file), f.line)).collect();
            builder.frames(&frames)
        })
    };
    recording.for_each_event(bytes.as_slice(), |track, e| {
        let mut e = *e;
        match track {
            // limits are read once
            Track::Recorder if e.kind == Kind::Gauge && e.end < called && is_limit(e.a) => {
                (e.start, e.end) = (called, called);
                builder.on_recorder(e);
            }
            Track::Recorder if matches!(e.kind, Kind::Process | Kind::Gauge) && e.end < called => {}
            Track::Recorder if e.kind == Kind::ChildSample => {
                if e.end >= called {
                    e.a = stack(&mut builder, e.a);
                    builder.on_recorder(e);
                }
            }
            Track::Recorder => builder.on_recorder(e),
            Track::Of(TrackInfo::Stream { device, context, stream }) if e.start >= begin => {
                if e.kind == Kind::Kernel {
                    let old = e.a;
                    e.a = *kernels.entry(old).or_insert_with(|| {
                        let info = run.definitions.kernel(old).copied().expect("a defined kernel");
                        let threads = info.block.iter().product();
                        builder.kernel(run.definitions.kernel_name(old), threads, info.registers)
                    });
                }
                builder.on_stream(device, context, stream, e);
            }
            Track::Of(TrackInfo::Thread { tid, .. }) if e.start >= called => {
                match e.kind {
                    Kind::Range => {
                        e.a = builder.string(run.definitions.string(e.a).unwrap_or(""));
                        e.b = run.definitions.string(e.b).map_or(0, |domain| builder.string(domain));
                    }
                    Kind::Call if e.flags & FROM_RECORD == 0 => e.c = stack(&mut builder, e.c),
                    Kind::Sample => e.a = stack(&mut builder, e.a),
                    _ => {}
                }
                builder.on_thread(tid, e);
            }
            Track::Of(_) => {}
        }
    });
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(&builder.finish()).expect("memory");
    std::fs::write(to, out.finish().expect("memory")).expect("writable file");
}
