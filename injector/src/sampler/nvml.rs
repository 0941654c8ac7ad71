// SPDX-License-Identifier: Apache-2.0
// WARM
//! What the GPU's own management library says, once a second, of the devices this process works on:
//! utilisation, power, clock, why it is held down, memory, its counters ([`gpm`]). A thread of its
//! own that does nothing else: a call that hangs holds up nothing, one slower than 100 ms is the
//! last.
//!
//! NVML numbers devices in its own order and knows nothing of CUDA_VISIBLE_DEVICES: a device is
//! found by the UUID, else the PCI address, that the driver tells for its ordinal. A slice of a GPU
//! (MIG) is not: these figures are those of the whole GPU, other people's work included.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void, CString};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trace::event::Gauge;

use super::gpm;
use super::handover::{devices, gauge, is_wanted, put, Item};
use crate::platform::threads;
use crate::platform::{clock, guard, lifecycle};
use crate::sources::cupti::devices;
use crate::sources::cupti::{choose, session};

/// Between two readings, ms.
const PERIOD_MS: u64 = 1000;
/// Readings from one that asks for all to the next.
const SELDOM: u64 = 10;
/// Longest call, ns.
const SLOW: u64 = 100_000_000;
/// NVML's number of the multiprocessors' clock.
const SM: c_uint = 1;
/// There are more than there was room for.
const INSUFFICIENT_SIZE: c_int = 7;

pub(super) type Device = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type OfName = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
type OfNumber = unsafe extern "C" fn(Device, *mut c_uint) -> c_int;
type OfNumbers = unsafe extern "C" fn(Device, *mut [c_uint; 2]) -> c_int;
type OfClock = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> c_int;
type OfReasons = unsafe extern "C" fn(Device, *mut u64) -> c_int;
type OfMemory = unsafe extern "C" fn(Device, *mut [u64; 3]) -> c_int;
/// How many there are, and room for them.
type OfProcesses = unsafe extern "C" fn(Device, *mut c_uint, *mut c_void) -> c_int;
type OfMig = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;

/// The functions used; those that a release lacks are not asked.
struct Nvml {
    by_uuid: Option<OfName>,
    by_pci: Option<OfName>,
    utilization: Option<OfNumbers>,
    power: Option<OfNumber>,
    power_limit: Option<OfNumber>,
    clock: Option<OfClock>,
    max_clock: Option<OfClock>,
    reasons: Option<OfReasons>,
    memory: Option<OfMemory>,
    mig: Option<OfMig>,
    processes: Option<OfProcesses>,
    gpm: Option<gpm::Functions>,
}

/// Calls into NVML.
struct Calls {
    /// The program exits: no call begins any more.
    are_over: AtomicBool,
    is_busy: AtomicBool,
}

static CALLS: Calls = Calls { are_over: AtomicBool::new(false), is_busy: AtomicBool::new(false) };

/// Runs before the library's own destructors (registered after it was loaded): lets a call under
/// way end.
extern "C" fn at_exit() {
    guard::guard((), || {
        CALLS.are_over.store(true, Ordering::SeqCst);
        let mut left = 50;
        while CALLS.is_busy.load(Ordering::SeqCst) && left > 0 && lifecycle::get() != lifecycle::State::Inert
        {
            threads::pause(1);
            left -= 1;
        }
    });
}

/// Runs `body` unless the program exits; the time it took, ns.
fn call(body: impl FnOnce()) -> Option<u64> {
    CALLS.is_busy.store(true, Ordering::SeqCst);
    let begin = clock::monotonic();
    let goes = !CALLS.are_over.load(Ordering::SeqCst);
    if goes {
        body();
    }
    let took = clock::monotonic().saturating_sub(begin);
    CALLS.is_busy.store(false, Ordering::SeqCst);
    goes.then_some(took)
}

