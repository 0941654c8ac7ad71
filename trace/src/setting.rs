// SPDX-License-Identifier: Apache-2.0
//! Every `GAPPROBE_*` variable: name, default, meaning, since when. The reference page (docs/settings.md) and
//! `gapprobe explain settings` are made from this table; the recorder and the command read the variables by it.

/// One environment variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Name of the variable.
    pub name: &'static str,
    /// Value when unset, as text.
    pub default: &'static str,
    /// One sentence.
    pub meaning: &'static str,
    /// First version that reads it.
    pub since: &'static str,
    /// Only for tests of gapprobe itself: left out of user documentation.
    pub internal: bool,
}

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

/// The setting that somebody meant who wrote `name`: one letter more, less or other than in it, or two neighbours that changed places. `None` where it
/// is a setting itself, or near none.
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
    ($($const_name:ident $name:literal $default:literal $since:literal $internal:literal $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $const_name: &str = $name;)*

        /// The table.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name, default: $default, meaning: $meaning, since: $since, internal: $internal,
        },)*];
    };
}

settings! {
    SWITCH "GAPPROBE" "1" "0.1" false "0 (or off, false, no) switches gapprobe off in this process and its children; 1 (or on, true, yes) records also where an earlier start of the program crashed. Anything else is named, and nothing is recorded.";
    DIR "GAPPROBE_DIR" "." "0.1" false "Directory for the trace and the summary; a relative one is of where the program was started, even if it goes elsewhere.";
    MAX_MB "GAPPROBE_MAX_MB" "256" "0.1" false "Host memory for rings, buffers, names and the report at exit, MB (64 to 65536).";
    EXIT_MS "GAPPROBE_EXIT_MS" "2000" "0.1" false "Longest time the program's exit may be held up for flushing and writing, ms (0 to 600000).";
    CUPTI "GAPPROBE_CUPTI" "" "0.1" false "Path of the libcupti to use where the process has none of its own.";
    PRINT "GAPPROBE_PRINT" "rank0" "0.1" false "Who prints the line: rank0 or all.";
    QUIET "GAPPROBE_QUIET" "0" "0.1" false "1 prints nothing; trace and summary are written all the same.";
    ALLOW "GAPPROBE_ALLOW" "" "0.1" false "Comma-separated executable names: only these are recorded.";
    DENY "GAPPROBE_DENY" "" "0.1" false "Comma-separated executable names that are never recorded.";
    GRAPH "GAPPROBE_GRAPH" "node" "0.1" false "CUDA graphs are recorded node by node (node) or as one op a launch (graph); chosen once, at attach.";
    CAPTURE "GAPPROBE_CAPTURE" "start" "0.1" false "start records from the first GPU use; profiler waits for cudaProfilerStart or gapprobe_capture(1).";
    BUDGET "GAPPROBE_BUDGET" "100" "0.1" false "What recording may cost, % of the run's time: beyond that (and two seconds) it goes on in windows (0.01 to 100; 100: everything is recorded).";
    WINDOW "GAPPROBE_WINDOW" "" "0.1" false "Windows as asked for: STEPS/EVERY, 20/2000 records the first 20 of every 2,000 steps; all of them until steps are known (marks, or some 60 steps).";
    SLOW_STEP "GAPPROBE_SLOW_STEP" "1.5" "0.1" false "Between windows, eight steps in a row that take so many times the usual one open a window, and so does a step that does not come (1.05 to 100; 0: never).";
    FLIGHT "GAPPROBE_FLIGHT" "0" "0.1" false "Flight recorder: when steps become slow (GAPPROBE_SLOW_STEP) or nothing happens any more, a trace of the last so many seconds is written at once while the program goes on, at most one in five minutes and ten a process (1 to 600; 0: none).";
    SITES "GAPPROBE_SITES" "1" "0.1" false "0 leaves all stacks alone: no line of code, neither at calls (of Python, or the calling function of machine code) nor in samples.";
    FORCE "GAPPROBE_FORCE" "0" "0.1" false "1 records although another profiler (nsys, ncu, compute-sanitizer) seems to be around (0 or 1).";
    SAMPLE_HZ "GAPPROBE_SAMPLE_HZ" "100" "0.1" false "How often a second the threads that call CUDA are looked at: where they stand in Python, running or blocked in what (0 to 1000; 0: never).";
    KEEP_MB "GAPPROBE_KEEP_MB" "" "0.1" false "Room for this user's traces and summaries in GAPPROBE_DIR, MB: after a report the oldest of ended processes of this host go. Also the room for recordings that nobody recovered (4096 where unset). Unset or 0: traces and summaries are never removed.";
    KEEP_DAYS "GAPPROBE_KEEP_DAYS" "" "0.1" false "As GAPPROBE_KEEP_MB, by age in days (recordings: 7 where unset).";
    RUN_ID "GAPPROBE_RUN_ID" "" "0.1" true "Set by gapprobe run: ties recordings to the run that started them.";
    TEST_BARE "GAPPROBE_TEST_BARE" "0" "0.1" true "1 starts with empty callbacks and buffer handlers (bare CUPTI); gapprobe_test_bare(0/1) switches.";
    TEST_DEVICE_POOL "GAPPROBE_TEST_DEVICE_POOL" "" "0.1" true "CUPTI's device buffers: bytes of one, most of them, how many ahead.";
    TEST_CLOCK "GAPPROBE_TEST_CLOCK" "" "0.1" true "Set: clock and sleeps are what the loader finds, a test's own.";
    TEST_FREE_MS "GAPPROBE_TEST_FREE_MS" "2000" "0.1" true "What recording may cost before its budget counts, ms.";
    TEST_KEEP "GAPPROBE_TEST_KEEP" "0" "0.1" true "1 keeps the recording after the report was written from it.";
    TEST_ROOT "GAPPROBE_TEST_ROOT" "/tmp" "0.1" true "The folder in place of /tmp where TMPDIR cannot be used for recordings.";
    TEST_RAW "GAPPROBE_TEST_RAW" "" "0.1" true "File that gets the raw CUPTI records as they arrive.";
}

#[cfg(test)]
mod tests {
    use super::*;

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
