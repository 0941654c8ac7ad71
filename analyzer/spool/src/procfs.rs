// SPDX-License-Identifier: Apache-2.0
//! What the kernel tells of a process in /proc, and of this boot. Everyone who reads `stat` or
//! `maps` reads them here, but where nothing may be allocated (`injector/src/hooks/imports.rs`).

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

/// Of a `maps` at most, bytes.
const MAX_MAPS_BYTES: u64 = 16 << 20;

/// Some fields of `/proc/PID/stat`, or of a thread's (proc(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// State letter: field 3.
    pub state: char,
    /// Parent: field 4.
    pub parent: u32,
    /// PF_* of the kernel: field 9.
    pub flags: u64,
    /// Start, clock ticks since boot: field 22.
    pub start: u64,
    /// Clock ticks blocked on a disk: field 42; 0 where the kernel does not tell.
    pub disk: u64,
}

impl Stat {
    /// Of a process. `None`: it is gone, or there is no /proc.
    pub fn of(pid: u32) -> Option<Stat> {
        Stat::read(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// Of a file `stat`.
    pub fn read(path: &Path) -> Option<Stat> {
        Stat::parse(&fs::read(path).ok()?)
    }

    fn parse(stat: &[u8]) -> Option<Stat> {
        // the name in parentheses may hold anything, half a letter and parentheses too: fields
        // count from the last one
        let name_end = stat.iter().rposition(|b| *b == b')')?;
        let rest = String::from_utf8_lossy(stat.get(name_end + 1..)?);
        let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3);
        Some(Stat {
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
            disk: field(42).and_then(|f| f.parse().ok()).unwrap_or(0),
        })
    }
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Addresses.
    pub at: Range<u64>,
    /// Permissions, offset in the file, device, inode ("0": of no file), as the kernel writes them:
    /// the same in every process that has this part.
    pub what: [String; 4],
}

impl Mapping {
    /// All of a file `maps`, by address, up to 16 MiB of its text.
    pub fn all(path: &str) -> impl Iterator<Item = Mapping> {
        let file = File::open(path).ok().map(|f| BufReader::new(f.take(MAX_MAPS_BYTES)).split(b'\n'));
        let lines = file.into_iter().flatten().map_while(Result::ok);
        lines.filter_map(|line| Mapping::parse(&String::from_utf8_lossy(&line)))
    }

    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|n| u64::from_str_radix(n, 16).ok());
        let mut what = || words.next().map(str::to_owned);
        Some(Mapping { at: start?..end?, what: [what()?, what()?, what()?, what()?] })
    }
}

/// The kernel's boot id as 16 bytes. Read once: no process outlives its boot.
pub fn boot_id() -> Option<[u8; 16]> {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    ID.get().copied().or_else(|| read_boot_id().map(|id| *ID.get_or_init(|| id)))
}

fn read_boot_id() -> Option<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(id)
}

/// Inode of this process's pid namespace, 0 where unknown.
pub fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_count_from_the_last_parenthesis_and_a_name_that_is_cut_within_a_letter_hides_nothing() {
        for name in [&b"python"[..], b"a ) (b", b"pt data (worker)", b"\xd0\xbe\xd0\xb1\xd1"] {
            let rest = b") S 16 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 8 9";
            let stat = Stat::parse(&[b"7 (", name, rest].concat()).expect("fields");
            let wanted = Stat { state: 'S', parent: 16, flags: 4_194_304, start: 4711, disk: 0 };
            assert_eq!(stat, wanted);
        }
        let with_disk = b"12 (w) S 7 1 1 0 -1 4 0 0 0 0 1 2 0 0 20 0 1 0 987 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 55 0";
        assert_eq!(Stat::parse(with_disk).map(|s| (s.parent, s.start, s.disk)), Some((7, 987, 55)));
        for cut in [&b""[..], b"12 (cut) S 7", b"12 (cut"] {
            assert_eq!(Stat::parse(cut), None);
        }
    }

    #[test]
    fn this_process_is_there_and_nobody_else_under_a_number_beyond_all() {
        let own = Stat::of(std::process::id()).expect("this process");
        assert!(own.start > 0 && own.state == 'R' || own.state == 'S', "{own:?}");
        assert_eq!(Stat::of(i32::MAX as u32), None);
        assert!(pid_namespace() > 0 && boot_id().is_some_and(|id| id != [0; 16]));
    }

    #[test]
    fn a_line_of_maps_is_understood_whatever_the_file_is_called() {
        let line = "7f12-7f34 rw-p 0001a000 fe:01 1234   /a path/with - spaces (deleted)";
        let what = ["rw-p", "0001a000", "fe:01", "1234"].map(str::to_owned);
        assert_eq!(Mapping::parse(line), Some(Mapping { at: 0x7f12..0x7f34, what }));
        for cut in ["", "7f12", "7f12-", "7f12-7f34 rw-p 0 fe:01", "x-y rw-p 0 0 0"] {
            assert_eq!(Mapping::parse(cut), None, "{cut}");
        }
        assert!(Mapping::all("/proc/self/maps").count() > 3);
        assert_eq!(Mapping::all("/nonexistent").count(), 0);
    }
}
