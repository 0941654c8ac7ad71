// SPDX-License-Identifier: Apache-2.0
//! CUDA graphs: nodes recorded by capture or added by hand, instantiated, launched as one.
//!
//! Nodes run one after the other in the order they were added, whatever their declared
//! dependencies.

use crate::gpu::{code, tag, Gpu, Placed};
use crate::modules::Function;
use crate::settings::settings;
use std::sync::Arc;

/// A stream that records instead of running.
#[derive(Clone, Copy)]
pub(crate) struct Capture {
    pub(crate) graph: usize,
    /// The stream that began the capture; the others joined through an event.
    pub(crate) origin: bool,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel {
        function: Arc<Function>,
        grid: [u32; 3],
        block: [u32; 3],
    },
    /// CUPTI's copy kind and memory kinds; devices for peer copies (kind 10).
    Copy {
        kind: u8,
        source: u8,
        destination: u8,
        bytes: u64,
        duration: u64,
        asynchronous: bool,
        from: u32,
        to: u32,
    },
    Set {
        value: u32,
        bytes: u64,
        duration: u64,
    },
}

impl Work {
    /// Device time in ns.
    pub(crate) fn duration(&self) -> u64 {
        match self {
            Work::Kernel { function, .. } => function.duration,
            Work::Copy { duration, .. } | Work::Set { duration, .. } => *duration,
        }
    }

    /// CUgraphNodeType.
    pub(crate) fn node_type(&self) -> u32 {
        match self {
            Work::Kernel { .. } => 0,
            Work::Copy { .. } => 1,
            Work::Set { .. } => 2,
        }
    }
}

/// A graph under construction.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Work>,
    pub(crate) id: u32,
}

impl Graph {
    /// Takes a node; its handle.
    pub(crate) fn add(&mut self, work: Work) -> usize {
        self.nodes.push(work);
        node(self.id, self.nodes.len())
    }
}

/// Handle of the n-th node, from 1 on, of the graph or executable graph with this id.
pub(crate) fn node(graph: u32, n: usize) -> usize {
    tag::NODE << 32 | (graph as usize) << 24 | n
}

/// CUPTI's id of the node with this handle.
pub(crate) fn node_id(handle: usize) -> Option<u64> {
    let known = handle >> 56 == tag::NODE >> 24;
    known.then_some((handle as u64 & 0xff_ffff_ffff_ffff) >> 24 << 32 | handle as u64 & 0xff_ffff)
}

/// An executable graph.
pub(crate) struct Exec {
    pub(crate) nodes: Arc<Vec<Work>>,
    pub(crate) id: u32,
    pub(crate) alive: bool,
}

/// One node as played.
pub(crate) struct PlayedNode {
    pub(crate) placed: Placed,
    pub(crate) node_id: u64,
}

impl Gpu {
    /// An empty graph; its index.
    pub(crate) fn add_graph(&mut self) -> usize {
        // Graph and executable each take an id, as seen on the H200: ids of executables are not
        // consecutive.
        let id = self.graphs.len() as u32 * 2 + 1;
        self.graphs.push(Graph { id, ..Graph::default() });
        self.graphs.len() - 1
    }

    /// Ends the capture that began on `stream`; the graph's index.
    pub(crate) fn end_capture(&mut self, stream: usize) -> Result<usize, i32> {
        let graph = match self.streams[stream].capture {
            Some(Capture { graph, origin: true }) => graph,
            _ => return Err(code::STREAM_CAPTURE_UNSUPPORTED),
        };
        for s in self.streams.iter_mut().filter(|s| s.capture.is_some_and(|c| c.graph == graph)) {
            s.capture = None;
        }
        Ok(graph)
    }

    /// An executable copy of a graph; its index.
    pub(crate) fn instantiate(&mut self, graph: usize) -> Option<usize> {
        let nodes = Arc::new(self.graphs.get(graph)?.nodes.clone());
        let id = self.execs.len() as u32 * 2 + 2;
        self.execs.push(Exec { nodes, id, alive: true });
        Some(self.execs.len() - 1)
    }

    /// Plays a graph on a stream as one queue entry; its nodes with their times, and the whole.
    pub(crate) fn play(&mut self, exec: usize, stream: usize, issued: u64) -> (Vec<PlayedNode>, Placed) {
        let (nodes, id) = (self.execs[exec].nodes.clone(), self.execs[exec].id);
        let gap = settings().node_gap_ns;
        let spaces = gap * (nodes.len() as u64).saturating_sub(1);
        let whole = self.place(stream, issued, nodes.iter().map(Work::duration).sum::<u64>() + spaces);
        let mut at = whole.start;
        let played = nodes.iter().enumerate().map(|(n, work)| {
            let placed = Placed { start: at, end: at + work.duration(), ..whole };
            at = placed.end + gap;
            PlayedNode { placed, node_id: (u64::from(id) << 32) | (n as u64 + 1) }
        });
        (played.collect(), whole)
    }
}
