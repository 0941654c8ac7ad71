// SPDX-License-Identifier: Apache-2.0
//! Purpose: whatever is missing or broken around it, gapprobe says at most one clear line and the
//! program is untouched: same stdout, same status, its own data unharmed.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gapprobe_scenarios::built::{built, shared_library};
use gapprobe_scenarios::small_disk::SmallDisk;
use gapprobe_scenarios::{skipped, Run, Victim};

const LOOP: [&str; 4] = ["loop", "10", "20", "20"];

/// The program's own output and status; returns gapprobe's lines.
fn unharmed(run: &Run, label: &str) -> Vec<String> {
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 200\n"), "{label}: {}", run.stderr);
    assert!(run.others().is_empty(), "{label}: {:?}", run.others());
    run.lines().iter().map(|l| (*l).to_string()).collect()
}

/// A folder with driver and runtime of 13.0, without CUPTI.
pub(crate) fn without_cupti() -> PathBuf {
    let folder = built().scratch.join("without-cupti");
    std::fs::create_dir_all(&folder).expect("folder");
    for file in ["libcuda.so.1", "libcudart.so.13"] {
        let _ = std::fs::hard_link(built().sim.join("13.0").join(file), folder.join(file));
        // from an earlier run
    }
    folder
}

#[test]
fn without_a_driver_there_is_nothing_to_say() {
    let script = "import ctypes\ntry:\n ctypes.CDLL('libcuda.so.1')\nexcept OSError: print('no driver')";
    let run = Victim::of("python3", &["-c", script], "13.0").env("LD_LIBRARY_PATH", "").run();
    assert_eq!((run.ending(), run.stdout.as_str(), run.stderr.as_str()), (0, "no driver\n", ""));
    assert!(run.left_anywhere().is_empty());
    let run = Victim::sim("13.0", &LOOP).env("SIM_DEVICES", "0").run();
    let alone = Victim::sim("13.0", &LOOP).env("SIM_DEVICES", "0").alone().run();
    assert_eq!(
        (run.ending(), &run.stdout),
        (alone.ending(), &alone.stdout),
        "no device: the program's own error"
    );
    assert!(run.lines().len() <= 1 && run.left_anywhere().is_empty(), "{}", run.stderr);
}

#[test]
fn without_cupti_one_line_says_what_to_do() {
    let run = Victim::sim("13.0", &LOOP).env("LD_LIBRARY_PATH", without_cupti()).run();
    let lines = unharmed(&run, "no CUPTI");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("not recording") && lines[0].contains("GAPPROBE_CUPTI"), "{lines:?}");
    assert!(run.left_anywhere().is_empty());
}

#[test]
fn a_wrong_cupti_is_named() {
    let text = built().scratch.join("libcupti.so.text");
    std::fs::write(&text, "not a library").expect("file");
    let hollow = shared_library(
        "libcupti-hollow",
        "int cuptiSubscribe(void) { return 0; }\nint cuptiGetVersion(unsigned *v) { *v = 13; return 0; }\n",
    );
    for wrong in [text, hollow, PathBuf::from("/nonexistent/libcupti.so.13"), PathBuf::from("/dev/null")] {
        let victim = Victim::sim("13.0", &LOOP).env("LD_LIBRARY_PATH", without_cupti());
        let run = victim.env("GAPPROBE_CUPTI", &wrong).run();
        let lines = unharmed(&run, "wrong CUPTI");
        assert_eq!(lines.len(), 1, "{lines:?}");
        let setting = format!("not recording: GAPPROBE_CUPTI={} cannot be ", wrong.display());
        assert!(lines[0].contains(&setting), "it is named: {lines:?}");
        assert!(run.left_anywhere().is_empty());
        // a program that has one of its own records with that, and says so
        let run = Victim::sim("13.0", &LOOP).env("GAPPROBE_CUPTI", &wrong).run();
        let lines = unharmed(&run, "a wrong CUPTI beside the program's");
        let own = built().sim.join("13.0").canonicalize().expect("the simulated driver");
        let why = if wrong.exists() { "is no libcupti" } else { "does not exist" };
        let said = format!("gapprobe: GAPPROBE_CUPTI={} {why}, using {}/", wrong.display(), own.display());
        assert!(lines.len() == 2 && lines[0].starts_with(&said), "{said}: {lines:?}");
        assert!(lines[1].contains(" [GP"), "{lines:?}");
        assert_eq!(run.recorded().kernels().len(), 200);
    }
}

