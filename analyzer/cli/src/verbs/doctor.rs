// SPDX-License-Identifier: Apache-2.0
//! `gapprobe doctor`: is everything there that a recording needs? Each check says what it found
//! and, where that is a problem, the one thing to do. Changes nothing.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trace::setting::{self, Switch};
use verdict::text::escape::visible;

use crate::verbs::exit::Exit;
use crate::verbs::process::glibc_version;
use crate::verbs::{run as run_verb, talk};
use crate::Outcome;

/// Version of the keys of `--json`.
const DOCTOR_VERSION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  gapprobe doctor
  gapprobe doctor --json | jq '.checks[] | select(.state == \"problem\")'";

/// Check that everything needed is there; exit code 1 if not
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

mod cupti;
mod folders;
mod settings;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ok,
    Note,
    Problem,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "problem",
        })
    }
}

/// What one check found.
#[derive(Debug)]
struct Finding {
    state: State,
    subject: &'static str,
    text: String,
    fix: Option<String>,
}

fn ok(subject: &'static str, text: impl Into<String>) -> Finding {
    Finding { state: State::Ok, subject, text: text.into(), fix: None }
}

fn note(subject: &'static str, text: impl Into<String>) -> Finding {
    Finding { state: State::Note, subject, text: text.into(), fix: None }
}

fn problem(subject: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { state: State::Problem, subject, text: text.into(), fix: Some(fix.into()) }
}

/// Runs all checks and prints them.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut all = vec![driver(), device()];
    all.extend(cupti::check());
    all.extend(switch());
    all.extend(settings::check());
    all.extend(other_holders());
    all.push(counters());
    all.extend(folders::check());
    all.extend(processes());
    all.push(glibc());
    all.push(library());
    if args.json {
        let rows: Vec<_> = all
            .iter()
            .map(|f| {
                serde_json::json!({"state": f.state.to_string(), "subject": f.subject, "text": f.text, "fix": f.fix})
            })
            .collect();
        let object = serde_json::json!({"doctor_version": DOCTOR_VERSION, "checks": rows});
        talk::print_json(format!("{object:#}"))?;
    } else {
        for f in &all {
            talk::print(format!("{:<8} {:<10} {}", f.state, f.subject, visible(&f.text)))?;
            if let Some(fix) = &f.fix {
                talk::print(format!("{:>19} fix: {}", "", visible(fix)))?;
            }
        }
    }
    let bad = all.iter().any(|f| f.state == State::Problem);
    Ok(if bad { Exit::Problem } else { Exit::Ok })
}

/// Where the kernel tells of processes.
fn processes() -> Option<Finding> {
    (!Path::new("/proc/self/stat").exists()).then(|| {
        let what = "/proc is not mounted: what workers and other threads do is not seen, nor which processes are recorded";
        problem("proc", what, "mount -t proc proc /proc, in the container")
    })
}

/// Folders the loader searches for libcuda, besides its cache.
const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
];

fn find_library(name: &str) -> Option<PathBuf> {
    let listed = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = listed.split(':').filter(|f| !f.is_empty()).chain(LIBRARY_FOLDERS.iter().copied());
    folders.map(|f| Path::new(f).join(name)).find(|p| p.exists()).or_else(|| {
        let cache = Command::new("/sbin/ldconfig").arg("-p").stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&cache.stdout).into_owned();
        let line = text.lines().find(|l| l.trim_start().starts_with(name))?;
        Some(PathBuf::from(line.rsplit("=> ").next()?.trim()))
    })
}

