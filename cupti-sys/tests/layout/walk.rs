// SPDX-License-Identifier: Apache-2.0
//! The library's own `cuptiActivityGetNextRecord` walks a buffer that was filled through NVIDIA's
//! structs.
//!
//! Each library runs in a child: this test binary again, with one ignored test of it as the child's
//! main. The child finds a libcuda of ours first on its library path: from 13.2 on CUPTI asks the
//! driver for a table before it does anything, and without one 13.2 recurses until its stack ends
//! and 13.3 and newer answer 999.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use cupti_sys::{kind, record, release_from, Cupti, CuptiResult, Release};

use crate::compile::{directory, gcc};
use crate::fields::{filled_by_nvidias_structs, release_of, value_of, FORMS};
use crate::symbols::functions;
use crate::wheels::{Wheel, REQUIRED};

/// Tells the child which release to walk.
const RELEASE: &str = "GAPPROBE_LAYOUT_RELEASE";

/// What the child must say when it has walked; a child that ran no test says nothing.
const WALKED: &str = "walked every record";

/// A libcuda with nothing behind it: `cuGetExportTable` hands out a table that says (first word:
/// its size in bytes) it has seven functions, fewer than CUPTI looks for, so CUPTI uses its own.
const STAND_IN: &str = r"
static long nothing(void) { return 0; }
static const void *const table[8] = {
    (const void *)sizeof table, (const void *)nothing, (const void *)nothing, (const void *)nothing,
    (const void *)nothing, (const void *)nothing, (const void *)nothing, (const void *)nothing,
};
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *version) { *version = 13050; return 0; }
int cuGetExportTable(const void **out, const void *id) { (void)id; *out = table; return 0; }
int cuDeviceGet(int *device, int ordinal) { (void)ordinal; *device = 0; return 100; }
int cuDeviceGetCount(int *count) { *count = 0; return 0; }
int cuDeviceGetAttribute(int *value, int name, int device) { (void)name; (void)device; *value = 0; return 101; }
int cuDeviceGetPCIBusId(char *text, int size, int device) { (void)text; (void)size; (void)device; return 101; }
";

/// A directory with a libcuda.so.1 in it, gone when the test is.
struct Libcuda(PathBuf);

