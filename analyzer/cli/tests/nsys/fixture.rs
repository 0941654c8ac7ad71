// SPDX-License-Identifier: Apache-2.0
//! A small workload whose every event is known, and the export that nsys would make of it, in an
//! old and a new schema.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::{params, Connection};

/// Which layout the export has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Schema {
    /// As nsys 2022 wrote it (2.9): `EXPORT_META_DATA`, no graph ids, no table of CUDA devices,
    /// registered texts only.
    Old,
    /// As nsys 2026 writes it (3.25).
    New,
}

pub(super) const BOTH: [Schema; 2] = [Schema::Old, Schema::New];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// Name, blocks in the grid, registers.
    Kernel(&'static str, u32, u32),
    /// Bytes, copyKind, srcKind, dstKind as nsys numbers them.
    Copy(u64, u32, u32, u32),
    Memset(u64),
    Graph,
}

/// What a GPU did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Op {
    pub(super) pid: u32,
    pub(super) device: u32,
    pub(super) stream: u32,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) correlation: u32,
    /// 0: none.
    pub(super) graph: u32,
    pub(super) node: u32,
    pub(super) what: What,
}

/// An API call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) correlation: u32,
    /// With CUPTI's version, as nsys has it.
    pub(super) name: &'static str,
}

/// An NVTX range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) start: i64,
    pub(super) end: Option<i64>,
    pub(super) name: String,
    pub(super) domain: u32,
    pub(super) depth: u8,
}

/// Everything that happened.
#[derive(Clone, Default, Debug)]
pub(super) struct Workload {
    pub(super) ops: Vec<Op>,
    pub(super) calls: Vec<Call>,
    pub(super) ranges: Vec<Range>,
    /// pid, tid, start, end, name.
    pub(super) os_calls: Vec<(u32, u32, i64, i64, &'static str)>,
    /// pid, number in the process, nsys's id of the GPU.
    pub(super) gpus: Vec<(u32, u32, u32)>,
}

/// Numbers without rhyme, the same in each run.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to `below` - 1.
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }
}

const KERNELS: [&str; 4] = [
    "void gemm<float, 128>(float const*, float*)",
    "void relu(float*)",
    "ncclDevKernel_AllReduce",
    "adam_step",
];

/// A training loop of `steps` steps in each process, each on its devices. Correlation ids begin at
/// 1 in every process.
pub(super) fn training(steps: usize, processes: &[(u32, &[u32])], seed: u64) -> Workload {
    let mut w = Workload::default();
    let mut dice = Dice::new(seed);
    for &(pid, devices) in processes {
        let mut host = 5_000_000 + dice.roll(1_000_000) as i64;
        let mut free: Vec<i64> = vec![0; devices.len()];
        let mut correlation = 0;
        let tid = pid + 7;
        for step in 0..steps {
            let begin = host;
            host += 300 + dice.roll(500) as i64;
            let forward = host;
            for n in 0..6 + dice.roll(6) {
                let which = dice.roll(devices.len() as u64) as usize;
                let (device, stream) = (devices[which], 7 + dice.roll(2) as u32 * 6);
                correlation += 1;
                let call = host;
                host += 1_500 + dice.roll(4_000) as i64;
                let mut at = host.max(free[which]) + dice.roll(900) as i64;
                let mut push = |at: &mut i64, what: What, graph: u32, node: u32, w: &mut Workload| {
                    let end = *at + 1_000 + dice.roll(30_000) as i64;
                    w.ops.push(Op { pid, device, stream, start: *at, end, correlation, graph, node, what });
                    *at = end + dice.roll(50) as i64;
                };
                let name = match n % 6 {
                    4 => {
                        push(&mut at, What::Copy(1 << 20 | n, 1, 1, 2), 0, 0, &mut w);
                        "cudaMemcpyAsync_v3020"
                    }
                    5 => {
                        push(&mut at, What::Memset((5 << 32) + 64), 0, 0, &mut w);
                        "cudaMemsetAsync_v3020"
                    }
                    3 => {
                        for node in 0..3 {
                            push(&mut at, What::Kernel(KERNELS[node as usize], 17, 40), 1, node, &mut w);
                        }
                        push(&mut at, What::Copy(4096, 8, 2, 2), 1, 3, &mut w);
                        "cudaGraphLaunch_v10000"
                    }
                    k => {
                        push(&mut at, What::Kernel(KERNELS[k as usize], 64 + k as u32, 32), 0, 0, &mut w);
                        "cudaLaunchKernel_v7000"
                    }
                };
                free[which] = at;
                w.calls.push(Call { pid, tid, start: call, end: host, correlation, name });
            }
            w.ranges.push(Range {
                pid,
                tid,
                start: forward,
                end: Some(host),
                name: "forward".into(),
                domain: 0,
                depth: 1,
            });
            correlation += 1;
            let done = free.iter().copied().max().unwrap().max(host) + 2_000;
            w.calls.push(Call {
                pid,
                tid,
                start: host,
                end: done,
                correlation,
                name: "cudaDeviceSynchronize_v3020",
            });
            w.os_calls.push((pid, tid + 1, host + 10, done - 10, "poll"));
            host = done + 700;
            w.ranges.push(Range {
                pid,
                tid,
                start: begin,
                end: Some(host),
                name: format!("train {step}"),
                domain: 0,
                depth: 0,
            });
            host += 400 + dice.roll(9_000) as i64;
        }
    }
    w
}

