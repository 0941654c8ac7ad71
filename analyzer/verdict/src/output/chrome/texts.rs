// SPDX-License-Identifier: Apache-2.0
//! The parts of events that repeat, as ready JSON: a million launches have a few hundred names.

use std::collections::HashMap;

use trace::{call, Kind, Language};

use super::json::{put_text, put_u64};
use crate::analysis::idle_stacks::frame_name;
use crate::analysis::{Advice, Bucket, Finding};
use crate::causes::{self, sync_calls};
use crate::run::autograd::{type_name, Origin, Work};
use crate::run::{Call, Op, Run};
use crate::sites::Sites;
use crate::text::kernel_name::{demangled, shortened};
use crate::timeline::kernels::KernelTable;

/// Kernel texts kept at most, bytes; beyond that they are made anew each time (hostile recordings
/// only).
const KEPT_BYTES: usize = 16 << 20;
/// Operations up to which every slice carries block, registers and the full name of its kernel;
/// with more, only the first slice of each kernel does: names of PyTorch have up to 850 bytes, more
/// than everything else of a slice.
const TELL_ALWAYS_OPS: u64 = 200_000;

/// What the slices of one kernel have in common.
#[derive(Default)]
struct Kernel {
    /// `,"cat":"kernel","name":"...","args":{`
    json: Vec<u8>,
    /// `,"block":"...","registers":...,"full name":"..."`: what can be known from another slice of
    /// the kernel.
    more: Vec<u8>,
    /// `more` has been written once.
    told: bool,
}

/// Kernels and calls met so far.
pub(super) struct Texts<'a> {
    run: &'a Run,
    kernels: HashMap<u32, Kernel>,
    kernel_bytes: usize,
    spare: Kernel,
    collectives: Vec<u32>,
    calls: HashMap<u32, Vec<u8>>,
    sites: Sites<'a>,
    stacks: HashMap<u32, (Vec<u8>, Vec<u8>)>,
    works: HashMap<Work, Vec<u8>>,
    /// By stack and type of node, and the kernel (0: none).
    operators: HashMap<(u32, Option<u32>, u32), Vec<u8>>,
    /// `,"to change":"..."` by bucket, where lines of the program are known.
    advice: Vec<Vec<u8>>,
    /// Of waits: each way of waiting has its own.
    of_waits: Vec<(Advice, Vec<u8>)>,
    tell_always: bool,
}

