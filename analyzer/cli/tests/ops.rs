// SPDX-License-Identifier: Apache-2.0
//! Purpose: the tables `ops` and `ops_shapes` give the figures of torch.profiler's
//! `key_averages()`: by hand, and those that PyTorch itself printed of a recorded run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cli::tables;
use cli::tables::{Cell, NameStyle, Source, Table};
use formats::Input;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ops")
}

fn input(file: &str) -> Input {
    formats::read(&folder().join(file), &Default::default()).unwrap_or_else(|e| panic!("{file}: {e:?}"))
}

fn table(input: &Input, report: &str) -> Table {
    tables::find(report).unwrap().table(&Source::of(input, NameStyle::Whole))
}

/// Calls; CPU time, self and total; the GPU's; ns.
type Times = [u64; 5];
/// The GPU's memory, self and total; the host's; bytes.
type Memory = [i64; 4];

/// By name and shapes.
type Rows = BTreeMap<(String, String), (Times, Option<Memory>)>;

fn rows(table: &Table) -> Rows {
    let cell = |row: &[Cell], key: &str| {
        table.columns.iter().position(|c| c.key == key).map_or(Cell::Nothing, |at| row[at].clone())
    };
    let text = |c: Cell| if let Cell::Text(t) = c { t.to_string() } else { String::new() };
    let row = |row: &Vec<Cell>| {
        let whole = |key: &str| if let Cell::Whole(n) = cell(row, key) { n as u64 } else { panic!("{key}") };
        let bytes = |key: &str| match cell(row, key) {
            Cell::Real(mb) => Some((mb * 1e6).round() as i64),
            _ => None,
        };
        let times = ["calls", "self_cpu_ns", "cpu_ns", "self_gpu_ns", "gpu_ns"].map(whole);
        let memory = ["self_gpu_mb", "gpu_mb", "self_cpu_mb", "cpu_mb"].map(bytes);
        let memory = memory.iter().all(Option::is_some).then(|| memory.map(Option::unwrap));
        ((text(cell(row, "name")), text(cell(row, "shapes"))), (times, memory))
    };
    let rows: Rows = table.rows.iter().map(row).collect();
    assert_eq!(rows.len(), table.rows.len(), "an operator and a range of one name");
    rows
}

/// `ops/rules.json`, in µs: `step` (1-199) holds linear (10-90), which holds addmm (20-80), which
/// launches 10 on the GPU, then a collective (50-84) that outlives it, then 4; `to` (100-150),
/// which holds nothing but another `to`, which holds `_to_copy` (110-140), which copies for 8; a
/// wait (160-190) and a launch (192-195), whose kernel torch.profiler gives to nobody. The second
/// step holds linear (210-230) and relu (220-240), neither in the other; `_version` around them
/// does not count. On another thread mul (5-35) is open when memory changes; what is freed at 300
/// no operator has freed.
#[test]
fn by_hand() {
    let input = input("rules.json");
    let us = |t: Times| [t[0], t[1] * 1000, t[2] * 1000, t[3] * 1000, t[4] * 1000];
    let nothing = [0; 4];
    let expected = [
        ("ProfilerStep*", [2, 12, 250, 0, 22], [0, 512, 0, 8]),
        ("[memory]", [1, 0, 0, 0, 0], [-512, -512, 0, 0]),
        ("aten::_to_copy", [1, 20, 30, 8, 8], nothing),
        ("aten::addmm", [1, 45, 60, 14, 14], [512, 512, 8, 8]),
        ("aten::linear", [2, 40, 100, 0, 14], [0, 512, 0, 8]),
        ("aten::mul", [1, 30, 30, 0, 0], [512, 512, 8, 8]),
        ("aten::relu", [1, 20, 20, 0, 0], nothing),
        ("aten::to", [1, 20, 50, 0, 8], nothing),
        ("nccl:all_reduce", [1, 0, 34, 0, 0], nothing),
        ("step", [1, 35, 198, 0, 22], [0, 512, 0, 8]),
    ];
    let expected =
        expected.map(|(name, times, memory)| ((name.to_owned(), String::new()), (us(times), Some(memory))));
    assert_eq!(rows(&table(&input, "ops")), BTreeMap::from(expected));
    let by_shapes = rows(&table(&input, "ops_shapes"));
    let linear = |shapes: &str| by_shapes[&("aten::linear".to_owned(), shapes.to_owned())].0;
    assert_eq!(linear("[[2, 3], [3]]"), us([1, 20, 80, 0, 14]));
    assert_eq!(linear("[[4, 3], [3]]"), us([1, 20, 20, 0, 0]));
}

