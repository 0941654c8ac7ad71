// SPDX-License-Identifier: Apache-2.0
//! What was launched to a device, in the order of launching over all its threads and streams: the
//! text in which periods are looked for. A graph launch is one token, whatever its nodes; variants
//! of a kernel are one type.

use std::collections::HashMap;

use trace::Kind;

use crate::run::{Device, Run, Span};
use crate::timeline::kernels::KernelTable;

/// One launch.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// Begin of the launch call (of the op where the call is unknown), ns.
    pub launch: u64,
    /// Begin on the device, ns.
    pub start: u64,
    /// Index into [`Sequence::types`].
    pub kind: u32,
    /// Computing time, ns, at least 1: of a graph launch, the sum over its nodes; of copies and
    /// collectives 1, they wait for disks and other ranks (a checkpoint's copies would outweigh the
    /// steps before it).
    pub work: u32,
}

/// A graph launch counts as many launches as kernels of this length would fill its time, ns. By
/// time and not by nodes: the same work has fewer nodes once compiled, and with
/// `GAPPROBE_GRAPH=graph` no node is recorded.
pub const GRAPH_KERNEL_NS: u64 = 10_000;

/// What a token can be.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenType {
    /// How often.
    pub count: u32,
    /// How many launches one stands for when stretches of the sequence are compared: 1, for graphs
    /// see [`GRAPH_KERNEL_NS`] (the mean of its launches: one that waits long for another rank is
    /// no other graph).
    pub launches: u32,
    /// Work of all, ns.
    pub work: u64,
    /// Updates weights, by name.
    pub optimizer: bool,
    /// A kernel or graph (not a copy or memset).
    pub kernel: bool,
    /// A graph launch.
    pub graph: bool,
}

/// A stretch of the sequence in which all was observed.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Its launches.
    pub tokens: &'a [Token],
    /// End of the last op in it, ns.
    pub end: u64,
}

/// The launches of a device in order.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// By launch time.
    pub tokens: Vec<Token>,
    /// What occurs in it.
    pub types: Vec<TokenType>,
    /// Where in `tokens` each piece begins, and where it ends, ns.
    pieces: Vec<(usize, u64)>,
}

/// How fine types are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// A kernel's family.
    Family,
    /// Family and order of magnitude (base 4) of the grid: tells the same kernel's places in a step
    /// apart.
    FamilyAndGrid,
}

impl Sequence {
    /// What a token is.
    pub fn type_of(&self, t: &Token) -> TokenType {
        self.types.get(t.kind as usize).copied().unwrap_or_default()
    }

    /// The pieces between unobserved spans, in order; without such spans, one.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let nexts = self.pieces.iter().skip(1).map(|p| p.0).chain([self.tokens.len()]);
        self.pieces
            .iter()
            .zip(nexts)
            .map(|(&(from, end), to)| Piece { tokens: self.tokens.get(from..to).unwrap_or(&[]), end })
    }

    /// Reads the ops that start inside `observed`: its parts, in order.
    pub fn new(
        run: &Run,
        device: &Device,
        kernels: &KernelTable,
        observed: &[Span],
        grain: Grain,
    ) -> Sequence {
        let mut sequence = Sequence::default();
        let part_of = |start: u64| {
            let part = observed.partition_point(|p| p.end <= start);
            observed.get(part).filter(|p| p.start <= start).map(|p| (part, p.end))
        };
        let mut ends = vec![0u64; observed.len()];
        sequence.tokens.reserve_exact(device.ops());
        let mut ids: HashMap<u64, u32> = HashMap::new();
        let mut last: Option<(u64, u32)> = None;
        for s in &device.streams {
            let first = sequence.tokens.len();
            let mut graph_launch = 0;
            for op in &s.ops {
                let Some((part, until)) = part_of(op.start) else { continue };
                if let Some(end) = ends.get_mut(part) {
                    *end = op.end.min(until).max(*end);
                }
                let work = u32::try_from(op.span().ns().max(1)).unwrap_or(u32::MAX);
                if op.is_graph_node() {
                    if op.correlation == graph_launch && graph_launch != 0 {
                        if let Some(t) = sequence.tokens.last_mut() {
                            t.work = t.work.saturating_add(work);
                        }
                        continue;
                    }
                    graph_launch = op.correlation;
                }
                let mut computes = true;
                let (hash, ty) = match op.kind {
                    _ if op.is_graph_node() => (mix(1, u64::from(op.graph)), (false, true, true)),
                    Kind::GraphTrace => (mix(1, u64::from(op.graph)), (false, true, true)),
                    Kind::Memcpy => {
                        computes = false;
                        (mix(2, u64::from(op.copy().direction)), (false, false, false))
                    }
                    Kind::Memset => (mix(3, 0), (false, false, false)),
                    _ => {
                        let k = kernels.get(op.a);
                        computes = !k.collective;
                        let grid = match grain {
                            Grain::Family => 0,
                            Grain::FamilyAndGrid => u64::from(op.b.max(1).ilog2() / 2 + 1),
                        };
                        (mix(4 + grid, k.family), (k.optimizer, true, false))
                    }
                };
                let kind = match last {
                    Some((h, kind)) if h == hash => kind,
                    _ => *ids.entry(hash).or_insert_with(|| {
                        sequence.types.push(TokenType {
                            optimizer: ty.0,
                            kernel: ty.1,
                            graph: ty.2,
                            ..TokenType::default()
                        });
                        (sequence.types.len() - 1) as u32
                    }),
                };
                last = Some((hash, kind));
                let launch = run.call(op.call).map_or(op.start, |(_, c)| c.start.min(op.start));
                let work = if computes { work } else { 1 };
                sequence.tokens.push(Token { launch, start: op.start, kind, work });
            }
            // A stream runs in the order of launching. An op whose call is not in the recording (it
            // was made before the recording began, by a host that is far ahead) was launched no
            // later than what runs behind it.
            let mut latest = u64::MAX;
            for t in sequence.tokens.iter_mut().skip(first).rev() {
                latest = latest.min(t.launch);
                t.launch = latest;
            }
        }
        sequence.tokens.sort_by_key(|t| (t.launch, t.start));
        // a graph whose nodes run on several streams is still one launch
        let Sequence { tokens, types, pieces } = &mut sequence;
        let graph = |t: &Token| types.get(t.kind as usize).is_some_and(|t| t.graph);
        tokens.dedup_by(|b, a| {
            let same = b.launch == a.launch && b.kind == a.kind && graph(a);
            if same {
                a.work = a.work.saturating_add(b.work);
            }
            same
        });
        let mut part = None;
        for (i, t) in tokens.iter().enumerate() {
            let own = part_of(t.start).map(|p| p.0);
            if own > part {
                part = own;
                pieces.push((i, own.and_then(|p| ends.get(p)).copied().unwrap_or(0)));
            }
            if let Some(ty) = types.get_mut(t.kind as usize) {
                ty.count += 1;
                ty.work += u64::from(t.work);
            }
        }
        for t in types.iter_mut() {
            let kernels = t.work / u64::from(t.count.max(1)) / GRAPH_KERNEL_NS;
            t.launches = if t.graph { u32::try_from(kernels.max(1)).unwrap_or(u32::MAX) } else { 1 };
        }
        sequence
    }
}

fn mix(tag: u64, value: u64) -> u64 {
    (value ^ tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}
