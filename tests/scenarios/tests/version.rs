// SPDX-License-Identifier: Apache-2.0
//! Purpose: `gapprobe --version --json` reads off the library beside the command what that was
//! built from; scripts/build tells both of them the commit.

use std::fs;
use std::process::Command;

use gapprobe_scenarios::built::built;
use serde_json::Value;

#[test]
fn the_library_beside_the_command_says_what_it_was_built_from() {
    let folder = built().scratch.join("version");
    let _ = fs::remove_dir_all(&folder);
    let command = built().installed(&folder);
    let library = folder.join("libgapprobe.so");
    let output = Command::new(&command).args(["--version", "--json"]).output().expect("gapprobe --version");
    let said: Value = serde_json::from_slice(&output.stdout).expect("an object");
    let of_library = &said["library"];
    assert_eq!(of_library["version"], env!("CARGO_PKG_VERSION"), "{said}");
    assert_eq!(of_library["file"], library.canonicalize().expect("a path").to_str().expect("text"));
    // (Cargo alone tells none)
    if let Some(commit) = of_library["commit"].as_str() {
        let hash = commit.strip_suffix("-dirty").unwrap_or(commit);
        assert!(hash.len() >= 12 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{said}");
    }
}
