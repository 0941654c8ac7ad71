// SPDX-License-Identifier: Apache-2.0
//! Where recordings and traces would go: writable, local, ours alone.

use std::fs;
use std::path::Path;

use super::{ok, problem, Finding};
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

/// Where recordings and traces would go.
pub(super) fn check() -> Vec<Finding> {
    let private = recordings::private_folder();
    let temporary = private.parent().map(Path::to_owned).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let real = temporary.canonicalize().unwrap_or_else(|_| temporary.clone());
    let kind = file_system(&real, &mounts).unwrap_or_default();
    let recording = if let Some(e) = unwritable(&temporary) {
        problem(
            "recording",
            format!("{}: {e}", temporary.display()),
            "set TMPDIR to a local directory you can write",
        )
    } else if NETWORK.contains(&kind.as_str()) {
        problem(
            "recording",
            format!("{} is on a network file system ({kind})", temporary.display()),
            "set TMPDIR to a local disk",
        )
    } else if let Some(why) = recordings::distrust(&private) {
        problem("recording", why, format!("rm -r {} (look what it is first)", private.display()))
    } else {
        ok("recording", format!("{} ({kind})", private.display()))
    };
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
