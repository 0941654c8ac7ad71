// SPDX-License-Identifier: Apache-2.0
//! What every scenario needs: folders of its own, the command in them, a recording.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use trace::build::Builder;
use trace::call::{pack, Class, RUNTIME};
use trace::{Event, Kind};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_gapprobe");

/// A folder of its own for one test: TMPDIR, results, and the private folder in TMPDIR.
pub(crate) struct Place(pub(crate) PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("gapprobe-cli-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("out")).unwrap();
        let place = Place(path);
        fs::create_dir(place.private()).unwrap();
        fs::set_permissions(place.private(), fs::Permissions::from_mode(0o700)).unwrap();
        place
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.0.join("out")
    }

    pub(crate) fn private(&self) -> PathBuf {
        self.0.join(format!("gapprobe-{}", fs::metadata("/proc/self").unwrap().uid()))
    }

    /// In place of /tmp, where other programs' recordings may lie.
    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// Makes the private folder in `root`.
    pub(crate) fn private_in(&self, root: &Path) -> PathBuf {
        let folder = root.join(self.private().file_name().unwrap());
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    pub(crate) fn gapprobe(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        self.surround(&mut command);
        command.args(args).stdin(Stdio::null());
        command
    }

    /// The folders of this place, and nothing of the tester's settings.
    pub(crate) fn surround(&self, command: &mut Command) {
        command.current_dir(self.out()).env("TMPDIR", &self.0).env_remove("LD_PRELOAD");
        for setting in trace::setting::SETTINGS {
            command.env_remove(setting.name);
        }
        for (name, _) in std::env::vars_os().filter(|v| v.0.as_encoded_bytes().starts_with(b"OTEL_")) {
            command.env_remove(name);
        }
        command.env(trace::setting::TEST_ROOT, self.root());
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.gapprobe(args).output().unwrap()
    }

    /// Names in the results folder.
    pub(crate) fn results(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.out())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("no exit code: {output:?}"))
}

/// Holds `text` against the file tests/cli/`name`.txt.
pub(crate) fn same_as_file(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli").join(format!("{name}.txt"));
    if std::env::var_os("GAPPROBE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{} differs; if that is meant: GAPPROBE_BLESS=1 cargo test", path.display());
}

/// Holds what a verb wrote to docs/schemas, where scripts/check-schemas has no process to look at:
/// its keys, and their types.
pub(crate) fn follows_schema(name: &str, value: &Value) {
    let path = format!("{}/../../docs/schemas/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    follows(value, &serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap());
}

fn follows(value: &Value, schema: &Value) {
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_number = kind == "integer" && types.contains(&"number".into());
    assert!(types.contains(&kind.into()) || is_number, "{value} where {schema:#} was said");
    match (value, schema["properties"].as_object()) {
        (Value::Array(items), _) => items.iter().for_each(|item| follows(item, &schema["items"])),
        (Value::Object(keys), Some(known)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            let mut all = required.map(|key| key.as_str().unwrap()).chain(keys.keys().map(String::as_str));
            assert!(
                all.all(|key| keys.contains_key(key) && known.contains_key(key)),
                "{:?} where {:?} were said",
                keys.keys(),
                known.keys()
            );
            keys.iter().for_each(|(key, value)| follows(value, &known[key]));
        }
        _ => {}
    }
}

/// A recording of 300 steps, each drained by a synchronize; its process has ended.
pub(crate) fn recording(shape: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut b = Builder::new();
    b.header.pid = i32::MAX as u32;
    b.header.uid = fs::metadata("/proc/self").unwrap().uid();
    b.header.host = "testhost".into();
    b.header.command = "python train.py".into();
    b.header.gapprobe = "0.1.0 test".into();
    b.header.start_realtime = 1_795_000_000_000_000_000;
    b.header.start_monotonic = 1_000_000_000;
    b.header.driver_version = 13_000;
    b.header.cupti_version = 130_001;
    b.device(0, "SIM", 132);
    let kernel = b.kernel("_Z4gemmPfS_S_", 256, 64);
    let mut correlation = 0;
    for step in 0..300u64 {
        let begin = 1_000_000_000 + step * 1_000_000;
        let mut mark = Event::new(Kind::Step, begin, begin + 1_000_000);
        mark.a = step as u32;
        b.on_thread(100, mark);
        for i in 0..10 {
            correlation += 1;
            let mut launch = Event::new(Kind::Call, begin + i * 10_000, begin + i * 10_000 + 4_000);
            (launch.a, launch.x, launch.correlation) = (pack(RUNTIME, 211), Class::Launch as u8, correlation);
            b.on_thread(100, launch);
            let mut op = Event::new(Kind::Kernel, begin + 10_000 + i * 60_000, begin + 70_000 + i * 60_000);
            (op.a, op.b, op.correlation) = (kernel, 1024, correlation);
            b.on_stream(0, 1, 7, op);
        }
        let mut sync = Event::new(Kind::Call, begin + 110_000, begin + 612_000);
        (sync.a, sync.x) = (pack(RUNTIME, 131), Class::Sync as u8);
        b.on_thread(100, sync);
    }
    shape(&mut b);
    b.finish()
}

/// A shared library that does nothing when preloaded: the C library's own mathematics.
pub(crate) fn harmless_library() -> String {
    let candidates =
        ["/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"];
    candidates.into_iter().find(|p| Path::new(p).exists()).expect("glibc's libm").to_owned()
}