/// nsys's id of a thread (or, with tid 0, of its process).
pub(super) fn global(pid: u32, tid: u32) -> i64 {
    1 << 56 | 1 << 48 | i64::from(pid) << 24 | i64::from(tid)
}

/// A path for a file of this test process, not there yet, removed at the end of the test.
pub(super) struct Kept(pub(super) PathBuf);

impl Kept {
    pub(super) fn new(suffix: &str) -> Kept {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Kept(std::env::temp_dir().join(format!("nsys-test-{}-{n}{suffix}", std::process::id())))
    }

    pub(super) fn of(bytes: &[u8], suffix: &str) -> Kept {
        let kept = Kept::new(suffix);
        std::fs::write(&kept.0, bytes).unwrap();
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Texts and their numbers.
struct Texts<'c>(&'c Connection);

impl Texts<'_> {
    fn id(&self, text: &str) -> i64 {
        let known = self.0.query_row("SELECT id FROM StringIds WHERE value = ?1", [text], |r| r.get(0));
        known.unwrap_or_else(|_| {
            self.0.execute("INSERT INTO StringIds (value) VALUES (?1)", [text]).unwrap();
            self.0.last_insert_rowid()
        })
    }
}

/// Writes the export, and lets `change` do what it likes with it.
pub(super) fn export(w: &Workload, schema: Schema, change: impl FnOnce(&Connection)) -> Kept {
    let kept = Kept::new(".sqlite");
    write(&kept.0, w, schema);
    let connection = Connection::open(&kept.0).unwrap();
    change(&connection);
    drop(connection);
    kept
}

fn tables(schema: Schema) -> &'static str {
    match schema {
        Schema::Old => include_str!("old.sql"),
        Schema::New => include_str!("new.sql"),
    }
}

fn write(path: &Path, w: &Workload, schema: Schema) {
    let mut connection = Connection::open(path).unwrap();
    // no test outlives a loss of power
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").unwrap();
    connection.execute_batch(tables(schema)).unwrap();
    let c = connection.transaction().unwrap();
    let texts = Texts(&c);
    for o in &w.ops {
        let node = match o.graph {
            0 => None,
            graph => Some(i64::from(graph) << 32 | i64::from(o.node)),
        };
        let (pid, context) = (global(o.pid, 0), 1);
        let head = params![o.start, o.end, o.device, context, o.stream, o.correlation, pid, node];
        match &o.what {
            What::Kernel(name, blocks, registers) => {
                let (name, short) = (texts.id(name), texts.id("short"));
                c.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId,
                     globalPid, graphNodeId, demangledName, shortName, registersPerThread, gridX, gridY, gridZ,
                     blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread,
                     localMemoryTotal, gridId)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 1, 1, 256, 2, 1, 48, 1024, 0, 0, 1)",
                    [head, params![name, short, registers, blocks]].concat().as_slice(),
                )
            }
            What::Copy(bytes, kind, from, to) => c.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId,
                 globalPid, graphNodeId, bytes, copyKind, srcKind, dstKind)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                [head, params![*bytes as i64, kind, from, to]].concat().as_slice(),
            ),
            What::Memset(bytes) => c.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, contextId, streamId, correlationId,
                 globalPid, graphNodeId, value, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9)",
                [head, params![*bytes as i64]].concat().as_slice(),
            ),
            What::Graph => c.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, contextId, streamId,
                 correlationId, globalPid, graphId, graphExecId) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 9)",
                params![o.start, o.end, o.device, context, o.stream, o.correlation, pid, o.graph],
            ),
        }
        .unwrap();
    }
    if schema == Schema::New {
        c.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET graphId = graphNodeId >> 32", []).unwrap();
        for (pid, number, gpu) in &w.gpus {
            let row = params![gpu, number, pid];
            c.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) VALUES (?1, ?2, ?3)", row)
                .unwrap();
        }
    }
    for l in &w.calls {
        let class = i64::from(l.name.starts_with("cu") && !l.name.starts_with("cuda"));
        let row = params![l.start, l.end, class, global(l.pid, l.tid), l.correlation, texts.id(l.name)];
        let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId,
            returnValue) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)";
        c.execute(sql, row).unwrap();
    }
    for (i, r) in w.ranges.iter().enumerate() {
        // texts that the program registered stand in StringIds; the others in the row, but for the
        // old schema's tests
        let registered = schema == Schema::Old || i % 2 == 0;
        let (text, number) =
            if registered { (None, Some(texts.id(&r.name))) } else { (Some(r.name.as_str()), Some(0)) };
        let row = params![r.start, r.end, 59 + i as i64 % 2, text, number, global(r.pid, r.tid), r.domain];
        let sql = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        c.execute(sql, row).unwrap();
    }
    for &(pid, tid, start, end, name) in &w.os_calls {
        let sql = "INSERT INTO OSRT_API (start, end, eventClass, globalTid, nameId, returnValue, callchainId)
            VALUES (?1, ?2, 27, ?3, ?4, 0, 0)";
        c.execute(sql, params![start, end, global(pid, tid), texts.id(name)]).unwrap();
    }
    let mut threads: Vec<(u32, u32)> = w.calls.iter().map(|l| (l.pid, l.tid)).collect();
    threads.sort_unstable();
    threads.dedup();
    for (pid, tid) in threads {
        let row = params![texts.id(&format!("main of {pid}")), global(pid, tid)];
        c.execute("INSERT INTO ThreadNames (nameId, priority, globalTid) VALUES (?1, 20, ?2)", row).unwrap();
    }
    c.commit().unwrap();
}
