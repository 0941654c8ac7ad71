// SPDX-License-Identifier: Apache-2.0
//! Purpose: a command of the same user sees what a recorded process does and cuts windows out of it
//! while it runs on, also where the program has recording switched off, and what it asked for ends
//! with it.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{Running, Victim};
use serde_json::Value;
use trace::header::HOLD_AT;

/// The command with the folders of a run.
fn gapprobe(running: &Running, words: &[&str]) -> Command {
    let mut command = Command::new(&built().command);
    command.args(words).current_dir(running.folder.join("captured"));
    command
        .env("TMPDIR", running.folder.join("tmp"))
        .env("GAPPROBE_TEST_ROOT", running.folder.join("tmp/root"));
    command.env_remove("GAPPROBE_DIR").env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The files of one kind below a folder.
fn below(folder: &Path, wanted: fn(&std::fs::FileType) -> bool, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(t) if t.is_dir() => found.append(&mut below(&entry.path(), wanted, ending)),
            Ok(t) if wanted(&t) && entry.path().to_string_lossy().ends_with(ending) => {
                found.push(entry.path())
            }
            _ => {}
        }
    }
    found
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    below(&folder.join("tmp"), |t| t.is_file(), ".gpr")
}

/// Starts a loop of steps of 3 ms (10 kernels of 50 µs, 2 ms of the host) and waits until its
/// recording is there.
fn start(steps: &str, settings: &[(&str, &str)]) -> Running {
    start_loop(&[steps, "10", "50", "2000"], settings)
}

/// The same with what is given to `loop`.
fn start_loop(shape: &[&str], settings: &[(&str, &str)]) -> Running {
    let mut victim = Victim::sim("13.0", &[&["loop"], shape].concat());
    for (name, value) in settings {
        victim = victim.env(name, value);
    }
    std::fs::create_dir(victim.folder.join("captured")).expect("a folder");
    let mut running = victim.start();
    assert!(running.wait_for(|f| !recordings(f).is_empty()), "a recording");
    running
}

/// What `ps` says of the one process: `on`, `off`.
fn standing(running: &Running) -> String {
    let output = gapprobe(running, &["ps", "--json"]).output().expect("gapprobe ps");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    all["processes"][0]["standing"].as_str().unwrap_or("gone").to_owned()
}

fn summary(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("a summary: {e}: {text}"))
}

#[test]
fn a_window_of_a_recording_process_is_cut_out_while_it_runs_on() {
    let job = [
        ("SLURM_JOB_ID", "77"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "4"),
        ("GAPPROBE_TEST_FREE_MS", "3600000"),
    ];
    let mut running = start("3000", &job);
    let pid = running.pid().to_string();
    let (code, list, complaint) = said(&gapprobe(&running, &["ps"]).output().expect("ps"));
    assert_eq!(code, 0, "{complaint}");
    let row = list.lines().find(|l| l.trim_start().starts_with(&pid)).expect("its row");
    assert!(row.contains(" on ") && row.contains("loop 3000 10 50 2000"), "{list}");
    let output = gapprobe(&running, &["capture", &pid, "--steps", "20", "--json"]).output().expect("capture");
    let (code, text, talk) = said(&output);
    assert_eq!(code, 0, "{talk}");
    let s = summary(&text);
    assert_eq!(
        (s["steps"]["count"].as_u64(), s["pid"].as_u64()),
        (Some(20), Some(running.pid().into())),
        "{text}"
    );
    let (busy, step) =
        (s["devices"][0]["busy_ns"].as_f64().unwrap(), s["steps"]["median_ns"].as_f64().unwrap());
    assert!((2.4e6..20e6).contains(&step) && busy >= 20.0 * 10.0 * 50e3, "{text}");
    assert_eq!(talk.matches("wrote ").count(), 2, "{talk}");
    let written = below(&running.folder.join("captured"), |t| t.is_file(), "");
    assert_eq!(written.len(), 2, "{written:?}");
    std::thread::sleep(Duration::from_millis(1500));
    let output = gapprobe(&running, &["top", "--once", "--json", "--last", "1s"]).output().expect("top");
    let top: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let top = &top["rows"];
    let seen = top[0]["seen_ns"].as_u64().unwrap();
    assert!((900_000_000..=1_000_000_000).contains(&seen), "{top}");
    let step = top[0]["step_ns"].as_f64().unwrap();
    assert!((2.4e6..20e6).contains(&step), "{top}");
    assert_eq!(
        (&top[0]["job"], &top[0]["rank"], &top[0]["world_size"]),
        (&"77".into(), &0.into(), &4.into())
    );
    assert!(running.child.try_wait().expect("wait").is_none(), "it runs on");
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 30_000), "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len(), 30_000, "its own recording is whole");
}