fn open() -> Option<Nvml> {
    // SAFETY: a C string; NVML's constructors are safe at any time.
    let handle = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    let handle = NonNull::new(handle)?;
    // SAFETY: a function that lives as long as the process.
    unsafe { libc::atexit(at_exit) };
    macro_rules! function {
        ($kind:ty: $($name:literal),+) => {
            [$($name),+].into_iter().find_map(|name: &std::ffi::CStr| {
                // SAFETY: an open handle and a C string.
                let found = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
                NonNull::new(found).map(|found| {
                    // SAFETY: NVML's documented signature of the function of that name.
                    unsafe { std::mem::transmute::<*mut c_void, $kind>(found.as_ptr()) }
                })
            })
        };
    }
    let init = function!(Init: c"nvmlInit_v2", c"nvmlInit")?;
    let mut result = -1;
    // SAFETY: NVML's documented signature.
    call(|| result = unsafe { init() })?;
    let gpm = (
        function!(gpm::Query: c"nvmlGpmQueryDeviceSupport"),
        function!(gpm::Alloc: c"nvmlGpmSampleAlloc"),
        function!(gpm::Take: c"nvmlGpmSampleGet"),
        function!(gpm::Compute: c"nvmlGpmMetricsGet"),
    );
    let functions = if let (Some(query), Some(alloc), Some(take), Some(compute)) = gpm {
        Some(gpm::Functions { query, alloc, take, compute })
    } else {
        None
    };
    (result == 0).then(|| Nvml {
        by_uuid: function!(OfName: c"nvmlDeviceGetHandleByUUID"),
        by_pci: function!(OfName: c"nvmlDeviceGetHandleByPciBusId_v2", c"nvmlDeviceGetHandleByPciBusId"),
        utilization: function!(OfNumbers: c"nvmlDeviceGetUtilizationRates"),
        power: function!(OfNumber: c"nvmlDeviceGetPowerUsage"),
        power_limit: function!(OfNumber: c"nvmlDeviceGetEnforcedPowerLimit"),
        clock: function!(OfClock: c"nvmlDeviceGetClockInfo"),
        max_clock: function!(OfClock: c"nvmlDeviceGetMaxClockInfo"),
        reasons: function!(
            OfReasons: c"nvmlDeviceGetCurrentClocksEventReasons",
            c"nvmlDeviceGetCurrentClocksThrottleReasons"
        ),
        memory: function!(OfMemory: c"nvmlDeviceGetMemoryInfo"),
        mig: function!(OfMig: c"nvmlDeviceGetMigMode"),
        processes: function!(
            OfProcesses: c"nvmlDeviceGetComputeRunningProcesses_v3",
            c"nvmlDeviceGetComputeRunningProcesses_v2"
        ),
        gpm: functions,
    })
}

/// Its PCI address, by which NVML may know the device with this CUDA ordinal, too.
fn pci_address(ordinal: u32) -> Option<[u8; 32]> {
    let address = session::symbol(&choose::driver()?, c"cuDeviceGetPCIBusId")?;
    // SAFETY: the driver's documented signature; device handles are ordinals.
    let get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32 = unsafe { std::mem::transmute(address) };
    let mut text = [0u8; 32];
    // SAFETY: a buffer and a length within it: the last byte stays zero.
    (unsafe { get(text.as_mut_ptr().cast(), 31, ordinal as c_int) } == 0).then_some(text)
}

impl Nvml {
    /// The device with this CUDA ordinal, by a name that both sides know; `Err`: why there is none.
    fn find(&self, ordinal: u32) -> Result<Device, &'static str> {
        let uuid = devices::uuid(ordinal).and_then(|uuid| CString::new(uuid).ok());
        let pci = pci_address(ordinal);
        let mut device: Device = std::ptr::null_mut();
        let mut is_found = false;
        if let (Some(get), Some(uuid)) = (self.by_uuid, &uuid) {
            // SAFETY: a C string and an out-pointer.
            is_found = unsafe { get(uuid.as_ptr(), &mut device) } == 0;
        }
        if let (Some(get), Some(pci), false) = (self.by_pci, &pci, is_found) {
            // SAFETY: as above.
            is_found = unsafe { get(pci.as_ptr().cast(), &mut device) } == 0;
        }
        if !is_found || device.is_null() {
            return Err("not found by UUID or PCI address");
        }
        let (mut now, mut later) = (0, 0);
        if let Some(get) = self.mig {
            // SAFETY: a device of NVML's and out-pointers.
            if unsafe { get(device, &mut now, &mut later) } == 0 && now == 1 {
                return Err("a slice of a GPU (MIG)");
            }
        }
        Ok(device)
    }

    /// The figures of a device; with `all` those that hardly change, too.
    fn read(&self, device: Device, all: bool, mut f: impl FnMut(Gauge, u64)) {
        let number = |get: Option<OfNumber>| {
            let mut value = 0;
            // SAFETY: a device of NVML's and an out-pointer.
            (unsafe { get?(device, &mut value) } == 0).then_some(u64::from(value))
        };
        let clock = |get: Option<OfClock>| {
            let mut value = 0;
            // SAFETY: as above.
            (unsafe { get?(device, SM, &mut value) } == 0).then_some(u64::from(value))
        };
        let mut rates = [0; 2];
        let mut reasons = 0;
        let mut memory = [0; 3];
        // SAFETY: as above.
        let utilization = self.utilization.filter(|get| unsafe { get(device, &mut rates) } == 0);
        // SAFETY: as above.
        let has_reasons = self.reasons.filter(|get| unsafe { get(device, &mut reasons) } == 0);
        // SAFETY: as above; total, free, used.
        let has_memory = self.memory.filter(|get| unsafe { get(device, &mut memory) } == 0);
        let [_, _, used] = memory;
        let [busy, _] = rates;
        let figures = [
            (Gauge::Utilization, utilization.map(|_| u64::from(busy))),
            (Gauge::PowerMw, number(self.power)),
            (Gauge::SmClockMhz, clock(self.clock)),
            (Gauge::ThrottleReasons, has_reasons.map(|_| reasons)),
            (Gauge::MemoryUsed, has_memory.map(|_| used)),
            (Gauge::SmClockMaxMhz, clock(self.max_clock.filter(|_| all))),
            (Gauge::PowerLimitMw, number(self.power_limit.filter(|_| all))),
        ];
        for (gauge, value) in figures {
            if let Some(value) = value {
                f(gauge, value);
            }
        }
    }
}

