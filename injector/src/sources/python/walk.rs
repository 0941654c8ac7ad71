// SPDX-License-Identifier: Apache-2.0
// HOT (`site`, `on_code_dealloc`), COLD (`prepare`)
//! The calling thread's Python frames, read where they lie: no GIL, no reference, some 2 ns a frame
//! (`docs/event-cost.md`). While a thread is inside a C call its own frames do not change, and they
//! keep their code objects alive.
//!
//! A stack is known by a hash over its frames. With the first sight of a hash its raw frames go
//! through the thread's ring, for the drain thread to read names and lines; each call then sends
//! the hash alone ([`TAG_SITE`]).
//!
//! The hash is over addresses, and a dead code object's address is soon another's: the same name,
//! file and position may come back at the same place with other text behind it. So each code object
//! that was walked has a stamp, a number that is never given twice, and loses it when it dies: the
//! deallocator of the type of code objects is ours from the start, gives the address a new stamp,
//! and goes on to the interpreter's. The stamp is part of the hash, and the drain thread looks at
//! it again after it has read a code object. Nothing learnt about an address before a death is ever
//! used after it: what a thread keeps of its stacks ([`memo`]) ends with each death.

use std::ffi::c_void;
use std::sync::atomic::{fence, AtomicPtr, AtomicU64, Ordering};

use trace::define::MAX_FRAMES;
use trace::Loss;

use super::interpreter::Interpreter;
use super::layout::frames::Instruction;
use crate::platform::{losses, memory};
use crate::ring::{Tag, SLOT_WORDS};
use crate::sources::hostpool;
use crate::sources::memo::{self, Memo};
use crate::sources::seen::Seen;

/// Tags in the kind byte of a ring slot; see [`Tag`]. Hash and number of the frames that follow.
pub(crate) const TAG_STACK: u64 = Tag::Stack as u64;
/// Code object, instruction, stamp; bits 8..16 owner, 16..64 the module that is called.
pub(crate) const TAG_FRAME: u64 = Tag::Frame as u64;
/// Hash of the call that follows.
pub(crate) const TAG_SITE: u64 = Tag::Site as u64;

/// Owners from here on are the interpreter's own entry frames (3.12 to 3.15).
const OWNED_BY_INTERPRETER: u8 = 3;
/// A generator's frame: it is a frame before its first line, too.
pub(crate) const OWNED_BY_GENERATOR: u8 = 1;

/// As many as the drain thread remembers (`sites`).
const SENT: usize = 32_768;
const STAMPED: usize = 16_384;
/// Places a code object may stand at.
const WAYS: usize = 4;

/// What threads share. All-zero: nothing seen.
#[repr(C)]
struct Tables {
    /// Hashes whose frames were sent. One that is thrown out is sent again.
    sent: Seen<SENT>,
    /// Code objects that were walked. One that is thrown out gets a new stamp with its next call.
    stamped: [Stamped; STAMPED],
}

/// A code object's address and its stamp: four of them to a cache line.
#[repr(C)]
struct Stamped {
    code: AtomicU64,
    stamp: AtomicU64,
}

/// Walks so far.
struct Walks {
    /// The next stamp; 0 is none.
    next: AtomicU64,
    tables: AtomicPtr<Tables>,
    /// The interpreter's own deallocator of code objects.
    deallocate: AtomicPtr<c_void>,
}

static WALKS: Walks = Walks {
    next: AtomicU64::new(1),
    tables: AtomicPtr::new(std::ptr::null_mut()),
    deallocate: AtomicPtr::new(std::ptr::null_mut()),
};

fn tables() -> Option<&'static Tables> {
    // SAFETY: null, or set once by `prepare` to a zeroed mapping of the right size that is never
    // unmapped; all fields are atomics for which zero is valid.
    unsafe { WALKS.tables.load(Ordering::Acquire).as_ref() }
}

/// Memory, and the deallocator. COLD, once; `false` where memory cannot be had.
pub(crate) fn prepare(interpreter: &Interpreter) -> bool {
    let Some(memory) = memory::map(size_of::<Tables>(), true) else { return false };
    WALKS.tables.store(memory.as_ptr().cast(), Ordering::Release);
    let slot = interpreter.deallocator().cast::<*mut c_void>();
    // SAFETY: a pointer-sized, aligned member of a static type object, which the interpreter itself
    // writes to while it readies its types; never unmapped, since libpython or the executable is
    // not. Others only read it.
    let slot = unsafe { AtomicPtr::from_ptr(slot) };
    let ours = on_code_dealloc as *mut c_void;
    let before = slot.load(Ordering::Acquire);
    if before != ours {
        WALKS.deallocate.store(before, Ordering::Release);
        slot.store(ours, Ordering::Release);
    }
    true
}

