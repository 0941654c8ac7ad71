// SPDX-License-Identifier: Apache-2.0
// COLD
//! From being loaded to recording: the constructor points CUDA at this library, the driver calls us
//! inside `cuInit`, the first context or buffer starts the drain thread and the recording. Anything
//! missing: one line, and off.

use std::ffi::c_void;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use trace::header::Header;
use trace::setting::Switch;
use trace::{Loss, Total};

use crate::boot::copies;
use crate::collector::drain::{self, Recorder};
use crate::collector::flush;
use crate::duty_cycle::{self, Windows};
use crate::hooks::dlsym::{self, Answers};
use crate::hooks::opened::{self, Watched};
use crate::platform::settings::{self, Settings};
use crate::platform::threads::{self, spawn_quietly, Signal};
use crate::platform::{clock, environment, guard, identity, lifecycle, loader, losses, say};
use crate::recording::{crashes, writer};
use crate::sources::above::{self, Above};
use crate::sources::cupti::{arbiter, buffers, callbacks, choose, neighbours, raw, reroute, session};
use crate::sources::marks::nvtx;
use crate::sources::marks::program::Capture;
use crate::sources::{callers, hostpool, python};
use crate::store::image::Image;
use crate::store::Store;
use crate::{flight, sampler, shutdown};

/// How far we are.
struct Attach {
    took_ns: AtomicU64,
    is_begun: AtomicBool,
}

static ATTACH: Attach = Attach { took_ns: AtomicU64::new(0), is_begun: AtomicBool::new(false) };

/// Share of `GAPPROBE_MAX_MB` for the rings (the image); the report at exit needs about as much
/// again.
const IMAGE_SHARE: usize = 40;
/// ... and for the activity buffers, at most 32 MB.
const BUFFER_SHARE: usize = 12;

/// The path under which the loader has this library, absolute. `None` where it cannot be told.
fn own_path() -> Option<Vec<u8>> {
    let (_, name) = loader::object_of(own_path as *const c_void)?;
    let name = name.to_bytes();
    if name.first() == Some(&b'/') {
        return Some(name.to_vec());
    }
    use std::os::unix::ffi::OsStrExt;
    let mut path = std::env::current_dir().ok()?.as_os_str().as_bytes().to_vec();
    path.push(b'/');
    path.extend_from_slice(name.strip_prefix(b"./").unwrap_or(name));
    Some(path)
}

/// (Not linked into unit tests: they would run with their own environment changed.)
#[cfg_attr(test, expect(dead_code, reason = "as said"))]
/// The constructor: next to nothing. No thread, no file, no CUPTI; CUDA and NVTX are told where we
/// are, where nobody else is.
pub(crate) fn constructor() {
    // set-user-id programs take no instructions from their user's environment
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        lifecycle::set(lifecycle::State::Inert);
        return;
    }
    // loaded late (by the driver, say)?
    let is_alone = is_only_thread();
    if !is_alone {
        environment::keep();
    }
    if neighbours::is_launcher_that_wants_to_be_alone() {
        stay_away_from(None, is_alone);
        return;
    }
    if settings::switched_off() {
        lifecycle::set(lifecycle::State::Inert);
        return;
    }
    clock::at_load();
    say::remember_stderr();
    threads::remember_cpus();
    callers::at_load();
    identity::remember_directory();
    if copies::is_second() {
        lifecycle::set(lifecycle::State::Inert); // another copy of us records, or was told not to
        return;
    }
    if let Some(sign) = neighbours::under_one() {
        stay_away_from(Some(sign), is_alone);
        return;
    }
    dlsym::set(Answers { of_cupti: reroute::in_place_of, of_driver: duty_cycle::dlsym_hook::in_place_of });
    // (loaded late, it is too late for that, and the loader's lock is held while others may wait
    // for it)
    if is_alone {
        duty_cycle::static_cudart::lead();
    }
    let Some(path) = own_path() else { return };
    let nvtx = environment::get(nvtx::VARIABLE);
    let (for_cuda, for_nvtx) = match environment::get("CUDA_INJECTION64_PATH") {
        // NVTX itself loads us, some time in the run, and other threads may be reading the
        // environment
        None if nvtx == Some(&path) && !is_alone => (false, false),
        None => (true, nvtx.is_none()),
        // ours already (a child of ours), or switched off
        Some(taken) if taken == path || taken == b"none" => (false, false),
        // a copy that hands on to us
        Some(taken) if copies::is_ours(taken) => (false, is_alone && nvtx.is_none()),
        // (with threads or not: nsys's own are there before us)
        Some(taken) => {
            let is_forced = copies::beside(taken);
            (is_forced, is_forced && nvtx.is_none())
        }
    };
    let names = [("CUDA_INJECTION64_PATH", for_cuda), (nvtx::VARIABLE, for_nvtx)];
    let new: Vec<_> =
        names.iter().filter(|(_, is_ours)| *is_ours).map(|(name, _)| copies::entry(name, &path)).collect();
    if !new.is_empty() {
        environment::add(&new);
    }
}

