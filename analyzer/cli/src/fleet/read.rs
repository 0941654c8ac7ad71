// SPDX-License-Identifier: Apache-2.0
//! One `.summary.json` into a [`Rank`]. Newer versions add keys; missing ones are unknown, never
//! zero.

use serde_json::{json, Value};

use verdict::output::summary::SUMMARY_VERSION;
use verdict::run::SIMULATED_GPU;
use verdict::text::escape::word;

/// A summary larger than this is none.
pub const MOST_BYTES: u64 = 16 << 20;

/// What is known of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rank {
    /// Where it was read.
    pub file: String,
    /// Rank, where the launcher told it.
    pub rank: Option<u32>,
    /// World size, 0 unknown.
    pub world_size: u32,
    /// What was started; "" unknown.
    pub command: String,
    /// Host name.
    pub host: String,
    /// Process.
    pub pid: u64,
    /// Begin of the recording, ns since 1970.
    pub start_unix_ns: u64,
    /// Stable code of the verdict.
    pub code: String,
    /// The verdict's cause.
    pub cause: String,
    /// What was seen.
    pub text: String,
    /// Share of the time lost to it, 0 to 1.
    pub share: f64,
    /// How sure.
    pub confidence: String,
    /// Steps found.
    pub steps: u64,
    /// Median step, ns; `None` without steps.
    pub median_ns: Option<f64>,
    /// Mean step, ns: what shares of the time are shares of. `None` without steps, and in older
    /// summaries.
    pub mean_ns: Option<f64>,
    /// 95th percentile of the steps, ns.
    pub p95_ns: Option<f64>,
    /// Buckets of the worst device, ns of its steady wall time.
    pub buckets: Vec<(String, u64)>,
    /// Items lost or damaged.
    pub losses: u64,
    /// The process never reached its end.
    pub killed: bool,
    /// Recorded on gapprobe's simulated driver.
    pub simulated: bool,
}

/// How compressed traces, recordings and exports of nsys begin.
const TRACES: [&[u8]; 3] = [&[0x1f, 0x8b], b"GAPPROBE", b"SQLite format 3\0"];

/// Is this the begin of something that `gapprobe analyze` reads? (A trace in plain JSON is told by
/// its keys.)
pub fn is_a_trace(bytes: &[u8]) -> bool {
    TRACES.iter().any(|first| bytes.starts_with(first))
}

/// Why a file is no summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable(pub String);

/// Reads one summary. `file` is how reports name it.
pub fn read(file: &str, bytes: &[u8]) -> Result<Rank, Unusable> {
    if bytes.is_empty() {
        return Err(Unusable("the file is empty".to_owned()));
    }
    let trace = || Unusable(format!("a trace or a recording, no summary (gapprobe analyze {})", word(file)));
    if is_a_trace(bytes) {
        return Err(trace());
    }
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|e| Unusable(format!("no JSON (line {}, column {})", e.line(), e.column())))?;
    if value.get("traceEvents").is_some() {
        return Err(trace());
    }
    let version = value.get("summary_version").and_then(Value::as_u64);
    match version {
        Some(v) if v == u64::from(SUMMARY_VERSION) => {}
        Some(v) => {
            let text = format!(
                "summary version {v}: this gapprobe reads {SUMMARY_VERSION}; use the newer of the two"
            );
            return Err(Unusable(text));
        }
        None => return Err(Unusable("no gapprobe summary (no summary_version)".to_owned())),
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let real = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64).filter(|v| v.is_finite());
    let small = |pointer: &str| number(pointer).and_then(|n| u32::try_from(n).ok());
    let counted = |pointer: &str| -> u64 {
        let all = value.pointer(pointer).and_then(Value::as_object);
        all.map_or(0, |o| o.values().filter_map(Value::as_u64).fold(0, u64::saturating_add))
    };
    Ok(Rank {
        file: file.to_owned(),
        rank: small("/rank"),
        world_size: small("/world_size").unwrap_or(0),
        command: text("/command"),
        host: text("/host"),
        pid: number("/pid").unwrap_or(0),
        start_unix_ns: number("/times/start_unix_ns").unwrap_or(0),
        code: text("/verdict/code"),
        cause: text("/verdict/cause"),
        text: text("/verdict/text"),
        share: real("/verdict/share").unwrap_or(0.0),
        confidence: text("/verdict/confidence"),
        steps: number("/steps/count").unwrap_or(0),
        median_ns: real("/steps/median_ns").filter(|ns| *ns > 0.0),
        mean_ns: real("/steps/mean_ns").filter(|ns| *ns > 0.0),
        p95_ns: real("/steps/p95_ns"),
        buckets: buckets(&value),
        // what a foreign trace lost stands in both (`gapprobe analyze --json`)
        losses: counted("/losses")
            .saturating_add(counted("/reading_problems"))
            .saturating_sub(number("/input/lost").unwrap_or(0)),
        killed: value.pointer("/coverage/killed").and_then(Value::as_bool).unwrap_or(false),
        simulated: text("/devices/0/name").starts_with(SIMULATED_GPU),
    })
}

