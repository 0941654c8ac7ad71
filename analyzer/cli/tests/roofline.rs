// SPDX-License-Identifier: Apache-2.0
//! Purpose: the table `roofline` says of a torch.profiler trace with shapes what its operators
//! compute and move a second, and of a recording of gapprobe's what elementwise kernels move; by
//! hand. Of a device whose peaks are not known no share of them is told.

use cli::tables::{self, Cell, NameStyle, Source, Table};
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};

fn table(source: &Source<'_>) -> Table {
    tables::find("roofline").expect("the table").table(source)
}

fn cell(table: &Table, row: usize, key: &str) -> Cell {
    let column = table.columns.iter().position(|c| c.key == key).expect("a column");
    table.rows[row][column].clone()
}

fn text(cell: Cell) -> String {
    if let Cell::Text(text) = cell {
        text.to_string()
    } else {
        format!("{cell:?}")
    }
}

fn number(cell: Cell) -> f64 {
    if let Cell::Real(number) = cell {
        number
    } else {
        panic!("{cell:?}")
    }
}

/// A product of 1024 x 1024 in bf16 that takes 100 us, and an addition of 2^24 numbers in float32
/// that takes 50.
fn profiled(device: &str) -> String {
    let operator = |name: &str, ts: u32, more: &str| {
        format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":20,"args":{{{more}}}}}"#
        )
    };
    let work = |id: u32, kernel: &str, ts: u32, dur: u32| {
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{ts},"dur":5,"args":{{"correlation":{id}}}}},
               {{"ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":7,"ts":{begin},"dur":{dur},"args":{{"device":0,"stream":7,"correlation":{id},"grid":[8,1,1],"block":[128,1,1]}}}}"#,
            begin = ts + 10
        )
    };
    let events = [
        operator(
            "aten::mm",
            100,
            r#""Input Dims":[[1024,1024],[1024,1024]],"Input type":["c10::BFloat16","c10::BFloat16"]"#,
        ),
        work(1, "nvjet_sm90", 105, 100),
        operator(
            "aten::add",
            300,
            r#""Input Dims":[[16777216],[16777216],[]],"Input type":["float","float","Scalar"]"#,
        ),
        work(2, "elementwise_kernel", 305, 50),
        operator("aten::sort", 500, r#""Input Dims":[[1024]],"Input type":["float"]"#),
        work(3, "sort_kernel", 505, 50),
    ];
    format!(
        r#"{{"schemaVersion":1,"deviceProperties":[{{"id":0,"name":"{device}","numSms":132}}],"traceEvents":[{}]}}"#,
        events.join(",")
    )
}

fn read(trace: &str) -> formats::Input {
    let (process, test) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("gapprobe-roofline-{process}-{test:?}.json"));
    std::fs::write(&path, trace).expect("written");
    let input = formats::read(&path, &Default::default()).expect("a trace");
    std::fs::remove_file(&path).expect("removed");
    input
}

#[test]
fn operators_with_shapes_against_the_peaks_of_the_device() {
    let input = read(&profiled("NVIDIA H200"));
    let table = table(&Source::of(&input, NameStyle::Whole));
    assert_eq!(table.rows.len(), 3, "{table:?}");
    assert_eq!(text(cell(&table, 2, "name")), "(not estimated)", "sorting");
    assert_eq!(number(cell(&table, 2, "time_pct")), 25.0);
    let of = |row, key| cell(&table, row, key);
    assert_eq!((text(of(0, "name")), text(of(0, "limit"))), ("aten::mm".into(), "tensor cores".into()));
    // 2 * 1024^3 FLOP in 100 us; the shortest time is 2.17 us
    assert!((number(of(0, "tflop_per_s")) - 21.474_836).abs() < 1e-3);
    assert!((number(of(0, "of_peak_pct")) - 2.170).abs() < 1e-2, "{:?}", of(0, "of_peak_pct"));
    assert_eq!(text(of(0, "shapes")), "[[1024, 1024], [1024, 1024]]");
    // 3 * 2^26 bytes in 50 us, of 4,800 GB/s
    assert_eq!((text(of(1, "name")), text(of(1, "limit"))), ("aten::add".into(), "memory".into()));
    assert!((number(of(1, "gb_per_s")) - 4026.53).abs() < 0.1);
    assert!((number(of(1, "of_peak_pct")) - 83.89).abs() < 0.1);
    assert_eq!((of(1, "tflop_per_s"), number(of(0, "time_pct"))), (Cell::Nothing, 50.0));

    let input = read(&profiled("Some GPU"));
    let table = self::table(&Source::of(&input, NameStyle::Whole));
    assert_eq!((cell(&table, 0, "of_peak_pct"), cell(&table, 0, "limit")), (Cell::Nothing, Cell::Nothing));
}

