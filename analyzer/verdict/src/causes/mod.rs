// SPDX-License-Identifier: Apache-2.0
//! One cause of idle time a file. A cause's module doc is the page that `gapprobe explain CODE`
//! prints, at most 40 lines in fixed sections: What it means / How it is recognised / How sure /
//! Example / What to change.
//!
//! Here: the registry and its thresholds. `case.rs`: what causes are judged by; `unrecorded.rs`:
//! what they cost steps that nobody records; `verdict.rs`: which of them the line names;
//! `agreeing.rs`: what is said of it beside; `unexplained.rs`: too much idle time of no cause;
//! `spots.rs`: which line of the program; `ranges.rs`: which range where there is no line;
//! `stand_ins.rs`: what that line wins by itself; `rhythm.rs`: in how many steps it happens;
//! `unlike.rs`: windows whose steps are not the run's; `late.rs`: what collectives waited for late
//! ranks; `cpus.rs`: how many CPUs there are, who uses them; `workers.rs`: children, a loader's
//! workers; `saves.rs`: what a checkpoint costs; `sync_calls.rs`: which way of waiting a call is;
//! `kernels.rs`: what causes of kernels have in common; `kernel_names.rs`: what a kernel does, by
//! its name; `memory.rs`: allocations that failed, memory that grows. Adding one: CONTRIBUTING.md,
//! "A cause".

mod agreeing;
mod case;
mod cost;
mod cpus;
pub mod kernel_names;
mod kernels;
mod late;
pub mod memory;
mod needed;
mod power;
mod ranges;
mod rhythm;
mod saves;
pub(crate) mod shown;
mod spots;
mod stand_ins;
pub(crate) mod sync_calls;
mod unexplained;
mod unlike;
mod unrecorded;
mod verdict;
mod worker_waits;
mod workers;

pub mod alignment;
pub mod alloc;
pub mod alloc_fragmented;
pub mod attention_unfused;
pub mod casts;
pub mod comm;
pub mod compile;
pub mod copy;
pub mod device_wait;
pub mod efficient;
pub mod file_io;
pub mod fp32_matmul;
pub mod gc;
pub mod gil;
pub mod gpu_bound;
pub mod graph_breaks;
pub mod host;
mod host_parts;
pub mod inconclusive;
pub mod input;
pub mod input_collate;
pub mod input_main;
pub mod input_pin;
pub mod input_storage;
pub mod input_workers;
pub mod kernel_gap;
pub mod launch;
pub mod launch_optimizer;
pub mod layout;
pub mod lines;
pub mod lock;
pub mod logging;
pub mod low_occupancy;
pub mod memory_bound;
pub mod memory_growth;
pub mod mixed;
pub mod native_cpu;
pub mod network;
pub mod no_work;
pub mod out_of_memory;
pub mod recompute;
pub mod sleep;
pub mod small_kernels;
pub mod starved;
pub mod sync;
pub mod throttled;

pub(crate) use case::{Case, OtherDevice};
pub(crate) use verdict::judge;

use crate::analysis::{Bucket, Finding};
use crate::replay::Fix;

/// A cause whose fix wins at least this share of the step, as nobody records it
/// ([`Finding::unrecorded_win`]), is named.
pub const NAMED_WIN: f64 = 0.10;
/// From here to [`NAMED_WIN`] a cause is minor.
pub const MINOR_WIN: f64 = 0.05;
/// Exclusive computing from this share on is GPU-BOUND.
pub const GPU_BOUND_SHARE: f64 = 0.85;
/// Unexplained time above this share (or above the winning cause's) makes a verdict impossible.
pub const UNEXPLAINED_SHARE: f64 = 0.15;
/// Losses of data above this share of the valid span's events make a verdict impossible.
pub const LOSS_SHARE: f64 = 0.001;
/// Small kernels are a cause from this share of the busy time on.
pub const SMALL_SHARE: f64 = 0.30;
/// A replay further off the measured time than this predicts nothing: shares are all there is.
pub const MODEL_ERROR: f64 = 0.30;

