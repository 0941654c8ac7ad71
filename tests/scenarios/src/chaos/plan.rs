// SPDX-License-Identifier: Apache-2.0
//! What one random run is: everything follows from its seed.

/// Ways out of `victims/chaos.c` at which no exit handler runs.
const ABRUPT: [&str; 7] = ["_exit", "quick", "abort", "segv", "sigterm", "sigkill", "exec"];
/// Ways out at which exit handlers run.
const ORDERLY: [&str; 5] = ["return", "exit", "thread", "last", "handler"];
/// Refusals after which there is nothing to record: gapprobe says one line (`faults.rs`), or the
/// program itself fails.
pub const NOTHING: [&str; 4] = ["register=error1", "timestamp=error1", "enable:10=error2", "cuinit=error100"];

/// What is wrong with the folders that gapprobe writes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nothing.
    Fine,
    /// TMPDIR is a disk of so many bytes.
    SmallTmp(u32),
    /// GAPPROBE_DIR is a disk of so many bytes.
    SmallDir(u32),
    /// TMPDIR cannot be written.
    NoTmp,
    /// GAPPROBE_DIR cannot be written.
    NoDir,
    /// `ulimit -f`, bytes.
    FileLimit(u32),
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All of it follows from this.
    pub seed: u64,
    /// Release of CUPTI.
    pub release: &'static str,
    /// Random actions of the program.
    pub actions: u64,
    /// Its way out.
    pub way: &'static str,
    /// A signal from outside, and when, ms after the start.
    pub kill: Option<(i32, f64)>,
    /// Faults of the simulated driver.
    pub faults: Vec<String>,
    /// Where it writes.
    pub place: Place,
    /// The recording stays after the report.
    pub keep: bool,
    /// Settings.
    pub settings: Vec<(&'static str, &'static str)>,
}

/// splitmix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `least` to `most`.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next() % n == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }
}

fn fault(random: &mut Random) -> String {
    match random.between(0, 11) {
        0 => format!("zero_ts:every={}", random.between(5, 500)),
        1 => "backward_ts".into(),
        2 | 3 => format!("drop:every={}", random.between(5, 2000)),
        4 => format!("name={}", random.of(&["null", "unmapped", "reused"])),
        5 => format!("flush=slow:{}ms", random.between(1, 400)),
        6 => random.of(&["flush=hang", "flush=error999"]).into(),
        7 => format!("worker=slow:{}ms", random.between(1, 20)),
        8 => "subscribe=39".into(),
        9 => random.of(&["enable:38=error1", "attribute:9=error1", "attribute:0=error15"]).into(),
        10 => random.of(&["callback:2.131=error1", "filter:2.211=error1", "disable:10=error1"]).into(),
        _ => random.of(&NOTHING).into(),
    }
}

fn place(random: &mut Random) -> Place {
    match random.between(0, 5) {
        0 | 1 => Place::SmallTmp(random.of(&[4096, 40_960, 65_536, 400_000])),
        2 => Place::SmallDir(random.of(&[4096, 40_960, 65_536])),
        3 => Place::NoTmp,
        4 => Place::NoDir,
        // (the program's own output must fit)
        _ => Place::FileLimit(random.of(&[20_000, 100_000, 1_000_000])),
    }
}

impl Plan {
    /// The run of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut random = Random(seed);
        let random = &mut random;
        let killed = random.one_in(3);
        let way = match (killed, random.one_in(3)) {
            (true, _) => "forever",
            (_, true) => random.of(&ABRUPT),
            _ => random.of(&ORDERLY),
        };
        let signal = random.of(&[libc::SIGKILL, libc::SIGKILL, libc::SIGKILL, libc::SIGTERM]);
        let after = random.between(1, 1400) as f64 + random.between(0, 999) as f64 / 1000.0;
        let mut faults: Vec<String> = Vec::new();
        if !random.one_in(3) {
            for _ in 0..random.between(1, 3) {
                let one = fault(random);
                let what = one.split(['=', ':']).next().unwrap_or("");
                if !faults.iter().any(|f| f.split(['=', ':']).next() == Some(what)) {
                    faults.push(one);
                }
            }
        }
        let place = match random.one_in(4) {
            true => place(random),
            false => Place::Fine,
        };
        let mut settings = Vec::new();
        for (name, values) in [
            ("GAPPROBE_MAX_MB", ["64", "1024"]),
            ("GAPPROBE_SAMPLE_HZ", ["1000", "0"]),
            ("SIM_LAUNCH_NS", ["300", "20000"]),
            ("SIM_QUEUE", ["16", "200"]),
        ] {
            if random.one_in(5) {
                settings.push((name, random.of(&values)));
            }
        }
        Plan {
            seed,
            release: random.of(&crate::RELEASES),
            actions: random.between(2, 14),
            way,
            kill: killed.then_some((signal, after)),
            faults,
            // a program that does not come to an end writes more of its own than fits
            place: if killed && matches!(place, Place::FileLimit(_)) { Place::NoTmp } else { place },
            keep: random.one_in(2),
            settings,
        }
    }

    /// Is a fault that begins so among them?
    pub fn has(&self, start: &str) -> bool {
        self.faults.iter().any(|f| f.starts_with(start))
    }

    /// Nothing is recorded at all.
    pub fn records_nothing(&self) -> bool {
        NOTHING.iter().any(|f| self.has(f))
    }

    /// The kinds of trouble in it, for the table.
    pub fn troubles(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .faults
            .iter()
            .map(|f| match f.split_once('=') {
                Some((what, value)) => match value.split(':').next() {
                    Some(word) if word.parse::<u64>().is_err() => format!("{what}={word}"),
                    _ => what.to_owned(),
                },
                None => f.clone(),
            })
            .collect();
        all.push(match self.place {
            Place::Fine => String::new(),
            Place::SmallTmp(_) => "disk full: TMPDIR".into(),
            Place::SmallDir(_) => "disk full: GAPPROBE_DIR".into(),
            Place::NoTmp => "TMPDIR not to be written".into(),
            Place::NoDir => "GAPPROBE_DIR not to be written".into(),
            Place::FileLimit(_) => "limit on file sizes".into(),
        });
        all.push(match self.kill {
            Some((libc::SIGKILL, _)) => "SIGKILL at a random moment".into(),
            Some(_) => "SIGTERM at a random moment".into(),
            None => format!("way out: {}", self.way),
        });
        all.retain(|t| !t.is_empty());
        all
    }
}
