// SPDX-License-Identifier: Apache-2.0
//! Every `GAPPROBE_*` variable: name, default, meaning, which values are good, since when. The
//! reference page (docs/settings.md) and `gapprobe explain settings` are made from this table; the
//! recorder and the command read the variables by it.

/// Which values of a variable are good. An empty one is none, and always is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// Any: a path, names, an id.
    Any,
    /// See [`Switch`].
    OnOff,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number from the first to the second; with `true` 0, too.
    Decimal(f64, f64, bool),
    /// One of the two; the first where it is not set.
    Choice([&'static str; 2]),
    /// See [`steps_of_every`].
    StepsOfEvery,
}

impl Rule {
    /// What a value is that is not good ("not a number from 0 to 10"); `None`: it is.
    pub fn complaint(self, value: &[u8]) -> Option<String> {
        let value = Some(value).filter(|v| !v.is_empty())?;
        let number = std::str::from_utf8(value).map_or("", str::trim);
        match self {
            Rule::Any => None,
            Rule::OnOff => {
                (Switch::of(Some(value)) == Switch::Neither).then(|| "neither 1 (on) nor 0 (off)".to_owned())
            }
            Rule::Whole(least, most) => {
                let good = number.parse().is_ok_and(|n: u64| (least..=most).contains(&n));
                (!good).then(|| format!("not a number from {least} to {most}"))
            }
            Rule::Decimal(least, most, or_zero) => {
                let good =
                    number.parse().is_ok_and(|n: f64| (least..=most).contains(&n) || or_zero && n == 0.0);
                let zero = if or_zero { ", nor 0" } else { "" };
                (!good).then(|| format!("not a number from {least} to {most}{zero}"))
            }
            Rule::Choice([a, b]) => {
                let good = value == a.as_bytes() || value == b.as_bytes();
                (!good).then(|| format!("neither {a} nor {b}"))
            }
            Rule::StepsOfEvery => (!value.trim_ascii().is_empty() && steps_of_every(value).is_none())
                .then(|| "not STEPS/EVERY with fewer steps recorded than there are, as 20/2000".to_owned()),
        }
    }
}

/// Most steps from one window to the next.
pub const MOST_STEPS: u64 = 1 << 40;

/// `20/2000`: the first 20 of every 2,000 steps; `None` where it is no such value.
pub fn steps_of_every(value: &[u8]) -> Option<(u64, u64)> {
    let (steps, every) = std::str::from_utf8(value).ok()?.split_once('/')?;
    let (steps, every) = (steps.trim().parse().ok()?, every.trim().parse().ok()?);
    (steps > 0 && steps < every && every <= MOST_STEPS).then_some((steps, every))
}

/// One environment variable.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setting {
    /// Name of the variable.
    pub name: &'static str,
    /// Value when unset, as text.
    pub default: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    /// Which values are good.
    pub rule: Rule,
    /// First version that reads it.
    pub since: &'static str,
    /// Only for tests of gapprobe itself: left out of user documentation.
    pub internal: bool,
}

/// Other tools that want CUPTI or the driver's hooks for themselves: what they are called, their
/// command, and a variable that is set in all that they start. With one of these set nothing is
/// recorded, and `gapprobe doctor` says so.
pub const PROFILERS: [(&str, &str, &str); 9] = [
    ("Nsight Systems", "nsys", "NSYS_PROFILING_SESSION_ID"),
    ("Nsight Systems", "nsys", "NSYSDK_INJECTION64_PATH"),
    ("Nsight Systems", "nsys", "NSYS_TARGET_STD_REDIRECT_ACTION"),
    ("Nsight Systems", "nsys", "QUADD_INJECTION_PROXY"),
    ("Nsight Compute", "ncu", "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"),
    ("Nsight Compute", "ncu", "NV_NSIGHT_INJECTION_PORT_BASE"),
    ("nvprof", "nvprof", "NVPROF_ID"),
    // read off its binaries (13.5): set by the launcher, read by what it injects
    ("compute-sanitizer", "compute-sanitizer", "NV_SANITIZER_INJECTION_TRANSPORT_TYPE"),
    ("compute-sanitizer", "compute-sanitizer", "NV_SANITIZER_INJECTION_PORT_BASE"),
];

/// Executables of Nsight Compute's launchers. No process under them may have another tool in
/// `CUDA_INJECTION64_PATH` ("Another tool/injection might be loaded", and exit code 1; 2025.3 on an
/// H100).
pub const NCU_LAUNCHERS: &[&str] = &["ncu", "nv-nsight-cu-cli"];