impl Libcuda {
    /// The stand-in: CUPTI works as far as it can without a GPU.
    fn stand_in() -> Self {
        let directory = directory("stand-in");
        let library = directory.join("libcuda.so.1").display().to_string();
        gcc(&directory, STAND_IN, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", &library]);
        Self(directory)
    }

    /// One that cannot be loaded: no driver, on any machine.
    fn absent() -> Self {
        let directory = directory("no-driver");
        std::fs::write(directory.join("libcuda.so.1"), b"").expect("our own directory");
        Self(directory)
    }
}

impl Drop for Libcuda {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Walks a release in a process of its own that finds `libcuda` first.
fn child(release: &str, libcuda: &Libcuda) -> Output {
    Command::new(std::env::current_exe().expect("this test binary"))
        .args(["--exact", "walk::as_child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(RELEASE, release)
        .env("LD_LIBRARY_PATH", &libcuda.0)
        .output()
        .expect("this test binary runs")
}

fn assert_walks(release: &str) {
    if Wheel::of(release).is_none() {
        return;
    }
    let output = child(release, &Libcuda::stand_in());
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if let Some(signal) = output.status.signal() {
        panic!("CUPTI {release} died of signal {signal}:\n{said}");
    }
    assert!(output.status.success(), "CUPTI {release}:\n{said}");
    assert!(said.contains(WALKED), "CUPTI {release} walked nothing:\n{said}");
}

macro_rules! releases {
    ($($test:ident $release:literal;)*) => {
        $(#[test]
        fn $test() {
            assert_walks($release);
        })*

        #[test]
        fn every_required_release_has_a_test() {
            assert_eq!([$($release),*], REQUIRED);
        }
    };
}

releases! {
    cupti_11_8_walks_and_reads_as_the_table_says "11.8";
    cupti_12_4_walks_and_reads_as_the_table_says "12.4";
    cupti_12_9_walks_and_reads_as_the_table_says "12.9";
    cupti_13_0_walks_and_reads_as_the_table_says "13.0";
    cupti_13_2_walks_and_reads_as_the_table_says "13.2";
    cupti_13_5_walks_and_reads_as_the_table_says "13.5";
}

#[test]
fn so_does_every_other_release_in_the_cache() {
    let Some(wheels) = Wheel::all() else { return };
    for wheel in wheels.iter().filter(|wheel| !REQUIRED.contains(&wheel.release.as_str())) {
        assert_walks(&wheel.release);
    }
}

/// Why no `cupti*` function may be called before libcuda is mapped.
#[test]
fn without_a_driver_old_releases_walk_one_crashes_and_the_newest_refuses() {
    if Wheel::all().is_none() {
        return;
    }
    let libcuda = Libcuda::absent();
    for release in ["11.8", "12.4", "12.9", "13.0"] {
        let output = child(release, &libcuda);
        assert!(output.status.success(), "CUPTI {release}: {output:?}");
    }
    let crashed = child("13.2", &libcuda);
    // It calls itself until the stack ends: SIGSEGV, which Rust's own handler turns into SIGABRT.
    let signal = crashed.status.signal();
    assert!(matches!(signal, Some(libc::SIGSEGV | libc::SIGABRT)), "CUPTI 13.2: {crashed:?}");
    let refused = child("13.5", &libcuda);
    assert!(!refused.status.success() && refused.status.signal().is_none(), "CUPTI 13.5: {refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("ERROR_UNKNOWN (999)"),
        "CUPTI 13.5: {refused:?}"
    );
}

/// The child's main: everything that calls into a real CUPTI.
#[test]
#[ignore = "the other tests run it in a process of its own, with the release in the environment"]
fn as_child() {
    let Ok(release) = std::env::var(RELEASE) else { return };
    let wheel = Wheel::of(&release).expect("the other tests looked for it");
    let cupti = functions(&wheel);

    let mut version = 0;
    // SAFETY: a function of a real libcupti; the child is there to see whether it survives.
    let answer = unsafe { (cupti.get_version)(&raw mut version) };
    assert_eq!(answer, CuptiResult::SUCCESS, "cuptiGetVersion: {answer}");
    let library = wheel.library.file_name().and_then(|name| name.to_str()).expect("a name");
    let told = release_from(version, library);
    let own = release_of(&wheel);
    assert_eq!(told.major, own.major, "{library} says {version}");
    assert!(told.minor <= own.minor && own.minor <= told.last_minor, "{library} says {version}: {told}");

    // Aligned as CUPTI's own buffers are.
    let filled = filled_by_nvidias_structs(&wheel);
    let mut buffer = vec![0_u64; filled.len().div_ceil(8)];
    for (word, bytes) in buffer.iter_mut().zip(filled.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    assert_eq!(buffer.len() * 8, filled.len(), "records are multiples of eight bytes");

    let mut walked = Vec::new();
    // SAFETY: the buffer is ours, aligned, and as long as what it was filled from.
    let end = unsafe {
        cupti.for_each_record(buffer.as_mut_ptr().cast(), filled.len(), |record| {
            walked.push((filled.len() - record.len(), record.to_vec()));
        })
    };
    assert_eq!(end, CuptiResult::NO_MORE_RECORDS, "after {} records: {end}", walked.len());
    assert_eq!(walked.len(), FORMS.len());

    let ends = walked.iter().skip(1).map(|(offset, _)| *offset).chain([filled.len()]);
    for ((form, (offset, bytes)), end) in FORMS.iter().zip(&walked).zip(ends) {
        assert_eq!(record::kind_of(bytes), Some(form.kind));
        for field in form.fields {
            let mut value = [0_u8; 8];
            value[..field.size].copy_from_slice(&bytes[field.offset..field.offset + field.size]);
            let what = format!("CUpti_Activity{}.{}", form.stem, field.name);
            assert_eq!(u64::from_ne_bytes(value), value_of(form, field), "{what} reads back wrong");
        }
        assert_reads(form.kind, bytes);
        assert_step(&cupti, form.kind, own, end - offset);
    }

    // Bytes that are no record end the walk with an error, not with a wild step.
    let mut nonsense = [u64::MAX; 32];
    // SAFETY: a buffer of our own.
    let end = unsafe { cupti.for_each_record(nonsense.as_mut_ptr().cast(), 256, |_| panic!("a record?")) };
    assert_ne!(end, CuptiResult::SUCCESS);
    assert_ne!(end, CuptiResult::NO_MORE_RECORDS);
    println!("{WALKED} of CUPTI {release}");
}

/// The step the library made is that of our table, where it has the kind, and of its own word,
/// where it gives one.
fn assert_step(cupti: &Cupti, kind: u32, release: Release, step: usize) {
    if let Some(table) = record::size(kind, release) {
        assert_eq!(step, table, "kind {kind}: the library's step and the table disagree");
    }
    if let Some(function) = cupti.activity_get_struct_size {
        let mut size = 0;
        // SAFETY: a function of a real libcupti, 0 = this library's own version.
        let answer = unsafe { function(kind, 0, &raw mut size) };
        assert_eq!(answer, CuptiResult::SUCCESS, "cuptiActivityGetStructSize({kind}): {answer}");
        assert_eq!(step, size, "kind {kind}: the library's step and its word disagree");
    }
}

/// The typed reader of a kind gives the values that were put in (a field of it; the rest is held by
/// offset above).
fn assert_reads(kind: u32, bytes: &[u8]) {
    let form = FORMS.iter().find(|form| form.kind == kind).expect("a form");
    let expected = |name: &str| {
        let field = form.fields.iter().find(|field| field.name == name).expect("a field of this form");
        value_of(form, field)
    };
    let (name, found) = match kind {
        kind::KERNEL | kind::CONCURRENT_KERNEL => ("end", record::Kernel::read(bytes).unwrap().end),
        kind::MEMCPY => ("bytes", record::Memcpy::read(bytes).unwrap().bytes),
        kind::MEMCPY2 => ("correlationId", record::MemcpyPeer::read(bytes).unwrap().correlation.into()),
        kind::MEMSET => ("memoryKind", record::Memset::read(bytes).unwrap().memory_kind.into()),
        kind::SYNCHRONIZATION => ("streamId", record::Synchronization::read(bytes).unwrap().stream.into()),
        kind::RUNTIME | kind::DRIVER => {
            ("returnValue", record::Api::read(bytes).unwrap().return_value.into())
        }
        kind::GRAPH_TRACE => ("graphId", record::GraphTrace::read(bytes).unwrap().graph.into()),
        kind::OVERHEAD => ("objectId.dcs.streamId", record::Overhead::read(bytes).unwrap().object_c.into()),
        kind::CUDA_EVENT => ("eventId", record::CudaEvent::read(bytes).unwrap().event.into()),
        kind::CONTEXT => ("nullStreamId", record::Context::read(bytes).unwrap().null_stream.into()),
        kind::STREAM => ("flag", record::Stream::read(bytes).unwrap().flag.into()),
        kind::DEVICE => ("name", record::Device::read(bytes).unwrap().name),
        other => panic!("no reader for kind {other}"),
    };
    assert_eq!(found, expected(name), "kind {kind}: {name}");
}
