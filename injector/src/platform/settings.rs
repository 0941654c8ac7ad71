// SPDX-License-Identifier: Apache-2.0
// COLD
//! The `GAPPROBE_*` variables (table in `trace::setting`), read once at attach. An empty value is
//! none. Values that make no sense are replaced by the default (`GAPPROBE` itself: by off) and all
//! said in one line.

use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use spool::retention::Keep;
use trace::setting::{self, Switch};

use crate::platform::{environment, identity};

/// Windows of a budget last about this long, ns: the gap sampler looks 100 times a second, and
/// warm-up is left out of each.
pub(crate) const WINDOW_NS: u64 = 2_000_000_000;

/// Which part of the run is to be recorded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Wish {
    /// Everything.
    All,
    /// As much as costs this share of the time.
    Budget(f64),
    /// The first steps of every so many.
    Fixed { steps: u64, every: u64 },
}

impl Wish {
    /// May recording go off and on?
    pub(crate) fn switches(self) -> bool {
        self != Wish::All
    }

    /// What recording may cost, as a share of the time, where it is all that can be had.
    pub(crate) fn share(self) -> f64 {
        match self {
            Wish::All => 1.0,
            Wish::Budget(share) => share,
            Wish::Fixed { .. } => USUAL_BUDGET / 100.0,
        }
    }
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Directory of trace and summary, as it was given: [`Settings::folder`].
    pub(crate) directory: PathBuf,
    /// Bytes for everything of ours in host memory.
    pub(crate) max_bytes: usize,
    /// Longest delay of the program's exit, ms.
    pub(crate) exit_ms: u64,
    /// Path of a libcupti.
    pub(crate) cupti: Option<PathBuf>,
    /// Print on every rank.
    pub(crate) print_all: bool,
    /// Print nothing.
    pub(crate) quiet: bool,
    /// Record beside other profilers.
    pub(crate) force: bool,
    /// Graph launches as one op.
    pub(crate) graph_level: bool,
    /// Wait for cudaProfilerStart.
    pub(crate) capture_waits: bool,
    /// Windows.
    pub(crate) windows: Wish,
    /// What recording may cost before its budget counts, ns (test switch).
    pub(crate) free_ns: u64,
    /// How long a window of a budget lasts, ns (test switch).
    pub(crate) window_ns: u64,
    /// A step is slow that takes so many usual ones; 0: none is.
    pub(crate) slow_step: f64,
    /// What the flight recorder writes is of so long, ns; 0: there is none.
    pub(crate) flight_ns: u64,
    /// Do not read Python's frames, nor look for callers.
    pub(crate) no_sites: bool,
    /// What is kept of earlier results and recordings.
    pub(crate) keep: Keep,
    /// Looks of the gap sampler a second; 0: none.
    pub(crate) sample_hz: u64,
    /// NVML is asked nothing.
    pub(crate) no_nvml: bool,
    /// How many TFLOP a step does on one GPU; 0: not told.
    pub(crate) step_tflop: f64,
    /// Id of the `gapprobe run` around us.
    pub(crate) run_id: Option<String>,
    /// Start with empty handlers (test switch).
    pub(crate) test_bare: bool,
    /// CUPTI's device buffers: bytes of one, most, how many ahead (test switch).
    pub(crate) test_device_pool: Option<[usize; 3]>,
    /// Kinds of records that are left out (test switch).
    pub(crate) test_without: Vec<u32>,
    /// Keep the recording after the report (test switch).
    pub(crate) test_keep: bool,
    /// File for raw CUPTI records (test switch).
    pub(crate) test_raw: Option<PathBuf>,
    /// The values that made no sense.
    pub(crate) complaints: Complaints,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// Those of this process, read now where they have not been.
pub(crate) fn of_process() -> &'static Settings {
    SETTINGS.get_or_init(read)
}

/// Those of this process; `None` before they are read, at attach.
pub(crate) fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

impl Settings {
    /// Does this rank say what is going on (the first one, or all: `GAPPROBE_PRINT`)?
    pub(crate) fn speaks(&self) -> bool {
        self.print_all || identity::ranks().0.is_none_or(|rank| rank == 0)
    }

    /// Where trace and summary go now: a relative directory is one of where the program was
    /// started, wherever it went since. `.` only where it still stands there: then the name alone
    /// is what one types.
    pub(crate) fn folder(&self) -> PathBuf {
        let Some(start) = identity::started_in() else { return self.directory.clone() };
        if self.directory == Path::new(".") && std::env::current_dir().is_ok_and(|now| now == *start) {
            return self.directory.clone();
        }
        let folder = start.join(&self.directory);
        std::path::absolute(&folder).unwrap_or(folder)
    }
}

