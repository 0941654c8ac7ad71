// SPDX-License-Identifier: Apache-2.0
//! `stats`: its examples, what it prints where, wrong use, files that are none.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{code, err, out, Place, BINARY};

/// The small trace, compressed, as trace.json.gz in the folder of results.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    let text = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables/three_steps.json")).unwrap();
    let file = fs::File::create(place.out().join("trace.json.gz")).unwrap();
    let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gz.write_all(&text).unwrap();
    gz.finish().unwrap();
    place
}

#[test]
fn every_example_of_the_help_runs() {
    let place = place("stats-examples");
    let help = out(&place.run(&["stats", "--help"]));
    let examples: Vec<&str> = help
        .lines()
        .skip(1)
        .take_while(|l| l.starts_with("  gapprobe stats"))
        .map(|l| l.trim().split("   ").next().unwrap())
        .collect();
    assert!(examples.len() >= 5, "{help}");
    let folder = Path::new(BINARY).parent().unwrap().display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    for example in examples {
        let mut shell = Command::new("sh");
        let output =
            shell.args(["-ec", example]).current_dir(place.out()).env("PATH", &path).output().unwrap();
        assert_eq!(code(&output), 0, "{example}: {}", err(&output));
        assert_eq!(err(&output), "", "{example}");
        assert_eq!(out(&output).is_empty(), example.contains('>'), "{example}");
    }
    let steps = fs::read_to_string(place.out().join("steps.csv")).unwrap();
    assert!(steps.starts_with("Step,DevId,Start (ns),"), "{steps}");
    assert_eq!(steps.matches("\r\n").count(), 4, "{steps}");
}

#[test]
fn the_usual_tables_have_titles_and_those_without_rows_are_left_out() {
    let place = place("stats-usual");
    let output = place.run(&["stats", "trace.json.gz"]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let text = out(&output);
    let titles: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(" ** ")).collect();
    let expected = [
        "CUDA API Summary (cuda_api_sum):",
        "CUDA GPU Kernel Summary (cuda_gpu_kern_sum):",
        "CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum):",
        "CUDA GPU MemOps Summary (by Size) (cuda_gpu_mem_size_sum):",
        "NVTX Range Summary (nvtx_sum):",
        "Blocking Calls (syncs):",
    ];
    assert_eq!(titles, expected);
    // one that was asked for is missed aloud, and the others are printed
    let output = place.run(&["stats", "trace.json.gz", "-r", "osrt_sum,cuda_api_sum"]);
    assert_eq!(code(&output), 0);
    assert_eq!(err(&output), "gapprobe: osrt_sum: not in this trace: no OS runtime calls\n");
    assert!(out(&output).starts_with("\n ** CUDA API Summary (cuda_api_sum):\n\n  Time (%)  Total"));
}

