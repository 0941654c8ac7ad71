// SPDX-License-Identifier: Apache-2.0
//! Wrong use: clap says what is wrong; here what was probably meant. A word in the wrong place is a
//! file, a process or a command.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use verdict::text::escape::word;

/// The error with a tip that helps, or without one: "to pass '-v' as a value, use '-- -v'" helps
/// with no verb here, for an unknown option is neither a file's name nor a command's.
pub(crate) fn with_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let text = |argument: &OsString| argument.to_string_lossy().into_owned();
    let arguments: Vec<String> = arguments.iter().skip(1).map(text).collect();
    let tip = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(wrong))) => misplaced(&arguments, wrong),
        (ErrorKind::InvalidSubcommand, _) => arguments.first().and_then(|first| no_verb(first)),
        _ => return error,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// A word that its verb has no place for.
fn misplaced(arguments: &[String], wrong: &str) -> Option<String> {
    match arguments.first()?.as_str() {
        "run" => Some(format!("options of the command go after it: gapprobe run COMMAND {}", word(wrong))),
        _ if wrong.starts_with('-') => None,
        verb @ ("ps" | "top" | "metrics") => {
            let of_a_file = Path::new(wrong).is_file();
            Some(match of_a_file {
                true => {
                    format!("{verb} is of processes that run; of a file: gapprobe analyze {}", word(wrong))
                }
                false => format!("{verb} is of all your recorded processes, and takes none by name"),
            })
        }
        _ => None,
    }
}

/// A word in the place of a verb.
fn no_verb(first: &str) -> Option<String> {
    let path = Path::new(first);
    let shown = word(first);
    match () {
        () if path.is_dir() => Some(format!("of the summaries in a folder: gapprobe summary {shown}")),
        () if path.is_file() => Some(format!(
            "of a trace: gapprobe analyze {shown}; a program is recorded by gapprobe run {shown}"
        )),
        () => None,
    }
}
