// SPDX-License-Identifier: Apache-2.0
//! How the file lies there: compressed, write-protected, with a log beside it, as a report that
//! nsys has to export.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;

use super::fixture::{export, training, Kept, Schema};
use super::{measured, read};

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn folder() -> Kept {
    let kept = Kept::new(".d");
    fs::create_dir(&kept.0).unwrap();
    kept
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a test of this program again, in a process with another environment, to do `what` there.
fn again(test: &str, what: &str, variables: &[(&str, &Path)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("files::{test}"), "--exact", "--nocapture"]).env("NSYS_TEST", what);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed") && said.contains("did it"), "{said}{wrong}");
}

/// In such a process: does what it was made for.
fn is_child() -> bool {
    let Some(what) = std::env::var_os("NSYS_TEST") else { return false };
    match what.to_str().unwrap() {
        "reads as the plain one" => reads_as_the_plain_one(),
        "fails" => drop(formats::read(&variable("NSYS_TEST_FILE"), &Default::default()).unwrap_err()),
        "fails for want of a folder" => fails_for_want_of_a_folder(),
        "says what to run" => says_what_to_run(),
        "shows what nsys said" => shows_what_nsys_said(),
        other => panic!("{other}"),
    }
    println!("did it");
    true
}

fn variable(name: &str) -> std::path::PathBuf {
    std::env::var_os(name).expect("set by the test that runs this one").into()
}

#[test]
fn a_compressed_export_reads_the_same_and_leaves_nothing_behind() {
    if is_child() {
        return;
    }
    let w = training(10, &[(100, &[0])], 1);
    let plain = export(&w, Schema::New, |_| ());
    let bytes = fs::read(&plain.0).unwrap();
    let (temporary, half) = (folder(), bytes.len() / 2);
    let whole = Kept::of(&packed(&bytes), ".gz");
    let members = Kept::of(&[packed(&bytes[..half]), packed(&bytes[half..])].concat(), ".gz");
    for file in [&whole, &members] {
        let variables =
            [("TMPDIR", temporary.0.as_path()), ("NSYS_TEST_FILE", &file.0), ("NSYS_TEST_PLAIN", &plain.0)];
        again(
            "a_compressed_export_reads_the_same_and_leaves_nothing_behind",
            "reads as the plain one",
            &variables,
        );
        assert_eq!(names(&temporary.0), [""; 0]);
    }
    // nor when it fails
    let cut = Kept::of(&packed(&bytes)[..half / 8], ".gz");
    again(
        "a_compressed_export_reads_the_same_and_leaves_nothing_behind",
        "fails",
        &[("TMPDIR", &temporary.0), ("NSYS_TEST_FILE", &cut.0)],
    );
    assert_eq!(names(&temporary.0), [""; 0]);
    let error = read(&cut).unwrap_err();
    assert!(error.to_string().contains("is truncated") && error.hint.contains("gzip -t"), "{error}");
}

fn reads_as_the_plain_one() {
    let [file, plain] = ["NSYS_TEST_FILE", "NSYS_TEST_PLAIN"].map(|v| {
        let input = formats::read(&variable(v), &Default::default()).unwrap();
        (measured(&input), input.events, input.bytes, input.refused)
    });
    assert_eq!(file, plain);
}

fn fails_for_want_of_a_folder() {
    let error = formats::read(&variable("NSYS_TEST_FILE"), &Default::default()).unwrap_err();
    assert!(
        error.to_string().contains("no folder can be made in") && error.hint.contains("TMPDIR"),
        "{error}"
    );
}

#[test]
fn without_room_for_the_unpacked_file_the_error_says_where() {
    if is_child() {
        return;
    }
    let w = training(1, &[(100, &[0])], 1);
    let file = Kept::of(&packed(&fs::read(&export(&w, Schema::New, |_| ()).0).unwrap()), ".gz");
    let none = Path::new("/proc/nowhere");
    again(
        "without_room_for_the_unpacked_file_the_error_says_where",
        "fails for want of a folder",
        &[("TMPDIR", none), ("NSYS_TEST_FILE", &file.0)],
    );
}

#[test]
fn a_small_file_that_unpacks_to_a_huge_one_is_refused() {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    to.write_all(b"SQLite format 3\0").unwrap();
    let zeros = vec![0u8; 1 << 20];
    (0..400).for_each(|_| to.write_all(&zeros).unwrap());
    let error = read(&Kept::of(&to.finish().unwrap(), ".gz")).unwrap_err();
    assert!(error.to_string().contains("unpack to more than"), "{error}");
}

#[test]
fn nothing_is_written_beside_the_file() {
    let w = training(5, &[(100, &[0])], 1);
    let bytes = fs::read(&export(&w, Schema::New, |_| ()).0).unwrap();
    // names that mean something in a URI
    for name in ["plain.sqlite", "a%20b?mode=rw#c &d.sqlite", "ü.sqlite"] {
        let folder = folder();
        let path = folder.0.join(name);
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o555)).unwrap();
        let input = formats::read(&path, &Default::default());
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(input.unwrap().run.devices[0].ops(), w.ops.len());
        assert_eq!((names(&folder.0), fs::read(&path).unwrap() == bytes), (vec![name.to_owned()], true));
    }
}