#[test]
fn a_long_recording_that_grows_while_it_is_read_is_not_cut_off() {
    let mut running = start_loop(&["40000", "100", "10", "200"], &[]);
    let size = |f: &Path| recordings(f).first().and_then(|p| p.metadata().ok()).map_or(0, |m| m.len());
    assert!(running.wait_for(|f| size(f) > 5 << 20), "5 MB");
    let pid = running.pid().to_string();
    for words in [&["--steps", "5"][..], &["--last", "1"], &["--seconds", "300ms"]] {
        let output =
            gapprobe(&running, &[&["capture", &pid, "--json"], words].concat()).output().expect("capture");
        let (code, text, talk) = said(&output);
        assert_eq!(code, 0, "{talk}");
        let s = summary(&text);
        assert_eq!(s["reading_problems"]["cut_segments"], 0, "{words:?}: {text}");
        assert!(!text.contains("is truncated"), "{words:?}: {text}");
    }
    assert!(running.child.try_wait().expect("wait").is_none(), "it runs on");
    running.signal(libc::SIGKILL);
    assert_eq!(running.finish().ending(), 1009);
}

#[test]
fn where_the_program_has_it_switched_off_recording_is_on_for_the_window_alone() {
    let mut running = start("4000", &[("GAPPROBE_CAPTURE", "profiler")]);
    assert!(running.wait_for(|_| true));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(standing(&running), "off");
    let pid = running.pid().to_string();
    let output = gapprobe(&running, &["capture", &pid, "--steps", "20", "--json"]).output().expect("capture");
    let (code, text, talk) = said(&output);
    assert_eq!(code, 0, "{talk}");
    let s = summary(&text);
    assert_eq!(s["steps"]["count"].as_u64(), Some(20), "{text}");
    // how many there were in all nobody counted
    let said = s["evidence"].to_string();
    assert!(said.contains("20 steps seen") && !said.contains("of about"), "{said}");
    let off = Instant::now();
    while standing(&running) != "off" {
        assert!(off.elapsed() < Duration::from_secs(5), "released");
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 40_000), "{}", run.stderr);
    // (steps by a period alone are looked at for two seconds)
    let kernels = run.recorded().kernels().len();
    assert!((200..24_000).contains(&kernels), "{kernels} of 40000: those of the window");
}

#[test]
fn who_holds_recording_on_and_is_killed_leaves_it_off() {
    let running = start("2000", &[("GAPPROBE_CAPTURE", "profiler")]);
    let pid = running.pid().to_string();
    let mut asking = gapprobe(&running, &["capture", &pid, "--seconds", "60"]).spawn().expect("capture");
    let begun = Instant::now();
    while standing(&running) != "on" {
        assert!(begun.elapsed() < Duration::from_secs(5), "held on");
        std::thread::sleep(Duration::from_millis(20));
    }
    asking.kill().expect("kill");
    asking.wait().expect("wait");
    let killed = Instant::now();
    while standing(&running) != "off" {
        assert!(killed.elapsed() < Duration::from_secs(5), "nobody holds it any more");
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 20_000), "{}", run.stderr);
}

/// H100, c074a64: what was seen at first was one step's updates of single parameters, and 20 steps
/// of 0.17 ms were told, of 2,766 launches and 47 ms each.
#[test]
fn layers_are_no_steps_where_a_step_takes_longer_than_one_look() {
    // steps of 2 s: 100 pairs of kernels, then 100 of others, 10 ms each
    let victim = Victim::ours("13.0", &["steps", "100000", "100", "40000", "l"]);
    std::fs::create_dir(victim.folder.join("captured")).expect("a folder");
    let mut running = victim.env("GAPPROBE_CAPTURE", "profiler").start();
    assert!(running.wait_for(|f| !recordings(f).is_empty()), "a recording");
    std::thread::sleep(Duration::from_millis(600));
    let pid = running.pid().to_string();
    let output = gapprobe(&running, &["capture", &pid, "--steps", "4", "--json"]).output().expect("capture");
    let (code, text, talk) = said(&output);
    assert_eq!(code, 0, "{talk}");
    let s = summary(&text);
    let step = s["steps"]["median_ns"].as_f64().unwrap_or(0.0);
    // (on busy cores the last of the four may be cut)
    assert!(s["steps"]["count"].as_u64() >= Some(3) && step > 1.6e9, "{}: {talk}", s["line"]);
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn a_planted_link_is_not_followed() {
    let victim = Victim::sim("13.0", &["loop", "300", "10", "50", "2000"]);
    let folder = victim.folder.clone();
    let (planted, root) = (folder.join("planted"), folder.join("tmp/root"));
    for made in [&planted, &root, &folder.join("captured")] {
        std::fs::create_dir_all(made).expect("a folder");
    }
    // SAFETY: takes nothing, cannot fail.
    let name = format!("gapprobe-{}", unsafe { libc::geteuid() });
    std::os::unix::fs::symlink(&planted, folder.join("tmp").join(&name)).expect("a link");
    let mut running = victim.env("GAPPROBE_TEST_ROOT", &root).start();
    assert!(running.wait_for(|f| !recordings(f).is_empty()), "where it is its own");
    let pid = running.pid().to_string();
    let (code, list, talk) = said(&gapprobe(&running, &["ps"]).output().expect("ps"));
    assert!(code == 0 && list.contains(&pid), "{talk}");
    assert!(talk.contains("is a symbolic link: not used"), "{talk}");
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 3_000), "{}", run.stderr);
    assert_eq!(below(&planted, |_| true, ""), Vec::<PathBuf>::new());
}

