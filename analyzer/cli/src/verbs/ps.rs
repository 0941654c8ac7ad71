// SPDX-License-Identifier: Apache-2.0
//! `gapprobe ps`: the recorded processes of this user that run.

use cli::terminal_width;
use serde_json::{json, Value};

use crate::verbs::exit::Exit;
use crate::verbs::living::{self, Living};
use crate::verbs::rows::lay_out;
use crate::verbs::talk;
use crate::verbs::width::Width;
use crate::Outcome;

/// Version of the keys of `--json`.
const PS_VERSION: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  gapprobe ps                          who is recorded now
  gapprobe ps --json | jq .processes[].pid";

/// List your recorded processes: those that run with gapprobe loaded and have used a GPU
///
/// SIZE is that of the recording, which is bounded (GAPPROBE_MAX_MB); LOSSES what it lost so far,
/// whatever it was. RECORDING: on; off, between windows, where the program has switched it off, or
/// while another profiler holds the GPU's records; ended, where nothing more is recorded (launches
/// are not seen without CUPTI); disk-full, where it goes on in memory only; stopped, where the
/// process is (SIGSTOP, a debugger); stalled, where nothing was written for 5 s; ending.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// Lists them; [`Exit::NotRecorded`] where there are none.
pub(crate) fn run(args: &Args) -> Outcome {
    let all = living::all(true)?;
    if args.json {
        let processes = all.iter().map(object).collect::<Vec<_>>();
        talk::print_json(format!("{:#}", json!({"ps_version": PS_VERSION, "processes": processes})))?;
        return Ok(if all.is_empty() { Exit::NotRecorded } else { Exit::Ok });
    }
    if all.is_empty() {
        return Err(living::nobody());
    }
    let headings = ["PID", "RANK", "SINCE", "SIZE", "LOSSES", "RECORDING", "PROGRAM"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|l| {
        let place = if l.elsewhere { " (in another container)" } else { "" };
        vec![
            l.header.pid.to_string(),
            l.rank(),
            l.since(),
            terminal_width::bytes(l.length as f64),
            l.losses().to_string(),
            l.standing().word().to_owned(),
            format!("{}{place}", l.program()),
        ]
    }));
    talk::print(lay_out(&rows, &[5, 6], args.width.most()).join("\n"))?;
    Ok(Exit::Ok)
}

/// Keys are part of the interface: added, not renamed.
fn object(l: &Living) -> Value {
    let h = &l.header;
    json!({
        "pid": h.pid,
        "in_another_container": l.elsewhere,
        "rank": h.rank.checked_sub(1),
        "local_rank": h.local_rank.checked_sub(1),
        "world_size": (h.world_size > 0).then_some(h.world_size),
        "host": h.host,
        "command": h.command,
        "start_realtime_ns": h.start_realtime,
        "recording": l.path.display().to_string(),
        "recording_bytes": l.length,
        "losses": l.losses(),
        "standing": l.standing().word(),
        "gapprobe": h.gapprobe,
    })
}
