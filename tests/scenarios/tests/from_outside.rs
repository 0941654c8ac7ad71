// SPDX-License-Identifier: Apache-2.0
//! Purpose: a command of the same user sees what a recorded process does and cuts windows out of it
//! while it runs on, also where the program has recording switched off; nobody else can, and nobody
//! who knocks holds the process up.

use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use gapprobe_scenarios::built::built;
use gapprobe_scenarios::{skipped, Running, Victim};
use serde_json::Value;

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

fn sockets(running: &Running) -> Vec<PathBuf> {
    below(&running.folder.join("tmp"), |t| t.is_socket(), ".sock")
}

/// Starts a loop of steps of 3 ms (10 kernels of 50 µs, 2 ms of the host) and waits until its
/// socket is there.
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
    assert!(running.wait_for(|f| !below(&f.join("tmp"), |t| t.is_socket(), ".sock").is_empty()), "a socket");
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
    let mut running = start("1500", &job);
    let pid = running.pid().to_string();
    let (code, list, complaint) = said(&gapprobe(&running, &["ps"]).output().expect("ps"));
    assert_eq!(code, 0, "{complaint}");
    let row = list.lines().find(|l| l.trim_start().starts_with(&pid)).expect("its row");
    assert!(row.contains(" on ") && row.contains("loop 1500 10 50 2000"), "{list}");
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
    assert_eq!((run.ending(), run.launched()), (0, 15_000), "{}", run.stderr);
    assert_eq!(run.recorded().kernels().len(), 15_000, "its own recording is whole");
    assert!(
        run.left_anywhere().iter().all(|p| !p.to_string_lossy().ends_with(".sock")),
        "the socket is gone"
    );
    assert_eq!(below(&run.folder.join("tmp"), |t| t.is_socket(), ""), Vec::<PathBuf>::new());
}

#[test]
fn a_long_recording_that_grows_while_it_is_read_is_not_cut_off() {
    let mut running = start_loop(&["40000", "100", "10", "200"], &[]);
    let size = |f: &Path| {
        let found = below(&f.join("tmp"), |t| t.is_file(), ".gpr");
        found.first().and_then(|p| p.metadata().ok()).map_or(0, |m| m.len())
    };
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
    let mut running = start("2500", &[("GAPPROBE_CAPTURE", "profiler")]);
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
    assert_eq!((run.ending(), run.launched()), (0, 25_000), "{}", run.stderr);
    // (steps by a period alone are looked at for two seconds)
    let kernels = run.recorded().kernels().len();
    assert!((200..15_000).contains(&kernels), "{kernels} of 25000: those of the window");
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
        assert!(killed.elapsed() < Duration::from_secs(2), "nobody holds it any more");
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 20_000), "{}", run.stderr);
}

#[test]
fn nobody_who_knocks_holds_the_process_up() {
    let alone = start("1000", &[]).finish();
    let running = start("1000", &[]);
    let socket = sockets(&running).remove(0);
    // an address has room for 107 bytes
    let folder = std::env::temp_dir().join(format!("gapprobe-crowd-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    std::os::unix::fs::symlink(socket.parent().expect("a folder"), &folder).expect("a link");
    let near = folder.join(socket.file_name().expect("a name"));
    let until = Instant::now() + Duration::from_secs(2);
    let mut crowd: Vec<UnixStream> = Vec::new();
    let mut answers = 0;
    while Instant::now() < until {
        let Ok(mut one) = UnixStream::connect(&near) else { continue };
        one.set_nonblocking(true).expect("nonblocking");
        let noise: &[u8] = match crowd.len() % 4 {
            0 => &[b'x'; 4096],
            1 => b"gapprobe/1 stat",
            2 => b"gapprobe/1 status\ngapprobe/1 status\ngapprobe/1 status\n",
            _ => b"",
        };
        let _ = one.write_all(noise); // it may have hung up already
        crowd.push(one);
        if crowd.len() > 40 {
            // a word, an end, or an end with words of ours unread
            let heard = |mut c: &UnixStream| match c.read(&mut [0; 100]) {
                Ok(_) => true,
                Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
            };
            answers += crowd.drain(..20).filter(|c| heard(c)).count();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(answers > 20, "it answers or hangs up: {answers}, {} wait", crowd.len());
    drop(crowd);
    let _ = std::fs::remove_file(folder);
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 10_000), "{}", run.stderr);
    let recorded = run.recorded();
    assert_eq!(recorded.kernels().len(), 10_000, "{:?}", recorded.losses());
    let slower = run.wall.as_secs_f64() / alone.wall.as_secs_f64();
    // (others' programs may run beside one of the two: held up, it would wait for each of the
    // crowd)
    assert!(slower < 3.0, "{:?} without, {:?} with a crowd", alone.wall, run.wall);
}

/// H100, c074a64: what was seen at first was one step's updates of single parameters, and 20 steps
/// of 0.17 ms were told, of 2,766 launches and 47 ms each.
#[test]
fn layers_are_no_steps_where_a_step_takes_longer_than_one_look() {
    // steps of 2 s: 100 pairs of kernels, then 100 of others, 10 ms each
    let victim = Victim::ours("13.0", &["steps", "100000", "100", "40000", "l"]);
    std::fs::create_dir(victim.folder.join("captured")).expect("a folder");
    let mut running = victim.env("GAPPROBE_CAPTURE", "profiler").start();
    assert!(running.wait_for(|f| !below(&f.join("tmp"), |t| t.is_socket(), ".sock").is_empty()), "a socket");
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
fn a_socket_that_somebody_removes_comes_again() {
    let mut running = start("12000", &[("GAPPROBE_CAPTURE", "profiler")]);
    let socket = sockets(&running).remove(0);
    std::fs::remove_file(&socket).expect("removed");
    assert!(running.wait_for(|_| socket.exists()), "it comes again");
    assert_eq!(standing(&running), "off");
    let pid = running.pid().to_string();
    let output = gapprobe(&running, &["capture", &pid, "--seconds", "300ms", "--json"]).output();
    let (code, text, talk) = said(&output.expect("capture"));
    assert_eq!(code, 0, "{talk}");
    assert!(summary(&text)["steps"]["count"].as_u64().unwrap() > 10, "{text}");
    running.signal(libc::SIGKILL);
    running.finish();
}

/// 50,000 answers a second took a core and two fifths of the program's launches.
#[test]
fn a_client_that_asks_and_asks_is_answered_some_fifty_times_a_second() {
    let running = start("1000", &[]);
    let script = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); n = 0
end = time.monotonic() + 2
while time.monotonic() < end: s.sendall(b'gapprobe/1 status\\n'); s.recv(100); n += 1
print(n)";
    // (an address has no room for a long path)
    let socket = sockets(&running).remove(0);
    let (folder, name) = (socket.parent().expect("a folder"), socket.file_name().expect("a name"));
    let asked = Command::new("python3").args(["-c", script]).arg(name).current_dir(folder).output();
    let (code, answers, talk) = said(&asked.expect("python3"));
    let answers: u32 = answers.trim().parse().unwrap_or(0);
    assert!(code == 0 && (4..=110).contains(&answers), "{answers} in two seconds: {talk}");
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 10_000), "{}", run.stderr);
}

