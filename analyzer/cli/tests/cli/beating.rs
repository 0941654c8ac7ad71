// SPDX-License-Identifier: Apache-2.0
//! A recording whose process runs (this test): its events are written ahead, and its header says,
//! every 20 ms, that they are complete up to now. What lies behind that is not looked at, as in a
//! recording that grows.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::header::{state, HEADER_BYTES, HOLD_AT};
use trace::{Event, Header, Kind};

use crate::place::Place;

/// A step takes so long, ns: 4 ms of a kernel, then 1 ms of the host.
pub(crate) const STEP: u64 = 5_000_000;
/// Written before now, and ahead, steps.
const STEPS: (u64, u64) = (1000, 3000);

/// CLOCK_MONOTONIC, ns.
#[expect(unsafe_code, reason = "the clock of recordings is libc's")]
pub(crate) fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out-pointer and a clock that always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// It beats until this is dropped.
pub(crate) struct Beating {
    pub(crate) path: PathBuf,
    off: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let _ = fs::remove_file(&self.path);
    }
}

impl Beating {
    /// In the private folder of a place.
    pub(crate) fn new(place: &Place, shape: impl FnOnce(&mut Builder)) -> Beating {
        Beating::of(place, None, with_job(shape))
    }

    /// Nothing has been recorded for so long, ns, though the process goes on.
    pub(crate) fn off_for(place: &Place, ns: u64, shape: impl FnOnce(&mut Builder)) -> Beating {
        Beating::of(place, Some(ns), with_job(shape))
    }

    /// Of no job of a batch system.
    pub(crate) fn without_job(place: &Place, shape: impl FnOnce(&mut Builder)) -> Beating {
        Beating::of(place, None, shape)
    }

    fn of(place: &Place, off_for: Option<u64>, shape: impl FnOnce(&mut Builder)) -> Beating {
        let path = place.private().join("gapprobe-beating-1-1.gpr");
        let ended = now() - off_for.unwrap_or(0);
        let bytes = recording(ended, shape);
        let mut header = Header::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
        fs::write(&path, &bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        (header.gpu_complete_to, header.host_complete_to) = (ended, ended);
        let (stop, off) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(off_for.is_some())));
        let (until, is_off) = (stop.clone(), off.clone());
        let mut beat = move || {
            header.last_write = now();
            if !is_off.load(Ordering::Relaxed) {
                (header.gpu_complete_to, header.host_complete_to) = (header.last_write, header.last_write);
            }
            file.write_all_at(&header.encode()[..HOLD_AT], 0).unwrap();
        };
        beat();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                beat();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Beating { path, off, stop, thread: Some(thread) }
    }

    /// The program switches recording off.
    pub(crate) fn switch_off(&self) {
        self.off.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn with_job(shape: impl FnOnce(&mut Builder)) -> impl FnOnce(&mut Builder) {
    |b| {
        b.attribute(trace::define::JOB, "job-17");
        shape(b);
    }
}

/// Of steps before `ended` and after it.
fn recording(ended: u64, shape: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut b = Builder::new();
    let own = spool::liveness::own();
    let begin = ended - STEPS.0 * STEP;
    let h = &mut b.header;
    (h.state, h.pid, h.process_start) = (state::RECORDING, own.pid, own.start);
    (h.pid_namespace, h.boot_id) = (own.namespace, own.boot);
    (h.start_monotonic, h.first_use) = (begin, begin);
    (h.start_realtime, h.launch_cost_ns) = (1_795_000_000_000_000_000, 1000);
    (h.rank, h.world_size) = (4, 8);
    (h.host, h.command) = ("testhost".into(), "python train.py".into());
    b.device(0, "SIM", 132);
    let kernel = b.kernel("_Z4gemmPfS_S_", 256, 64);
    for step in 0..STEPS.0 + STEPS.1 {
        let at = begin + step * STEP;
        let mut mark = Event::new(Kind::Step, at, at);
        mark.a = step as u32;
        b.on_thread(100, mark);
        let mut launch = Event::new(Kind::Call, at + 1_000, at + 5_000);
        (launch.a, launch.x, launch.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, step as u32 + 1);
        b.on_thread(100, launch);
        let mut op = Event::new(Kind::Kernel, at + 10_000, at + 4_010_000);
        (op.a, op.b, op.correlation) = (kernel, 1024, step as u32 + 1);
        b.on_stream(0, 1, 7, op);
        let mut sync = Event::new(Kind::Call, at + 6_000, at + 4_015_000);
        (sync.a, sync.x) = (pack(RUNTIME, 131), Class::Sync as u8);
        b.on_thread(100, sync);
    }
    shape(&mut b);
    b.finish()
}