impl Nvml {
    /// How many processes have the device in use.
    fn processes(&self, device: Device) -> Option<u64> {
        let (get, mut count) = (self.processes?, 0);
        // SAFETY: a device of NVML's, an out-pointer, and room for none: their number is all that
        // is asked for.
        let result = unsafe { get(device, &mut count, std::ptr::null_mut()) };
        [0, INSUFFICIENT_SIZE].contains(&result).then_some(u64::from(count))
    }
}

fn say(text: &str) {
    put(Item::Attribute("nvml".into(), text.into()));
}

fn say_of_counters(ordinal: u32, why: &str) {
    put(Item::Attribute("nvml.gpm".into(), format!("device {ordinal}: {why}")));
}

/// A device that is looked at.
struct Known {
    handle: Device,
    counters: Option<gpm::Counters>,
    readings: u64,
}

impl Known {
    fn of(nvml: &Nvml, ordinal: u32) -> Option<Known> {
        let found = nvml.find(ordinal);
        if let Err(why) = found {
            say(&format!("device {ordinal}: {why}"));
        }
        let handle = found.ok()?;
        let counters = gpm::Counters::of(nvml.gpm, handle);
        if let Err(why) = &counters {
            say_of_counters(ordinal, why);
        }
        Some(Known { handle, counters: counters.ok(), readings: 0 })
    }

    /// What is read behind the other figures, which it may not cost: its counters, and seldom who
    /// uses it. `false`: the program exits.
    fn more(&mut self, nvml: &Nvml, ordinal: u32, is_sampled: bool) -> bool {
        let is_seldom = self.readings % SELDOM == 0;
        let is_first = self.readings == 0;
        self.readings += 1;
        let Some(counters) = &mut self.counters else { return true };
        let mut read = Ok(());
        let took = call(|| {
            if let Some(n) = is_seldom.then(|| nvml.processes(self.handle)).flatten() {
                let now = clock::monotonic();
                put(gauge(Gauge::Processes, ordinal, now, now, n));
            }
            read = match is_sampled {
                true => Err("a tool in this process samples them (libnvperf)".into()),
                false => counters.read(|which, from, to, value| {
                    put(gauge(which, ordinal, from, to, value));
                }),
            };
        });
        let Some(took) = took else { return false };
        if took > SLOW && !is_first {
            read = Err(format!("off: a reading took {} ms", took / 1_000_000));
        }
        if let Err(why) = read {
            say_of_counters(ordinal, &why);
            self.counters = None;
        }
        true
    }
}

/// The thread's body.
pub(super) fn run() {
    let mut nvml = None;
    let mut known: HashMap<u32, Option<Known>> = HashMap::new();
    loop {
        std::thread::sleep(Duration::from_millis(PERIOD_MS));
        if lifecycle::get() != lifecycle::State::Recording || CALLS.are_over.load(Ordering::SeqCst) {
            return;
        }
        if !is_wanted() || devices() == 0 {
            continue;
        }
        // loaded only now: a program that is done within a second is spared it
        let nvml = match &mut nvml {
            Some(nvml) => nvml,
            none => match open() {
                Some(opened) => none.insert(opened),
                None => return say("not to be had"),
            },
        };
        let is_sampled = gpm::are_sampled_by_another();
        for ordinal in (0..64).filter(|o| devices() >> o & 1 == 1) {
            let is_first = !known.contains_key(&ordinal);
            let took = call(|| {
                let device = known.entry(ordinal).or_insert_with(|| Known::of(nvml, ordinal));
                let Some(device) = device else { return };
                let now = clock::monotonic();
                nvml.read(device.handle, device.readings % SELDOM == 0, |which, value| {
                    put(gauge(which, ordinal, now, now, value));
                });
            });
            match took {
                None => return,
                // the first look at a device may wake it
                Some(took) if took > SLOW && !is_first => {
                    return say(&format!("off: a reading took {} ms", took / 1_000_000));
                }
                Some(_) => {}
            }
            let Some(device) = known.get_mut(&ordinal).and_then(Option::as_mut) else { continue };
            if !device.more(nvml, ordinal, is_sampled) {
                return;
            }
        }
    }
}
