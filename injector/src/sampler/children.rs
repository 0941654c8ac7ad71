// SPDX-License-Identifier: Apache-2.0
// WARM
//! Child processes of this one and their children (DataLoader workers, by fork or by a fork
//! server): what they use of the CPU, how long a disk held them up, what they read. Every half
//! second; who they are is asked more rarely.

use std::collections::{HashMap, HashSet};

use spool::procfs::Stat;
use trace::event::{Event, Kind};

use super::threads::{clock_of, process_clock, schedule_of_main_thread};

/// Children followed at most.
pub(super) const MAX_CHILDREN: usize = 64;
/// Between two looks at them, ns.
pub(super) const PERIOD: u64 = 500_000_000;
/// Between two questions who they are, ns: of the main thread's, and of everybody's.
const LIST_PERIOD: u64 = 1_000_000_000;
/// As above.
const LIST_ALL_PERIOD: u64 = 10_000_000_000;
/// Threads and processes asked for their children at most.
const MOST_ASKED: usize = 256;

/// A child at the last look.
#[derive(Clone, Copy)]
struct Known {
    /// When it started, clock ticks after boot: tells a process id used again.
    started: u64,
    at: u64,
    cpu: u64,
    /// Ticks blocked on a disk.
    disk: u64,
    read: u64,
    /// Waited for a CPU, ns; the kernel counts a wait when it ends.
    queued: u64,
}

/// The children.
#[derive(Default)]
pub(super) struct Children {
    known: HashMap<u32, Known>,
    pids: Vec<u32>,
    listed: u64,
    listed_all: u64,
    /// Processes that are no children of ours, where all have to be gone through.
    strangers: HashSet<u32>,
    looked: u64,
}

/// Bytes a process has read: by its calls (files on a network and in the page cache count, pipes
/// too) or from disks (which has what was mapped), whichever is more.
fn bytes_read(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok());
    value("rchar:").unwrap_or(0).max(value("read_bytes:").unwrap_or(0))
}

/// The children file of a thread; `None` where the kernel has none.
fn children_of(path: &str) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect())
}

