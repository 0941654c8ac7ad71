// SPDX-License-Identifier: Apache-2.0
//! Writes the seeds anew: `cargo run --bin seeds` in this folder. Run it when the recording's layout changes.

use std::path::Path;

use trace::build::Builder;
use trace::call::{pack, CALLS};
use trace::event::{Event, Kind};

/// A training loop: `steps` steps of `kernels` kernels, each launched by thread 100, then a synchronize.
fn training(steps: u64, kernels: u64, marks: bool) -> Vec<u8> {
    let mut b = Builder::new();
    b.device(0, "GPU", 132);
    b.attribute("torch", "2.9");
    let names = [b.kernel("gemm_qkv", 256, 64), b.kernel("ncclDevKernel_AllReduce", 512, 96)];
    b.on_recorder(Event::clock_pair(1_000, 1_700_000_000_000_000_000));
    let mut correlation = 0;
    let mut now = 10_000;
    for step in 0..steps {
        if marks {
            b.on_thread(100, Event { a: step as u32, ..Event::new(Kind::Step, now, now + 1) });
        }
        let mut call = |b: &mut Builder, name: &str, start: u64, end: u64| {
            let Some(c) = CALLS.iter().find(|c| c.name == name) else { return 0 };
            correlation += 1;
            let event = Event::new(Kind::Call, start, end);
            b.on_thread(100, Event { correlation, a: pack(c.domain, c.id), x: c.class as u8, ..event });
            correlation
        };
        for k in 0..kernels {
            let correlation = call(&mut b, "cudaLaunchKernel", now, now + 3_000);
            let op = Event::new(Kind::Kernel, now + 5_000, now + 8_500);
            b.on_stream(0, 1, 7, Event { correlation, a: names[(k % 2) as usize], b: 264, ..op });
            now += 4_000;
        }
        let correlation = call(&mut b, "cudaMemcpyAsync", now, now + 2_000);
        b.on_stream(0, 1, 7, Event { correlation, a: 4096, ..Event::new(Kind::Memcpy, now + 5_000, now + 9_000) });
        call(&mut b, "cudaStreamSynchronize", now + 2_000, now + 10_000);
        now += 50_000;
    }
    b.on_recorder(Event { a: 1, b: 3, ..Event::new(Kind::LossMark, now, now) });
    b.finish()
}

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let seeds = [
        ("empty", Builder::new().finish()),
        ("one-step", training(1, 3, false)),
        ("marked", training(6, 4, true)),
        ("unmarked", training(12, 6, false)),
        ("cut", training(6, 4, true)[..40_000].to_vec()),
    ];
    for target in ["reader", "analysis"] {
        std::fs::create_dir_all(here.join(target))?;
        for (name, recording) in &seeds {
            let input = sparse::compact(recording);
            assert_eq!(&sparse::expand(&input), recording);
            std::fs::write(here.join(target).join(name), input)?;
        }
    }
    Ok(())
}
