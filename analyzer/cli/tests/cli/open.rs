// SPDX-License-Identifier: Apache-2.0
//! `open`: which trace, to whom it is served and how often, what the page is told to show, and what
//! is said where there is no browser, no trace, or no port. In a real browser:
//! `tests/perfetto-ui/`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use flate2::read::GzDecoder;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use trace::build::Builder;
use trace::{Event, Kind};

use crate::html_report::repository;
use crate::place::{code, err, out, recording, Place};

const PERFETTO: &str = "https://ui.perfetto.dev";

/// The command, as a user on this machine without a screen would start it.
fn command(place: &Place, args: &[&str]) -> Command {
    let mut command = place.gapprobe(&[&["open"], args].concat());
    for name in ["SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"] {
        command.env_remove(name);
    }
    command.env("USER", "alice").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(place: &Place, args: &[&str]) -> Output {
    command(place, args).output().unwrap()
}

/// A port that nobody listens at.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `gapprobe open` while it serves.
struct Serving {
    child: Child,
    port: u16,
    /// What stdout had: the URL of the page.
    url: String,
}

impl Serving {
    fn new(place: &Place, args: &[&str]) -> Serving {
        let port = free_port();
        Serving::at(port, command(place, &[args, &["--port", &port.to_string()]].concat()))
    }

    fn at(port: u16, mut command: Command) -> Serving {
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Serving { child, port, url: url.trim_end().to_owned() }
    }

    /// A parameter of the URL.
    fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.url.split_once("/#!/?").unwrap_or_else(|| panic!("no query: {}", self.url));
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(key, _)| *key == name)?;
        Some(percent_decode_str(found.1).decode_utf8().unwrap().into_owned())
    }

    /// Path of the trace on the server.
    fn path(&self) -> String {
        let url = self.parameter("url").unwrap();
        url.strip_prefix("http://127.0.0.1:9001").unwrap_or_else(|| panic!("another port: {url}")).to_owned()
    }

    /// Status, headers and body of the answer to a request.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String, Vec<u8>) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        raw(self.port, format!("{head}\r\n").as_bytes())
    }

    /// As the page asks.
    fn fetch(&self) -> (u16, String, Vec<u8>) {
        self.ask("GET", &self.path(), &[("Host", "127.0.0.1:9001"), ("Origin", PERFETTO)])
    }

    fn end(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

fn raw(port: u16, request: &[u8]) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("headers end");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, answer[end + 4..].to_vec())
}

