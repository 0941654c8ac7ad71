// SPDX-License-Identifier: Apache-2.0
//! Where metrics go by OTLP, and how: the option `--otlp`, and the variables that OpenTelemetry's
//! exporters read.

use std::time::Duration;

use crate::verbs::exit::{Exit, Failure};

/// As OpenTelemetry has it, where OTEL_EXPORTER_OTLP_TIMEOUT says nothing.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A collector on this node.
const DEFAULT: &str = "http://localhost:4318";

/// A collector.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Target {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
    /// Of every resource, beside its own.
    pub(super) attributes: Vec<(String, String)>,
}

/// By the option's value ("": none) and the variables, which `get` reads: of each the one for
/// metrics, else the one for all.
///
/// # Errors
/// Where one of them asks for what is not supported, or cannot be understood.
pub(super) fn target(option: &str, get: impl Fn(&str) -> Option<String>) -> Result<Target, Failure> {
    let set = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    let either = |what: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_METRICS_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| Some((set(&name)?, name)))
    };
    let url = match (option, set("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"), set("OTEL_EXPORTER_OTLP_ENDPOINT")) {
        ("", Some(own), _) => url(&own, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")?,
        ("", None, Some(all)) => {
            url(&format!("{}/v1/metrics", all.trim_end_matches('/')), "OTEL_EXPORTER_OTLP_ENDPOINT")?
        }
        ("", None, None) => format!("{DEFAULT}/v1/metrics"),
        (option, ..) => with_path(url(option, "--otlp")?),
    };
    if let Some((protocol, name)) = either("PROTOCOL").filter(|p| p.0 != "http/protobuf") {
        return Err(refused(&name, &protocol, "http/protobuf, the only one that gapprobe speaks"));
    }
    let gzip = match either("COMPRESSION") {
        None => false,
        Some((c, _)) if c == "none" => false,
        Some((c, _)) if c == "gzip" => true,
        Some((c, name)) => return Err(refused(&name, &c, "gzip or none")),
    };
    let timeout = match either("TIMEOUT") {
        None => TIMEOUT,
        Some((text, name)) => {
            let ms = text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis);
            ms.ok_or_else(|| refused(&name, &text, "milliseconds, such as 10000"))?
        }
    };
    let pairs_of = |set: Option<(String, String)>| match set {
        None => Ok(Vec::new()),
        // (what headers hold is secret)
        Some((text, name)) => pairs(&text)
            .ok_or_else(|| refused(&name, "(not shown)", "name=value,name=value, values percent-encoded")),
    };
    let resource = "OTEL_RESOURCE_ATTRIBUTES";
    let attributes = pairs_of(set(resource).map(|text| (text, resource.to_owned())))?;
    Ok(Target { url, headers: pairs_of(either("HEADERS"))?, timeout, gzip, attributes })
}

fn refused(name: &str, value: &str, allowed: &str) -> Failure {
    Failure::new(Exit::WrongUse, format!("{name}={value} is not supported"))
        .hint(format!("{name}: {allowed}"))
}

fn url(text: &str, name: &str) -> Result<String, Failure> {
    let wanted = "http://HOST:PORT (without TLS: a collector on the node has that)";
    let host = text.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or(""));
    match host {
        Some(host) if !host.is_empty() && !host.contains('@') => Ok(text.to_owned()),
        _ => Err(refused(name, text, wanted)),
    }
}

/// Without a path the one for metrics.
fn with_path(url: String) -> String {
    let path = url.splitn(4, '/').nth(3).unwrap_or("");
    match path {
        "" => format!("{}/v1/metrics", url.trim_end_matches('/')),
        _ => url,
    }
}

/// `name=value,name=value`.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let name = name.trim();
        (!name.is_empty() && name.bytes().all(is_name)).then_some(())?;
        Some((name.to_owned(), decoded(value.trim())?))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

/// Without its percent-encoding; `None` where what it hides can be in no header.
fn decoded(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    (!text.chars().any(char::is_control)).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(option: &str, set: &[(&str, &str)]) -> Result<Target, String> {
        let name = |key: &str| key.replace("OTEL_EXPORTER_OTLP_", "").replace("OTEL_", "");
        let get = |key: &str| set.iter().find(|s| s.0 == name(key)).map(|s| s.1.to_owned());
        target(option, get).map_err(|f| f.to_string())
    }

    #[test]
    fn where_to_is_read_as_opentelemetry_reads_it() {
        for (option, set, wanted) in [
            ("", &[][..], "http://localhost:4318/v1/metrics"),
            ("", &[("ENDPOINT", "http://node:4318/")], "http://node:4318/v1/metrics"),
            ("", &[("ENDPOINT", "http://node:4318/base")], "http://node:4318/base/v1/metrics"),
            ("", &[("ENDPOINT", "http://a"), ("METRICS_ENDPOINT", "http://b:1/own")], "http://b:1/own"),
            ("http://[::1]:4318", &[("ENDPOINT", "http://a")], "http://[::1]:4318/v1/metrics"),
            ("http://localhost:4318/", &[], "http://localhost:4318/v1/metrics"),
            ("http://localhost/own/path", &[], "http://localhost/own/path"),
        ] {
            assert_eq!(of(option, set).map(|t| t.url), Ok(wanted.to_owned()), "{option} {set:?}");
        }
        for wrong in ["https://localhost:4318", "localhost:4318", "http://", "http://user:word@host"] {
            assert!(of(wrong, &[]).is_err_and(|e| e.contains("without TLS")), "{wrong}");
            assert!(of("", &[("ENDPOINT", wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_timeout_and_compression_are_those_for_metrics_else_those_for_all() {
        let all = [("HEADERS", "api-key=a%20b, x=1"), ("TIMEOUT", "250"), ("COMPRESSION", "gzip")];
        let t = of("", &all).expect("it is read");
        assert_eq!(t.headers, [("api-key", "a b"), ("x", "1")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!((t.timeout, t.gzip), (Duration::from_millis(250), true));
        let of_pod = of("", &[("RESOURCE_ATTRIBUTES", "k8s.pod.uid=a-b")]).map(|t| t.attributes);
        assert_eq!(of_pod, Ok(vec![("k8s.pod.uid".to_owned(), "a-b".to_owned())]));
        let own = of("", &[("TIMEOUT", "250"), ("METRICS_TIMEOUT", "1"), ("METRICS_COMPRESSION", "none")]);
        assert_eq!(own.map(|t| (t.timeout, t.gzip)), Ok((Duration::from_millis(1), false)));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (name, value) in [
            ("PROTOCOL", "grpc"),
            ("METRICS_PROTOCOL", "http/json"),
            ("COMPRESSION", "zstd"),
            ("TIMEOUT", "soon"),
            ("TIMEOUT", "0"),
        ] {
            let said = of("", &[(name, value)]).expect_err("it is refused");
            assert!(said.contains(name) && said.contains(value) && said.contains("hint: "), "{said}");
        }
        for secret in ["word", "a=%ff", "a=%0d%0aHost: b", "a b=c"] {
            let said = of("", &[("HEADERS", secret)]).expect_err("it is refused");
            assert!(!said.contains(secret), "{said}");
        }
    }
}
