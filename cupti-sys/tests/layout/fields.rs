// SPDX-License-Identifier: Apache-2.0
//! Every offset in `record` and `bindings` against `offsetof` of the real headers, and buffers
//! filled through NVIDIA's structs.

use std::fmt::Write;

use cupti_sys::bindings::{
    CUpti_CallbackData, CUpti_GraphData, CUpti_ModuleResourceData, CUpti_ResourceData,
};
use cupti_sys::record::{self, Field};
use cupti_sys::{kind, Release};

use crate::compile::run_with_headers;
use crate::wheels::Wheel;

/// A kind of record: NVIDIA's struct without its version, and what we say of it.
pub(crate) struct Form {
    pub(crate) kind: u32,
    pub(crate) stem: &'static str,
    pub(crate) fields: &'static [Field],
    pub(crate) needs: usize,
}

macro_rules! form {
    ($kind:ident, $stem:literal, $type:ident) => {
        Form { kind: kind::$kind, stem: $stem, fields: record::$type::FIELDS, needs: record::$type::NEEDS }
    };
}

/// Every form that the crate reads, in the order in which the walk meets them.
pub(crate) const FORMS: &[Form] = &[
    form!(CONCURRENT_KERNEL, "Kernel", Kernel),
    form!(MEMCPY, "Memcpy", Memcpy),
    form!(MEMCPY2, "MemcpyPtoP", MemcpyPeer),
    form!(MEMSET, "Memset", Memset),
    form!(SYNCHRONIZATION, "Synchronization", Synchronization),
    form!(RUNTIME, "API", Api),
    form!(DRIVER, "API", Api),
    form!(GRAPH_TRACE, "GraphTrace", GraphTrace),
    form!(OVERHEAD, "Overhead", Overhead),
    form!(CUDA_EVENT, "CudaEvent", CudaEvent),
    form!(CONTEXT, "Context", Context),
    form!(STREAM, "Stream", Stream),
    form!(DEVICE, "Device", Device),
    form!(KERNEL, "Kernel", Kernel),
];

/// The newest version of a struct in these headers: the one the library fills ("Kernel" ->
/// "CUpti_ActivityKernel9").
fn newest_struct(wheel: &Wheel, stem: &str) -> String {
    let header = wheel.header("cupti_activity.h");
    let versions = header.split("} CUpti_Activity").skip(1).filter_map(|rest| {
        let name = rest.split(';').next()?.trim();
        let version = name.strip_prefix(stem)?;
        if version.is_empty() {
            return Some(1_u32);
        }
        version.parse().ok()
    });
    match versions.max() {
        None => panic!("the headers of {} have no CUpti_Activity{stem}", wheel.release),
        Some(1) => format!("CUpti_Activity{stem}"),
        Some(version) => format!("CUpti_Activity{stem}{version}"),
    }
}

/// What a test writes into a field, so that no two fields agree in any byte but by chance.
pub(crate) fn value_of(form: &Form, field: &Field) -> u64 {
    let mut mixed = u64::from(form.kind).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (field.offset as u64) << 7;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    if field.size == 8 {
        mixed
    } else {
        mixed & ((1 << (field.size * 8)) - 1)
    }
}

/// A buffer with one record of every form, filled field by field through NVIDIA's structs by a
/// compiled C program; all other bytes are 0xA5, so a step can only come from the kind.
pub(crate) fn filled_by_nvidias_structs(wheel: &Wheel) -> Vec<u8> {
    let mut source = String::from(
        "#include <cupti.h>\n#include <stdio.h>\n#include <string.h>\n\
         static void put(void *to, size_t size, unsigned long long value) { memcpy(to, &value, size); }\n\
         int main(void) {\n",
    );
    for form in FORMS {
        let name = newest_struct(wheel, form.stem);
        writeln!(
            source,
            "{{ static {name} r; memset(&r, 0xA5, sizeof r); put(&r.kind, sizeof r.kind, {}u);",
            form.kind
        )
        .unwrap();
        for field in form.fields {
            let value = value_of(form, field);
            writeln!(source, "put(&r.{0}, sizeof r.{0}, {value}ull);", field.name).unwrap();
        }
        source.push_str("fwrite(&r, sizeof r, 1, stdout); }\n");
    }
    source.push_str("return 0; }\n");
    run_with_headers(wheel, "fill", &source)
}

