// SPDX-License-Identifier: Apache-2.0
//! Random programs under random faults: a seed makes a [`Plan`], the plan is run without gapprobe
//! and with it, and [`judge`] says what must not be. One seed is one run, again and again.

pub mod judge;
pub mod plan;
mod tally;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use judge::Found;
pub use plan::{Place, Plan};
pub use tally::Tally;

use crate::small_disk::SmallDisk;
use crate::{now, Run, Running, Victim};

/// One run of a plan, and what is known of it besides.
pub struct Played {
    /// A small disk that it wrote to; it goes before the folder it is in.
    #[expect(dead_code, reason = "held for its end")]
    small: Option<SmallDisk>,
    /// What it left.
    pub run: Run,
    /// When it was killed, or its end was seen, ns.
    pub at: u64,
    /// When it stood still as a whole (SIGSTOP), ns.
    pub stopped: Vec<(u64, u64)>,
}

/// Runs the plan of a seed without gapprobe and with it, and judges: what was found, and what must
/// not be.
pub fn one(seed: u64) -> (Plan, Found) {
    let plan = Plan::of(seed);
    let judged = std::panic::catch_unwind(|| {
        let alone = play(&plan, false);
        let with = play(&plan, true);
        let found = judge::judge(&plan, &alone, &with);
        if !found.failures.is_empty() {
            with.keep_to_look_at(seed);
        }
        found
    });
    let found = judged.unwrap_or_else(|cause| {
        let words = cause.downcast_ref::<String>().cloned();
        let words = words.or_else(|| cause.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Found { failures: vec![words.unwrap_or_default()], ..Found::default() }
    });
    (plan, found)
}

fn play(plan: &Plan, with: bool) -> Played {
    let (seed, actions) = (plan.seed.to_string(), plan.actions.to_string());
    let limit = match plan.place {
        Place::FileLimit(bytes) => bytes.to_string(),
        _ => "none".into(),
    };
    let mut victim = Victim::ours_in_memory(plan.release, &["chaos", &seed, &actions, plan.way, &limit]);
    if !with {
        victim = victim.alone();
    }
    let folder = victim.folder.clone();
    let root = folder.join("root");
    std::fs::create_dir_all(&root).expect("a folder");
    victim = victim.env("SIM_FAULT", plan.faults.join(",")).env("CHAOS_FOLDER", &folder);
    victim = victim.env(trace::setting::TEST_ROOT, &root).limit(Duration::from_secs(120));
    let mut small = None;
    match plan.place {
        Place::SmallTmp(bytes) => {
            small = SmallDisk::mount(folder.join("small"), bytes);
            victim = victim.env("TMPDIR", folder.join("small"));
        }
        Place::SmallDir(bytes) => {
            small = SmallDisk::mount(folder.join("small"), bytes);
            victim = victim.env(trace::setting::DIR, folder.join("small"));
        }
        Place::NoTmp => victim = victim.env("TMPDIR", "/dev/null/tmp"),
        Place::NoDir => victim = victim.env(trace::setting::DIR, "/dev/null/out"),
        Place::Fine | Place::FileLimit(_) => {}
    }
    if plan.keep {
        victim = victim.env(trace::setting::TEST_KEEP, "1");
    }
    for (name, value) in &plan.settings {
        victim = victim.env(name, value);
    }
    victim.command.process_group(0);
    let mut running = victim.start();
    let group = -(running.pid() as i32);
    let (at, stopped) = wait(&mut running, plan);
    let run = running.finish();
    let at = at.unwrap_or_else(now);
    // what a killed program left running
    for _ in 0..100 {
        // SAFETY: the process group that began with our own child; none of ours is in it.
        if unsafe { libc::kill(group, libc::SIGKILL) } != 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Played { small, run, at, stopped }
}

/// Waits for its end, kills it when it is time, and sees when it stood still.
fn wait(running: &mut Running, plan: &Plan) -> (Option<u64>, Vec<(u64, u64)>) {
    let began = now();
    let mut stopped: Vec<(u64, u64)> = Vec::new();
    let mut still = None;
    let mut at = None;
    let pid = running.pid();
    let is_there = running.wait_for(|_| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|s| s.trim().chars().next());
        match (state, still) {
            (Some('T'), None) => still = Some(now()),
            (Some('T'), Some(_)) => {}
            (_, Some(from)) => {
                stopped.push((from, now()));
                still = None;
            }
            _ => {}
        }
        plan.kill.is_some_and(|(_, ms)| (now() - began) as f64 >= ms * 1e6)
    });
    if let (true, Some((signal, _))) = (is_there, plan.kill) {
        running.signal(signal);
        at = Some(now());
    }
    if let Some(from) = still {
        stopped.push((from, at.unwrap_or_else(now)));
    }
    (at, stopped)
}

impl Played {
    /// What a failed run left, copied to the scratch folder.
    fn keep_to_look_at(&self, seed: u64) {
        let to = crate::built::built().scratch.join(format!("chaos-{seed}"));
        let _ = std::fs::remove_dir_all(&to); // of an earlier attempt
        let copied = Command::new("cp").arg("-a").arg(&self.run.folder).arg(&to).status();
        if copied.is_ok_and(|s| s.success()) {
            eprintln!("seed {seed}: what it left is in {}", to.display());
        }
    }

    /// Everything under the folders that gapprobe may write to.
    fn left_anywhere(&self) -> Vec<PathBuf> {
        let mut all = self.run.left_anywhere();
        for folder in ["root", "small"] {
            all.extend(below(&self.run.folder.join(folder)));
        }
        all.sort();
        all
    }
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let (folders, mut files): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.map(|e| e.path()).partition(|p| p.is_dir());
    files.extend(folders.iter().flat_map(|f| below(f)));
    files
}
