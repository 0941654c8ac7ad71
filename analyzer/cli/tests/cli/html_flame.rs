// SPDX-License-Identifier: Apache-2.0
//! `report`: the flame graph of GPU time shows the stacks of `export`'s `.gpu.folded`, and sums up
//! to the time of the device's operations.

use cli::html::{figures, Subject};
use serde_json::Value;

use crate::html_report::{number, read, repository};

/// Every node's names from the outermost frame on, joined as in a folded stack, and its ns.
fn nodes(node: &Value, above: &str, found: &mut Vec<(String, u64)>) {
    for inside in node["inside"].as_array().unwrap() {
        let stack = format!("{above};{}", inside["name"].as_str().unwrap());
        nodes(inside, &stack, found);
        found.push((stack, number(&inside["ns"])));
    }
}

/// The folded stacks with their microseconds.
fn folded(text: &str) -> Vec<(String, u64)> {
    let split = |line: &str| line.rsplit_once(' ').map(|(s, us)| (format!("{s};"), us.parse().unwrap()));
    text.lines().map(|line| split(line).unwrap()).collect()
}

#[test]
fn gpu_time_is_drawn_by_the_stacks_that_export_writes() {
    let gpu = |name: &str| format!("../../../tests/gpu/recordings/{name}.gprec.gz");
    for file in [
        "traces/h200_tiny.json.gz".to_owned(),
        "recordings/own_gpt_item.gprec.gz".to_owned(),
        gpu("launch_optimizer.slow"),
        gpu("copy_both_ways.slow"),
        gpu("ok_compile.slow"),
        gpu("native_sync.slow"),
    ] {
        let (input, analysis) = read(&repository(&file));
        let f = figures(&Subject { name: &file, input: &input, analysis: &analysis }, None);
        let work = &f["runs"][0]["device"]["gpu_time"];
        let index = analysis.worst.unwrap();
        let device = &input.run.devices[index];
        let ops = device.streams.iter().flat_map(|s| &s.ops);
        let all: u64 = ops.map(|op| analysis.counts.measure(op.span())).sum();
        assert_eq!(number(&work["root"]["ns"]), all, "{file}");
        let parts: u64 = work["parts"].as_array().unwrap().iter().map(number).sum();
        assert_eq!(parts, all, "{file}: by class");
        assert!(number(&work["known_ns"]) <= all, "{file}");

        let mut text = Vec::new();
        cli::export::gpu_folded(&input.run, &analysis, &mut text).unwrap();
        let folded = folded(&String::from_utf8(text).unwrap());
        let mut found = Vec::new();
        nodes(&work["root"], &format!("GPU {}", device.ordinal), &mut found);
        assert!(found.len() > 1 && found.len() <= 1_200, "{file}: {}", found.len());
        for (stack, ns) in found {
            let below: Vec<u64> =
                folded.iter().filter(|(s, _)| s.starts_with(&format!("{stack};"))).map(|s| s.1).collect();
            // whole microseconds, of each line
            let (sum, error) = (below.iter().sum::<u64>() * 1_000, below.len() as u64 * 500);
            // (lines of less than half a microsecond are not written)
            let unwritten = ns / 1_000;
            assert!(sum.abs_diff(ns) <= error + unwritten, "{file}: {stack}: {ns} ns, {sum} in the export");
        }
    }
}

/// The same calls have launched as much on another GPU.
#[test]
fn only_the_gpu_that_the_page_is_about_is_drawn() {
    let (mut input, _) = read(&repository("recordings/own_gpt_item.gprec.gz"));
    let mut second = input.run.devices[0].clone();
    second.ordinal += 1;
    input.run.devices.push(second);
    let analysis = verdict::analyze(&input.run);
    let f = figures(&Subject { name: "a", input: &input, analysis: &analysis }, None);
    let ops = input.run.devices[0].streams.iter().flat_map(|s| &s.ops);
    let of_one: u64 = ops.map(|op| analysis.counts.measure(op.span())).sum();
    let d = &f["runs"][0]["device"];
    assert_eq!((number(&d["of"]), number(&d["gpu_time"]["root"]["ns"])), (2, of_one));
}

#[test]
fn what_a_kernel_is_for_has_its_name_in_the_legend() {
    let (input, analysis) = read(&repository("recordings/own_gpt_item.gprec.gz"));
    let f = figures(&Subject { name: "a", input: &input, analysis: &analysis }, None);
    let classes = f["classes"].as_array().unwrap();
    let mut by_class = vec![0; classes.len()];
    fn leaves(node: &Value, to: &mut [u64]) {
        let inside = node["inside"].as_array().unwrap();
        if inside.is_empty() {
            to[number(&node["class"]) as usize] += number(&node["ns"]);
        }
        inside.iter().for_each(|n| leaves(n, to));
    }
    let d = &f["runs"][0]["device"];
    leaves(&d["gpu_time"]["root"], &mut by_class);
    let gemm = classes.iter().position(|c| c["name"] == "GEMM").unwrap();
    let of_table: u64 = d["kernels"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|r| r["class"] == "GEMM")
        .map(|r| number(&r["ns"]))
        .sum();
    // (nodes too small to be seen are left out)
    let share = by_class[gemm] as f64 / of_table as f64;
    assert!((0.98..=1.0).contains(&share), "{share}");
}
