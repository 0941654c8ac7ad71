// SPDX-License-Identifier: Apache-2.0
// WARM
//! What a round says besides events: the header with its counters, the devices, names of threads,
//! whether Python's lines are recorded.

use std::sync::atomic::Ordering;

use trace::define::gpu_uuid;
use trace::header::{sources, state};
use trace::Total;

use super::{Recorder, DRAIN};
use crate::platform::losses;
use crate::recording::writer;
use crate::sources::cupti::{arbiter, callbacks, devices, flushing, session, times};
use crate::sources::marks::nvtx;
use crate::sources::python;
use crate::{duty_cycle, sampler};

impl Recorder {
    /// Are Python's lines recorded, and if not why? Once it is known.
    pub(super) fn say_of_sites(&mut self, at_the_end: bool) {
        if !self.sites_said {
            for (key, value) in python::standing(at_the_end).into_iter().flatten() {
                self.sites_said = true;
                self.store.attribute(key, &value);
            }
        }
    }

    /// The first record of each kind whose times cannot be.
    pub(super) fn say_of_times(&mut self) {
        for (key, value) in times::take_new() {
            self.store.attribute(&key, &value);
        }
    }

    /// Names that the program gave its threads through NVTX.
    pub(super) fn name_threads(&mut self) {
        for (tid, name) in nvtx::handles::thread_names() {
            self.store.name_thread(tid, name);
        }
    }

    pub(super) fn describe_devices(&mut self) {
        let new = self.decoder.devices & !self.known_devices;
        for ordinal in (0..64).filter(|o| new >> o & 1 == 1) {
            if let Some((info, name)) = devices::describe(ordinal) {
                let name = self.store.string(&name);
                self.store.device(ordinal, trace::DeviceInfo { name, ..info });
            }
            if let Some(uuid) = devices::uuid(ordinal) {
                self.store.attribute(&gpu_uuid(ordinal), &uuid);
            }
        }
        self.known_devices |= new;
    }

    /// The header as of `now`.
    pub(crate) fn refresh_header(&mut self, now: u64) {
        let h = &mut self.header;
        let t = &mut self.decoder.totals;
        h.last_write = now;
        // a span that is open is in the file only once it ends: a program killed in it promises
        // nothing of it
        let known_to = match h.state {
            state::RECORDING => self.capture.off_since().or_else(arbiter::open_span).unwrap_or(now),
            _ => now,
        };
        h.gpu_complete_to = self.delivered_to.min(known_to).min(self.front.known_to().unwrap_or(u64::MAX));
        h.host_complete_to = known_to;
        h.valid_from = self.store.valid_from();
        let yielded = if arbiter::is_yielded() { sources::YIELDED } else { 0 };
        h.sources = session::source_bits() | yielded;
        h.launch_cost_ns = duty_cycle::launch_ns();
        let (recycled, overwritten) = self.store.overwritten();
        let callbacks = t.get(Total::Callbacks as usize).copied().unwrap_or(0);
        let values = [
            (Total::Steps, self.marks.steps),
            (Total::DrainCpuNs, DRAIN.cpu.load(Ordering::Relaxed) + writer::cpu()),
            (Total::CallbackNs, callbacks / 2 * callbacks_ns()),
            (Total::LongestFlushNs, flushing::longest()),
            (Total::MirrorBytes, writer::bytes()),
            (Total::LongestPauseNs, self.pace.longest),
            (Total::LongestWriteNs, writer::longest()),
            (Total::Recycled, recycled),
            (Total::Overwritten, overwritten),
        ];
        for (which, value) in values.into_iter().chain(sampler::spent()).chain(self.windows.totals()) {
            if let Some(slot) = t.get_mut(which as usize) {
                *slot = value;
            }
        }
        let attach = h.totals.get(Total::AttachNs as usize).copied().unwrap_or(0);
        h.totals = self.decoder.totals;
        if let Some(slot) = h.totals.get_mut(Total::AttachNs as usize) {
            *slot = attach;
        }
        h.losses = losses::all();
    }
}

/// Measured mean of an exit callback and, about as much again, its entry.
fn callbacks_ns() -> u64 {
    2 * callbacks::mean_ns()
}
