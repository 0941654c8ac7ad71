// SPDX-License-Identifier: Apache-2.0
//! Time and memory of load and analysis for a run of KERNELS kernels (default 1,000,000), steps of
//! 723.
//!
//! `cargo run --release -p gapprobe-cli --example million -- [KERNELS]`

use std::time::Instant;

use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};

/// Largest resident size so far, MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() {
    let kernels: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let path = std::env::temp_dir().join(format!("gapprobe-million-{}.gprec", std::process::id()));
    {
        let mut b = Builder::new();
        b.device(0, "SIM", 132);
        let ids: Vec<u32> = (0..60).map(|i| b.kernel(&format!("k{}_", "x".repeat(i)), 256, 32)).collect();
        let adam = b.kernel("multi_tensor_apply_kernel", 256, 32);
        let (mut t, mut end) = (1_000_000_000u64, 0u64);
        for n in 0..kernels {
            let place = n % 723;
            let mut c = Event::new(Kind::Call, t, t + 4_000);
            (c.correlation, c.a, c.x) = (n as u32 + 1, pack(RUNTIME, 211), Class::Launch as u8);
            b.on_thread(if place > 300 { 101 } else { 100 }, c);
            let start = (t + 8_000).max(end + 1_000);
            let length = 3_000 + (n * 7919) % 9_000;
            let mut e = Event::new(Kind::Kernel, start, start + length);
            e.correlation = c.correlation;
            e.a = match place {
                0 => ids[0],
                1 => ids[1],
                p if p > 715 => adam,
                p => ids[2 + (p % 55) as usize],
            };
            e.b = 264;
            b.on_stream(0, 1, 7, e);
            end = start + length;
            t += 7_000 + (n * 104_729) % 4_000 + if place == 0 { 200_000 } else { 0 };
        }
        std::fs::write(&path, b.finish()).expect("room in the temporary directory");
    }
    // a process of its own, so that building does not count
    if std::env::var_os("MILLION_CHILD").is_none() {
        let me = std::env::current_exe().expect("own path");
        let status =
            std::process::Command::new(me).args(["0"]).env("MILLION_CHILD", &path).status().expect("a child");
        std::fs::remove_file(&path).ok();
        assert!(status.success());
        return;
    }
    std::fs::remove_file(&path).ok();
    let path = std::env::var_os("MILLION_CHILD").expect("set");
    let file = File(std::fs::File::open(path).expect("the recording"));
    let begin = Instant::now();
    let run = verdict::load(&file).expect("a recording");
    let (loaded, at_load) = (begin.elapsed(), peak());
    let a = verdict::analyze(&run);
    println!("{}", verdict::output::sentence::line(&run, &a, None));
    println!(
        "{} events: load {:.0?} ({at_load} MB peak), analyze {:.0?} ({} MB peak), {} steps",
        run.events,
        loaded,
        begin.elapsed() - loaded,
        peak(),
        a.steps.steps.len()
    );
}

struct File(std::fs::File);

impl trace::Source for File {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |m| m.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> bool {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, out, offset).is_ok()
    }
}
