// SPDX-License-Identifier: Apache-2.0
// WARM
//! The drain thread's side: from raw frames to the recording's stacks and frames, and from a hash
//! to a stack's id. An id may be used before its stack is defined (another thread's ring, drained
//! earlier, had the first sight of it).

use std::collections::HashMap;

use trace::define::{FrameInfo, InModule, Language};
use trace::Loss;

use super::code::{self, Code};
use super::modules::{self, Caller, Late, Modules};
use super::walk::{self, RawFrame, TAG_FRAME, TAG_SITE, TAG_STACK};
use crate::platform::{clock, losses};
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::{launch, memo};
use crate::store::Store;

/// Hashes remembered at most; beyond that all begin anew.
const MOST_STACKS: usize = 32_768;
/// Code objects remembered at most, and bytes of their line tables.
const MOST_CODES: usize = 8192;
/// Time a round of the drain thread may spend on new stacks, ns: rings fill meanwhile.
const MOST_TIME: u64 = 20_000_000;
/// ... and on looking again at the modules of known ones; where that is too short, in every so many
/// rounds at most.
const MOST_TIME_AGAIN: u64 = 3_000_000;
const LONGEST_INTERVAL: u64 = 64;
/// A module whose name keeps changing (one made anew in each step, at the address of another) is
/// told once this many looks in a row found the same name, at most.
const MOST_ALIKE: u32 = 64;
/// What stands for a frame whose code object was gone: the frames around it are still true.
const UNREADABLE: &[u8] = b"<unreadable>";

/// A code object with its names in the recording.
struct Known {
    code: Code,
    /// File and function; `None`: there was no room for them.
    names: Option<(u32, u32)>,
}

/// Belongs to the drain thread.
#[derive(Default)]
pub(crate) struct Sites {
    /// By hash.
    stacks: HashMap<u64, Stack>,
    /// By address and stamp; `None`: it was gone.
    codes: HashMap<(u64, u64), Option<Known>>,
    /// The stack whose frames are coming in.
    incoming: Option<Incoming>,
    /// The stack of the call that comes next.
    next: Option<u32>,
    /// Until when this round reads new stacks.
    until: u64,
    /// What is left of the time in which it looks again at known ones.
    left_again: u64,
    /// That was not long enough.
    is_late: bool,
    round: u64,
    /// A known stack is looked at again so many rounds after the last time.
    interval: u64,
    /// How often a look found another name than the one before.
    renamed: u64,
    modules: Modules,
    /// A code object that calls modules, of the stack that is being defined.
    calls_modules: Option<(Caller, u64)>,
}

/// A stack by its id.
struct Stack {
    id: u32,
    is_defined: bool,
    called: Option<Box<Called>>,
}

/// What calls a stack's frames have of modules, and which the innermost was when it was last looked
/// at.
struct Called {
    modules: Vec<u64>,
    frames: Vec<u32>,
    found: Option<InModule>,
    /// What the stack's id says of it.
    told: Option<InModule>,
    round: u64,
    /// [`Sites::renamed`] at that time.
    renamed: u64,
    /// So many looks in a row have to find the same before it is told, and have done so.
    wanted: u32,
    alike: u32,
}

impl Called {
    /// Takes what a look found. Returns whether a module that was found before is another now.
    fn found_now(&mut self, found: Option<InModule>) -> bool {
        let before = std::mem::replace(&mut self.found, found);
        // (the first look was cut off)
        if self.round == 0 || before == found {
            self.alike = self.alike.saturating_add(1);
            return false;
        }
        self.wanted = if self.alike >= MOST_ALIKE { 1 } else { (self.wanted * 2).clamp(1, MOST_ALIKE) };
        self.alike = 0;
        before.is_some()
    }

    /// Another id for the stack, where what is told of its module is another now.
    fn tell(&mut self, told: Option<InModule>, store: &mut Store) -> Option<u32> {
        let is_another = std::mem::replace(&mut self.told, told) != told;
        is_another.then(|| store.stack(&self.frames, told, None).unwrap_or(0))
    }
}

struct Incoming {
    hash: u64,
    wanted: u64,
    frames: Vec<(RawFrame, u64)>,
}