/// Values that made no sense, each said in a part of a sentence.
#[derive(Clone, Default, Debug)]
pub(crate) struct Complaints(Vec<String>);

impl Complaints {
    /// `is`: what is wrong with the value, and what holds instead.
    fn add(&mut self, name: &str, raw: &[u8], is: &str) {
        let raw = String::from_utf8_lossy(raw);
        let shown: String = raw.chars().filter(|c| !c.is_control()).take(40).collect();
        self.0.push(format!("{name}={shown} is {is}"));
    }

    /// A variable that is no setting, and the one that was meant.
    fn add_slip(&mut self, name: &str, meant: &str) {
        self.0.push(format!("{name} is no setting, {meant} is"));
    }

    /// The same and what is wrong with `GAPPROBE_CUPTI`, where that was not needed.
    pub(crate) fn and(mut self, one: Option<String>) -> Complaints {
        self.0.extend(one);
        self
    }

    /// `text` (may be empty) and all of them; `None` where there is nothing to say.
    pub(crate) fn with(&self, text: &str) -> Option<String> {
        let parts = Some(text).filter(|t| !t.is_empty()).into_iter().chain(self.0.iter().map(String::as_str));
        Some(parts.collect::<Vec<_>>().join("; ")).filter(|all| !all.is_empty())
    }
}

/// The value of `name` if it is one that `is_good`, else `default`; `good`: which ones are, in
/// words.
fn parsed<T: FromStr + Display>(
    name: &str,
    good: impl FnOnce() -> String,
    is_good: impl Fn(&T) -> bool,
    default: T,
    complaints: &mut Complaints,
) -> T {
    let Some(raw) = environment::value(name) else { return default };
    match std::str::from_utf8(raw).ok().and_then(|t| t.trim().parse().ok()).filter(is_good) {
        Some(n) => n,
        None => {
            complaints.add(name, raw, &format!("not {}, using {default}", good()));
            default
        }
    }
}

fn number(name: &str, low: u64, high: u64, default: u64, complaints: &mut Complaints) -> u64 {
    let good = || format!("a number from {low} to {high}");
    parsed(name, good, |n| (low..=high).contains(n), default, complaints)
}

fn choice(name: &str, allowed: [&str; 2], complaints: &mut Complaints) -> bool {
    let Some(raw) = environment::value(name) else { return false };
    match allowed.iter().position(|a| raw == a.as_bytes()) {
        Some(i) => i == 1,
        None => {
            let [a, b] = allowed;
            complaints.add(name, raw, &format!("neither {a} nor {b}, using {a}"));
            false
        }
    }
}

/// As [`number`]; 0 is good, too, where `or_zero` says so.
fn decimal(name: &str, low: f64, high: f64, or_zero: bool, default: f64, complaints: &mut Complaints) -> f64 {
    let good = || format!("a number from {low} to {high}{}", if or_zero { ", nor 0" } else { "" });
    parsed(name, good, |n| (low..=high).contains(n) || or_zero && *n == 0.0, default, complaints)
}

/// GAPPROBE_BUDGET where it is not set, % of the time.
const USUAL_BUDGET: f64 = 0.5;
/// Most steps from one window to the next.
const MOST_STEPS: u64 = 1 << 40;

/// `flies`: the flight recorder is asked for, which needs all to be recorded.
fn windows(flies: bool, complaints: &mut Complaints) -> Wish {
    let usual = if flies { 100.0 } else { USUAL_BUDGET };
    let budget = decimal(setting::BUDGET, 0.01, 100.0, false, usual, complaints);
    let wish = if budget >= 100.0 { Wish::All } else { Wish::Budget(budget / 100.0) };
    let Some(raw) = environment::value(setting::WINDOW).filter(|v| !v.trim_ascii().is_empty()) else {
        return wish;
    };
    let text = std::str::from_utf8(raw).unwrap_or("");
    let parts = text.split_once('/').map(|(a, b)| (a.trim().parse::<u64>(), b.trim().parse::<u64>()));
    match parts {
        Some((Ok(steps), Ok(every))) if steps > 0 && steps < every && every <= MOST_STEPS => {
            Wish::Fixed { steps, every }
        }
        _ => {
            let good = "STEPS/EVERY with fewer steps recorded than there are, as 20/2000";
            complaints.add(setting::WINDOW, raw, &format!("not {good}, using {}", setting::BUDGET));
            wish
        }
    }
}

