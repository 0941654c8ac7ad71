// SPDX-License-Identifier: Apache-2.0
//! Names for machine code that called CUDA: from module and offset, as recorded, to the function,
//! and in the command to file and line where the module has debug information. Read off the
//! module's file, and only where it is the one that was loaded: the same build id; where it has
//! none, not changed since the recording began.
//!
//! The function is the symbol whose bytes the call lies in; a symbol that merely comes before it is
//! none. What has no symbol stays module and offset.

mod elf;
mod inductor;
mod operators;
mod overloads;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Instant, UNIX_EPOCH};

use elf::Elf;
pub use elf::{Limit, Nearby};
use trace::define::{CallerInfo, Definition, FrameInfo, Language};
use trace::Definitions;

use crate::run::Run;

/// Largest file looked into, bytes: libraries of PyTorch have up to 2 GB.
const LARGEST: u64 = 8 << 30;
/// Callers named at most; a run has some dozens.
const MAX_CALLERS: usize = 4096;
/// Bytes of symbols that a report in the traced process reads of a module: five million functions.
const MOST_IN_PROCESS: u64 = 128 << 20;

/// A function of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// As the linker knows it.
    pub name: String,
    /// Where it begins, an address of its file.
    pub begins: u64,
}

/// The file that was loaded, if this is it. `build_id` in hex, empty where it has none; then the
/// file is not newer than `loaded_at` (ns since 1970).
fn same_file(path: &Path, build_id: &str, loaded_at: u64) -> Option<Elf> {
    // not a pipe, which would wait for a writer
    let about = std::fs::metadata(path).ok().filter(|m| m.is_file() && m.len() <= LARGEST)?;
    let mut elf = Elf::open(path)?;
    let found = hex(&elf.build_id());
    let is_old = || {
        let changed = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(changed.as_nanos() <= u128::from(loaded_at))
    };
    let same = found == build_id && (!found.is_empty() || is_old().unwrap_or(false));
    same.then_some(elf)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The functions at these addresses of a module's file; see [`self`]. One pass over its symbols,
/// within `limit`.
pub fn of_file(
    path: &Path,
    build_id: &str,
    loaded_at: u64,
    addresses: &[u64],
    limit: Limit,
) -> Vec<Option<Symbol>> {
    match same_file(path, build_id, loaded_at) {
        Some(mut elf) => elf.functions(addresses, limit),
        None => vec![None; addresses.len()],
    }
}

/// The functions around an address of a module's file, within `limit`; `None` where there was no
/// time. Of a file that is not the one that was loaded, or has more symbols than that: none.
pub fn nearby(path: &Path, build_id: &str, address: u64, limit: Limit) -> Option<Nearby> {
    match same_file(path, build_id, u64::MAX) {
        Some(mut elf) => elf.nearby(address, limit),
        None => Some(Nearby::default()),
    }
}

/// The function at an address of a module's file that `nearby` covers.
pub fn at(path: &Path, build_id: &str, address: u64, nearby: &Nearby) -> Option<Symbol> {
    nearby.find(address)?; // else no file is opened
    same_file(path, build_id, u64::MAX)?.at(address, nearby)
}

/// Names the callers of a run, and PyTorch's operators, by their symbols, as far as there is time.
pub fn name(run: &mut Run, until: Option<Instant>) {
    let none: Lines = |_, _, _, calls| vec![None; calls.len()];
    let limit = Limit { bytes: MOST_IN_PROCESS, until };
    name_all(run, limit, none);
}

/// As [`name`], the callers by file and line where their modules have debug information. Not in a
/// traced process: it takes memory and time.
#[cfg(feature = "readers")]
pub fn name_with_lines(run: &mut Run, until: Option<Instant>) {
    let limit = Limit { until, ..Limit::NONE };
    name_all(run, limit, lines::of_file);
}

/// Function, file and line.
type Line = (Option<String>, String, u32);
/// Of a module's file (path, build id, when it was loaded at the latest) the lines of addresses.
type Lines = fn(&Path, &str, u64, &[u64]) -> Vec<Option<Line>>;

fn name_all(run: &mut Run, limit: Limit, lines: Lines) {
    let started = run.header.start_realtime;
    name_callers(&mut run.definitions, started, limit, lines);
    run.operators = operators::read(&run.definitions, started, limit);
    run.take_operators_of_captures();
}

fn name_callers(definitions: &mut Definitions, started: u64, limit: Limit, lines: Lines) {
    let mut modules: BTreeMap<u32, Vec<(u32, CallerInfo)>> = BTreeMap::new();
    // (those between a line and its kernels are many, and have names of their own)
    let between: HashSet<u32> = definitions.natives().iter().map(|n| n.native).collect();
    let of_calls =
        definitions.stacks().filter(|(id, _)| !between.contains(id)).flat_map(|(_, frames)| frames);
    let of_calls: HashSet<u32> = of_calls.copied().collect();
    for (frame, caller) in definitions.callers().filter(|c| of_calls.contains(&c.0)).take(MAX_CALLERS) {
        modules.entry(caller.module).or_default().push((frame, *caller));
    }
    let mut next = definitions.free_string_id();
    for (id, mut callers) in modules {
        callers.sort_unstable_by_key(|c| c.0);
        let module = definitions.module(id).copied().unwrap_or_default();
        let path = PathBuf::from(definitions.string(module.path).unwrap_or(""));
        let build_id = definitions.string(module.build_id).unwrap_or("").to_owned();
        let named = match limit.until.is_some_and(|until| Instant::now() > until) {
            true => vec![Named::default(); callers.len()],
            false => Named::of(&path, &build_id, (started, limit), &callers, lines),
        };
        for ((frame, caller), named) in callers.into_iter().zip(named) {
            let mut string = |definitions: &mut Definitions, text: &str| {
                definitions.insert(next, Definition::String(text.as_bytes()));
                next = next.saturating_add(1);
                next - 1
            };
            let function = match (&named.function, caller.module_only) {
                (_, true) => 0,
                (Some(name), _) => string(definitions, name),
                (None, _) => string(definitions, &format!("{:#x}", caller.offset)),
            };
            let (file, line) = match named.line {
                Some((file, line)) => (string(definitions, &file), line),
                None => (module.path, 0),
            };
            let info = FrameInfo { language: Language::Caller, function, file, line };
            definitions.insert(frame, Definition::Frame(info));
        }
    }
}

/// What is known of a caller.
#[derive(Clone, Default, Debug)]
struct Named {
    /// With the distance behind it where there is no line.
    function: Option<String>,
    line: Option<(String, u32)>,
}

impl Named {
    fn of(
        path: &Path,
        build_id: &str,
        (started, limit): (u64, Limit),
        callers: &[(u32, CallerInfo)],
        lines: Lines,
    ) -> Vec<Named> {
        // the call is before the address that it returns to, and may be the last of its function
        let calls: Vec<u64> = callers.iter().map(|c| c.1.offset.saturating_sub(1)).collect();
        let lines = lines(path, build_id, started, &calls);
        let symbols = of_file(path, build_id, started, &calls, limit);
        let each = callers.iter().zip(lines).zip(symbols);
        each.map(|((caller, line), symbol)| {
            if let Some((function, file, line)) = line {
                let function = function.or(symbol.map(|s| s.name));
                return Named { function, line: Some((file, line)) };
            }
            let behind = |s: Symbol| format!("{}+{:#x}", s.name, caller.1.offset.saturating_sub(s.begins));
            Named { function: symbol.map(behind), line: None }
        })
        .collect()
    }
}

#[cfg(feature = "readers")]
mod lines {
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::path::Path;

    use super::Line;

    /// By debug information. A file comes from a foreign program: a fault in the parser must not
    /// cost the report.
    pub(super) fn of_file(path: &Path, build_id: &str, started: u64, calls: &[u64]) -> Vec<Option<Line>> {
        let none = || vec![None; calls.len()];
        if super::same_file(path, build_id, started).is_none() {
            return none();
        }
        catch_unwind(AssertUnwindSafe(|| {
            let loader = addr2line::Loader::new(path).ok()?;
            Some(calls.iter().map(|call| line(&loader, *call)).collect())
        }))
        .ok()
        .flatten()
        .unwrap_or_else(none)
    }

    /// The innermost function, inlined or not: the one in which the call is written.
    fn line(loader: &addr2line::Loader, call: u64) -> Option<Line> {
        let frame = loader.find_frames(call).ok()?.next().ok()??;
        let location = frame.location?;
        let (file, line) = (location.file?.to_owned(), location.line.filter(|l| *l > 0)?);
        let function = frame.function.and_then(|f| Some(f.raw_name().ok()?.into_owned()));
        Some((function, file, line))
    }
}