/// A trace of gapprobe in the results folder, written `age` seconds ago.
fn trace(place: &Place, name: &str, age: u64) -> Vec<u8> {
    fs::write(place.0.join("run.gpr"), recording(all_but_step_200_work_longer)).unwrap();
    let output = place.run(&["export", "../run.gpr", "-o", name]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let path = place.out().join(name);
    let written = SystemTime::now() - Duration::from_secs(age);
    fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    fs::read(path).unwrap()
}

/// Each step of `recording` has kernels up to 0.61 ms of 1 ms; with this up to 0.9 ms, but for one.
fn all_but_step_200_work_longer(b: &mut Builder) {
    let kernel = b.kernel("_Z4tailPfS_", 256, 64);
    for step in (0..300u64).filter(|step| *step != 200) {
        let begin = 1_000_000_000 + step * 1_000_000;
        let mut op = Event::new(Kind::Kernel, begin + 620_000, begin + 900_000);
        (op.a, op.b) = (kernel, 1024);
        b.on_stream(0, 1, 7, op);
    }
}

const OLD: &str = "gapprobe-testhost-1-20261122-000000-00aa.json.gz";
const NEW: &str = "gapprobe-testhost-2-20261121-000000-00bb.json.gz";

#[test]
fn the_newest_trace_is_served_once_to_the_page_and_that_ends_it() {
    let place = Place::new("open-newest");
    trace(&place, OLD, 100);
    let newest = trace(&place, NEW, 50);
    trace(&place, "mine.json.gz", 0); // named by hand: nobody's newest run
    let serving = Serving::new(&place, &["--print-url"]);
    assert!(serving.url.starts_with("https://ui.perfetto.dev/#!/?url="), "{}", serving.url);
    let (path, port) = (serving.path(), serving.port);
    assert!(path.ends_with(&format!("/{NEW}")) && path.len() == NEW.len() + 34, "{path}");
    let (status, head, body) = serving.fetch();
    assert_eq!(status, 200, "{head}");
    assert!(body == newest, "the file as it is");
    assert!(head.contains("\r\nAccess-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{head}");
    let output = serving.end();
    assert_eq!(code(&output), 0);
    assert!(err(&output).contains(&format!("gapprobe: the newest trace: ./{NEW}\n")), "{}", err(&output));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "nobody listens any more");
    // GAPPROBE_DIR is where traces are; a folder is named by hand, too
    fs::create_dir(place.0.join("empty")).unwrap();
    for named in [&[][..], &["."]] {
        let mut command =
            command(&place, &[named, &["--wait", "1ms", "--port", &free_port().to_string()]].concat());
        let output = command.env("GAPPROBE_DIR", "../empty").output().unwrap();
        assert_eq!(code(&output), if named.is_empty() { 4 } else { 1 }, "{}", err(&output));
    }
}

#[test]
fn nobody_but_the_page_gets_it() {
    let place = Place::new("open-refuses");
    trace(&place, NEW, 0);
    let serving = Serving::new(&place, &["--origin", "http://localhost:10000/"]);
    assert!(serving.url.starts_with("http://localhost:10000/#!/?url="), "{}", serving.url);
    let (path, origin) = (serving.path(), ("Origin", "http://localhost:10000"));
    let (host, guessed) = (("Host", "127.0.0.1:9001"), format!("/{NEW}"));
    // it sends nothing, and holds up nobody
    let _silent = TcpStream::connect(("127.0.0.1", serving.port)).unwrap();
    for (method, path, headers, expected) in [
        ("GET", &path, &[host, ("Origin", PERFETTO)][..], 403),
        ("GET", &path, &[host, ("Origin", "null")], 403),
        ("GET", &path, &[host], 403),
        ("GET", &path, &[("Host", "attacker.example:9001"), origin], 403),
        ("GET", &path, &[origin], 403),
        ("OPTIONS", &path, &[host, ("Origin", PERFETTO)], 403),
        ("GET", &guessed, &[host, origin], 404),
        ("GET", &"/".to_owned(), &[host, origin], 404),
        // Perfetto looks whether a trace processor listens here
        ("POST", &"/status".to_owned(), &[host, origin], 404),
        ("POST", &path, &[host, origin], 404),
    ] {
        let (status, head, body) = serving.ask(method, path, headers);
        assert_eq!((status, body.len()), (expected, 0), "{method} {path} {headers:?}: {head}");
        assert_eq!(head.contains("Access-Control"), expected == 404, "{head}");
    }
    assert_eq!(raw(serving.port, b"\x16\x03\x01 no HTTP\r\n\r\n").0, 400);
    let private = ("Access-Control-Request-Private-Network", "true");
    let (status, head, _) = serving.ask("OPTIONS", &path, &[host, origin, private]);
    assert_eq!(status, 204);
    for line in ["Allow-Origin: http://localhost:10000", "Allow-Methods: GET", "Allow-Private-Network: true"]
    {
        assert!(head.contains(&format!("\r\nAccess-Control-{line}")), "{line}: {head}");
    }
    assert_eq!(serving.ask("GET", &path, &[host, origin]).0, 200, "it is still there");
    assert_eq!(code(&serving.end()), 0);
}

/// Begin and end of the step's slice in a trace, ns.
fn step(trace: &[u8], number: u32) -> (u64, u64) {
    let trace: Value = serde_json::from_reader(GzDecoder::new(trace)).unwrap();
    let name = format!("step {number}");
    let mut found = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["name"] == name.as_str());
    let event = found.next().unwrap_or_else(|| panic!("no {name}"));
    let ns = |key: &str| (event[key].as_f64().unwrap() * 1000.0).round() as u64;
    (ns("ts"), ns("ts") + ns("dur"))
}

