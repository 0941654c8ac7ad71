// SPDX-License-Identifier: Apache-2.0
//! What is said of every recording and trace that the repository keeps: verdict, confidence, site,
//! steps, promise, beside each other in `verdicts/golden.txt`, the line in `verdicts/lines.txt`. A
//! row changes only with a reason beside it in the commit that changes it; `GAPPROBE_BLESS=1 cargo
//! test` writes both anew.
//!
//! `cases/` are small traces of other makers, each for a kind that was met in public ones (README
//! there): judged wrongly, until the row says what that README says is true.

mod kept;

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;
use verdict::output::summary::{summary, Around};

/// Milliseconds with three decimals: what a change of a rule moves is more, what another machine's
/// libm does is less.
fn ms(ns: &Value) -> String {
    ns.as_f64().map_or("-".to_owned(), |ns| format!("{:.3}", ns / 1e6))
}

/// `train.py:17 in step via next`: where, without folders, which are of the machine that recorded
/// it.
fn place(site: &Value) -> String {
    let text = |key: &str| site[key].as_str().map(|t| t.rsplit('/').next().unwrap_or(t));
    let line = site["line"].as_u64().map(|n| format!(":{n}")).unwrap_or_default();
    let parts = [("", "file"), ("in ", "function"), ("via ", "via")];
    let parts = parts.iter().filter_map(|(word, key)| {
        let line = if *key == "file" { line.as_str() } else { "" };
        Some(format!("{word}{}{line}", text(key)?))
    });
    match parts.collect::<Vec<_>>() {
        none if none.is_empty() => "-".to_owned(),
        some => some.join(" "),
    }
}

/// What the line keeps to, beside its length: it is read at a glance.
fn is_readable(line: &str) -> bool {
    let count = |c: char| line.matches(c).count();
    line.chars().count() <= verdict::output::sentence::MAX_CHARS
        && count('(') <= 1
        && count(';') <= 1
        && !line.contains("  ")
}

/// Two rows: what the summary says of a file, and the line; or why it was not read.
fn row(path: &Path) -> [String; 2] {
    let input = match formats::read(path, &Default::default()) {
        Ok(input) => input,
        Err(e) => return [format!("not read: {}", e.what), format!("not read: {}", e.what)],
    };
    let a = verdict::analyze(&input.run);
    let said = summary(&input.run, &a, &Around { line: "", trace: None, written: None });
    let (v, steps) = (&said["verdict"], &said["steps"]);
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let line = verdict::output::sentence::line(&input.run, &a, None);
    assert!(is_readable(&line), "{}: {} characters: {line}", path.display(), line.chars().count());
    let facts = format!(
        "{} {} {} | {} | {} steps of {} ms | -> {} ms ±{}",
        text(&v["code"]),
        text(&v["cause"]),
        text(&v["confidence"]),
        place(&v["site"]),
        steps["count"],
        ms(&v["step_ns"]),
        ms(&v["predicted_ns"]),
        ms(&v["error_ns"]),
    );
    [facts, line]
}

/// All rows, in the order of the files' names: the facts, and the lines.
fn rows(files: &[std::path::PathBuf]) -> [String; 2] {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![[String::new(), String::new()]; files.len()]);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(8) {
            scope.spawn(|| loop {
                let n = next.fetch_add(1, Relaxed);
                let Some(path) = files.get(n) else { return };
                let row = row(path);
                found.lock().unwrap()[n] = row;
            });
        }
    });
    let mut texts = [String::new(), String::new()];
    for (path, rows) in files.iter().zip(found.into_inner().unwrap()) {
        let name = path.strip_prefix(kept::repository()).unwrap().display();
        for (text, row) in texts.iter_mut().zip(rows) {
            writeln!(text, "{name} | {row}").unwrap();
        }
    }
    texts
}

#[test]
fn what_is_said_of_each_file_is_what_was_said_before() {
    let files = [kept::all(), kept::cases()].concat();
    let labelled =
        files.iter().filter(|f| f.starts_with(kept::repository().join("tests/gpu/recordings"))).count();
    assert!(labelled >= 73 && kept::cases().len() >= 16, "{labelled} labelled ones, {}", kept::cases().len());
    for (said, golden) in rows(&files).into_iter().zip(["golden.txt", "lines.txt"]) {
        let golden = kept::repository().join("analyzer/cli/tests/verdicts").join(golden);
        if std::env::var_os("GAPPROBE_BLESS").is_some() {
            std::fs::write(&golden, &said).expect("the golden file");
        }
        let before = std::fs::read_to_string(&golden).expect("the golden file");
        let moved = |text: &str, other: &str| {
            let other: std::collections::HashSet<&str> = other.lines().collect();
            text.lines().filter(|l| !other.contains(l)).map(|l| format!("{l}\n")).collect::<String>()
        };
        assert!(said == before, "before:\n{}\nnow:\n{}", moved(&before, &said), moved(&said, &before));
    }
}