/// A code object dies: noted while its memory and its strings are still its own, then as ever. For
/// good: nothing of ours is unloaded, and this needs nothing but two tables.
unsafe extern "C" fn on_code_dealloc(code: *mut c_void) {
    crate::platform::guard::guard((), || {
        let _ = CALLS_MODULES.compare_exchange(code as u64, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
        // of any: what a thread keeps may be of one whose entry another took since
        memo::end_era();
        // two threads that saw it first at the same time may have put it into two entries
        for entry in tables().map(|t| t.entries(code as u64)).into_iter().flatten() {
            if entry.code.load(Ordering::Acquire) == code as u64 {
                entry.stamp.store(fresh(), Ordering::Release);
            }
        }
    });
    let before = WALKS.deallocate.load(Ordering::Acquire);
    if !before.is_null() {
        // SAFETY: what stood in the type's slot before us: its `destructor`.
        let before = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(before) };
        // SAFETY: called as the interpreter called us.
        unsafe { before(code) };
    }
}

fn fresh() -> u64 {
    WALKS.next.fetch_add(1, Ordering::Relaxed)
}

impl Tables {
    #[inline]
    fn entries(&self, code: u64) -> &[Stamped] {
        let from = (code >> 4 ^ code >> 16) as usize % (STAMPED / WAYS) * WAYS;
        self.stamped.get(from..from + WAYS).unwrap_or(&[])
    }

    /// Where a code object is noted. Acquire pairs with the Release in `stamp`: its stamp, or a
    /// later one, is there.
    #[inline]
    fn entry(&self, code: u64) -> Option<&Stamped> {
        self.entries(code).iter().find(|e| e.code.load(Ordering::Acquire) == code)
    }

    #[inline]
    fn stamp_of(&self, code: u64) -> u64 {
        self.entry(code).map_or(0, |e| e.stamp.load(Ordering::Acquire))
    }

    /// The stamp of a living code object, a new one where it has none. Two threads may choose one
    /// entry at the same time: then one of them finds its own gone, or under the other's stamp, and
    /// its frame counts as unreadable.
    fn stamp(&self, code: u64) -> u64 {
        if let Some(entry) = self.entry(code) {
            return entry.stamp.load(Ordering::Acquire);
        }
        let stamp = fresh();
        let entries = self.entries(code);
        let free = entries.iter().find(|e| e.code.load(Ordering::Relaxed) == 0);
        if let Some(entry) = free.or_else(|| entries.get(stamp as usize % WAYS)) {
            entry.code.store(0, Ordering::Release);
            entry.stamp.store(stamp, Ordering::Release);
            entry.code.store(code, Ordering::Release);
        }
        stamp
    }
}

/// Is the code object at this address still the one of this stamp?
pub(crate) fn is_alive(code: u64, stamp: u64) -> bool {
    fence(Ordering::SeqCst); // what was read before is older than what is read now
    tables().is_some_and(|t| t.stamp_of(code) == stamp)
}

/// Forgets that this one was sent.
pub(crate) fn forget(hash: u64) {
    if let Some(tables) = tables() {
        tables.sent.forget(hash);
    }
}

/// Forgets what was sent: every stack comes again with its next call.
pub(crate) fn send_again() {
    if let Some(tables) = tables() {
        tables.sent.clear();
    }
}

/// A frame as it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawFrame {
    /// Address of the code object.
    pub(crate) code: u64,
    /// As the layout's `instruction_is` says.
    pub(crate) instruction: u64,
    /// Whose frame it is; 0 before 3.11.
    pub(crate) owner: u8,
    /// Address of the module of PyTorch's that this frame calls (`modules`); 0: it calls none.
    pub(crate) module: u64,
}

/// The code object that calls modules; `u64::MAX`: none is known.
static CALLS_MODULES: AtomicU64 = AtomicU64::new(u64::MAX);

/// Frames of this code object have a module as their first local variable. WARM.
pub(super) fn take_modules_from(code: u64) {
    if CALLS_MODULES.swap(code, Ordering::Relaxed) != code {
        memo::end_era(); // what was walked before has none
    }
}

/// Are modules taken from any frames? WARM.
pub(super) fn takes_modules() -> bool {
    CALLS_MODULES.load(Ordering::Relaxed) != u64::MAX
}