#[test]
fn a_libcupti_that_is_not_needed_is_no_mistake() {
    // by its path, and by a name that the loader finds
    for good in [built().sim.join("12.4/libcupti.so.12"), PathBuf::from("libcupti.so.13")] {
        let run = Victim::sim("13.0", &LOOP).env("GAPPROBE_CUPTI", &good).run();
        let lines = unharmed(&run, "another CUPTI");
        assert!(lines.len() == 1 && lines[0].contains(" [GP"), "{good:?}: {lines:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_written() {
    // root writes everywhere but below a file
    for bad in ["/dev/null/out", "/proc/1/task", "/nonexistent-gapprobe/out"] {
        let run = Victim::sim("13.0", &LOOP).env("GAPPROBE_DIR", bad).run();
        let lines = unharmed(&run, bad);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let named = run.left_recordings().first().is_some_and(|p| lines[0].contains(&*p.to_string_lossy()));
        assert!(named, "the recording is kept and named: {lines:?} {:?}", run.left_anywhere());
        assert_eq!(run.recorded().kernels().len(), 200);
        let run = Victim::sim("13.0", &LOOP).env("TMPDIR", bad).run();
        let lines = unharmed(&run, bad);
        assert!(lines.len() <= 1, "{lines:?}");
        assert!(run.summary().is_some(), "trace and summary come from memory");
    }
    assert!(!Path::new("/nonexistent-gapprobe").exists(), "no folders appear where the user made a mistake");
}

#[test]
fn a_full_disk() {
    for bytes in [4096, 40_960, 65_536] {
        let at = built().scratch.join(format!("full-{}-{bytes}", std::process::id()));
        let Some(small) = SmallDisk::mount(at, bytes) else {
            skipped("no tmpfs can be mounted here (needs root)");
            return;
        };
        for variable in ["TMPDIR", "GAPPROBE_DIR"] {
            let run = Victim::sim("13.0", &["loop", "100", "100", "5"]).env(variable, &small.0).run();
            assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 10000\n"), "{}", run.stderr);
            assert!(run.lines().len() <= 1 && run.others().is_empty(), "{variable} {bytes}: {}", run.stderr);
            for file in std::fs::read_dir(&small.0).expect("small").filter_map(Result::ok) {
                let name = file.file_name().to_string_lossy().into_owned();
                let whole = !name.ends_with(".summary.json")
                    || serde_json::from_slice::<serde_json::Value>(
                        &std::fs::read(file.path()).expect("file"),
                    )
                    .is_ok();
                assert!(whole, "{name}: a cut file under its final name");
                let _ = std::fs::remove_file(file.path()).or_else(|_| std::fs::remove_dir_all(file.path()));
            }
        }
    }
}

#[test]
fn a_limit_on_file_sizes() {
    for limit in [0u64, 4096, 100_000] {
        let mut victim = Victim::sim("13.0", &["loop", "100", "100", "5"]);
        victim.command.env_remove("SIM_TRUTH"); // the simulated driver's own file would meet the limit
        let running = victim.start_with(|command| {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let hook = move || {
                let r = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                // SAFETY: between fork and exec, async-signal-safe; a valid structure.
                unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &r) };
                Ok(())
            };
            // SAFETY: the hook only calls setrlimit.
            unsafe { command.pre_exec(hook) };
        });
        let (status, stdout, stderr) = output(running);
        assert_eq!((status, stdout.as_str()), (0, "launched 10000\n"), "{limit}: {stderr}");
        assert!(stderr.lines().count() <= 1, "{limit}: {stderr}");
    }
}

#[test]
fn a_complaint_that_does_not_fit_into_the_stderr_file_any_more() {
    // said on the program's own thread, inside cuInit: SIGXFSZ must not reach it
    let mut victim = Victim::sim("13.0", &LOOP).env("GAPPROBE_MAX_MB", "banana");
    victim.command.env_remove("SIM_TRUTH");
    let running = victim.start_with(|command| {
        command.stdout(Stdio::piped());
        let hook = || {
            let r = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: between fork and exec, async-signal-safe; a valid structure.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &r) };
            Ok(())
        };
        // SAFETY: the hook only calls setrlimit.
        unsafe { command.pre_exec(hook) };
    });
    let (status, stdout, _) = output(running);
    assert_eq!((status, stdout.as_str()), (0, "launched 200\n"));
}

