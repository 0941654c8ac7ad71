// SPDX-License-Identifier: Apache-2.0
//! What was launched to a device, in the order of launching over all its threads and streams: the text in which
//! periods are looked for. A graph launch is one token, whatever its nodes; variants of a kernel are one type.

use std::collections::HashMap;

use trace::Kind;

use crate::kernels::KernelTable;
use crate::run::{Device, Run, Span};

/// One launch.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// Begin of the launch call (of the op where the call is unknown), ns.
    pub launch: u64,
    /// Begin on the device, ns.
    pub start: u64,
    /// Index into [`Sequence::types`].
    pub kind: u32,
}

/// What a token can be.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenType {
    /// How often.
    pub count: u32,
    /// Updates weights, by name.
    pub optimizer: bool,
    /// A kernel or graph (not a copy or memset).
    pub kernel: bool,
    /// A graph launch.
    pub graph: bool,
}

/// The launches of a device in order.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// By launch time.
    pub tokens: Vec<Token>,
    /// What occurs in it.
    pub types: Vec<TokenType>,
}

/// How fine types are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grain {
    /// A kernel's family.
    Family,
    /// Family and order of magnitude (base 4) of the grid: tells the same kernel's places in a step apart.
    FamilyAndGrid,
}

impl Sequence {
    /// Updates weights, by its kernel's name.
    pub fn is_optimizer(&self, t: &Token) -> bool {
        self.types.get(t.kind as usize).is_some_and(|t| t.optimizer)
    }

    /// Reads the ops that start inside `valid`.
    pub fn new(run: &Run, device: &Device, kernels: &KernelTable, valid: Span, grain: Grain) -> Sequence {
        let mut sequence = Sequence::default();
        sequence.tokens.reserve_exact(device.ops());
        let mut ids: HashMap<u64, u32> = HashMap::new();
        let mut last: Option<(u64, u32)> = None;
        for s in &device.streams {
            let mut graph_launch = 0;
            for op in s.ops.iter().filter(|o| o.start >= valid.start && o.start < valid.end) {
                if op.is_graph_node() {
                    if op.correlation == graph_launch && graph_launch != 0 {
                        continue;
                    }
                    graph_launch = op.correlation;
                }
                let (hash, ty) = match op.kind {
                    _ if op.is_graph_node() => (mix(1, u64::from(op.graph)), (false, true, true)),
                    Kind::GraphTrace => (mix(1, u64::from(op.graph)), (false, true, true)),
                    Kind::Memcpy => (mix(2, u64::from(op.copy().direction)), (false, false, false)),
                    Kind::Memset => (mix(3, 0), (false, false, false)),
                    _ => {
                        let k = kernels.get(op.a);
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
                            count: 0,
                            optimizer: ty.0,
                            kernel: ty.1,
                            graph: ty.2,
                        });
                        (sequence.types.len() - 1) as u32
                    }),
                };
                last = Some((hash, kind));
                if let Some(t) = sequence.types.get_mut(kind as usize) {
                    t.count += 1;
                }
                let launch = run.call(op.call).map_or(op.start, |(_, c)| c.start.min(op.start));
                sequence.tokens.push(Token { launch, start: op.start, kind });
            }
        }
        sequence.tokens.sort_by_key(|t| (t.launch, t.start));
        // a graph whose nodes run on several streams is still one launch
        let Sequence { tokens, types } = &mut sequence;
        let graph = |t: &Token| types.get(t.kind as usize).is_some_and(|t| t.graph);
        tokens.dedup_by(|b, a| b.launch == a.launch && b.kind == a.kind && graph(a));
        sequence
    }
}

fn mix(tag: u64, value: u64) -> u64 {
    (value ^ tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd)
}
