// SPDX-License-Identifier: Apache-2.0
//! Where recordings lie, and what unfinished files are called: what the library that writes them
//! and the command that looks for them must agree on. Names only; nothing here asks the system.
//!
//! A recording lies in `ROOT/gapprobe-<uid>`, ROOT being the first of [`roots`] in which the
//! library could make it. The command looks in the folders of all roots, so that it finds the
//! recording whatever made the library pass one over (a network file system, a folder that cannot
//! be written).
//!
//! Unfinished files carry the process that makes them in their name ([`Owner`]), so that anybody
//! can tell whether they are leftovers: `<recording>.gpr.<owner>.new`, `.<trace or
//! summary>.<owner>.part`.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Header;

/// The root where TMPDIR gives none.
pub const DEFAULT_ROOT: &str = "/tmp";
/// File name ending of recordings.
pub const RECORDING: &str = "gpr";
/// File name ending of a recording whose header is not written yet.
pub const NEW: &str = "new";
/// File name ending of a trace or summary being written.
pub const PART: &str = "part";

/// For so long a program that crashed stays without gapprobe, from its last crash on.
pub const CRASH_COUNTS: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Name of the file that is there while `owner`, a start of the job `job`, is being attached to:
/// what is left of a dead process tells that it died in our hands.
pub fn attaching(owner: &Owner, job: u64) -> String {
    format!("gapprobe-attaching-{owner}.{job:016x}")
}

/// The inverse of [`attaching`].
pub fn parse_attaching(name: &str) -> Option<(Owner, u64)> {
    let (owner, job) = name.strip_prefix("gapprobe-attaching-")?.rsplit_once('.')?;
    Some((Owner::parse(owner)?, u64::from_str_radix(job, 16).ok()?))
}

/// Name of the file that tells that the job `job` crashed: `gapprobe run` saw it. It holds the
/// signal's number.
pub fn crashed(job: u64) -> String {
    format!("gapprobe-crashed-{job:016x}")
}

/// Name of the empty file that the `gapprobe run` with this id (hexadecimal) leaves in the private
/// folders: the first process that records, or says why it does not, takes it away. What is there
/// at the end tells that nobody used CUDA. `None`: no such id.
pub fn run_mark(id: &str) -> Option<String> {
    let good = !id.is_empty() && id.len() <= 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
    good.then(|| format!("{RUN_MARK}{id}"))
}

/// What names of [`run_mark`] begin with.
pub const RUN_MARK: &str = "gapprobe-run-";

/// Where the private folder may be, in the order in which the library tries: `tmpdir` (the value of
/// TMPDIR) if it is absolute (a relative one means another place after each chdir), then
/// [`DEFAULT_ROOT`] (`test_root`, the value of [`crate::setting::TEST_ROOT`], in its place where it
/// is set).
pub fn roots(tmpdir: Option<&OsStr>, test_root: Option<&OsStr>) -> Vec<PathBuf> {
    let mut roots = Vec::with_capacity(2);
    let last = test_root.filter(|t| !t.is_empty()).map_or(Path::new(DEFAULT_ROOT), Path::new);
    if let Some(tmpdir) = tmpdir.map(Path::new).filter(|t| t.is_absolute()) {
        roots.push(tmpdir.to_owned());
    }
    if roots.first().is_none_or(|first| first != last) {
        roots.push(last.to_owned());
    }
    roots
}

/// The private folder of user `uid` (the effective one) in `root`.
pub fn folder(root: &Path, uid: u32) -> PathBuf {
    root.join(format!("gapprobe-{uid}"))
}

/// Name of a recording until its header is written.
pub fn unfinished_recording(name: &str, owner: &Owner) -> String {
    format!("{name}.{owner}.{NEW}")
}

/// Name of a result until it is whole; hidden, for a folder of the user's own.
pub fn unfinished_result(name: &str, owner: &Owner) -> String {
    format!(".{name}.{owner}.{PART}")
}

/// Name and owner of an unfinished file ([`NEW`] or [`PART`]); without owner where the name says
/// none.
pub fn parse_unfinished<'a>(name: &'a str, ending: &str) -> Option<(&'a str, Option<Owner>)> {
    let rest = name.strip_suffix(ending)?.strip_suffix('.')?;
    match rest.rsplit_once('.').map(|(name, owner)| (name, Owner::parse(owner))) {
        Some((name, Some(owner))) => Some((name, Some(owner))),
        _ => Some((rest, None)),
    }
}

/// A process, told apart from every other one there was or is, also after its pid is used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// Process id in its namespace.
    pub pid: u32,
    /// Clock ticks from boot to its start, 0 where unknown.
    pub start: u64,
    /// Inode of its pid namespace, 0 where unknown.
    pub namespace: u64,
    /// Random id of the boot (and so of the host), zero where unknown.
    pub boot: [u8; 16],
}

impl Owner {
    /// The inverse of `Display`.
    pub fn parse(text: &str) -> Option<Owner> {
        let mut parts = text.split('-');
        let pid = parts.next()?.parse().ok()?;
        let start = parts.next()?.parse().ok()?;
        let namespace = parts.next()?.parse().ok()?;
        let boot = parts.next()?;
        if parts.next().is_some() || boot.len() != 32 {
            return None;
        }
        let boot = u128::from_str_radix(boot, 16).ok()?.to_be_bytes();
        Some(Owner { pid, start, namespace, boot })
    }
}

impl fmt::Display for Owner {
    /// `<pid>-<start>-<namespace>-<boot, 32 hexadecimal digits>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let boot = u128::from_be_bytes(self.boot);
        write!(f, "{}-{}-{}-{boot:032x}", self.pid, self.start, self.namespace)
    }
}

impl From<&Header> for Owner {
    fn from(h: &Header) -> Owner {
        Owner { pid: h.pid, start: h.process_start, namespace: h.pid_namespace, boot: h.boot_id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_or_missing_tmpdir_means_tmp_alone() {
        let of = |t: Option<&str>| roots(t.map(OsStr::new), None);
        for none in [None, Some(""), Some("relative"), Some("./x"), Some("/tmp"), Some("/tmp/")] {
            assert_eq!(of(none), [Path::new("/tmp")], "{none:?}");
        }
        assert_eq!(of(Some("/scratch")), [Path::new("/scratch"), Path::new("/tmp")]);
    }

    #[test]
    fn a_name_tells_its_owner_and_a_foreign_one_tells_none() {
        let owner = Owner { pid: 7, start: 123_456, namespace: 4_026_531_836, boot: [0xab; 16] };
        let name = unfinished_recording("gapprobe-a.b-7-1-2.gpr", &owner);
        assert_eq!(parse_unfinished(&name, NEW), Some(("gapprobe-a.b-7-1-2.gpr", Some(owner))));
        assert_eq!(parse_unfinished(&name, PART), None);
        let name = unfinished_result("gapprobe-a.json.gz", &owner);
        assert_eq!(parse_unfinished(&name, PART), Some((".gapprobe-a.json.gz", Some(owner))));
        for odd in [".a.1-2-3.part", ".a.1-2-3-4.part", ".a.1-2-3-x.part", ".a.json.gz.part"] {
            assert_eq!(parse_unfinished(odd, PART).map(|p| p.1), Some(None), "{odd}");
        }
        assert_eq!(parse_unfinished("a.new", PART), None);
        let name = attaching(&owner, 0xabc);
        assert_eq!(parse_attaching(&name), Some((owner, 0xabc)));
        assert_eq!(parse_attaching(&crashed(0xabc)), None);
        let zero = Owner::default();
        assert_eq!(Owner::parse(&zero.to_string()), Some(zero));
    }
}