/// Copies from and to the host have limits of their own, and are in the time that shares are of.
#[test]
fn copies_from_the_host_are_not_held_against_the_devices_memory() {
    let trace = profiled("NVIDIA H200").replace("aten::sort", "aten::copy_");
    let copy =
        trace.replace(r#""cat":"kernel","name":"sort_kernel""#, r#""cat":"gpu_memcpy","name":"sort_kernel""#);
    let rows = |trace: &str, name: &str| {
        let input = read(&trace.replace("sort_kernel", name));
        let table = table(&Source::of(&input, NameStyle::Whole));
        (table.rows.len(), number(cell(&table, 0, "time_pct")))
    };
    assert_eq!(rows(&trace, "direct_copy_kernel"), (3, 50.0));
    assert_eq!(rows(&copy, "Memcpy DtoD (Device -> Device)"), (3, 50.0));
    let last = |trace: &str| {
        let table = table(&Source::of(&read(trace), NameStyle::Whole));
        text(cell(&table, 2, "name"))
    };
    let rest = || "(not estimated)".to_owned();
    assert_eq!(last(&copy.replace("sort_kernel", "Memcpy HtoD (Pageable -> Device)")), rest());
    assert_ne!(last(&copy.replace("sort_kernel", "Memcpy DtoD (Device -> Device)")), rest());
}

#[test]
fn without_finite_numbers_and_of_several_kinds_of_devices_nothing_is_told() {
    let endless = format!("[{}]", vec![u64::MAX.to_string(); 20].join(","));
    let input = read(&profiled("NVIDIA H200").replace("[1024,1024]", &endless));
    let table = table(&Source::of(&input, NameStyle::Whole));
    let names: Vec<String> = (0..table.rows.len()).map(|row| text(cell(&table, row, "name"))).collect();
    assert_eq!(names, ["(not estimated)", "aten::add"]);

    let of_two = profiled("NVIDIA H200")
        .replace(r#""numSms":132}"#, r#""numSms":132},{"id":1,"name":"Tesla T4","numSms":40}"#)
        .replacen(r#""args":{"device":0"#, r#""args":{"device":1"#, 1);
    let input = read(&of_two);
    let table = self::table(&Source::of(&input, NameStyle::Whole));
    assert!((0..3).all(|row| cell(&table, row, "of_peak_pct") == Cell::Nothing), "{table:?}");
}

#[test]
fn element_wise_kernels_of_a_recording_by_their_grids() {
    let mut b = Builder::new();
    b.on_recorder(Event::clock_pair(1, 1));
    b.device(0, "NVIDIA H200", 132);
    let add = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_";
    // (by this one it is known how many numbers a thread takes)
    b.kernel("_ZN2at6native29vectorized_elementwise_kernelILi8EEviT0_T1_", 128, 32);
    let kernels = [b.kernel(add, 128, 32), b.kernel("nvjet_sm90", 384, 168)];
    for (n, kernel) in [0, 1, 0].into_iter().enumerate() {
        let start = 1_000 + 100_000 * n as u64;
        let correlation = n as u32 + 1;
        let mut call = Event::new(Kind::Call, start, start + 5_000);
        (call.a, call.x, call.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
        b.on_thread(5, call);
        let mut op = Event::new(Kind::Kernel, start + 10_000, start + 60_000);
        (op.a, op.b, op.correlation) = (kernels[kernel], 16_384, correlation);
        b.on_stream(0, 1, 7, op);
    }
    let run = verdict::load(b.finish().as_slice()).expect("a recording");
    let table = table(&Source::new(&run, NameStyle::Short));
    assert_eq!(table.rows.len(), 2, "{table:?}");
    assert_eq!(cell(&table, 0, "instances"), Cell::Whole(2));
    assert!((number(cell(&table, 0, "gb_per_s")) - 4026.53).abs() < 0.1, "{table:?}");
    assert!((number(cell(&table, 0, "time_pct")) - 66.67).abs() < 0.1);
}

/// Five steps of programs of tests/gpu under torch.profiler with shapes (H200, 2026-11-30), and
/// what ncu says of the same kernels (docs/kernels.md), percent. Shapes give the least, and the
/// peaks are those of the boost clock.
#[test]
fn by_shapes_real_programs_do_nearly_what_ncu_measures() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/roofline");
    // (half: kernels of an older generation take twice as long for the same)
    for (file, tensor, memory, within) in [
        ("gpu_norm.slow", 39.0, 43.2, 0.8..1.0),
        ("gpu_width.fixed", 70.8, 29.3, 0.8..1.0),
        ("gpu_width.slow", 28.7 / 2.0, 7.5, 0.7..1.0),
        ("gpu_attention_inference.slow", 8.8, 47.5, 0.75..1.01),
    ] {
        let input = formats::read(&folder.join(format!("{file}.json.gz")), &Default::default()).expect(file);
        let table = table(&Source::of(&input, NameStyle::Whole));
        let sum = |key: &str, peak: f64| -> f64 {
            let part = |row| match cell(&table, row, key) {
                Cell::Real(a_second) => a_second / peak * number(cell(&table, row, "time_pct")),
                _ => 0.0,
            };
            (0..table.rows.len()).map(part).sum()
        };
        let known: f64 = (0..table.rows.len()).map(|row| number(cell(&table, row, "time_pct"))).sum();
        // (the rest: copies from the host, some 2%, and operators that are not known)
        assert!(known > 97.0, "{file}: of {known}% of the time the work is known");
        for (by_shapes, by_ncu) in [(sum("tflop_per_s", 989.5), tensor), (sum("gb_per_s", 4800.0), memory)] {
            assert!(within.contains(&(by_shapes / by_ncu)), "{file}: {by_shapes}, ncu {by_ncu}");
        }
    }
}
