// SPDX-License-Identifier: Apache-2.0
//! Purpose: raw CUPTI records from real hardware (`tests/recordings/raw/cupti-<release>.raw.gz`) go
//! through the same decoder as live ones: every kernel record of the file is an event of the
//! recording, and nothing is unknown or lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use gapprobe_scenarios::built::{built, root};
use gapprobe_scenarios::{Victim, RELEASES};
use trace::Total;

fn files() -> Vec<PathBuf> {
    let folder = root().join("tests/recordings/raw");
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut all: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.to_string_lossy().ends_with(".raw.gz")).collect();
    all.sort();
    all
}

/// `13.0` of `cupti-13.0-gpt.raw.gz`: the simulated release whose record layout is the file's.
fn release(file: &Path) -> &'static str {
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let found = RELEASES.iter().find(|r| name.starts_with(&format!("cupti-{r}")));
    found.unwrap_or_else(|| panic!("{name}: no release of {RELEASES:?} in its name"))
}

#[test]
fn recordings_of_real_hardware() {
    let files = files();
    assert!(
        !files.is_empty(),
        "tests/recordings/raw holds no *.raw.gz: nothing of real hardware was replayed"
    );
    for file in files {
        let release = release(&file);
        let raw = built().scratch.join(file.file_stem().expect("a name"));
        let unzip = Command::new("gzip").arg("-dc").arg(&file).output().expect("gzip");
        assert!(unzip.status.success(), "{}", file.display());
        std::fs::write(&raw, unzip.stdout).expect("raw file");
        let run = Victim::sim(release, &["replay", "0"]).env("SIM_REPLAY", &raw).run();
        assert_eq!(run.ending(), 0, "{}: {}", file.display(), run.stderr);
        let replayed = run.stdout.lines().find_map(|l| l.strip_prefix("replayed ")).expect("a count");
        let replayed: u64 = replayed.trim().parse().expect("a number");
        let recorded = run.recorded();
        println!(
            "{}: {replayed} records, {} kernels; {:?}",
            file.display(),
            recorded.total(Total::Kernels),
            recorded.losses()
        );
        assert!(replayed > 0 && recorded.total(Total::Kernels) > 0);
        assert_eq!(recorded.total(Total::Kernels), recorded.kernels().len() as u64);
        assert_eq!(recorded.losses(), [], "{}", file.display());
        assert_eq!(recorded.kernels().len(), 1800, "what tests/gpu/programs/driver_api.c launches");
        let named = recorded.kernels().iter().filter(|(_, k)| !recorded.name(k).starts_with('<')).count();
        assert_eq!(
            named,
            1800,
            "names of real kernels: {:?}",
            recorded.kernels().first().map(|(_, k)| recorded.name(k))
        );
        assert_eq!(recorded.problems, Default::default());
    }
}
