// SPDX-License-Identifier: Apache-2.0
//! `gapprobe man [VERB]`: manual pages, made from the arguments themselves.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::talk;
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe man run | man -l -
  gapprobe man --all ~/.local/share/man/man1";

/// Print the manual page of a verb
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The verb; without it the page of the command itself
    verb: Option<String>,
    /// Write the pages of all verbs into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    all: Option<PathBuf>,
}

/// Prints or writes them.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut command = crate::Cli::command();
    command.build();
    if let Some(folder) = &args.all {
        write(folder, command)?;
        talk::print(&folder.display().to_string())?;
        return Ok(Exit::Ok);
    }
    let found = match &args.verb {
        Some(verb) => command.find_subcommand(verb).cloned().ok_or_else(|| {
            Failure::new(Exit::WrongUse, format!("there is no verb {verb}"))
                .hint("gapprobe --help lists them")
        })?,
        None => command,
    };
    talk::print(String::from_utf8_lossy(&page(found)).trim_end())?;
    Ok(Exit::Ok)
}

fn write(folder: &Path, command: clap::Command) -> Result<(), Failure> {
    let failure = |e| Failure::new(Exit::Problem, format!("{}: {e}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failure)?;
    let verbs: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").cloned().collect();
    for each in verbs.into_iter().chain([command]) {
        let name = name(&each);
        std::fs::write(folder.join(format!("{name}.1")), page(each)).map_err(failure)?;
    }
    Ok(())
}

/// As man(1) looks for it: `gapprobe-run`.
fn name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: clap::Command) -> Vec<u8> {
    let (mut page, title) = (Vec::new(), name(&command));
    // (what is written into memory does not fail)
    _ = Man::new(command).title(title).render(&mut page);
    page
}
