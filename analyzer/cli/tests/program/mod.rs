// SPDX-License-Identifier: Apache-2.0
//! A small simulated training program that writes a recording: a host that thinks and calls,
//! streams that are queues. Times are ns; the noise is the same in every run.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(unreachable_pub, missing_docs, reason = "a test module")]

use std::collections::HashMap;
use std::io::Read;

use trace::build::Builder;
use trace::call::{pack, Class, DRIVER, RUNTIME};
use trace::event::{Copy, GRAPH_NODE};
use trace::{Event, Kind};
use verdict::output::chrome;
use verdict::output::chrome::ChromeOptions;

/// Host cost of a launch call.
pub const LAUNCH_CALL: u64 = 4_000;
/// Framework time before each launch.
pub const DISPATCH: u64 = 5_000;
/// Launch call to start on an empty stream.
pub const LATENCY: u64 = 8_000;
/// Between queued kernels.
pub const SPACING: u64 = 1_000;
/// End of the awaited op to the return of the synchronize.
pub const RETURN: u64 = 6_000;

/// Between two samples of a thread.
pub const TICK: u64 = 10_000_000;

/// How a thread stands somewhere: what its samples show.
#[derive(Clone, Copy, Default)]
pub struct Pose {
    pub stack: u32,
    /// System call it is blocked in.
    pub syscall: Option<u32>,
    /// Permille.
    pub on_cpu: u32,
    pub run_queue: u32,
    pub bits: u8,
}

impl Pose {
    pub fn computing(stack: u32) -> Pose {
        Pose { stack, on_cpu: 1000, ..Pose::default() }
    }

    pub fn blocked(stack: u32, syscall: u32) -> Pose {
        Pose { stack, syscall: Some(syscall), ..Pose::default() }
    }
}

pub struct Program {
    pub b: Builder,
    /// Host time.
    pub t: u64,
    pub tid: u32,
    pub device: u32,
    correlation: u32,
    streams: HashMap<(u32, u32), u64>,
    begins: Vec<u64>,
    random: u64,
    /// Share of a duration that varies, in percent.
    pub noise: u64,
    pub launches: u64,
    /// Another process has the GPU at the end of each slice of this length, for as long again, ns;
    /// 0: nobody has.
    pub shared: u64,
    /// Stack id of the calls that wait, copy or allocate from now on.
    pub site: u32,
    /// Stack id of the launches from now on.
    pub launches_at: u32,
    /// Synchronizes are only seen as CUPTI's records.
    pub syncs_are_records: bool,
    /// By how much recording slows what goes with a launch: (7, 5) takes 1.4 times as long.
    pub slowed: (u64, u64),
    /// By how much the device's stamps are wrong from now on, ns.
    pub skew: i64,
    calls: Vec<(u32, Event)>,
}

