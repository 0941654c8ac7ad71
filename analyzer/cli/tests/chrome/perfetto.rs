// SPDX-License-Identifier: Apache-2.0
//! Asks Perfetto's trace processor about a trace. Needs node and `scripts/perfetto install`; tests
//! begin with [`is_here`].
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use verdict::output::chrome::{write, ChromeOptions, Written};

/// Counters of the trace processor above zero that mean an error or lost data.
pub(crate) const WRONG: &str =
    "select name, value from stats where severity in ('error','data_loss') and value != 0";
/// Counters that are no error to Perfetto and still mean that one of our arrows has no end.
pub(crate) const ARROWS: &str = "select name, value from stats where name like 'flow%' and value != 0";
/// Busy and idle by Perfetto's own interval union over all slices of device work; an op of no
/// length parts a gap in two.
pub(crate) const UNION: &str = "with k as (select ts, ts + dur as te from slice where dur >= 0 \
    and category in ('kernel','gpu_memcpy','gpu_memset')), \
    m as (select ts, te, max(te) over (order by ts, te rows between unbounded preceding and 1 preceding) as pe from k) \
    select count(*) n, (max(te) - min(ts)) as span_ns, \
    sum(case when pe is not null and ts > pe then ts - pe else 0 end) as idle_ns, \
    sum(case when pe is not null and ts > pe then 1 else 0 end) as gaps, \
    max(case when pe is not null then ts - pe end) as max_gap_ns from m";
/// Slices by category.
pub(crate) const COUNTS: &str =
    "select category, count(*) n, sum(dur) dur from slice group by category order by category";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the trace processor is here; says so where it is not.
pub(crate) fn is_here() -> bool {
    let tools = std::env::var_os("GAPPROBE_TOOLS").map_or_else(|| root().join(".tools"), PathBuf::from);
    let has_node = Command::new("node").arg("--version").output().is_ok_and(|o| o.status.success());
    let is_here = has_node && tools.join("perfetto/trace_processor.wasm").is_file();
    if !is_here {
        let why = "\nSKIPPED: Perfetto's trace processor is not here (node 18 or newer, scripts/perfetto install)\n";
        // past the harness, which keeps what passing tests print to itself
        let _ = std::io::stdout().write_all(why.as_bytes());
    }
    is_here
}

/// The rows of each query.
pub(crate) fn ask(trace: &Path, queries: &[&str]) -> Vec<Value> {
    let output = Command::new("node")
        .arg("--max-old-space-size=8192")
        .arg(root().join("tests/perfetto/perfetto-sql.mjs"))
        .arg(trace)
        .args(queries)
        .output()
        .expect("node: `is_here` looked for it");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    print!("{talk}");
    String::from_utf8_lossy(&output.stdout).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn scratch(name: &str) -> Scratch {
    let path = std::env::temp_dir().join(format!("gapprobe-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a scratch folder");
    Scratch(path)
}

/// Writes the trace of a recording; the run and its analysis come back for comparison.
pub(crate) fn make(
    bytes: &[u8],
    file: &Path,
    options: &ChromeOptions<'_>,
) -> (verdict::Run, verdict::Analysis, Written) {
    let run = verdict::load(bytes).expect("a readable recording");
    let analysis = verdict::analyze(&run);
    let out = std::fs::File::create(file).expect("a trace file");
    let (_, written) = write(&run, &analysis, out, options).expect("a written trace");
    assert_eq!(written.bytes, std::fs::metadata(file).expect("the file").len());
    (run, analysis, written)
}

pub(crate) fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

pub(crate) fn count(counts: &Value, category: &str) -> u64 {
    let rows = counts.as_array().expect("rows");
    rows.iter().find(|r| r["category"] == category).map_or(0, |r| number(r, "n"))
}

/// Perfetto's union equals the analysis of the one device, and the idle slices add up to the idle
/// time.
pub(crate) fn assert_same_times(analysis: &verdict::Analysis, union: &Value) {
    let device = &analysis.devices[0];
    assert_eq!(number(union, "span_ns"), device.span.ns());
    assert_eq!(number(union, "idle_ns"), device.idle_ns);
    assert_eq!(number(union, "span_ns") - number(union, "idle_ns"), device.busy_ns);
    assert_eq!(number(union, "gaps"), device.gaps);
    assert_eq!(number(union, "max_gap_ns"), device.max_gap_ns);
}
