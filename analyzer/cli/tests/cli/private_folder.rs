// SPDX-License-Identifier: Apache-2.0
//! Where recordings lie: found in every place the library may choose, refused where others could
//! have put them.

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};

use crate::place::{code, err, harmless_library, out, recording, Place};

#[test]
fn a_private_folder_that_others_could_have_made_is_refused() {
    let place = Place::new("private");
    fs::write(place.private().join("run.gpr"), recording(|_| {})).unwrap();
    fs::set_permissions(place.private(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("is open to other users (mode 755)"), "{}", err(&output));
    let elsewhere = place.0.join("elsewhere");
    fs::rename(place.private(), &elsewhere).unwrap();
    symlink(&elsewhere, place.private()).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("is a symbolic link"), "{}", err(&output));
    assert!(place.results().is_empty());
}

#[test]
fn a_recording_is_found_wherever_the_library_may_have_put_it() {
    // TMPDIR, and whether the library would use it; it falls back to /tmp (here: the place's root)
    for tmpdir in [None, Some(""), Some("relative"), Some("/proc/1/task"), Some("/dev/null/x")] {
        let place = Place::new("fallback");
        let file = place.private_in(&place.root()).join("run.gpr");
        fs::write(&file, recording(|_| {})).unwrap();
        let command = |args: &[&str]| {
            let mut command = place.gapprobe(args);
            match tmpdir {
                Some(t) => command.env("TMPDIR", t),
                None => command.env_remove("TMPDIR"),
            };
            command.output().unwrap()
        };
        let list = out(&command(&["recover", "--list"]));
        assert!(list.contains(file.to_str().unwrap()), "TMPDIR={tmpdir:?}: {list}");
        let output = command(&["recover"]);
        assert_eq!(code(&output), 0, "TMPDIR={tmpdir:?}: {}", err(&output));
        assert!(!file.exists());
    }
}

#[test]
fn both_places_are_looked_into_and_the_newest_is_taken() {
    let place = Place::new("both");
    let first = place.private().join("first.gpr");
    let second = place.private_in(&place.root()).join("second.gpr");
    fs::write(&first, recording(|_| {})).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&second, recording(|_| {})).unwrap();
    let output = place.run(&["recover"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(first.exists() && !second.exists());
    // one that others could have made is named and costs the other nothing
    fs::write(&second, recording(|_| {})).unwrap();
    fs::set_permissions(second.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = place.run(&["recover", "--all"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("is open to other users (mode 777): not used"), "{}", err(&output));
    assert!(!first.exists() && second.exists());
}

#[test]
fn run_reports_a_killed_command_whose_recording_lies_in_the_fallback() {
    let place = Place::new("run-fallback");
    let folder = place.private_in(&place.root());
    let template = place.0.join("template");
    fs::write(&template, recording(|b| b.attribute("run.id", "RUNIDRUNIDRUNID!"))).unwrap();
    let script = format!(
        "LC_ALL=C sed \"s/RUNIDRUNIDRUNID!/$GAPPROBE_RUN_ID/\" {} > {}/own.gpr; kill -9 $$",
        template.display(),
        folder.display(),
    );
    let output = place
        .gapprobe(&["run", "--lib", &harmless_library(), "--", "sh", "-c", &script])
        .env("TMPDIR", "relative")
        .output()
        .unwrap();
    assert_eq!(code(&output), 137);
    assert!(err(&output).contains(" [GP101]"), "{}", err(&output));
    assert_eq!((place.results().len(), fs::read_dir(&folder).unwrap().count()), (2, 0));
}

#[test]
fn doctor_says_where_recordings_go_and_why_not_to_tmpdir() {
    let place = Place::new("doctor-fallback");
    fs::create_dir(place.root()).unwrap();
    let recording = |tmpdir: &str| {
        let output = place.gapprobe(&["doctor", "--json"]).env("TMPDIR", tmpdir).output().unwrap();
        let said: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        let rows = said["checks"].as_array().unwrap();
        rows.iter().find(|r| r["subject"] == "recording").unwrap().clone()
    };
    let row = recording(place.0.to_str().unwrap());
    assert_eq!(row["state"], "ok", "{row}");
    assert!(row["text"].as_str().unwrap().starts_with(place.private().to_str().unwrap()), "{row}");
    for (tmpdir, why) in
        [("relative", "TMPDIR=relative is relative"), ("/dev/null/x", "/dev/null/x: Not a dir")]
    {
        let row = recording(tmpdir);
        assert_eq!(row["state"], "note", "{row}");
        let text = row["text"].as_str().unwrap();
        assert!(text.starts_with(place.root().to_str().unwrap()) && text.contains(why), "{row}");
    }
}
