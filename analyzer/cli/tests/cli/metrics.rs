// SPDX-License-Identifier: Apache-2.0
//! `gapprobe metrics`: a file for Prometheus that is whole whenever it is there, the same by a
//! scrape endpoint and by OTLP.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    metric, number_data_point, Metric, NumberDataPoint, ResourceMetrics,
};
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
            let of = ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
            let kind = of.and_then(|f| types.get(f)).or_else(|| types.get(family)).unwrap();
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
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

/// What a collector was sent.
pub(crate) struct Sent {
    pub(crate) path: String,
    head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    /// A header's value.
    pub(crate) fn field(&self, name: &str) -> String {
        let of = |l: &String| {
            Some(l.split_once(':').filter(|l| l.0.eq_ignore_ascii_case(name))?.1.trim().to_owned())
        };
        self.head.iter().find_map(of).unwrap_or_default()
    }
}

/// A collector that gives this answer.
pub(crate) fn collector(answer: &'static str) -> (u16, Receiver<Sent>) {
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
            let path = head.first().map(|l| l.split(' ').nth(1).unwrap_or("").to_owned()).unwrap_or_default();
            let mut one = Sent { path, head, body: Vec::new() };
            one.body = vec![0; one.field("content-length").parse().unwrap_or(0)];
            reader.read_exact(&mut one.body).unwrap();
            let _ = sent.send(one); // the test may have seen enough
            let _ = (&stream).write_all(answer.as_bytes()); // as above
        }
    });
    (port, received)
}

pub(crate) const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

pub(crate) const UUID: &str = "GPU-53494d55-4c41-5445-442d-4750552d3030";

