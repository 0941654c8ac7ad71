// SPDX-License-Identifier: Apache-2.0
//! `gapprobe run CMD`: sets the preload, runs the command, and reports for it where it was
//! killed before it could.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::ValueHint;
use trace::setting;
use verdict::text::escape::word;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::preloadable::{self, Program};
use crate::verbs::process;
use crate::verbs::{output, recordings, talk};
use crate::Outcome;

mod crash;
mod left;
mod lost;
mod unused;

const EXAMPLES: &str = "\
Examples:
  gapprobe run python train.py --epochs 1
  gapprobe run --dir /tmp/traces torchrun --nproc-per-node 8 train.py
  gapprobe run --capture profiler ./simulate      from cudaProfilerStart() on";

/// The injected library's file name.
pub(crate) const LIBRARY: &str = "libgapprobe.so";

/// Run a command and say at its end why its GPU was idle
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory for trace and summary [default: GAPPROBE_DIR, else the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The library to inject [default: libgapprobe.so beside this command or in ../lib]
    #[arg(long, value_name = "FILE")]
    lib: Option<PathBuf>,
    /// Host memory for rings and buffers, MB (64 to 65536)
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    max_mb: Option<u32>,
    /// Longest time the end of the program may be held up, ms (0 to 600000)
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=600_000))]
    exit_ms: Option<u32>,
    /// When recording begins
    #[arg(long, value_parser = ["start", "profiler"])]
    capture: Option<String>,
    /// How CUDA graphs are recorded
    #[arg(long, value_parser = ["node", "graph"])]
    graph: Option<String>,
    /// The libcupti to use where the program has none
    #[arg(long, value_name = "FILE")]
    cupti: Option<PathBuf>,
    /// Print the line of every rank, not of rank 0 alone
    #[arg(long)]
    all_ranks: bool,
    /// Print nothing but what could not be written; trace and summary are written all the same
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments; options of gapprobe go before it
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let (name, rest) =
        args.command.split_first().ok_or_else(|| Failure::new(Exit::WrongUse, "no command given"))?;
    let library = match &args.lib {
        Some(path) => absolute(path)?,
        None => beside().ok_or_else(no_library)?,
    };
    check_library(&library)?;
    if let (Some(_), Some(Err(said))) = (&args.lib, loads(&library)) {
        let text = format!("{}: the loader does not take it: {said}", library.display());
        return Err(Failure::new(Exit::CannotRun, text).hint("--lib names the file libgapprobe.so"));
    }
    let may_record = check_program(name)?;
    let id = random_id();
    let mut command = Command::new(name);
    command.args(rest).env("LD_PRELOAD", preload(&library)).env(setting::RUN_ID, &id);
    settings(args, &mut command)?;

    let watch = if may_record { unused::Watch::begin(args, &library, &id) } else { None };
    process::forward_signals();
    let mut child = command.spawn().map_err(|e| cannot_start(name, &e))?;
    process::command_runs(child.id());
    process::wait_without_reaping(child.id());
    process::command_ended();
    let status =
        child.wait().map_err(|e| Failure::new(Exit::Problem, format!("waiting for the command: {e}")))?;

    if let Some(watch) = watch {
        let nothing = if watch.saw_nothing() { Some(unused::why(name, &id)) } else { watch.lost(&status) };
        nothing.into_iter().for_each(talk::say);
    }
    let talks = !args.quiet;
    crash::mark(&status, child.id(), &id, talks);
    left::report(args, &id, child.id(), status.signal());
    recordings::keep_within_limits();
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => ExitCode::from((128 + signal) as u8),
        (None, None) => Exit::Problem.into(),
    })
}

/// Tries whether the loader takes the library, with a program that does nothing; the first words of
/// what it says where not. `None`: there is no such program here, or it cannot be started.
pub(crate) fn loads(library: &Path) -> Option<Result<(), String>> {
    let program = preloadable::find("true", "/bin:/usr/bin")?;
    let output = Command::new(program).env("LD_PRELOAD", library).env(setting::SWITCH, "0").output().ok()?;
    if output.status.success() && output.stderr.is_empty() {
        return Some(Ok(()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Some(Err(said.lines().next().unwrap_or("it ends the program").to_owned()))
}

/// libgapprobe.so beside this executable, in the `lib` next to its folder, or where the wheel puts
/// it (`pip install --target` loses what is in `lib`).
pub(crate) fn beside() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok().or_else(as_called)?.canonicalize().ok()?;
    let folder = executable.parent()?;
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
        folder.join("../libexec/gapprobe").join(LIBRARY),
    ];
    places.iter().find_map(|p| p.canonicalize().ok())
}

/// This executable as it was called: where there is no /proc.
fn as_called() -> Option<PathBuf> {
    let name = std::env::args_os().next()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    preloadable::find(&name.to_string_lossy(), &path.to_string_lossy())
}

/// Where a library was looked for, and what brings it back.
pub(crate) const NOWHERE: (&str, &str) = (
    "libgapprobe.so is neither beside this command, nor in ../lib, nor in ../libexec/gapprobe",
    "pip install --force-reinstall gapprobe-*.whl, or scripts/build in a checkout",
);

fn no_library() -> Failure {
    let (what, hint) = NOWHERE;
    Failure::new(Exit::CannotRun, what.to_owned()).hint(format!("{hint}; or name it with --lib FILE"))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|e| {
        Failure::new(Exit::CannotRun, format!("{}: {e}", path.display()))
            .hint("--lib names the file libgapprobe.so")
    })
}