#[test]
fn the_worst_steady_step_is_in_view_and_the_idle_track_is_pinned() {
    let place = Place::new("open-view");
    let own = trace(&place, NEW, 0);
    for named in [NEW, "../run.gpr"] {
        let serving = Serving::new(&place, &[named]);
        let time = |name: &str| serving.parameter(name).unwrap().parse::<u64>().unwrap();
        let (from, to) = (time("visStart"), time("visEnd"));
        let (begin, end) = step(&own, 200);
        assert!(from <= begin && end <= to, "{named}: {from} {begin} {end} {to}");
        assert!(to - from <= (end - begin) * 5 / 4, "and little else: {from} to {to}");
        let commands: Value = serde_json::from_str(&serving.parameter("startupCommands").unwrap()).unwrap();
        assert_eq!(commands[0]["id"], "dev.perfetto.PinTracksByRegex");
        assert!(commands[0]["args"][0].as_str().unwrap().contains("why idle"), "{commands}");
        let (status, _, body) = serving.fetch();
        assert_eq!((status, step(&body, 200)), (200, (begin, end)));
        let said = err(&serving.end());
        assert!(said.contains("step 200 is in view"), "{said}");
        assert_eq!(
            said.contains("a gapprobe recording, shown as gapprobe export writes it"),
            named != NEW,
            "{said}"
        );
    }
}

#[test]
fn a_trace_of_another_tool_gets_its_idle_track_first() {
    let place = Place::new("open-foreign");
    let serving = Serving::new(&place, &[&repository("traces/h200_gptsync.json.gz")]);
    assert!(serving.path().ends_with("/h200_gptsync.gapprobe.json.gz"), "{}", serving.path());
    let mut text = String::new();
    GzDecoder::new(serving.fetch().2.as_slice()).read_to_string(&mut text).unwrap();
    assert!(text.contains("\"why idle\""));
    let output = serving.end();
    assert!(err(&output).contains("a torch.profiler trace, shown as"), "{}", err(&output));
    assert!(place.results().is_empty(), "{:?}", place.results());
}

#[test]
fn what_is_no_trace_and_a_folder_without_one_end_with_4() {
    let place = Place::new("open-none");
    fs::write(place.out().join("notes.txt"), "no trace").unwrap();
    let port = free_port().to_string();
    for (named, expected) in [
        (&["notes.txt"][..], "notes.txt: "),
        (&["nowhere.json.gz"], "nowhere.json.gz: "),
        (&["."], ".: no trace of gapprobe (gapprobe-*.json.gz) is there"),
        (&[], ".: no trace of gapprobe"),
    ] {
        let output = run(&place, &[named, &["--port", &port]].concat());
        assert_eq!((code(&output), out(&output).as_str()), (4, ""), "{named:?}: {}", err(&output));
        assert!(err(&output).starts_with(&format!("gapprobe: {expected}")), "{}", err(&output));
        assert!(err(&output).contains("\nhint: "), "{}", err(&output));
    }
    for wrong in ["ui.perfetto.dev", "ftp://x", "https://"] {
        assert_eq!(code(&run(&place, &["--origin", wrong])), 2, "{wrong}");
    }
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let place = Place::new("open-port");
    trace(&place, NEW, 0);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(&place, &["--port", &port]);
    assert_eq!((code(&output), out(&output).as_str()), (1, ""));
    let said = err(&output);
    assert!(
        said.contains(&format!("port {port} is in use (127.0.0.1:{port})\n\nhint: end what listens there")),
        "{said}"
    );
    assert!(said.contains("--report") && said.contains("--port"), "{said}");
}

