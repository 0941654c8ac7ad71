// SPDX-License-Identifier: Apache-2.0
//! `gapprobe report`: a page to look at. What is on it: `cli::html`.

use std::io::Write;
use std::path::{Path, PathBuf};

use cli::html;
use cli::html::Subject;

use crate::verbs::exit::Exit;
use crate::verbs::output::{self, name, stem};
use crate::verbs::{input, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe report trace.json.gz                        writes trace.report.html
  gapprobe report trace.json.gz -o why.html --force    where and over what
  gapprobe report trace.json.gz fixed.json.gz          before and after a change, on one scale";

/// A page to look at: the verdict, where the time went, one step in detail
///
/// One HTML file that needs nothing else and no network. FILE is a recording (.gpr), or a trace of
/// gapprobe, torch.profiler or nsys; AFTER another one, of the same program after a change. stdout
/// says where the page is.
#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace
    file: PathBuf,
    /// The trace after a change
    after: Option<PathBuf>,
    /// Where the page goes, - is stdout [default: FILE's name with .report.html, in the current
    /// directory]
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

/// Reads, analyses, writes.
pub(crate) fn run(args: &Args) -> Outcome {
    let output = match &args.output {
        Some(path) => path.clone(),
        None => default_name(&args.file, args.after.as_deref()),
    };
    // before the files are read: they may be large
    let inputs: Vec<&Path> =
        [Some(&args.file), args.after.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        output::is_free(&output, args.force, &inputs)?;
    }
    let before = input::open(&args.file)?;
    let after = args.after.as_deref().map(input::open).transpose()?;
    let analyses = (verdict::analyze(&before.run), after.as_ref().map(|a| verdict::analyze(&a.run)));
    let names = (name(&args.file), args.after.as_deref().map(name).unwrap_or_default());
    let subject = Subject { name: &names.0, input: &before, analysis: &analyses.0 };
    let after = match (&after, &analyses.1) {
        (Some(input), Some(analysis)) => Some(Subject { name: &names.1, input, analysis }),
        _ => None,
    };
    let page = html::page(&subject, after.as_ref());
    if to_stdout {
        return talk::to_stdout(|out| out.write_all(page.as_bytes())).map(|()| Exit::Ok);
    }
    output::write(&output, args.force, |file| file.write_all(page.as_bytes()))?;
    talk::print(output.display()).map(|()| Exit::Ok)
}

fn default_name(file: &Path, after: Option<&Path>) -> PathBuf {
    match after {
        Some(after) => format!("{}-to-{}.report.html", stem(file), stem(after)).into(),
        None => format!("{}.report.html", stem(file)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_traces_without_what_kind_of_file_it_is() {
        for (file, expected) in [
            ("/a/trace.json.gz", "trace.report.html"),
            ("run.pt.trace.json", "run.report.html"),
            ("a.b.gpr", "a.b.report.html"),
            ("x.sqlite", "x.report.html"),
            (".json", ".json.report.html"),
            ("plain", "plain.report.html"),
        ] {
            assert_eq!(default_name(Path::new(file), None), Path::new(expected));
        }
        let both = default_name(Path::new("a.json"), Some(Path::new("b.json.gz")));
        assert_eq!(both, Path::new("a-to-b.report.html"));
    }
}
