// SPDX-License-Identifier: Apache-2.0
//! Opening a trace for a verb that reads one: the bar while it takes long, what cannot be used said
//! on stderr, what cannot be read as a failure with its advice.

use std::path::Path;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use cli::fleet;
use formats::{Format, Input, Progress, ReadError};
use serde_json::Value;
use spool::liveness::{life, Life};
use trace::header::state;
use verdict::text::plural::counted;

use crate::verbs::exit::{Exit, Failure};
use crate::verbs::{process, talk};

/// Time between two looks at how far reading has come.
const TICK: Duration = Duration::from_millis(50);

/// Reads a file of any format and says on stderr what of it could not be used.
///
/// # Errors
/// [`Exit::Unreadable`], with advice.
pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
    process::explain_bus_errors(Exit::Unreadable as i32);
    if path == Path::new("-") && !path.exists() {
        return Err(Failure::new(Exit::Unreadable, "-: a trace is not read from stdin")
            .hint("write it to a file first, and give that"));
    }
    let mut input = read(path).map_err(|e| a_summary(path).unwrap_or_else(|| unreadable(&e)))?;
    // what is said of it stands in reports and exported traces too: its program has not ended
    if input.format == Format::Recording
        && input.run.header.state == state::RECORDING
        && is_of_a_living(&input)
    {
        input.run.header.state = state::CLOSED;
        let pid = input.run.header.pid;
        talk::say(format!(
            "gapprobe: {}: process {pid} still runs: this is what it has recorded so far",
            path.display()
        ));
    }
    for remark in remarks(&input) {
        talk::say(format!("gapprobe: {}: {remark}", path.display()));
    }
    Ok(input)
}

fn is_of_a_living(input: &Input) -> bool {
    let header = &input.run.header;
    life(&header.into()) == Life::Runs
}

/// Reads on a thread of its own and draws the bar meanwhile.
fn read(path: &Path) -> Result<Input, ReadError> {
    let progress = Progress::default();
    let bar = talk::Progress::new();
    let (done, waiting) = channel();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            // nobody listens only where this thread's owner panicked
            let _ = done.send(formats::read(path, &progress));
        });
        loop {
            match waiting.recv_timeout(TICK) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let (read, all) = progress.get();
                    bar.show("reading", read, all);
                }
            }
        }
    });
    bar.clear();
    result.unwrap_or_else(|| formats::read(path, &progress))
}

fn unreadable(error: &ReadError) -> Failure {
    let failure = Failure::new(Exit::Unreadable, error.to_string());
    match error.hint.as_str() {
        "" => failure,
        hint => failure.hint(hint),
    }
}

/// Where the file is a summary: what to give instead. It has no steps, so that nothing could be
/// compared beyond the noise.
fn a_summary(path: &Path) -> Option<Failure> {
    let meta = std::fs::metadata(path).ok().filter(|m| m.is_file() && m.len() <= fleet::MOST_BYTES);
    let text = meta.and_then(|_| std::fs::read(path).ok())?;
    let summary: Value = serde_json::from_slice(&text).ok()?;
    summary.get("summary_version")?.as_u64()?;
    let what = format!("{}: a summary: the figures of a run, without its steps and events", path.display());
    let failure = Failure::new(Exit::Unreadable, what);
    let Some(trace) = summary.get("trace").and_then(Value::as_str).filter(|t| !t.is_empty()) else {
        return Some(failure.hint("give a trace or a recording (.gpr) of the run"));
    };
    let beside = path.with_file_name(trace);
    Some(match beside.is_file() {
        true => failure.hint(format!("its trace lies beside it: {}", beside.display())),
        false => failure.hint(format!("give the trace it was written with: {trace}")),
    })
}

/// What the reader of a report should know of the file, one sentence each.
fn remarks(input: &Input) -> Vec<String> {
    let r = &input.refused;
    let mut remarks = input.notes.clone();
    if input.run.is_simulated() {
        remarks.push("SIMULATED: recorded on gapprobe's simulated driver, not on a GPU".to_owned());
    }
    let kinds = [
        (r.no_time, "without a time that can be read"),
        (r.negative, "that end before they begin"),
        (r.duplicates, "that stand in it more than once (counted once)"),
    ];
    for (count, what) in kinds.into_iter().filter(|c| c.0 > 0) {
        remarks.push(format!("{} {what}", counted(count, "event")));
    }
    if r.broken > 0 {
        let places = counted(r.broken, "place");
        remarks.push(format!("{places} that cannot be parsed: what stood there is lost"));
    }
    // what a foreign reader refused stands in the problems too, and was said
    let damaged = input.run.problems.damaged().saturating_sub(r.lost());
    if damaged > 0 {
        let parts = counted(damaged, "part");
        remarks.push(format!("damaged: {parts} of it could not be read"));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_none_is_a_failure_with_advice() {
        let failure = open(Path::new("/nowhere/trace.json")).expect_err("no file");
        assert_eq!(failure.exit, Exit::Unreadable);
        assert!(failure.what.starts_with("/nowhere/trace.json: "), "{}", failure.what);
        assert_eq!(failure.hints, ["is the path right?"]);
    }
}
