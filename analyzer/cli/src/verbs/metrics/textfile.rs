// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format, for node-exporter's textfile collector: a file that is whole whenever
//! it is there.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use prometheus::core::Collector;
use prometheus::{CounterVec, Encoder, GaugeVec, Opts, TextEncoder};

use super::model::{Family, Kind};
use crate::verbs::process;

/// The metrics as text. Families without a point are left out.
pub(super) fn render(families: &[Family]) -> String {
    let mut out = Vec::new();
    for family in families.iter().filter(|f| !f.points.is_empty()) {
        // names and labels are constants of `model.rs`: they fit
        let Ok(collected) = collect(family) else { continue };
        let _ = TextEncoder::new().encode(&collected, &mut out); // into memory
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn collect(family: &Family) -> prometheus::Result<Vec<prometheus::proto::MetricFamily>> {
    let opts = Opts::new(family.name, family.help);
    let values = |p: &super::model::Point| p.values.clone();
    match family.kind {
        Kind::Gauge => {
            let vec = GaugeVec::new(opts, &family.labels)?;
            for p in &family.points {
                vec.get_metric_with_label_values(&values(p))?.set(p.value);
            }
            Ok(vec.collect())
        }
        Kind::Counter => {
            let vec = CounterVec::new(opts, &family.labels)?;
            for p in &family.points {
                vec.get_metric_with_label_values(&values(p))?.inc_by(p.value.max(0.0));
            }
            Ok(vec.collect())
        }
    }
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
