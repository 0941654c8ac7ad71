// SPDX-License-Identifier: Apache-2.0
//! `gapprobe report`: a page to look at. What is on it: `cli::html`.

use std::io::Write;
use std::path::{Path, PathBuf};

use cli::html;
use cli::html::{After, Subject};

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::output::{self, name, stem};
use crate::verbs::{input, talk};
use crate::Outcome;

const EXAMPLES: &str = "\
Examples:
  gapprobe report trace.json.gz                        writes trace.report.html
  gapprobe report trace.json.gz -o why.html --force    where and over what
  gapprobe report trace.json.gz fixed.json.gz          before and after a change, on one scale
  gapprobe report --same-work trace.json.gz fixed.json.gz --force   ... that changes kernels";

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
    /// You know that both do the same work though their kernels are not the same (as of `gapprobe
    /// diff`)
    #[arg(long, requires = "after")]
    same_work: bool,
    /// Where the page goes, - is stdout [default: FILE's name with .report.html, in the current
    /// directory]
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

/// Reads, analyses, writes; stdout says where it is.
pub(crate) fn run(args: &Args) -> Outcome {
    let after = args.after.as_deref();
    let output = args.output.clone().unwrap_or_else(|| default_name(&args.file, after));
    if output == Path::new("-") {
        let page = page(&args.file, after, args.same_work)?;
        return talk::to_stdout(|out| out.write_all(page.as_bytes())).map(|()| Exit::Ok);
    }
    make(&args.file, after, args.same_work, &output, args.force)?;
    talk::print(output.display()).map(|()| Exit::Ok)
}

/// Writes the page of `file` to `output`; `same_work`: as of `gapprobe diff`; `force`: over a file
/// that is there.
///
/// # Errors
/// Where one cannot be read, or the page not be written.
pub(crate) fn make(
    file: &Path,
    after: Option<&Path>,
    same_work: bool,
    output: &Path,
    force: bool,
) -> Result<(), Failure> {
    // before the files are read: they may be large
    let inputs: Vec<&Path> = [Some(file), after].into_iter().flatten().collect();
    output::is_free(output, force, &inputs)?;
    let page = page(file, after, same_work)?;
    output::write(output, force, |to| to.write_all(page.as_bytes()))
}

fn page(file: &Path, after: Option<&Path>, same_work: bool) -> Result<String, Failure> {
    let before = input::open(file)?;
    let then = after.map(input::open).transpose()?;
    let analyses = (verdict::analyze(&before.run), then.as_ref().map(|a| verdict::analyze(&a.run)));
    let names = (name(file), after.map(name).unwrap_or_default());
    let subject = Subject { name: &names.0, input: &before, analysis: &analyses.0 };
    let then = match (&then, &analyses.1) {
        (Some(input), Some(analysis)) => Some(Subject { name: &names.1, input, analysis }),
        _ => None,
    };
    Ok(html::page(&subject, then.as_ref().map(|subject| After { subject, same_work })))
}

/// The page's name if nobody says: the trace's, in the current directory.
pub(crate) fn default_name(file: &Path, after: Option<&Path>) -> PathBuf {
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