/// In Nsight Compute's launcher, or in what it started, seen by `sign`: neither may name us to
/// CUDA. A shell that had us loaded did.
fn stay_away_from(sign: Option<&'static str>, is_alone: bool) {
    let own = std::process::id().to_string();
    let told = [copies::entry(neighbours::UNDER, own.as_bytes())];
    let is_wanted = sign.is_none() && settings::switch() != Switch::Off;
    if is_alone {
        environment::change(if is_wanted { &told } else { &[] }, &inherited());
    }
    lifecycle::set(lifecycle::State::Inert);
    if settings::switch() != Switch::Off {
        copies::stay_away(sign.unwrap_or("this program's name"));
    }
}

/// Of the variables that name us to CUDA and to NVTX those that do.
fn inherited() -> Vec<&'static str> {
    let names_us = |name: &&str| environment::get(name).is_some_and(copies::is_ours);
    ["CUDA_INJECTION64_PATH", nvtx::VARIABLE].into_iter().filter(names_us).collect()
}

/// Has the process one thread? `false` where that cannot be told. (A folder's links: itself, its
/// own dot, one a thread.)
fn is_only_thread() -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a C string and a valid out-pointer.
    let done = unsafe { libc::stat(c"/proc/self/task".as_ptr(), status.as_mut_ptr()) } == 0;
    // SAFETY: zeroed, and filled where stat succeeded.
    done && unsafe { status.assume_init() }.st_nlink == 3
}

/// `InitializeInjection`: inside `cuInit`, on the program's thread.
pub(crate) fn initialize() {
    if lifecycle::get() != lifecycle::State::Dormant || ATTACH.is_begun.swap(true, Ordering::AcqRel) {
        return;
    }
    let begin = clock::monotonic();
    environment::keep();
    let settings = settings::of_process();
    say::set_quiet(settings.quiet);
    if settings::switched_off() {
        lifecycle::set(lifecycle::State::Inert);
        return;
    }
    let switch = settings::switch();
    if switch == Switch::Neither {
        off(""); // what is said of the settings says it
        return;
    }
    if let (Some((tool, sign)), false) = (neighbours::other_profiler(), settings.force) {
        off(&format!(
            "not recording: {tool} seems to be around ({sign}); GAPPROBE_FORCE=1 records all the same"
        ));
        return;
    }
    if switch != Switch::On {
        if let Some(why) = crashes::why_off() {
            off(&format!(
                "not recording: this program {why}; it runs without gapprobe for 24 hours, GAPPROBE=1 records all the same"
            ));
            return;
        }
    }
    if arbiter::v2_is_here() {
        off(&format!("not recording: {}", arbiter::V2_HAS_IT));
        return;
    }
    let Some(driver) = choose::driver() else {
        lifecycle::set(lifecycle::State::Inert);
        return; // nobody but the driver calls this: without it there is nothing to say
    };
    let driver_version = session::driver_version(&driver);
    let _attaching = crashes::attaching();
    // before a libcupti is opened that would be a second one
    let mapped = choose::already_mapped();
    if let Some((theirs, is_open)) = neighbours::cupti_of_proton(mapped.as_ref().map(|l| Path::new(&l.path)))
    {
        if is_open || !settings.force {
            let way_out =
                if is_open { "" } else { "; GAPPROBE_FORCE=1 leads it to the one that gapprobe uses" };
            off(&format!(
                "not recording: Triton's Proton is loaded and profiles with a libcupti of its own, {}{way_out}",
                theirs.display()
            ));
            return;
        }
    }
    let library = match choose::library(settings.cupti.as_deref(), driver_version) {
        Ok(library) => library,
        Err(choose::NoCupti::NotFound) => {
            off("not recording: no libcupti found (pip install nvidia-cuda-cupti, or set GAPPROBE_CUPTI to its path); see gapprobe doctor");
            return;
        }
        Err(choose::NoCupti::BadSetting(path)) => {
            off(&format!("not recording: GAPPROBE_CUPTI={path} cannot be loaded; see gapprobe doctor"));
            return;
        }
    };
    let is_set = settings.cupti.as_deref().is_some_and(|set| set == Path::new(&library.path));
    if settings.test_bare {
        callbacks::set_bare(true);
        buffers::set_bare(true);
    }
    above::set(Above {
        first_use: begin_recording,
        on_mark: duty_cycle::on_mark,
        on_launch: duty_cycle::safepoint::on_launch,
        before_unload: drain::before_unload,
        settle: drain::settle,
        while_nobody_launches: duty_cycle::safepoint::alone,
    });
    lifecycle::set(lifecycle::State::Attached);
    register_leaving();
    if let Err(text) = session::open(&library, driver_version, settings) {
        // the text begins with the library's path, but where another client has it
        let setting = if is_set && text.starts_with('/') { "GAPPROBE_CUPTI=" } else { "" };
        off(&format!("not recording: {setting}{text}"));
        return;
    }
    ATTACH.took_ns.store(clock::monotonic().saturating_sub(begin), Ordering::Relaxed);
    let unused =
        settings.cupti.as_deref().filter(|_| !is_set).and_then(|set| choose::complaint(set, &library));
    if let Some(text) = settings.complaints.clone().and(unused).with("") {
        super::complain(&text);
    }
}