/// A row of the registry.
pub struct Cause {
    /// Stable code.
    pub code: &'static str,
    /// Name in the line.
    pub name: &'static str,
    /// Source of its file: the page is its module doc, see [`page`].
    source: &'static str,
    /// Why the GPU waits, in the line's words: "the host waits for the GPU[ {often}]". What stands
    /// in brackets is said where the evidence has its figures, by their names in braces.
    pub why: &'static str,
    /// What is worth trying first when two are as good: small numbers.
    pub effort: u8,
    /// Code of the cause that it is a kind of.
    pub parent: Option<&'static str>,
    /// The idle time that it stands for, where that is one bucket.
    pub(crate) bucket: Option<Bucket>,
    /// What the replay tries.
    pub(crate) fix: Option<Fix>,
    /// The evidence. Verdicts without a fix of their own (GPU-BOUND, MIXED, INCONCLUSIVE) have no
    /// function here.
    pub(crate) evaluate: Option<fn(&Case) -> Option<Finding>>,
}

impl Cause {
    /// The page that explains it: its module doc, as Markdown.
    pub fn doc(&self) -> String {
        page(self.source)
    }

    /// One sentence: what it is.
    pub fn title(&self) -> &'static str {
        let first = self.source.lines().find_map(|l| l.strip_prefix("//! ")).unwrap_or("");
        first.split_once(": ").map_or(first, |(_, title)| title)
    }
}

macro_rules! registry {
    ($($module:ident $effort:literal [$parent:expr, $bucket:expr, $fix:expr] $evaluate:expr,
        $why:literal;)*) => {
        /// All causes, by code.
        pub const ALL: &[Cause] = &[$(Cause {
            code: $module::CODE,
            name: $module::NAME,
            // (the injected library explains nothing, and does not carry the pages)
            source: if cfg!(feature = "readers") { include_str!(concat!(stringify!($module), ".rs")) } else { "" },
            why: $why,
            effort: $effort,
            parent: $parent,
            bucket: $bucket,
            fix: $fix,
            evaluate: $evaluate,
        },)*];
    };
}