/// Ends a run whose stdout and stderr are pipes.
fn output(mut running: gapprobe_scenarios::Running) -> (i32, String, String) {
    use std::io::Read;
    let (mut out, mut err) = (String::new(), String::new());
    let stdout = running.child.stdout.take();
    let stderr = running.child.stderr.take();
    stdout.map(|mut s| s.read_to_string(&mut out));
    stderr.map(|mut s| s.read_to_string(&mut err));
    (running.finish().ending(), out, err)
}

#[test]
fn stderr_closed() {
    let running = Victim::sim("13.0", &LOOP).start_with(|command| {
        let hook = || {
            // SAFETY: between fork and exec; closing a descriptor of our own.
            unsafe { libc::close(2) };
            Ok(())
        };
        // SAFETY: the hook only calls close.
        unsafe { command.pre_exec(hook) };
    });
    let run = running.finish();
    unharmed(&run, "closed");
    assert!(run.summary().is_some());
}

#[test]
fn stderr_closed_and_its_number_reused_for_data() {
    for start_closed in [false, true] {
        let victim = Victim::ours("13.0", &["stderr_is_data"]);
        let data = victim.folder.join("data");
        let mut victim = victim;
        victim.command.arg(&data);
        let running = victim.start_with(|command| {
            let hook = move || {
                if start_closed {
                    // SAFETY: between fork and exec; closing a descriptor of our own.
                    unsafe { libc::close(2) };
                }
                Ok(())
            };
            // SAFETY: the hook only calls close.
            unsafe { command.pre_exec(hook) };
        });
        let run = running.finish();
        assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 100\n"));
        let wanted: String = (0..100).map(|n| format!("row {n}\n")).collect();
        assert_eq!(std::fs::read_to_string(&data).expect("data"), wanted, "closed at start: {start_closed}");
        assert!(run.summary().is_some());
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: descriptors pipe2 just made, owned by nobody else.
    let reader = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let writer = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    (reader, writer)
}

#[test]
fn stderr_a_full_pipe_or_one_nobody_reads() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let (reader, writer) = pipe();
    // SAFETY: our own descriptor.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let mut full = std::fs::File::from(writer);
    while full.write(&[b'x'; 4096]).is_ok() {}
    // SAFETY: our own descriptor.
    unsafe { libc::fcntl(full.as_raw_fd(), libc::F_SETFL, 0) };
    let run = Victim::sim("13.0", &LOOP).start_with(|c| {
        c.stderr(full.try_clone().expect("clone"));
    });
    let run = run.finish();
    unharmed(&run, "a full pipe");
    assert!(run.wall < Duration::from_secs(4), "{:?}", run.wall);
    assert!(run.summary().is_some());
    drop(reader);
    let run = Victim::sim("13.0", &LOOP).start_with(|c| {
        c.stderr(full);
    });
    let run = run.finish();
    unharmed(&run, "a pipe without a reader");
    assert!(run.summary().is_some());
}

#[test]
fn settings_with_nonsense_in_them() {
    let nonsense = [
        ("GAPPROBE_MAX_MB", "banana"),
        ("GAPPROBE_MAX_MB", "-1"),
        ("GAPPROBE_MAX_MB", "99999999999999999999999"),
        ("GAPPROBE_EXIT_MS", "soon\nnow"),
        ("GAPPROBE_PRINT", "\u{1b}[31m"),
        ("GAPPROBE_GRAPH", "both"),
        ("GAPPROBE_CAPTURE", "0x1"),
        ("GAPPROBE_FORCE", "yes"),
        ("GAPPROBE_WINDOW", "5"),
    ];
    for (name, value) in nonsense {
        let run = Victim::sim("13.0", &LOOP).env(name, value).run();
        let lines = unharmed(&run, name);
        let (report, complaint): (Vec<_>, Vec<_>) = lines.iter().partition(|l| l.contains(" [GP"));
        assert_eq!((report.len(), complaint.len()), (1, 1), "{name}: {}", run.stderr);
        assert!(complaint[0].contains(name) && !complaint[0].contains('\u{1b}'), "{complaint:?}");
        assert_eq!(run.recorded().kernels().len(), 200, "{name}");
    }
}

