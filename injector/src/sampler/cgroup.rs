// SPDX-License-Identifier: Apache-2.0
// WARM
//! CPUs this process may use, and how long the quota of its control groups stopped it (cgroup v1
//! and v2). Its group and those around it, as far as they are mounted here: in a container usually
//! the container's own.

use std::path::{Path, PathBuf};

/// Groups looked at, from the process's own outwards.
const DEEPEST: usize = 16;

/// A group with a quota.
struct Group {
    statistics: PathBuf,
    throttled: u64,
}

/// The groups that limit this process.
pub(super) struct Limits {
    groups: Vec<Group>,
    /// CPUs by the tightest quota; `None`: no quota.
    pub(super) cpus: Option<f64>,
}

/// Where a hierarchy that governs CPU time is mounted, and the group of this process in it.
fn own_group(mounts: &str, groups: &str) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        // id parent major:minor root mountpoint options [tags] - type source options
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let mut left = left.split(' ');
        let (Some(root), Some(point)) = (left.nth(3), left.next()) else { continue };
        let mut right = right.split(' ');
        let (kind, options) = (right.next().unwrap_or(""), right.nth(1).unwrap_or(""));
        let is_here = |controllers: &str| match kind {
            "cgroup2" => controllers.is_empty(),
            "cgroup" => options.split(',').any(|o| o == "cpu") && controllers.split(',').any(|c| c == "cpu"),
            _ => false,
        };
        let own = groups.lines().find_map(|l| {
            let mut parts = l.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            is_here(controllers).then_some(path)
        });
        let Some(own) = own else { continue };
        // the mount shows the hierarchy from `root` on; a path that is not below it is another
        // namespace's
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        found.push((PathBuf::from(point), Path::new(point).join(below)));
    }
    found
}

/// CPUs of the quota in a group's folder.
fn quota(folder: &Path) -> Option<f64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        }
        None => {
            let number = |name: &str| read(name)?.trim().parse::<f64>().ok();
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        }
    };
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// ns stopped so far, by a `cpu.stat`.
fn throttled(text: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        let value: u64 = value.trim().parse().ok()?;
        match key {
            "throttled_usec" => Some(value.saturating_mul(1000)),
            "throttled_time" => Some(value),
            _ => None,
        }
    })
}

impl Limits {
    /// Looks for the groups of this process.
    pub(super) fn find() -> Limits {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Limits::of(&own_group(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")))
    }

    fn of(hierarchies: &[(PathBuf, PathBuf)]) -> Limits {
        let mut limits = Limits { groups: Vec::new(), cpus: None };
        for (point, own) in hierarchies {
            for folder in own.ancestors().take_while(|f| f.starts_with(point)).take(DEEPEST) {
                let Some(cpus) = quota(folder) else { continue };
                limits.cpus = Some(limits.cpus.map_or(cpus, |c| c.min(cpus)));
                let mut group = Group { statistics: folder.join("cpu.stat"), throttled: 0 };
                group.look();
                limits.groups.push(group);
            }
        }
        limits
    }

    /// ns that the quotas stopped this process since the last question, `span` ns ago. A group
    /// counts each of its CPUs: never more than the span is said.
    pub(super) fn throttled(&mut self, span: u64) -> u64 {
        self.groups.iter_mut().map(Group::look).max().unwrap_or(0).min(span)
    }
}

impl Group {
    fn look(&mut self) -> u64 {
        let text = std::fs::read_to_string(&self.statistics).unwrap_or_default();
        let now = throttled(&text).unwrap_or(self.throttled);
        now.saturating_sub(std::mem::replace(&mut self.throttled, now))
    }
}

/// CPUs in the affinity mask of the main thread; 0 where unknown.
pub(super) fn affinity() -> u32 {
    let mut mask = [0u64; 1024];
    // SAFETY: takes nothing, cannot fail.
    let pid = unsafe { libc::getpid() };
    // SAFETY: a mask and its size in bytes; the kernel writes at most that. (libc's own type ends
    // at 1024 CPUs.)
    let n = unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, size_of_val(&mask), mask.as_mut_ptr()) };
    let words = usize::try_from(n).unwrap_or(0) / 8;
    mask.iter().take(words).map(|w| w.count_ones()).sum()
}

/// Resident bytes of this process.
pub(super) fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: takes a number, cannot fail for this one.
    Some(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str =
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";

    #[test]
    fn the_own_group_is_found_in_both_versions_and_in_a_container() {
        let one = |point: &str, own: &str| vec![(PathBuf::from(point), PathBuf::from(own))];
        assert_eq!(
            own_group(V1, "5:memory:/m\n4:cpu,cpuacct:/user/a\n0::/"),
            one("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/user/a")
        );
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            own_group(v2, "0::/system.slice/x"),
            one("/sys/fs/cgroup", "/sys/fs/cgroup/system.slice/x")
        );
        // a container that sees the host's path but mounts only its own part
        let part = "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(own_group(part, "0::/docker/ab/job"), one("/sys/fs/cgroup", "/sys/fs/cgroup/job"));
        assert_eq!(own_group(part, "0::/"), one("/sys/fs/cgroup", "/sys/fs/cgroup/"));
        assert_eq!(own_group("", ""), []);
    }

    #[test]
    fn throttling_is_what_was_added_since_and_the_tightest_quota_counts() {
        let root = std::env::temp_dir().join(format!("gapprobe-cgroup-{}", std::process::id()));
        let own = root.join("pod/job");
        std::fs::create_dir_all(&own).expect("folders");
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).expect("file");
        write(own.join("cpu.max"), "150000 100000\n");
        write(own.join("cpu.stat"), "usage_usec 5\nnr_throttled 2\nthrottled_usec 700\n");
        write(root.join("pod/cpu.cfs_quota_us"), "400000\n");
        write(root.join("pod/cpu.cfs_period_us"), "100000\n");
        write(root.join("pod/cpu.stat"), "nr_throttled 0\nthrottled_time 0\n");
        write(root.join("cpu.max"), "max 100000\n");
        let mut limits = Limits::of(&[(root.clone(), own.clone())]);
        assert_eq!((limits.cpus, limits.groups.len()), (Some(1.5), 2));
        assert_eq!(limits.throttled(1_000_000_000), 0, "what was before is not ours");
        write(own.join("cpu.stat"), "usage_usec 5\nnr_throttled 3\nthrottled_usec 40700\n");
        assert_eq!(limits.throttled(1_000_000_000), 40_000_000);
        write(root.join("pod/cpu.stat"), "nr_throttled 9\nthrottled_time 9000000000\n");
        assert_eq!(
            limits.throttled(1_000_000_000),
            1_000_000_000,
            "eight CPUs stopped for longer than there was"
        );
        assert_eq!(limits.throttled(1_000_000_000), 0);
        std::fs::remove_dir_all(root).expect("gone");
    }

    #[test]
    fn this_process_has_cpus_and_memory() {
        assert!(affinity() >= 1);
        assert!(resident().is_some_and(|b| b > 1 << 20));
    }
}
