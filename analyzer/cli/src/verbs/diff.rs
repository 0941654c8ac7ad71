// SPDX-License-Identifier: Apache-2.0
//! `gapprobe diff`: two runs against each other. The comparison itself: `cli::compare`.

use std::path::PathBuf;

use cli::compare::{compare, side, Options, Side};
use cli::terminal_width;

use crate::verbs::exit::Exit;
use crate::verbs::width::Width;
use crate::verbs::{figures, input, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe diff before.json.gz after.json.gz       what a change did to the steps, beyond the noise
  gapprobe diff --run-noise 2% before.json.gz after.json.gz
  gapprobe diff --same-work before.json.gz after.json.gz
  gapprobe diff --scaling --gpus 1,8 before.json.gz after.json.gz
  gapprobe diff --json before.json.gz after.json.gz > diff.json";

/// Compare two runs: the same work? what moved, beyond the noise?
///
/// A and B are recordings (.gpr) or traces of gapprobe, torch.profiler or nsys. A difference counts
/// where it exceeds what the steps of each run vary by (95 %, warm-up left out) and what two runs
/// of one program differ by (--run-noise).
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run before
    a: PathBuf,
    /// The run after
    b: PathBuf,
    /// How well B's GPUs are used against A's
    #[arg(long)]
    scaling: bool,
    /// GPUs of A and B, where the traces do not tell [default: world size, else the devices in the
    /// trace]
    #[arg(long, value_name = "A,B", allow_hyphen_values = true, value_parser = figures::gpus, requires = "scaling")]
    gpus: Option<(u32, u32)>,
    /// You know that both do the same work though their kernels are not the same: the fix fuses,
    /// compiles, or computes in another type. How far the kernels differ is said, and no more;
    /// losses, GPUs and what a step is are checked as ever
    #[arg(long, conflicts_with = "scaling")]
    same_work: bool,
    /// What two runs of one program differ by here, as 2% or 0.02 [default: 15% of waiting for the
    /// host and for ranks, as seen on a shared host, and 2% of computing and copying]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = figures::share)]
    run_noise: Option<f64>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    width: Width,
}

/// Reads both and prints.
pub(crate) fn run(args: &Args) -> Outcome {
    let (a, b) = (input::open(&args.a)?, input::open(&args.b)?);
    let (found_a, found_b) = (verdict::analyze(&a.run), verdict::analyze(&b.run));
    let (device_a, device_b) = side::devices(&found_a, &found_b);
    let a = Side::new(&args.a.display().to_string(), &a, &found_a, device_a);
    let b = Side::new(&args.b.display().to_string(), &b, &found_b, device_b);
    let (run_noise, same_work) = (args.run_noise, args.same_work);
    let options = Options { run_noise, same_work, scaling: args.scaling, gpus: args.gpus };
    let comparison = compare(&a, &b, options);
    match args.json {
        true => talk::print_json(format!("{:#}", comparison.json()))?,
        false => {
            let most = args.width.most();
            let report = comparison.report(args.run_noise, most);
            talk::print(format!("{report}\n{}", terminal_width::lines(&comparison.line(), most).trim_end()))?;
        }
    }
    Ok(Exit::Ok)
}