impl Sites {
    /// A round of the drain thread begins.
    pub(crate) fn begin_round(&mut self, now: u64) {
        self.until = now + MOST_TIME;
        self.left_again = MOST_TIME_AGAIN;
        self.round += 1;
        self.interval = match std::mem::take(&mut self.is_late) {
            true => (self.interval * 2).min(LONGEST_INTERVAL),
            false => self.interval.saturating_sub(1),
        }
        .max(1);
        self.modules.begin_round();
    }

    /// The slot of a launch as that of a call, its stack being that of the call that comes next;
    /// any other slot as it is.
    pub(crate) fn launch(&mut self, words: [u64; SLOT_WORDS], store: &mut Store) -> [u64; SLOT_WORDS] {
        let Some((event, hash)) = launch::unpack(Tag::Launch, words) else { return words };
        self.next = Some(self.used(hash, store));
        event
    }

    /// The id of the stack with this hash, which an event has; 0 where there is no room for it.
    pub(crate) fn used(&mut self, hash: u64, store: &mut Store) -> u32 {
        let known = self.stacks.get_mut(&hash).map(|stack| stack.called.take());
        if let Some(Some(mut called)) = known {
            let is_due = self.round - called.round >= self.interval;
            let id = if is_due { self.look_again(&mut called, store) } else { None };
            // (others have another name since this one was looked at: it may, too)
            let is_doubtful = called.renamed != self.renamed && called.round != self.round;
            let id = if is_doubtful { called.tell(None, store) } else { id };
            if let Some(id) = id {
                self.stacks.entry(hash).and_modify(|stack| stack.id = id);
            }
            self.stacks.entry(hash).and_modify(|stack| stack.called = Some(called));
        }
        let id = self.id(hash, store);
        losses::add(Loss::SiteDropped, u64::from(id == 0));
        id
    }

    /// Another id for the stack, where its module has another name now.
    fn look_again(&mut self, called: &mut Called, store: &mut Store) -> Option<u32> {
        let begun = clock::monotonic();
        let found = self.module(&called.modules, begun + self.left_again, store);
        self.left_again = self.left_again.saturating_sub(clock::monotonic() - begun);
        let Ok(found) = found else {
            self.is_late = true;
            return None; // (it keeps its name)
        };
        self.renamed += u64::from(called.found_now(found));
        (called.round, called.renamed) = (self.round, self.renamed);
        // (calls since the last look are of either)
        let told = found.filter(|_| called.alike >= called.wanted);
        called.tell(told, store)
    }

    /// Takes a ring slot if it is one of ours. The slots of one push come one after the other.
    pub(crate) fn take(&mut self, words: [u64; SLOT_WORDS], store: &mut Store) -> bool {
        let [first, second, third, tagged] = words;
        match tagged & 0xff {
            TAG_STACK => self.incoming = Some(Incoming { hash: first, wanted: second, frames: Vec::new() }),
            TAG_FRAME => {
                if let Some(incoming) = &mut self.incoming {
                    let (owner, module) = ((tagged >> 8) as u8, tagged >> 16);
                    incoming
                        .frames
                        .push((RawFrame { code: first, instruction: second, owner, module }, third));
                    if incoming.frames.len() as u64 >= incoming.wanted {
                        let Incoming { hash, frames, .. } = incoming;
                        let (hash, frames) = (*hash, std::mem::take(frames));
                        self.incoming = None;
                        self.define(hash, &frames, store);
                    }
                }
            }
            TAG_SITE => self.next = Some(self.used(first, store)),
            _ => return false,
        }
        true
    }

    /// The stack of the call that is next in the ring; 0: none.
    pub(crate) fn of_the_call(&mut self) -> u32 {
        self.next.take().unwrap_or(0)
    }

    fn id(&mut self, hash: u64, store: &mut Store) -> u32 {
        let stack = self.stacks.entry(hash).or_insert_with(|| {
            let id = store.dictionary.fresh_id();
            Stack { id, is_defined: false, called: None }
        });
        stack.id
    }

