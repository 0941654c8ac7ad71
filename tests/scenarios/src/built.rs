// SPDX-License-Identifier: Apache-2.0
//! Builds what the scenarios need, once a change: the library, the simulated driver, the victims of
//! this folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where everything lies.
pub struct Built {
    /// The library under test.
    pub library: PathBuf,
    /// The command.
    pub command: PathBuf,
    /// The simulated driver: a folder for each release.
    pub sim: PathBuf,
    /// Victims of `tests/scenarios/victims`: a folder for each release.
    pub victims: PathBuf,
    /// A folder for what runs leave.
    pub scratch: PathBuf,
}

impl Built {
    /// Both in `folder`, as an installed command has its library beside it. The command's path.
    pub fn installed(&self, folder: &Path) -> PathBuf {
        std::fs::create_dir_all(folder).expect("a folder");
        let command = folder.join("gapprobe");
        std::fs::copy(&self.command, &command).expect("the command");
        std::fs::copy(&self.library, folder.join("libgapprobe.so")).expect("the library");
        command
    }
}

/// The repository.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        here.canonicalize().expect("the repository's root")
    })
}

/// Cargo's target folder: this test binary lies in TARGET/PROFILE/deps.
pub fn target() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    own.ancestors().nth(3).expect("TARGET/PROFILE/deps/scenarios").to_owned()
}

/// Builds what is missing or older than its sources. `GAPPROBE_TEST_LIBRARY` and
/// `GAPPROBE_TEST_COMMAND` name a library and a command `gapprobe` built elsewhere.
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = target();
        let scratch = target.join("tmp/scenarios");
        std::fs::create_dir_all(&scratch).expect("scratch folder");
        let _lock = Lock::take(&scratch.join("lock"));
        let elsewhere = |variable: &str, package: &str, file: &str| match std::env::var_os(variable) {
            Some(path) => PathBuf::from(path).canonicalize().expect("a file that is there"),
            None => {
                must(
                    Command::new(env!("CARGO"))
                        .args(["build", "-q", "--release", "-p", package])
                        .current_dir(root())
                        .env("CARGO_TARGET_DIR", &target),
                );
                target.join("release").join(file)
            }
        };
        let library = elsewhere("GAPPROBE_TEST_LIBRARY", "gapprobe-injector", "libgapprobe.so");
        let command = elsewhere("GAPPROBE_TEST_COMMAND", "gapprobe-cli", "gapprobe");
        let (sim, victims) = (target.join("scenarios-sim"), target.join("scenarios-victims"));
        let stamp = scratch.join("stamp");
        let sources = [
            "tests/sim/src",
            "tests/sim/shim",
            "tests/victims",
            "tests/scenarios/victims",
            "tests/scenarios/src/built.rs",
            "include",
            "scripts/sim-build",
        ];
        let newest = sources.iter().map(|s| newest(&root().join(s))).max().unwrap_or(0).to_string();
        if std::fs::read_to_string(&stamp).ok().as_ref() != Some(&newest) {
            must(Command::new(root().join("scripts/sim-build")).arg(&sim).env("CARGO_TARGET_DIR", &target));
            std::thread::scope(|s| {
                for release in crate::RELEASES {
                    let (sim, victims) = (sim.join(release), victims.join(release));
                    s.spawn(move || victims_of_ours(&sim, &victims));
                }
            });
            std::fs::write(&stamp, newest).expect("stamp");
        }
        Built { library, command, sim, victims, scratch }
    })
}

/// What LD_PRELOAD holds: the library, behind a sanitizer's runtime where it was built with one
/// (`scripts/sanitizers`).
pub fn preload() -> OsString {
    let mut all = runtime().map_or(OsString::new(), |r| [r, " ".into()].into_iter().collect());
    all.push(&built().library);
    all
}

/// That runtime (`GAPPROBE_TEST_RUNTIME`), which a program that is run without us needs too where
/// we are loaded later.
pub fn runtime() -> Option<OsString> {
    std::env::var_os("GAPPROBE_TEST_RUNTIME")
}

