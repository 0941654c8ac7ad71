// SPDX-License-Identifier: Apache-2.0
//! Where recordings and traces would go: writable, local, ours alone.

use std::fs;
use std::path::Path;

use verdict::text::escape::word;

use super::{note, ok, problem, Finding};
use crate::verbs::{recordings, recover};

/// File systems on the network: writes there can hang a program.
const NETWORK: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "9p",
    "afs",
    "fuse.sshfs",
    "fuse.glusterfs",
];

/// The type of the file system `path` lies on, by the longest mount point that holds it.
fn file_system(path: &Path, mountinfo: &str) -> Option<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = before.split(' ').nth(4)?.replace("\\040", " ");
            path.starts_with(&point)
                .then(|| (point.len(), after.split(' ').next().unwrap_or_default().to_owned()))
        })
        // of two mounts at one point the later one is seen
        .enumerate()
        .max_by_key(|(i, (length, _))| (*length, *i))
        .map(|(_, (_, kind))| kind)
}

/// Why a file cannot be made in `folder`, tried out.
fn unwritable(folder: &Path) -> Option<std::io::Error> {
    let probe = folder.join(format!(".gapprobe-doctor-{}", std::process::id()));
    match fs::OpenOptions::new().write(true).create_new(true).open(&probe) {
        Ok(_) => fs::remove_file(&probe).err(),
        Err(e) => Some(e),
    }
}

/// What keeps recordings out of a private folder, and the way out; else the file system it is on.
fn unusable(private: &Path, mounts: &str) -> Result<String, (String, String)> {
    let root = private.parent().unwrap_or(Path::new("/"));
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let kind = file_system(&real, mounts).unwrap_or_default();
    if NETWORK.contains(&kind.as_str()) {
        let what = format!("{} is on a network file system ({kind})", root.display());
        return Err((what, "set TMPDIR to a local disk".to_owned()));
    }
    if let Some(why) = recordings::distrust(private) {
        return Err((why, format!("rm -r {} (look what it is first)", word(&private.to_string_lossy()))));
    }
    let target = if private.is_dir() { private } else { root };
    match unwritable(target) {
        Some(e) => Err((
            format!("{}: {e}", target.display()),
            "set TMPDIR to a local directory you can write".to_owned(),
        )),
        None => Ok(kind),
    }
}

/// The folder that the library would choose: the first that can be used.
fn recording() -> Finding {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut passed_over = Vec::new();
    if let Some(relative) =
        std::env::var_os("TMPDIR").filter(|t| !t.is_empty() && !Path::new(t).is_absolute())
    {
        passed_over.push((
            format!("TMPDIR={} is relative", relative.to_string_lossy()),
            "set TMPDIR to an absolute path".to_owned(),
        ));
    }
    for private in recordings::private_folders() {
        match unusable(&private, &mounts) {
            Err(problem) => passed_over.push(problem),
            Ok(kind) => {
                // in a chroot no mount is known
                let kind = if kind.is_empty() { kind } else { format!(" ({kind})") };
                let chosen = format!("{}{kind}", private.display());
                return match passed_over.first() {
                    None => ok("recording", chosen),
                    Some((why, _)) => note("recording", format!("{chosen}; {why}")),
                };
            }
        }
    }
    let (what, fix) = passed_over.swap_remove(0);
    problem("recording", what, fix)
}

/// Where recordings and traces would go.
pub(super) fn check() -> Vec<Finding> {
    let recording = recording();
    let results = recover::default_directory();
    let shown = results.canonicalize().unwrap_or_else(|_| results.clone());
    let traces = match unwritable(&results) {
        Some(e) => problem(
            "traces",
            format!("{}: {e}", shown.display()),
            "set GAPPROBE_DIR to a directory you can write",
        ),
        None => ok("traces", shown.display().to_string()),
    };
    vec![recording, traces]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_innermost_mount() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      30 22 0:40 / /home rw shared:1 - nfs4 server:/home rw\n\
                      31 30 0:41 / /home/a\\040b rw - tmpfs tmpfs rw\n\
                      32 22 0:42 / /home rw - lustre x rw";
        for (path, kind) in
            [("/etc", "ext4"), ("/home/x", "lustre"), ("/home/a b/c", "tmpfs"), ("/homework", "ext4")]
        {
            assert_eq!(file_system(Path::new(path), mounts).as_deref(), Some(kind), "{path}");
        }
    }
}
