// SPDX-License-Identifier: Apache-2.0
//! What the simulated driver says really happened (`tests/sim/README.md`, "Truth"): read by hand,
//! since a run of 200,000 launches leaves 60 MB of lines.

use std::path::Path;

/// A kernel, copy or memset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// "kernel", "memcpy" or "memset".
    pub kind: String,
    /// Kernel name.
    pub name: String,
    /// CUPTI's stream id.
    pub stream: u32,
    /// Device ordinal.
    pub device: u32,
    /// ns.
    pub start: u64,
    /// ns; may lie after a kill, then it never happened.
    pub end: u64,
    /// Correlation id.
    pub correlation: u32,
    /// Graph id, 0: none.
    pub graph: u32,
    /// The launching thread.
    pub tid: u32,
}

/// An API call, outermost only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the function.
    pub name: String,
    /// Calling thread.
    pub tid: u32,
    /// ns.
    pub start: u64,
    /// ns.
    pub end: u64,
    /// Correlation id.
    pub correlation: u32,
}

/// What a client did to CUPTI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Name of the function.
    pub name: String,
    /// Kind, id, flag or attribute.
    pub argument: u64,
    /// ns.
    pub at: u64,
    /// Result.
    pub result: u64,
    /// Calling thread.
    pub tid: u32,
}

/// One process's truth.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// In the order of issue.
    pub ops: Vec<Op>,
    /// In the order of return.
    pub calls: Vec<Call>,
    /// In the order they happened.
    pub cupti: Vec<Client>,
    /// The process id.
    pub pid: u32,
    /// When the driver began, ns.
    pub began: u64,
    /// When exit handlers ran, ns; `None`: they did not.
    pub ended: Option<u64>,
}

fn text<'a>(line: &'a str, key: &str) -> &'a str {
    line.find(key).and_then(|at| line[at + key.len()..].split('"').next()).unwrap_or("")
}

fn number(line: &str, key: &str) -> u64 {
    let Some(at) = line.find(key) else { return 0 };
    let rest = &line[at + key.len()..];
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or(0)
}

impl Truth {
    /// Reads a truth file; what follows the first zero byte was not written any more.
    pub fn read(path: &Path) -> Truth {
        Truth::parse(&std::fs::read(path).unwrap_or_default())
    }

    /// Reads a truth file from the first whole line after byte `from` on.
    pub fn tail(path: &Path, from: u64) -> Truth {
        use std::io::{Read, Seek, SeekFrom};
        let mut file = std::fs::File::open(path).expect("truth");
        file.seek(SeekFrom::Start(from)).expect("seek");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("truth");
        let line = bytes.iter().position(|b| *b == b'\n').map_or(0, |n| n + 1);
        Truth::parse(&bytes[line..])
    }

    fn parse(bytes: &[u8]) -> Truth {
        let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        let lines = String::from_utf8_lossy(&bytes[..whole]);
        let mut truth = Truth::default();
        for line in lines.lines() {
            match text(line, "\"t\":\"") {
                "op" => truth.ops.push(Op {
                    kind: text(line, "\"kind\":\"").into(),
                    name: text(line, "\"name\":\"").into(),
                    stream: number(line, "\"stream\":") as u32,
                    device: number(line, "\"dev\":") as u32,
                    start: number(line, "\"start\":"),
                    end: number(line, "\"end\":"),
                    correlation: number(line, "\"corr\":") as u32,
                    graph: number(line, "\"graph\":") as u32,
                    tid: number(line, "\"tid\":") as u32,
                }),
                "call" => truth.calls.push(Call {
                    name: text(line, "\"name\":\"").into(),
                    tid: number(line, "\"tid\":") as u32,
                    start: number(line, "\"start\":"),
                    end: number(line, "\"end\":"),
                    correlation: number(line, "\"corr\":") as u32,
                }),
                "cupti" => truth.cupti.push(Client {
                    name: text(line, "\"name\":\"").into(),
                    argument: number(line, "\"arg\":"),
                    at: number(line, "\"at\":"),
                    result: number(line, "\"ret\":"),
                    tid: number(line, "\"tid\":") as u32,
                }),
                "meta" => {
                    truth.pid = number(line, "\"pid\":") as u32;
                    truth.began = number(line, "\"mono_ns\":");
                }
                "exit" => truth.ended = Some(number(line, "\"mono_ns\":")),
                _ => {}
            }
        }
        truth
    }

    /// The kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().filter(|o| o.kind == "kernel")
    }

    /// ns in which at least one op of `ops` ran, within [`from`, `to`).
    pub fn busy<'a>(ops: impl Iterator<Item = &'a Op>, from: u64, to: u64) -> u64 {
        crate::recorded::union(ops.map(|o| (o.start, o.end)), from, to)
    }
}
