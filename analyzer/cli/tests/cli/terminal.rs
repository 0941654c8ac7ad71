// SPDX-License-Identifier: Apache-2.0
//! On a terminal: lines are not wider than it, names are shortened in the middle; elsewhere nothing
//! is.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json;

use crate::hostile_names::{self, FILE};
use crate::place::{code, err, out, Place};
use crate::program::Program;
use crate::training::{steps_of, work, write, Work};

fn input(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path).display().to_string()
}

/// A pseudo-terminal of so many columns: (ours, the program's).
#[expect(unsafe_code, reason = "openpty is libc's")]
pub(crate) fn terminal(columns: u16) -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: two places for descriptors, a size, and nulls where openpty allows them.
    let made = unsafe {
        libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw const size as *mut _,
        )
    };
    assert_eq!(made, 0);
    // SAFETY: openpty made it, nobody else owns it.
    let theirs = unsafe { OwnedFd::from_raw_fd(theirs) };
    // SAFETY: as above.
    (unsafe { File::from_raw_fd(ours) }, theirs)
}

/// The window of that terminal has another size from now on; its programs are told.
#[expect(unsafe_code, reason = "ioctl is libc's")]
pub(crate) fn resize(ours: &File, columns: u16, rows: u16) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads a winsize, and `size` is one.
    assert_eq!(unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
}

/// Runs with stdout on a terminal of so many columns. What it wrote there, as lines; stderr is a
/// pipe.
fn on_terminal(place: &Place, columns: u16, variable: Option<&str>, args: &[&str]) -> (Vec<String>, Output) {
    let (mut ours, theirs) = terminal(columns);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // EIO: the other side is closed
        let _ = ours.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    });
    let mut command = place.gapprobe(args);
    command.env_remove("COLUMNS").stdout(Stdio::from(theirs)).stderr(Stdio::piped());
    if let Some(columns) = variable {
        command.env("COLUMNS", columns);
    }
    let child = command.spawn().unwrap();
    drop(command); // it holds the terminal open
    let output = child.wait_with_output().unwrap();
    let text = reader.join().unwrap();
    (text.lines().map(|l| l.trim_end_matches('\r').to_owned()).collect(), output)
}

fn widest(lines: &[String]) -> usize {
    lines.iter().map(|l| cli::terminal_width::width(l)).max().unwrap_or(0)
}

