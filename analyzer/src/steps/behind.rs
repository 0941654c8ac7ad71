// SPDX-License-Identifier: Apache-2.0
//! When a step that the host marks begins on the GPU.
//!
//! Marks and ranges are times of the host. A host that is ahead sets them while the GPU still works on earlier steps; the
//! time between two of them is then what queueing took, not what the step took. A step begins once the host has named it
//! **and** the GPU is done with what was launched before: where the GPU keeps up, that is the mark itself.

use trace::Kind;

use crate::run::{Device, Run, Stream};

/// A device with less than this share of the busiest one's work does not hold a step up: a display, a stray context.
const WORKING_SHARE: f64 = 0.1;

/// Each time (ascending, host) put off until the GPUs have done what was launched before it. What counts is each device's
/// busiest stream: what runs beside it (a checkpoint's copy, the next batch) may take longer than the step. Ascending.
/// Linear in the operations of those streams.
pub(super) fn put_off(run: &Run, host: &[u64]) -> Vec<u64> {
    let mut times = host.to_vec();
    let busiest: Vec<(&Stream, u64)> = run.devices.iter().filter_map(busiest_stream).collect();
    let most = busiest.iter().map(|b| b.1).max().unwrap_or(0) as f64;
    for (stream, _) in busiest.iter().filter(|b| b.1 as f64 >= most * WORKING_SHARE) {
        wait_for(run, stream, host, &mut times);
    }
    let mut latest = 0;
    for time in &mut times {
        latest = latest.max(*time);
        *time = latest;
    }
    times
}

/// The stream with most time of kernels, and that time, ns.
fn busiest_stream(device: &Device) -> Option<(&Stream, u64)> {
    let kernels = |s: &Stream| {
        let ops = s.ops.iter().filter(|o| matches!(o.kind, Kind::Kernel | Kind::GraphTrace));
        ops.map(|o| o.span().ns()).sum::<u64>()
    };
    device.streams.iter().map(|s| (s, kernels(s))).max_by_key(|s| s.1).filter(|s| s.1 > 0)
}

fn wait_for(run: &Run, stream: &Stream, host: &[u64], times: &mut [u64]) {
    let mut ops = stream.ops.iter().rev().peekable();
    // A stream runs in the order of launching: what has no call in the recording was launched no later than what runs
    // behind it.
    let mut latest = u64::MAX;
    for (&marked, time) in host.iter().zip(times).rev() {
        while let Some(op) = ops.peek() {
            let launch = run.call(op.call).map_or(op.start, |(_, call)| call.start.min(op.start));
            latest = latest.min(launch);
            if latest < marked {
                *time = op.end.max(*time);
                break;
            }
            ops.next();
        }
    }
}
