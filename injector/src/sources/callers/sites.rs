// SPDX-License-Identifier: Apache-2.0
// WARM
//! The drain thread's side: from a return address, or a copy of a stack, to module and offset. A
//! call gets the id of its stack as it leaves its ring; what the id stands for is decided at the
//! end of the round, when it is known which modules came and went since the round before. Where
//! that leaves a doubt the id stays without a definition, counted.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trace::define::{CallerInfo, ModuleInfo};
use trace::Loss;
use verdict::symbols;

use super::captures::{self, Copied};
use super::launches::Launch;
use super::modules::{self, certain, Kind, Module, Modules};
use super::natives::Natives;
use super::rows::{rows, Row, Rows, MOST_FRAMES};
use super::{stack, unwind, TAG_CALLER, TAG_COPY};
use crate::platform::memory::read_string;
use crate::platform::{clock, losses};
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::launch;
use crate::store::Store;

/// Callers remembered at most; beyond that all begin anew.
const MOST_CALLERS: usize = 16_384;
/// So long after modules came or went, what is known of calls in those that may go is not used
/// before a round's end, ns.
const MOVING: u64 = 1_000_000_000;
/// One round of so many looks at what is loaded although no caller came in as many.
const SELDOM: u64 = 20;
/// Time a round of the drain thread may spend on new callers, ns: rings fill meanwhile.
const MOST_TIME: u64 = 40_000_000;
/// Rounds of [`SOON_MS`] after the last new copy, and at the start: half a second.
const SOON_ROUNDS: u32 = 250;
/// Until the next round while copies come, ms: the pool is full after 192.
const SOON_MS: u64 = 2;
/// Such rounds are at most this many, and a tenth of all beyond it.
const SOON_AT_LEAST: u64 = 2_000;

/// Bytes of a module's symbols that are read: 1.4 million functions, 25 ms beside other work. Of a
/// module with more than that only the module is known, as where it has none.
const MOST_SYMBOLS: u64 = 32 << 20;
/// So many times functions around an address are kept, up to half a megabyte each.
const MOST_NEARBY: usize = 8;
/// So often that took longer than the time of a round (a slow disk); then no symbols are read any
/// more.
const MOST_LATE: u32 = 16;

/// A caller whose stack is defined.
#[derive(Clone, Copy)]
struct Known {
    stack: u32,
    module_only: bool,
    /// Its module is never unloaded.
    permanent: bool,
    /// The round that used it last, and how many calls have it.
    round: u64,
    calls: u64,
}

/// Belongs to the drain thread. The default is off.
#[derive(Default)]
pub(crate) struct Callers {
    /// What was loaded before the rings were read in an earlier round: every call of this round was
    /// made after that.
    settled: Arc<Modules>,
    /// What was loaded when last looked at before the rings were read.
    start: Arc<Modules>,
    /// What was loaded when last looked at.
    begun: Arc<Modules>,
    /// By return address, in the modules of `begun`.
    known: HashMap<u64, Known>,
    /// Those that were known when the round before ended, in modules that are not there any more.
    former: HashMap<u64, bool>,
    /// Return addresses of this round that are not known, with the stack's id and how many calls
    /// have it.
    pending: HashMap<u64, (u32, u64)>,
    /// Copies of this round, with the stack's id.
    copies: Vec<(u64, u32)>,
    natives: Natives,
    /// The stack of the call that comes next.
    next: u32,
    round: u64,
    /// When modules last came or went, and whether that is not long ago.
    moved: u64,
    moving: bool,
    /// Was it looked what is loaded, in this round?
    looked: bool,
    /// The round that last had a caller; 0: none.
    used: u64,
    /// Rounds from now on that look for copies soon, and how many there were.
    soon: u32,
    spent: u64,
    /// How often symbols could not be read in time.
    late: Cell<u32>,
    /// Functions of modules around addresses that were asked for, the newest last.
    nearby: RefCell<Vec<(Module, symbols::Nearby)>>,
}

impl Callers {
    /// On, `modules` being loaded.
    pub(super) fn new(modules: Modules) -> Callers {
        let modules = Arc::new(modules);
        Callers {
            begun: modules.clone(),
            start: modules.clone(),
            settled: modules,
            soon: SOON_ROUNDS,
            ..Callers::default()
        }
    }

