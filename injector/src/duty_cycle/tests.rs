// SPDX-License-Identifier: Apache-2.0
//! What is hooked is what neighbours of today call, read off their wheels by
//! `scripts/dev/neighbours`.

use std::ffi::CString;

use super::{dlsym_hook, driver, runtime, waits};
use crate::sources::cupti::reroute;

const TORCH: &str = include_str!("../../neighbours/torch-2.15.0.txt");
const TRITON: &str = include_str!("../../neighbours/triton-3.9.0.txt");

/// What a library does of a kind: "calls", "needs", ...
fn of<'a>(wheel: &'a str, file: &'a str, does: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = wheel.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once(' '));
    lines.filter_map(move |(path, rest)| {
        let (verb, what) = rest.split_once(' ')?;
        (path.ends_with(file) && verb == does).then_some(what)
    })
}

#[test]
fn what_pytorch_launches_and_waits_by_is_hooked() {
    let launches: Vec<&str> = runtime::LAUNCHES.iter().filter_map(|l| l.name().to_str().ok()).collect();
    let waits: Vec<&str> = waits::WAITS.iter().filter_map(|l| l.name().to_str().ok()).collect();
    let mut calls = 0;
    for file in ["libtorch_cuda.so", "libc10_cuda.so", "libtorch_python.so"] {
        for call in of(TORCH, file, "calls") {
            let hooked = match call {
                "cudaLaunchHostFunc" => continue, // a function of the host's, in the order of a stream
                "cudaGetDriverEntryPointByVersion" => continue, // of virtual memory and multicast
                _ if call.contains("Launch") => launches.contains(&call),
                _ => waits.contains(&call),
            };
            assert!(hooked, "{file} calls {call}");
            calls += 1;
        }
    }
    assert!(calls >= 12, "{calls}");
}

#[test]
fn what_takes_cupti_over_reaches_our_wrappers() {
    let over =
        ["Subscribe", "RegisterCallbacks", "ActivityEnable", "ActivityDisable", "FlushAll", "Finalize"];
    let clients = [(TORCH, "libtorch_cpu.so", "calls"), (TRITON, "libproton.so", "asks")];
    for (wheel, file, does) in clients {
        let taken = of(wheel, file, does).filter(|call| over.iter().any(|end| call.ends_with(end)));
        let taken: Vec<&str> = taken.filter(|call| *call != "cuptiUnsubscribe").collect();
        for call in &taken {
            let name = CString::new(*call).expect("a name");
            assert!(reroute::wrapper_of(&name).is_some(), "{file} {does} {call}");
        }
        assert_eq!(taken.len(), over.len(), "{file}: {taken:?}");
    }
    assert!(of(TORCH, "libtorch_cpu.so", "needs").any(|library| library == "libcupti.so.13"));
}

#[test]
fn what_triton_launches_by_is_asked_of_us() {
    let launches: Vec<&str> = of(TRITON, "driver.c", "asks").filter(|call| call.contains("Launch")).collect();
    assert_eq!(launches, ["cuLaunchKernelEx"]);
    assert!(driver::LAUNCHES.iter().any(|l| l.name().to_bytes() == b"cuLaunchKernelEx"));
    for module in of(TRITON, "driver.py", "builds") {
        let path = format!("/root/.triton/cache/ab/{module}.cpython-312-x86_64-linux-gnu.so");
        assert!(dlsym_hook::is_launcher(path.as_bytes()), "{path}");
    }
}
