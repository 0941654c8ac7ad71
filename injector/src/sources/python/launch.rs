// SPDX-License-Identifier: Apache-2.0
// HOT
//! A launch and the hash of its Python stack, in one slot of a ring: launches are the many, and two
//! slots each would halve what a ring holds. The hash (64 bits) lies where the call's result and
//! its stack's id are in an event. So it goes with calls that succeeded alone.

use trace::event::EVENT_WORDS;
use trace::{Event, Kind};

use crate::ring::{Tag, SLOT_WORDS};

const TAG: u64 = Tag::Launch as u64;
const LOW: u64 = 0xffff_ffff;

/// The slot of a launch that succeeded, `site` being its stack's hash.
#[inline]
pub(crate) fn pack(event: &Event, site: u64) -> [u64; SLOT_WORDS] {
    let [start, duration, call, kind] = event.encode();
    [start, duration, call & LOW | site << 32, kind & LOW & !0xff | TAG | site & !LOW]
}

/// The event of a slot of [`pack`], as it is encoded, and the hash; `None`: another slot.
pub(super) fn unpack(slot: [u64; SLOT_WORDS]) -> Option<([u64; EVENT_WORDS], u64)> {
    let [start, duration, call, tagged] = slot;
    (tagged & 0xff == TAG).then(|| {
        let event = [start, duration, call & LOW, tagged & LOW & !0xff | Kind::Call as u64];
        (event, call >> 32 | tagged & !LOW)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_and_its_hash_survive_one_slot() {
        let mut event = Event::new(Kind::Call, u64::MAX - (1 << 40), u64::MAX - 5);
        (event.correlation, event.a, event.x, event.flags) = (u32::MAX - 1, 0x0200_00d3, 1, 0x80);
        for site in [1, u64::MAX, 0x1234_5678_9abc_def0] {
            let (words, hash) = unpack(pack(&event, site)).unwrap();
            assert_eq!((Event::decode(words), hash), (Some(event), site));
        }
        assert_eq!(unpack(event.encode()), None);
    }
}
