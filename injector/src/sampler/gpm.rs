// SPDX-License-Identifier: Apache-2.0
// WARM
//! How well the GPU's units are used, by its own counters: NVML's GPM, on Hopper and newer. On the
//! thread of [`super::nvml`], a sample each time; two of them give the figures of the time between.
//! Over less than about a second those are wrong by whole multiples (H200, 2026-11-27), so the
//! period must not be shorter. They are of the whole device, other processes' work included.
//!
//! Where a tool samples performance counters in this process (by libnvperf) we do not: both read
//! the same counters.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use trace::event::Gauge;

use super::nvml::Device;
use crate::platform::clock;
use crate::sources::cupti::choose;

/// Metrics that there is room for, more than in any release's structure (98 in 12.0, 333 in 13.0):
/// none writes beyond `count` of them.
const ROOM: usize = 512;
/// `NVML_GPM_METRICS_GET_VERSION` and `NVML_GPM_SUPPORT_VERSION`, the same since 12.0.
const VERSION: c_uint = 1;
/// What is more than so far apart is no neighbour (a pause between), ns.
const LONGEST: u64 = 3_000_000_000;
/// ... or less: see above.
const SHORTEST: u64 = 900_000_000;
const NOT_SUPPORTED: c_int = 3;
const NO_PERMISSION: c_int = 4;
/// So many failures in a row, and nothing more is asked.
const FAILURES: u32 = 3;

/// In percent; stored in hundredths of one.
const PERCENT: f64 = 100.0;
/// In MiB a second; stored in bytes.
const MIB: f64 = 1_048_576.0;
/// More than this is no reading: a part of a whole, a hundred TB a second.
const MOST: [(f64, f64); 2] = [(PERCENT, 101.0), (MIB, 1e8)];

/// What is asked for, by `nvmlGpmMetricId_t`.
const METRICS: [(c_uint, Gauge, f64); 12] = [
    (2, Gauge::SmActive, PERCENT),
    (3, Gauge::SmOccupancy, PERCENT),
    (5, Gauge::TensorActive, PERCENT),
    (10, Gauge::DramActive, PERCENT),
    (11, Gauge::Fp64Active, PERCENT),
    (12, Gauge::Fp32Active, PERCENT),
    (13, Gauge::Fp16Active, PERCENT),
    (4, Gauge::IntegerActive, PERCENT),
    (20, Gauge::PcieSent, MIB),
    (21, Gauge::PcieReceived, MIB),
    (60, Gauge::NvlinkReceived, MIB),
    (61, Gauge::NvlinkSent, MIB),
];

pub(super) type Sample = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct Metric {
    id: c_uint,
    result: c_int,
    value: f64,
    /// Short name, long name, unit.
    texts: [*const c_char; 3],
}

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct Metrics {
    version: c_uint,
    count: c_uint,
    from: Sample,
    to: Sample,
    all: [Metric; ROOM],
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
pub(super) struct Support {
    version: c_uint,
    is_supported: c_uint,
}

pub(super) type Query = unsafe extern "C" fn(Device, *mut Support) -> c_int;
pub(super) type Alloc = unsafe extern "C" fn(*mut Sample) -> c_int;
pub(super) type Take = unsafe extern "C" fn(Device, Sample) -> c_int;
pub(super) type Compute = unsafe extern "C" fn(*mut c_void) -> c_int;

/// NVML's functions.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) query: Query,
    pub(super) alloc: Alloc,
    pub(super) take: Take,
    pub(super) compute: Compute,
}

/// The counters of one device.
pub(super) struct Counters {
    functions: Functions,
    device: Device,
    /// The newest sample and one to take the next into. (They live as long as the process.)
    samples: [Sample; 2],
    /// When the newest was taken, ns; 0: none was.
    taken: u64,
    metrics: Box<Metrics>,
    /// Readings in a row that failed.
    failures: u32,
}

impl Counters {
    /// Those of this device; `Err`: why there are none.
    pub(super) fn of(functions: Option<Functions>, device: Device) -> Result<Counters, String> {
        let functions = functions.ok_or("this driver has none (525 and newer do)")?;
        let mut support = Support { version: VERSION, is_supported: 0 };
        // SAFETY: a device of NVML's and a structure of its form.
        let result = unsafe { (functions.query)(device, &mut support) };
        if ![0, NOT_SUPPORTED].contains(&result) {
            return Err(why(result));
        }
        if result != 0 || support.is_supported == 0 {
            return Err("this GPU has none (Hopper and newer do)".into());
        }
        let mut samples = [null_mut(); 2];
        for sample in &mut samples {
            // SAFETY: an out-pointer.
            let result = unsafe { (functions.alloc)(sample) };
            if result != 0 || sample.is_null() {
                return Err(why(result));
            }
        }
        let metric = |n: usize| Metric {
            id: METRICS.get(n).map_or(0, |m| m.0),
            result: 0,
            value: 0.0,
            texts: [null(); 3],
        };
        let metrics = Box::new(Metrics {
            version: VERSION,
            count: METRICS.len() as c_uint,
            from: null_mut(),
            to: null_mut(),
            all: std::array::from_fn(metric),
        });
        Ok(Counters { functions, device, samples, taken: 0, metrics, failures: 0 })
    }

    /// Takes a sample, and tells the figures since the last one; `Err`: why there are none any
    /// more.
    pub(super) fn read(&mut self, mut f: impl FnMut(Gauge, u64, u64, u64)) -> Result<(), String> {
        let [newest, next] = self.samples;
        // SAFETY: a device and a sample of NVML's.
        let result = unsafe { (self.functions.take)(self.device, next) };
        if result != 0 {
            return self.failed(result);
        }
        let now = clock::monotonic();
        let before = std::mem::replace(&mut self.taken, now);
        self.samples = [next, newest];
        if before == 0 || !(SHORTEST..LONGEST).contains(&now.saturating_sub(before)) {
            return Ok(());
        }
        (self.metrics.from, self.metrics.to) = (newest, next);
        // SAFETY: two samples of one device, and a structure of NVML's form with room for more
        // metrics than it is asked for.
        let result = unsafe { (self.functions.compute)(std::ptr::from_mut(&mut *self.metrics).cast()) };
        if result != 0 {
            return self.failed(result);
        }
        self.failures = 0;
        for ((_, gauge, unit), metric) in METRICS.iter().zip(&self.metrics.all) {
            let most = MOST.iter().find(|(of, _)| of == unit).map_or(0.0, |(_, most)| *most);
            if metric.result == 0 && (0.0..most).contains(&metric.value) {
                f(*gauge, before, now, (metric.value * unit).round() as u64);
            }
        }
        Ok(())
    }

    /// A reading failed; `Err`: as often as it may.
    fn failed(&mut self, result: c_int) -> Result<(), String> {
        self.failures += 1;
        let is_over = result == NO_PERMISSION || self.failures >= FAILURES;
        if is_over {
            Err(why(result))
        } else {
            Ok(())
        }
    }
}

fn why(result: c_int) -> String {
    match result {
        NO_PERMISSION => "not permitted".into(),
        result => format!("NVML's error {result}"),
    }
}

/// Has somebody in this process loaded what counters are sampled with?
pub(super) fn are_sampled_by_another() -> bool {
    choose::find(&["/libnvperf_target.so"], 0).is_some()
}
