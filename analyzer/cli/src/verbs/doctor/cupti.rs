// SPDX-License-Identifier: Apache-2.0
//! Which libcupti there is: in the packages of the python3 on PATH, in the toolkit, where the
//! loader looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trace::setting;

use super::{find_library, note, ok, problem, Finding};

/// A libcupti found, and the version its folder tells.
#[derive(Debug, PartialEq, Eq)]
struct Cupti {
    path: PathBuf,
    version: String,
}

/// `libcupti.so.*` of a folder; the version is that of the package beside it, else the number of
/// the file.
fn cupti_in(folder: &Path) -> Option<Cupti> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("libcupti.so.")))
        .collect();
    files.sort();
    let path = files.first()?.clone();
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let name = real.file_name()?.to_str()?;
    Some(Cupti { version: name.trim_start_matches("libcupti.so.").to_owned(), path })
}

/// CUPTI as pip installs it below a site-packages folder.
fn cupti_of_site(site: &Path) -> Vec<Cupti> {
    let mut found: Vec<Cupti> = fs::read_dir(site.join("nvidia"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| cupti_in(&e.path().join("lib")))
        .collect();
    for one in &mut found {
        let major = one.version.split('.').next().unwrap_or_default().to_owned();
        let package = fs::read_dir(site).into_iter().flatten().flatten().find_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let rest = name.strip_prefix("nvidia_cuda_cupti")?.strip_suffix(".dist-info")?;
            let version = rest.rsplit('-').next()?;
            version.starts_with(&format!("{major}.")).then(|| version.to_owned())
        });
        one.version = package.unwrap_or_else(|| one.version.clone());
    }
    found
}

/// Site-packages of the python3 on PATH, as it says itself.
fn sites() -> Vec<PathBuf> {
    let code = "import site,sys,sysconfig\n\
                s=[sysconfig.get_paths()['purelib'],sysconfig.get_paths()['platlib'],site.getusersitepackages()]\n\
                s+=getattr(site,'getsitepackages',list)()\n\
                print('\\n'.join(dict.fromkeys(s)))";
    let output = Command::new("python3")
        .args(["-c", code])
        .env_remove("LD_PRELOAD")
        .env(setting::SWITCH, "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().map(PathBuf::from).collect()
}

/// Does this release (`13.0.85`) keep memory of launches ([`trace::total::kept_bytes`])?
fn keeps(version: &str) -> bool {
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if minor < 100 => {
            trace::total::kept_bytes(major.saturating_mul(10_000) + minor * 100) > 0
        }
        _ => false,
    }
}

/// Which libcupti a program would find, and what is to be known of it.
pub(super) fn check() -> Vec<Finding> {
    if let Some(named) = named() {
        return vec![named];
    }
    let found = found();
    let keep: Vec<&str> = found.iter().map(|c| c.version.as_str()).filter(|v| keeps(v)).collect();
    let kept = keep.first().map(|version| {
        note(
            "cupti",
            format!(
                "{version} keeps 32 bytes of host memory for each kernel launched beside CUDA graphs, until the program ends \
                 (2,000 launches a second: 230 MB an hour); 13.4 and later do not (docs/windows.md)"
            ),
        )
    });
    std::iter::once(which(&found)).chain(kept).collect()
}

/// Those of python3's packages, of the toolkit, and where the loader looks.
fn found() -> Vec<Cupti> {
    let mut found: Vec<Cupti> = sites().iter().flat_map(|s| cupti_of_site(s)).collect();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    for toolkit in toolkits.chain([PathBuf::from("/usr/local/cuda")]) {
        found.extend(cupti_in(&toolkit.join("extras/CUPTI/lib64")));
        found.extend(cupti_in(&toolkit.join("targets/x86_64-linux/lib")));
    }
    // (an image that only runs programs has no libcupti.so without a number)
    let names = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"];
    if let Some(path) = names.into_iter().find_map(find_library) {
        found.extend(path.parent().and_then(cupti_in));
    }
    found
}

/// The one that the settings name.
fn named() -> Option<Finding> {
    let path = std::env::var_os(setting::CUPTI).filter(|v| !v.is_empty()).map(PathBuf::from)?;
    Some(match path.is_file() {
        true => ok("cupti", format!("{} (GAPPROBE_CUPTI)", path.display())),
        false => problem(
            "cupti",
            format!("GAPPROBE_CUPTI names {}, which is no file", path.display()),
            "unset GAPPROBE_CUPTI",
        ),
    })
}

fn which(found: &[Cupti]) -> Finding {
    let mut listed: Vec<String> = Vec::new();
    for one in found {
        let text = format!("{} ({})", one.version, one.path.display());
        if !listed.contains(&text) {
            listed.push(text);
        }
    }
    if listed.is_empty() {
        problem(
            "cupti",
            "no libcupti in python3's packages or the CUDA toolkit",
            "pip install nvidia-cuda-cupti (CUDA 12: nvidia-cuda-cupti-cu12), or set GAPPROBE_CUPTI to a libcupti.so",
        )
    } else {
        ok("cupti", listed.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_keeps_memory_is_told_by_its_number() {
        for version in ["13.0.48", "13.0.85", "13.3.75", "13.0"] {
            assert!(keeps(version), "{version}");
        }
        for version in ["12.9.79", "13.4.92", "13.5.25", "13", "", "x.y", "13.4294967295", "4294967295.0"] {
            assert!(!keeps(version), "{version}");
        }
    }

    #[test]
    fn cupti_of_pip_tells_the_version_of_its_package() {
        let site = std::env::temp_dir().join(format!("gapprobe-site-{}", std::process::id()));
        for (lib, file, package) in [
            ("nvidia/cu13/lib", "libcupti.so.13", "nvidia_cuda_cupti-13.0.85.dist-info"),
            ("nvidia/cuda_cupti/lib", "libcupti.so.12", "nvidia_cuda_cupti_cu12-12.9.79.dist-info"),
        ] {
            fs::create_dir_all(site.join(lib)).unwrap();
            fs::write(site.join(lib).join(file), "").unwrap();
            fs::create_dir_all(site.join(package)).unwrap();
        }
        let mut versions: Vec<String> = cupti_of_site(&site).into_iter().map(|c| c.version).collect();
        versions.sort();
        assert_eq!(versions, ["12.9.79", "13.0.85"]);
        fs::remove_dir_all(&site).unwrap();
    }
}