/// Reads all settings.
pub(crate) fn read() -> Settings {
    let mut complaints = Complaints::default();
    if let (Switch::Neither, Some(raw)) = (switch(), environment::value(setting::SWITCH)) {
        complaints.add(setting::SWITCH, raw, "neither 1 (on) nor 0 (off), not recording");
    }
    for (name, meant) in environment::names("GAP").filter_map(|n| Some((n, setting::meant_by(n)?))) {
        complaints.add_slip(name, meant);
    }
    let max_mb = number(setting::MAX_MB, 64, 65_536, 256, &mut complaints);
    let exit_ms = number(setting::EXIT_MS, 0, 600_000, 2000, &mut complaints);
    let keep_mb = number(setting::KEEP_MB, 0, u64::from(u32::MAX), 0, &mut complaints);
    let keep_days = number(setting::KEEP_DAYS, 0, 36_500, 0, &mut complaints);
    let flight_s = number(setting::FLIGHT, 0, 600, 0, &mut complaints);
    let sample_hz = number(setting::SAMPLE_HZ, 0, 1000, 100, &mut complaints);
    Settings {
        sample_hz,
        windows: windows(flight_s > 0, &mut complaints),
        free_ns: number(setting::TEST_FREE_MS, 0, 3_600_000, 2000, &mut complaints) * 1_000_000,
        window_ns: number(setting::TEST_WINDOW_MS, 1, 60_000, WINDOW_NS / 1_000_000, &mut complaints)
            * 1_000_000,
        slow_step: decimal(setting::SLOW_STEP, 1.05, 100.0, true, 1.5, &mut complaints),
        flight_ns: flight_s * 1_000_000_000,
        keep: Keep::new(Some(keep_mb), Some(keep_days)),
        step_tflop: decimal(setting::STEP_TFLOP, 1e-6, 1e9, false, 0.0, &mut complaints),
        no_nvml: choice(setting::NVML, ["1", "0"], &mut complaints),
        no_sites: choice(setting::SITES, ["1", "0"], &mut complaints),
        directory: environment::path(setting::DIR).map_or_else(|| PathBuf::from("."), PathBuf::from),
        max_bytes: (max_mb as usize) << 20,
        exit_ms,
        cupti: environment::path(setting::CUPTI).map(PathBuf::from),
        print_all: choice(setting::PRINT, ["rank0", "all"], &mut complaints),
        quiet: choice(setting::QUIET, ["0", "1"], &mut complaints),
        force: choice(setting::FORCE, ["0", "1"], &mut complaints),
        graph_level: choice(setting::GRAPH, ["node", "graph"], &mut complaints),
        capture_waits: choice(setting::CAPTURE, ["start", "profiler"], &mut complaints),
        run_id: environment::text(setting::RUN_ID).map(str::to_owned),
        test_bare: choice(setting::TEST_BARE, ["0", "1"], &mut complaints),
        test_device_pool: environment::text(setting::TEST_DEVICE_POOL).and_then(|t| {
            let numbers: Vec<usize> = t.split(',').filter_map(|n| n.trim().parse().ok()).collect();
            numbers.try_into().ok()
        }),
        test_without: environment::text(setting::TEST_WITHOUT)
            .map_or_else(Vec::new, |t| t.split(',').filter_map(|n| n.trim().parse().ok()).collect()),
        test_keep: choice(setting::TEST_KEEP, ["0", "1"], &mut complaints),
        test_raw: environment::path(setting::TEST_RAW).map(PathBuf::from),
        complaints,
    }
}

/// What `GAPPROBE` says.
pub(crate) fn switch() -> Switch {
    Switch::of(environment::get(setting::SWITCH))
}

/// `GAPPROBE` says off, or the program is on the deny list or not on the allow list. Cheap enough
/// for the constructor: reads the environment and, only where a list is set, /proc/self/exe and
/// cmdline. (What is neither on nor off is said once CUDA is used, and switches off there.)
pub(crate) fn switched_off() -> bool {
    if switch() == Switch::Off {
        return true;
    }
    let (allow, deny) = (environment::value(setting::ALLOW), environment::value(setting::DENY));
    if allow.is_none() && deny.is_none() {
        return false;
    }
    // /usr/bin/python3 is a link, and the kernel tells where it leads to: the name it was called by
    // is its first argument's
    let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let called = identity::called_by();
    let base = |path: &Path| path.file_name().map_or_else(Vec::new, |n| n.as_bytes().to_vec());
    let names = [base(&called), base(&executable)];
    setting::kept_out(allow, deny, &names.each_ref().map(Vec::as_slice)).is_some()
}
