// SPDX-License-Identifier: Apache-2.0
// WARM
//! Where a child has the interpreter: the file it was loaded from, and by how much further it lies
//! there than here. A forked child has it at the same place; one that was started anew, or forked
//! from such a one (spawn, a fork server), wherever the kernel put it.

use spool::procfs::Mapping;

/// The part of a file of this process that `address` lies in. `None` for memory of no file.
pub(super) fn part_at(address: u64) -> Option<Mapping> {
    let part = Mapping::all("/proc/self/maps").find(|part| part.at.contains(&address))?;
    let is_of_file = part.what.last().is_some_and(|inode| inode != "0");
    is_of_file.then_some(part)
}

/// By how much further process `pid` has this part of ours (wraps around); `None` where it has
/// none, or does not show it.
pub(super) fn bias_of(part: &Mapping, pid: u32) -> Option<u64> {
    let size = |m: &Mapping| m.at.end.wrapping_sub(m.at.start);
    let mut theirs = Mapping::all(&format!("/proc/{pid}/maps"));
    let theirs = theirs.find(|other| other.what == part.what && size(other) == size(part))?;
    Some(theirs.at.start.wrapping_sub(part.at.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_of_the_same_file_has_it_at_another_place_and_a_strangers_is_not_found() {
        let own = part_at(bias_of as fn(&Mapping, u32) -> Option<u64> as usize as u64).expect("this program");
        assert_eq!(bias_of(&own, std::process::id()), Some(0));
        let mut other = std::process::Command::new("sleep").arg("20").spawn().expect("sleep");
        let stranger = bias_of(&own, other.id());
        // libc is in both, and somewhere else
        let libc = part_at(libc::getppid as unsafe extern "C" fn() -> i32 as usize as u64).expect("libc");
        // (its loader maps it a moment after it has begun)
        let begun = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            bias_of(&libc, other.id())
        });
        other.kill().expect("kill");
        other.wait().expect("wait");
        assert_eq!(stranger, None);
        assert!(begun.is_some_and(|by| by != 0 && by % 4096 == 0), "{begun:?}");
        assert_eq!(bias_of(&libc, other.id()), None, "gone");
        let heap = Box::new(7u64);
        assert_eq!(part_at(std::ptr::from_ref(&*heap) as u64), None, "memory of no file");
    }
}