/// What a value of `GAPPROBE` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// Nothing: unset or empty.
    Unset,
    /// Record, whatever happened to earlier starts.
    On,
    /// Do not record.
    Off,
    /// Neither: to be named, and nothing is recorded.
    Neither,
}

impl Switch {
    /// By the value, in any case of letters; `None`: the variable is not set.
    pub fn of(value: Option<&[u8]>) -> Switch {
        let is_one_of =
            |v: &[u8], words: [&str; 4]| words.iter().any(|w| v.eq_ignore_ascii_case(w.as_bytes()));
        match value.unwrap_or_default().trim_ascii() {
            b"" => Switch::Unset,
            v if is_one_of(v, ["1", "on", "true", "yes"]) => Switch::On,
            v if is_one_of(v, ["0", "off", "false", "no"]) => Switch::Off,
            _ => Switch::Neither,
        }
    }
}

/// Which of the lists `GAPPROBE_ALLOW` and `GAPPROBE_DENY` keeps a program out that has these names
/// (what it was called by, its executable's), and its value; `None`: none does. An empty list is
/// none.
pub fn kept_out<'a>(
    allow: Option<&'a [u8]>,
    deny: Option<&'a [u8]>,
    names: &[&[u8]],
) -> Option<(&'static str, &'a [u8])> {
    let listed = |list: &[u8]| {
        let mut items = list.split(|b| *b == b',').map(<[u8]>::trim_ascii);
        items.any(|item| !item.is_empty() && names.contains(&item))
    };
    let is_set = |list: &&[u8]| !list.is_empty();
    let denied = deny.filter(is_set).filter(|list| listed(list)).map(|list| (DENY, list));
    let not_allowed = || allow.filter(is_set).filter(|list| !listed(list)).map(|list| (ALLOW, list));
    denied.or_else(not_allowed)
}

/// The setting that somebody meant who wrote `name`: one letter more, less or other than in it, or
/// two neighbours that changed places. `None` where it is a setting itself, or near none.
pub fn meant_by(name: &str) -> Option<&'static str> {
    let near = |s: &&Setting| !s.internal && is_one_slip(name.as_bytes(), s.name.as_bytes());
    let known = SETTINGS.iter().any(|s| s.name == name);
    SETTINGS.iter().find(near).filter(|_| !known).map(|s| s.name)
}

fn is_one_slip(a: &[u8], b: &[u8]) -> bool {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[same..], &b[same..]);
    let same = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    match (&a[..a.len() - same], &b[..b.len() - same]) {
        ([_], [] | [_]) | ([], [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

macro_rules! settings {
    ($($const_name:ident $name:literal $default:literal $rule:expr, $since:literal $internal:literal $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $const_name: &str = $name;)*

        /// The table.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name, default: $default, rule: $rule, meaning: $meaning, since: $since, internal: $internal,
        },)*];
    };
}

