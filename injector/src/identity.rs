// SPDX-License-Identifier: Apache-2.0
// COLD
//! Who this process is: host, boot, pid namespace, start time, command line, rank. Stored in the
//! recording so that a later process can tell which recording belongs to whom, and whether its
//! writer still lives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::environment;

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

/// Random id of this boot, zero where unknown.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        if let [high, low] = pair {
            *byte = high << 4 | low;
        }
    }
    id
}

/// Inode of the pid namespace, 0 where unknown.
pub(crate) fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// Clock ticks from boot to the start of this process (field 22 of /proc/self/stat), 0 where
/// unknown.
pub(crate) fn process_start() -> u64 {
    start_in(&std::fs::read("/proc/self/stat").unwrap_or_default())
}

fn start_in(stat: &[u8]) -> u64 {
    // the command name may hold anything, half a letter too; and spaces and parentheses: fields
    // count from the last one
    let stat = String::from_utf8_lossy(stat);
    let after = stat.rsplit(')').next().unwrap_or("");
    after.split_whitespace().nth(19).and_then(|f| f.parse().ok()).unwrap_or(0)
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
    fn a_name_that_is_cut_within_a_letter_hides_nothing() {
        let stat =
            |name: &[u8]| [b"7 (", name, b") S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 8 9"].concat();
        for name in [&b"python"[..], b"a ) (b", b"\xd0\xbe\xd0\xb1\xd1"] {
            assert_eq!(super::start_in(&stat(name)), 4711);
        }
        assert_eq!(super::start_in(b""), 0);
    }

    #[test]
    fn this_process_can_be_named() {
        assert!(super::process_start() > 0);
        assert!(super::pid_namespace() > 0);
        assert_ne!(super::boot_id(), [0; 16]);
        assert!(!super::command().is_empty());
    }
}