/// The calling thread's frames, innermost first. What differs by release and would be asked for
/// each frame is in the type, and a walk is a function of its own that calls nothing: all that its
/// loop needs is held in registers.
#[derive(Clone, Copy)]
struct Frames<const OWNED: bool, const POINTER: bool> {
    previous: usize,
    owner: usize,
    code: usize,
    instruction: usize,
    local: usize,
    calls_modules: u64,
    at: usize,
    steps: usize,
}

/// # Safety
/// Aligned and readable memory of the interpreter.
#[inline]
unsafe fn load(address: usize) -> usize {
    // SAFETY: the caller's contract.
    unsafe { (address as *const usize).read() }
}

impl<const OWNED: bool, const POINTER: bool> Frames<OWNED, POINTER> {
    /// The calling thread's, `thread` being its state.
    #[inline]
    fn of(interpreter: &Interpreter, thread: usize) -> Self {
        let layout = &interpreter.layout;
        // SAFETY: the calling thread's own state, alive while the thread has it; the offsets were
        // checked.
        let mut at = unsafe { load(thread + layout.thread_frame) };
        if let (Some(through), true) = (layout.through, at != 0) {
            // SAFETY: as above.
            at = unsafe { load(at + through) };
        }
        Frames {
            previous: layout.previous,
            owner: layout.owner.unwrap_or(0),
            code: layout.code,
            instruction: layout.instruction,
            local: layout.local.unwrap_or(0),
            calls_modules: match layout.local {
                Some(_) => CALLS_MODULES.load(Ordering::Relaxed),
                None => u64::MAX,
            },
            at,
            steps: 4 * MAX_FRAMES,
        }
    }

    /// The next that is none of the interpreter's own; not yet known to be a function's.
    #[inline]
    fn step(&mut self) -> Option<RawFrame> {
        while self.at != 0 && self.steps > 0 {
            let at = self.at;
            self.steps -= 1;
            // SAFETY: `at` is a frame of the calling thread, which is inside a C call: the frame is
            // alive and does not change. The offsets were checked against this interpreter
            // (`check`).
            self.at = unsafe { load(at + self.previous) };
            let mut owner = 0;
            if OWNED {
                // SAFETY: as above.
                owner = unsafe { ((at + self.owner) as *const u8).read() };
            }
            if owner >= OWNED_BY_INTERPRETER {
                continue;
            }
            // The low bits are tags from 3.14 on; objects are aligned to 8 at least.
            // SAFETY: as above.
            let code = unsafe { load(at + self.code) } as u64 & !7;
            let instruction = if POINTER {
                // SAFETY: as above.
                unsafe { load(at + self.instruction) as u64 }
            } else {
                // SAFETY: as above, an int.
                u64::from(unsafe { ((at + self.instruction) as *const u32).read() })
            };
            let mut module = 0;
            if code == self.calls_modules {
                // SAFETY: as above: a frame of a function that has at least this one local.
                module = unsafe { load(at + self.local) } as u64 & !7;
            }
            return Some(RawFrame { code, instruction, owner, module });
        }
        None
    }

    /// A hash over the words of all, as they lie there, and how many they are.
    #[inline(never)]
    fn words(mut self) -> Hash {
        let mut hash = Hash::NONE;
        while let Some(frame) = self.step() {
            hash.add(fold(frame.code ^ frame.module.rotate_left(32), frame.instruction));
            if hash.depth == MAX_FRAMES as u64 {
                break;
            }
        }
        hash
    }
}

/// Is the object that a frame holds as its code one?
#[inline]
fn is_function(interpreter: &Interpreter, frame: &RawFrame) -> bool {
    // SAFETY: an object that the frame keeps alive; its type stands in its head.
    frame.code != 0
        && unsafe { load(frame.code as usize + interpreter.layout.object_type()) } == interpreter.code_type
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x8ebc_6af0_9c88_c6e3) * u128::from(b ^ 0x9e37_79b9_7f4a_7c15);
    product as u64 ^ (product >> 64) as u64
}