#[test]
fn another_user_is_not_answered() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("only root can be another user");
    }
    let running = start("1000", &[]);
    let socket = sockets(&running).remove(0);
    let mode = |p: &Path| p.symlink_metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(socket.parent().unwrap())), (0o600, 0o700));
    let script =
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1])
s.sendall(b'gapprobe/1 status\\n'); print(s.recv(100).decode().strip() or 'nothing')";
    // under a name that anybody can reach: what is left is the check of who it is
    let reachable = std::env::temp_dir().join(format!("gapprobe-peer-{}", std::process::id()));
    let _ = std::fs::remove_file(&reachable);
    let ask = |uid: u32| {
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(&reachable).current_dir("/").uid(uid).gid(uid);
        said(&python.output().expect("python3"))
    };
    if std::fs::hard_link(&socket, &reachable).is_err() {
        let _ = running.finish();
        return skipped("the folder for temporary files is on another disk than the tests");
    }
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).expect("mode");
    let (own, other) = (ask(0), ask(65_534));
    let _ = std::fs::remove_file(&reachable);
    assert_eq!(own.1, "gapprobe/1 ok on\n", "{own:?}");
    // (let go before or after it asked)
    let is_let_go = ["ConnectionResetError", "BrokenPipeError"].iter().any(|e| other.2.contains(e));
    assert!(other.1 == "nothing\n" || is_let_go, "{other:?}");
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 10_000), "{}", run.stderr);
}

#[test]
fn no_socket_is_made_behind_a_planted_link_and_the_command_does_not_follow_one() {
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
    let there = |f: &Path| !below(&f.join("tmp/root"), |t| t.is_socket(), ".sock").is_empty();
    assert!(running.wait_for(there), "where it is its own");
    assert_eq!(below(&planted, |_| true, ""), Vec::<PathBuf>::new());
    let pid = running.pid().to_string();
    let (code, list, talk) = said(&gapprobe(&running, &["ps"]).output().expect("ps"));
    assert!(code == 0 && list.contains(&pid), "{talk}");
    assert!(talk.contains("is a symbolic link: not used"), "{talk}");
    let run = running.finish();
    assert_eq!((run.ending(), run.launched()), (0, 3_000), "{}", run.stderr);
    assert_eq!(below(&planted, |_| true, ""), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_too_deep_for_an_address_is_no_obstacle() {
    let victim =
        Victim::sim("13.0", &["loop", "1500", "10", "50", "2000"]).env("GAPPROBE_CAPTURE", "profiler");
    let deep = victim.folder.join("tmp").join("d".repeat(100));
    std::fs::create_dir_all(&deep).expect("a folder");
    std::fs::create_dir(victim.folder.join("captured")).expect("a folder");
    let mut running = victim.env("TMPDIR", &deep).start();
    assert!(running.wait_for(|f| !below(&f.join("tmp"), |t| t.is_socket(), ".sock").is_empty()), "a socket");
    let pid = running.pid().to_string();
    let mut capture = gapprobe(&running, &["capture", &pid, "--seconds", "300ms", "--json"]);
    let (code, text, talk) = said(&capture.env("TMPDIR", &deep).output().expect("capture"));
    assert_eq!(code, 0, "{talk}");
    assert!(summary(&text)["steps"]["count"].as_u64().unwrap() > 10, "{text}");
    running.signal(libc::SIGKILL);
    let run = running.finish();
    let left = || below(&run.folder.join("tmp"), |t| t.is_socket(), ".sock").len();
    assert_eq!((run.ending(), left()), (1009, 1));
    // what a killed process left goes with the next one that ends
    let next = Victim::sim("13.0", &["loop", "10", "20", "20"]).env("TMPDIR", &deep).run();
    assert_eq!((next.ending(), left()), (0, 0), "{}", next.stderr);
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
