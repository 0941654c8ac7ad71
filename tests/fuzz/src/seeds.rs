// SPDX-License-Identifier: Apache-2.0
//! Writes the seeds anew: `cargo run --bin seeds` in this folder. Run it when the recording's
//! layout changes. Not made here, but by hand: those of `kineto` and `file`.
//!
//! `cargo run --bin seeds -- NAME.gpr ...` makes seeds of recordings too (`loader`, `gc`: two of
//! `tests/gpu/recordings`, cut down to their last two steps by `analyzer/cli/examples/trim.rs`).

#[path = "../../../analyzer/cli/tests/nsys/fixture.rs"]
#[allow(dead_code, reason = "the writer of it is used here")]
mod fixture;

use std::path::Path;

use fixture::{export, Schema};
use trace::build::Builder;
use trace::call::{pack, CALLS};
use trace::define::{Language, NativeStack};
use trace::event::{sample, Event, Gauge, Kind, MARK, OPEN_ENDED, PAYLOAD, PAYLOAD_REAL, START_END};

/// A training loop: `steps` steps of `kernels` kernels, each launched by thread 100, then a
/// synchronize.
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
        b.on_stream(
            0,
            1,
            7,
            Event { correlation, a: 4096, ..Event::new(Kind::Memcpy, now + 5_000, now + 9_000) },
        );
        call(&mut b, "cudaStreamSynchronize", now + 2_000, now + 10_000);
        now += 50_000;
    }
    b.on_recorder(Event { a: 1, b: 3, ..Event::new(Kind::LossMark, now, now) });
    b.finish()
}

/// What format 1.4 has beside operations and calls: stacks of Python and of C, callers, samples,
/// ranges with numbers, nodes of backward passes, gauges, children, time that nobody observed, and
/// the shared track. Four steps of two kernels.
fn standing() -> Vec<u8> {
    const STEP: u64 = 40_000_000;
    let mut b = Builder::new();
    b.device(0, "GPU", 132);
    let kernel = b.kernel("gemm", 256, 64);
    let python = b.stack(&[
        ("__next__", "/site-packages/torch/utils/data/dataloader.py", 701),
        ("train", "/home/u/train.py", 33),
    ]);
    let native = b.frames(&[(Language::Native, "gemm_call", "libx.so", 7), (Language::Python, "f", "m.py", 2)]);
    let caller = b.caller(("/bin/true", "", 0x5555_0000_0000), 0x1234);
    let (range, domain) = (b.string("forward"), b.string("NCCL"));
    b.in_module(python, "blocks.0", "Block");
    let of_node = b.string("N5torch8autograd9generated14AddmmBackward0E");
    let gemm = b.string("gemm_qkv");
    for (outer, node) in [(python, 0), (0, of_node)] {
        b.native(NativeStack { outer, node, kernel: gemm, native: caller });
    }
    let call = |b: &mut Builder, tid, name: &str, span: (u64, u64), correlation, c| {
        let Some(known) = CALLS.iter().find(|c| c.name == name) else { return };
        let (a, x) = (pack(known.domain, known.id), known.class as u8);
        b.on_thread(tid, Event { correlation, a, x, c, ..Event::new(Kind::Call, span.0, span.1) });
    };
    for step in 0..4u32 {
        let t = 1_000_000 + u64::from(step) * STEP;
        for (n, start) in [(1, t), (2, t + 30_000_000)] {
            let correlation = step * 2 + n;
            call(&mut b, 100, "cudaLaunchKernel", (start, start + 5_000), correlation, 0);
            let op = Event::new(Kind::Kernel, start + 9_000, start + 2_000_000);
            b.on_stream(0, 1, 7, Event { correlation, a: kernel, b: 264, ..op });
        }
        call(&mut b, 100, "cudaStreamSynchronize", (t + 6_000, t + 2_001_000), 0, python);
        call(&mut b, 101, "cudaStreamSynchronize", (t + 6_000, t + 2_001_000), 0, caller);
        let mark = Event::new(Kind::Range, t, t + 2_000_000);
        b.on_thread(100, Event { a: range, ..mark });
        let flags = [PAYLOAD | START_END, PAYLOAD | PAYLOAD_REAL | MARK, OPEN_ENDED, MARK][step as usize];
        let number = Event { correlation: 4096, c: 1, flags, a: range, b: domain, x: 1, ..mark };
        b.on_thread(101, number);
        for tick in 1..3 {
            let at = t + tick * 10_000_000;
            let (a, x) = [(python, 0), (native, sample::HOLDS_GIL | sample::COLLECTING)][tick as usize % 2];
            let (b_, c) = if tick == 1 { (1, 3) } else { (0, 900 | 50 << 16) };
            b.on_thread(100, Event { a, b: b_, c, x, ..Event::new(Kind::Sample, at - 10_000_000, at) });
        }
        let gauge = Gauge::ALL[step as usize * 2] as u32;
        b.on_recorder(Event { a: gauge, b: 97, c: 1, ..Event::new(Kind::Gauge, t, t + STEP) });
        b.on_recorder(Event { a: 4242, b: 950 | 20 << 16, c: 512, ..Event::new(Kind::Process, t, t + STEP) });
        let node = Event { b: step, c: python, correlation: 1, ..Event::new(Kind::ForwardNode, t, t) };
        b.on_thread(100, node);
        let node = Event::new(Kind::BackwardNode, t + 29_000_000, t + 31_000_000);
        b.on_thread(100, Event { a: of_node, b: step, correlation: 1, ..node });
        b.on_recorder(Event { a: python, b: 4242, c: 950, x: sample::OUTER, ..Event::new(Kind::ChildSample, t, t + STEP) });
    }
    b.on_recorder(Event { a: 1, ..Event::new(Kind::Unobserved, 3 * STEP, 3 * STEP + 900_000) });
    let of = Event::new(Kind::TrackOf, 2 * STEP, 2 * STEP);
    b.on_recorder(Event { x: 1, a: 102, ..of });
    b.on_recorder(Event { a: range, ..Event::new(Kind::Range, 2 * STEP, 2 * STEP + 7_000) });
    b.finish()
}

