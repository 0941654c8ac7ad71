// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where a child has the interpreter: the file it was loaded from, and by how much further it lies
//! there than here. A forked child has it at the same place; one that was started anew, or forked
//! from such a one (spawn, a fork server), wherever the kernel put it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Of `/proc/PID/maps` at most, bytes.
const MAX_MAPS_BYTES: u64 = 16 << 20;

/// Part of a file in a process's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    start: u64,
    end: u64,
    /// Permissions, offset in the file, device, inode, as the kernel writes them: the same in every
    /// process that has this part.
    what: [String; 4],
}

impl Part {
    fn parse(line: &str) -> Option<Part> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|n| u64::from_str_radix(n, 16).ok());
        let mut what = || words.next().map(str::to_owned);
        Some(Part { start: start?, end: end?, what: [what()?, what()?, what()?, what()?] })
    }

    /// The part of a file of this process that `address` lies in. `None` for memory of no file.
    pub(super) fn at(address: u64) -> Option<Part> {
        let part = find("/proc/self/maps", |part| (part.start..part.end).contains(&address))?;
        let is_of_file = part.what.last().is_some_and(|inode| inode != "0");
        is_of_file.then_some(part)
    }

    /// By how much further process `pid` has the same part (wraps around); `None` where it has
    /// none, or does not show it.
    pub(super) fn slide(&self, pid: u32) -> Option<u64> {
        let size = self.end - self.start;
        let theirs = find(&format!("/proc/{pid}/maps"), |part| {
            part.what == self.what && part.end.wrapping_sub(part.start) == size
        })?;
        Some(theirs.start.wrapping_sub(self.start))
    }
}

fn find(path: &str, is: impl Fn(&Part) -> bool) -> Option<Part> {
    let lines = BufReader::new(File::open(path).ok()?.take(MAX_MAPS_BYTES)).split(b'\n');
    lines.map_while(Result::ok).find_map(|line| Part::parse(&String::from_utf8_lossy(&line)).filter(&is))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_understood_whatever_the_file_is_called() {
        let line = "7f12-7f34 rw-p 0001a000 fe:01 1234   /a path/with - spaces (deleted)";
        let what = ["rw-p", "0001a000", "fe:01", "1234"].map(str::to_owned);
        assert_eq!(Part::parse(line), Some(Part { start: 0x7f12, end: 0x7f34, what }));
        for cut in ["", "7f12", "7f12-", "7f12-7f34 rw-p 0 fe:01", "x-y rw-p 0 0 0"] {
            assert_eq!(Part::parse(cut), None, "{cut}");
        }
    }

    #[test]
    fn another_process_of_the_same_file_has_it_at_another_place_and_a_strangers_is_not_found() {
        let own = Part::at(a_line_of_maps_is_understood_whatever_the_file_is_called as fn() as usize as u64)
            .expect("this program");
        assert_eq!(own.slide(std::process::id()), Some(0));
        let mut other = std::process::Command::new("sleep").arg("20").spawn().expect("sleep");
        let stranger = own.slide(other.id());
        // libc is in both, and somewhere else
        let libc = Part::at(libc::getppid as unsafe extern "C" fn() -> i32 as usize as u64).expect("libc");
        // (its loader maps it a moment after it has begun)
        let begun = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            libc.slide(other.id())
        });
        other.kill().expect("kill");
        other.wait().expect("wait");
        assert_eq!(stranger, None);
        assert!(begun.is_some_and(|slide| slide != 0 && slide % 4096 == 0), "{begun:?}");
        assert_eq!(libc.slide(other.id()), None, "gone");
        let heap = Box::new(7u64);
        assert_eq!(Part::at(std::ptr::from_ref(&*heap) as u64), None, "memory of no file");
    }
}