impl<'a> Texts<'a> {
    /// No texts yet.
    pub(super) fn new(run: &'a Run) -> Texts<'a> {
        Texts {
            run,
            kernels: HashMap::new(),
            kernel_bytes: 0,
            spare: Kernel::default(),
            collectives: KernelTable::new(run).collectives(),
            calls: HashMap::new(),
            sites: Sites::new(run),
            stacks: HashMap::new(),
            works: HashMap::new(),
            operators: HashMap::new(),
            advice: Vec::new(),
            of_waits: Vec::new(),
            tell_always: run.devices.iter().map(|d| d.ops() as u64).sum::<u64>() <= TELL_ALWAYS_OPS,
        }
    }

    /// Takes what is to be changed from the findings; only of runs whose lines are known.
    pub(super) fn advise(&mut self, findings: &[Finding]) {
        let known = findings.iter().any(|f| f.site.is_some());
        let json = |advice: Advice| {
            let mut json = b",\"to change\":".to_vec();
            put_text(&mut json, advice.long);
            json
        };
        let of = |bucket: Bucket| {
            let fits = |f: &&Finding| f.site.is_some() && causes::bucket_of(f.code) == Some(bucket);
            findings.iter().find(fits).map(|f| f.advice)
        };
        if !known {
            return;
        }
        self.advice = Bucket::ALL.iter().map(|&b| of(b).map_or_else(Vec::new, json)).collect();
        if of(Bucket::Sync).is_some_and(|fix| sync_calls::FIXES.contains(&fix)) {
            self.of_waits = sync_calls::FIXES.iter().map(|&fix| (fix, json(fix))).collect();
        }
    }

    /// What is to be changed about idle time of this kind that this call stands for, as JSON behind
    /// other arguments.
    pub(super) fn advice(&self, bucket: Bucket, call: &Call) -> &[u8] {
        if bucket == Bucket::Sync && !self.of_waits.is_empty() {
            let fix = sync_calls::fix(self.run, call);
            return self.of_waits.iter().find(|f| f.0 == fix).map_or(&[], |f| f.1.as_slice());
        }
        self.advice.get(bucket as usize).map_or(&[], Vec::as_slice)
    }

    /// `,"site":"train.py:88 in step"` of a stack, and `,"stack":"..."`: its frames, innermost
    /// first.
    pub(super) fn site(&mut self, stack: u32) -> (&[u8], &[u8]) {
        if self.stacks.len() > 4096 {
            self.stacks.clear(); // made-up ids
        }
        let (run, sites) = (self.run, &mut self.sites);
        let texts = self.stacks.entry(stack).or_insert_with(|| {
            let (mut site, mut frames) = (Vec::new(), Vec::new());
            if let Some(found) = sites.of(stack).and_then(|s| sites.get(s)) {
                site.extend_from_slice(b",\"site\":");
                put_text(&mut site, &found.to_string());
            }
            let text = |id| run.definitions.string(id).unwrap_or("?");
            let said: Vec<String> = run
                .definitions
                .stack(stack)
                .map(|f| match f.language {
                    Language::Caller => frame_name(run, f),
                    _ => format!("{} ({}:{})", text(f.function), text(f.file), f.line),
                })
                .collect();
            if !said.is_empty() {
                frames.extend_from_slice(b",\"stack\":");
                put_text(&mut frames, &said.join(" < "));
            }
            (site, frames)
        });
        (&texts.0, &texts.1)
    }

    /// What an operation is of: `,"site":"model.py:12 in
    /// forward","module":"blocks.3.attn","backward of":"AddmmBackward0"`.
    pub(super) fn work(&mut self, op: &Op) -> &[u8] {
        let (run, sites) = (self.run, &mut self.sites);
        let Some(Origin { work, .. }) = run.origin(op) else { return &[] };
        if self.works.len() > 65_536 {
            self.works.clear(); // made-up ids
        }
        self.works.entry(work).or_insert_with(|| {
            let mut json = Vec::new();
            if let Some(found) = sites.of_kernel(work.stack).and_then(|s| sites.get(s)) {
                json.extend_from_slice(b",\"site\":");
                put_text(&mut json, &found.to_string());
            }
            let text = |id| run.definitions.string(id).unwrap_or("");
            if let Some(module) = run.definitions.in_module(work.stack) {
                json.extend_from_slice(b",\"module\":");
                put_text(&mut json, text(module.path));
                json.extend_from_slice(b",\"module class\":");
                put_text(&mut json, text(module.class));
            }
            if let Some(node) = work.node {
                json.extend_from_slice(b",\"backward of\":");
                put_text(&mut json, type_name(text(node)));
            }
            json
        })
    }

    /// `,"operator":"aten::linear"` of an operation; of torch.compile's `,"source nodes":"h, out"`
    /// as well.
    pub(super) fn operator(&mut self, op: &Op) -> &[u8] {
        let run = self.run;
        let Some(origin) = run.origin(op) else { return &[] };
        if self.operators.len() > 65_536 || run.operators.are_by_time() {
            self.operators.clear(); // made-up ids; another time
        }
        let kernel = if op.kind == Kind::Kernel { op.a } else { 0 };
        let way = (origin.site, origin.work.node, kernel);
        self.operators.entry(way).or_insert_with(|| {
            let mut json = Vec::new();
            if let Some(operator) = run.operator(&origin, op) {
                json.extend_from_slice(b",\"operator\":");
                put_text(&mut json, operator.name);
                if !operator.nodes.is_empty() {
                    json.extend_from_slice(b",\"source nodes\":");
                    put_text(&mut json, operator.nodes);
                }
            }
            json
        })
    }

    /// Is it a collective? Those are drawn on tracks of their own.
    pub(super) fn is_collective(&self, op: &Op) -> bool {
        op.kind == Kind::Kernel && self.collectives.binary_search(&op.a).is_ok()
    }

    /// The text of a kernel definition (see [`Kernel`]), and what more is to be said of it here.
    pub(super) fn kernel(&mut self, id: u32) -> (&[u8], &[u8]) {
        // not the entry API: an unknown or late id must not be kept
        if !self.kernels.contains_key(&id) {
            let text = kernel_text(self.run, id, self.tell_always);
            if self.run.definitions.kernel(id).is_none() || self.kernel_bytes > KEPT_BYTES {
                self.spare = text;
                return (&self.spare.json, &[]);
            }
            self.kernel_bytes += text.json.len() + text.more.len();
            self.kernels.insert(id, text);
        }
        match self.kernels.get_mut(&id) {
            Some(k) if k.told && !self.tell_always => (&k.json, &[]),
            Some(k) => {
                k.told = true;
                (&k.json, &k.more)
            }
            None => (&[], &[]),
        }
    }

    /// `,"cat":"cuda_runtime","name":"cudaLaunchKernel"` of a packed call id.
    pub(super) fn call(&mut self, packed: u32) -> &[u8] {
        if self.calls.len() > 4096 {
            self.calls.clear(); // made-up ids
        }
        self.calls.entry(packed).or_insert_with(|| {
            let domain: &[u8] = match (packed >> 24) as u8 {
                call::DRIVER => b",\"cat\":\"cuda_driver\",\"name\":",
                _ => b",\"cat\":\"cuda_runtime\",\"name\":",
            };
            let mut json = domain.to_vec();
            match self.run.known_call_name(packed) {
                Some(name) => put_text(&mut json, name),
                None => put_text(&mut json, &format!("call {}", packed & 0xff_ffff)),
            }
            json
        })
    }
}

/// `whole`: each slice says all that is known of its kernel. Else it says which one it is, for who
/// reads the trace again.
fn kernel_text(run: &Run, id: u32, whole: bool) -> Kernel {
    let name = demangled(run.definitions.kernel_name(id));
    let short = shortened(&name);
    let mut json = b",\"cat\":\"kernel\",\"name\":".to_vec();
    put_text(&mut json, &short);
    json.extend_from_slice(b",\"args\":{");
    if !whole {
        json.extend_from_slice(b"\"kernel\":");
        put_u64(&mut json, u64::from(id));
        json.push(b',');
    }
    let mut more = Vec::new();
    if let Some(k) = run.definitions.kernel(id) {
        more.extend_from_slice(b",\"block\":\"");
        for (i, n) in k.block.iter().enumerate() {
            if i > 0 {
                more.push(b',');
            }
            put_u64(&mut more, u64::from(*n));
        }
        more.push(b'"');
        // (Kineto tells the sum of both)
        let shared: &[u8] = match run.foreign && k.dynamic_shared == 0 {
            true => b",\"shared memory\":",
            false => b",\"static shared\":",
        };
        for (key, n) in [
            (&b",\"registers\":"[..], k.registers),
            (shared, k.static_shared),
            (&b",\"dynamic shared\":"[..], k.dynamic_shared),
        ] {
            if n != 0 {
                more.extend_from_slice(key);
                put_u64(&mut more, u64::from(n));
            }
        }
    }
    if short != name {
        more.extend_from_slice(b",\"full name\":");
        put_text(&mut more, &name);
    }
    Kernel { json, more, told: false }
}
