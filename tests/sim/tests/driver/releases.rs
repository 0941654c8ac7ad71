// SPDX-License-Identifier: Apache-2.0
//! What differs from one release of CUPTI to another, and what does not.

use crate::harness::{built, number, run, soname, Fields, RELEASES};
use gapprobe_sim::replay::{write, Callback, Chunk, Recording, What};
use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;

#[test]
fn records_are_the_truth_in_every_release() {
    for release in RELEASES {
        let run = run(release, &["loop", "4", "25", "15", "200", "1", "p"], &[("REC_KINDS", "10,1,38")]);
        assert!(run.errors().is_empty(), "{release}: {:?}", run.errors());
        let kernels = run.records(10);
        assert_eq!((kernels.len(), run.launched()), (100, 100), "{release}");
        let by_correlation: HashMap<u64, &&Value> = HashMap::new();
        let mut truth = by_correlation;
        let ops = run.ops("kernel");
        truth.extend(ops.iter().map(|op| (op["corr"].as_u64().unwrap_or(0), op)));
        for kernel in &kernels {
            let op = truth[&number(kernel, "corr")];
            assert_eq!(number(kernel, "start"), op["start"], "{release}: {op}");
            assert_eq!(number(kernel, "end"), op["end"]);
            assert_eq!(kernel["name"], op["name"].as_str().unwrap_or(""));
            assert_eq!((number(kernel, "grid"), number(kernel, "node")), (264, 0));
        }
        let copies = run.records(1);
        assert_eq!(copies.len(), 4);
        let shape = |c: &Fields| ["copy", "src", "dst", "bytes"].map(|key| number(c, key));
        assert!(copies.iter().all(|c| shape(c) == [1, 1, 3, 4 << 20]), "pageable host to device: {copies:?}");
        let syncs = run.records(38);
        assert_eq!(syncs.iter().filter(|s| number(s, "type") == 3).count(), 4);
        assert_eq!(syncs.iter().filter(|s| number(s, "type") == 4).count(), 1);
    }
}

#[test]
fn record_sizes_are_those_of_the_release() {
    for (release, size) in RELEASES.iter().zip([200, 208, 208, 216, 248]) {
        let run = run(release, &["loop", "2", "10", "5"], &[]);
        let sizes: Vec<_> = run.lines.iter().filter(|l| l.starts_with("S ")).collect();
        assert!(
            sizes.len() >= 18 && sizes.iter().all(|l| **l == format!("S {size}")),
            "{release}: {sizes:?}"
        );
    }
}

#[test]
fn names_and_symbol_versions_are_those_of_the_real_files() {
    let symbols = |release: &str, file: &str| {
        let path = built().join(release).join(file);
        let output = Command::new("readelf")
            .arg("-W")
            .arg("--dyn-syms")
            .arg("-d")
            .arg(path)
            .output()
            .expect("readelf");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for release in RELEASES {
        let soname = soname(release);
        let text = symbols(release, &soname);
        assert!(text.contains(&format!("Library soname: [{soname}]")), "{release}");
        assert!(text.contains(&format!("cuptiSubscribe@@{soname}")), "{release}");
        assert!(!text.contains("libcuda"), "libcupti does not need libcuda");
        let has = |name: &str| text.contains(&format!(" {name}@@"));
        assert_eq!(has("cuptiActivityEnableRuntimeApi"), !matches!(release, "11.8" | "12.4"), "{release}");
        assert_eq!(has("cuptiGetErrorMessage"), release != "11.8");
        assert_eq!(has("cuptiSubscribe_v2"), release.starts_with("13"));
        assert_eq!(has("cuptiActivityGetEnabledKinds"), release == "13.5");
    }
    assert!(symbols("13.0", "libcudart.so.13").contains(" __cudaLaunchKernel@@libcudart.so.13"));
    assert!(!symbols("12.9", "libcudart.so.12").contains("__cudaLaunchKernel"));
    assert!(symbols("13.0", "libcuda.so.1").contains("Library soname: [libcuda.so.1]"));
}

#[test]
fn the_record_filter_is_missing_before_12_5() {
    assert!(run("12.4", &["loop", "1", "1", "10"], &[("REC_FILTER", "2.211")]).has("no filter"));
    assert!(!run("12.9", &["loop", "1", "1", "10"], &[("REC_FILTER", "2.211")]).has("no filter"));
}

#[test]
fn cupti_without_a_driver_answers_15_and_does_not_crash() {
    for release in RELEASES {
        let source = built().join(format!("bare-{release}.c"));
        let body = "#include <dlfcn.h>\n#include <stdio.h>\nint main(void){void*h=dlopen(\"libcupti.so\",2);unsigned v=0;void*s;\
            int a=((int(*)(unsigned*))dlsym(h,\"cuptiGetVersion\"))(&v);\
            int b=((int(*)(void**,void*,void*))dlsym(h,\"cuptiSubscribe\"))(&s,0,0);\
            int c=((int(*)(int))dlsym(h,\"cuptiActivityFlushAll\"))(1);int d=((int(*)(void))dlsym(h,\"cuptiFinalize\"))();\
            printf(\"%d %u %d %d %d\",a,v,b,c,d);return 0;}";
        std::fs::write(&source, body).expect("write");
        let program = source.with_extension("bin");
        let gcc = Command::new("gcc").arg("-o").arg(&program).arg(&source).arg("-ldl").status().expect("gcc");
        assert!(gcc.success());
        let output =
            Command::new(program).env("LD_LIBRARY_PATH", built().join(release)).output().expect("bare");
        let version =
            [18, 22, 28, 130_001, 130_500][RELEASES.iter().position(|r| *r == release).unwrap_or(0)];
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("0 {version} 15 15 15"), "{release}");
    }
}