impl Program {
    pub fn new() -> Program {
        let mut b = Builder::new();
        b.device(0, "SIM H200", 132);
        Program {
            b,
            t: 1_000_000_000,
            tid: 100,
            device: 0,
            correlation: 1,
            streams: HashMap::new(),
            begins: Vec::new(),
            random: 0x1234_5678_9abc_def1,
            noise: 8,
            launches: 0,
            shared: 0,
            site: 0,
            launches_at: 0,
            syncs_are_records: false,
            slowed: (1, 1),
            skew: 0,
            calls: Vec::new(),
        }
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn vary(&mut self, ns: u64) -> u64 {
        let off = ns * self.noise / 100;
        ns - off / 2 + self.random(off + 1)
    }

    /// What goes with a launch, under the recorder.
    fn launching(&self, ns: u64) -> u64 {
        ns * self.slowed.0 / self.slowed.1
    }

    pub fn think(&mut self, ns: u64) {
        self.t += self.vary(ns);
    }

    fn call(&mut self, domain: u8, id: u32, class: Class, start: u64, end: u64) -> u32 {
        self.correlation += 1;
        let mut e = Event::new(Kind::Call, start, end);
        e.a = pack(domain, id);
        e.x = class as u8;
        e.correlation = self.correlation;
        if class == Class::Launch {
            e.c = self.launches_at;
        } else if !matches!(class, Class::GraphLaunch | Class::StreamWait) {
            e.c = self.site;
        }
        self.calls.push((self.tid, e));
        self.correlation
    }

    /// The last call of a thread returns at `end`.
    pub fn shorten_last_call(&mut self, tid: u32, end: u64) {
        if let Some((_, e)) = self.calls.iter_mut().rev().find(|c| c.0 == tid) {
            e.end = end;
        }
    }

    fn op(&mut self, stream: u32, launched: u64, duration: u64, mut e: Event) -> (u64, u64) {
        let end = self.streams.entry((self.device, stream)).or_insert(0);
        let latency = self.slowed.0 * LATENCY / self.slowed.1;
        let start = (launched + latency).max(*end + SPACING);
        let slice = start.checked_div(self.shared).unwrap_or(0);
        let start = if slice % 2 == 1 { (slice + 1) * self.shared } else { start };
        *end = start + duration;
        let stamp = |at: u64| at.saturating_add_signed(self.skew);
        (e.start, e.end) = (stamp(start), stamp(start + duration));
        self.b.on_stream(self.device, 1, stream, e);
        (start, start + duration)
    }

    pub fn launch(&mut self, name: &str, blocks: u32, duration: u64) {
        self.launch_on(7, name, blocks, duration);
    }

    pub fn launch_on(&mut self, stream: u32, name: &str, blocks: u32, duration: u64) {
        self.think(self.launching(DISPATCH));
        let begin = self.t;
        // the queue holds 1,024
        let held = self.begins.len().checked_sub(1024).map_or(0, |i| self.begins[i]);
        let call = self.vary(self.launching(LAUNCH_CALL));
        self.t = (begin + call).max(held);
        let end = self.t;
        let correlation = self.call(RUNTIME, 211, Class::Launch, begin, end);
        let mut e = Event::new(Kind::Kernel, 0, 0);
        e.a = self.b.kernel(name, 256, 32);
        e.b = blocks;
        e.correlation = correlation;
        let duration = self.vary(duration);
        let (start, _) = self.op(stream, begin, duration, e);
        self.begins.push(start);
        self.launches += 1;
    }

    /// cudaMemsetAsync.
    pub fn memset(&mut self, duration: u64) {
        self.think(DISPATCH);
        let begin = self.t;
        self.think(LAUNCH_CALL);
        let mut e = Event::new(Kind::Memset, 0, 0);
        e.correlation = self.call(RUNTIME, 51, Class::Memset, begin, self.t);
        self.op(7, begin, duration, e);
    }

    pub fn graph(&mut self, id: u32, nodes: &[(&str, u64)]) {
        self.think(DISPATCH);
        let begin = self.t;
        self.t += 20_000;
        let end = self.t;
        let correlation = self.call(RUNTIME, 311, Class::GraphLaunch, begin, end);
        for (n, &(name, duration)) in nodes.iter().enumerate() {
            let mut e = Event::new(Kind::Kernel, 0, 0);
            e.a = self.b.kernel(name, 256, 32);
            e.b = 132;
            e.c = id;
            e.flags = GRAPH_NODE;
            e.correlation = correlation;
            let launched = if n == 0 { begin } else { 0 };
            let duration = self.vary(duration);
            self.op(7, launched, duration, e);
        }
    }

    /// A graph launch with one record for all its nodes, as `GAPPROBE_GRAPH=graph` makes it.
    pub fn graph_as_one(&mut self, id: u32, duration: u64) {
        self.think(DISPATCH);
        let begin = self.t;
        self.t += 20_000;
        let mut e = Event::new(Kind::GraphTrace, 0, 0);
        e.c = id;
        e.correlation = self.call(RUNTIME, 311, Class::GraphLaunch, begin, begin + 20_000);
        let duration = self.vary(duration);
        self.op(7, begin, duration, e);
    }

    /// A graph launch of which no node is recorded.
    pub fn graph_without_nodes(&mut self) {
        let begin = self.t;
        self.t += 20_000;
        self.call(RUNTIME, 311, Class::GraphLaunch, begin, begin + 20_000);
    }

    /// A launch into a capture: the call, and nothing on the device.
    pub fn call_without_work(&mut self) {
        let begin = self.t;
        self.t += LAUNCH_CALL;
        self.call(RUNTIME, 211, Class::Launch, begin, begin + LAUNCH_CALL);
    }

    /// cudaMemcpyAsync. Pageable ones block until they are done, at 5 GB/s; pinned ones run at 25
    /// GB/s.
    pub fn copy(&mut self, stream: u32, to_device: bool, bytes: u64, pageable: bool) {
        self.think(DISPATCH);
        let begin = self.t;
        self.correlation += 1;
        let correlation = self.correlation;
        let (direction, source, destination) = match (to_device, pageable) {
            (true, true) => (1, 1, 3),
            (true, false) => (1, 2, 3),
            (false, true) => (2, 3, 1),
            (false, false) => (2, 3, 2),
        };
        let mut e = Event::new(Kind::Memcpy, 0, 0);
        (e.a, e.b) = Copy { bytes, direction, source, destination, peer: false }.pack();
        e.correlation = correlation;
        let duration = 1_500 + bytes / if pageable { 5 } else { 25 };
        let (_, done) = self.op(stream, begin, duration, e);
        self.t = if pageable { done + RETURN } else { begin + LAUNCH_CALL };
        let mut c = Event::new(Kind::Call, begin, self.t);
        c.a = pack(RUNTIME, 41);
        c.x = Class::Copy as u8;
        c.correlation = correlation;
        c.c = self.site;
        self.calls.push((self.tid, c));
    }

    /// `.item()`: a few bytes to pageable memory, then cudaStreamSynchronize.
    pub fn item(&mut self) {
        self.copy(7, false, 4, true);
        self.sync();
    }

    /// cudaStreamSynchronize of stream 7.
    pub fn sync(&mut self) {
        self.sync_by(131);
    }

    /// The same by another call of the runtime's, by CUPTI's number (165 cudaDeviceSynchronize, 137
    /// cudaEventSynchronize).
    pub fn sync_by(&mut self, number: u32) {
        let begin = self.t;
        let end = self.streams.get(&(self.device, 7)).copied().unwrap_or(0);
        self.t = (begin + 2_000).max(end + RETURN);
        if self.syncs_are_records {
            self.correlation += 1;
            let mut e = Event::new(Kind::SyncRecord, begin, self.t);
            (e.a, e.c, e.correlation) = (3, 7, self.correlation);
            self.b.on_recorder(e);
            return;
        }
        self.call(RUNTIME, number, Class::Sync, begin, self.t);
    }

    /// cudaFree: waits for the device, then takes `own`.
    pub fn free(&mut self, own: u64) {
        let begin = self.t;
        let end = self.streams.values().copied().max().unwrap_or(0);
        self.t = begin.max(end) + own;
        self.call(RUNTIME, 22, Class::Free, begin, self.t);
    }

    /// Host call of a driver-API stream wait, and the other stream's end becomes this one's.
    pub fn wait(&mut self, stream: u32, other: u32, delay: u64) {
        let begin = self.t;
        self.t += 1_000;
        self.call(DRIVER, 295, Class::StreamWait, begin, begin + 1_000);
        let end = self.streams.get(&(self.device, other)).copied().unwrap_or(0) + delay;
        let mine = self.streams.entry((self.device, stream)).or_insert(0);
        *mine = (*mine).max(end);
    }

    /// The same, as CUPTI records it too: the stream is told to wait for what the other has been
    /// given so far, and begins `delay` after that.
    pub fn wait_event(&mut self, stream: u32, other: u32, delay: u64) {
        let mut e = Event::new(Kind::SyncRecord, self.t, self.t);
        (e.a, e.c, e.correlation) = (2, stream, self.correlation + 1);
        self.b.on_recorder(e);
        self.wait(stream, other, delay);
    }

    /// The host stands there for so long; the sampler's clock ticks meanwhile.
    pub fn stand(&mut self, ns: u64, pose: Pose) {
        let until = self.t + ns;
        let mut tick = self.t.next_multiple_of(TICK);
        while tick < until {
            self.sample(self.tid, tick, pose);
            tick += TICK;
        }
        self.t = until;
    }

    /// A sample of a thread.
    pub fn sample(&mut self, tid: u32, at: u64, pose: Pose) {
        let mut e = Event::new(Kind::Sample, at - TICK, at);
        (e.a, e.b, e.c) = (pose.stack, pose.syscall.map_or(0, |n| n + 1), pose.on_cpu | pose.run_queue << 16);
        e.x = pose.bits;
        self.b.on_thread(tid, e);
    }

    /// A child process in the last tick: permille on a CPU and on a disk, KiB read.
    pub fn child(&mut self, pid: u32, from: u64, on_cpu: u32, on_disk: u32, read_kib: u32) {
        let mut e = Event::new(Kind::Process, from, self.t);
        (e.a, e.b, e.c) = (pid, on_cpu | on_disk << 16, read_kib);
        self.b.on_recorder(e);
    }

    /// Where a forked child stands, which has run since `from`.
    pub fn child_stands(&mut self, pid: u32, from: u64, stack: u32) {
        let mut e = Event::new(Kind::ChildSample, from, self.t);
        (e.a, e.b, e.c) = (stack, pid, 1000);
        self.b.on_recorder(e);
    }

    /// As `child_stands`, of one that waits for data in a system call; `bits` as in `sample`.
    pub fn child_waits(&mut self, pid: u32, from: u64, stack: u32, (call, bits): (u32, u8)) {
        let mut e = Event::new(Kind::ChildSample, from, self.t);
        (e.a, e.b, e.c, e.x) = (stack, pid, 10 | (call + 1) << 16, bits);
        self.b.on_recorder(e);
    }

    pub fn mark(&mut self, number: u32, end: u64) {
        let mut e = Event::new(Kind::Step, self.t, end);
        e.a = number;
        self.b.on_thread(self.tid, e);
    }

    pub fn finish(mut self) -> Vec<u8> {
        for (tid, e) in std::mem::take(&mut self.calls) {
            self.b.on_thread(tid, e);
        }
        self.b.on_recorder(Event::clock_pair(1_000_000_000, 1_700_000_000_000_000_000));
        self.b.finish()
    }

    pub fn analyze(self) -> (verdict::Run, verdict::Analysis) {
        let bytes = self.finish();
        let run = verdict::load(bytes.as_slice()).expect("a recording");
        assert_eq!(run.problems.damaged(), 0);
        let a = verdict::analyze(&run);
        is_judged_as_its_trace(&run, &a);
        (run, a)
    }

    // ---- programs
    // -------------------------------------------------------------------------------------------

    /// Forward of `layers` equal layers.
    pub fn forward(&mut self, layers: usize, scale: u64) {
        self.launch("vectorized_gather_kernel<embedding>", 512, scale / 2);
        for _ in 0..layers {
            let variant = if self.random(10) == 0 { "128x64" } else { "256x128" };
            self.launch("layer_norm_kernel", 256, scale / 4);
            self.launch(&format!("gemm_bf16_{variant}_tn"), 132, scale);
            self.launch("flash_fwd_kernel", 264, scale);
            self.launch("gelu_kernel", 512, scale / 4);
            self.launch(&format!("gemm_bf16_{variant}_nn"), 132, scale);
        }
        self.launch("softmax_forward_kernel", 256, scale / 2);
    }

    pub fn backward(&mut self, layers: usize, scale: u64) {
        self.launch("nll_loss_backward", 1, scale / 2);
        let main = self.tid;
        self.tid = main + 1; // autograd's thread
        for _ in 0..layers {
            self.launch("gemm_bf16_128x128_nt", 132, scale);
            self.launch("gelu_backward_kernel", 512, scale / 4);
            self.launch("flash_bwd_kernel", 264, 2 * scale);
            self.launch("gemm_bf16_128x128_nt", 132, scale);
            self.launch("layer_norm_backward_kernel", 256, scale / 4);
        }
        self.launch("embedding_backward_kernel", 512, scale / 2);
        self.tid = main;
    }

    /// `foreach` optimizer.
    pub fn optimizer(&mut self, scale: u64) {
        for _ in 0..4 {
            self.launch("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 1000, scale);
        }
        self.launch("fill_kernel<zero_grad>", 100, scale / 4);
    }

    pub fn train_step(&mut self, layers: usize, scale: u64) {
        self.forward(layers, scale);
        self.backward(layers, scale);
        self.optimizer(scale);
    }
}

/// One run, one verdict: written as a trace and read again, it is judged as it was.
fn is_judged_as_its_trace(run: &verdict::Run, a: &verdict::Analysis) {
    if run.devices.iter().all(|d| d.ops() == 0) {
        return; // Chrome JSON without an operation of a GPU is no trace
    }
    let (packed, written) = chrome::write(run, a, Vec::new(), &ChromeOptions::default()).expect("a trace");
    assert_eq!(written.left_out(), 0);
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut text).expect("gzip");
    let again = formats::kineto::read_in_blocks(&text, 1 << 20, &formats::Progress::default());
    let b = verdict::analyze(&again.expect("a trace").run);
    let said = |a: &verdict::Analysis| {
        let v = &a.verdict;
        (v.code, v.advice, v.text(), v.site.clone(), v.promise.map(|p| (p.ns() / 1e3).round()))
    };
    assert_eq!(said(&b), said(a), "the trace of this run has another verdict");
}