/// The library with feature `forced-panics`, unoptimized: `tests/entries.rs`.
pub fn forced_panics() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = target();
        let _lock = Lock::take(&built().scratch.join("lock"));
        let words = ["build", "-q", "-p", "gapprobe-injector", "--features", "forced-panics"];
        must(Command::new(env!("CARGO")).args(words).current_dir(root()).env("CARGO_TARGET_DIR", &target));
        // another build may put its own where cargo does
        let kept = built().scratch.join("libgapprobe-forced-panics.so");
        let new = kept.with_extension(format!("{}.new", std::process::id()));
        std::fs::copy(target.join("debug/libgapprobe.so"), &new).expect("a copy");
        std::fs::rename(&new, &kept).expect("a name");
        kept
    })
}

fn must(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A shared library of this C code, a new one each time: other tests may be making theirs.
pub fn shared_library(name: &str, code: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let library = built().scratch.join(format!("{name}-{}-{number}.so", std::process::id()));
    let source = library.with_extension("c");
    std::fs::write(&source, code).expect("source");
    must(Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source));
    library
}

/// Compiles `victims/*.c` and `*.rs` against the libraries of one release. The first line of a
/// victim may say how: `// link: FLAGS`; `lib*.c` become shared libraries.
fn victims_of_ours(sim: &Path, out: &Path) {
    std::fs::create_dir_all(out).expect("victims folder");
    let folder = root().join("tests/scenarios/victims");
    let Ok(entries) = std::fs::read_dir(&folder) else { return };
    for source in entries.filter_map(|e| e.ok().map(|e| e.path())) {
        let name = source.file_stem().and_then(|n| n.to_str()).expect("a name");
        if source.extension().is_some_and(|e| e == "rs") {
            let mut rustc = Command::new("rustc");
            rustc
                .args(["--edition", "2021", "-C", "opt-level=2", "-l", "cudart", "-l", "cuda", "-L"])
                .arg(sim);
            must(rustc.arg("-o").arg(out.join(name)).arg(&source));
        }
        if source.extension().is_none_or(|e| e != "c") {
            continue;
        }
        let text = std::fs::read_to_string(&source).expect("source");
        let flags = text.lines().take(4).find_map(|l| l.strip_prefix("// link: ")).unwrap_or("");
        let shared = name.starts_with("lib");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-g", "-Wall", "-Werror", "-pthread"]);
        if shared {
            gcc.args(["-shared", "-fPIC"]);
        }
        gcc.arg("-I").arg(root().join("tests/victims")).arg("-I").arg(root().join("include"));
        let file = if shared { format!("{name}.so") } else { name.to_owned() };
        gcc.arg("-o").arg(out.join(file)).arg(&source).arg("-L").arg(sim);
        gcc.args(flags.split_whitespace()).arg("-ldl");
        must(&mut gcc);
    }
}

/// Newest modification below a path, ns since 1970.
fn newest(path: &Path) -> u128 {
    let own = std::fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let own = own.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let below = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    below.map(|e| newest(&e.path())).max().unwrap_or(0).max(own)
}

/// Test processes that build at the same time take turns.
struct Lock(#[expect(dead_code, reason = "held for its descriptor")] std::fs::File);

impl Lock {
    fn take(path: &Path) -> Lock {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::create(path).expect("lock file");
        // SAFETY: an open descriptor; the lock ends with it.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        Lock(file)
    }
}

/// A launcher of Triton's (`libtriton_launcher.c`) under the name that it has there.
pub fn triton_launcher() -> PathBuf {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    let made = LAUNCHER.get_or_init(|| {
        let folder = built().scratch.join(format!("triton-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let launcher = folder.join("__triton_launcher.cpython-312-x86_64-linux-gnu.so");
        std::fs::copy(built().victims.join("13.0/libtriton_launcher.so"), &launcher).expect("a copy");
        launcher
    });
    made.clone()
}