// module, effort, [the cause it is a kind of, its idle time, what the replay tries], evidence,
// why the GPU waits (for the line: `sentence.rs`)
registry! {
    sync 2 [None, Some(Bucket::Sync), Some(Fix::Sync)] Some(sync::evaluate),
        "the host waits for the GPU[ {often}]";
    launch 5 [None, None, Some(Fix::Launch)] Some(launch::evaluate),
        "launch-bound, [{waiting} of {kernels} ]kernels wait for the host";
    small_kernels 6 [None, None, Some(Fix::Fuse)] Some(small_kernels::evaluate),
        "kernels too small to fill the GPU";
    kernel_gap 6 [None, None, Some(Fix::Fuse)] Some(kernel_gap::evaluate),
        "gaps between queued kernels";
    host 4 [None, Some(Bucket::Host), Some(Fix::Host)] Some(host::evaluate),
        "the host works between launches";
    copy 3 [None, Some(Bucket::CopyWait), Some(Fix::Copy)] Some(copy::evaluate),
        "copies hold up the kernels[, {bytes_a_step}/step]";
    comm 7 [None, None, Some(Fix::Comm)] Some(comm::evaluate),
        "collectives are not hidden";
    alloc 1 [None, Some(Bucket::Alloc), Some(Fix::Alloc)] Some(alloc::evaluate),
        "cudaMalloc and cudaFree wait[ {often}]";
    device_wait 6 [None, None, Some(Fix::DeviceWait)] Some(device_wait::evaluate),
        "streams wait for each other";
    input 3 [None, Some(Bucket::Input), Some(Fix::Input)] Some(input::evaluate),
        "data comes too late";
    input_main 2 [Some(input::CODE), Some(Bucket::Input), Some(Fix::Input)] Some(input_main::evaluate),
        "data is loaded in the main process";
    input_workers 3 [Some(input::CODE), Some(Bucket::Input), Some(Fix::Input)] Some(input_workers::evaluate),
        "the DataLoader's workers are too slow[, {wanted} needed]";
    input_storage 4 [Some(input::CODE), Some(Bucket::Input), Some(Fix::Input)] Some(input_storage::evaluate),
        "data comes too slowly from storage";
    launch_optimizer 1 [Some(launch::CODE), None, Some(Fix::Launch)] Some(launch_optimizer::evaluate),
        "the optimizer is launch-bound";
    graph_breaks 3 [Some(launch::CODE), None, Some(Fix::Launch)] Some(graph_breaks::evaluate),
        "graph breaks, the pieces are launch-bound";
    input_collate 2 [Some(input::CODE), Some(Bucket::Input), Some(Fix::Input)] Some(input_collate::evaluate),
        "collating batches is too slow";
    input_pin 3 [Some(input::CODE), Some(Bucket::Input), Some(Fix::Input)] Some(input_pin::evaluate),
        "pinning batches is too slow";
    alloc_fragmented 1 [Some(alloc::CODE), Some(Bucket::Alloc), Some(Fix::Alloc)] Some(alloc_fragmented::evaluate),
        "GPU memory is fragmented";
    memory_growth 4 [None, None, None] Some(memory_growth::evaluate),
        "GPU memory grows";
    gc 1 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(gc::evaluate),
        "Python collects garbage";
    gil 4 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(gil::evaluate),
        "another thread holds the GIL";
    file_io 3 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(file_io::evaluate),
        "the host reads or writes files";
    logging 2 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(logging::evaluate),
        "the host writes logs";
    compile 4 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(compile::evaluate),
        "kernels are compiled during the run";
    starved 3 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(starved::evaluate),
        "the host gets no CPU";
    sleep 1 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(sleep::evaluate),
        "the host sleeps";
    lock 4 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(lock::evaluate),
        "the host waits for a lock";
    network 3 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(network::evaluate),
        "the host waits for the network";
    native_cpu 4 [Some(host::CODE), Some(Bucket::Host), Some(Fix::Host)] Some(native_cpu::evaluate),
        "native code computes on the CPU";
    out_of_memory 4 [None, None, None] Some(out_of_memory::evaluate),
        "GPU memory runs out";
    casts 3 [None, None, None] Some(casts::evaluate),
        "kernels that only convert types";
    fp32_matmul 2 [None, None, None] Some(fp32_matmul::evaluate),
        "FP32 products leave the tensor cores idle";
    recompute 3 [None, None, None] Some(recompute::evaluate),
        "the forward pass is computed again";
    layout 2 [None, None, None] Some(layout::evaluate),
        "tensors are copied between layouts";
    attention_unfused 2 [None, None, None] Some(attention_unfused::evaluate),
        "attention is not fused";
    alignment 2 [None, None, None] Some(alignment::evaluate),
        "matrices are not aligned";
    memory_bound 4 [None, None, None] Some(memory_bound::evaluate),
        "elementwise operations are not fused";
    low_occupancy 3 [None, None, None] Some(low_occupancy::evaluate),
        "kernels leave much of the GPU idle";
    throttled 7 [None, None, None] Some(throttled::evaluate),
        "heat or the power supply slows the GPU";
    gpu_bound 9 [None, None, None] None,
        "GPU-bound";
    mixed 9 [None, None, None] None,
        "no single fix wins 10%";
    no_work 9 [None, None, None] Some(no_work::evaluate),
        "the program waits for work";
    efficient 9 [None, None, None] None,
        "GPU-bound and well used";
    inconclusive 9 [None, None, None] None,
        "no verdict";
}

/// The cause with this code (`GP101`, any case) or name (`SYNC`).
pub fn find(code: &str) -> Option<&'static Cause> {
    ALL.iter().find(|c| c.code.eq_ignore_ascii_case(code) || c.name.eq_ignore_ascii_case(code))
}

/// The idle time that a cause stands for, where that is one bucket.
pub(crate) fn bucket_of(code: &str) -> Option<Bucket> {
    find(code)?.bucket
}

/// What the replay tries for a cause.
pub(crate) fn fix_of(code: &str) -> Option<Fix> {
    find(code)?.fix
}

/// The cause that this one is a kind of (GP123 LOGGING of GP105 HOST); `None` where it is none.
pub fn kind_of(code: &str) -> Option<&'static str> {
    find(code)?.parent
}