    fn define(&mut self, hash: u64, frames: &[(RawFrame, u64)], store: &mut Store) {
        let known = self.stacks.get(&hash).map(|stack| (stack.id, stack.is_defined));
        if known.is_some_and(|(_, is_defined)| is_defined) {
            return; // two threads at once, or thrown out of the table of what was sent
        }
        if clock::monotonic() > self.until {
            losses::add(Loss::SiteDropped, 1);
            walk::forget(hash); // it comes again with its next call, and its id is defined then
            return;
        }
        if self.stacks.len() >= MOST_STACKS {
            self.stacks.clear();
            walk::send_again();
        }
        let ids: Option<Vec<u32>> =
            frames.iter().filter_map(|(f, stamp)| self.frame(f, *stamp, store)).collect();
        self.take_modules();
        let modules: Vec<u64> = frames.iter().rev().map(|(f, _)| f.module).filter(|m| *m != 0).collect();
        let (found, round) = match modules.is_empty() {
            true => (None, self.round),
            false => match self.module(&modules, self.until, store) {
                Ok(found) => (found, self.round),
                Err(Late) => {
                    losses::add(Loss::CallerDropped, 1);
                    (None, 0) // as soon as there is time again
                }
            },
        };
        let id = ids.as_ref().and_then(|ids| store.stack(ids, found, known.map(|(id, _)| id)));
        // calls that have the id already stay without a definition
        losses::add(Loss::SiteDropped, u64::from(id.is_none() && known.is_some()));
        let called = ids.filter(|_| !modules.is_empty());
        let renamed = self.renamed;
        let called = called.map(|frames| {
            Box::new(Called { modules, frames, found, told: found, round, renamed, wanted: 0, alike: 0 })
        });
        self.stacks.insert(hash, Stack { id: id.unwrap_or(0), is_defined: true, called });
    }

    /// From now on walks take modules from where the stack just read calls them.
    fn take_modules(&mut self) {
        match self.calls_modules.take() {
            Some((Caller::Wrapper, code)) => walk::take_modules_from(code),
            Some((Caller::Itself, code)) if !walk::takes_modules() => walk::take_modules_from(code),
            _ => {}
        }
    }

    /// The last of these modules.
    fn module(&mut self, called: &[u64], until: u64, store: &mut Store) -> Result<Option<InModule>, Late> {
        let Some(interpreter) = super::interpreter() else { return Ok(None) };
        let path = self.modules.path(interpreter, called, until)?;
        Ok(path.and_then(|path| {
            let class = store.site_string(&path.class)?;
            let name = if path.name.is_empty() { Some(0) } else { store.site_string(&path.name) };
            Some(InModule { path: name?, class })
        }))
    }

    /// The frame's id (`Some(None)`: no room for it); `None` for one that the interpreter does not
    /// show.
    #[expect(clippy::option_option, reason = "left out, and refused, are two things")]
    fn frame(&mut self, frame: &RawFrame, stamp: u64, store: &mut Store) -> Option<Option<u32>> {
        if self.codes.len() >= MOST_CODES {
            self.codes.clear();
        }
        let known = self.codes.entry((frame.code, stamp)).or_insert_with(|| {
            let code = super::interpreter().and_then(|i| code::read(i, frame.code))?;
            if !walk::is_alive(frame.code, stamp) {
                return None; // it died: what was read may be anything
            }
            if let Some(caller) = modules::calls_modules(&code) {
                // (the wrapper is the greater)
                self.calls_modules = self.calls_modules.max(Some((caller, frame.code)));
            }
            let (file, function) = (store.site_string(&code.file), store.site_string(&code.function));
            Some(Known { code, names: file.zip(function) })
        });
        let line = known.as_ref().and_then(|k| k.code.line(frame));
        let info = match (known, line) {
            (Some(k), Some(_)) if k.code.is_incomplete(frame) => return None,
            (Some(k), Some(line)) => match k.names {
                Some((file, function)) => FrameInfo { language: Language::Python, function, file, line },
                None => return Some(None),
            },
            _ => {
                losses::add(Loss::FrameUnreadable, 1);
                memo::end_era(); // the next call looks at the stamps again, and sends the stack by those that hold
                let function = store.string(UNREADABLE);
                FrameInfo { language: Language::Python, function, file: 0, line: 0 }
            }
        };
        Some(store.frame(info))
    }
}
