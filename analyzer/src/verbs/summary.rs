// SPDX-License-Identifier: Apache-2.0
//! `gapprobe summary`: the summaries of all ranks of a job as one table and one line.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use analyzer::fleet::{self, Fleet, Rank};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::talk;
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe summary .                    all *.summary.json of this folder
  gapprobe summary node1/ node2/        of several
  gapprobe summary --json . | jq .worst";

/// Merge the summaries of many ranks
///
/// The line goes to stdout, behind a table with one row a rank. Of several summaries of one rank the newest counts.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Summaries (*.summary.json), or folders of them
    #[arg(value_name = "DIR|FILE", required = true)]
    what: Vec<PathBuf>,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
    /// Print the line only
    #[arg(long, conflicts_with = "json")]
    line: bool,
}

const SUFFIX: &str = ".summary.json";

/// Reads and prints. Files that are no summary are named on stderr and end it with [`Exit::Unreadable`], after the rest
/// was printed.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut files = Vec::new();
    for path in &args.what {
        match path.is_dir() {
            true => files.append(&mut folder(path)?),
            false => files.push(path.clone()),
        }
    }
    let (mut ranks, mut unread) = (Vec::new(), 0usize);
    for file in &files {
        match rank(file) {
            Ok(rank) => ranks.push(rank),
            Err(why) => {
                talk::say(format!("gapprobe: {}: {why}", file.display()));
                unread += 1;
            }
        }
    }
    if ranks.is_empty() {
        let what = match files.len() {
            0 => "no *.summary.json here".to_owned(),
            n => format!("none of {n} files is a summary"),
        };
        let advice = "a run under gapprobe writes one beside its trace (GAPPROBE_DIR); gapprobe recover writes it for a killed run";
        return Err(Failure::new(Exit::Unreadable, what).hint(advice));
    }
    let fleet = Fleet::new(ranks);
    if fleet.older > 0 {
        let summaries = if fleet.older == 1 { "summary" } else { "summaries" };
        talk::say(format!("gapprobe: {} older {summaries} of the same ranks left out", fleet.older));
    }
    if args.json {
        talk::print_json(format!("{:#}", fleet.json()))?;
    } else if args.line {
        talk::print(fleet::line(&fleet))?;
    } else {
        talk::print(format!("{}{}", fleet::table(&fleet), fleet::line(&fleet)))?;
    }
    Ok(if unread > 0 { Exit::Unreadable } else { Exit::Ok })
}

/// The summaries in a folder, by name.
fn folder(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Unreadable, format!("{}: {e}", path.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().ends_with(SUFFIX)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn rank(path: &Path) -> Result<Rank, String> {
    let kind = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !kind.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(fleet::MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > fleet::MOST_BYTES {
        return Err(format!("larger than {} MB: no summary", fleet::MOST_BYTES >> 20));
    }
    fleet::read(&path.display().to_string(), &bytes).map_err(|u| u.0)
}
