// SPDX-License-Identifier: Apache-2.0
// WARM
//! The drain thread's side: nodes as events, with the id of their stack and the name of their type.

use std::collections::HashMap;

use trace::define::TrackInfo;
use trace::{Event, Kind};

use super::{TAG_BACKWARD, TAG_FORWARD};
use crate::platform::memory::Reader;
use crate::ring::SLOT_WORDS;
use crate::sources::captured_launches::CapturedLaunches;
use crate::sources::marks::program::Capture;
use crate::sources::python::sites::Sites;
use crate::store::Store;

/// Longest name of a type read, bytes.
const LONGEST_NAME: usize = 256;
/// Stands for one that is longer, or cannot be read.
const UNKNOWN: &[u8] = b"<unknown>";
/// Types remembered at most; beyond that all begin anew.
const MOST_TYPES: usize = 8192;

/// Belongs to the drain thread.
#[derive(Default)]
pub(crate) struct Nodes {
    /// Names by the address of a type's table of functions: string ids.
    names: HashMap<u64, u32>,
    /// Stack and name of the event that comes next.
    next: Option<(u32, u32)>,
}

impl Nodes {
    /// Takes a ring slot if it is one of ours.
    pub(crate) fn take(
        &mut self,
        tid: u32,
        words: [u64; SLOT_WORDS],
        sites: &mut Sites,
        store: &mut Store,
        (capture, launches): (&Capture, &mut CapturedLaunches),
    ) -> bool {
        let [first, second, third, tagged] = words;
        let event = match tagged & 0xff {
            // (a thread's first; programs give that number to other nodes, too)
            TAG_FORWARD if second as u32 == 0 => return true,
            TAG_FORWARD => {
                let mut event = Event::new(Kind::ForwardNode, first, first);
                (event.b, event.correlation) = (second as u32, (second >> 32) as u32);
                event.c = sites.used(third, store);
                launches.made(&event);
                event
            }
            TAG_BACKWARD => {
                let stack = if first == 0 { 0 } else { sites.used(first, store) };
                self.next = Some((stack, self.kind(second, store)));
                return true;
            }
            kind if kind == Kind::BackwardNode as u64 => {
                let Some(mut event) = Event::decode(words) else { return true };
                (event.c, event.a) = self.next.take().unwrap_or_default();
                launches.evaluated(tid, &event);
                event
            }
            _ => return false,
        };
        if capture.covers(event.start) {
            store.add(TrackInfo::Thread { tid, name: 0 }, &event);
        }
        true
    }

    /// The mangled name of the type with this table of functions: a string id.
    pub(crate) fn kind(&mut self, functions: u64, store: &mut Store) -> u32 {
        if self.names.len() >= MOST_TYPES {
            self.names.clear();
        }
        *self.names.entry(functions).or_insert_with(|| {
            let mut memory = Reader::default();
            // in front of the functions a pointer to the type, whose second word points to its name
            // (Itanium C++ ABI, 2.5.2 and 2.9.5)
            let name = memory
                .word(functions.wrapping_sub(8))
                .and_then(|of_type| memory.word(of_type.wrapping_add(8)))
                .and_then(|name| memory.string(name, LONGEST_NAME));
            store.string(name.as_deref().unwrap_or(UNKNOWN))
        })
    }
}
