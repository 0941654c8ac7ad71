// SPDX-License-Identifier: Apache-2.0
//! What each call launched: the reverse of `Op::call`.

use verdict::run::{Op, Run};

/// Place of an operation: indices of device, stream and operation.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    device: u32,
    stream: u32,
    op: u32,
}

/// Operations by flat call number. Memory: 12 bytes an operation, 4 a call.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Where a call's operations begin in `places`; one entry more than calls.
    from: Vec<u32>,
    places: Vec<Place>,
}

impl Launches {
    /// Counts, then places: linear.
    pub(super) fn new(run: &Run) -> Launches {
        let calls = run.threads.iter().map(|t| t.calls.len()).sum::<usize>();
        let mut from = vec![0u32; calls + 1];
        let ops = || {
            run.devices.iter().zip(0u32..).flat_map(|(d, device)| {
                d.streams.iter().zip(0u32..).flat_map(move |(s, stream)| {
                    s.ops.iter().zip(0u32..).map(move |(o, op)| (o, Place { device, stream, op }))
                })
            })
        };
        for (o, _) in ops() {
            if let Some(n) = from.get_mut(o.call as usize + 1) {
                *n += 1;
            }
        }
        let mut sum = 0;
        for n in &mut from {
            sum += *n;
            *n = sum;
        }
        let mut places = vec![Place::default(); sum as usize];
        let mut next = from.clone();
        for (o, place) in ops().filter(|(o, _)| (o.call as usize) < calls) {
            if let Some(at) = next.get_mut(o.call as usize) {
                if let Some(to) = places.get_mut(*at as usize) {
                    *to = place;
                }
                *at += 1;
            }
        }
        Launches { from, places }
    }

    /// Device index and operation of all that the call with this flat number launched.
    pub(super) fn of<'a>(
        &self,
        run: &'a Run,
        call: u32,
    ) -> impl Iterator<Item = (usize, &'a Op)> + use<'_, 'a> {
        let at = |i: usize| self.from.get(i).map_or(0, |&n| n as usize);
        let range = at(call as usize)..at((call as usize).saturating_add(1));
        self.places.get(range).unwrap_or(&[]).iter().filter_map(move |p| {
            let stream = run.devices.get(p.device as usize)?.streams.get(p.stream as usize)?;
            Some((p.device as usize, stream.ops.get(p.op as usize)?))
        })
    }
}
