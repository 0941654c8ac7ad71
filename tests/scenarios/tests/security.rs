// SPDX-License-Identifier: Apache-2.0
//! Purpose: what docs/design/threats.md promises of the library in a process: files are the user's
//! alone, nothing planted by another user is followed or written to, a program with more rights
//! than its user takes no instructions from the environment, and settings that somebody made up do
//! no harm. (Of the command: analyzer/cli/tests/cli, tests/fuzz.)

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{skipped, thorough, Run, Victim};
use trace::setting::{self, SETTINGS};

use super::adversity::without_cupti;

const LOOP: [&str; 4] = ["loop", "10", "20", "20"];

/// The same program with a umask that takes nothing away.
fn open_to_all(mut victim: Victim) -> Victim {
    let hook = || {
        // SAFETY: between fork and exec; cannot fail.
        unsafe { libc::umask(0) };
        Ok(())
    };
    // SAFETY: the hook only calls umask.
    unsafe { victim.command.pre_exec(hook) };
    victim
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("a file").mode() & 0o7777
}

/// This user's private folder in `root`.
fn private(root: &Path) -> PathBuf {
    // SAFETY: takes nothing, cannot fail.
    trace::place::folder(root, unsafe { libc::geteuid() })
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|e| e.path()).collect()
}

#[test]
fn files_are_the_users_alone_whatever_the_umask() {
    let run = open_to_all(Victim::sim("13.0", &["ways_out", "sigkill", "500", "0"])).run();
    let recording = run.left_recordings().pop().expect("a recording");
    assert_eq!(mode(&recording), 0o600);
    assert_eq!(mode(recording.parent().expect("the folder")), 0o700);
    let run = open_to_all(Victim::sim("13.0", &LOOP)).run();
    assert_eq!(run.left().len(), 2, "trace and summary: {:?}", run.left());
    assert!(run.left().iter().all(|p| mode(p) == 0o600), "{:?}", run.left());
}

/// What another user may have put where our folder should be.
fn plant(what: &str, at: &Path, elsewhere: &Path) -> bool {
    match what {
        "link" => symlink(elsewhere, at).is_ok(),
        "dangling link" => symlink(elsewhere.join("nothing"), at).is_ok(),
        "file" => std::fs::write(at, "not ours").is_ok(),
        "open folder" => {
            std::fs::create_dir(at).expect("a folder");
            std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o777)).is_ok()
        }
        _ => {
            std::fs::create_dir(at).expect("a folder");
            std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o700)).expect("a mode");
            chown(at, Some(65534), None).is_ok()
        }
    }
}

#[test]
fn nothing_planted_is_followed_or_written_to() {
    for what in ["link", "dangling link", "file", "open folder", "another user's folder"] {
        let victim = Victim::sim("13.0", &["ways_out", "sigkill", "500", "0"]);
        let (elsewhere, fallback) = (victim.folder.join("elsewhere"), victim.folder.join("fallback"));
        for folder in [&elsewhere, &fallback] {
            std::fs::create_dir(folder).expect("a folder");
        }
        std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o700)).expect("a mode");
        let planted = private(&victim.folder.join("tmp"));
        if !plant(what, &planted, &elsewhere) {
            skipped(format!("{what} cannot be made by this user"));
            continue;
        }
        let run = victim.env(setting::TEST_ROOT, &fallback).run();
        assert_eq!(run.ending(), 1009, "{what}: {}", run.stderr);
        assert!(below(&elsewhere).is_empty(), "{what}: {:?}", below(&elsewhere));
        match what {
            "file" => assert_eq!(std::fs::read(&planted).expect("the file"), b"not ours"),
            "open folder" => assert!(below(&planted).is_empty(), "{what}"),
            _ => {}
        }
        let made = below(&private(&fallback));
        assert_eq!(made.len(), 1, "{what}: the recording is where nobody else can write: {made:?}");
    }
}

/// A program that is the simulated driver's without LD_LIBRARY_PATH, which the loader does not read
/// for those below.
fn found_by_itself(folder: &Path) -> PathBuf {
    let (sim, program) = (built().sim.join("13.0"), folder.join("privileged"));
    let mut gcc = Command::new("gcc");
    gcc.arg("-o")
        .arg(&program)
        .arg(root().join("tests/victims/loop.c"))
        .arg("-I")
        .arg(root().join("tests/victims"));
    gcc.arg("-L").arg(&sim).arg(format!("-Wl,-rpath,{}", sim.display())).args(["-lcudart", "-lcuda"]);
    assert!(gcc.status().expect("gcc").success());
    program
}

/// On a disk mounted so, nobody gets other rights.
fn is_nosuid(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).expect("a path");
    let mut disk = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: a C string and a valid out-pointer.
    let done = unsafe { libc::statvfs(path.as_ptr(), disk.as_mut_ptr()) } == 0;
    // SAFETY: zeroes are a value of it.
    let flags = unsafe { disk.assume_init() }.f_flag;
    !done || flags & libc::ST_NOSUID != 0
}