    /// Until the next round at most, ms: sooner while ways to callers are learnt.
    pub(crate) fn period(&mut self, usual: u64) -> u64 {
        let Some(left) = self.soon.checked_sub(1).filter(|_| self.spent < SOON_AT_LEAST + self.round / 10)
        else {
            return usual;
        };
        (self.soon, self.spent) = (left, self.spent + 1);
        usual.min(SOON_MS)
    }

    /// A round of the drain thread begins: before the rings are read.
    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
        self.looked = false;
        if rows().is_some() {
            stack::look();
        }
        // a call that this round finds may have been made right behind the reading of its ring in
        // the round before: before what was loaded at that round's end
        self.settled = self.start.clone();
        let in_use = self.used != 0 && self.round - self.used < SELDOM;
        if in_use || self.round % SELDOM == 0 {
            self.look();
            self.start = self.begun.clone();
        }
    }

    /// What is loaded now? Once a round, before the first of its callers is taken. (Seldom where
    /// there are none: a fork waits for it.)
    fn look(&mut self) {
        let Some(rows) = rows().filter(|_| !self.looked) else { return };
        self.looked = true;
        if modules::counts() != self.begun.counts {
            self.begun = Arc::new(modules::look());
            self.drop_the_unloaded(rows);
        }
        if self.settled.counts != self.begun.counts {
            self.moved = clock::monotonic();
        }
        self.moving = self.moved != 0 && clock::monotonic().saturating_sub(self.moved) < MOVING;
    }

    /// Rows and callers of modules that are not there any more, or were replaced.
    fn drop_the_unloaded(&mut self, rows: &Rows) {
        self.natives.forget_ways();
        let (before, now) = (&self.settled, &self.begun);
        // what could not be followed may be followed now: its module may have been on its way
        rows.forget(|address, row| row == Row::Refused || !stays(address, before, now));
        let former = &mut self.former;
        self.known.retain(|address, known| {
            let stays = stays(*address, before, now);
            if !stays {
                former.insert(*address, known.module_only);
            }
            stays
        });
    }

    /// Takes a ring slot if it is one of ours. That of a caller stands in front of its call.
    /// `python` gives the id of the Python stack with a hash.
    pub(crate) fn take(
        &mut self,
        words: [u64; SLOT_WORDS],
        store: &mut Store,
        mut python: impl FnMut(u64, &mut Store) -> u32,
    ) -> bool {
        if let Some((site, mut launch)) = Launch::unpack(words) {
            self.look();
            self.used = self.round;
            launch.outer = if site == 0 { 0 } else { python(site, store) };
            self.natives.take(launch);
            return true;
        }
        let [what, _, _, tagged] = words;
        match tagged & 0xff {
            TAG_CALLER => self.next_is_from(what, store),
            TAG_COPY => {
                self.look();
                self.used = self.round;
                self.next = store.dictionary.fresh_id();
                self.copies.push((what, self.next));
            }
            _ => return false,
        }
        true
    }

    /// The slot of a launch as that of a call, its caller being that of the call that comes next;
    /// any other slot as it is.
    pub(crate) fn launch(&mut self, words: [u64; SLOT_WORDS], store: &mut Store) -> [u64; SLOT_WORDS] {
        let Some((event, address)) = launch::unpack(Tag::LaunchCaller, words) else { return words };
        self.next_is_from(address, store);
        event
    }

    /// The next call was made there.
    fn next_is_from(&mut self, address: u64, store: &mut Store) {
        self.look();
        self.used = self.round;
        self.next = match self.known.get_mut(&address) {
            Some(known) if known.permanent || !self.moving => {
                (known.round, known.calls) = (self.round, known.calls + 1);
                known.stack
            }
            _ => {
                let new = || (store.dictionary.fresh_id(), 0);
                let (stack, calls) = self.pending.entry(address).or_insert_with(new);
                *calls += 1;
                *stack
            }
        };
    }

    /// The stack of the call that is next in the ring; 0: none.
    pub(crate) fn of_the_call(&mut self) -> u32 {
        std::mem::take(&mut self.next)
    }

    /// At the end of a round: what the ids of this round stand for. `kind` gives the id of the name
    /// of a type of PyTorch's nodes.
    pub(crate) fn settle(&mut self, store: &mut Store, kind: impl FnMut(u64, &mut Store) -> u32) {
        let Some(rows) = rows().filter(|_| self.used == self.round) else { return };
        let until = clock::monotonic() + MOST_TIME;
        if modules::counts() != self.begun.counts {
            let after = modules::look();
            self.retract_the_replaced(&after, store);
            self.begun = Arc::new(after);
            self.moved = clock::monotonic();
            self.drop_the_unloaded(rows);
        }
        for (address, (stack, calls)) in std::mem::take(&mut self.pending) {
            // a row said that it is a caller: then it was known
            let known = self.known.get(&address).map(|k| k.module_only);
            let module_only = known.or_else(|| self.former.get(&address).copied());
            let module = certain(address, &self.settled, &self.begun);
            let done = module.zip(module_only).map(|(m, only)| define(m, address, only, stack, store));
            count(done, calls);
        }
        let launched = self.natives.settle((&self.settled, &self.begun), until, store, kind);
        if launched || !self.copies.is_empty() {
            self.soon = SOON_ROUNDS;
        }
        for (number, stack) in std::mem::take(&mut self.copies) {
            let Some(pool) = captures::pool() else { break };
            if clock::monotonic() > until {
                pool.give_back(number);
                losses::add(Loss::CallerDropped, 1); // it comes again with its next call
                continue;
            }
            let found = pool.read(number, |copied| self.unwind(copied, rows, until)).flatten();
            let done = found.and_then(|(address, module_only)| {
                let module = certain(address, &self.settled, &self.begun)?;
                let defined = define(module, address, module_only, stack, store);
                if defined {
                    let (permanent, round) = (module.permanent, self.round);
                    let known = Known { stack, module_only, permanent, round, calls: 1 };
                    self.known.entry(address).or_insert(known);
                }
                Some(defined)
            });
            count(done, 1);
        }
        self.former.clear();
        if self.known.len() >= MOST_CALLERS {
            self.known.clear();
            rows.forget(|_, row| row == Row::Caller);
        }
    }

    /// Modules came and went while the rings were read, after a quiet time: a caller that was used
    /// may be another one's.
    fn retract_the_replaced(&mut self, after: &Modules, store: &mut Store) {
        let (before, round) = (&self.begun, self.round);
        if before.counts.added == after.counts.added {
            return;
        }
        self.known.retain(|address, known| {
            let doubtful = known.round == round && !stays(*address, before, after);
            if doubtful {
                losses::add(Loss::CallerUnknown, known.calls);
                store.retract_stack(known.stack);
            }
            !doubtful
        });
    }

    /// The return address of CUDA's caller in a copy of a stack, and whether only its module is
    /// sure. Learns the rows.
    fn unwind(&self, copied: &Copied, rows: &Rows, until: u64) -> Option<(u64, bool)> {
        let mut place = copied.stack.place;
        for _ in 0..MOST_FRAMES {
            let address = copied.stack.word(place.at)?;
            let linked_in = copied.of_runtime && !place.through_cudart;
            let (row, module_only) = match rows.get(address) {
                Some(Row::Caller) => (Row::Caller, self.known.get(&address).is_some_and(|k| k.module_only)),
                Some(row) => (row, false),
                None => {
                    let (row, module_only) = self.row(address, linked_in, copied.symbol, until)?;
                    rows.learn(address, row);
                    (row, module_only)
                }
            };
            match row {
                Row::Caller => return Some((address, module_only)),
                Row::Frame(frame) => place = place.outward(frame, |at| copied.stack.word(at))?,
                Row::Refused => return None,
            }
        }
        None
    }

    /// What is to be known about a return address. `linked_in`: a call of CUDA's runtime, of which
    /// no library was on the way: this is in a runtime linked into the program, or just outside of
    /// it. `launched`: where the name is of the kernel that it launched (0: none). `None`: not
    /// certain now, maybe later.
    fn row(&self, address: u64, linked_in: bool, launched: u64, until: u64) -> Option<(Row, bool)> {
        let Some(module) = certain(address, &self.settled, &self.begun) else {
            let of_no_module = self.settled.counts == self.begun.counts;
            return of_no_module.then_some((Row::Refused, false));
        };
        let kind = module.kind();
        if kind == Kind::Program {
            let is_asked = linked_in || launched != 0;
            let symbol = if is_asked { self.symbol(module, address, until).ok()? } else { None };
            let of_the_runtime = symbol.as_deref().is_some_and(|name| {
                linked_in && is_of_the_runtime(name) || launched != 0 && is_kernels_own(name, launched)
            });
            // a row of what may be unloaded could be met where it does not hold any more: it is the
            // caller, as a whole
            if !of_the_runtime || !module.permanent {
                return Some((Row::Caller, linked_in && symbol.is_none() || of_the_runtime));
            }
        }
        let frame = unwind::frame(module, address, kind == Kind::Cudart);
        Some((frame.map_or(Row::Refused, Row::Frame), false))
    }

    /// The function that a call stands in, where it can be told by `until`.
    fn symbol(&self, module: &Module, address: u64, until: u64) -> Result<Option<String>, Late> {
        let Some(call) = address.wrapping_sub(module.base).checked_sub(1) else { return Ok(None) };
        let path = Path::new(std::ffi::OsStr::from_bytes(&module.path));
        let name = |nearby| symbols::at(path, &module.build_id, call, nearby).map(|s| s.name);
        let mut all = self.nearby.borrow_mut();
        if let Some((_, nearby)) = all.iter().find(|(m, nearby)| m == module && nearby.covers(call)) {
            return Ok(name(nearby));
        }
        if self.late.get() >= MOST_LATE {
            return Ok(None);
        }
        let left = Duration::from_nanos(until.saturating_sub(clock::monotonic()));
        let limit = symbols::Limit { bytes: MOST_SYMBOLS, until: Some(Instant::now() + left) };
        let Some(nearby) = symbols::nearby(path, &module.build_id, call, limit) else {
            self.late.set(self.late.get() + 1);
            return Err(Late);
        };
        let found = name(&nearby);
        if all.len() >= MOST_NEARBY {
            all.remove(0);
        }
        all.push((module.clone(), nearby));
        Ok(found)
    }
}

