// SPDX-License-Identifier: Apache-2.0
//! `gapprobe metrics`: a file for Prometheus that is whole whenever it is there, and the same
//! figures by OTLP.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use prost::Message;

use crate::beating::Beating;
use crate::place::{code, err, out, Place};

/// Samples of Prometheus' text format: name and labels, and value. What does not fit the format
/// fails.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {name}");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            assert_eq!(types[family] == "counter", family.ends_with("_total"), "{line}");
            assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {name}");
        }
    }
    samples
}

#[test]
fn it_ends_when_nobody_reads_what_it_says() {
    let place = Place::new("metrics-head");
    let mut child = place
        .gapprobe(&["metrics", "--every", "100ms"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    assert!(reader.read_line(&mut String::new()).unwrap() > 0);
    drop(reader);
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}

fn who() -> String {
    format!(r#"host="testhost",job="job-17",pid="{}",rank="3",world_size="8""#, std::process::id())
}

/// A collector: what it was sent, each as (path, content type, body).
pub(crate) fn collector(answer: &'static str) -> (u16, Receiver<(String, String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sent, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                head.push(line.trim_end().to_owned());
            }
            let field = |name: &str| {
                let of = |l: &String| l.to_lowercase().strip_prefix(name).map(|v| v.trim().to_owned());
                head.iter().find_map(of).unwrap_or_default()
            };
            let mut body = vec![0; field("content-length:").parse().unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            let path = head.first().map(|l| l.split(' ').nth(1).unwrap_or("").to_owned()).unwrap_or_default();
            let _ = sent.send((path, field("content-type:"), body)); // the test may have seen enough
            let _ = (&stream).write_all(answer.as_bytes()); // as above
        }
    });
    (port, received)
}