settings! {
    SWITCH "GAPPROBE" "1" Rule::OnOff, "0.1" false "0 (or off, false, no) switches gapprobe off in this process and its children; 1 (or on, true, yes) records also where an earlier start of the program crashed. Anything else is named, and nothing is recorded.";
    DIR "GAPPROBE_DIR" "." Rule::Any, "0.1" false "Directory for the trace and the summary; a relative one is of where the program was started, even if it goes elsewhere.";
    MAX_MB "GAPPROBE_MAX_MB" "256" Rule::Whole(64, 65_536), "0.1" false "Host memory for rings, buffers, names and the report at exit, MB (64 to 65536).";
    EXIT_MS "GAPPROBE_EXIT_MS" "2000" Rule::Whole(0, 600_000), "0.1" false "Longest time the program's exit may be held up for flushing and writing, ms (0 to 600000).";
    CUPTI "GAPPROBE_CUPTI" "" Rule::Any, "0.1" false "Path of the libcupti to use where the process has none of its own.";
    PRINT "GAPPROBE_PRINT" "rank0" Rule::Choice(["rank0", "all"]), "0.1" false "Who prints the line: rank0 or all.";
    QUIET "GAPPROBE_QUIET" "0" Rule::Choice(["0", "1"]), "0.1" false "1 prints nothing; trace and summary are written all the same.";
    ALLOW "GAPPROBE_ALLOW" "" Rule::Any, "0.1" false "Comma-separated names of programs, as they are called (python3) or as the executable is (python3.11): only these are recorded.";
    DENY "GAPPROBE_DENY" "" Rule::Any, "0.1" false "Comma-separated names of programs, as they are called (python3) or as the executable is (python3.11), that are never recorded.";
    GRAPH "GAPPROBE_GRAPH" "node" Rule::Choice(["node", "graph"]), "0.1" false "CUDA graphs are recorded node by node (node) or as one op a launch (graph); chosen once, at attach.";
    CAPTURE "GAPPROBE_CAPTURE" "start" Rule::Choice(["start", "profiler"]), "0.1" false "start records from the first GPU use; profiler waits for cudaProfilerStart or gapprobe_capture(1).";
    BUDGET "GAPPROBE_BUDGET" "0.5" Rule::Decimal(0.01, 100.0, false), "0.1" false "What recording may cost, % of the run's time: beyond that (and two seconds) it goes on in windows (0.01 to 100; 100, and by itself where GAPPROBE_FLIGHT is set: everything is recorded).";
    WINDOW "GAPPROBE_WINDOW" "" Rule::StepsOfEvery, "0.1" false "Windows as asked for: STEPS/EVERY, 20/2000 records the first 20 of every 2,000 steps; all of them until steps are known (marks; else some 60 steps and two seconds of even launches).";
    SLOW_STEP "GAPPROBE_SLOW_STEP" "1.5" Rule::Decimal(1.05, 100.0, true), "0.1" false "Between windows, eight steps in a row that take so many times the usual one open a window, and so does a step that does not come; where that window would cost more than GAPPROBE_BUDGET for the rest of the run, 64 steps and ten seconds (1.05 to 100; 0: never).";
    FLIGHT "GAPPROBE_FLIGHT" "0" Rule::Whole(0, 600), "0.1" false "Flight recorder: when steps become slow (GAPPROBE_SLOW_STEP) or nothing happens any more, a trace of the last so many seconds (of a program that hangs: before its last step, and the hang) is written at once while the program goes on, at most one in five minutes and ten a process; everything is recorded then, unless GAPPROBE_BUDGET is set (1 to 600; 0: none).";
    SITES "GAPPROBE_SITES" "1" Rule::Choice(["1", "0"]), "0.1" false "0 leaves all stacks alone: no line of code, neither at calls (of Python, or the calling function of machine code) nor in samples.";
    FORCE "GAPPROBE_FORCE" "0" Rule::Choice(["0", "1"]), "0.1" false "1 records although another profiler (nsys, compute-sanitizer, Triton's Proton) seems to be around (0 or 1; beside ncu never).";
    SAMPLE_HZ "GAPPROBE_SAMPLE_HZ" "100" Rule::Whole(0, 1000), "0.1" false "How often a second the threads that call CUDA are looked at: where they stand in Python, running or blocked in what (0 to 1000; 0: never).";
    NVML "GAPPROBE_NVML" "1" Rule::Choice(["1", "0"]), "0.1" false "0 asks NVIDIA's management library nothing: no utilisation, power, clock and memory of the GPU (else once a second).";
    STEP_TFLOP "GAPPROBE_STEP_TFLOP" "" Rule::Decimal(0.000001, 1_000_000_000.0, false), "0.1" false "How many TFLOP a step does on one GPU, as the author of the model counts them: then MFU is told, their share of what the tensor cores could do in 16 bits (0.000001 to 1000000000).";
    KEEP_MB "GAPPROBE_KEEP_MB" "" Rule::Whole(0, u32::MAX as u64), "0.1" false "Room for this user's traces and summaries in GAPPROBE_DIR, MB: after a report the oldest of ended processes of this host go. Also the room for recordings that nobody recovered (4096 where unset or 0). Unset or 0: traces and summaries are never removed.";
    KEEP_DAYS "GAPPROBE_KEEP_DAYS" "" Rule::Whole(0, 36_500), "0.1" false "As GAPPROBE_KEEP_MB, by age in days (recordings: 7 where unset or 0; 36500 keeps them).";
    RUN_ID "GAPPROBE_RUN_ID" "" Rule::Any, "0.1" true "Set by gapprobe run: ties recordings to the run that started them.";
    UNDER_NCU "GAPPROBE_UNDER_NCU" "" Rule::Any, "0.1" true "Set in a launcher of Nsight Compute's (one of NCU_LAUNCHERS) for all that it starts: its process id. While it is there nothing is recorded.";
    TEST_BARE "GAPPROBE_TEST_BARE" "0" Rule::Choice(["0", "1"]), "0.1" true "1 starts with empty callbacks and buffer handlers (bare CUPTI); gapprobe_test_bare(0/1) switches.";
    TEST_DEVICE_POOL "GAPPROBE_TEST_DEVICE_POOL" "" Rule::Any, "0.1" true "CUPTI's device buffers: bytes of one, most of them, how many ahead.";
    TEST_CLOCK "GAPPROBE_TEST_CLOCK" "" Rule::Any, "0.1" true "Set: clock and sleeps are what the loader finds, a test's own.";
    TEST_FREE_MS "GAPPROBE_TEST_FREE_MS" "2000" Rule::Whole(0, 3_600_000), "0.1" true "What recording may cost before its budget counts, ms.";
    TEST_WINDOW_MS "GAPPROBE_TEST_WINDOW_MS" "2000" Rule::Whole(1, 60_000), "0.1" true "How long a window of a budget lasts, ms: at least 16 steps all the same.";
    TEST_KEEP "GAPPROBE_TEST_KEEP" "0" Rule::Choice(["0", "1"]), "0.1" true "1 keeps the recording after the report was written from it.";
    TEST_ROOT "GAPPROBE_TEST_ROOT" "/tmp" Rule::Any, "0.1" true "The folder in place of /tmp where TMPDIR cannot be used for recordings.";
    TEST_RAW "GAPPROBE_TEST_RAW" "" Rule::Any, "0.1" true "File that gets the raw CUPTI records as they arrive.";
    TEST_WITHOUT "GAPPROBE_TEST_WITHOUT" "" Rule::Any, "0.1" true "CUPTI's kinds of records that are left out, by number and comma (1 MEMCPY, 2 MEMSET, 22 MEMCPY2, 38 SYNCHRONIZATION): what does each cost?";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_value_is_said_by_its_rule() {
        let rule = |name: &str| SETTINGS.iter().find(|s| s.name == name).map_or(Rule::Any, |s| s.rule);
        for (name, good, bad, is) in [
            (
                MAX_MB,
                &["64", " 256 ", "65536"][..],
                &["63", "65537", "abc", "-1", "1.5", "64 MB"][..],
                "not a number from 64 to 65536",
            ),
            (
                SLOW_STEP,
                &["0", "1.05", "1e1", "100"],
                &["1", "inf", "nan", "x"],
                "not a number from 1.05 to 100, nor 0",
            ),
            (BUDGET, &["0.01", "100"], &["0", "101"], "not a number from 0.01 to 100"),
            (
                WINDOW,
                &["20/2000", " 1 / 2 ", " "],
                &["20", "2/2", "0/5", "a/b", "1/2/3"],
                "not STEPS/EVERY with fewer steps recorded than there are, as 20/2000",
            ),
            (QUIET, &["0", "1"], &["2", "yes", " 1"], "neither 0 nor 1"),
            (SWITCH, &["off", "1"], &["maybe"], "neither 1 (on) nor 0 (off)"),
            (DIR, &["/nowhere", "x"], &[], ""),
        ] {
            for value in good.iter().chain(&[""]) {
                assert_eq!(rule(name).complaint(value.as_bytes()), None, "{name}={value}");
            }
            for value in bad {
                assert_eq!(rule(name).complaint(value.as_bytes()).as_deref(), Some(is), "{name}={value}");
            }
        }
        assert!(rule(MAX_MB).complaint(b"\xff").is_some());
        for setting in SETTINGS {
            assert_eq!(
                setting.rule.complaint(setting.default.as_bytes()),
                None,
                "{}: its default",
                setting.name
            );
            // what the page says of numbers is what counts
            let numbers = match setting.rule {
                Rule::Whole(least, most) => format!("({least} to {most}"),
                Rule::Decimal(least, most, _) => format!("({least} to {most}"),
                _ => continue,
            };
            let told =
                setting.meaning.contains(&numbers) || [KEEP_MB, KEEP_DAYS, FLIGHT].contains(&setting.name);
            assert!(told || setting.internal, "{}: {numbers}", setting.name);
        }
    }

    #[test]
    fn a_slip_in_a_name_is_known_and_another_tools_variable_is_not() {
        for (name, meant) in [
            ("GAPPROBE_BUGDET", Some(BUDGET)),
            ("GAPPROBE_WINDOWS", Some(WINDOW)),
            ("GAPPROBE_MAXMB", Some(MAX_MB)),
            ("GAPROBE_DIR", Some(DIR)),
            ("GAPPROBE_QUEIT", Some(QUIET)),
            ("GAPPROBE_BUDGET", None),
            ("GAPPROBE_TOOLS", None),
            ("GAPPROBE_PYTHON", None),
            ("GAPPROBE_", Some(SWITCH)),
            ("", None),
        ] {
            assert_eq!(meant_by(name), meant, "{name}");
        }
        assert!(SETTINGS.iter().all(|s| meant_by(s.name).is_none()));
    }
}