/// The library is one the loader can preload, under a path that LD_PRELOAD can hold.
fn check_library(library: &Path) -> Result<(), Failure> {
    let failure = |what: &str| Failure::new(Exit::CannotRun, format!("{}: {what}", library.display()));
    if library.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':' | b'\t' | b'\n')) {
        return Err(failure("LD_PRELOAD cannot hold a path with spaces or colons")
            .hint("move or link the library elsewhere"));
    }
    match preloadable::classify(library) {
        // a shared library has no loader of its own: to the classifier it looks static
        Ok(Program::Static | Program::Dynamic { .. }) => Ok(()),
        Ok(_) => Err(failure("not a 64-bit shared library").hint("--lib names the file libgapprobe.so")),
        Err(e) => Err(failure(&e.to_string())),
    }
}

/// Refuses, in one line, programs into which nothing of ours can be loaded. `false`: that nothing
/// will be recorded was said.
fn check_program(name: &OsStr) -> Result<bool, Failure> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/bin:/usr/bin".into());
    let shown = name.to_string_lossy();
    let Some(file) = preloadable::find(&shown, &path) else {
        return Err(cannot_start(name, &io::Error::from(io::ErrorKind::NotFound)));
    };
    // what cannot be read may still be run: the kernel decides
    let Ok((program, class)) = preloadable::resolve(&file, &path) else { return Ok(true) };
    let changes_user = program.metadata().is_ok_and(|m| m.permissions().mode() & 0o6000 != 0);
    if changes_user {
        let shown = program.display();
        talk::say(format!(
            "gapprobe: {shown} changes the user: the loader drops LD_PRELOAD, nothing will be recorded"
        ));
        talk::hint(&format!("the other way round: {} gapprobe run ...", name.to_string_lossy()));
    }
    let why = match class {
        Program::Static => "is linked statically: nothing can be loaded into it",
        Program::Musl => "uses musl: libgapprobe.so needs glibc",
        Program::Narrow => "is a 32-bit program: libgapprobe.so is a 64-bit library",
        Program::Dynamic { machine } if machine != preloadable::own_machine() => {
            "is for another kind of processor"
        }
        _ => return Ok(!changes_user),
    };
    Err(Failure::new(Exit::CannotRun, format!("{} {why}; not started", program.display())))
}

fn cannot_start(name: &OsStr, e: &io::Error) -> Failure {
    let is_file = Path::new(name).is_file();
    let name = name.to_string_lossy();
    match e.kind() {
        io::ErrorKind::NotFound => {
            let failure = Failure::new(Exit::NotFound, format!("{name}: command not found"));
            match is_file {
                true if name.ends_with(".py") => failure.hint(format!("gapprobe run python {}", word(&name))),
                true => failure.hint(format!("gapprobe run ./{}", word(&name))),
                false => failure,
            }
        }
        _ => Failure::new(Exit::NotExecutable, format!("{name}: {e}")),
    }
}

/// Ours first, then what was there.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(old) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// Options as settings; directories absolute, for the command may change its own.
fn settings(args: &Args, command: &mut Command) -> Result<(), Failure> {
    if let Some(dir) = &args.dir {
        let dir =
            std::path::absolute(dir).map_err(|e| Failure::new(Exit::WrongUse, format!("--dir: {e}")))?;
        output::is_directory(&dir, "--dir")?;
        process::within_file_limit(|| output::takes_files(&dir, "--dir"))?;
        command.env(setting::DIR, dir);
    }
    if let Some(cupti) = &args.cupti {
        let cupti = cupti.canonicalize().map_err(|e| {
            Failure::new(Exit::WrongUse, format!("--cupti: {}: {e}", cupti.display()))
                .hint("gapprobe doctor lists what there is")
        })?;
        command.env(setting::CUPTI, cupti);
    }
    for (name, value) in [
        (setting::MAX_MB, args.max_mb.map(|v| v.to_string())),
        (setting::EXIT_MS, args.exit_ms.map(|v| v.to_string())),
        (setting::CAPTURE, args.capture.clone()),
        (setting::GRAPH, args.graph.clone()),
        (setting::PRINT, args.all_ranks.then(|| "all".to_owned())),
        (setting::QUIET, args.quiet.then(|| "1".to_owned())),
    ] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    Ok(())
}

/// 64 random bits, in hexadecimal.
fn random_id() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}
