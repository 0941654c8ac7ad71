// SPDX-License-Identifier: Apache-2.0
// COLD
//! Records of API calls: of single ones by CUPTI's filter (12.5 and newer), which costs least:
//! launches, where nothing of ours is switched off and on again; every call of ours where we hold
//! no subscription. After another client they are of all calls, by the whole kinds.
//!
//! Why not in windows: on an H200, under CUPTI 13.0, where windows opened and closed beside a
//! thread that captured graphs, the filter went wrong for good: records of all calls of all threads
//! came (4.3 million in 20 s, of 0.26 million launches), none of them with a time at which it began
//! (tests/gpu/results/2026-11-25-h200-ee87ef9-windows-graphs-causes-2.json.gz). Callbacks are
//! switched call by call as well, and cost a launch no more (H200: 0.8 to 1.5 us with them,
//! 0.9 to 1.4 with the filter).
//!
//! Why not after another client: on an H200, under CUPTI 12.9 and 13.0, the filter gives nothing
//! any more once another client has had the kinds RUNTIME or DRIVER on and off again, as
//! torch.profiler does at the end of each profile, whatever is switched off and on in which order;
//! nor where it is first used after a context was created. The kinds themselves do. Under 13.5 the
//! filter goes on. (tests/gpu/results/2026-11-23-h200-call-filter.txt) Further calls may be put
//! into one that was in use before (where a client takes the subscription alone: 44,900 of 44,900
//! calls told under 13.0, tests/gpu/results/2026-11-25-h200-43bbbb7-subscriber-two-ways.json.gz).

use std::sync::atomic::{AtomicBool, Ordering};

use cupti_sys::{kind, Cupti};
use trace::call::{self, Class};
use trace::header::sources;

/// From this release on (`cuptiGetVersion`) the filter outlives another client.
const FILTER_LASTS: u32 = 130_500;

const CALLS: [u32; 2] = [kind::RUNTIME, kind::DRIVER];

/// Which calls CUPTI records.
struct Records {
    /// Which calls of [`call::CALLS`] are filtered.
    filtered: [AtomicBool; call::CALLS.len()],
    /// Another client has had CUPTI.
    is_shared: AtomicBool,
    /// The whole kinds are on.
    is_whole: AtomicBool,
}

static RECORDS: Records = Records {
    filtered: [const { AtomicBool::new(false) }; call::CALLS.len()],
    is_shared: AtomicBool::new(false),
    is_whole: AtomicBool::new(false),
};

/// Another client is about to switch kinds of its own.
pub(super) fn another_takes_over() {
    RECORDS.is_shared.store(true, Ordering::Relaxed);
}

/// Which calls callbacks tell of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ByCallbacks {
    /// We hold no subscription.
    None,
    AllButLaunches,
    All,
}

/// Records of calls on. Serialised by the callers (`session::SWITCHING`, or attaching). Where they
/// come from: bits of `sources`.
pub(super) fn enable(cupti: &Cupti, version: u32, by_callbacks: ByCallbacks) -> u32 {
    if by_callbacks == ByCallbacks::All {
        return 0; // not by records as well
    }
    if RECORDS.is_shared.load(Ordering::Relaxed) && version < FILTER_LASTS {
        for k in CALLS {
            // SAFETY: a kind number.
            let _ = unsafe { (cupti.activity_enable)(k) };
        }
        RECORDS.is_whole.store(true, Ordering::Relaxed);
        return sources::CALL_KINDS;
    }
    if !cupti.has_call_filter() {
        return if by_callbacks == ByCallbacks::None { sources::NO_LAUNCHES } else { 0 };
    }
    for (c, is_on) in call::CALLS.iter().zip(&RECORDS.filtered) {
        if c.class == Class::Launch || by_callbacks == ByCallbacks::None {
            filter(cupti, c, true);
            is_on.store(true, Ordering::Relaxed);
        }
    }
    sources::CALL_FILTER
}

/// Off what was switched on, and no more. As [`enable`].
pub(super) fn disable(cupti: &Cupti) {
    if RECORDS.is_whole.swap(false, Ordering::Relaxed) {
        for k in CALLS {
            // SAFETY: a kind number that we enabled.
            let _ = unsafe { (cupti.activity_disable)(k) };
        }
    }
    for (c, is_on) in call::CALLS.iter().zip(&RECORDS.filtered) {
        if is_on.swap(false, Ordering::Relaxed) {
            filter(cupti, c, false);
        }
    }
}

fn filter(cupti: &Cupti, c: &call::Call, on: bool) {
    let of = if c.domain == call::RUNTIME {
        cupti.activity_enable_runtime_api
    } else {
        cupti.activity_enable_driver_api
    };
    if let Some(enable) = of {
        // an id that an older release does not know is refused: harmless
        // SAFETY: a call id and a switch.
        let _ = unsafe { enable(c.id, u8::from(on)) };
    }
}
