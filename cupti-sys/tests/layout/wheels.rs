// SPDX-License-Identifier: Apache-2.0
//! Where `scripts/cupti-wheels` put the real libraries and headers.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The releases that the tests go through. 13.2 is the one whose every function crashes without a
/// driver.
pub(crate) const REQUIRED: [&str; 6] = ["11.8", "12.4", "12.9", "13.0", "13.2", "13.5"];

/// One release as fetched.
#[derive(Debug, Clone)]
pub(crate) struct Wheel {
    /// `12.4`.
    pub(crate) release: String,
    /// The real libcupti.
    pub(crate) library: PathBuf,
    /// The directory of cupti.h.
    pub(crate) include: PathBuf,
}

impl Wheel {
    /// A release of [`REQUIRED`]; `None`, with the reason said, where it is not here.
    pub(crate) fn of(release: &str) -> Option<Self> {
        let found = Self::find(release);
        if found.is_none() {
            let why = format!("CUPTI {release} is not in {}: scripts/cupti-wheels", cache().display());
            // past the harness, which keeps what passing tests print to itself
            let _ = std::io::stdout().write_all(format!("\nSKIPPED: {why}\n").as_bytes());
        }
        found
    }

    /// All required releases, then every other one in the cache (`scripts/cupti-wheels 12.6` adds
    /// one); `None` as [`Wheel::of`].
    pub(crate) fn all() -> Option<Vec<Self>> {
        let mut wheels = REQUIRED.iter().map(|release| Self::of(release)).collect::<Option<Vec<Self>>>()?;
        let entries = std::fs::read_dir(cache()).expect("the cache was just read");
        let mut others: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| !REQUIRED.contains(&name.as_str()) && !name.starts_with('.'))
            .collect();
        others.sort();
        wheels.extend(others.iter().filter_map(|release| Self::find(release)));
        Some(wheels)
    }

    fn find(release: &str) -> Option<Self> {
        let place = cache().join(release);
        let library = std::fs::read_dir(&place).ok()?.filter_map(Result::ok).map(|entry| entry.path()).find(
            |path| {
                path.file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.starts_with("libcupti.so."))
            },
        )?;
        let include = place.join("include");
        include.join("cupti.h").is_file().then(|| Self { release: release.to_owned(), library, include })
    }

    /// The text of one header.
    pub(crate) fn header(&self, name: &str) -> String {
        let path = self.include.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

fn cache() -> PathBuf {
    let tools = std::env::var_os("GAPPROBE_TOOLS").filter(|value| !value.is_empty()).map(PathBuf::from);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    tools.unwrap_or_else(|| repository.join(".tools")).join("cupti")
}
