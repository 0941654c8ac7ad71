// SPDX-License-Identifier: Apache-2.0
//! Purpose: what others make of `gapprobe metrics`: promtool finds nothing to say of it; a real
//! Prometheus has the same series by textfile and node-exporter as by scraping; a rate over an hour
//! is the run's own figure; OpenTelemetry's own messages for Python read what is sent; dashboard
//! and alert rules work. Needs `scripts/prometheus install`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use trace::Total;

use crate::beating::Beating;
use crate::hour;
use crate::metrics::{ask, collector, end, FINE, UUID};
use crate::place::{code, err, out, Place};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of Prometheus, where it is here; says so where it is not.
fn installed() -> Option<PathBuf> {
    let tools = std::env::var_os("GAPPROBE_TOOLS").map_or_else(|| root().join(".tools"), PathBuf::from);
    let folder = tools.join("prometheus");
    if !folder.join("bin/promtool").is_file() {
        // past the harness, which keeps what passing tests print to itself
        let why = "\nSKIPPED: Prometheus is not here (scripts/prometheus install)\n";
        let _ = std::io::stdout().write_all(why.as_bytes());
        return None;
    }
    Some(folder)
}

/// Runs a tool with this on its stdin; what it said.
fn run(tool: &mut Command, input: &str) -> String {
    let mut child = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = format!("{}{}", out(&output), err(&output));
    assert!(output.status.success(), "{tool:?}: {said}");
    said
}

fn promtool(folder: &Path, args: &[&str], input: &str) -> String {
    run(Command::new(folder.join("bin/promtool")).args(args), input)
}

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.0);
        let _ = self.0.wait(); // ended by itself is fine, too
    }
}

