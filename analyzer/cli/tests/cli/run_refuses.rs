// SPDX-License-Identifier: Apache-2.0
//! `run`: what it cannot record.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::place::{code, err, harmless_library, Place, BINARY};

/// A program file without a section of code: header, one program header, and a loader's name.
fn program(class: u8, loader: Option<&str>) -> Vec<u8> {
    let mut b = vec![0u8; 120];
    b[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
    (b[18], b[32], b[54], b[56], b[64]) = (62, 64, 56, 1, 1);
    if let Some(l) = loader {
        (b[64], b[72], b[96]) = (3, 120, l.len() as u8 + 1);
        b.extend_from_slice(l.as_bytes());
        b.push(0);
    }
    b
}

#[test]
fn run_refuses_in_one_line_what_it_cannot_record() {
    let place = Place::new("refuse");
    let library = harmless_library();
    let file = place.0.join("program");
    for (bytes, expected) in [
        (program(2, None), "is linked statically"),
        (program(2, Some("/lib/ld-musl-x86_64.so.1")), "uses musl"),
        (program(1, Some("/lib/ld-linux.so.2")), "is a 32-bit program"),
    ] {
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let script = place.0.join("script");
        fs::write(&script, format!("#!{}\n", file.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        for target in [&file, &script] {
            let output = place.run(&["run", "--lib", &library, "--", target.to_str().unwrap()]);
            assert_eq!(code(&output), 125, "{}", err(&output));
            assert!(err(&output).contains(expected) && err(&output).lines().count() == 1, "{}", err(&output));
        }
    }
    let changes_user = place.0.join("changes-user");
    fs::copy("/bin/true", &changes_user).unwrap();
    fs::set_permissions(&changes_user, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = place.run(&["run", "--lib", &library, "--", changes_user.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    assert!(
        err(&output).contains("nothing will be recorded") && err(&output).contains("\nhint: "),
        "{}",
        err(&output)
    );
    let plain = place.0.join("plain");
    fs::write(&plain, "no program").unwrap();
    assert_eq!(code(&place.run(&["run", "--lib", &library, "--", plain.to_str().unwrap()])), 126);
    assert_eq!(code(&place.run(&["run", "--lib", &library, "--", "no-such-command-here"])), 127);
    for (file, hint) in
        [("train.py", "gapprobe run python train.py"), ("simulate", "gapprobe run ./simulate")]
    {
        fs::write(place.out().join(file), "").unwrap();
        let output = place.run(&["run", "--lib", &library, file]);
        let expected = format!("gapprobe: {file}: command not found\n\nhint: {hint}\n");
        assert_eq!((code(&output), err(&output)), (127, expected));
    }
    let output = place.run(&["run", "--lib", "/nonexistent/libgapprobe.so", "--", "true"]);
    assert_eq!(code(&output), 125);
    assert!(err(&output).contains("\nhint: "), "{}", err(&output));
    let output = place.run(&["run", "--lib", &library, "--dir", "/nonexistent", "--", "true"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("hint: mkdir -p /nonexistent"), "{}", err(&output));
}

/// `mkdir` is no advice where something is there already.
#[test]
fn a_directory_that_is_none_is_said_to_be_what_it_is() {
    let place = Place::new("run-dir");
    fs::write(place.out().join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", place.out().join("link")).unwrap();
    for (dir, what, hint) in [
        ("file", "/file is a file, not a directory", "--dir names a directory"),
        ("file/deeper", "/file/deeper: Not a directory (os error 20)", "--dir names a directory"),
        ("/dev/null", "/dev/null is not a directory", "--dir names a directory"),
        ("link", "/link is a link that leads to no directory", "--dir names a directory"),
        ("new dir", "/new dir is not there", "mkdir -p '"),
    ] {
        let output = place.run(&["run", "--lib", &harmless_library(), "--dir", dir, "--", "echo", "started"]);
        let said = err(&output);
        assert_eq!((code(&output), output.stdout.as_slice()), (1, &b""[..]), "{dir}: {said}");
        assert!(said.starts_with("gapprobe: --dir: ") && said.contains(&format!("{what}\n")), "{said}");
        assert!(said.contains(&format!("\nhint: {hint}")), "{said}");
    }
}

/// Hours of training later is late to hear of it.
#[test]
fn a_directory_that_takes_no_files_is_named_before_the_command_starts() {
    let place = Place::new("run-dir-full");
    let library = harmless_library();
    // root may write everywhere but in /proc
    let dir = "/proc/1/task";
    let output = place.run(&["run", "--lib", &library, "--dir", dir, "--", "echo", "started"]);
    let said = err(&output);
    assert_eq!((code(&output), output.stdout.as_slice()), (1, &b""[..]), "{said}");
    assert!(said.starts_with("gapprobe: --dir: /proc/1/task cannot be written: "), "{said}");
    assert!(said.ends_with("\nhint: --dir names a directory that you can write\n"), "{said}");
    // nothing fits
    let script = format!("ulimit -f 0; exec {BINARY} run --lib {library} --dir . -- echo started");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.out());
    place.surround(&mut command);
    let output = command.output().unwrap();
    let said = err(&output);
    assert_eq!((code(&output), output.stdout.as_slice()), (1, &b""[..]), "{said}");
    assert!(said.contains(" cannot be written: File too large"), "{said}");
    assert!(place.results().is_empty(), "{:?}", place.results());
    // what fits is tried, and the command dies of its limit as it does by itself
    let script =
        format!("ulimit -f 8; exec {BINARY} run --lib {library} --dir . -- head -c 100000 /dev/zero > 'big'");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&place.0);
    place.surround(&mut command);
    assert_eq!(code(&command.current_dir(&place.0).output().unwrap()), 128 + 25, "SIGXFSZ");
    // a page is written to know, and nothing of it stays
    let output = place.run(&["run", "--lib", &library, "--dir", ".", "--", "echo", "started"]);
    assert_eq!((code(&output), output.stdout.as_slice()), (0, &b"started\n"[..]), "{}", err(&output));
    assert!(place.results().is_empty(), "{:?}", place.results());
}
