// SPDX-License-Identifier: Apache-2.0
//! `gapprobe summary`: the summaries of all ranks of a job as one table and one line.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use cli::fleet;
use cli::fleet::{Fleet, Rank};
use cli::terminal_width;
use serde_json::{json, Value};
use verdict::text::plural::counted;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::talk;
use crate::verbs::width::Width;
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe summary .                    all *.summary.json of this folder
  gapprobe summary node1/ node2/        of several
  gapprobe summary --json . | jq .worst";

/// Merge the summaries of many ranks
///
/// The line goes to stdout, behind a table with one row a rank. Of several summaries of one rank
/// the newest counts. Separate runs (without a rank, of a world of one, or of different commands)
/// are listed and not merged.
///
/// step ms is the median step (the line of a run tells its mean); p95 ms what 95 of 100 steps stay
/// within; own ms the mean step without the time in which it waits for other ranks (collectives
/// that nothing hides, waits on the device); lost what is missing from the recording. `<` marks the
/// rank to look at.
///
/// A file that is no summary, given or found in a folder, is named on stderr and left out; it ends
/// with 4 then.
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
    #[command(flatten)]
    width: Width,
}

/// Files that are left out named one by one, at most.
const NAMED: usize = 5;

const SUFFIX: &str = ".summary.json";

/// Reads and prints. Files that are no summary are named on stderr (the first few) and end it with
/// [`Exit::Unreadable`], after the rest was printed.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut files = Vec::new();
    for path in &args.what {
        match path.is_dir() {
            true => files.append(&mut folder(path)?),
            false => files.push(path.clone()),
        }
    }
    let folders: Vec<String> =
        args.what.iter().filter(|p| p.is_dir()).map(|p| p.display().to_string()).collect();
    let (mut ranks, mut unread) = (Vec::new(), Vec::new());
    for file in &files {
        match rank(file) {
            Ok(rank) => ranks.push(rank),
            Err(why) => unread.push(Unread { file: file.display().to_string(), why }),
        }
    }
    name(&unread);
    if ranks.is_empty() {
        if args.json {
            talk::print_json(format!("{:#}", object(&Fleet::default(), &unread)))?;
        }
        let what = match files.len() {
            0 => format!("no *.summary.json in {}", folders.join(", ")),
            1 => "no summary was given".to_owned(),
            n => format!("none of {n} files is a summary"),
        };
        let advice = "a run under gapprobe writes one beside its trace (GAPPROBE_DIR); gapprobe recover writes it for a killed run";
        return Err(Failure::new(Exit::Unreadable, what).hint(advice));
    }
    let fleet = Fleet::new(ranks);
    if fleet.repeated > 0 {
        let copies = if fleet.repeated == 1 { "copy" } else { "copies" };
        talk::say(format!("gapprobe: {} {copies} of summaries left out", fleet.repeated));
    }
    if fleet.older > 0 {
        let summaries = if fleet.older == 1 { "summary" } else { "summaries" };
        talk::say(format!("gapprobe: {} older {summaries} of the same ranks left out", fleet.older));
    }
    if !fleet.beside.is_empty() {
        let runs = counted(fleet.beside.len() as u64, "separate run");
        talk::say(format!("gapprobe: {runs} beside the job left out: {}", files_of(&fleet.beside)));
    }
    if args.json {
        talk::print_json(format!("{:#}", object(&fleet, &unread)))?;
    } else if args.line {
        talk::print(fleet::line(&fleet))?;
    } else {
        let most = args.width.most();
        let (mut text, left_out) = fleet::table(&fleet, most);
        terminal_width::wrap(&mut text, "", &fleet::line(&fleet), most.unwrap_or(usize::MAX), false);
        talk::print(text.trim_end())?;
        if left_out > 0 {
            talk::say(format!(
                "gapprobe: {} left out; --width 0 prints all",
                counted(left_out as u64, "column")
            ));
        }
    }
    Ok(if unread.is_empty() { Exit::Ok } else { Exit::Unreadable })
}

/// The first few files, and how many more.
fn files_of(runs: &[Rank]) -> String {
    let named: Vec<&str> = runs.iter().take(NAMED).map(|r| r.file.as_str()).collect();
    let more = runs.len() - named.len();
    let more =
        if more > 0 { format!(" and {} more", terminal_width::thousands(more)) } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// A file that is no summary.
struct Unread {
    file: String,
    why: String,
}

/// The first few with their reasons; of the others how many there are of each kind.
fn name(unread: &[Unread]) {
    let (first, others) = unread.split_at(unread.len().min(NAMED));
    for one in first {
        talk::say(format!("gapprobe: {}: {}", one.file, one.why));
    }
    if others.is_empty() {
        return;
    }
    // what stands in brackets differs from file to file
    let kind = |one: &Unread| one.why.split(" (").next().unwrap_or("").to_owned();
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for kind in others.iter().map(kind) {
        if let Some(known) = kinds.iter_mut().find(|k| k.0 == kind) {
            known.1 += 1;
        } else if kinds.len() < NAMED {
            kinds.push((kind, 1));
        }
    }
    kinds.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut words: Vec<String> =
        kinds.iter().map(|(why, n)| format!("{} {why}", terminal_width::thousands(*n))).collect();
    let rest = others.len() - kinds.iter().map(|k| k.1).sum::<usize>();
    if rest > 0 {
        words.push(format!("{} for other reasons", terminal_width::thousands(rest)));
    }
    let all = terminal_width::thousands(others.len());
    talk::say(format!("gapprobe: and {all} more: {}; all listed with --json", words.join(", ")));
}

/// The ranks, and what could not be read.
fn object(fleet: &Fleet, unread: &[Unread]) -> Value {
    let mut object = fleet.json();
    let unread = unread.iter().map(|u| json!({"file": u.file, "why": u.why}));
    if let Some(keys) = object.as_object_mut() {
        keys.insert("unreadable".to_owned(), unread.collect());
    }
    object
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
    if bytes.len() as u64 > fleet::MOST_BYTES && !fleet::is_a_trace(&bytes) {
        return Err(format!("larger than {} MB: no summary", fleet::MOST_BYTES >> 20));
    }
    fleet::read(&path.display().to_string(), &bytes).map_err(|u| u.0)
}
