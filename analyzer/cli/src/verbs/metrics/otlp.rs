// SPDX-License-Identifier: Apache-2.0
//! The metrics by OTLP over HTTP (binary protobuf), to a collector without TLS: on this node, or in
//! its network. A resource is a process; OpenTelemetry's variables are read as its exporters read
//! them ([`target`]).

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use cli::live::ledger::STEP_BOUNDS;
use flate2::write::GzEncoder;
use flate2::Compression;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{any_value, AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    metric, number_data_point, AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use trace::place::Owner;
use verdict::text::escape::visible;

use super::looked::{Looked, Process};
use super::model::{Family, Kind, Point, Value, FAMILIES};
use super::target::Target;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Sends all of them.
pub(super) fn send(target: &Target, looked: &Looked) -> Result<(), String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let body = request(looked, now, &target.attributes).encode_to_vec();
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(target.timeout))
        .max_redirects(0)
        .proxy(None)
        .http_status_as_error(false)
        .user_agent(concat!("gapprobe/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent();
    let mut post = agent.post(&target.url).header("content-type", "application/x-protobuf");
    for (name, value) in &target.headers {
        post = post.header(name, value);
    }
    let answer = match target.gzip {
        true => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            let packed = packed.write_all(&body).and_then(|()| packed.finish()).map_err(|e| e.to_string())?;
            post.header("content-encoding", "gzip").send(&packed[..])
        }
        false => post.send(&body[..]),
    };
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answers {}", answer.status())),
        Err(e) => Err(visible(&e.to_string()).to_string()),
    }
}

fn request(looked: &Looked, now: u64, more: &[(String, String)]) -> ExportMetricsServiceRequest {
    let of = |mut resource: Resource, wanted: &dyn Fn(&Point) -> bool| {
        for (key, value) in more {
            if resource.attributes.iter().all(|own| own.key != *key) {
                resource.attributes.push(text(key, value));
            }
        }
        let scope_metrics = vec![metrics(looked, now, wanted)];
        ResourceMetrics { resource: Some(resource), scope_metrics, ..ResourceMetrics::default() }
    };
    let processes = looked.processes.iter().map(|process| {
        of(resource(process), &|p: &Point| p.process.is_some_and(|its| std::ptr::eq(its, process)))
    });
    let command = of(command(), &|p: &Point| p.process.is_none());
    ExportMetricsServiceRequest { resource_metrics: std::iter::once(command).chain(processes).collect() }
}

/// The command itself.
fn command() -> Resource {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let pid = std::process::id();
    let attributes = vec![
        text("service.name", "gapprobe"),
        text("service.version", VERSION),
        text("service.instance.id", &format!("metrics-{}-{pid}", host.trim())),
        text("host.name", host.trim()),
        whole("process.pid", u64::from(pid)),
    ];
    Resource { attributes, ..Resource::default() }
}

/// A recorded process.
fn resource(process: &Process) -> Resource {
    let h = process.header();
    let attributes = vec![
        text("service.name", "gapprobe"),
        text("service.version", &visible(&h.gapprobe)),
        text("service.instance.id", &Owner::from(h).to_string()),
        text("host.name", &visible(&h.host)),
        whole("process.pid", u64::from(h.pid)),
    ];
    Resource { attributes, ..Resource::default() }
}

/// Of all points those that are wanted.
fn metrics(looked: &Looked, now: u64, wanted: impl Fn(&Point) -> bool) -> ScopeMetrics {
    let scope = InstrumentationScope {
        name: "gapprobe".to_owned(),
        version: VERSION.to_owned(),
        ..InstrumentationScope::default()
    };
    let of = |family: &Family| {
        let points: Vec<Point> = family.points(looked).into_iter().filter(|p| wanted(p)).collect();
        (!points.is_empty()).then(|| metric(family, points, now))
    };
    ScopeMetrics {
        scope: Some(scope),
        metrics: FAMILIES.iter().filter_map(of).collect(),
        ..ScopeMetrics::default()
    }
}

fn metric(family: &Family, points: Vec<Point>, now: u64) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative as i32;
    let numbers = |points: Vec<Point>| points.iter().map(|p| number(family, p, now)).collect();
    let data = match family.kind {
        Kind::Gauge => metric::Data::Gauge(Gauge { data_points: numbers(points) }),
        Kind::Counter => metric::Data::Sum(Sum {
            data_points: numbers(points),
            aggregation_temporality,
            is_monotonic: true,
        }),
        Kind::Histogram => metric::Data::Histogram(Histogram {
            data_points: points.iter().filter_map(|p| histogram(family, p, now)).collect(),
            aggregation_temporality,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: family.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// The labels, and of a GPU what OpenTelemetry calls it.
fn attributes(family: &Family, point: &Point) -> Vec<KeyValue> {
    let labels = family.labels().into_iter().zip(&point.labels);
    let mut all: Vec<KeyValue> = labels.filter(|(_, v)| !v.is_empty()).map(|(k, v)| text(k, v)).collect();
    if let Some(gpu) = point.gpu {
        all.push(text("hw.id", &gpu.uuid));
        all.push(text("hw.type", "gpu"));
        all.push(text("hw.vendor", "NVIDIA"));
        all.push(text("hw.model", &gpu.name));
    }
    all
}

fn since(family: &Family, point: &Point) -> u64 {
    point.process.filter(|_| family.kind != Kind::Gauge).map_or(0, |p| family.since(p))
}

fn number(family: &Family, point: &Point, now: u64) -> NumberDataPoint {
    let value = match point.value {
        Value::Number(value) => Some(number_data_point::Value::AsDouble(value)),
        Value::Steps(_) => None,
    };
    NumberDataPoint {
        attributes: attributes(family, point),
        start_time_unix_nano: since(family, point),
        time_unix_nano: now,
        value,
        ..NumberDataPoint::default()
    }
}

fn histogram(family: &Family, point: &Point, now: u64) -> Option<HistogramDataPoint> {
    let Value::Steps(times) = &point.value else { return None };
    Some(HistogramDataPoint {
        attributes: attributes(family, point),
        start_time_unix_nano: since(family, point),
        time_unix_nano: now,
        count: times.count(),
        sum: Some(times.ns as f64 / 1e9),
        bucket_counts: times.counts.to_vec(),
        explicit_bounds: STEP_BOUNDS.to_vec(),
        ..HistogramDataPoint::default()
    })
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn whole(key: &str, value: u64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
