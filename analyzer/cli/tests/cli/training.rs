// SPDX-License-Identifier: Apache-2.0
//! Runs of one small training program whose truth is known, for `diff` and `check`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use crate::place::{Place, BINARY};
use crate::program::Program;

/// Between two steps the host thinks so long, ns: most of a step.
pub(crate) const HOST: u64 = 4_000_000;

/// What a run is like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Another run of the same program: other noise.
    pub(crate) run: u64,
    pub(crate) steps: u32,
    /// Of [`HOST`].
    pub(crate) host_percent: u64,
    /// The last step only, or three more.
    pub(crate) pause: u64,
    pub(crate) pauses_often: bool,
    pub(crate) layers: usize,
    /// An activation of its own in every layer.
    pub(crate) extra_kernels: bool,
    pub(crate) marks: bool,
    /// Kernels take so long, ns.
    pub(crate) scale: u64,
    /// CUPTI records lost.
    pub(crate) lost: u64,
    pub(crate) world: u32,
    pub(crate) gpu: &'static str,
    /// Of an all-reduce in every step, ns.
    pub(crate) reduce: u64,
    /// Every step waits for its loss; else the host runs ahead.
    pub(crate) item: bool,
    /// Kernels of a millisecond that the first step queues, which is twice as long; they run during
    /// the next ones.
    pub(crate) first: u32,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            run: 0,
            steps: 60,
            host_percent: 100,
            pause: 0,
            pauses_often: false,
            layers: 3,
            extra_kernels: false,
            marks: true,
            scale: 20_000,
            lost: 0,
            world: 0,
            gpu: "SIM H200",
            reduce: 0,
            item: true,
            first: 0,
        }
    }
}

/// The recording of such a run.
pub(crate) fn training(shape: Shape) -> Vec<u8> {
    let mut p = Program::new();
    p.b.device(0, shape.gpu, 132);
    p.b.header.world_size = shape.world;
    p.b.header.losses[trace::Loss::CuptiDropped.code() as usize] = shape.lost;
    for _ in 0..shape.run {
        p.random(2);
    }
    for step in 0..shape.steps {
        let begin = p.t;
        p.train_step(shape.layers, shape.scale);
        for _ in 0..if shape.extra_kernels { 12 } else { 0 } {
            p.launch("swiglu_kernel", 512, 2 * shape.scale);
        }
        if shape.reduce > 0 {
            p.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24, shape.reduce);
        }
        if shape.item {
            p.item();
        }
        let mut host = HOST * shape.host_percent / 100;
        if step == 0 && shape.first > 0 {
            (0..shape.first).for_each(|_| p.launch("init_kernel", 512, 1_000_000));
            host *= 2;
        }
        p.think(host);
        if step + 1 == shape.steps || shape.pauses_often && [11, 18, 40].contains(&step) {
            p.t += shape.pause;
        }
        if shape.marks {
            let end = std::mem::replace(&mut p.t, begin);
            p.mark(step, end);
            p.t = end;
        }
    }
    p.finish()
}

/// Writes it where the command runs, under the name that the examples give it: what a file is, its
/// bytes tell.
pub(crate) fn put(place: &Place, name: &str, shape: Shape) {
    write(place, name, &training(shape));
}

pub(crate) fn write(place: &Place, name: &str, bytes: &[u8]) {
    let file = fs::File::create(place.out().join(name)).unwrap();
    let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap();
}

/// A recording of a real program.
pub(crate) fn real(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.gprec.gz"));
    path.to_str().unwrap().to_owned()
}

/// The examples of a verb's help, as they stand there.
pub(crate) fn examples(help: &str, verb: &str) -> Vec<String> {
    let lines = help.lines().skip(1).take_while(|l| l.starts_with(&format!("  gapprobe {verb}")));
    lines.map(|l| l.trim().split("   ").next().unwrap().to_owned()).collect()
}

/// Runs an example as a user would, in a shell.
pub(crate) fn shell(place: &Place, example: &str) -> Output {
    let folder = Path::new(BINARY).parent().unwrap().display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let mut sh = Command::new("sh");
    sh.args(["-ec", example]).current_dir(place.out()).env("PATH", path).output().unwrap()
}

/// One kernel of [`steps_of`].
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) gpu: u32,
    pub(crate) name: &'static str,
    pub(crate) blocks: u32,
    pub(crate) ns: u64,
    /// Launches a step.
    pub(crate) times: u32,
}

pub(crate) const fn work(name: &'static str, blocks: u32, ns: u64, times: u32) -> Work {
    Work { gpu: 0, name, blocks, ns, times }
}

/// Steps of just these kernels, launched in turns; each step waits for every GPU.
pub(crate) fn steps_of(run: u64, marks: bool, kernels: &[Work]) -> Vec<u8> {
    let mut p = Program::new();
    (0..=kernels.iter().map(|k| k.gpu).max().unwrap_or(0)).for_each(|gpu| p.b.device(gpu, "SIM H200", 132));
    p.noise = 1;
    for _ in 0..run {
        p.random(2);
    }
    for step in 0..30 {
        let begin = p.t;
        for turn in 0..kernels.iter().map(|k| k.times).max().unwrap_or(0) {
            for k in kernels.iter().filter(|k| turn < k.times) {
                p.device = k.gpu;
                p.launch(k.name, k.blocks, k.ns);
            }
        }
        for k in kernels {
            p.device = k.gpu;
            p.sync();
        }
        if marks {
            let end = std::mem::replace(&mut p.t, begin);
            p.mark(step, end);
            p.t = end;
        }
    }
    p.finish()
}
