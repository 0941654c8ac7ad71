// SPDX-License-Identifier: Apache-2.0
// COLD
//! Signs of another tool that owns CUPTI in this process: nsys, ncu, nvprof, compute-sanitizer, cuda-gdb.
//! With any of them we stay off: two clients silence or break each other (CUPTI.md 2.5).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cupti::choose;
use crate::environment;

/// The tool that seems to be around, with the sign by which it was seen.
pub(crate) fn other_profiler() -> Option<(&'static str, &'static str)> {
    let variables = [
        ("Nsight Systems", "NSYS_PROFILING_SESSION_ID"),
        ("Nsight Systems", "NSYSDK_INJECTION64_PATH"),
        ("Nsight Systems", "NSYS_TARGET_STD_REDIRECT_ACTION"),
        ("Nsight Systems", "QUADD_INJECTION_PROXY"),
        ("Nsight Compute", "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"),
        ("Nsight Compute", "NV_NSIGHT_INJECTION_PORT_BASE"),
        ("nvprof", "NVPROF_ID"),
        // read off its binaries (13.5): set by the launcher, read by what it injects
        ("compute-sanitizer", "NV_SANITIZER_INJECTION_TRANSPORT_TYPE"),
        ("compute-sanitizer", "NV_SANITIZER_INJECTION_PORT_BASE"),
    ];
    if let Some(found) = variables.into_iter().find(|(_, v)| environment::get(v).is_some()) {
        return Some(found);
    }
    let tools = [
        ("Nsight Systems", "libToolsInjection"),
        ("compute-sanitizer", "libsanitizer-collection"),
        ("compute-sanitizer", "libTreeLauncher"),
    ];
    for variable in ["CUDA_INJECTION64_PATH", "LD_PRELOAD"] {
        let value = environment::text(variable).unwrap_or("");
        if let Some(found) = tools.into_iter().find(|(_, sign)| value.contains(sign)) {
            return Some(found);
        }
    }
    None
}

/// Launchers that start nothing where `CUDA_INJECTION64_PATH` is set: Nsight Compute's ("Another tool/injection might be loaded", 2025.3 on an H100).
const ALONE: &[&str] = &["ncu", "nv-nsight-cu-cli"];
/// Set by us in such a launcher for all that it starts.
pub(crate) const UNDER: &str = "GAPPROBE_UNDER_NCU";

/// Is this process such a launcher, by its executable's name?
pub(crate) fn is_launcher_that_wants_to_be_alone() -> bool {
    let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    executable.file_name().is_some_and(|name| ALONE.iter().any(|tool| name == *tool))
}

/// By what this process is seen to be started by one.
pub(crate) fn under_one() -> Option<&'static str> {
    let seen = other_profiler().filter(|(tool, _)| *tool == "Nsight Compute").map(|(_, sign)| sign);
    seen.or_else(|| environment::get(UNDER).map(|_| UNDER))
}

/// Libraries that resolve CUPTI by dlsym and subscribe on their own: XLA (JAX, TensorFlow), Triton's Proton.
/// They are not reached by our exported wrappers, so we leave them the subscription.
pub(crate) const DLSYM_CLIENTS: &[&str] =
    &["xla_cuda_plugin", "libtensorflow", "libproton", "_cuspy", "cupti_python"];

/// The libcupti that Triton's Proton will open (its own, or that of `TRITON_CUPTI_LIB_PATH`), where Proton is mapped and that is another file than `ours`.
/// Two copies in a process silence each other (H200).
pub(crate) fn cupti_of_proton(ours: &Path) -> Option<PathBuf> {
    let proton = choose::find(&["/libproton."], 0)?;
    let bundled = proton.parent()?.parent()?.join("backends/nvidia/lib");
    let own = ["cupti", "cupti-blackwell"].map(|folder| bundled.join(folder));
    let folders = environment::path("TRITON_CUPTI_LIB_PATH").map(Path::to_path_buf).into_iter().chain(own);
    let theirs = folders.map(|f| f.join("libcupti.so")).find(|p| p.exists())?;
    let file = |p: &Path| p.metadata().map(|m| (m.dev(), m.ino())).ok();
    (file(&theirs) != file(ours)).then_some(theirs)
}
