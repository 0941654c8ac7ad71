// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format, and a file of it for node-exporter's textfile collector that is whole
//! whenever it is there.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cli::live::ledger::{StepTimes, STEP_BOUNDS};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::TextEncoder;

use super::looked::Looked;
use super::model::{Family, Kind, Point, Value, FAMILIES};
use crate::verbs::process;

/// The metrics as text. Families without a point are left out.
pub(super) fn render(looked: &Looked) -> String {
    let mut out = String::new();
    for family in FAMILIES {
        let metrics: Vec<Metric> = family.points(looked).into_iter().map(|p| metric(family, p)).collect();
        if !metrics.is_empty() {
            let mut all = MetricFamily::default();
            all.set_name(family.prometheus());
            all.set_help(family.help.to_owned());
            all.set_field_type(match family.kind {
                Kind::Gauge => MetricType::GAUGE,
                Kind::Counter => MetricType::COUNTER,
                Kind::Histogram => MetricType::HISTOGRAM,
            });
            all.set_metric(metrics);
            // names are constants of `model.rs`, and fit
            let _ = TextEncoder::new().encode_utf8(&[all], &mut out);
        }
    }
    out
}

fn metric(family: &Family, point: Point) -> Metric {
    let label = |(name, value): (&str, String)| {
        let mut label = LabelPair::default();
        label.set_name(name.to_owned());
        label.set_value(value);
        label
    };
    // an empty label is none
    let named = family.labels().into_iter().zip(point.labels).filter(|(_, value)| !value.is_empty());
    let mut metric = Metric::from_label(named.map(label).collect());
    match (point.value, family.kind) {
        (Value::Steps(times), _) => metric.set_histogram(histogram(&times)),
        (Value::Number(value), Kind::Counter) => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
        (Value::Number(value), _) => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
    }
    metric
}

fn histogram(times: &StepTimes) -> Histogram {
    let mut sum = 0;
    let bucket = |(bound, count): (f64, u64)| {
        sum += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(sum);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(STEP_BOUNDS.into_iter().zip(times.counts).map(bucket).collect());
    histogram.set_sample_count(times.count());
    histogram.set_sample_sum(times.ns as f64 / 1e9);
    histogram
}

fn path(folder: &Path) -> PathBuf {
    folder.join(format!("gapprobe-{}.prom", process::user_id()))
}

/// Under another name first, then renamed: the collector, which reads `*.prom`, never sees a half
/// file. It runs as another user: all may read it.
pub(super) fn write(folder: &Path, text: &str) -> io::Result<()> {
    let unfinished = folder.join(format!(".gapprobe-{}.{}.new", process::user_id(), std::process::id()));
    let _ = fs::remove_file(&unfinished); // of a process with this pid that was killed
    let mut file =
        OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(&unfinished)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&unfinished, path(folder)));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished); // the first error is the one to tell
    }
    written
}

/// The right to renew the file of a directory: of two that do, possibly in containers and of the
/// same pid, each would take the other's away when it ends.
pub(super) struct Renewing {
    _locked: File,
    path: PathBuf,
}

/// `None`: another one has it, and lives.
pub(super) fn claim(folder: &Path) -> io::Result<Option<Renewing>> {
    let path = folder.join(format!(".gapprobe-{}.lock", process::user_id()));
    loop {
        let flags = libc::O_NOFOLLOW;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path)?;
        if process::claim(&file) == process::Claim::Taken {
            return Ok(None);
        }
        // (who had it may have taken it away since it was opened)
        let (ours, there) = (file.metadata()?, path.symlink_metadata());
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Ok(Some(Renewing { _locked: file, path }));
        }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // gone already is fine
    }
}

/// Takes the file away.
pub(super) fn remove(folder: &Path) {
    let _ = fs::remove_file(path(folder)); // gone already is fine
}