/// Not recording, and why: one line, with what is wrong in the settings.
fn off(text: &str) {
    lifecycle::set(lifecycle::State::Inert);
    let all = settings::get().and_then(|s| s.complaints.with(text));
    super::complain(all.as_deref().unwrap_or(text));
}

/// Exit and fork handlers. Called here and again with the first context: the driver's own exit
/// handlers may be registered between the two, and those registered later run earlier.
fn register_leaving() {
    extern "C" fn in_child() {
        // a few stores: the child has neither our thread nor CUPTI's
        guard::guard((), || {
            lifecycle::set(lifecycle::State::Inert);
            loader::in_child();
            duty_cycle::safepoint::in_child();
        });
    }
    shutdown::handler::register();
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::AcqRel) {
        // SAFETY: functions that live as long as the process (the library is never unmapped).
        unsafe { libc::pthread_atfork(Some(loader::before_fork), Some(loader::after_fork), Some(in_child)) };
    }
}

/// First GPU use, on the program's thread, once: starts our thread and waits until it has memory,
/// file and rings. All that is done there because the program's thread may have a stack of a few
/// KB.
fn begin_recording() {
    static READY: Signal = Signal::new();
    environment::keep(); // again: a launcher may have named the rank since
    register_leaving();
    python::start();
    if let Some(interpreter) = python::interpreter::address() {
        opened::lead(
            interpreter,
            [
                Watched { is_it: neighbours::is_dlsym_client, opened: |_| reroute::lead_loaded() },
                Watched {
                    is_it: duty_cycle::dlsym_hook::leads_what_is_loaded,
                    opened: duty_cycle::dlsym_hook::lead_loaded,
                },
            ],
        );
    }
    if let Some(settings) = settings::get() {
        // here and not on our thread: the program's may hold the loader's lock (a GPU used in a
        // constructor of a library)
        duty_cycle::prepare(settings);
    }
    // XLA's plugin may have come since we attached, and asks for the launches with the first of
    // them
    reroute::lead_loaded();
    let started = spawn_quietly("gapprobe", || {
        guard::guard((), prepare_recording);
        READY.set();
        if lifecycle::get() == lifecycle::State::Recording {
            drain::begin();
            drain::run();
        }
    });
    if !started {
        losses::add(Loss::NoDrainThread, 1);
        off("not recording: the background thread could not be started");
        return;
    }
    let begin = Instant::now();
    while !READY.is_set() && lifecycle::is_live() && begin.elapsed() < LONGEST_WAIT {
        READY.wait(Duration::from_millis(20)); // it may have been refused memory, and then sets nothing
    }
}

