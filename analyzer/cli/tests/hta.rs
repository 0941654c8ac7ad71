// SPDX-License-Identifier: Apache-2.0
//! Purpose: a user of Holistic Trace Analysis finds his numbers in the table `hta`, and beside them
//! what is true by the same rule. HTA's own figures (`hta/figures.csv`, made by `scripts/dev/hta`)
//! against ours, of a trace that has every fault of HTA and of real ones; the exact ones by hand
//! and against the plain idle time of the device.

use std::path::{Path, PathBuf};

use cli::tables;
use cli::tables::{Cell, NameStyle, Source, Table};
use formats::Input;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn input(path: &Path) -> Input {
    formats::read(path, &Default::default()).unwrap_or_else(|e| panic!("{}: {e:?}", path.display()))
}

fn table(source: &Source<'_>) -> Table {
    tables::find("hta").unwrap().table(source)
}

fn cell(table: &Table, row: usize, key: &str) -> Cell {
    let column = table.columns.iter().position(|c| c.key == key).expect(key);
    table.rows[row][column].clone()
}

fn whole(table: &Table, row: usize, key: &str) -> u64 {
    match cell(table, row, key) {
        Cell::Whole(n) => n as u64,
        other => panic!("{key}: {other:?}"),
    }
}

/// Everything that is idle time by cause, or none of ours to explain.
const PARTS: [&str; 11] = [
    "sync_ns",
    "launch_ns",
    "kernel_gap_ns",
    "device_wait_ns",
    "host_ns",
    "input_ns",
    "copy_wait_ns",
    "alloc_ns",
    "unexplained_ns",
    "other_streams_ns",
    "not_seen_ns",
];

/// (file, stream, category, µs, ratio to two decimals, intervals) as HTA printed them.
fn printed_by_hta() -> Vec<(String, u64, String, f64, f64, u64)> {
    let text = std::fs::read_to_string(folder().join("hta/figures.csv")).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let c: Vec<&str> = line.split(',').collect();
        let number = |i: usize| c[i].parse::<f64>().unwrap();
        (c[0].to_owned(), number(1) as u64, c[2].to_owned(), number(3), number(4), number(5) as u64)
    });
    rows.collect()
}

fn path_of(file: &str) -> PathBuf {
    let folders = ["hta", "tables", "traces"].map(|f| folder().join(f).join(file));
    folders.into_iter().find(|p| p.exists()).expect(file)
}

#[test]
fn what_hta_prints_stands_in_the_table_to_the_last_microsecond() {
    let all = printed_by_hta();
    let mut files: Vec<&str> = all.iter().map(|r| r.0.as_str()).collect();
    files.dedup();
    assert_eq!(files.len(), 7, "two made by hand, five of the H200: {files:?}");
    for file in files {
        let input = input(&path_of(file));
        let source = Source::new(&input.run, NameStyle::Short);
        let table = table(&source);
        let mut found = 0;
        for row in 0..table.rows.len() {
            let Cell::Real(us) = cell(&table, row, "hta_idle_us") else { continue };
            let key = (cell(&table, row, "stream"), cell(&table, row, "category"));
            let theirs =
                all.iter().find(|r| r.0 == file && (Cell::from(r.1), Cell::from(r.2.as_str())) == key);
            let intervals = whole(&table, row, "hta_intervals");
            let Some((.., their_us, their_ratio, their_intervals)) = theirs else {
                // HTA has no row of what there is none of
                assert_eq!((us, intervals), (0.0, 0), "{file} {key:?}");
                continue;
            };
            found += 1;
            assert_eq!((us, intervals), (*their_us, *their_intervals), "{file} {key:?}");
            let Cell::Real(ratio) = cell(&table, row, "hta_ratio") else {
                panic!("{file} {key:?}: no ratio")
            };
            assert!((ratio - their_ratio).abs() < 0.005_001, "{file} {key:?}: {ratio}, theirs {their_ratio}");
        }
        assert_eq!(found, all.iter().filter(|r| r.0 == file).count(), "{file}: rows of HTA's not found");
    }
}

