// SPDX-License-Identifier: Apache-2.0
// COLD
//! Signs of another tool that owns CUPTI in this process: nsys, ncu, nvprof, compute-sanitizer,
//! cuda-gdb. With any of them we stay off: two clients silence or break each other.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use trace::setting;

use crate::platform::environment;
use crate::sources::cupti::choose;

/// The tool that seems to be around, with the sign by which it was seen.
pub(crate) fn other_profiler() -> Option<(&'static str, &'static str)> {
    let mut variables = setting::PROFILERS.into_iter().map(|(tool, _, variable)| (tool, variable));
    if let Some(found) = variables.find(|(_, v)| environment::get(v).is_some()) {
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

pub(crate) use setting::{NCU_LAUNCHERS as ALONE, UNDER_NCU as UNDER};

fn is_named_so(executable: PathBuf) -> bool {
    executable.file_name().is_some_and(|name| ALONE.iter().any(|tool| name == *tool))
}

/// Is this process such a launcher, by its executable's name?
pub(crate) fn is_launcher_that_wants_to_be_alone() -> bool {
    is_named_so(std::fs::read_link("/proc/self/exe").unwrap_or_default())
}

/// By what this process is seen to be started by one that is still there.
pub(crate) fn under_one() -> Option<&'static str> {
    let seen = other_profiler().filter(|(tool, _)| *tool == "Nsight Compute").map(|(_, sign)| sign);
    let launcher = || environment::text(UNDER)?.parse::<u32>().ok();
    let is_there = |pid: u32| is_named_so(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default());
    seen.or_else(|| launcher().filter(|pid| is_there(*pid)).map(|_| UNDER))
}

/// Libraries that resolve CUPTI by dlsym and subscribe on their own: XLA (JAX, TensorFlow),
/// Triton's Proton; PyTorch's `_cuspy` through ctypes, and the modules of cupti-python, which lie
/// in `cupti/`, by CUPTI's V2 API. They are not reached by our exported wrappers: their `dlsym` is
/// led (`cupti::reroute`).
pub(crate) const DLSYM_CLIENTS: &[&str] =
    &["xla_cuda_plugin", "libtensorflow", "libproton", "/_ctypes.", "/cupti/"];

/// Is this path one of theirs? (Triton keeps its libcupti in a folder `cupti/`, too.)
pub(crate) fn is_dlsym_client(path: &[u8]) -> bool {
    DLSYM_CLIENTS.iter().any(|part| choose::holds(path, part)) && !choose::holds(path, "/libcupti.so")
}

/// A libcupti that Triton's Proton will open (its own, or that of its settings), where Proton is
/// mapped and that is another file than `ours`; and whether it has been opened. Two copies in a
/// process silence each other (H200).
pub(crate) fn cupti_of_proton(ours: Option<&Path>) -> Option<(PathBuf, bool)> {
    let proton = choose::find(&["/libproton."], 0)?;
    let bundled = proton.parent()?.parent()?.join("backends/nvidia/lib");
    let set = ["TRITON_CUPTI_LIB_PATH", "TRITON_CUPTI_LIB_BLACKWELL_PATH"].map(environment::path);
    let own = ["cupti", "cupti-blackwell"].map(|folder| bundled.join(folder)); // which of them is the GPU's to say
    let set: Vec<PathBuf> = set.into_iter().flatten().map(Path::to_path_buf).collect();
    let folders = if set.is_empty() { own.to_vec() } else { set };
    let file = |p: &Path| p.metadata().map(|m| (m.dev(), m.ino())).ok();
    let ours = ours.and_then(file);
    let others =
        folders.iter().map(|f| f.join("libcupti.so")).filter(|p| file(p).is_some() && file(p) != ours);
    let others: Vec<PathBuf> = others.collect();
    let is_open = |theirs: &PathBuf| choose::mapped().iter().any(|m| file(m) == file(theirs));
    let open = others.iter().find(|p| is_open(p));
    Some((open.or(others.first())?.clone(), open.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_a_client_by_its_own_folder_and_not_by_those_above() {
        for (path, is_client) in [
            ("/v/site-packages/cupti/cupti.cpython-312-x86_64-linux-gnu.so", true),
            ("/home/me/cupti/venv/lib/python3.12/site-packages/numpy/core/_multiarray.so", false),
            ("/v/site-packages/triton/backends/nvidia/lib/cupti/libcupti.so.13", false),
            ("/v/site-packages/triton/_C/libproton.so", true),
            ("/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so", true),
            ("cupti.so", false),
        ] {
            assert_eq!(is_dlsym_client(path.as_bytes()), is_client, "{path}");
        }
    }
}