/// Longest the program's first use of a GPU waits for the rings.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Memory, file, rings, and the threads that flush and report. On our thread.
fn prepare_recording() {
    let begin = clock::monotonic();
    crashes::cuda_was_used();
    let Some(settings) = settings::get() else { return };
    let attaching = crashes::attaching();
    let pool = (settings.max_bytes / 100 * BUFFER_SHARE).min(buffers::MAX_BUFFERS * buffers::BUFFER_BYTES);
    let image = Image::map(settings.max_bytes / 100 * IMAGE_SHARE);
    let callers = callers::start(settings.no_sites);
    let (Some(image), true, true) = (image, hostpool::prepare(), buffers::prepare(pool)) else {
        off("not recording: no memory for the rings (GAPPROBE_MAX_MB)");
        return;
    };
    let (recorder, name) = new_recorder(image, settings, callers);
    *drain::recorder() = Some(recorder);
    if !writer::start(name, image) {
        losses::add(Loss::MirrorWrite, 1); // memory only
    }
    if !spawn_quietly("gapprobe-flush", flush::run) || !spawn_quietly("gapprobe-exit", shutdown::run) {
        losses::add(Loss::NoDrainThread, 1);
        off("not recording: the background thread could not be started");
        return;
    }
    lifecycle::set(lifecycle::State::Recording);
    drop(attaching);
    crashes::attached();
    copies::say_whose_nvtx();
    sampler::start();
    flight::start(settings, image);
    let spent = ATTACH.took_ns.load(Ordering::Relaxed) + clock::monotonic().saturating_sub(begin);
    if let Some(recorder) = drain::recorder().as_mut() {
        if let Some(slot) = recorder.header.totals.get_mut(Total::AttachNs as usize) {
            *slot = spent;
        }
    }
}

fn new_recorder(image: Image, settings: &Settings, callers: callers::Callers) -> (Recorder, String) {
    let (monotonic, realtime) = clock::pair();
    let (rank, world, local) = identity::ranks();
    let host = identity::host();
    // SAFETY: takes nothing, cannot fail.
    let pid = unsafe { libc::getpid() } as u32;
    // SAFETY: takes nothing, cannot fail.
    let uid = unsafe { libc::getuid() };
    let session = session::get();
    let own = spool::liveness::own();
    let header = Header {
        state: trace::header::state::RECORDING,
        segments: image.segments(),
        pid,
        uid,
        pid_namespace: own.namespace,
        process_start: own.start,
        start_monotonic: monotonic,
        start_realtime: realtime,
        first_use: session::first_use_at(),
        cupti_version: session.map_or(0, |s| s.version),
        driver_version: session.map_or(0, |s| s.driver_version),
        rank: rank.map_or(0, |r| r + 1),
        world_size: world.unwrap_or(0),
        local_rank: local.map_or(0, |r| r + 1),
        cpus: identity::cpus(),
        launch_cost_ns: duty_cycle::launch_ns(),
        boot_id: own.boot,
        command: identity::command(),
        gapprobe: concat!(env!("CARGO_PKG_VERSION")).to_owned(),
        host: host.clone(),
        ..Header::default()
    };
    let name = format!(
        "gapprobe-{host}-{pid}-{}-{:06x}.gpr",
        realtime / 1_000_000_000,
        clock::monotonic() & 0xff_ffff
    );
    let mut store = Store::new(image);
    store.attribute("gapprobe.version", env!("CARGO_PKG_VERSION"));
    if let Some(session) = session {
        store.attribute("cupti.path", &session.path);
    }
    let folder = settings.folder();
    let directory = std::path::absolute(&folder).unwrap_or(folder);
    store.attribute(trace::define::START, &format!("{:016x}", crashes::job()));
    store.attribute("directory", &directory.to_string_lossy());
    if let Some(directory) = identity::started_in() {
        store.attribute(trace::define::DIRECTORY, &directory.to_string_lossy());
    }
    if let Some(job) = identity::job() {
        store.attribute(trace::define::JOB, job);
    }
    if settings.step_tflop > 0.0 {
        store.attribute(trace::define::STEP_TFLOP, &settings.step_tflop.to_string());
    }
    if let Some(id) = &settings.run_id {
        store.attribute(trace::define::RUN, id);
    }
    let capture = if settings.capture_waits { Capture::waiting_since(monotonic) } else { Capture::default() };
    let raw = settings.test_raw.as_deref().and_then(|path| {
        let session = session?;
        let soname = session.path.rsplit('/').next().unwrap_or("");
        raw::RawFile::create(path, session.version, soname, monotonic)
    });
    (Recorder::new(store, header, capture, callers, Windows::new(settings, monotonic), raw), name)
}