/// `(what, number)` lines that a generated program prints with the release's headers.
fn numbers(wheel: &Wheel, name: &str, expressions: &[(String, String)]) -> Vec<(String, usize)> {
    let mut source =
        String::from("#include <cupti.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n");
    for (_, expression) in expressions {
        writeln!(source, "printf(\"%zu\\n\", (size_t)({expression}));").unwrap();
    }
    source.push_str("return 0; }\n");
    let output = String::from_utf8(run_with_headers(wheel, name, &source)).expect("numbers");
    let values: Vec<usize> = output.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(values.len(), expressions.len());
    expressions.iter().map(|(what, _)| what.clone()).zip(values).collect()
}

#[test]
fn every_field_lies_where_the_headers_of_every_release_put_it() {
    let Some(wheels) = Wheel::all() else { return };
    let mut checked = 0;
    for wheel in wheels {
        let mut expressions = Vec::new();
        let mut expected = Vec::new();
        for form in FORMS {
            let name = newest_struct(&wheel, form.stem);
            for field in form.fields {
                let what = format!("{} {name}.{}", wheel.release, field.name);
                expressions.push((format!("{what} offset"), format!("offsetof({name}, {})", field.name)));
                expressions.push((format!("{what} size"), format!("sizeof((({name} *)0)->{})", field.name)));
                expected.extend([field.offset, field.size]);
            }
        }
        let found = numbers(&wheel, "offsets", &expressions);
        for ((what, found), expected) in found.into_iter().zip(expected) {
            assert_eq!(found, expected, "{what}: NVIDIA says {found}, record.rs says {expected}");
            checked += 1;
        }
    }
    assert!(checked > 6 * 2 * 100, "only {checked} numbers were compared");
}

#[test]
fn the_size_table_is_that_of_the_headers_of_every_release() {
    let Some(wheels) = Wheel::all() else { return };
    for wheel in wheels {
        let release = release_of(&wheel);
        let known: Vec<&Form> =
            FORMS.iter().filter(|form| record::size(form.kind, release).is_some()).collect();
        assert!(known.len() >= 11, "{}: the table lacks kinds", wheel.release);
        let expressions: Vec<(String, String)> = known
            .iter()
            .map(|form| {
                let name = newest_struct(&wheel, form.stem);
                (format!("{} {name}", wheel.release), format!("sizeof({name})"))
            })
            .collect();
        for (form, (what, found)) in known.iter().zip(numbers(&wheel, "sizes", &expressions)) {
            assert_eq!(Some(found), record::size(form.kind, release), "{what}");
            assert!(found >= form.needs, "{what}");
            assert_eq!(found % record::ALIGNMENT, 0, "{what}");
        }
    }
}

#[test]
fn callback_structs_are_those_of_every_release() {
    let Some(wheels) = Wheel::all() else { return };
    macro_rules! offsets {
        ($($struct:ident { $($field:ident),* })*) => {
            vec![
                $($((concat!(stringify!($struct), ".", stringify!($field)),
                     concat!("offsetof(", stringify!($struct), ", ", stringify!($field), ")"),
                     std::mem::offset_of!($struct, $field)),)*
                  (stringify!($struct), concat!("sizeof(", stringify!($struct), ")"), size_of::<$struct>()),)*
            ]
        };
    }
    let ours = offsets! {
        CUpti_CallbackData {
            callbackSite, functionName, functionParams, functionReturnValue, symbolName, context, contextUid,
            correlationData, correlationId
        }
        CUpti_ResourceData { context, resourceHandle, resourceDescriptor }
        CUpti_ModuleResourceData { moduleId, cubinSize, pCubin }
        CUpti_GraphData { graph, originalGraph, node, originalNode, nodeType, dependency, graphExec }
    };
    for wheel in wheels {
        let expressions: Vec<(String, String)> = ours
            .iter()
            .map(|(what, expression, _)| (format!("{} {what}", wheel.release), (*expression).to_owned()))
            .collect();
        for ((what, found), (_, _, expected)) in
            numbers(&wheel, "callbacks", &expressions).into_iter().zip(&ours)
        {
            assert_eq!(found, *expected, "{what}");
        }
    }
}

/// A release by its folder's name.
pub(crate) fn release_of(wheel: &Wheel) -> Release {
    let (major, minor) = wheel.release.split_once('.').expect("a folder is named major.minor");
    let (major, minor) = (major.parse().expect("a number"), minor.parse().expect("a number"));
    Release { major, minor: Some(minor), last_minor: Some(minor) }
}