/// A frame's own part of a stack's hash, its code object being of this stamp.
#[inline]
fn mix_stamped(frame: &RawFrame, stamp: u64) -> u64 {
    let code = frame.code ^ frame.module.rotate_left(32);
    fold(code, frame.instruction ^ stamp.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

/// The hash of stacks, a frame at a time: a polynomial of what each is mixed to, so that a product
/// and an addition alone wait for the frame before.
struct Hash {
    value: u64,
    depth: u64,
}

impl Hash {
    const NONE: Hash = Hash { value: 0x2545_f491_4f6c_dd1d, depth: 0 };

    #[inline]
    fn add(&mut self, mixed: u64) {
        let value = self.value.wrapping_mul(0xa24b_aed4_963e_e407).wrapping_add(mixed);
        *self = Hash { value, depth: self.depth + 1 };
    }

    /// Never 0.
    #[inline]
    fn end(&self) -> u64 {
        fold(self.value, self.depth).max(1)
    }
}

/// The hash of the calling thread's stack, whose frames are on their way to the drain thread; 0
/// where there is none. The caller is inside a C call of this thread and has found `thread` to be
/// its state, with no finalisation begun.
#[inline]
pub(super) fn site(interpreter: &Interpreter, thread: usize) -> u64 {
    let Some(tables) = tables() else { return 0 };
    let memo = hostpool::memo();
    let layout = &interpreter.layout;
    let walk = match (layout.owner.is_some(), layout.instruction_is == Instruction::Pointer) {
        (true, true) => walk::<true, true>,
        (true, false) => walk::<true, false>,
        (false, true) => walk::<false, true>,
        (false, false) => walk::<false, false>,
    };
    walk(interpreter, thread, tables, memo)
}

#[inline]
fn walk<const OWNED: bool, const POINTER: bool>(
    interpreter: &Interpreter,
    thread: usize,
    tables: &Tables,
    memo: Option<&Memo>,
) -> u64 {
    let era = memo::era();
    let frames = Frames::<OWNED, POINTER>::of(interpreter, thread);
    let words = frames.words();
    if words.depth == 0 {
        return 0;
    }
    let Some(memo) = memo else {
        losses::add(Loss::SiteDropped, 1); // a thread without a ring of its own
        return 0;
    };
    if let Some(site) = memo.get(words.end(), era).filter(|site| tables.sent.has(*site)) {
        return site;
    }
    let found = stamped(interpreter, tables, frames);
    if found.site != 0 && found.of_functions {
        memo.keep(words.end(), era, found.site);
    }
    found.site
}

/// What a stack is by its code objects and their stamps.
struct Found {
    site: u64,
    /// All its frames are of functions: else what an address holds may become one, and no code
    /// object dies.
    of_functions: bool,
}

/// Of a stack that `memo` knows nothing of. Sent where it is new, or its stamps are.
#[cold]
#[inline(never)]
fn stamped<const OWNED: bool, const POINTER: bool>(
    interpreter: &Interpreter,
    tables: &Tables,
    mut frames: Frames<OWNED, POINTER>,
) -> Found {
    let mut of_functions = true;
    let mut stack = [RawFrame { code: 0, instruction: 0, owner: 0, module: 0 }; MAX_FRAMES];
    let mut hash = Hash::NONE;
    let mut rest = stack.iter_mut();
    while let Some(frame) = frames.step() {
        if !is_function(interpreter, &frame) {
            of_functions = false;
            continue;
        }
        let Some(place) = rest.next() else { break };
        *place = frame;
        hash.add(mix_stamped(&frame, tables.stamp_of(frame.code)));
    }
    let stack = stack.get(..hash.depth as usize).unwrap_or(&[]);
    let site = match hash.end() {
        _ if stack.is_empty() => 0,
        sent if tables.sent.has(sent) => sent,
        _ => send(tables, stack),
    };
    Found { site, of_functions }
}

/// Sends the frames of a stack, stamped, and returns its hash; 0 where there is no room for them.
fn send(tables: &Tables, stack: &[RawFrame]) -> u64 {
    let mut slots = [[0u64; SLOT_WORDS]; MAX_FRAMES + 1];
    let mut hash = Hash::NONE;
    for (slot, frame) in slots.iter_mut().skip(1).zip(stack) {
        let stamp = tables.stamp(frame.code);
        hash.add(mix_stamped(frame, stamp));
        let tagged = TAG_FRAME | u64::from(frame.owner) << 8 | frame.module << 16;
        *slot = [frame.code, frame.instruction, stamp, tagged];
    }
    if let Some(first) = slots.first_mut() {
        *first = [hash.end(), hash.depth, 0, TAG_STACK];
    }
    // before it is pushed: the drain thread may forget it at once
    tables.sent.add(hash.end());
    let sent = slots.get(..hash.depth as usize + 1).is_some_and(hostpool::push_together);
    if !sent {
        forget(hash.end());
        losses::add(Loss::SiteDropped, 1);
        return 0;
    }
    hash.end()
}