#[test]
fn rows_are_sorted_and_limited_as_asked() {
    let place = place("stats-sort");
    let names = |args: &[&str]| -> Vec<String> {
        let args = [&["stats", "trace.json.gz", "-r", "cuda_api_sum", "--format", "json"], args].concat();
        let output = place.run(&args);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{args:?}");
        let said: Value = serde_json::from_str(&out(&output)).unwrap();
        said["cuda_api_sum"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (sync, copy, launch, set) =
        ("cudaDeviceSynchronize", "cudaMemcpyAsync", "cudaLaunchKernel", "cudaMemsetAsync");
    assert_eq!(names(&[]), [sync, copy, launch, set]);
    for heading in ["Num Calls", "num_calls"] {
        assert_eq!(names(&["--sort", heading])[0], launch);
    }
    assert_eq!(names(&["--sort", "name", "--limit", "2"]), [sync, launch]);
    assert_eq!(names(&["--sort", "StdDev (ns)", "-n", "1"]), [launch]);
    assert_eq!(names(&["--limit", "0"]).len(), 4);
}

#[test]
fn reports_are_one_object_of_json() {
    let place = place("stats-json");
    let output = place.run(&["stats", "trace.json.gz", "-r", "gaps", "-r", "osrt_sum", "-f", "json"]);
    let both: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(both["gaps"].as_array().unwrap().len(), 18, "all of them: only the table is cut");
    assert_eq!(both["gaps"][0]["length_ns"], 154_250);
    assert_eq!(both["osrt_sum"], Value::Array(Vec::new()));
    for args in
        [&["stats", "trace.json.gz", "-r", "gaps", "--json"][..], &["gaps", "trace.json.gz", "--json"]]
    {
        let one: Value = serde_json::from_str(&out(&place.run(args))).unwrap();
        assert_eq!(
            (&one["stats_version"], one["gaps"].as_array().unwrap().len()),
            (&1.into(), 18),
            "{args:?}"
        );
        assert!(one["losses"].is_object(), "{one}");
    }
}

#[test]
fn a_long_table_is_cut_and_says_so() {
    let place = Place::new("stats-long");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/h200_tiny.json.gz");
    let trace = trace.to_str().unwrap();
    let lines = |args: &[&str]| {
        let output = place.run(&[&["stats", trace, "-r", "gaps", "--names", "short"], args].concat());
        assert_eq!(code(&output), 0);
        // behind the empty line, the title, an empty line, the heading and its rule
        (out(&output).lines().count() - 5, err(&output))
    };
    let (rows, said) = lines(&[]);
    assert_eq!(rows, 50);
    assert!(
        said.starts_with("gapprobe: gaps: 50 of ") && said.ends_with(" rows; --limit 0 prints all\n"),
        "{said}"
    );
    assert_eq!(lines(&["--limit", "7"]), (7, String::new()));
    let (rows, said) = lines(&["--limit", "0"]);
    assert!(rows > 50 && said.is_empty());
}

#[test]
fn unknown_names_end_with_2_and_list_the_known() {
    let place = place("stats-wrong");
    for (args, what, hint) in [
        (&["-r", "kernels"][..], "no report \"kernels\"", "one of cuda_api_sum, cuda_gpu_kern_sum, "),
        (
            &["-r", "cuda_api_sum", "--sort", "size"],
            "no column \"size\" in cuda_api_sum",
            "one of time_pct, total_ns, num_calls, ",
        ),
        (&["--format", "csv"], "csv holds one table", "give one --report"),
    ] {
        // no such file: names are looked at first
        let output = place.run(&[&["stats", "nowhere.json"], args].concat());
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{args:?}");
        assert!(err(&output).starts_with(&format!("gapprobe: {what}\n\nhint: {hint}")), "{}", err(&output));
    }
    assert_eq!(code(&place.run(&["stats"])), 2);
}

#[test]
fn the_list_names_every_report() {
    let place = Place::new("stats-list");
    let output = place.run(&["stats", "--list"]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let list = out(&output);
    let names: Vec<&str> = list.lines().map(|l| l[2..].split_whitespace().next().unwrap()).collect();
    assert_eq!(names, cli::tables::REPORTS.map(|r| r.name));
}

#[test]
fn a_file_that_cannot_be_read_ends_with_4_and_a_damaged_one_is_read_with_remarks() {
    let place = place("stats-unreadable");
    let output = place.run(&["stats", "nowhere.json"]);
    assert_eq!((code(&output), out(&output).as_str()), (4, ""));
    assert!(err(&output).starts_with("gapprobe: nowhere.json: ") && err(&output).contains("\n\nhint: "));
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables/three_steps.json");
    let text = fs::read_to_string(small).unwrap();
    fs::write(place.out().join("cut.json"), &text[..text.len() * 3 / 4]).unwrap();
    let output = place.run(&["stats", "cut.json", "-r", "nvtx_sum"]);
    assert_eq!(code(&output), 0);
    assert!(err(&output).starts_with("gapprobe: cut.json: the file is truncated"), "{}", err(&output));
    assert!(out(&output).contains("forward"));
    let lost = text.replacen("\"dur\": 200.000", "\"dur\": -1.000", 2);
    fs::write(place.out().join("lost.json"), lost).unwrap();
    let output = place.run(&["stats", "lost.json", "-r", "cuda_gpu_kern_sum", "-f", "json"]);
    assert_eq!(
        err(&output),
        "gapprobe: lost.json: 2 events that end before they begin\ngapprobe: lost.json: losses 3 (damaged)\n"
    );
    let said: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(said["cuda_gpu_kern_sum"][0]["instances"], 4);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = place("stats-pipe");
    let mut child = place
        .gapprobe(&["stats", "trace.json.gz"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
}

#[test]
fn a_recording_of_our_own_has_tables_too() {
    let place = Place::new("stats-recording");
    fs::write(place.out().join("run.gpr"), crate::place::recording(|_| {})).unwrap();
    let rows = |report: &str| -> Vec<Value> {
        let output = place.run(&["stats", "run.gpr", "-r", report, "-f", "json"]);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{report}");
        let said: Value = serde_json::from_str(&out(&output)).unwrap();
        said[report].as_array().unwrap().clone()
    };
    let kernels = rows("cuda_gpu_kern_sum");
    assert_eq!((kernels.len(), &kernels[0]["name"]), (1, &Value::from("gemm(float*, float*, float*)")));
    assert_eq!((&kernels[0]["instances"], &kernels[0]["total_ns"]), (&3000.into(), &180_000_000u64.into()));
    // blocks of 256 threads with 64 registers: 8 warps of 2048 registers in each quarter's 16384,
    // of 16
    assert_eq!((&kernels[0]["occupancy_pct"], &kernels[0]["registers"]), (&50.0.into(), &64.into()));
    assert_eq!(rows("steps").len(), 300);
    assert_eq!(rows("cuda_kern_exec_sum")[0]["pid"], i32::MAX);
}

/// In a narrow terminal the parts of a step that matter stay, whatever their place.
#[test]
fn the_largest_parts_of_steps_stay_in_80_columns() {
    let place = place("steps-narrow");
    for (name, column) in
        [("own_compiled", "Launch (ns)"), ("own_host_sleep", "Host (ns)"), ("own_gpt_bound", "Compute (ns)")]
    {
        let path = format!("{}/tests/recordings/{name}.gprec.gz", env!("CARGO_MANIFEST_DIR"));
        let text = out(&place.run(&["steps", "--width", "80", &path]));
        let heading = text.lines().find(|l| l.contains("Step Time")).unwrap_or_else(|| panic!("{text}"));
        assert!(heading.contains(column) && heading.chars().count() <= 80, "{name}: {heading}");
    }
}
