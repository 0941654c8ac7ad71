// SPDX-License-Identifier: Apache-2.0
// COLD
//! Who this process is to people: host, command line, rank. (To other processes, which ask whether
//! it still lives: `spool::liveness::own`.)

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::platform::environment;

static STARTED_IN: OnceLock<PathBuf> = OnceLock::new();

/// Remembers the current directory. In the constructor: a program may go elsewhere, and what it
/// names by a relative path (code of its main file, up to Python 3.8; GAPPROBE_DIR) is relative to
/// where it was started.
pub(crate) fn remember_directory() {
    if let Ok(directory) = std::env::current_dir() {
        STARTED_IN.get_or_init(|| directory);
    }
}

/// The directory the program was started in, where it could be told.
pub(crate) fn started_in() -> Option<&'static PathBuf> {
    STARTED_IN.get()
}

/// Rank, world size and local rank where a launcher's variables tell them (torchrun, Slurm, Open
/// MPI, PMI).
pub(crate) fn ranks() -> (Option<u32>, Option<u32>, Option<u32>) {
    let families = [
        ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
        ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
        ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
    ];
    let number = |name: &str| environment::text(name).and_then(|t| t.trim().parse().ok());
    families
        .into_iter()
        .map(|[rank, size, local]| (number(rank), number(size), number(local)))
        .find(|(rank, size, _)| rank.is_some() && size.is_some())
        .unwrap_or((None, None, None))
}

/// What the batch system, else the launcher, calls this job; `None` where neither says.
pub(crate) fn job() -> Option<&'static str> {
    let names = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"];
    let given = names.into_iter().filter_map(environment::text).map(str::trim);
    // torchrun calls a run without --rdzv-id "none"
    given.filter(|job| !job.is_empty() && *job != "none").map(|job| job.get(..128).unwrap_or(job)).next()
}

/// The host's name, cut at the first dot; "host" where unknown.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let short: String = name
        .trim()
        .split('.')
        .next()
        .unwrap_or("")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_')
        .take(48)
        .collect();
    if short.is_empty() {
        "host".to_owned()
    } else {
        short
    }
}

/// The command line, arguments separated by spaces.
pub(crate) fn command() -> String {
    let raw = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let spaced: Vec<u8> = raw.iter().map(|&b| if b == 0 { b' ' } else { b }).take(2048).collect();
    String::from_utf8_lossy(&spaced).trim().to_owned()
}

/// What the program was called by: its first argument. Empty where it has none.
pub(crate) fn called_by() -> PathBuf {
    let raw = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let first = raw.split(|b| *b == 0).next().unwrap_or_default();
    PathBuf::from(OsStr::from_bytes(first))
}

/// CPUs this process may run on.
pub(crate) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(0, |n| n.get() as u32)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_can_be_named() {
        assert!(!super::command().is_empty());
    }
}