/// `580.159.03` out of `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03
/// Release Build ...`.
fn module_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|l| l.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|w| {
        w.contains('.')
            && w.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn driver() -> Finding {
    let module = fs::read_to_string("/proc/driver/nvidia/version").ok();
    let version = module.as_deref().and_then(module_version);
    match (find_library("libcuda.so.1"), version) {
        (Some(path), Some(version)) => ok("driver", format!("NVIDIA {version}, {}", path.display())),
        (Some(path), None) => problem(
            "driver",
            format!(
                "{} is there, but the kernel module is not loaded (no /proc/driver/nvidia/version)",
                path.display()
            ),
            "on a GPU machine: nvidia-smi says why; in a container: start it with --gpus all",
        ),
        (None, Some(version)) => problem(
            "driver",
            format!("kernel module {version} is loaded, but libcuda.so.1 is not found"),
            "in a container: set NVIDIA_DRIVER_CAPABILITIES=compute,utility and start it with --gpus all",
        ),
        (None, None) => problem(
            "driver",
            "no NVIDIA driver (no libcuda.so.1, no kernel module)",
            "record on a machine with an NVIDIA GPU; traces are read anywhere (gapprobe analyze)",
        ),
    }
}

fn device() -> Finding {
    let devices: Vec<_> = fs::read_dir("/dev")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| {
            e.file_name()
                .to_str()
                .and_then(|n| n.strip_prefix("nvidia"))
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
        .map(|e| e.path())
        .collect();
    let closed = devices.iter().find(|d| fs::OpenOptions::new().read(true).write(true).open(d).is_err());
    match (devices.len(), closed) {
        (0, _) => problem(
            "device",
            "no /dev/nvidia0",
            "in a container: start it with --gpus all; else load the driver: nvidia-modprobe",
        ),
        (_, Some(d)) => problem(
            "device",
            format!("{} cannot be opened", d.display()),
            "ask for access to the device: its group is shown by ls -l /dev/nvidia*",
        ),
        (n, None) => ok("device", format!("{n} GPU device(s), open to you")),
    }
}

/// Is ncu around by the sign that gapprobe leaves in what it starts? One that has ended is no
/// reason to stay off.
fn is_under_ncu() -> bool {
    let pid = std::env::var(setting::UNDER_NCU).ok().and_then(|v| v.parse::<u32>().ok());
    let executable = pid.and_then(|pid| fs::read_link(format!("/proc/{pid}/exe")).ok()).unwrap_or_default();
    executable.file_name().is_some_and(|name| setting::NCU_LAUNCHERS.iter().any(|tool| name == *tool))
}

fn other_holders() -> Vec<Finding> {
    let mut all = Vec::new();
    let is_set = |(_, _, name): &(_, _, &str)| std::env::var_os(name).is_some();
    let holder = setting::PROFILERS.into_iter().find(is_set).map(|(_, tool, name)| (name, tool));
    if let Some((name, tool)) = holder.or_else(|| is_under_ncu().then_some((setting::UNDER_NCU, "ncu"))) {
        let what = if tool == "compute-sanitizer" { "the driver's hooks" } else { "CUPTI" };
        all.push(problem(
            "others",
            format!("{name} is set: {tool} holds {what} here, gapprobe would stay off"),
            format!("run outside of {tool} (unset {name})"),
        ));
    }
    for name in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"] {
        let value = std::env::var(name).unwrap_or_default();
        let ours = Path::new(&value).file_name().is_some_and(|n| n == run_verb::LIBRARY);
        if !value.is_empty() && value != "none" && !ours {
            all.push(problem("others", format!("{name} is taken by {value}"), format!("unset {name}")));
        }
    }
    if all.is_empty() {
        all.push(ok("others", "no other profiler announced in the environment"));
    }
    all
}

/// Does `GAPPROBE` in this environment let programs be recorded?
fn switch() -> Option<Finding> {
    let value = std::env::var_os(setting::SWITCH)?;
    let shown = format!("{}={}", setting::SWITCH, value.to_string_lossy());
    match Switch::of(Some(value.as_bytes())) {
        Switch::Unset | Switch::On => None,
        Switch::Off => Some(note("switch", format!("{shown}: programs started from here are not recorded"))),
        Switch::Neither => Some(problem(
            "switch",
            format!("{shown} is neither 1 (on) nor 0 (off): programs started from here are not recorded"),
            format!("unset {}", setting::SWITCH),
        )),
    }
}

/// The driver's switch for the counters that `ncu` reads, which the line of a GPU-bound run may
/// advise; ours are NVML's.
fn counters() -> Finding {
    let parameters = fs::read_to_string("/proc/driver/nvidia/params").unwrap_or_default();
    match parameters.lines().find_map(|l| l.strip_prefix("RmProfilingAdminOnly:")).map(str::trim) {
        Some("1") => note(
            "counters",
            "for administrators only (RmProfilingAdminOnly 1): ncu needs root; gapprobe does not",
        ),
        Some(_) => ok("counters", "open to users: ncu needs no root, nor does gapprobe"),
        None => {
            note("counters", "unknown (no /proc/driver/nvidia/params): ncu may need root; gapprobe does not")
        }
    }
}

/// The oldest glibc the library runs with.
const GLIBC: (u32, u32) = (2, 28);

fn glibc() -> Finding {
    let version = glibc_version();
    let mut parts = version.split('.').map_while(|p| p.parse::<u32>().ok());
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if number >= GLIBC {
        ok("glibc", version)
    } else {
        problem(
            "glibc",
            format!("{version}, {}.{} is needed", GLIBC.0, GLIBC.1),
            "run in a container of a newer distribution (Debian 10 or later)",
        )
    }
}

fn library() -> Finding {
    let Some(path) = run_verb::beside() else {
        let (what, hint) = run_verb::NOWHERE;
        return problem("library", what.to_owned(), hint);
    };
    // the loader itself is asked
    match run_verb::loads(&path) {
        Some(Ok(())) => ok("library", path.display().to_string()),
        Some(Err(first)) => problem(
            "library",
            format!("{} does not load: {first}", path.display()),
            "build it on this machine: scripts/build",
        ),
        None => note("library", format!("{} (not tried: no `true` here)", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_version_is_found_in_both_flavours() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (dvs@x)  Mon\nGCC version: 12.3.0";
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12";
        assert_eq!(module_version(open), Some("580.159.03"));
        assert_eq!(module_version(closed), Some("535.183.01"));
        assert_eq!(module_version("GCC version: 12.3.0"), None);
    }
}
