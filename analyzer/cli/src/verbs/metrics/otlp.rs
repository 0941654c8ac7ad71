// SPDX-License-Identifier: Apache-2.0
//! The metrics by OTLP over HTTP (binary protobuf), to a collector without TLS: on this node, or in
//! its network.

use std::fmt;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{any_value, AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    metric, number_data_point, AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use verdict::text::escape::visible;

use super::model::{Family, Kind, Point};

/// Longest time for one sending.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Where to.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(String);

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As OTEL_EXPORTER_OTLP_ENDPOINT is read: without a path the one for metrics.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, String> {
    let Some(rest) = text.strip_prefix("http://") else {
        return Err("http://HOST:PORT (without TLS: a collector on the node has that)".to_owned());
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || host.contains('@') {
        return Err("http://HOST:PORT".to_owned());
    }
    let path = if path.is_empty() { "v1/metrics" } else { path };
    Ok(Endpoint(format!("http://{host}/{path}")))
}

/// Sends all of them.
pub(super) fn send(endpoint: &Endpoint, families: &[Family]) -> Result<(), String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let body = request(families, now).encode_to_vec();
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(SEND_TIMEOUT))
        .max_redirects(0)
        .proxy(None)
        .http_status_as_error(false)
        .user_agent(concat!("gapprobe/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent();
    let answer = agent.post(&endpoint.0).header("content-type", "application/x-protobuf").send(&body[..]);
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("it answers {}", answer.status())),
        Err(e) => Err(visible(&e.to_string()).to_string()),
    }
}

fn request(families: &[Family], now: u64) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "gapprobe".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = families.iter().filter(|f| !f.points.is_empty()).map(|f| metric(f, now)).collect();
    let resource = Resource { attributes: vec![text("service.name", "gapprobe")], ..Resource::default() };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(family: &Family, now: u64) -> Metric {
    let data_points = family.points.iter().map(|p| data_point(family, p, now)).collect();
    let data = match family.kind {
        Kind::Gauge => metric::Data::Gauge(Gauge { data_points }),
        Kind::Counter => metric::Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
            is_monotonic: true,
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

fn data_point(family: &Family, point: &Point, now: u64) -> NumberDataPoint {
    let named = family.labels.iter().zip(&point.values).filter(|(_, value)| !value.is_empty());
    NumberDataPoint {
        attributes: named.map(|(key, value)| text(key, value)).collect(),
        start_time_unix_nano: if family.kind == Kind::Counter { point.since } else { 0 },
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(point.value)),
        ..NumberDataPoint::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_address() {
        for (text, wanted) in [
            ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
            ("http://localhost:4318/", "http://localhost:4318/v1/metrics"),
            ("http://[::1]:4318/own/path", "http://[::1]:4318/own/path"),
        ] {
            assert_eq!(endpoint(text).map(|e| e.0), Ok(wanted.to_owned()));
        }
        for text in ["https://localhost:4318", "localhost:4318", "http://", "http://user:word@host", ""] {
            assert!(endpoint(text).is_err(), "{text}");
        }
    }
}