/// A seed's name and its recording.
type Seed = (String, Vec<u8>);

/// Those that the command names.
fn given() -> std::io::Result<Vec<Seed>> {
    let read = |path: std::ffi::OsString| {
        let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, std::fs::read(path)?))
    };
    std::env::args_os().skip(1).map(read).collect()
}

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let mut seeds: Vec<Seed> = [
        ("empty", Builder::new().finish()),
        ("one-step", training(1, 3, false)),
        ("marked", training(6, 4, true)),
        ("unmarked", training(12, 6, false)),
        ("cut", training(6, 4, true)[..40_000].to_vec()),
        ("standing", standing()),
    ]
    .map(|(name, recording)| (name.to_owned(), recording))
    .into();
    seeds.extend(given()?);
    for target in ["reader", "analysis"] {
        std::fs::create_dir_all(here.join(target))?;
        for (name, recording) in &seeds {
            let input = sparse::compact(recording);
            assert_eq!(&sparse::expand(&input), recording);
            std::fs::write(here.join(target).join(name), input)?;
        }
    }
    nsys(&here.join("nsys"))?;
    rows(&here.join("nsys_rows"))?;
    summary(&here.join("summary"), &training(6, 4, true))
}

/// Rows in no order, as nsys 2025.6 and later export them, and some that name no process.
const SHUFFLE: &str = "
    CREATE TEMP TABLE rows AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY rowid * 7919 % 101;
    DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL;
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM rows;
    UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = 0 WHERE rowid % 5 = 0;
    DROP TABLE rows";

/// Exports in pages as small as SQLite allows: a byte that the fuzzer changes is one that somebody
/// reads.
fn nsys(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, schema, steps) in [
        ("old", Schema::Old, 2),
        ("new", Schema::New, 2),
        ("many", Schema::New, 8),
        ("shuffled", Schema::New, 3),
    ] {
        let workload = fixture::training(steps, &[(100, &[0, 1]), (200, &[0])], 3);
        let file = export(&workload, schema, |c| {
            if name == "shuffled" {
                c.execute_batch(SHUFFLE).expect("another order");
            }
            c.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM")
                .expect("small pages");
        });
        formats::read(&file.0, &Default::default()).expect("an export");
        std::fs::write(folder.join(name), sparse::compact(&std::fs::read(&file.0)?))?;
    }
    let whole = std::fs::read(folder.join("old"))?;
    std::fs::write(folder.join("cut"), whole.get(..whole.len() / 2).unwrap_or(&whole))
}

/// All tables and rows of each; the GPU's work alone. Zeros stand for what nsys would write.
fn rows(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let row = |table: u8, seed: usize| -> Vec<u8> {
        let values = (0..14).flat_map(|n| [0, (seed * 37 + n * 11) as u8]);
        std::iter::once(table).chain(values).collect()
    };
    let head = |absent: u16| [absent.to_be_bytes().as_slice(), &[255]].concat();
    let all = [head(0), vec![3; 13], (0..130).flat_map(|n| row((n % 13) as u8, n)).collect()].concat();
    let work = [head(0x1ff0), vec![3; 4], (0..60).flat_map(|n| row((n % 4) as u8, n)).collect()].concat();
    for (name, input) in [("all", all), ("work", work)] {
        let file = sparse::Kept::new();
        let written = sparse::rows::write(&file.0, &input).expect("an export");
        assert!(written.work > 30 && written.only_work == (name == "work"), "{written:?}");
        let read = formats::read(&file.0, &Default::default()).expect("an export");
        sparse::sound::check(&read);
        std::fs::write(folder.join(name), input)?;
    }
    Ok(())
}

/// A job of four ranks, one without steps, and a summary of nothing.
fn summary(folder: &Path, recording: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let run = verdict::load(recording).map_err(|e| std::io::Error::other(e.to_string()))?;
    let analysis = verdict::analyze(&run);
    let mut texts = Vec::new();
    for rank in 0..4u64 {
        let mut value = verdict::output::summary::summary(&run, &analysis, &Default::default());
        value["rank"] = rank.into();
        value["world_size"] = 5.into();
        if rank == 3 {
            value["steps"] = serde_json::Value::Null;
        }
        texts.push(value.to_string());
    }
    std::fs::write(folder.join("one"), &texts[0])?;
    std::fs::write(folder.join("job"), texts.join("\n"))?;
    std::fs::write(
        folder.join("least"),
        format!("{{\"summary_version\":{}}}", verdict::output::summary::SUMMARY_VERSION),
    )
}