#[test]
fn a_recording_is_replayed_with_times_names_and_callbacks_of_now() {
    for (release, version, size) in [("12.4", 22, 208usize), ("13.5", 130_500, 248)] {
        let mut buffer = Vec::new();
        for n in 0..3u64 {
            let mut record = vec![0u8; size];
            record[..4].copy_from_slice(&10u32.to_le_bytes());
            record[16..24].copy_from_slice(&(5_000_000 + n * 1_000).to_le_bytes());
            record[24..32].copy_from_slice(&(5_000_400 + n * 1_000).to_le_bytes());
            record[92..96].copy_from_slice(&(n as u32 + 1).to_le_bytes());
            record[104..112].copy_from_slice(&0xdead_0000u64.to_le_bytes());
            buffer.extend(record);
        }
        let call = |site| Callback { domain: 2, cbid: 131, site, correlation: 9, thread: 5 };
        let chunks = vec![
            Chunk { at: 4_999_000, what: What::Callback(call(0)) },
            Chunk { at: 4_999_500, what: What::Callback(call(1)) },
            Chunk { at: 5_900_000, what: What::Buffer(&buffer) },
            Chunk { at: 5_950_000, what: What::Name { pointer: 0xdead_0000, text: b"real_gemm" } },
        ];
        let recording = Recording {
            cupti_version: version,
            soname: soname(release),
            began: 4_000_000,
            chunks,
            cut: false,
        };
        let file = built().join(format!("raw.{release}"));
        std::fs::write(&file, write(&recording)).expect("write");
        let path = file.to_string_lossy().into_owned();
        let settings = [("SIM_REPLAY", path.as_str()), ("REC_CALLBACKS", "2.131")];
        let run = run(release, &["replay", "1"], &settings);
        assert_eq!(String::from_utf8_lossy(&run.output.stdout), "replayed 3\n", "{release}");
        let kernels = run.records(10);
        assert!(kernels.iter().all(|k| k["name"] == "real_gemm"), "{kernels:?}");
        assert_eq!(number(&kernels[2], "start") - number(&kernels[0], "start"), 2_000);
        assert_eq!(number(&kernels[0], "end") - number(&kernels[0], "start"), 400);
        let began = run.truth[0]["mono_ns"].as_u64().unwrap_or(0);
        assert!(number(&kernels[0], "start").abs_diff(began) < 2_000_000_000, "moved to now");
        let callbacks = run.callbacks("2.131");
        assert_eq!(callbacks.len(), 2);
        assert_eq!(callbacks[0]["shared"], callbacks[1]["shared"]);
    }
}