#[test]
fn the_textfile_holds_the_metrics_of_each_process_by_run_and_rank() {
    let place = Place::new("metrics");
    let _beating = Beating::new(&place, |b| {
        b.header.losses[trace::Loss::CuptiDropped.code() as usize] = 7;
        for (total, n) in [
            (trace::Total::Kernels, 41),
            (trace::Total::Launches, 30),
            (trace::Total::LaunchesBetween, 1000),
            (trace::Total::GraphLaunches, 1),
            (trace::Total::Steps, 900),
        ] {
            b.header.totals[total as usize] = n;
        }
        b.header.cupti_version = 130_000;
        b.attribute(&trace::define::gpu_uuid(0), UUID);
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
        let key = format!(r#"{name}{{run="job-17",rank="3"{more}}}"#);
        *samples.get(&key).unwrap_or_else(|| panic!("{key} in\n{text}"))
    };
    let gpu = |name: &str, more: &str| get(name, &format!(r#",gpu_uuid="{UUID}"{more}"#));
    assert_eq!(samples["gapprobe_processes"], 1.0);
    assert_eq!(get("gapprobe_recording_active", ""), 1.0);
    let who = format!(
        r#",job_name="job-17",world_size="8",host="testhost",pid="{}",command="python train.py""#,
        std::process::id()
    );
    assert!(text.contains(&format!(r#"gapprobe_process_info{{run="job-17",rank="3"{who}"#)), "{text}");
    assert_eq!(gpu("gapprobe_gpu_info", r#",device="0",model="SIM""#), 1.0);
    assert_eq!(get("gapprobe_process_start_time_seconds", ""), 1_795_000_000.0);
    // five seconds and what has gone by since, of which 4 of 5 ms are busy
    let observed = gpu("gapprobe_gpu_observed_time_seconds_total", "");
    assert!((4.9..60.0).contains(&observed), "{observed}");
    let parts = samples.iter().filter(|s| s.0.starts_with("gapprobe_gpu_time_seconds_total{"));
    let (count, sum) = parts.fold((0, 0.0), |(n, sum), s| (n + 1, sum + s.1));
    assert!(count == 12 && f64::abs(sum - observed) < 1e-6, "{text}");
    let busy = gpu("gapprobe_gpu_time_seconds_total", r#",state="busy",cause="compute""#);
    assert!((busy / observed - 0.8).abs() < 0.01, "{busy} of {observed}");
    assert_eq!(get("gapprobe_steps_total", ""), 900.0);
    let steps = get("gapprobe_step_duration_seconds_count", "");
    assert!((get("gapprobe_step_duration_seconds_sum", "") / steps - 0.005).abs() < 1e-5);
    let at_most = |bound: &str| get("gapprobe_step_duration_seconds_bucket", &format!(r#",le="{bound}""#));
    assert!(at_most("0.003") == 0.0 && at_most("0.005") > 0.0 && at_most("0.007") == steps, "{text}");
    assert_eq!(at_most("+Inf"), steps);
    assert_eq!(get("gapprobe_data_losses_total", r#",loss="cupti_dropped""#), 7.0);
    assert_eq!(get("gapprobe_data_losses_total", r#",loss="zero_timestamp""#), 0.0, "the first one is seen");
    assert_eq!(get("gapprobe_notes_total", r#",note="mirror_write""#), 0.0);
    assert_eq!(get("gapprobe_kernels_total", ""), 41.0);
    assert_eq!(get("gapprobe_launches_total", r#",recorded="yes""#), 30.0);
    assert_eq!(get("gapprobe_launches_total", r#",recorded="no""#), 1000.0);
    assert_eq!(get("gapprobe_cupti_kept_memory_bytes", ""), 32.0 * 1030.0);
    assert!(get("gapprobe_recording_cost_estimate_ratio", "") >= 0.0);
    assert_eq!(samples.keys().filter(|k| k.starts_with("gapprobe_verdict_info{")).count(), 1, "{text}");
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
    let all = samples(&out(&output));
    assert_eq!(all["gapprobe_processes"], 0.0);
    assert!(all.keys().any(|k| k.starts_with("gapprobe_build_info{version=")));
    let _beating = Beating::new(&place, |_| {});
    let text = out(&place.run(&["metrics", "--once"]));
    assert_eq!(samples(&text)["gapprobe_processes"], 1.0);
    // (it counts nothing without records)
    assert!(!text.contains("gapprobe_hang_duration_seconds"), "{text}");
    assert!(text.contains(r#"gpu_uuid="unknown-0""#), "{text}");
}

/// Where launches are not seen without CUPTI, recording ends for good, and nothing is counted then.
#[test]
fn what_nobody_counts_any_more_is_no_figure() {
    let place = Place::new("metrics-ended");
    let text = |windows: &str| {
        let _off = Beating::off_for(&place, 600_000_000_000, |b| {
            b.header.totals[trace::Total::Windows as usize] = 1;
            b.attribute(trace::define::WINDOWS, windows);
        });
        let text = out(&place.run(&["metrics", "--once"]));
        assert!(text.contains(r#"gapprobe_recording_active{run="job-17",rank="3"} 0"#), "{text}");
        assert!(!text.contains("gapprobe_steps_total"), "no marks, no launches by which to count: {text}");
        assert!(text.contains("gapprobe_step_duration_seconds_count"), "those that were recorded: {text}");
        text
    };
    let (pauses, ended) = (text("20 of 1000 steps"), text(trace::define::ENDED));
    for (text, is_over) in [(&pauses, "0"), (&ended, "1")] {
        let over = format!(r#"gapprobe_recording_ended{{run="job-17",rank="3"}} {is_over}"#);
        assert!(text.contains(&over), "{text}");
        assert_eq!(text.contains(r#"recorded="no""#), is_over == "0", "{text}");
    }
    // when it began, and five seconds of steps: 600 s ago
    let last = samples(&ended)[r#"gapprobe_recording_last_time_seconds{run="job-17",rank="3"}"#];
    assert!((last - 1_795_000_005.0).abs() < 0.001, "{last}");
}

#[test]
fn without_a_job_a_run_has_its_programs_name() {
    let place = Place::new("metrics-run");
    let _beating = Beating::without_job(&place, |b| {
        b.attribute(trace::define::RUN, "3f2a9c41deadbeef");
        b.header.command = "python /data/train.py ".to_owned() + &"x".repeat(200);
    });
    let text = out(&place.run(&["metrics", "--once"]));
    assert!(text.contains(r#"gapprobe_kernels_total{run="train.py-3f2a9c41",rank="3"}"#), "{text}");
    let command =
        format!(r#",command="python /data/train.py {}"}}"#, "x".repeat(128 - "python /data/train.py ".len()));
    assert!(text.contains(&command), "{text}");
}

#[test]
fn a_hang_is_told_where_steps_are_counted() {
    let place = Place::new("metrics-hang");
    let long_ago = crate::beating::now() - 40_000_000_000;
    let _beating = Beating::new(&place, |b| {
        for (total, n) in [
            (trace::Total::ClockStepNs, 2_500_000),
            (trace::Total::ClockSteps, 2_000),
            (trace::Total::LastActivityAt, long_ago),
        ] {
            b.header.totals[total as usize] = n;
        }
    });
    let all = samples(&out(&place.run(&["metrics", "--once", "--last", "2s"])));
    let hang = all[r#"gapprobe_hang_duration_seconds{run="job-17",rank="3"}"#];
    assert!((40.0..70.0).contains(&hang), "{hang}");
}

#[test]
fn a_process_of_the_same_run_and_rank_has_series_of_its_own() {
    let place = Place::new("metrics-twins");
    let older = Beating::new(&place, |b| b.header.start_realtime += 1);
    fs::rename(&older.path, place.private().join("older.gpr")).unwrap();
    // another process of this user, as far as recordings tell: it is of another container
    let younger = Beating::new(&place, |b| b.header.pid_namespace += 1);
    let text = out(&place.run(&["metrics", "--once"]));
    assert_eq!(samples(&text)["gapprobe_processes"], 2.0, "no sample twice");
    let of = |run: &str| text.contains(&format!(r#"gapprobe_kernels_total{{run="{run}",rank="3"}}"#));
    assert!(of("job-17") && of(&format!("job-17/{}", std::process::id())), "{text}");
    drop((older, younger));
}

#[test]
fn names_that_others_chose_stay_inside_their_labels() {
    let place = Place::new("metrics-names");
    let _beating = Beating::new(&place, |b| {
        b.header.host = "a\"} 1\ngapprobe_processes 99\n".into();
        b.attribute(trace::define::JOB, "x\\\"\x1b[2J");
        b.attribute(&trace::define::gpu_uuid(0), "GPU\"\n");
    });
    let output = place.run(&["metrics", "--once"]);
    let text = out(&output);
    assert_eq!((code(&output), samples(&text)["gapprobe_processes"]), (0, 1.0));
    assert!(
        !text.contains('\x1b') && !text.lines().any(|l| l.starts_with("gapprobe_processes 99")),
        "{text}"
    );
}

/// What is answered to a request.
pub(crate) fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_scrape_gets_the_metrics_of_the_last_look_and_nothing_else() {
    let place = Place::new("metrics-listen");
    let _beating = Beating::new(&place, |_| {});
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = ["metrics", "--listen", &port.to_string(), "--every", "200ms"];
    let mut companion = place.gapprobe(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let answer = loop {
        assert!(begun.elapsed() < Duration::from_secs(30), "no answer");
        std::thread::sleep(Duration::from_millis(50));
        if TcpStream::connect(("127.0.0.1", port)).is_err() {
            continue;
        }
        let answer = ask(port, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        // (before the first look there is nothing)
        if answer.contains("gapprobe_processes") {
            break answer;
        }
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert_eq!(samples(body)["gapprobe_processes"], 1.0);
    for (request, wanted) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("GET /metrics/x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        ("\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let answer = ask(port, request);
        assert!(answer.starts_with(wanted) && !answer.contains("gapprobe_processes"), "{request}: {answer}");
    }
    let head = ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    // who says nothing holds nobody up
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(ask(port, "GET /metrics HTTP/1.1\r\n\r\n").contains("gapprobe_processes"));
    // not to be reached from elsewhere
    let listening = fs::read_to_string("/proc/net/tcp").unwrap();
    let here = format!(" 0100007F:{port:04X} 00000000:0000 0A");
    assert!(
        listening.contains(&here) && !listening.contains(&format!(" 00000000:{port:04X} ")),
        "{listening}"
    );
    let second = place.run(&["metrics", "--listen", &port.to_string()]);
    let said = err(&second);
    assert_eq!(code(&second), 1);
    let wanted = format!("gapprobe: cannot listen at 127.0.0.1:{port}: Address already in use");
    assert!(said.starts_with(&wanted) && said.contains("\n\nhint: another program has this port"), "{said}");
    assert_eq!(code(&place.run(&["metrics", "--listen", "localhost:9400"])), 2);
    assert_eq!(code(&place.run(&["metrics", "--listen", "9400", "--once"])), 2);
    end(&mut companion);
    let output = companion.wait_with_output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, ""), "scraped, not printed");
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
    for more in [&["--every", "100ms"][..], &["--once"]] {
        let second = place.run(&[&["metrics", "--textfile", "prom"], more].concat());
        assert_eq!(code(&second), 1);
        assert!(err(&second).contains("another gapprobe metrics renews them there"), "{}", err(&second));
    }
    end(&mut companion);
    assert_eq!(companion.wait().unwrap().code(), Some(0));
    assert_eq!(files(), Vec::<std::path::PathBuf>::new(), "figures that nobody renews are untrue");
}

#[expect(unsafe_code, reason = "kill is libc's")]
pub(crate) fn end(child: &mut std::process::Child) {
    // SAFETY: a child of ours that was not waited for yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
}

/// The name that Prometheus' OTLP receiver gives a metric, as otlptranslator documents it.
fn translated(m: &Metric) -> String {
    let (is_gauge, is_counter) =
        (matches!(m.data, Some(metric::Data::Gauge(_))), matches!(m.data, Some(metric::Data::Sum(_))));
    let mut name: Vec<String> = m.name.split('.').map(str::to_owned).collect();
    match m.unit.as_str() {
        "s" => name.push("seconds".into()),
        "By" => name.push("bytes".into()),
        "1" if is_gauge => name.push("ratio".into()),
        unit => assert!(unit.is_empty() || unit.starts_with('{') && unit.ends_with('}'), "{unit}"),
    }
    name.extend(is_counter.then(|| "total".to_owned()));
    name.join("_")
}

#[test]
fn by_otlp_the_same_metrics_go_to_a_collector_each_process_a_resource() {
    let place = Place::new("metrics-otlp");
    let _beating = Beating::new(&place, |b| {
        b.header.totals[trace::Total::Kernels as usize] = 41;
        b.attribute(&trace::define::gpu_uuid(0), UUID);
    });
    fs::create_dir(place.out().join("prom")).unwrap();
    let (port, received) = collector(FINE);
    let output = place
        .gapprobe(&["metrics", "--otlp", "--textfile", "prom", "--once", "--last", "2s"])
        .env("http_proxy", "http://127.0.0.1:1") // it is asked directly
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}/base/"))
        .output()
        .unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let sent = received.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(sent.path, "/base/v1/metrics");
    assert_eq!(sent.field("content-type"), "application/x-protobuf");
    let request = ExportMetricsServiceRequest::decode(&sent.body[..]).unwrap();
    let [command, process] = &request.resource_metrics[..] else { panic!("{request:?}") };
    let keys = |r: &ResourceMetrics| -> BTreeSet<String> {
        r.resource.iter().flat_map(|r| &r.attributes).map(|a| a.key.clone()).collect()
    };
    let of_resource = ["host.name", "process.pid", "service.instance.id", "service.name", "service.version"];
    let wanted: BTreeSet<String> = of_resource.map(str::to_owned).into();
    assert_eq!((keys(command), keys(process)), (wanted.clone(), wanted));
    let all = |r: &ResourceMetrics| r.scope_metrics[0].metrics.clone();
    let metrics = [all(command), all(process)].concat();
    let names: BTreeSet<String> = metrics.iter().map(translated).collect();
    let file = fs::read_dir(place.out().join("prom")).unwrap().flatten().next().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    let in_file: BTreeSet<String> =
        text.lines().filter_map(|l| Some(l.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())).collect();
    assert_eq!(names, in_file);
    let named = |name: &str| metrics.iter().find(|m| m.name == name).unwrap();
    let Some(metric::Data::Sum(sum)) = &named("gapprobe.kernels").data else { panic!("{metrics:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative: {sum:?}");
    let point = &sum.data_points[0];
    assert_eq!(point.value, Some(number_data_point::Value::AsDouble(41.0)));
    assert_eq!(point.start_time_unix_nano, 1_795_000_000_000_000_000);
    let keys =
        |p: &NumberDataPoint| -> BTreeSet<String> { p.attributes.iter().map(|a| a.key.clone()).collect() };
    assert_eq!(keys(point), BTreeSet::from(["rank", "run"].map(str::to_owned)));
    let Some(metric::Data::Sum(sum)) = &named("gapprobe.gpu.time").data else { panic!("{metrics:?}") };
    let gpu = ["run", "rank", "gpu_uuid", "state", "cause", "hw.id", "hw.type", "hw.vendor", "hw.model"];
    assert_eq!(keys(&sum.data_points[0]), BTreeSet::from(gpu.map(str::to_owned)));
    let Some(metric::Data::Histogram(steps)) = &named("gapprobe.step.duration").data else {
        panic!("{metrics:?}")
    };
    let point = &steps.data_points[0];
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
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