#[test]
fn where_nobody_comes_it_ends_by_itself_or_with_a_signal_and_says_so() {
    let place = Place::new("open-nobody");
    trace(&place, NEW, 0);
    let output = run(&place, &["--port", &free_port().to_string(), "--wait", "50ms"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("no browser asked for it within 50 ms\n\nhint: "), "{}", err(&output));
    let serving = Serving::new(&place, &[]);
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = serving.end();
    assert_eq!(code(&output), 1);
    assert!(err(&output).ends_with("ended before a browser asked for it\n"), "{}", err(&output));
    assert!(err(&output).contains("Ctrl-C ends"), "{}", err(&output));
}

/// A browser of the test: writes its arguments to `asked`, and ends as told.
fn browser(place: &Place, ends_with: u8) -> String {
    let path = place.0.join("browser");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\nexit {ends_with}\n",
        place.0.join("asked").display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn asked(place: &Place) -> String {
    let (file, begin) = (place.0.join("asked"), Instant::now());
    loop {
        match fs::read_to_string(&file) {
            Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
            _ => assert!(begin.elapsed() < Duration::from_secs(20), "no browser was started"),
        }
        sleep(Duration::from_millis(10));
    }
}

/// The port that Perfetto may ask is one for the whole machine: one test at a time has it, in other
/// checkouts, too.
pub(crate) fn perfettos_port() -> UnixListener {
    let name = SocketAddr::from_abstract_name("gapprobe-tests-port-9001").unwrap();
    let begin = Instant::now();
    loop {
        let turn = UnixListener::bind_addr(&name);
        if let (Ok(turn), Ok(_)) = (turn, TcpListener::bind("127.0.0.1:9001")) {
            return turn;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "something listens at port 9001 of this machine");
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn with_a_browser_and_without_one_and_from_another_machine() {
    let place = Place::new("open-browser");
    trace(&place, NEW, 0);
    let _port = perfettos_port();
    // a browser that starts gets the URL, and stdout nothing
    let mut started = command(&place, &[]);
    let mut child = started.env("BROWSER", format!("{} --new-tab %s", browser(&place, 0))).spawn().unwrap();
    let url = asked(&place);
    assert!(url.starts_with("--new-tab\nhttps://ui.perfetto.dev/#!/?url="), "{url}");
    let mut served = Serving { port: 9001, url, child };
    assert_eq!(served.fetch().0, 200);
    let mut text = String::new();
    served.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    child = served.child;
    assert_eq!((child.wait().unwrap().code(), text.as_str()), (Some(0), ""));
    // one that fails, or is not there: the URL is on stdout, and served
    for (program, why) in
        [(browser(&place, 3), "ended with exit status: 3"), ("/nowhere/browser".to_owned(), "No such file")]
    {
        let mut failing = command(&place, &[]);
        failing.env("BROWSER", &program);
        let serving = Serving::at(9001, failing);
        assert_eq!(serving.fetch().0, 200);
        let output = serving.end();
        let said = err(&output);
        assert_eq!(code(&output), 0, "{said}");
        assert!(said.contains(&format!("no browser was started: {program}")) && said.contains(why), "{said}");
        assert!(said.contains("\nhint: open this URL yourself"), "{said}");
    }
    // on a remote host none is tried
    let mut remote = command(&place, &[]);
    remote.env("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.1 22");
    let serving = Serving::at(9001, remote);
    assert_eq!(serving.fetch().0, 200);
    let said = err(&serving.end());
    assert!(said.contains("\n  ssh -N -L 9001:127.0.0.1:9001 alice@"), "{said}");
    assert!(!said.contains("browser was started"), "{said}");
}

#[test]
fn the_page_of_a_trace_is_made_where_it_is_missing_and_opened() {
    let place = Place::new("open-report");
    trace(&place, NEW, 0);
    let page = place.out().join(Path::new(NEW).with_extension("").with_extension("report.html"));
    let open = |browser: String| command(&place, &["--report"]).env("BROWSER", browser).output().unwrap();
    let output = open(browser(&place, 0));
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(out(&output).trim_end(), page.canonicalize().unwrap().display().to_string());
    assert_eq!(asked(&place), out(&output).trim_end());
    assert!(fs::read_to_string(&page).unwrap().contains("<!doctype html>"));
    // it is not made again
    fs::write(&page, "kept").unwrap();
    assert_eq!(code(&open(browser(&place, 0))), 0);
    let failed = open(browser(&place, 4));
    assert_eq!(code(&failed), 1);
    assert!(err(&failed).contains("\nhint: open "), "{}", err(&failed));
    assert_eq!(fs::read_to_string(&page).unwrap(), "kept");
    // the file is fetched where the screen is
    let output =
        command(&place, &["--report"]).env("SSH_CONNECTION", "10.0.0.2 50000 10.0.0.1 22").output().unwrap();
    assert_eq!(code(&output), 0);
    assert!(err(&output).contains("\n  scp alice@"), "{}", err(&output));
}
