// SPDX-License-Identifier: Apache-2.0
//! Purpose: the tables of `gapprobe stats` say what the events say. A small trace with what each
//! report prints of it, by hand (`tables/README.md`); real traces against sums made from their text
//! alone.

#[path = "tables/sql.rs"]
mod sql;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use cli::tables;
use cli::tables::{Cell, Format, NameStyle, Row, Source, Table};
use formats::Input;
use serde_json::Value;
use verdict::analysis::Bucket;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn input(path: &str) -> Input {
    formats::read(&folder().join(path), &Default::default()).expect(path)
}

fn text_of(table: &Table, format: Format) -> String {
    let mut out = Vec::new();
    tables::write(table, 0, format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Holds `text` against the file tests/tables/`name`.
fn same_as_file(name: &str, text: &str) {
    let path = folder().join("tables").join(name);
    if std::env::var_os("GAPPROBE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text,
        expected,
        "{} differs; if that is meant: GAPPROBE_BLESS=1 cargo test, and tables/README.md",
        path.display()
    );
}

#[test]
fn every_report_of_the_small_trace_is_as_worked_out_by_hand() {
    let input = input("tables/three_steps.json");
    let source = Source::new(&input.run, NameStyle::Whole);
    for report in tables::REPORTS {
        let table = report.table(&source);
        let has_none = ["osrt_sum", "roofline", "gpu_lines", "gpu_modules", "gpu_ops"].contains(&report.name);
        assert_eq!(table.rows.is_empty(), has_none, "{}", report.name);
        assert!(table.rows.iter().all(|r| r.len() == report.columns.len()), "{}", report.name);
        same_as_file(&format!("{}.txt", report.name), &text_of(&table, Format::Text));
        if ["cuda_gpu_kern_sum", "gaps"].contains(&report.name) {
            same_as_file(&format!("{}.csv", report.name), &text_of(&table, Format::Csv));
            same_as_file(&format!("{}.json", report.name), &text_of(&table, Format::Json));
        }
    }
}

#[test]
fn short_names_leave_namespaces_out_and_keep_the_sums() {
    let input = input("traces/h200_gpt.json.gz");
    let rows = |names| {
        let source = Source::new(&input.run, names);
        tables::find("cuda_gpu_kern_sum").unwrap().table(&source).rows
    };
    let (whole, short) = (rows(NameStyle::Whole), rows(NameStyle::Short));
    let total = |rows: &[Vec<Cell>]| rows.iter().map(|r| whole_number(&r[1])).sum::<u128>();
    assert_eq!(total(&whole), total(&short));
    assert!(short.len() <= whole.len(), "{} {}", short.len(), whole.len());
    assert!(whole.iter().any(|r| text_cell(&r[8]).starts_with("void at::native::")));
    assert!(short.iter().all(|r| !text_cell(&r[8]).contains("at::native::")));
}

/// Kernels of cuBLAS that stay: as many blocks as the H200 has multiprocessors (132), each of a
/// size that only one fits (384 threads of 168 registers: 12 of 64 warps).
#[test]
fn a_kernel_that_stays_fills_each_multiprocessor_once() {
    let input = input("traces/h200_gpt.json.gz");
    let source = Source::new(&input.run, NameStyle::Whole);
    let report = tables::find("cuda_gpu_kern_sum").unwrap();
    let table = report.table(&source);
    let at = |row: &[Cell], key: &str| row[report.column(key).unwrap()].clone();
    let name = Cell::from("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT");
    let row = table.rows.iter().find(|r| at(r, "name") == name).unwrap();
    assert_eq!(at(row, "waves_per_sm"), Cell::Real(1.0));
    assert_eq!(at(row, "occupancy_pct"), Cell::Real(18.75));
    assert_eq!(at(row, "class"), Cell::from("GEMM"));
}

fn whole_number(cell: &Cell) -> u128 {
    match cell {
        Cell::Whole(n) => *n,
        other => panic!("{other:?}"),
    }
}

fn text_cell(cell: &Cell) -> &str {
    match cell {
        Cell::Text(t) => t,
        other => panic!("{other:?}"),
    }
}

fn real(cell: &Cell) -> f64 {
    match cell {
        Cell::Real(x) => *x,
        other => panic!("{other:?}"),
    }
}

// ---- the text of a trace, read a second way
// ---------------------------------------------------------------------

struct Event {
    category: String,
    name: String,
    thread: String,
    start: u64,
    end: u64,
    args: Value,
}

/// Nanoseconds of a time as the text has it; from the first digit on, as no double holds it.
fn ns_of(event: &str, key: &str) -> u64 {
    let at = event.find(&format!("\"{key}\": ")).unwrap() + key.len() + 4;
    let number: String = event[at..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    let (whole, part) = number.split_once('.').unwrap_or((&number, ""));
    format!("{whole}{part:0<3}").parse().unwrap()
}

/// The complete events of one of our H200 traces.
fn events(name: &str) -> Vec<Event> {
    let mut text = String::new();
    let file = std::fs::File::open(folder().join("traces").join(name)).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut found = Vec::new();
    for piece in text.split("\n  {").skip(1).filter(|p| p.contains("\"ph\": \"X\"")) {
        let piece = format!("{{{}", &piece[..piece.rfind('}').unwrap() + 1]);
        let piece = piece.trim_end_matches([',', '\n', ' ', ']']);
        let Some(v) =
            serde_json::Deserializer::from_str(piece).into_iter::<Value>().next().and_then(Result::ok)
        else {
            panic!("{piece}")
        };
        let (start, length) = (ns_of(piece, "ts"), ns_of(piece, "dur"));
        found.push(Event {
            category: v["cat"].as_str().unwrap().to_owned(),
            name: v["name"].as_str().unwrap().to_owned(),
            thread: format!("{}/{}", v["pid"], v["tid"]),
            start,
            end: start + length,
            args: v["args"].clone(),
        });
    }
    found
}

/// total, count, avg, med, min, max, stddev by the plain formulas.
fn plain(mut values: Vec<u64>) -> (u128, usize, f64, f64, u64, u64, f64) {
    values.sort_unstable();
    let n = values.len();
    let total: u128 = values.iter().map(|&v| u128::from(v)).sum();
    let avg = total as f64 / n as f64;
    let med = (values[(n - 1) / 2] + values[n / 2]) as f64 / 2.0;
    let squares: f64 = values.iter().map(|&v| (v as f64 - avg).powi(2)).sum();
    let stddev = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
    (total, n, avg, med, values[0], values[n - 1], stddev)
}

/// Holds the rows of a report (share, total, count, five figures, ..., name) against groups of
/// values.
fn same_figures(report: &str, rows: &[Vec<Cell>], name_at: usize, groups: HashMap<String, Vec<u64>>) {
    assert_eq!(rows.len(), groups.len(), "{report}");
    let all: u128 = groups.values().flatten().map(|&v| u128::from(v)).sum();
    let mut before = u128::MAX;
    for row in rows {
        let name = text_cell(&row[name_at]);
        let (total, count, avg, med, min, max, stddev) = plain(groups[name].clone());
        assert_eq!(whole_number(&row[1]), total, "{report} {name}");
        assert_eq!(whole_number(&row[2]), count as u128, "{report} {name}");
        assert_eq!((real(&row[3]), real(&row[4])), (avg, med), "{report} {name}");
        assert_eq!(
            (whole_number(&row[5]), whole_number(&row[6])),
            (min.into(), max.into()),
            "{report} {name}"
        );
        assert!((real(&row[7]) - stddev).abs() < 1e-6 * (1.0 + stddev), "{report} {name}");
        assert!((real(&row[0]) - total as f64 * 100.0 / all as f64).abs() < 1e-9, "{report} {name}");
        assert!(total <= before, "{report}: sorted by total");
        before = total;
    }
}

fn by_name<'a>(events: impl Iterator<Item = &'a Event>) -> HashMap<String, Vec<u64>> {
    let mut groups: HashMap<String, Vec<u64>> = HashMap::new();
    for e in events {
        groups.entry(e.name.clone()).or_default().push(e.end - e.start);
    }
    groups
}

#[test]
fn sums_of_real_traces_are_those_of_their_text() {
    for name in ["h200_gpt.json.gz", "h200_graphs.json.gz"] {
        let (events, input) = (events(name), input(&format!("traces/{name}")));
        let source = Source::new(&input.run, NameStyle::Whole);
        let rows = |report: &str| tables::find(report).unwrap().table(&source).rows;
        let of = |categories: &'static [&str]| {
            by_name(events.iter().filter(move |e| categories.contains(&e.category.as_str())))
        };
        same_figures("kernels", &rows("cuda_gpu_kern_sum"), 8, of(&["kernel"]));
        let calls = of(&["cuda_runtime", "cuda_driver"]).into_iter();
        // the reader takes versions off names: none here has one
        same_figures("calls", &rows("cuda_api_sum"), 8, calls.collect());
        let nsys = |name: &str| match name.split(' ').nth(1).unwrap() {
            "HtoD" => "[CUDA memcpy Host-to-Device]".to_owned(),
            "DtoH" => "[CUDA memcpy Device-to-Host]".to_owned(),
            "DtoD" => "[CUDA memcpy Device-to-Device]".to_owned(),
            "(Device)" => "[CUDA memset]".to_owned(),
            other => panic!("{other}"),
        };
        let mut memory: HashMap<String, Vec<u64>> = HashMap::new();
        for (name, values) in of(&["gpu_memcpy", "gpu_memset"]) {
            memory.entry(nsys(&name)).or_default().extend(values);
        }
        same_figures("memory", &rows("cuda_gpu_mem_time_sum"), 8, memory);
        same_figures("ranges", &rows("nvtx_sum"), 9, of(&["user_annotation"]));
        let size: f64 = rows("cuda_gpu_mem_size_sum").iter().map(|r| real(&r[0])).sum();
        let bytes: u64 = events
            .iter()
            .filter(|e| e.category.starts_with("gpu_mem"))
            .map(|e| e.args["bytes"].as_u64().unwrap())
            .sum();
        assert!((size - bytes as f64 / 1e6).abs() < 1e-9, "{name}: {size} MB, {bytes} bytes");
    }
}

#[test]
fn kernels_under_ranges_are_those_whose_launch_lies_in_them() {
    for name in ["h200_gpt.json.gz", "h200_gptsync.json.gz"] {
        let (events, input) = (events(name), input(&format!("traces/{name}")));
        let source = Source::new(&input.run, NameStyle::Whole);
        let correlation = |e: &Event| e.args["correlation"].as_u64();
        let calls: HashMap<u64, &Event> = events
            .iter()
            .filter(|e| e.category.starts_with("cuda_"))
            .filter_map(|e| Some((correlation(e)?, e)))
            .collect();
        // every pair of range and operation: slow and plain
        let gpu: Vec<&Event> = events
            .iter()
            .filter(|e| ["kernel", "gpu_memcpy", "gpu_memset"].contains(&e.category.as_str()))
            .collect();
        let mut kernels: BTreeMap<(String, String), (u128, u64, u64)> = BTreeMap::new();
        let mut projected: BTreeMap<String, (u128, u64, u64)> = BTreeMap::new();
        for range in events.iter().filter(|e| e.category == "user_annotation") {
            let inside: Vec<&&Event> = gpu
                .iter()
                .filter(|o| {
                    let call = correlation(o).and_then(|c| calls.get(&c));
                    call.is_some_and(|c| {
                        c.thread == range.thread && c.start >= range.start && c.end <= range.end
                    })
                })
                .collect();
            let mut seen: HashMap<&str, ()> = HashMap::new();
            for o in inside.iter().filter(|o| o.category == "kernel") {
                let row = kernels.entry((range.name.clone(), o.name.clone())).or_default();
                row.0 += u128::from(o.end - o.start);
                row.1 += 1;
                row.2 += u64::from(seen.insert(&o.name, ()).is_none());
            }
            if let (Some(first), Some(last)) =
                (inside.iter().map(|o| o.start).min(), inside.iter().map(|o| o.end).max())
            {
                let row = projected.entry(range.name.clone()).or_default();
                row.0 += u128::from(last - first);
                row.1 += 1;
                row.2 += inside.len() as u64;
            }
        }
        assert!(!kernels.is_empty(), "{name}");
        let cells = |report: &str| tables::find(report).unwrap().table(&source).rows;
        let mut found: BTreeMap<(String, String), (u128, u64, u64)> = BTreeMap::new();
        for r in cells("nvtx_kern_sum") {
            // rows are by thread, too: one thread has the ranges of a name here
            let key = (text_cell(&r[0]).to_owned(), text_cell(&r[12]).to_owned());
            let row = (whole_number(&r[6]), whole_number(&r[5]) as u64, whole_number(&r[4]) as u64);
            assert_eq!(found.insert(key, row), None);
        }
        assert_eq!(found, kernels, "{name}");
        let found: BTreeMap<String, (u128, u64, u64)> = cells("nvtx_gpu_proj_sum")
            .iter()
            .map(|r| {
                (
                    text_cell(&r[0]).to_owned(),
                    (whole_number(&r[2]), whole_number(&r[4]) as u64, whole_number(&r[10]) as u64),
                )
            })
            .collect();
        assert_eq!(found, projected, "{name}");
    }
}

#[test]
fn the_parts_of_a_step_sum_up_and_agree_with_the_buckets() {
    for name in ["h200_gpt", "h200_gptsync", "h200_graphs", "h200_tiny"] {
        let input = input(&format!("traces/{name}.json.gz"));
        let source = Source::new(&input.run, NameStyle::Whole);
        let rows = tables::find("steps").unwrap().table(&source).rows;
        let steps = &source.analysis().steps;
        assert_eq!(rows.len(), steps.steps.len(), "{name}: one device");
        let report = tables::find("steps").unwrap();
        let columns = Bucket::ALL.map(|b| report.column(&format!("{}_ns", b.key())).unwrap());
        let not_seen = report.column("not_seen_ns").unwrap();
        let mut sums = [0u128; Bucket::COUNT];
        for (row, step) in rows.iter().zip(&steps.steps) {
            let parts = columns.map(|c| whole_number(&row[c]));
            let all = parts.iter().sum::<u128>() + whole_number(&row[not_seen]);
            assert_eq!(all, u128::from(step.span.ns()), "{name}: step {}", step.number);
            if !step.warm_up {
                for (sum, part) in sums.iter_mut().zip(&parts) {
                    *sum += part;
                }
            }
        }
        let device = &source.analysis().devices[0];
        assert_eq!(steps.steady_ns, device.wall_ns, "{name}: no unseen time between the steps");
        assert_eq!(sums, Bucket::ALL.map(|b| u128::from(device.buckets.get(b))), "{name}");
    }
}

/// `max_gap_ns` of a device is in the table, too: the longest gap between two operations, whatever
/// the number of its slices.
#[test]
fn the_longest_gap_is_the_same_in_the_table_and_in_the_object() {
    for name in ["traces/h200_gpt.json.gz", "traces/h200_gptsync.json.gz", "tables/three_steps.json"] {
        let input = input(name);
        let source = Source::new(&input.run, NameStyle::Whole);
        let report = tables::find("gaps").unwrap();
        let [gap, length, before, after] =
            ["gap_ns", "length_ns", "before", "after"].map(|c| report.column(c).unwrap());
        let rows = report.table(&source).rows;
        let inner = rows.iter().filter(|r| r[before] != Cell::Nothing && r[after] != Cell::Nothing);
        let longest = inner.map(|r| whole_number(&r[gap])).max().unwrap();
        assert_eq!(longest, u128::from(source.analysis().devices[0].max_gap_ns), "{name}");
        assert!(rows.iter().all(|r| whole_number(&r[length]) <= whole_number(&r[gap])), "{name}");
        // some gaps have several slices, or the column would say nothing
        assert!(rows.iter().any(|r| whole_number(&r[length]) < whole_number(&r[gap])), "{name}");
    }
}

#[test]
fn idle_time_is_charged_once() {
    for name in ["traces/h200_gptsync.json.gz", "tables/three_steps.json"] {
        let input = input(name);
        let source = Source::new(&input.run, NameStyle::Whole);
        let table = |report: &str| tables::find(report).unwrap().table(&source).rows;
        let gaps = table("gaps");
        let all: u128 = gaps.iter().map(|r| whole_number(&r[1])).sum();
        let slices = source.analysis().devices.iter().flat_map(|d| &d.slices);
        assert_eq!(all, slices.map(|s| u128::from(s.end - s.start)).sum::<u128>(), "{name}");
        let held = ["SYNC", "COPY-WAIT", "ALLOC"];
        let blamed = gaps.iter().filter(|r| held.contains(&text_cell(&r[5])) && r[6] != Cell::Nothing);
        let blamed: u128 = blamed.map(|r| whole_number(&r[1])).sum();
        // (what shows as INPUT or HOST was set off by a wait all the same)
        let [idle, busy] = ["idle_ns", "host_busy_ns"]
            .map(|key| tables::find("syncs").and_then(|r| r.column(key)).expect("a column"));
        let shown = |r: &Row| match r[busy] {
            Cell::Whole(busy) => whole_number(&r[idle]) - busy,
            _ => whole_number(&r[idle]),
        };
        assert_eq!(blamed, table("syncs").iter().map(shown).sum::<u128>(), "{name}");
        assert!(blamed > 0, "{name}");
    }
}

/// torch.autograd.profiler.emit_nvtx numbers each range: `aten::mm, op_id = 7`. As many rows as
/// operations tell nobody anything.
#[test]
fn ranges_that_differ_in_the_operators_number_alone_are_one() {
    use trace::build::Builder;
    use trace::call::{pack, Class, RUNTIME};
    use trace::{Event, Kind};
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    let kernel = b.kernel("k", 32, 16);
    for i in 0..3_u64 {
        let at = 1_000 + i * 1_000;
        let mut range = Event::new(Kind::Range, at, at + 500);
        range.a = b.string(&format!("aten::mm, seq = {i}, op_id = {}", 300 + i));
        b.on_thread(5, range);
        let mut call = Event::new(Kind::Call, at + 10, at + 20);
        (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, i as u32 + 1);
        b.on_thread(5, call);
        let mut op = Event::new(Kind::Kernel, at + 100, at + 200);
        (op.a, op.b, op.correlation) = (kernel, 1, i as u32 + 1);
        b.on_stream(0, 1, 7, op);
    }
    let run = verdict::load(b.finish().as_slice()).unwrap();
    for (name, beginning) in [
        ("nvtx_kern_sum", "aten::mm,PushPop,,5,3,3,300,"),
        ("nvtx_gpu_proj_sum", "aten::mm,PushPop,300,1500,3,"),
        ("nvtx_sum", ""),
    ] {
        let report = tables::find(name).unwrap();
        let mut csv = Vec::new();
        tables::write(&report.table(&Source::new(&run, NameStyle::Whole)), 0, Format::Csv, &mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        assert_eq!(csv.lines().count(), 2, "{csv}");
        assert!(
            csv.lines().nth(1).is_some_and(|l| l.starts_with(beginning) && l.contains("aten::mm")),
            "{csv}"
        );
        assert!(!csv.contains("op_id"), "{csv}");
    }
}
