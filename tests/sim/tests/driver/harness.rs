// SPDX-License-Identifier: Apache-2.0
//! Runs a victim under the minimal client of CUPTI (recorder.c). One build of everything serves all
//! tests.

use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

pub(crate) const RELEASES: [&str; 5] = ["11.8", "12.4", "12.9", "13.0", "13.5"];

pub(crate) fn soname(release: &str) -> String {
    match release {
        "11.8" => "libcupti.so.11.8".into(),
        _ => format!("libcupti.so.{}", &release[..2]),
    }
}

/// The built driver, and recorder.so beside it.
pub(crate) fn built() -> &'static Path {
    static OUT: OnceLock<PathBuf> = OnceLock::new();
    OUT.get_or_init(|| {
        // the one that the scenarios use
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("scenarios-sim");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        // The tests' own target folder: the outer cargo holds no lock on it while tests run.
        let script =
            Command::new(here.join("../../scripts/sim-build")).arg(&out).output().expect("sim-build");
        assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
        let recorder = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"];
        let new = out.join(format!("recorder.so.{}", std::process::id()));
        let gcc = Command::new("gcc")
            .args(recorder)
            .arg(&new)
            .arg(here.join("tests/driver/recorder.c"))
            .arg("-ldl")
            .output()
            .expect("gcc");
        assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
        std::fs::rename(&new, out.join("recorder.so")).expect("a name");
        out
    })
}

/// What one run left behind.
pub(crate) struct Run {
    pub(crate) output: Output,
    /// Lines of the recorder.
    pub(crate) lines: Vec<String>,
    pub(crate) truth: Vec<Value>,
}

/// Runs a victim of `release` under the recorder, if `settings` name one.
pub(crate) fn run(release: &str, victim: &[&str], settings: &[(&str, &str)]) -> Run {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let out = built();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let own = |what: &str| {
        let name = format!("{what}.{}.{serial}", std::process::id());
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
    };
    let (seen, truth) = (own("seen"), own("truth"));
    let mut command = Command::new(out.join(release).join(victim[0]));
    command.args(&victim[1..]).env("LD_LIBRARY_PATH", out.join(release));
    command
        .env("CUDA_INJECTION64_PATH", out.join("recorder.so"))
        .env("REC_OUT", &seen)
        .env("SIM_TRUTH", &truth);
    command.env_remove("SIM_FAULT").envs(settings.iter().copied());
    let output = command.output().expect("victim");
    let lines = std::fs::read_to_string(&seen).unwrap_or_default().lines().map(String::from).collect();
    let bytes = std::fs::read(&truth).unwrap_or_default();
    for file in [&seen, &truth] {
        let _ = std::fs::remove_file(file); // a victim that was told to write none left none
    }
    let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
    let truth = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let truth = truth.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Run { output, lines, truth }
}

pub(crate) type Fields = HashMap<String, String>;

pub(crate) fn fields(line: &str) -> Fields {
    let pairs = line.split(' ').filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.into(), value.into())).collect()
}

pub(crate) fn number(fields: &Fields, key: &str) -> u64 {
    fields.get(key).and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("{key} in {fields:?}"))
}

impl Run {
    pub(crate) fn records(&self, kind: u32) -> Vec<Fields> {
        let head = format!("R {kind} ");
        self.lines.iter().filter(|l| l.starts_with(&head)).map(|l| fields(l)).collect()
    }

    pub(crate) fn callbacks(&self, id: &str) -> Vec<Fields> {
        let head = format!("C {id} ");
        self.lines.iter().filter(|l| l.starts_with(&head)).map(|l| fields(l)).collect()
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.lines.iter().any(|l| l == line)
    }

    pub(crate) fn errors(&self) -> Vec<&String> {
        self.lines.iter().filter(|l| l.starts_with("E ")).collect()
    }

    pub(crate) fn ops(&self, kind: &str) -> Vec<&Value> {
        self.truth.iter().filter(|t| t["t"] == "op" && t["kind"] == kind).collect()
    }

    pub(crate) fn launched(&self) -> usize {
        let text = String::from_utf8_lossy(&self.output.stdout);
        let word = text.lines().find_map(|l| l.strip_prefix("launched ")).expect("launched");
        word.trim().parse().expect("a number")
    }
}
