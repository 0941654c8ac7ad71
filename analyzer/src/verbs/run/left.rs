// SPDX-License-Identifier: Apache-2.0
//! What the processes of a run left: a recording without a report (they were killed, or had no time). stdout belongs to the command: everything goes to stderr, and nothing here changes the exit code.

use std::time::{Duration, Instant};

use analyzer::alive::{self, Life};
use analyzer::plural;

use super::Args;
use crate::verbs::recordings::{self, FileSource, Found};
use crate::verbs::{recover, talk};

/// A process that was killed at the end of the run may take so long to be gone: its memory is taken down first.
const PATIENCE: Duration = Duration::from_millis(300);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Reports for those of this run that ended. `command`: the command's pid; `signal`: what it died of.
pub(super) fn report(args: &Args, id: &str, command: u32, signal: Option<i32>) {
    let mut left = of_this_run(id);
    wait_for_the_ending(&mut left);
    let running = left.iter().filter(|(_, f)| f.life != Life::Ended).count();
    let directory = args.dir.clone().unwrap_or_else(recover::default_directory);
    // what a process recorded before it called exec did not die of the signal
    let last =
        left.iter().map(|(_, f)| &f.header).filter(|h| h.pid == command).map(|h| h.start_monotonic).max();
    for (source, found) in left.iter().filter(|(_, f)| f.life == Life::Ended) {
        if !source.claim() {
            continue;
        }
        let is_last = found.header.pid == command && Some(found.header.start_monotonic) == last;
        let quiet = args.quiet || (found.header.rank > 1 && !args.all_ranks);
        match recover::write(source, found, &directory, true, signal.filter(|_| is_last)) {
            Ok(report) if !quiet => talk::say(&report.line),
            Ok(_) => {}
            Err(failure) => talk::fail(&failure),
        }
    }
    if running > 0 && !args.quiet {
        let go = plural::of(running as u64, "goes", "go");
        let who = format!("{running} recorded process{}", plural::of(running as u64, "", "es"));
        talk::say(format!("gapprobe: {who} of this run still {go} on; later: gapprobe recover"));
    }
}

/// Recordings of this run that are not reported. What cannot be read, or others could have put there, is `gapprobe recover`'s to tell.
fn of_this_run(id: &str) -> Vec<(FileSource, Found)> {
    let found = recordings::list_private().found;
    let unreported = found.into_iter().filter(|f| !f.is_reported());
    let looked = unreported.filter_map(|f| recordings::look(&f.path).ok());
    looked.filter(|(source, _)| recordings::has_run_id(source, id)).collect()
}

/// Waits for processes that are about to be gone, not for those that go on.
fn wait_for_the_ending(left: &mut [(FileSource, Found)]) {
    let until = Instant::now() + PATIENCE;
    loop {
        left.iter_mut().for_each(|(source, f)| f.look_again(source));
        let ending = |f: &Found| f.life == Life::Runs && alive::is_ending(f.header.pid);
        if !left.iter().any(|(_, f)| ending(f)) || Instant::now() >= until {
            return;
        }
        std::thread::sleep(LOOK);
    }
}