#[test]
fn a_set_user_id_program_takes_nothing_from_the_environment() {
    let folder = std::env::temp_dir().join(format!("gapprobe-privileged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = found_by_itself(&folder);
    let run = || {
        let mut victim = Victim::of(&program, &LOOP[1..], "13.0").injected();
        victim.command.env_remove("SIM_TRUTH").env("NVTX_INJECTION64_PATH", &built().library);
        victim.run()
    };
    let ordinary = run();
    assert_eq!((ordinary.ending(), ordinary.lines().len()), (0, 1), "{}", ordinary.stderr);
    assert_eq!(ordinary.left().len(), 2, "as itself it is recorded");
    if chown(&program, Some(65534), None).is_err() || is_nosuid(&folder) {
        let _ = std::fs::remove_dir_all(&folder);
        return skipped(
            "no program of another user's rights can be made here (needs root, and a disk without nosuid)",
        );
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("a mode");
    let privileged = run();
    let _ = std::fs::remove_dir_all(&folder);
    assert_eq!(
        (privileged.ending(), privileged.stdout.as_str()),
        (0, "launched 200\n"),
        "{}",
        privileged.stderr
    );
    assert_eq!(privileged.stderr, "", "not a word");
    assert!(privileged.left_anywhere().is_empty(), "{:?}", privileged.left_anywhere());
}

/// xorshift64.
fn below_of(state: &mut u64, n: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as usize % n
}

/// A value that somebody made up: numbers at and beyond every limit (but not gigabytes of memory),
/// words, paths, bytes.
fn made_up(state: &mut u64) -> OsString {
    const WORDS: [&str; 30] = [
        "",
        " ",
        "0",
        "1",
        "-1",
        "00",
        "64",
        " 100 ",
        "+256",
        "63",
        "1001",
        "0x40",
        "1e3",
        "18446744073709551616",
        "NaN",
        "rank0",
        "all",
        "node",
        "graph",
        "profiler",
        "true",
        "/",
        ".",
        "..",
        "../../../../etc",
        "/dev/null",
        "/dev/full",
        "/proc/self/mem",
        "\u{1b}]0;title\u{7}\u{1b}[31m",
        "line\ngapprobe: made up\r\n",
    ];
    match below_of(state, 4) {
        0 => {
            let length = [1, 30, 300, 9000][below_of(state, 4)];
            // (no zero: the environment cannot hold one)
            OsString::from_vec((0..length).map(|_| 1 + below_of(state, 255) as u8).collect())
        }
        1 => format!("{}/{}", WORDS[below_of(state, WORDS.len())], "x".repeat(below_of(state, 300))).into(),
        _ => WORDS[below_of(state, WORDS.len())].into(),
    }
}

/// Status and stdout as ever, nothing on stderr but a few lines of ours that can be shown.
fn unharmed(run: &Run, what: &str) {
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{what}: {:?}", run.stderr);
    assert!(run.others().is_empty() && run.lines().len() <= 3, "{what}: {:?}", run.stderr);
    let hidden = |c: char| c != '\n' && analyzer_hides(c);
    assert!(!run.stderr.contains(hidden), "{what}: {:?}", run.stderr);
}

fn analyzer_hides(c: char) -> bool {
    c.is_control() || ('\u{200b}'..='\u{200f}').contains(&c) || ('\u{2028}'..='\u{202e}').contains(&c)
}

#[test]
fn settings_that_somebody_made_up_do_no_harm() {
    const OTHERS: [&str; 6] = ["TMPDIR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"];
    let names: Vec<&str> = SETTINGS.iter().map(|s| s.name).chain(OTHERS).collect();
    let seed = std::env::var("GAPPROBE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for number in 0..if thorough() { 150u64 } else { 30 } {
        let mut state = (seed + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut victim = Victim::sim("13.0", &LOOP);
        if number % 4 == 0 {
            victim = victim.env("LD_LIBRARY_PATH", without_cupti());
        }
        let each = [1, 3, names.len()][below_of(&mut state, 3)];
        let mut what = format!("seed {}", seed + number);
        for _ in 0..each {
            let (name, value) = (names[below_of(&mut state, names.len())], made_up(&mut state));
            what += &format!(" {name}={value:?}");
            victim = victim.env(name, value);
        }
        unharmed(&victim.run(), &what);
    }
}

#[test]
fn a_path_that_others_chose_is_one_line() {
    let evil = "out\n\u{1b}[31mgapprobe: made up";
    for variable in [setting::DIR, setting::CUPTI, "TMPDIR"] {
        let victim = Victim::sim("13.0", &LOOP);
        let folder = victim.folder.join(evil);
        if variable == "TMPDIR" {
            std::fs::create_dir(&folder).expect("a folder");
        }
        let victim = victim
            .env(variable, &folder)
            .env(setting::EXIT_MS, if variable == "TMPDIR" { "0" } else { "2000" });
        let victim = match variable {
            setting::CUPTI => victim.env("LD_LIBRARY_PATH", without_cupti()),
            _ => victim,
        };
        let run = victim.run();
        unharmed(&run, variable);
        assert!(run.lines().iter().any(|l| l.contains("\\n\\u{1b}[31m")), "{variable}: {:?}", run.stderr);
    }
}
