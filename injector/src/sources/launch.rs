// SPDX-License-Identifier: Apache-2.0
// HOT
//! A launch and where it was called, in one slot of a ring: launches are the many, and two slots
//! each would halve what a ring holds. Where it was called is one word, the hash of a Python stack
//! or the return address in a function of machine code, and lies where the call's result and its
//! stack's id are in an event. So it goes with calls that succeeded alone.

use trace::event::EVENT_WORDS;
use trace::{Event, Kind};

use crate::ring::{Tag, SLOT_WORDS};

const LOW: u64 = 0xffff_ffff;

/// The slot of a launch that succeeded, called at `place`; `tag` says what that is.
#[inline]
pub(super) fn pack(tag: Tag, event: &Event, place: u64) -> [u64; SLOT_WORDS] {
    let [start, duration, call, kind] = event.encode();
    [start, duration, call & LOW | place << 32, kind & LOW & !0xff | tag as u64 | place & !LOW]
}

/// The event of a slot of [`pack`] with this tag, as it is encoded, and the place; `None`: another
/// slot.
pub(super) fn unpack(tag: Tag, slot: [u64; SLOT_WORDS]) -> Option<([u64; EVENT_WORDS], u64)> {
    let [start, duration, call, tagged] = slot;
    (tagged & 0xff == tag as u64).then(|| {
        let event = [start, duration, call & LOW, tagged & LOW & !0xff | Kind::Call as u64];
        (event, call >> 32 | tagged & !LOW)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_and_its_place_survive_one_slot() {
        let mut event = Event::new(Kind::Call, u64::MAX - (1 << 40), u64::MAX - 5);
        (event.correlation, event.a, event.x, event.flags) = (u32::MAX - 1, 0x0200_00d3, 1, 0x80);
        for place in [1, u64::MAX, 0x1234_5678_9abc_def0] {
            let slot = pack(Tag::Launch, &event, place);
            let (words, known) = unpack(Tag::Launch, slot).unwrap();
            assert_eq!((Event::decode(words), known), (Some(event), place));
            assert_eq!(unpack(Tag::LaunchCaller, slot), None);
        }
        assert_eq!(unpack(Tag::Launch, event.encode()), None);
    }
}