/// A database in the mode of a write-ahead log needs a file beside it that is shared with its
/// writers; without a writer, it does not.
#[test]
fn a_database_with_a_log_is_read_with_the_log() {
    let w = training(5, &[(100, &[0])], 1);
    let folder = folder();
    let path = folder.0.join("export.sqlite");
    fs::copy(&export(&w, Schema::New, |_| ()).0, &path).unwrap();
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "journal_mode", "wal").unwrap();
    let read_ops = || formats::read(&path, &Default::default()).unwrap().run.devices[0].ops();
    assert_eq!(read_ops(), w.ops.len());
    writer.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    writer.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMSET", []).unwrap();
    let left = w.ops.iter().filter(|o| !matches!(o.what, super::fixture::What::Memset(_))).count();
    assert!(left < w.ops.len() && names(&folder.0).contains(&"export.sqlite-wal".to_owned()));
    assert_eq!(read_ops(), left);
    // the writer is gone and has put all into the file
    drop(writer);
    assert_eq!((names(&folder.0), read_ops()), (vec!["export.sqlite".to_owned()], left));
    assert_eq!(names(&folder.0), ["export.sqlite"]);
}

/// The writer was killed in the middle: what the file was before stands in the journal, and may not
/// be put back by us.
#[test]
fn a_database_left_in_the_middle_is_refused() {
    let w = training(40, &[(100, &[0])], 1);
    let (folder, there) = (folder(), folder());
    let path = folder.0.join("export.sqlite");
    fs::copy(&export(&w, Schema::New, |_| ()).0, &path).unwrap();
    let writer = Connection::open(&path).unwrap();
    writer.pragma_update(None, "cache_size", 2).unwrap();
    writer.execute_batch("BEGIN; UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = end").unwrap();
    for name in names(&folder.0) {
        fs::copy(folder.0.join(&name), there.0.join(&name)).unwrap();
    }
    assert_eq!(names(&there.0), ["export.sqlite", "export.sqlite-journal"]);
    let error = formats::read(&there.0.join("export.sqlite"), &Default::default()).unwrap_err();
    assert!(error.to_string().contains("left in the middle"), "{error}");
    assert_eq!(names(&there.0), ["export.sqlite", "export.sqlite-journal"]);
}

/// As nsys begins a report.
const REPORT: &[u8] = b"NVIDIA Tegra Profiler Report 2026@4@1@191-264138605071v0.\n\x0bLocal (CLI)";

/// A folder with a program called nsys in it.
fn with_nsys(script: &str) -> Kept {
    let folder = folder();
    let nsys = folder.0.join("nsys");
    fs::write(&nsys, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&nsys, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_report_is_exported_by_nsys_where_it_is_there() {
    if is_child() {
        return;
    }
    let w = training(5, &[(100, &[0])], 1);
    let (plain, report, temporary) =
        (export(&w, Schema::New, |_| ()), Kept::of(REPORT, ".nsys-rep"), folder());
    // the arguments as nsys documents them; what it exports is the plain one
    let script = format!(
        "[ \"$1 $2 $3 ${{4%%=*}}\" = 'export --type=sqlite --force-overwrite=true --output' ] || exit 9
         [ \"$5\" = '{}' ] || exit 8
         /bin/cp '{}' \"${{4#--output=}}\"",
        report.0.canonicalize().unwrap().display(),
        plain.0.display()
    );
    let nsys = with_nsys(&script);
    let variables = [
        ("PATH", nsys.0.as_path()),
        ("TMPDIR", &temporary.0),
        ("NSYS_TEST_FILE", &report.0),
        ("NSYS_TEST_PLAIN", &plain.0),
    ];
    again("a_report_is_exported_by_nsys_where_it_is_there", "reads as the plain one", &variables);
    assert_eq!(names(&temporary.0), [""; 0]);
}

#[test]
fn without_nsys_the_error_says_what_to_run() {
    if is_child() {
        return;
    }
    let (empty, report) = (folder(), Kept::of(REPORT, ".nsys-rep"));
    again(
        "without_nsys_the_error_says_what_to_run",
        "says what to run",
        &[("PATH", &empty.0), ("NSYS_TEST_FILE", &report.0)],
    );
    let error = read(&Kept::of(&packed(REPORT), ".gz")).unwrap_err();
    assert!(error.to_string().contains("compressed nsys report"), "{error}");
}

fn says_what_to_run() {
    let path = variable("NSYS_TEST_FILE");
    let error = formats::read(&path, &Default::default()).unwrap_err();
    assert!(error.to_string().contains("nsys, which alone can read it, is not in PATH"), "{error}");
    let to = path.with_extension("sqlite");
    let command = format!("nsys export --type sqlite -o {} {}", to.display(), path.display());
    assert!(error.hint.contains(&command), "{}", error.hint);
}

#[test]
fn what_nsys_says_when_it_fails_is_shown() {
    if is_child() {
        return;
    }
    let (report, temporary) = (Kept::of(REPORT, ".nsys-rep"), folder());
    let nsys = with_nsys("echo 'Importer error' >&2; echo 'The report is newer than I am.' >&2; exit 3");
    let variables = [("PATH", nsys.0.as_path()), ("TMPDIR", &temporary.0), ("NSYS_TEST_FILE", &report.0)];
    again("what_nsys_says_when_it_fails_is_shown", "shows what nsys said", &variables);
    // it says nothing, claims success, and there is no file
    let nsys = with_nsys("exit 0");
    let variables = [("PATH", nsys.0.as_path()), ("TMPDIR", &temporary.0), ("NSYS_TEST_FILE", &report.0)];
    again("what_nsys_says_when_it_fails_is_shown", "fails", &variables);
    assert_eq!(names(&temporary.0), [""; 0]);
}

fn shows_what_nsys_said() {
    let error = formats::read(&variable("NSYS_TEST_FILE"), &Default::default()).unwrap_err().to_string();
    assert!(
        error.contains("exit status: 3") && error.contains("Importer error; The report is newer"),
        "{error}"
    );
}
