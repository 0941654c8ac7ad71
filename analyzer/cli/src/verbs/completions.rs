// SPDX-License-Identifier: Apache-2.0
//! `gapprobe completions SHELL`: the completion script of a shell, made from the arguments
//! themselves.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::verbs::exit::Exit;
use crate::verbs::talk;
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe completions bash > ~/.local/share/bash-completion/completions/gapprobe
  gapprobe completions zsh  > ~/.zfunc/_gapprobe
  gapprobe completions fish > ~/.config/fish/completions/gapprobe.fish";

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "gapprobe", &mut script);
    talk::print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Ok)
}