fn start(command: &mut Command) -> Running {
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn promtool_has_nothing_to_say_of_the_metrics() {
    let Some(folder) = installed() else { return };
    let place = Place::new("promtool");
    let _beating = Beating::new(&place, |b| {
        b.attribute(&trace::define::gpu_uuid(0), UUID);
        for (total, n) in [(Total::Flights, 2), (Total::ClockStepNs, 5_000_000), (Total::LastActivityAt, 1)] {
            b.header.totals[total as usize] = n;
        }
    });
    let text = out(&place.run(&["metrics", "--once"]));
    assert!(text.contains("gapprobe_flight_traces_total"), "all families: {text}");
    assert_eq!(promtool(&folder, &["check", "metrics"], &text), "");
}

/// Of each series of a job in Prometheus, without the labels that tell where it was scraped, the
/// value.
fn series(port: u16, job: &str) -> BTreeMap<String, String> {
    let query = format!("%7B__name__%3D~%22gapprobe_.%2B%22%2Cjob%3D%22{job}%22%7D");
    let answer = ask(port, &format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n"));
    let body = answer.split_once("\r\n\r\n").map_or("", |a| a.1);
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let of = |sample: &Value| {
        let mut labels = sample["metric"].as_object().unwrap().clone();
        labels.retain(|key, _| !["job", "instance"].contains(&key.as_str()));
        (Value::Object(labels).to_string(), sample["value"][1].as_str().unwrap().to_owned())
    };
    json["data"]["result"].as_array().into_iter().flatten().map(of).collect()
}

#[test]
fn by_textfile_and_by_scraping_prometheus_has_the_same_series() {
    let Some(folder) = installed() else { return };
    let place = Place::new("prometheus");
    let beating = Beating::new(&place, |b| b.attribute(&trace::define::gpu_uuid(0), UUID));
    fs::create_dir(place.out().join("prom")).unwrap();
    let [ours, exporter, server] = [free_port(), free_port(), free_port()];
    // so that it sees them begin, and counts from there
    let listen = ours.to_string();
    let words = ["metrics", "--textfile", "prom", "--listen", &listen, "--every", "500ms"];
    let _companion = start(&mut place.gapprobe(&words));
    let _exporter = start(
        Command::new(folder.join("bin/prometheus-node-exporter"))
            .args(["--collector.disable-defaults", "--collector.textfile"])
            .arg(format!("--collector.textfile.directory={}", place.out().join("prom").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{exporter}")),
    );
    let target = |job: &str, port: u16| {
        format!("  - job_name: {job}\n    static_configs:\n      - targets: ['127.0.0.1:{port}']\n")
    };
    let config = place.0.join("prometheus.yml");
    let jobs = target("textfile", exporter) + &target("scrape", ours);
    fs::write(&config, format!("global:\n  scrape_interval: 500ms\nscrape_configs:\n{jobs}")).unwrap();
    let _server = start(
        Command::new(folder.join("bin/prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", place.0.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{server}")),
    );
    let begun = Instant::now();
    let has = |job: &str| {
        let reached = std::net::TcpStream::connect(("127.0.0.1", server)).is_ok();
        reached && series(server, job).keys().any(|k| k.contains("gapprobe_gpu_time_seconds_total"))
    };
    while !has("textfile") || !has("scrape") {
        assert!(begun.elapsed() < Duration::from_secs(60), "no series");
        std::thread::sleep(Duration::from_millis(200));
    }
    // nothing moves any more
    beating.switch_off();
    std::thread::sleep(Duration::from_secs(3));
    let moving = |all: BTreeMap<String, String>| -> BTreeMap<String, String> {
        all.into_iter().filter(|(k, _)| !k.contains("gapprobe_scrape_duration_seconds")).collect()
    };
    let (by_file, by_scrape) = (moving(series(server, "textfile")), moving(series(server, "scrape")));
    assert_eq!(by_file, by_scrape);
    assert!(by_scrape.len() > 80, "{by_scrape:#?}");
    assert!(
        !by_scrape.keys().any(|k| k.contains("exported_")),
        "no label is Prometheus' own: {by_scrape:#?}"
    );
}

/// Texts of a companion, one a look.
struct Texts {
    _running: Running,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Texts {
    fn new(place: &Place) -> Texts {
        let words = ["metrics", "--every", "20ms", "--last", "10s"];
        let mut child = place.gapprobe(&words).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Texts { _running: Running(child), lines }
    }

    /// The samples of a look that began after this was called.
    fn next(&mut self) -> BTreeMap<String, String> {
        self.one();
        self.one()
    }

    /// (The scrape's duration stands third in each.)
    fn one(&mut self) -> BTreeMap<String, String> {
        let mut samples = BTreeMap::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if line.starts_with("# HELP gapprobe_build_info") && !samples.is_empty() {
                return samples;
            }
            if let Some((name, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
                samples.insert(name.to_owned(), value.to_owned());
            }
        }
        panic!("it ended");
    }
}

/// An hour in a minute: each look finds fifteen seconds more. Half of it is slow and recorded for
/// two seconds in thirty, half is fast and recorded for four.
#[test]
fn a_rate_over_an_hour_is_the_runs_own_figure() {
    const EVERY: u64 = 15;
    let Some(folder) = installed() else { return };
    let place = Place::new("hour");
    let mut hour = hour::Hour::new(&place);
    let mut texts = Texts::new(&place);
    let mut values: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let looks = 3600 / EVERY;
    for look in 0..=looks {
        hour.complete_to(look * EVERY);
        if look == looks / 2 {
            texts = Texts::new(&place); // whoever watches is started anew
        }
        for (name, value) in texts.next() {
            let all = values.entry(name).or_default();
            all.resize(look as usize, None);
            all.push(Some(value));
        }
    }
    drop(texts);
    let own = hour.own_figures(&place);
    assert!((0.2..0.6).contains(&own.idle), "{}", own.idle);
    let mut rules = String::from("evaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n");
    let wanted =
        ["gapprobe_gpu_time", "gapprobe_gpu_observed", "gapprobe_steps_", "gapprobe_step_duration_seconds_"];
    for (name, all) in values.iter().filter(|v| wanted.iter().any(|w| v.0.starts_with(w))) {
        let all: Vec<&str> = all.iter().map(|v| v.as_deref().unwrap_or("_")).collect();
        writeln!(rules, "      - series: '{name}'\n        values: {}", all.join(" ")).unwrap();
    }
    rules += "    promql_expr_test:\n";
    let hour_of = |metric: &str| format!("sum(increase({metric}[1h]))");
    let observed = hour_of("gapprobe_gpu_observed_time_seconds_total");
    for (what, figure) in [
        (
            format!(r#"{} / {observed}"#, hour_of(r#"gapprobe_gpu_time_seconds_total{state="idle"}"#)),
            own.idle,
        ),
        (
            format!(r#"{} / {observed}"#, hour_of(r#"gapprobe_gpu_time_seconds_total{cause="sync"}"#)),
            own.sync,
        ),
        (observed.clone(), own.observed_s),
        (hour_of("gapprobe_steps_total"), own.steps),
        (
            format!(
                "{} / {}",
                hour_of("gapprobe_step_duration_seconds_sum"),
                hour_of("gapprobe_step_duration_seconds_count")
            ),
            own.step_s,
        ),
    ] {
        let expr = format!("abs({what} / {figure} - 1) < bool 0.01");
        writeln!(rules, "      - expr: '{expr}'\n        eval_time: 1h\n        exp_samples: [{{labels: '{{}}', value: 1}}]")
            .unwrap();
    }
    let file = place.0.join("hour.test.yml");
    fs::write(&file, &rules).unwrap();
    promtool(&folder, &["test", "rules", file.to_str().unwrap()], "");
}

/// Reads a request as a collector in Python would: prints Prometheus' names as its OTLP receiver
/// documents them, and the resources.
const READ: &str = r#"
import gzip, json, sys
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(gzip.decompress(sys.stdin.buffer.read()))
UNITS = {"s": "seconds", "By": "bytes"}
names, series, resources = set(), [], []
for resource in request.resource_metrics:
    resources.append({a.key: a.value.WhichOneof("value") for a in resource.resource.attributes})
    for metric in [m for s in resource.scope_metrics for m in s.metrics]:
        kind = metric.WhichOneof("data")
        unit = UNITS.get(metric.unit, "")
        if metric.unit == "1" and kind == "gauge":
            unit = "ratio"
        assert unit or not metric.unit or metric.unit.startswith("{"), metric.unit
        counts = kind == "sum" and metric.sum.is_monotonic
        name = "_".join(filter(None, [metric.name.replace(".", "_"), unit, "total" if counts else ""]))
        assert name not in names or kind, name
        names.add(name)
        for point in getattr(metric, kind).data_points:
            labels = {a.key: a.value.string_value for a in point.attributes if not a.key.startswith("hw.")}
            series.append([name, labels])
            assert point.time_unix_nano > 0 and (kind == "gauge") == (point.start_time_unix_nano == 0), name
json.dump({"names": sorted(names), "series": series, "resources": resources}, sys.stdout)
"#;

#[test]
fn opentelemetrys_own_messages_read_what_is_sent_and_the_names_are_the_textfiles() {
    let Some(folder) = installed() else { return };
    let place = Place::new("otlp-python");
    let _beating = Beating::new(&place, |b| b.attribute(&trace::define::gpu_uuid(0), UUID));
    fs::create_dir(place.out().join("prom")).unwrap();
    let (port, received) = collector(FINE);
    let output = place
        .gapprobe(&["metrics", "--otlp", "--textfile", "prom", "--once"])
        .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("http://127.0.0.1:{port}/own"))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20secret")
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "5000")
        .output()
        .unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let sent = received.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!((sent.path.as_str(), sent.field("content-encoding").as_str()), ("/own", "gzip"));
    assert_eq!(sent.field("x-key"), "a secret");
    let body = place.0.join("body");
    fs::write(&body, &sent.body).unwrap();
    let python = std::env::var("GAPPROBE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let read = Command::new(python)
        .args(["-c", READ])
        .env("PYTHONPATH", folder.join("python"))
        .stdin(fs::File::open(&body).unwrap())
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", err(&read));
    let read: Value = serde_json::from_slice(&read.stdout).unwrap();
    let file = fs::read_dir(place.out().join("prom")).unwrap().flatten().next().unwrap().path();
    let text = fs::read_to_string(file).unwrap();
    let names: Vec<&str> =
        text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut names: Vec<Value> = names.into_iter().map(Value::from).collect();
    names.sort_by_key(Value::to_string);
    assert_eq!(read["names"], Value::from(names));
    // and so are the series
    let of_file: BTreeSet<String> = text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.contains("_bucket{") && !l.contains("_sum{"))
        .map(|l| l.rsplit_once(' ').unwrap().0.replace("_seconds_count{", "_seconds{"))
        .map(|l| l.replace("{}", ""))
        .collect();
    let of_otlp: BTreeSet<String> = read["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let name = s[0].as_str().unwrap();
            let labels = s[1].as_object().unwrap().iter().map(|(k, v)| format!("{k}={v}"));
            // in the order of the textfile
            let one = of_file.iter().find(|l| {
                let (n, rest) = l.split_once('{').unwrap_or((l, ""));
                let there: BTreeSet<&str> =
                    rest.trim_end_matches('}').split(',').filter(|l| !l.is_empty()).collect();
                let ours: Vec<String> = labels.clone().collect();
                n == name && there == ours.iter().map(String::as_str).collect::<BTreeSet<_>>()
            });
            one.unwrap_or_else(|| panic!("not in the textfile: {s}")).clone()
        })
        .collect();
    assert_eq!(of_otlp, of_file);
    assert_eq!(read["resources"].as_array().unwrap().len(), 2);
}

fn panels() -> Vec<Value> {
    let text = fs::read_to_string(root().join("docs/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// What a panel asks, of the run job-17.
fn queries(panel: &Value) -> Vec<String> {
    let of = |target: &Value| {
        [("$__range_s", "21600"), ("$__range", "6h"), ("$window", "30m"), ("$run", "job-17")]
            .into_iter()
            .fold(target["expr"].as_str().unwrap().to_owned(), |e, (variable, value)| {
                e.replace(variable, value)
            })
    };
    panel["targets"].as_array().unwrap().iter().map(of).collect()
}

/// Under the default budget a run may be recorded for its first seconds alone: its counters stand
/// still from then on, and the shares are those of what was recorded.
#[test]
fn where_counters_stand_still_the_dashboard_shows_what_was_recorded() {
    let Some(folder) = installed() else { return };
    let mut rules = String::from("tests:\n  - interval: 15s\n    input_series:\n");
    let gpu = r#"run="job-17",rank="3",gpu_uuid="GPU-1""#;
    let time = "gapprobe_gpu_time_seconds_total";
    let step = "gapprobe_step_duration_seconds";
    for (series, value) in [
        (format!(r#"{time}{{{gpu},state="idle",cause="launch"}}"#), 5.25),
        (format!(r#"{time}{{{gpu},state="busy",cause="compute"}}"#), 1.75),
        (format!("gapprobe_gpu_observed_time_seconds_total{{{gpu}}}"), 7.0),
        (format!(r#"{step}_bucket{{run="job-17",rank="3",le="1"}}"#), 0.0),
        (format!(r#"{step}_bucket{{run="job-17",rank="3",le="2"}}"#), 350.0),
        (format!(r#"{step}_bucket{{run="job-17",rank="3",le="+Inf"}}"#), 350.0),
        (format!(r#"{step}_sum{{run="job-17",rank="3"}}"#), 525.0),
        (format!(r#"{step}_count{{run="job-17",rank="3"}}"#), 350.0),
    ] {
        writeln!(rules, "      - series: '{series}'\n        values: '{value}x1500'").unwrap();
    }
    rules += "    promql_expr_test:\n";
    let panels = panels();
    for (title, query, wanted) in [
        ("GPU idle", 0, &[("{}", 0.75)][..]),
        ("Where the GPUs' time goes", 0, &[(r#"{cause="launch"}"#, 0.75), (r#"{cause="compute"}"#, 0.25)]),
        ("Idle by rank", 0, &[(r#"{rank="3"}"#, 0.75)]),
        ("Step time by rank", 0, &[(r#"{rank="3"}"#, 1.5)]),
        ("Step time by rank", 1, &[("{}", 1.9)]),
        ("GPU utilisation by DCGM, where it idles by gapprobe", 1, &[(r#"{gpu_uuid="GPU-1"}"#, 0.25)]),
    ] {
        let panel = panels.iter().find(|p| p["title"] == title).unwrap_or_else(|| panic!("{title}"));
        let expr = Value::from(queries(panel)[query].clone());
        writeln!(rules, "      - expr: {expr}\n        eval_time: 6h\n        exp_samples:").unwrap();
        for (labels, value) in wanted {
            writeln!(rules, "          - {{labels: '{labels}', value: {value}}}").unwrap();
        }
    }
    let place = Place::new("dashboard-still");
    let file = place.0.join("still.test.yml");
    fs::write(&file, rules).unwrap();
    promtool(&folder, &["test", "rules", file.to_str().unwrap()], "");
}

#[test]
fn the_alert_rules_do_what_they_say_and_the_dashboard_asks_what_can_be_asked() {
    let Some(folder) = installed() else { return };
    let monitoring = root().join("docs/monitoring");
    promtool(&folder, &["test", "rules", monitoring.join("rules.test.yml").to_str().unwrap()], "");
    let panels = panels();
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut asked = 0;
    for expr in panels.iter().flat_map(queries) {
        writeln!(rules, "  - record: dashboard:{asked}\n    expr: {}", Value::from(expr)).unwrap();
        asked += 1;
    }
    assert!(asked >= panels.len() && panels.len() >= 10, "{asked}");
    let place = Place::new("dashboard");
    let file = place.0.join("dashboard.yml");
    fs::write(&file, rules.replace("dashboard:", "dashboard:q")).unwrap();
    promtool(&folder, &["check", "rules", file.to_str().unwrap()], "");
}