/// Whoever may write the file could have the process record for ever.
#[test]
fn a_word_that_is_no_time_near_holds_nothing_on() {
    let running = start("1000", &[("GAPPROBE_CAPTURE", "profiler")]);
    std::thread::sleep(Duration::from_millis(500));
    let recording = recordings(&running.folder).remove(0);
    let file = std::fs::File::options().write(true).open(recording).expect("ours");
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        file.write_all_at(&u64::MAX.to_le_bytes(), HOLD_AT as u64).expect("written");
        assert_ne!(standing(&running), "on");
    }
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 10_000), "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len(), 0);
}

#[test]
fn two_commands_at_once_have_a_window_each() {
    for between in [0, 250] {
        let running = start("2800", &[("GAPPROBE_CAPTURE", "profiler")]);
        let pid = running.pid().to_string();
        let capture = |time| {
            let mut command = gapprobe(&running, &["capture", &pid, "--seconds", time, "--json"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("capture")
        };
        let short = capture("500ms");
        std::thread::sleep(Duration::from_millis(between)); // the second finds it on
        let long = capture("4s");
        for (child, asked) in [(short, 500_000_000), (long, 4_000_000_000u64)] {
            let (code, text, talk) = said(&child.wait_with_output().expect("capture"));
            assert_eq!(code, 0, "{talk}");
            // neither the end nor the begin of the other one is in this one
            assert_eq!(summary(&text)["coverage"]["seen_ns"].as_u64(), Some(asked), "{between} {text}");
        }
        running.finish();
    }
}

#[test]
fn a_program_that_ends_meanwhile_leaves_what_it_did_until_then() {
    for settings in [&[][..], &[("GAPPROBE_CAPTURE", "profiler")]] {
        let mut running = start("500", settings);
        assert!(running.wait_for(|_| true));
        std::thread::sleep(Duration::from_millis(300));
        let pid = running.pid().to_string();
        let capture = gapprobe(&running, &["capture", &pid, "--steps", "10000", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("capture");
        let run = running.finish();
        assert_eq!((run.ending(), run.launched()), (0, 5_000), "{}", run.stderr);
        let (code, text, talk) = said(&capture.wait_with_output().expect("capture"));
        assert!(code == 0 && talk.contains("the program ended meanwhile"), "{talk}");
        let steps = summary(&text)["steps"]["count"].as_u64().unwrap();
        assert!((50..500).contains(&steps), "{steps} {talk}");
        assert!(run.left_recordings().is_empty(), "it is not kept by us: {:?}", run.left_recordings());
    }
}

/// Whether its recording is on or off.
#[test]
fn a_stopped_process_is_said_to_be_and_not_waited_for() {
    for settings in [&[][..], &[("GAPPROBE_CAPTURE", "profiler")]] {
        let mut running = start("1500", settings);
        assert!(running.wait_for(|_| true));
        let usual = if settings.is_empty() { "on" } else { "off" };
        while standing(&running) != usual {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(700));
        running.signal(libc::SIGSTOP);
        while standing(&running) != "stopped" {
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = running.pid().to_string();
        let begun = Instant::now();
        let (code, _, talk) = said(&gapprobe(&running, &["capture", &pid]).output().expect("capture"));
        let took = begun.elapsed();
        // what it did before is there, and is not said to be of just now
        let last = said(&gapprobe(&running, &["capture", &pid, "--last", "2m"]).output().expect("capture"));
        running.signal(libc::SIGCONT);
        let is_told = last.2.contains("the process is stopped") && last.2.contains(" ago");
        assert!(usual == "off" || is_told && last.0 == 0, "{last:?}");
        assert_eq!(code, 1, "{talk}");
        let said = talk.contains(&format!("process {pid} is stopped")) && talk.contains("kill -CONT ");
        assert!(said && took < Duration::from_secs(8), "{took:?} {talk}");
        let run = running.finish();
        assert_eq!((run.ending(), run.launched()), (0, 15_000), "{}", run.stderr);
    }
}

#[test]
fn a_process_that_is_stopped_meanwhile_leaves_what_it_did_until_then() {
    let mut running = start("1500", &[]);
    assert!(running.wait_for(|_| true));
    let pid = running.pid().to_string();
    let capture = gapprobe(&running, &["capture", &pid, "--steps", "10000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("capture");
    std::thread::sleep(Duration::from_millis(1500));
    running.signal(libc::SIGSTOP);
    let (code, text, talk) = said(&capture.wait_with_output().expect("capture"));
    running.signal(libc::SIGCONT);
    assert!(code == 0 && talk.contains("the process was stopped meanwhile"), "{talk}");
    let steps = summary(&text)["steps"]["count"].as_u64().unwrap();
    assert!((50..1500).contains(&steps), "{steps} {talk}");
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 15_000), "{}", run.stderr);
}