/// Is it this cause or a kind of it?
pub(crate) fn is_of(code: &str, family: &str) -> bool {
    code == family || kind_of(code) == Some(family)
}

/// Is it a verdict on a GPU that computes nearly all the time, without a cause?
pub fn is_computing(code: &str) -> bool {
    [gpu_bound::CODE, efficient::CODE].contains(&code)
}

/// Is it a cause of time in which kernels run, and not of idle time?
pub fn is_of_kernels(code: &str) -> bool {
    const ALL: [&str; 10] = [
        small_kernels::CODE,
        casts::CODE,
        fp32_matmul::CODE,
        recompute::CODE,
        layout::CODE,
        attention_unfused::CODE,
        alignment::CODE,
        memory_bound::CODE,
        low_occupancy::CODE,
        throttled::CODE,
    ];
    ALL.contains(&code)
}

/// The module doc of a source file.
fn page(source: &str) -> String {
    let lines = source.lines().filter_map(|l| l.strip_prefix("//!"));
    lines.map(|l| l.strip_prefix(' ').unwrap_or(l)).fold(String::new(), |mut page, l| {
        page.push_str(l);
        page.push('\n');
        page
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "readers")] // the library carries no pages
    #[test]
    fn every_cause_has_its_page_in_the_fixed_sections() {
        for c in ALL {
            let page = c.doc();
            assert!(page.starts_with(&format!("{} {}", c.code, c.name)), "{page}");
            let sections =
                ["# What it means", "# How it is recognised", "# How sure", "# Example", "# What to change"];
            let at: Vec<_> = sections.iter().map(|s| page.find(s)).collect();
            assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{}: {at:?}", c.code);
            assert!(page.lines().count() <= 40, "{}: {} lines", c.code, page.lines().count());
            assert_eq!(page.matches("```").count(), 2, "{}: one example", c.code);
        }
    }

    /// Evidence is data: what implements a cause writes no text. `evidence.rs` does.
    #[cfg(feature = "readers")]
    #[test]
    fn no_cause_writes_text() {
        let mut files: Vec<&str> = ALL.iter().map(|c| c.source).collect();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), ALL.len(), "a file a cause");
        for c in ALL {
            let code = c.source.split("#[cfg(test)]").next().unwrap_or("");
            assert!(code.contains("pub const CODE"), "{}", c.name);
            for line in code.lines().filter(|l| !l.trim_start().starts_with("//")) {
                let writes = ["String", "format!", "to_string", "to_owned", "write!", "push_str"];
                assert!(!writes.iter().any(|w| line.contains(w)), "{}: {line}", c.name);
            }
        }
    }

    #[test]
    fn kinds_belong_to_their_cause() {
        let of = |name: &str| kind_of(find(name).unwrap().code).and_then(find).map(|c| c.name);
        assert_eq!((of("GC"), of("LOGGING"), of("NETWORK")), (Some("HOST"), Some("HOST"), Some("HOST")));
        assert_eq!((of("INPUT-MAIN"), of("INPUT-STORAGE")), (Some("INPUT"), Some("INPUT")));
        assert_eq!((of("HOST"), of("INPUT"), of("SYNC"), of("NO-WORK")), (None, None, None, None));
    }

    #[test]
    fn a_kind_has_the_time_and_the_fix_of_its_cause() {
        for c in ALL.iter().filter(|c| c.parent.is_some()) {
            let of = c.parent.and_then(find).unwrap();
            assert_eq!((c.bucket, c.fix, of.parent), (of.bucket, of.fix, None), "{}", c.name);
        }
        assert_eq!(ALL.iter().filter(|c| is_of(c.code, host::CODE)).count(), 11);
    }

    #[test]
    fn codes_and_names_are_found_and_unique() {
        for (i, c) in ALL.iter().enumerate() {
            assert_eq!(find(&c.code.to_lowercase()).map(|f| f.name), Some(c.name));
            assert_eq!(find(c.name).map(|f| f.code), Some(c.code));
            assert!(ALL[i + 1..].iter().all(|d| d.code != c.code && d.name != c.name));
        }
        assert!(find("GP000").is_none());
    }
}