pub(crate) const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[test]
fn the_textfile_holds_the_figures_of_each_process_with_rank_world_and_job() {
    let place = Place::new("metrics");
    let _beating = Beating::new(&place, |b| {
        b.header.losses[trace::Loss::CuptiDropped.code() as usize] = 7;
        for (total, n) in [
            (trace::Total::Kernels, 41),
            (trace::Total::Launches, 30),
            (trace::Total::LaunchesBetween, 1000),
            (trace::Total::GraphLaunches, 1),
        ] {
            b.header.totals[total as usize] = n;
        }
        b.header.cupti_version = 130_000;
    });
    let folder = place.out().join("prom");
    fs::create_dir(&folder).unwrap();
    let output = place.run(&["metrics", "--textfile", "prom", "--once", "--last", "2s"]);
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "", ""));
    let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let name = files[0].file_name().into_string().unwrap();
    assert!(name.starts_with("gapprobe-") && name.ends_with(".prom"), "{name}");
    assert_eq!(
        files[0].metadata().unwrap().permissions().mode() & 0o777,
        0o644,
        "the collector is another user"
    );
    let text = fs::read_to_string(files[0].path()).unwrap();
    let samples = samples(&text);
    let get = |name: &str, more: &str| {
        // labels stand in alphabetical order
        let mut labels: Vec<String> = format!("{}{more}", who()).split(',').map(str::to_owned).collect();
        labels.sort();
        let key = format!("{name}{{{}}}", labels.join(","));
        *samples.get(&key).unwrap_or_else(|| panic!("{key} in\n{text}"))
    };
    assert_eq!(samples["gapprobe_processes"], 1.0);
    assert_eq!(get("gapprobe_recording", ""), 1.0);
    assert_eq!(get("gapprobe_step_seconds", r#",percentile="50""#), 0.005);
    assert!((get("gapprobe_gpu_busy_ratio", r#",device="0""#) - 0.8).abs() < 0.001);
    let shares = samples.iter().filter(|s| s.0.starts_with("gapprobe_gpu_time_ratio{"));
    let (count, sum) = shares.fold((0, 0.0), |(n, sum), s| (n + 1, sum + s.1));
    assert!(count == 12 && f64::abs(sum - 1.0) < 1e-9, "{text}");
    assert_eq!(get("gapprobe_losses_total", r#",loss="cupti_dropped",severity="data""#), 7.0);
    assert_eq!(get("gapprobe_losses_total", r#",loss="any",severity="data""#), 7.0);
    assert_eq!(get("gapprobe_kernels_total", ""), 41.0);
    assert_eq!(get("gapprobe_cupti_kept_bytes", ""), 32.0 * 1030.0);
    assert!(get("gapprobe_cost_ratio", "") >= 0.0);
    // without a place for them they go to stdout
    let names = |text: &str| -> BTreeSet<String> {
        text.lines().filter_map(|l| Some(l.strip_prefix("# TYPE ")?.to_owned())).collect()
    };
    let shown = out(&place.run(&["metrics", "--once", "--last", "2s"]));
    assert_eq!(names(&shown), names(&text));
}

#[test]
fn nobody_recorded_is_a_figure_too_and_a_figure_that_is_not_known_is_none() {
    let place = Place::new("metrics-none");
    let output = place.run(&["metrics", "--once"]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(samples(&out(&output))["gapprobe_processes"], 0.0);
    // too short for steps
    let _beating = Beating::new(&place, |_| {});
    let text = out(&place.run(&["metrics", "--once", "--last", "8ms"]));
    assert_eq!(samples(&text)["gapprobe_processes"], 1.0);
    assert!(!text.contains("gapprobe_step_seconds"), "{text}");
}

#[test]
fn names_that_others_chose_stay_inside_their_labels() {
    let place = Place::new("metrics-names");
    let _beating = Beating::new(&place, |b| {
        b.header.host = "a\"} 1\ngapprobe_processes 99\n".into();
        b.attribute(trace::define::JOB, "x\\\"\x1b[2J");
    });
    let output = place.run(&["metrics", "--once"]);
    let text = out(&output);
    assert_eq!((code(&output), samples(&text)["gapprobe_processes"]), (0, 1.0));
    assert!(
        !text.contains('\x1b') && !text.lines().any(|l| l.starts_with("gapprobe_processes 99")),
        "{text}"
    );
}

#[test]
fn a_companion_renews_the_file_and_takes_it_away_when_told_to_end() {
    let place = Place::new("metrics-loop");
    let _beating = Beating::new(&place, |_| {});
    let folder = place.out().join("prom");
    fs::create_dir(&folder).unwrap();
    let mut companion =
        place.gapprobe(&["metrics", "--textfile", "prom", "--every", "200ms"]).spawn().unwrap();
    let files = || -> Vec<_> { fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()).collect() };
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(30), "renewed: {seen:?}");
        for file in files().iter().filter(|f| f.extension().is_some_and(|e| e == "prom")) {
            // (renamed meanwhile: the new one is read)
            let text = fs::read_to_string(file).unwrap();
            assert_eq!(samples(&text)["gapprobe_processes"], 1.0, "whole");
            seen.insert(fs::metadata(file).unwrap().modified().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // a second one, of which each would take the other's file away
    let second = place.run(&["metrics", "--textfile", "prom", "--every", "100ms"]);
    assert_eq!(code(&second), 1);
    assert!(err(&second).contains("another gapprobe metrics renews them there"), "{}", err(&second));
    assert_eq!(code(&place.run(&["metrics", "--textfile", "prom", "--once"])), 0);
    end(&mut companion);
    assert_eq!(companion.wait().unwrap().code(), Some(0));
    assert_eq!(files(), Vec::<std::path::PathBuf>::new(), "figures that nobody renews are untrue");
}

#[expect(unsafe_code, reason = "kill is libc's")]
fn end(child: &mut std::process::Child) {
    // SAFETY: a child of ours that was not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
}

#[test]
fn by_otlp_the_same_figures_go_to_a_collector() {
    let place = Place::new("metrics-otlp");
    let _beating = Beating::new(&place, |b| b.header.totals[trace::Total::Kernels as usize] = 41);
    fs::create_dir(place.out().join("prom")).unwrap();
    let (port, received) = collector(FINE);
    let url = format!("http://127.0.0.1:{port}");
    let output = place
        .gapprobe(&["metrics", "--otlp", &url, "--textfile", "prom", "--once", "--last", "2s"])
        .env("http_proxy", "http://127.0.0.1:1") // it is asked directly
        .output()
        .unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let (path, kind, body) = received.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!((path.as_str(), kind.as_str()), ("/v1/metrics", "application/x-protobuf"));
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let names: BTreeSet<String> = metrics.iter().map(|m| m.name.clone()).collect();
    let file = fs::read_dir(place.out().join("prom")).unwrap().flatten().next().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    let in_file: BTreeSet<String> =
        text.lines().filter_map(|l| Some(l.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())).collect();
    assert_eq!(names, in_file);
    let kernels = metrics.iter().find(|m| m.name == "gapprobe_kernels_total").unwrap();
    let Some(metric::Data::Sum(sum)) = &kernels.data else { panic!("{kernels:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative: {sum:?}");
    let point = &sum.data_points[0];
    assert_eq!(point.value, Some(number_data_point::Value::AsDouble(41.0)));
    assert_eq!(point.start_time_unix_nano, 1_795_000_000_000_000_000);
    let named: BTreeSet<&str> = point.attributes.iter().map(|a| a.key.as_str()).collect();
    assert_eq!(named, BTreeSet::from(["job", "rank", "world_size", "host", "pid"]));
}

#[test]
fn who_cannot_be_reached_is_named_and_costs_the_other_nothing() {
    let place = Place::new("metrics-down");
    fs::create_dir(place.out().join("prom")).unwrap();
    let (port, _received) = collector("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    for (url, wanted) in [
        (format!("http://127.0.0.1:{port}"), "it answers 503"),
        ("http://127.0.0.1:1".to_owned(), "127.0.0.1:1/v1/metrics: "),
    ] {
        let output = place.run(&["metrics", "--once", "--textfile", "prom", "--otlp", &url]);
        assert_eq!(code(&output), 1);
        assert!(err(&output).contains(wanted) && err(&output).contains("\nhint: "), "{}", err(&output));
        let file = fs::read_dir(place.out().join("prom")).unwrap().flatten().next().unwrap().path();
        fs::remove_file(file).unwrap();
    }
    let output = place.run(&["metrics", "--once", "--textfile", "nowhere"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).starts_with("gapprobe: no metrics in nowhere: No such file"), "{}", err(&output));
    let (port, received) = collector(FINE);
    let url = format!("http://127.0.0.1:{port}");
    let words = ["metrics", "--textfile", "nowhere", "--otlp", &url, "--every", "100ms"];
    let mut companion = place.gapprobe(&words).stderr(std::process::Stdio::null()).spawn().unwrap();
    assert!(
        received.recv_timeout(Duration::from_secs(20)).is_ok(),
        "a folder that is not there costs the collector nothing"
    );
    end(&mut companion);
    assert_eq!(companion.wait().unwrap().code(), Some(0));
    assert_eq!(code(&place.run(&["metrics", "--once", "--otlp", "https://localhost:4318"])), 2);
}
