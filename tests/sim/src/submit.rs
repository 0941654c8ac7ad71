// SPDX-License-Identifier: Apache-2.0
//! Issuing work: the host's share of a call, the launch queue's limit, and what CUPTI and the truth
//! get to see.

use crate::api::{correlation, current};
use crate::cupti::{activity, layout::kind, records::Place, subscriber, timestamps};
use crate::driver_graphs::tell_node;
use crate::gpu::{gpu, Gpu, Placed};
use crate::graphs::Work;
use crate::issuing::Issuing;
use crate::settings::settings;
use crate::{clock, truth};

/// Waits until `stream` has room and does `work` under the lock; the stream handle's error
/// otherwise.
fn when_room<R>(handle: usize, mut work: impl FnMut(&mut Gpu, usize, u64) -> R) -> Result<R, i32> {
    loop {
        let mut gpu = gpu();
        let stream = gpu.stream(handle, current())?;
        let now = clock::now();
        match gpu.room(stream, now) {
            Ok(()) => return Ok(work(&mut gpu, stream, now)),
            Err(until) => {
                drop(gpu);
                clock::sleep_until(until);
            }
        }
    }
}

/// Issues one operation to a stream: where it was put, or None when a capture took it.
pub(crate) fn submit(handle: usize, work: &Work) -> Result<Option<Placed>, i32> {
    if settings().launch_ns > 0 {
        clock::spin_until(clock::now() + settings().launch_ns);
    }
    if matches!(work, Work::Kernel { .. }) {
        activity::expect_kernel();
    }
    let done = when_room(handle, |gpu, stream, now| match gpu.streams[stream].capture {
        Some(capture) => Err(gpu.graphs[capture.graph].add(work.clone())),
        None => Ok((Issuing::begin(), gpu.place(stream, clock::now().max(now), work.duration()))),
    })?;
    match done {
        Ok((_issuing, placed)) => {
            observe(work, placed, 0, 0);
            Ok(Some(placed))
        }
        Err(node) => {
            tell_node(subscriber::GRAPHNODE_CREATED, work.node_type(), node, 0);
            Ok(None)
        }
    }
}

/// Launches an executable graph (an index) on a stream.
pub(crate) fn launch_graph(exec: usize, handle: usize) -> Result<(), i32> {
    let nodes = gpu().execs[exec].nodes.len() as u64;
    activity::expect_kernel();
    clock::spin_until(clock::now() + settings().graph_launch_ns + nodes * settings().graph_node_ns);
    let (_issuing, (nodes, whole)) = when_room(handle, |gpu, stream, now| {
        (Issuing::begin(), gpu.play(exec, stream, clock::now().max(now)))
    })?;
    let (work, id) = {
        let gpu = gpu();
        (gpu.execs[exec].nodes.clone(), gpu.execs[exec].id)
    };
    let as_one = activity::kind_on(kind::GRAPH_TRACE);
    if as_one && !nodes.is_empty() {
        activity::graph(place(whole, id, 0), (whole.start, whole.end));
    }
    for (work, node) in work.iter().zip(&nodes) {
        if as_one {
            tell_truth(work, node.placed, id, node.node_id);
        } else {
            observe(work, node.placed, id, node.node_id);
        }
    }
    Ok(())
}

fn place(at: Placed, graph: u32, node: u64) -> Place {
    Place {
        device: at.device,
        context: at.context,
        stream: at.stream,
        correlation: correlation(),
        graph,
        node,
    }
}

/// One operation's activity record and line of truth.
fn observe(work: &Work, at: Placed, graph: u32, node: u64) {
    let (times, here) = ((at.start, at.end), place(at, graph, node));
    match work {
        Work::Kernel { function, grid, block } => {
            activity::kernel(here, *grid, *block, function.name_pointer(), times);
        }
        Work::Copy { kind: 10, bytes, from, to, .. } => activity::peer(here, *bytes, *from, *to, times),
        Work::Copy { kind, source, destination, bytes, asynchronous, .. } => {
            activity::memcpy(here, *kind, *source, *destination, *bytes, *asynchronous, times);
        }
        Work::Set { value, bytes, .. } => activity::memset(here, *value, *bytes, times),
    }
    tell_truth(work, at, graph, node);
}

fn tell_truth(work: &Work, at: Placed, graph: u32, node: u64) {
    if !truth::wanted() {
        return;
    }
    let (kind, name, bytes) = match work {
        Work::Kernel { function, .. } => ("kernel", function.name.as_str(), 0),
        Work::Copy { kind, bytes, .. } => ("memcpy", copy_name(*kind), *bytes),
        Work::Set { bytes, .. } => ("memset", "", *bytes),
    };
    truth::op(&truth::Op {
        kind,
        name,
        device: at.device,
        context: at.context,
        stream: at.stream,
        start: at.start,
        end: at.end,
        correlation: correlation(),
        bytes,
        graph,
        node,
    });
}

fn copy_name(kind: u8) -> &'static str {
    match kind {
        1 => "HtoD",
        2 => "DtoH",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "?",
    }
}

/// Blocks until `until` and leaves a synchronization record; `ids` are context, stream and event.
pub(crate) fn wait(kind_of: u32, ids: (u32, u32, u32), until: u64) {
    let start = timestamps::now();
    clock::sleep_until(until);
    activity::synchronization(kind_of, ids, correlation(), start, timestamps::now());
}