/// `hta/faults.json`, all in µs. Three steps of torch.profiler begin at 1000.5, 2000.5, 3000.5; the
/// trace shows the last on the GPU from 3100.25. Stream 7 of device 0, but M and N on stream 7 of
/// device 1:
///
/// | | call | runs | HTA: rounded inward | its interval |
/// |---|---|---|---|---|
/// | A | 1010 | 1020.25-1040.75 | 1021-1040 | |
/// | B | 1030 | 1041.5-1061.25 | 1042-1061 | 2 kernel |
/// | C | none | 1070.1-1080.9 | left out | |
/// | D | 1061.2 | 1100-1120 | | 39 host: the call, rounded to 1062, comes after 1061 |
/// | E | 1090 | 1115-1130.5 | 1115-1130 | -5 kernel: overlaps D |
/// | F | 1125 | 1170-1180 | | 40 other |
/// | M | 1500 | 1510-1530 | | 330 host: another device, the same number |
/// | N | 1540 | 1550-1560 | | 20 host |
/// | H | 2005 | 2010-2100 | | 450 host |
/// | I | 2006.5 | 2020-2030 | | -80 kernel: inside H |
/// | J | 2040 | 2110-2120 | | 80 host: after I, of which HTA sees the end only |
/// | K | 3050 | 3100.25-3110.25 | 3101-3110 | 981 host: launched before 3101, so not of the last step |
/// | L | 3105 | 3140-3150 | left out | |
///
/// HTA: host 39 + 330 + 20 + 450 + 80 + 981 = 1900 of 6, kernel 2 - 5 - 80 = -83 of 3, other 40
/// of 1. Exactly, device 0: host H 2010 - 1180 = 830, K 3100.25 - 2120 = 980.25; kernel B 0.75,
/// C 8.85, D 1100 - 1080.9 = 19.1 (its call, 1061.2, before C's end), J 10 (after H, its call
/// before that), L 29.75, which is less than 30; other F 39.5. Device 1: N 20, host.
#[test]
fn the_faults_of_hta_are_in_its_columns_only() {
    let input = input(&folder().join("hta/faults.json"));
    let source = Source::new(&input.run, NameStyle::Short);
    let table = table(&source);
    let rows: Vec<_> = (0..table.rows.len())
        .map(|r| {
            let hta = match cell(&table, r, "hta_idle_us") {
                Cell::Real(us) => Some((us, whole(&table, r, "hta_intervals"))),
                _ => None,
            };
            let exact = (whole(&table, r, "time_ns"), whole(&table, r, "intervals"));
            (whole(&table, r, "device"), hta, exact)
        })
        .collect();
    let by_hand = [
        (0, Some((1900.0, 6)), (1_810_250, 2)),
        (0, Some((-83.0, 3)), (68_450, 5)),
        (0, Some((40.0, 1)), (39_500, 1)),
        (1, None, (20_000, 1)),
        (1, None, (0, 0)),
        (1, None, (0, 0)),
    ];
    assert_eq!(rows, by_hand);
}

/// tables/three_steps.json, by hand in tables/README.md: stream 7 waits 639 LAUNCH, 534.25 SYNC,
/// 150 COPY, 60 while stream 8 runs, of 1383.25; stream 8 waits 929 while stream 7 runs, 489 LAUNCH
/// of 1900.
#[test]
fn the_two_largest_causes_are_named() {
    let input = input(&folder().join("tables/three_steps.json"));
    let table = table(&Source::new(&input.run, NameStyle::Short));
    let mostly = (0..table.rows.len()).map(|r| cell(&table, r, "mostly"));
    let by_hand = [
        Cell::from("LAUNCH 46 %, SYNC 39 %"),
        Cell::from("KERNEL-GAP 100 %"),
        Cell::Nothing,
        Cell::from("elsewhere 49 %, LAUNCH 26 %"),
        Cell::Nothing,
        Cell::Nothing,
    ];
    assert_eq!(mostly.collect::<Vec<_>>(), by_hand);
}

#[test]
fn our_causes_of_a_row_sum_up_to_its_time_and_one_stream_is_the_device() {
    for file in
        ["h200_gpt", "h200_gptsmall", "h200_gptsync", "h200_graphs", "h200_tiny", "three_steps", "faults"]
    {
        let name = if file.starts_with("h200") { format!("{file}.json.gz") } else { format!("{file}.json") };
        let input = input(&path_of(&name));
        let source = Source::new(&input.run, NameStyle::Short);
        let table = table(&source);
        let mut all = 0;
        for row in 0..table.rows.len() {
            let parts: u64 = PARTS.iter().map(|key| whole(&table, row, key)).sum();
            assert_eq!(parts, whole(&table, row, "time_ns"), "{file}, row {row}");
            all += parts;
        }
        let [device] = source.analysis().devices.as_slice() else { continue };
        if input.run.devices[0].streams.len() == 1 {
            // a plain union of intervals; of h200_gpt 98.184 ms
            assert_eq!(all, device.idle_ns, "{file}");
            let elsewhere = (0..table.rows.len()).map(|r| whole(&table, r, "other_streams_ns"));
            assert_eq!(elsewhere.sum::<u64>(), 0, "{file}: there is no other stream");
        }
        assert!(all > 0, "{file}");
    }
}

/// Real traces of others (not part of the project) with the old schema,
/// ProfilerSteps and whole µs. HTA's figures: `scripts/dev/hta FILE`, 2026-11-22.
#[test]
fn old_traces_with_steps_give_htas_figures_too() {
    let others = PathBuf::from(std::env::var_os("GAPPROBE_OTHER_TRACES").unwrap_or_default());
    for (file, theirs) in [
        ("kineto_resnet50_num_workers_0.json.gz", [(318_934.0, 1243), (8_529.0, 6336), (0.0, 0)]),
        ("kineto_resnet50_num_workers_4.json.gz", [(154_426.0, 1567), (8_804.0, 6145), (1_469.0, 2)]),
    ] {
        let path = others.join(file);
        if !path.exists() {
            eprintln!("{} is not here (GAPPROBE_OTHER_TRACES)", path.display());
            continue;
        }
        let input = input(&path);
        let source = Source::new(&input.run, NameStyle::Short);
        let table = table(&source);
        for (row, (us, intervals)) in theirs.into_iter().enumerate() {
            let found = (cell(&table, row, "hta_idle_us"), whole(&table, row, "hta_intervals"));
            assert_eq!(found, (Cell::Real(us), intervals), "{file}, row {row}");
        }
    }
}