/// It took too long: what was asked for is not known now.
struct Late;

/// Was the module of this address there all the time, and is it still?
fn stays(address: u64, before: &Modules, now: &Modules) -> bool {
    certain(address, before, now).is_some_and(|m| before.holds(m) && now.holds(m))
}

/// `None`: so many calls have no caller; else whether there was room to define it.
fn count(done: Option<bool>, calls: u64) {
    match done {
        Some(true) => {}
        Some(false) => losses::add(Loss::CallerDropped, calls),
        None => losses::add(Loss::CallerUnknown, calls),
    }
}

fn define(module: &Module, address: u64, module_only: bool, stack: u32, store: &mut Store) -> bool {
    let frame = caller(module, address, module_only, store);
    frame.and_then(|frame| store.stack(&[frame], None, Some(stack))).is_some()
}

/// The id of a frame that is a caller; `None` where there is no room.
pub(super) fn caller(module: &Module, address: u64, module_only: bool, store: &mut Store) -> Option<u32> {
    let path = store.site_string(&module.path)?;
    let build_id = match module.build_id.as_str() {
        "" => 0,
        id => store.site_string(id.as_bytes())?,
    };
    let module_id = store.module(ModuleInfo { path, build_id, base: module.base })?;
    let offset = address.wrapping_sub(module.base);
    store.caller(CallerInfo { module: module_id, module_only, offset })
}

