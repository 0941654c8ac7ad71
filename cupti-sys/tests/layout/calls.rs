// SPDX-License-Identifier: Apache-2.0
//! Every number we use (callback ids, kinds, attributes, results ...) is the same in the headers of
//! every release that has it.

use std::collections::HashMap;

use cupti_sys::bindings::{
    attribute, channel_type, domain, external_correlation_kind, flag, kind, launch_type, memcpy_kind,
    memory_kind, overhead_kind, result, site, synchronization_type, thread_id_type,
};
use cupti_sys::cbid;

use crate::compile::run_with_headers;
use crate::wheels::Wheel;

/// C name without underscores and in capitals -> number, of every enumerator in a release's headers
/// that begins with CUPTI.
fn enumerators(wheel: &Wheel) -> HashMap<String, u32> {
    let files = [
        "cupti_activity.h",
        "cupti_callbacks.h",
        "cupti_result.h",
        "cupti_runtime_cbid.h",
        "cupti_driver_cbid.h",
    ];
    let text: String = files.iter().map(|file| wheel.header(file)).collect();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().split_once('=').map(|(name, _)| name.trim()))
        .filter(|name| {
            name.starts_with("CUPTI_") && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
        .collect();
    let mut source = String::from("#include <cupti.h>\n#include <stdio.h>\nint main(void) {\n");
    for name in &names {
        source.push_str(&format!("printf(\"%u\\n\", (unsigned){name});\n"));
    }
    source.push_str("return 0; }\n");
    let output = String::from_utf8(run_with_headers(wheel, "numbers", &source)).expect("numbers");
    let values = output.lines().map(|line| line.parse().expect("a number"));
    names.iter().map(|name| plain(name)).zip(values).collect()
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_uppercase()
}

/// `(C prefix, our name, our number)` of all our numbers.
fn ours() -> Vec<(&'static str, &'static str, u32)> {
    let tables: [(&str, &[(u32, &str)]); 17] = [
        ("CUPTI_ACTIVITY_KIND_", kind::NAMES),
        ("CUPTI_ACTIVITY_ATTR_", attribute::NAMES),
        ("CUPTI_", result::NAMES),
        ("CUPTI_CB_DOMAIN_", domain::NAMES),
        ("CUPTI_API_", site::NAMES),
        ("CUPTI_ACTIVITY_MEMCPY_KIND_", memcpy_kind::NAMES),
        ("CUPTI_ACTIVITY_MEMORY_KIND_", memory_kind::NAMES),
        ("CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_", synchronization_type::NAMES),
        ("CUPTI_ACTIVITY_OVERHEAD_", overhead_kind::NAMES),
        ("CUPTI_ACTIVITY_LAUNCH_TYPE_", launch_type::NAMES),
        ("CUPTI_CHANNEL_TYPE_", channel_type::NAMES),
        ("CUPTI_ACTIVITY_THREAD_ID_TYPE_", thread_id_type::NAMES),
        ("CUPTI_ACTIVITY_FLAG_", flag::NAMES),
        ("CUPTI_EXTERNAL_CORRELATION_KIND_", external_correlation_kind::NAMES),
        ("CUPTI_CBID_RESOURCE_", cbid::resource::NAMES),
        ("CUPTI_CBID_SYNCHRONIZE_", cbid::synchronize::NAMES),
        ("CUPTI_CBID_STATE_", cbid::state::NAMES),
    ];
    let mut all: Vec<(&str, &str, u32)> = tables
        .iter()
        .flat_map(|(prefix, names)| names.iter().map(|(number, name)| (*prefix, *name, *number)))
        .collect();
    for (prefix, groups) in [
        ("CUPTI_RUNTIME_TRACE_CBID_", cbid::runtime::GROUPS),
        ("CUPTI_DRIVER_TRACE_CBID_", cbid::driver::GROUPS),
    ] {
        all.extend(groups.iter().flat_map(|(_, calls)| calls.iter().map(|c| (prefix, c.variant, c.cbid))));
    }
    all
}

#[test]
fn every_number_is_the_same_in_every_release_that_has_it() {
    let Some(wheels) = Wheel::all() else { return };
    let ours = ours();
    for wheel in wheels {
        let theirs = enumerators(&wheel);
        let mut present = 0;
        for (prefix, name, number) in &ours {
            let Some(found) = theirs.get(&plain(&format!("{prefix}{name}"))) else {
                assert_ne!(wheel.release, "13.5", "{prefix}{name} is not in the headers it was made from");
                continue;
            };
            assert_eq!(found, number, "{} {prefix}{name}", wheel.release);
            present += 1;
        }
        assert!(present * 10 >= ours.len() * 8, "{}: only {present} of {} found", wheel.release, ours.len());
    }
}

#[test]
fn the_calls_every_trainer_makes_exist_from_the_oldest_release_on() {
    let Some(wheel) = Wheel::of("11.8") else { return };
    let theirs = enumerators(&wheel);
    for (name, number) in [
        ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000", 211),
        ("CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060", 430),
        ("CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020", 131),
        ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel", 307),
        ("CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx", 652),
    ] {
        assert_eq!(theirs.get(&plain(name)), Some(&number), "{name}");
    }
}
