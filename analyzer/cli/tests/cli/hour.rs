// SPDX-License-Identifier: Apache-2.0
//! A recording of an hour whose process runs (this test), as far as it is said to be complete:
//! windows of recording, first of slow steps that idle little, then of fast ones that idle much.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::event::Unobserved;
use trace::header::{state, HEADER_BYTES};
use trace::{Event, Header, Kind, Total};

use crate::beating::now;
use crate::metrics::UUID;
use crate::place::{code, err, out, Place};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// From window to window, seconds.
const EVERY: u64 = 30;
const SECONDS: u64 = 3600;

/// How it goes from then on.
struct Phase {
    /// A window is so long, seconds.
    window: u64,
    /// A step, and how much of it a kernel runs, ns.
    step: u64,
    busy: u64,
}

fn phase(second: u64) -> Phase {
    match second < SECONDS / 2 {
        true => Phase { window: 3, step: 40 * MS, busy: 30 * MS },
        false => Phase { window: 4, step: 25 * MS, busy: 10 * MS },
    }
}

/// What the recording says of itself in the end.
pub(crate) struct Figures {
    pub(crate) idle: f64,
    pub(crate) sync: f64,
    pub(crate) observed_s: f64,
    pub(crate) steps: f64,
    pub(crate) step_s: f64,
}

pub(crate) struct Hour {
    path: PathBuf,
    file: File,
    header: Header,
    begin: u64,
}

impl Hour {
    /// In the private folder of a place; nothing of it is complete yet.
    pub(crate) fn new(place: &Place) -> Hour {
        let path = place.private().join("gapprobe-hour-1-1.gpr");
        let begin = now();
        let bytes = recording(begin);
        let header = Header::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
        fs::write(&path, &bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let mut hour = Hour { path, file, header, begin };
        hour.complete_to(0);
        hour
    }

    /// So many seconds have gone by.
    pub(crate) fn complete_to(&mut self, second: u64) {
        let window = second / EVERY * EVERY;
        let recorded = second.min(window + phase(window).window);
        let to = self.begin + recorded * S;
        let h = &mut self.header;
        (h.gpu_complete_to, h.host_complete_to, h.last_write) = (to, to, now());
        // counted without records
        let first = second.min(SECONDS / 2) * S / phase(0).step;
        let then = second.saturating_sub(SECONDS / 2) * S / phase(SECONDS).step;
        h.totals[Total::ClockSteps as usize] = first + then;
        h.totals[Total::Windows as usize] = window / EVERY + 1;
        self.file.write_all_at(&self.header.encode(), 0).unwrap();
    }

    /// By `analyze`, once its process has ended.
    pub(crate) fn own_figures(&self, place: &Place) -> Figures {
        let mut bytes = fs::read(&self.path).unwrap();
        let mut header = self.header.clone();
        (header.state, header.last_write) = (state::CLOSED, header.gpu_complete_to);
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        fs::write(place.out().join("hour.gpr"), bytes).unwrap();
        let output = place.run(&["analyze", "--json", "hour.gpr"]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let summary: Value = serde_json::from_str(&out(&output)).unwrap();
        let device = &summary["devices"][0];
        let ns = |value: &Value| value.as_f64().unwrap();
        let wall = ns(&device["steady_wall_ns"]);
        let busy = ["compute", "copy_only", "collective_only"].map(|b| ns(&device["buckets_ns"][b]));
        Figures {
            idle: 1.0 - busy.iter().sum::<f64>() / wall,
            sync: ns(&device["buckets_ns"]["sync"]) / wall,
            observed_s: ns(&summary["coverage"]["seen_ns"]) / 1e9,
            steps: ns(&summary["coverage"]["steps_run"]),
            step_s: ns(&summary["steps"]["mean_ns"]) / 1e9,
        }
    }
}

fn recording(begin: u64) -> Vec<u8> {
    let mut b = Builder::new();
    let own = spool::liveness::own();
    let h = &mut b.header;
    (h.state, h.pid, h.process_start) = (state::RECORDING, own.pid, own.start);
    (h.pid_namespace, h.boot_id) = (own.namespace, own.boot);
    (h.start_monotonic, h.first_use, h.start_realtime) = (begin, begin, 1_795_000_000 * S);
    (h.rank, h.world_size) = (1, 1);
    b.device(0, "SIM", 132);
    b.attribute(trace::define::JOB, "job-17");
    b.attribute(&trace::define::gpu_uuid(0), UUID);
    let kernel = b.kernel("_Z4gemmPfS_S_", 256, 64);
    let mut correlation = 0;
    for window in (0..SECONDS).step_by(EVERY as usize) {
        let Phase { window: length, step, busy } = phase(window);
        let (from, to) = (begin + window * S, begin + (window + length) * S);
        for at in (from..to).step_by(step as usize) {
            correlation += 1;
            let mut launch = Event::new(Kind::Call, at + 1_000, at + 5_000);
            (launch.a, launch.x, launch.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
            b.on_thread(100, launch);
            let mut op = Event::new(Kind::Kernel, at + 10_000, at + 10_000 + busy);
            (op.a, op.b, op.correlation) = (kernel, 1024, correlation);
            b.on_stream(0, 1, 7, op);
            let mut sync = Event::new(Kind::Call, at + 6_000, at + 15_000 + busy);
            (sync.a, sync.x) = (pack(RUNTIME, 131), Class::Sync as u8);
            b.on_thread(100, sync);
        }
        let mut between = Event::new(Kind::Unobserved, to, begin + (window + EVERY) * S);
        between.a = Unobserved::Window as u32;
        b.on_recorder(between);
    }
    b.finish()
}