/// Names of the functions that CUDA's static runtime consists of: its API (`cudaMalloc`), the
/// driver's (stubs that load it: `cuMemAlloc`), what nvcc's own code calls, and what its library
/// hides.
fn is_of_the_runtime(name: &str) -> bool {
    let api = |prefix: &str| {
        let rest = name.strip_prefix(prefix).and_then(|rest| rest.bytes().next());
        rest.is_some_and(|b| b.is_ascii_uppercase())
    };
    let hidden = ["__cuda", "__cudart", "libcudart_static", "_ZN6cudart"];
    api("cuda") || api("cu") || hidden.iter().any(|prefix| name.starts_with(prefix))
}

/// Is this the function that nvcc or clang makes for a kernel, to be called on the host? It has the
/// name of the kernel, which is at `kernel`, or one of the compiler's own.
fn is_kernels_own(name: &str, kernel: u64) -> bool {
    ["__device_stub__", "cudaLaunchKernel"].iter().any(|part| name.contains(part))
        || read_string(kernel).is_some_and(|kernel| kernel == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_static_runtime_is_known_by_its_names() {
        for name in
            ["cudaMemcpy", "cuStreamSynchronize", "__cudaPushCallConfiguration", "libcudart_static_ab12"]
        {
            assert!(is_of_the_runtime(name), "{name}");
        }
        for name in ["cuda_step", "cudastep", "custom", "main", "_Z8cudaStepv", "cuda", ""] {
            assert!(!is_of_the_runtime(name), "{name}");
        }
    }
}
