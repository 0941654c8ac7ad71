// SPDX-License-Identifier: Apache-2.0
//! Names are chosen by others: terminal escapes, line breaks, text that runs backwards, formulas.
//! Nothing of it reaches a terminal or breaks a row; programs get the exact bytes.

use std::fs;
use std::process::Output;

use serde_json::Value;
use trace::{Event, Kind};

use crate::place::{code, err, out, recording, Place, BINARY};
use crate::rfc4180::records;

/// Clears the screen, rings, turns the text around, ends the line, moves the cursor with a C1
/// control. Begins as a formula.
pub(crate) const NAME: &str =
    "=HYPERLINK(\"x\",1)\x1b[2J\u{7}\u{202e}evil\nrow\r\u{9b}31m\t\u{2028}\u{200b}end";
/// The same as people see it.
const SHOWN: &str =
    "=HYPERLINK(\"x\",1)\\u{1b}[2J\\u{7}\\u{202e}evil\\nrow\\r\\u{9b}31m\\t\\u{2028}\\u{200b}end";
pub(crate) const FILE: &str = "run\x1b[31m\u{202e}\nb.gpr";

fn hidden(text: &str) -> Option<char> {
    let bad = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().find(bad)
}

/// A run whose kernel, device, range, host and command have such names, in a file of such a name.
pub(crate) fn place(name: &str) -> Place {
    let place = Place::new(name);
    let bytes = recording(|b| {
        b.header.host = format!("host{NAME}");
        b.header.command = format!("cmd{NAME}");
        b.device(0, &format!("GPU {NAME}"), 132);
        let kernel = b.kernel(NAME, 256, 64);
        let range = b.string(NAME);
        for step in 0..300u64 {
            let at = 1_000_000_000 + step * 1_000_000;
            let mut op = Event::new(Kind::Kernel, at + 700_000, at + 980_000);
            (op.a, op.b) = (kernel, 1024);
            b.on_stream(0, 1, 7, op);
            let mut mark = Event::new(Kind::Range, at + 20_000, at + 900_000);
            mark.a = range;
            b.on_thread(100, mark);
        }
    });
    fs::write(place.out().join(FILE), bytes).unwrap();
    place
}

fn safe(what: &str, output: &Output) {
    for (stream, text) in [("stdout", out(output)), ("stderr", err(output))] {
        assert_eq!(hidden(&text), None, "{what}: {stream}: {text:?}");
    }
}

#[test]
fn what_people_read_holds_no_hidden_characters() {
    let place = place("hostile-people");
    for args in [
        &["analyze", FILE][..],
        &["analyze", "--line", FILE],
        &["stats", FILE],
        &["stats", FILE, "--names", "short"],
        &["stats", FILE, "-r", "gaps,phases,nvtx_kern_sum,nvtx_gpu_proj_sum,cuda_kern_exec_sum"],
        &["gaps", FILE],
        &["steps", FILE],
        &["diff", FILE, FILE],
        &["check", FILE, "--require-range", "missing"],
        &["recover", "--keep", "--list", FILE],
        &["recover", "--keep", FILE],
        &["summary", "."],
        &["export", "--to", "folded", "-o", "-", FILE],
    ] {
        let output = place.run(args);
        assert!([0, 8].contains(&code(&output)), "{args:?}: {}", err(&output));
        assert!(!out(&output).is_empty(), "{args:?}");
        safe(&format!("{args:?}"), &output);
    }
    // and what cannot be read is named so, too
    for args in [
        &["analyze", "no\x1b[31m\n\u{202e}file"][..],
        &["summary", "no\x1b[31m\nfile"],
        &["recover", "no\x1bfile"],
    ] {
        let output = place.run(args);
        assert_eq!(code(&output), 4, "{args:?}");
        assert!(err(&output).contains("\\u{1b}"), "{}", err(&output));
        safe(&format!("{args:?}"), &output);
    }
    // clap's own talk repeats what it was given
    let output = place.run(&["diff", "a", "b", "c\x1b[31m\u{202e}"]);
    assert_eq!(code(&output), 2);
    safe("wrong use", &output);
}

#[test]
fn names_stay_recognisable_and_a_row_stays_a_row() {
    let place = place("hostile-rows");
    let table = out(&place.run(&["stats", FILE, "-r", "cuda_gpu_kern_sum"]));
    assert!(table.contains(SHOWN), "{table}");
    // empty line, title, empty line, heading, rule, two kernels
    assert_eq!(table.lines().count(), 7, "{table}");
    let screen = out(&place.run(&["analyze", FILE]));
    assert!(screen.starts_with("run\\u{1b}[31m\\u{202e}\\nb.gpr: gapprobe"), "{screen}");
    let line = out(&place.run(&["analyze", "--line", FILE]));
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn json_has_the_exact_name_and_is_safe_to_print() {
    let place = place("hostile-json");
    let output = place.run(&["stats", FILE, "-r", "cuda_gpu_kern_sum", "-f", "json"]);
    safe("json", &output);
    let rows: Value = serde_json::from_str(&out(&output)).unwrap();
    assert!(rows["cuda_gpu_kern_sum"].as_array().unwrap().iter().any(|r| r["name"] == NAME), "{rows}");
    for args in
        [&["analyze", "--json", FILE][..], &["diff", "--json", FILE, FILE], &["check", "--json", FILE]]
    {
        let output = place.run(args);
        safe(&format!("{args:?}"), &output);
        let all: Value = serde_json::from_str(&out(&output)).unwrap();
        let file = all.pointer("/input/file").or(all.pointer("/a/file")).or(all.pointer("/file"));
        assert!(file.is_none_or(|f| f == FILE), "{all:#}");
    }
}

/// The command that the screen proposes names the file, whatever it is called, and does nothing
/// else.
#[test]
fn a_command_to_copy_means_the_file() {
    for name in ["a b.gpr", "$(touch evil).gpr", "it's;touch evil;.gpr", FILE] {
        let place = place("hostile-copy");
        fs::rename(place.out().join(FILE), place.out().join(name)).unwrap();
        for width in ["0", "60"] {
            let screen = out(&place.run(&["analyze", "--width", width, name]));
            let (_, command) = screen.split_once("; gapprobe stats").unwrap();
            let mut bash = std::process::Command::new("bash");
            place.surround(&mut bash);
            let script = format!("{BINARY} stats{command}");
            let output = bash.args(["-c", &script]).env("LC_ALL", "C.UTF-8").output().unwrap();
            assert_eq!(
                (code(&output), place.results()),
                (0, vec![name.to_owned()]),
                "{script}: {}",
                err(&output)
            );
            assert!(out(&output).contains("CUDA GPU Kernel Summary"), "{}", out(&output));
        }
    }
}

#[test]
fn csv_keeps_a_record_a_record_and_a_text_a_text() {
    let place = place("hostile-csv");
    let files = [
        out(&place.run(&["export", "--to", "csv", "-o", "-", FILE])),
        out(&place.run(&["stats", FILE, "-r", "cuda_gpu_kern_sum", "-f", "csv"])),
        out(&place.run(&["gaps", FILE, "-f", "csv"])),
    ];
    for text in files {
        let records = records(&text);
        let columns = records[0].len();
        let mut seen = 0;
        for record in &records {
            assert_eq!(record.len(), columns, "{record:?}");
            for field in record {
                // https://owasp.org/www-community/attacks/CSV_Injection
                assert!(!field.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']), "a formula: {field:?}");
                // `gaps` shows short names
                seen += usize::from(*field == format!("'{NAME}") || field == "'=HYPERLINK");
            }
        }
        assert!(seen > 0, "the name is there: {:?}", records.last());
    }
}