/// Of the device the line is about.
fn buckets(value: &Value) -> Vec<(String, u64)> {
    let worst = value.get("worst_device").and_then(Value::as_u64);
    let devices = value.get("devices").and_then(Value::as_array);
    let device = devices.and_then(|d| d.iter().find(|d| d.get("ordinal").and_then(Value::as_u64) == worst));
    let all = device.and_then(|d| d.get("buckets_ns")).and_then(Value::as_object);
    all.map_or_else(Vec::new, |o| o.iter().filter_map(|(k, v)| Some((k.clone(), v.as_u64()?))).collect())
}

/// Buckets in which the device runs something.
const BUSY: [&str; 3] = ["compute", "copy_only", "collective_only"];
/// Buckets in which a rank waits for others or for its own streams.
const WAITING: [&str; 2] = ["collective_only", "device_wait"];

impl Rank {
    fn share_of(&self, which: impl Fn(&str) -> bool) -> f64 {
        let sum =
            |all: &mut dyn Iterator<Item = &(String, u64)>| all.map(|b| b.1).fold(0, u64::saturating_add);
        let part = sum(&mut self.buckets.iter().filter(|b| which(&b.0)));
        verdict::analysis::share(part, sum(&mut self.buckets.iter()))
    }

    /// Share of the steady wall time with nothing running, 0 to 1.
    pub fn idle_share(&self) -> f64 {
        self.share_of(|key| !BUSY.contains(&key))
    }

    /// Share with anything running, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        self.share_of(|key| BUSY.contains(&key))
    }

    /// What a step takes, for shares of it: two workers that deliver together make every second
    /// step short, and the median of one rank may be such a one, of another not.
    fn step_ns(&self) -> Option<f64> {
        self.mean_ns.or(self.median_ns)
    }

    /// Step time less waiting for others, ns; `None` without steps.
    pub fn own_ns(&self) -> Option<f64> {
        self.step_ns().map(|ns| ns * (1.0 - self.share_of(|key| WAITING.contains(&key))))
    }

    /// One bucket of its own time, ns a step; `None` without steps and of buckets in which it waits
    /// for others.
    pub fn own_part(&self, bucket: &str) -> Option<f64> {
        self.step_ns()
            .filter(|_| !WAITING.contains(&bucket))
            .map(|ns| ns * self.share_of(|key| key == bucket))
    }

    /// How reports call it.
    pub fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => format!("process {}", self.pid),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "file": self.file,
            "rank": self.rank,
            "command": self.command,
            "host": self.host,
            "pid": self.pid,
            "code": self.code,
            "cause": self.cause,
            "share": self.share,
            "confidence": self.confidence,
            "steps": self.steps,
            "median_ns": self.median_ns,
            "mean_ns": self.mean_ns,
            "p95_ns": self.p95_ns,
            "own_ns": self.own_ns(),
            "busy_share": self.busy_share(),
            "losses": self.losses,
            "killed": self.killed,
            "simulated": self.simulated,
        })
    }
}