fn numbers_in(path: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Clock ticks a second of the kernel's interface.
fn ticks() -> u64 {
    // SAFETY: takes a number, cannot fail for this one.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as u64
}

impl Children {
    /// What the children did since the last look, where it is time for one; `f` takes the events.
    pub(super) fn look(&mut self, now: u64, mut f: impl FnMut(Event)) {
        if now.saturating_sub(self.looked) < PERIOD {
            return;
        }
        self.looked = now;
        self.list(now);
        let per_tick = 1_000_000_000 / ticks();
        let mut alive = HashMap::with_capacity(self.pids.len());
        for &pid in self.pids.iter().take(MAX_CHILDREN) {
            let (Some(Stat { start: started, disk, .. }), Some(cpu)) =
                (Stat::of(pid), clock_of(process_clock(pid)))
            else {
                continue;
            };
            let queued = schedule_of_main_thread(pid).map_or(0, |(_, queued)| queued);
            let new = Known { started, at: now, cpu, disk, read: bytes_read(pid), queued };
            alive.insert(pid, new);
            let Some(old) = self.known.get(&pid).filter(|k| k.started == started) else { continue };
            let span = now.saturating_sub(old.at).max(1);
            let permille = |ns: u64| (ns.saturating_mul(1000) / span).min(65_535) as u32;
            let mut e = Event::new(Kind::Process, old.at, now);
            e.a = pid;
            let on_disk = disk.saturating_sub(old.disk).saturating_mul(per_tick);
            e.b = permille(cpu.saturating_sub(old.cpu)) | permille(on_disk) << 16;
            e.c = u32::try_from(new.read.saturating_sub(old.read) >> 10).unwrap_or(u32::MAX);
            e.correlation = permille(queued.saturating_sub(old.queued));
            f(e);
        }
        self.known = alive;
    }

    /// Who they are.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Nothing was wanted meanwhile: what comes counts from the next look on.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    fn list(&mut self, now: u64) {
        if now.saturating_sub(self.listed) < LIST_PERIOD {
            return;
        }
        self.listed = now;
        let own = std::process::id();
        let Some(mut pids) = children_of(&format!("/proc/self/task/{own}/children")) else {
            self.go_through_all(own);
            return;
        };
        if now.saturating_sub(self.listed_all) >= LIST_ALL_PERIOD {
            self.listed_all = now;
            for tid in numbers_in("/proc/self/task").into_iter().filter(|t| *t != own).take(MOST_ASKED) {
                pids.extend(children_of(&format!("/proc/self/task/{tid}/children")).unwrap_or_default());
            }
        } else {
            // those of other threads, found before
            pids.extend(self.pids.iter().filter(|p| self.known.contains_key(p)));
        }
        let mut at = 0;
        while let Some(pid) = pids.get(at).copied().filter(|_| at < MOST_ASKED) {
            pids.extend(children_of(&format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default());
            at += 1;
        }
        pids.sort_unstable();
        pids.dedup();
        self.pids = pids;
    }

    /// Without children files (a kernel setting): every process is asked once who its parent is.
    fn go_through_all(&mut self, own: u32) {
        let mut all = numbers_in("/proc");
        all.sort_unstable();
        let mut strangers = HashSet::with_capacity(all.len());
        let mut family: Vec<u32> = Vec::new();
        for pid in all.into_iter().filter(|p| *p != own) {
            if self.strangers.contains(&pid) {
                strangers.insert(pid);
                continue;
            }
            let parent = Stat::of(pid).map_or(0, |s| s.parent);
            let is_ours = parent == own || family.binary_search(&parent).is_ok();
            if is_ours && family.len() < MAX_CHILDREN {
                family.push(pid);
            } else {
                strangers.insert(pid);
            }
        }
        (self.strangers, self.pids) = (strangers, family);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn children_that_share_a_cpu_wait_for_it() {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).expect("a list");
        let first = allowed.trim().split(['-', ',']).next().expect("a CPU").to_owned();
        let one_cpu = || {
            let mut shell = Command::new("taskset");
            shell.args(["-c", &first, "sh", "-c", "while :; do :; done"]).spawn().expect("taskset")
        };
        let mut both = [one_cpu(), one_cpu()];
        let mut children = Children::default();
        std::thread::sleep(Duration::from_millis(100)); // each is what taskset becomes
        children.look(crate::platform::clock::monotonic(), |_| {
            panic!("a first look has nothing to compare with")
        });
        std::thread::sleep(Duration::from_millis(600));
        let mut waited = HashMap::new();
        children.look(crate::platform::clock::monotonic(), |e| {
            waited.insert(e.a, e.correlation);
        });
        for child in &mut both {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
        let waited = both.map(|child| waited[&child.id()]);
        // (one wait may go on: the kernel has not counted it)
        assert!(waited.iter().sum::<u32>() > 200, "{waited:?} permille");
    }

    #[test]
    fn a_child_that_computes_and_one_that_sleeps_are_told_apart() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
        let mut idle = Command::new("sleep").arg("20").spawn().expect("sleep");
        let mut children = Children::default();
        children.look(crate::platform::clock::monotonic(), |_| {
            panic!("a first look has nothing to compare with")
        });
        std::thread::sleep(Duration::from_millis(600));
        let mut seen = HashMap::new();
        children.look(crate::platform::clock::monotonic(), |e| {
            seen.insert(e.a, e);
        });
        for child in [&mut busy, &mut idle] {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
        let (busy, idle) = (seen[&busy.id()], seen[&idle.id()]);
        assert!(busy.b & 0xffff > 100, "{busy:?}: at least a tenth of a CPU, however busy the machine is");
        assert!(idle.b & 0xffff < 20, "{idle:?}");
        assert!(busy.start < busy.end && busy.end - busy.start >= 500_000_000);
        assert!(!seen.contains_key(&std::process::id()));
    }
}
