// SPDX-License-Identifier: Apache-2.0
// WARM
//! The drain thread's side of [`super::launches`]: unwinds a copy from our callback to where the
//! interpreter called machine code, or the thread began. What lies between, without CUDA's own
//! libraries, is a stack of callers in the recording. Names are the analyzer's.

use std::collections::HashMap;

use trace::define::NativeStack;
use trace::Loss;

use super::launches::{self, Copied, Launch};
use super::modules::{certain, Kind, Module, Modules};
use super::sites::caller;
use super::unwind::{self, Way};
use crate::platform::memory::Reader;
use crate::platform::{clock, losses};
use crate::sources::python;
use crate::store::Store;

/// Frames looked at, of one stack.
const MOST_FRAMES: usize = 160;
/// Ways out of functions that are remembered; beyond that all begin anew.
const MOST_WAYS: usize = 32_768;
/// Longest name of a kernel read, bytes.
const LONGEST_NAME: usize = trace::define::MAX_STRING;
/// Bytes of definitions at most: lines of Python have the same room, and come first.
const MOST_BYTES: usize = 2 << 20;

/// What was loaded before a round's calls, and what is at its end.
pub(super) type Loaded<'a> = (&'a Modules, &'a Modules);

/// Belongs to the drain thread.
#[derive(Default)]
pub(super) struct Natives {
    launches: Vec<Launch>,
    /// By return address; `None`: nothing says how its function is left.
    ways: HashMap<u64, Option<Way>>,
    /// Bytes of definitions so far.
    bytes: usize,
}

/// The kernel's name at this address; `None`: there is none any more.
fn name(at: u64) -> Option<Vec<u8>> {
    let name = Reader::default().string(at, LONGEST_NAME)?;
    name.iter().all(|b| (0x20..0x7f).contains(b)).then_some(name)
}

impl Natives {
    pub(super) fn take(&mut self, launch: Launch) {
        self.launches.push(launch);
    }

    /// Modules came or went.
    pub(super) fn forget_ways(&mut self) {
        self.ways.clear();
    }

    /// At the end of a round: were there any? `kind` names the node of PyTorch's with a table of
    /// functions.
    pub(super) fn settle(
        &mut self,
        loaded: Loaded<'_>,
        until: u64,
        store: &mut Store,
        mut kind: impl FnMut(u64, &mut Store) -> u32,
    ) -> bool {
        let launches = std::mem::take(&mut self.launches);
        for launch in &launches {
            let is_late = clock::monotonic() > until;
            let read = launch.read(|copied| {
                if is_late {
                    launches::forget(copied.key);
                    return None;
                }
                let addresses = self.unwind(copied, loaded);
                losses::add(Loss::CallerUnknown, u64::from(addresses.is_none()));
                addresses.map(|addresses| (addresses, copied.node))
            });
            let Some((addresses, node)) = read.flatten() else { continue };
            let node = if node == 0 { 0 } else { kind(node, store) };
            let (before, has_room) = (store.dictionary.site_bytes(), self.bytes < MOST_BYTES);
            let mut defined = || {
                let kernel = match launch.symbol {
                    0 => 0,
                    at => store.site_string(&name(at)?)?,
                };
                let frames = addresses.iter().map(|(module, address)| caller(module, *address, false, store));
                let frames: Option<Vec<u32>> = frames.collect();
                let native = store.stack(&frames?, None, None)?;
                store.native(NativeStack { outer: launch.outer, node, kernel, native })
            };
            let is_defined = has_room && defined().is_some();
            self.bytes += store.dictionary.site_bytes() - before;
            losses::add(Loss::CallerDropped, u64::from(!is_defined));
        }
        !launches.is_empty()
    }

    /// The return addresses on the way, the innermost first; `None`: it cannot be followed to its
    /// end.
    fn unwind<'a>(&mut self, copied: &Copied, (before, now): Loaded<'a>) -> Option<Vec<(&'a Module, u64)>> {
        if self.ways.len() >= MOST_WAYS {
            self.ways.clear();
        }
        let interpreter = python::interpreter().and_then(|i| now.find(i.this_thread as *const () as u64));
        let mut place = copied.stack.place;
        let mut all = Vec::new();
        for _ in 0..MOST_FRAMES {
            let address = copied.stack.word(place.at)?;
            let module = certain(address, before, now)?;
            if interpreter == Some(module) {
                return Some(all);
            }
            if module.kind() == Kind::Program {
                all.push((module, address));
            }
            let way = self.ways.entry(address).or_insert_with(|| unwind::way(module, address, false));
            match (*way)? {
                Way::Out(frame) => place = place.outward(frame, |at| copied.stack.word(at))?,
                Way::End => return Some(all),
            }
        }
        None
    }
}