#[test]
fn a_slip_in_a_settings_name_is_said_and_nothing_of_other_tools() {
    let others = |v: Victim| v.env("GAPPROBE_TOOLS", "/opt").env("GAP", "1").env("GAPPY_MODE", "2");
    let run = others(Victim::sim("13.0", &LOOP).env("GAPPROBE_WINDOWS", "20/2000")).run();
    let lines = unharmed(&run, "GAPPROBE_WINDOWS");
    let said = "gapprobe: GAPPROBE_WINDOWS is no setting, GAPPROBE_WINDOW is";
    assert!(lines.len() == 2 && lines.iter().any(|l| l.starts_with(said)), "{lines:?}");
    assert_eq!(run.recorded().kernels().len(), 200);
    let lines = unharmed(&others(Victim::sim("13.0", &LOOP)).run(), "none of ours");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn all_values_that_make_no_sense_are_in_the_one_line() {
    let nonsense = [("GAPPROBE_FORCE", "x"), ("GAPPROBE_MAX_MB", "banana"), ("GAPPROBE_EXIT_MS", "-1")];
    let victim = || nonsense.iter().fold(Victim::sim("13.0", &LOOP), |v, (name, value)| v.env(name, value));
    let named =
        |line: &str| nonsense.iter().all(|(name, value)| line.contains(&format!("{name}={value} is n")));
    let run = victim().run();
    let lines = unharmed(&run, "all of them");
    assert_eq!(lines.iter().filter(|l| named(l)).count(), 1, "{lines:?}");
    assert_eq!((lines.len(), run.recorded().kernels().len()), (2, 200), "{lines:?}");
    // beside why nothing is recorded
    let run = victim().env("NSYS_PROFILING_SESSION_ID", "17").run();
    let lines = unharmed(&run, "nsys");
    assert!(lines.len() == 1 && named(&lines[0]) && lines[0].contains("Nsight Systems"), "{lines:?}");
}

#[test]
fn a_switch_that_is_neither_on_nor_off_is_named_and_nothing_is_recorded() {
    for value in ["maybe", "2", "\u{1b}[31m0"] {
        let run = Victim::sim("13.0", &LOOP).env("GAPPROBE", value).run();
        let lines = unharmed(&run, value);
        let line = lines.first().map_or("", |l| l);
        assert!(
            lines.len() == 1 && line.contains("GAPPROBE=") && line.contains("not recording"),
            "{lines:?}"
        );
        assert!(!line.contains('\u{1b}'), "{line:?}");
        assert!(run.truth().cupti.is_empty() && run.left_anywhere().is_empty(), "{value}");
        let quiet = Victim::of("/bin/echo", &["no CUDA"], "13.0").env("GAPPROBE", value).run();
        assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("no CUDA\n", ""), "{value}");
    }
    for value in ["on", "TRUE", "Yes", " 1 "] {
        let run = Victim::sim("13.0", &LOOP).env("GAPPROBE", value).run();
        assert_eq!((unharmed(&run, value).len(), run.recorded().kernels().len()), (1, 200), "{value}");
    }
}

#[test]
fn another_profiler_around_it_stays_off() {
    let signs = [
        ("Nsight Systems", "NSYS_PROFILING_SESSION_ID", "17"),
        ("Nsight Compute", "NV_NSIGHT_INJECTION_PORT_BASE", "49152"),
        ("compute-sanitizer", "NV_SANITIZER_INJECTION_PORT_BASE", "49152"),
    ];
    for (tool, variable, value) in signs {
        let run = Victim::sim("13.0", &LOOP).env(variable, value).run();
        let lines = unharmed(&run, variable);
        assert!(lines.len() == 1 && lines[0].contains(tool) && lines[0].contains(variable), "{lines:?}");
        assert!(run.truth().cupti.is_empty() && run.left_anywhere().is_empty(), "{variable}");
    }
}

#[test]
fn a_host_that_waits_for_a_signal_gets_it() {
    let mut running = Victim::ours("13.0", &["waits_for_signal", "60"]).start();
    let task = format!("/proc/{}/task", running.pid());
    let mut masks = Vec::new();
    running.wait_for(|_| {
        let threads = std::fs::read_dir(&task).into_iter().flatten().filter_map(Result::ok);
        for thread in threads {
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let field =
                |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or("").trim().to_owned();
            if field("Name:").starts_with("gapprobe") {
                masks.push((field("Name:"), field("SigBlk:")));
            }
        }
        masks.len() > 5
    });
    let run = running.finish();
    assert_eq!((run.ending(), run.stdout.as_str()), (0, "launched 600\n"), "{}", run.stderr);
    assert!(masks.len() > 5, "our thread was seen");
    for (name, mask) in masks {
        let blocked = u64::from_str_radix(&mask, 16).expect("a mask");
        // all but SIGKILL and SIGSTOP, which cannot be, and the two that glibc keeps to itself (32,
        // 33)
        let wanted = !(1u64 << 8 | 1 << 18 | 3 << 31);
        assert_eq!(blocked & wanted, wanted, "{name}: {mask}");
    }
}