/// What PyTorch 2.11 gave of the same run (an H200, 2026-11-29; two steps of a small network with
/// attention and AdamW, `record_shapes`, `profile_memory`; replays of a CUDA graph in a range), all
/// of its rows but those of calls. It counts the GPU's time twice where it asks CUPTI for a buffer
/// inside of an operator: by as much as it gives to "Activity Buffer Request", which has none.
#[test]
fn figures_of_torch() {
    for file in ["torch_2_11", "torch_2_11_graph"] {
        let keys = std::fs::read(folder().join(format!("{file}.keys.json"))).expect(file);
        let keys: serde_json::Value = serde_json::from_slice(&keys).expect(file);
        let input = input(&format!("{file}.json.gz"));
        let has_memory = !input.operators.memory.is_empty();
        for (report, part) in [("ops", "rows"), ("ops_shapes", "by_shapes")] {
            let mut torch = BTreeMap::new();
            for row in keys[part].as_array().expect(part) {
                let text = |i: usize| row[i].as_str().expect("a text").to_owned();
                let time = |i: usize| row[2 + i].as_u64().expect("a time");
                let memory = std::array::from_fn(|i| row[7 + i].as_i64().expect("bytes"));
                let memory = has_memory.then_some(memory);
                torch.insert((text(0), text(1)), (std::array::from_fn(time), memory));
            }
            let request = |key: &(String, String)| key.0 == "Activity Buffer Request";
            let twice: Times = torch.iter().find(|(key, _)| request(key)).expect("one").1 .0;
            torch.retain(|key, _| !request(key));
            let ours = rows(&table(&input, report));
            for (key, (times, _)) in &mut torch {
                let our_gpu = ours.get(key).map_or(0, |o| o.0[4]);
                if our_gpu + twice[4] == times[4] {
                    times[4] = our_gpu;
                }
            }
            for key in ours.keys().chain(torch.keys()) {
                assert_eq!(ours.get(key), torch.get(key), "{file} {report} {key:?}");
            }
        }
    }
}

#[test]
fn gpu_time_stands_under_the_operators_around_its_launch() {
    let input = input("torch_2_11.json.gz");
    let mut out = Vec::new();
    cli::export::gpu_folded(&input.run, &verdict::analyze(&input.run), &mut out).expect("memory");
    let text = String::from_utf8(out).expect("text");
    let around = "GPU 0;forward;aten::conv2d;aten::convolution;aten::_convolution;aten::cudnn_convolution;";
    assert!(text.lines().any(|l| l.starts_with(around)), "{text}");
    let backward = "GPU 0;autograd::engine::evaluate_function: ConvolutionBackward0;ConvolutionBackward0;aten::convolution_backward;";
    assert!(text.lines().any(|l| l.starts_with(backward)), "{text}");
}

/// A kernel that was launched while a node was evaluated is of the backward pass.
#[test]
fn the_backward_pass_is_told_by_the_ranges_of_its_nodes() {
    let table = table(&input("torch_2_11.json.gz"), "gpu_ops");
    let column = |key| table.columns.iter().position(|c| c.key == key).unwrap();
    let (name, backward, total) = (column("operator"), column("backward_ns"), column("total_ns"));
    let of = |operator: &str| {
        let is_it = |row: &&Vec<Cell>| matches!(&row[name], Cell::Text(text) if &**text == operator);
        let row = table.rows.iter().find(is_it).expect(operator);
        let ns = |at: usize| if let Cell::Whole(ns) = row[at] { ns } else { 0 };
        (ns(backward), ns(total))
    };
    let (of_gradients, all) = of("aten::convolution_backward");
    assert_eq!(of_gradients, all);
    assert_eq!(of("aten::conv2d").0, 0);
}

/// The same file by the outermost operator of each launch: 10 and 4 us of the first `linear`'s, the
/// copy of `to`'s, and a kernel of nobody's.
#[test]
fn the_gpus_time_goes_to_the_outermost_operator() {
    let table = table(&input("rules.json"), "gpu_ops");
    let column = |key| table.columns.iter().position(|c| c.key == key).unwrap();
    let (ns, operator, backward) = (column("total_ns"), column("operator"), column("backward_ns"));
    let of = |row: &Vec<Cell>| match (&row[ns], &row[operator], &row[backward]) {
        (Cell::Whole(ns), Cell::Text(name), Cell::Nothing) => (name.to_string(), *ns),
        other => panic!("{other:?}"),
    };
    let rows: BTreeMap<_, _> = table.rows.iter().map(of).collect();
    let expected = [("aten::linear", 14_000), ("aten::to", 8_000), ("unattributed", 5_000)];
    assert_eq!(rows, expected.map(|(name, ns)| (name.to_owned(), ns)).into());
}