/// A folder with summaries of ranks on hosts with long names.
fn ranks(place: &Place) {
    for rank in 0..3 {
        let summary = json!({
            "summary_version": verdict::output::summary::SUMMARY_VERSION,
            "verdict": {"code": "GP101", "cause": "SYNC", "text": "why", "share": 0.38, "confidence": "high"},
            "steps": {"count": 100, "median_ns": 50_000_000, "p95_ns": 51_000_000},
            "rank": rank, "world_size": 3, "pid": 100 + rank,
            "host": format!("node-{rank}.a.rather.long.name.of.a.cluster.somewhere.example.org"),
            "worst_device": 0,
            "devices": [{"ordinal": 0, "buckets_ns": {"compute": 30_000_000, "sync": 20_000_000}}],
        });
        fs::write(place.out().join(format!("{rank}.summary.json")), summary.to_string()).unwrap();
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let place = hostile_names::place("terminal-width");
    ranks(&place);
    for (name, file) in [
        ("gpt.json.gz", "traces/h200_gpt.json.gz"),
        ("bound.gpr", "recordings/own_gpt_bound.gprec.gz"),
        ("three.json", "tables/three_steps.json"),
    ] {
        fs::copy(input(file), place.out().join(name)).unwrap();
    }
    let all = "cuda_api_sum,cuda_gpu_kern_sum,cuda_kern_exec_sum,nvtx_kern_sum,nvtx_gpu_proj_sum,gaps,steps,phases,syncs";
    let mut shortened = 0;
    for columns in [40, 80, 132] {
        for args in [
            &["analyze", "gpt.json.gz"][..],
            &["analyze", "bound.gpr"],
            &["analyze", FILE],
            &["stats", "gpt.json.gz", "-n", "20"],
            &["stats", "three.json", "-r", all],
            &["stats", FILE, "-r", all, "-n", "5"],
            &["gaps", "three.json"],
            &["steps", "three.json"],
            &["summary", "."],
            &["diff", "gpt.json.gz", "bound.gpr"],
            &["diff", "--scaling", "--gpus", "1,8", "bound.gpr", "bound.gpr"],
            &["diff", "gpt.json.gz", FILE],
            &[
                "check",
                "bound.gpr",
                "--baseline",
                "bound.gpr",
                "--max-regression",
                "30%",
                "--max-idle",
                "90%",
            ],
            &[
                "check",
                "bound.gpr",
                "--require-range",
                "a range of a rather long name that is not there at all",
            ],
        ] {
            let (lines, output) = on_terminal(&place, columns, None, args);
            let unmet = args.contains(&"--require-range");
            assert_eq!(code(&output), if unmet { 8 } else { 0 }, "{args:?}: {}", err(&output));
            assert!(!lines.is_empty(), "{args:?}");
            // one word of a command to copy (the program's own, which is that long) stays whole on
            // a line of its own
            let wide =
                |l: &&String| cli::terminal_width::width(l) > usize::from(columns) && l.trim().contains(' ');
            let long: Vec<&String> = lines.iter().filter(wide).collect();
            assert!(long.is_empty(), "{columns} {args:?}: {long:#?}");
            shortened += lines.iter().filter(|l| l.contains('…')).count();
        }
    }
    assert!(shortened > 50, "{shortened}");
}

#[test]
fn the_variable_wins_over_the_terminal_and_the_option_over_both() {
    let place = Place::new("terminal-columns");
    let file = input("tables/three_steps.json");
    let table = ["stats", &file, "-r", "cuda_gpu_kern_sum"];
    let width = |columns, variable, more: &[&str]| {
        widest(&on_terminal(&place, columns, variable, &[&table[..], more].concat()).0)
    };
    let whole = width(500, None, &[]);
    assert!(whole > 200, "{whole}");
    assert!((71..=90).contains(&width(90, None, &[])));
    assert!((101..=120).contains(&width(90, Some("120"), &[])));
    assert!((51..=70).contains(&width(90, Some("120"), &["--width", "70"])));
    assert_eq!(width(90, Some("120"), &["--width", "0"]), whole);
    // nonsense in the variable is none; a terminal that does not tell is as wide as it takes
    assert_eq!(width(90, Some("wide"), &[]), width(90, None, &[]));
    assert_eq!(width(0, None, &[]), whole);
}

#[test]
fn what_goes_elsewhere_is_whole_unless_asked() {
    let place = Place::new("terminal-pipe");
    let file = input("tables/three_steps.json");
    let name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>";
    let table = |columns: &str, more: &[&str]| {
        let args = [&["stats", &file, "-r", "cuda_gpu_kern_sum"][..], more].concat();
        let output = place.gapprobe(&args).env("COLUMNS", columns).output().unwrap();
        (out(&output), err(&output))
    };
    let (text, said) = table("40", &[]);
    assert!(text.contains(name) && !text.contains('…'), "{text}");
    assert_eq!(said, "");
    let (text, said) = table("40", &["--width", "80"]);
    assert!(!text.contains(name) && text.contains("void"), "{text}");
    assert!(text.lines().all(|l| cli::terminal_width::width(l) <= 80), "{text}");
    assert!(said.contains("columns; --width 0 prints all"), "{said}");
}

/// A site without the number of its line is none: however narrow, the number stays; in a pipe all
/// of it does.
#[test]
fn the_number_of_a_line_is_never_shortened() {
    let place = Place::new("terminal-lines");
    let file = "experiments_of_this_year/train_the_large_model_with_everything_on.py";
    let mut p = Program::new();
    p.site = p.b.stack(&[("one_step_of_the_training_loop", file, 13579)]);
    for _ in 0..30 {
        for _ in 0..6 {
            p.launch("gemm_kernel", 264, 14_000);
            p.item();
        }
        p.optimizer(14_000);
    }
    write(&place, "sites", &p.finish());
    let whole = format!("{file}:13579 in one_step_of_the_training_loop");
    for args in [&["analyze", "sites"][..], &["stats", "sites", "-r", "syncs"]] {
        let piped = out(&place.run(args));
        // (the line has room for the end of it)
        let below = piped.split("Evidence").last().unwrap();
        assert!(below.contains(&whole) && !below.contains('…'), "{args:?}: {piped}");
        for columns in [60, 80, 100, 132] {
            let (lines, output) = on_terminal(&place, columns, None, args);
            assert_eq!(code(&output), 0, "{}", err(&output));
            assert!(widest(&lines) <= columns.into(), "{args:?} {columns}: {lines:#?}");
            let sites: Vec<&String> =
                lines.iter().filter(|l| l.contains("_on.py") || l.contains("everything")).collect();
            assert!(sites.iter().all(|l| l.contains(":13579")), "{args:?} {columns}: {sites:#?}");
            assert!(!sites.is_empty() || lines.concat().contains(":13579"), "{args:?} {columns}: {lines:#?}");
        }
    }
}

/// csv and stacks are for programs, and keep their bytes; a terminal is none.
#[test]
fn data_on_a_terminal_is_made_visible_and_compressed_data_refused() {
    let place = hostile_names::place("terminal-data");
    for args in [
        &["stats", FILE, "-r", "cuda_gpu_kern_sum", "-f", "csv"][..],
        &["export", FILE, "--to", "csv", "-o", "-"],
        &["export", FILE, "--to", "folded", "-o", "-"],
        &["stats", FILE, "-r", "cuda_gpu_kern_sum", "-f", "json"],
    ] {
        let (lines, output) = on_terminal(&place, 80, None, args);
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert!(lines.iter().any(|l| l.contains("HYPERLINK")) || args.contains(&"folded"), "{args:?}");
        assert!(!lines.concat().contains(verdict::text::escape::is_hidden), "{args:?}: {lines:?}");
    }
    for to in ["chrome", "parquet"] {
        let (lines, output) = on_terminal(&place, 80, None, &["export", FILE, "--to", to, "-o", "-"]);
        assert_eq!((code(&output), lines.len()), (2, 0));
        assert!(
            err(&output).contains("not for a terminal") && err(&output).contains("hint: "),
            "{}",
            err(&output)
        );
    }
}

/// Rows of several GPUs cannot be told apart without the GPU's number, however narrow the terminal.
#[test]
fn the_number_of_the_gpu_stays_where_there_are_several() {
    let place = Place::new("terminal-devices");
    let gemm = work("gemm", 1000, 200_000, 20);
    write(&place, "two", &steps_of(0, true, &[gemm, Work { gpu: 1, ..gemm }]));
    for width in ["60", "80"] {
        let output = place.run(&["steps", "two", "--width", width]);
        let text = out(&output);
        assert!(text.lines().any(|l| l.contains("DevId") && l.contains("Step Time")), "{text}");
    }
}
