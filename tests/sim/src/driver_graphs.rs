// SPDX-License-Identifier: Apache-2.0
//! libcuda's exports: graphs, captured or built node by node.

use crate::api::{current, traced, Call};
use crate::cupti::subscriber;
use crate::cupti::switching::Launching;
use crate::driver::{result, Args1, Args2, Args3, Args5};
use crate::foreign::{get, put};
use crate::gpu::{code, gpu, index, tag};
use crate::graphs::{node, Capture, Work};
use crate::{modules, submit};

#[no_mangle]
pub(crate) extern "C" fn cuStreamBeginCapture_v2(handle: usize, mode: u32) -> i32 {
    traced(&Call::driver(539, c"cuStreamBeginCapture_v2", &Args2(handle, mode)), || {
        let mut gpu = gpu();
        match gpu.stream(handle, current()) {
            // The legacy stream cannot be captured.
            Ok(_) if handle <= 1 => code::STREAM_CAPTURE_UNSUPPORTED,
            Ok(stream) if gpu.streams[stream].capture.is_some() => code::STREAM_CAPTURE_UNSUPPORTED,
            Ok(stream) => {
                let graph = gpu.add_graph();
                gpu.streams[stream].capture = Some(Capture { graph, origin: true });
                code::SUCCESS
            }
            Err(code) => code,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuStreamEndCapture(handle: usize, out: *mut usize) -> i32 {
    traced(&Call::driver(497, c"cuStreamEndCapture", &Args2(handle, out)), || {
        let mut gpu = gpu();
        let graph = gpu.stream(handle, current()).and_then(|stream| gpu.end_capture(stream));
        match graph {
            Ok(graph) => {
                put(out, tag::GRAPH + graph);
                code::SUCCESS
            }
            Err(code) => code,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuStreamIsCapturing(handle: usize, out: *mut i32) -> i32 {
    traced(&Call::driver(499, c"cuStreamIsCapturing", &Args2(handle, out)), || {
        let gpu = gpu();
        match gpu.stream(handle, current()) {
            Ok(stream) => {
                put(out, i32::from(gpu.streams[stream].capture.is_some()));
                code::SUCCESS
            }
            Err(code) => code,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuGraphCreate(out: *mut usize, flags: u32) -> i32 {
    traced(&Call::driver(501, c"cuGraphCreate", &Args2(out, flags)), || {
        put(out, tag::GRAPH + gpu().add_graph());
        code::SUCCESS
    })
}

/// Adds a node to a graph; the node's handle goes to `out`.
pub(crate) fn add_node(graph: usize, out: *mut usize, work: Work) -> i32 {
    let kind = work.node_type();
    let node = index(graph, tag::GRAPH).and_then(|g| gpu().graphs.get_mut(g).map(|g| g.add(work)));
    match node {
        Some(node) => {
            put(out, node);
            tell_node(subscriber::GRAPHNODE_CREATED, kind, node, 0);
            code::SUCCESS
        }
        None => code::INVALID_HANDLE,
    }
}

/// CUPTI's callback of a node that was made, or copied from `original`.
pub(crate) fn tell_node(cbid: u32, kind: u32, node: usize, original: usize) {
    let about = subscriber::GraphData::new(node, original, kind);
    let context = current().map_or(0, |c| c + 1);
    subscriber::resource(cbid, context, 0, std::ptr::from_ref(&about).cast());
}

/// CUDA_KERNEL_NODE_PARAMS up to the block.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelNode {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
}

#[no_mangle]
extern "C" fn cuGraphAddKernelNode_v2(
    out: *mut usize,
    graph: usize,
    _after: usize,
    count: usize,
    params: usize,
) -> i32 {
    traced(&Call::driver(689, c"cuGraphAddKernelNode_v2", &Args5(out, graph, _after, count, params)), || {
        let Some(node) = get(params as *const KernelNode) else { return code::INVALID_VALUE };
        let Some(function) = modules::function(node.function) else { return code::INVALID_HANDLE };
        add_node(graph, out, Work::Kernel { function, grid: node.grid, block: node.block })
    })
}

#[no_mangle]
extern "C" fn cuGraphAddKernelNode(
    out: *mut usize,
    graph: usize,
    after: usize,
    count: usize,
    params: usize,
) -> i32 {
    cuGraphAddKernelNode_v2(out, graph, after, count, params)
}

#[no_mangle]
pub(crate) extern "C" fn cuGraphInstantiateWithFlags(out: *mut usize, graph: usize, flags: u64) -> i32 {
    traced(&Call::driver(643, c"cuGraphInstantiateWithFlags", &Args3(out, graph, flags)), || {
        match index(graph, tag::GRAPH).and_then(|g| gpu().instantiate(g)) {
            Some(exec) => {
                put(out, tag::EXEC + exec);
                tell_copied(graph, exec);
                code::SUCCESS
            }
            None => code::INVALID_HANDLE,
        }
    })
}

/// An executable graph's nodes are made, each a copy.
fn tell_copied(graph: usize, exec: usize) {
    let of_graph = index(graph, tag::GRAPH).and_then(|g| gpu().graphs.get(g).map(|g| g.id)).unwrap_or(0);
    let (of_exec, nodes) = {
        let gpu = gpu();
        (gpu.execs[exec].id, gpu.execs[exec].nodes.clone())
    };
    for (work, n) in nodes.iter().zip(1..) {
        let (copy, original) = (node(of_exec, n), node(of_graph, n));
        tell_node(subscriber::GRAPHNODE_CREATED, work.node_type(), copy, 0);
        tell_node(subscriber::GRAPHNODE_CLONED, work.node_type(), copy, original);
    }
}

#[no_mangle]
extern "C" fn cuGraphInstantiate_v2(
    out: *mut usize,
    graph: usize,
    _node: usize,
    _log: usize,
    _size: usize,
) -> i32 {
    cuGraphInstantiateWithFlags(out, graph, 0)
}

#[no_mangle]
pub(crate) extern "C" fn cuGraphLaunch(exec: usize, stream: usize) -> i32 {
    let _launching = Launching::begin();
    traced(&Call::driver(514, c"cuGraphLaunch", &Args2(exec, stream)), || {
        let known = index(exec, tag::EXEC).filter(|e| gpu().execs.get(*e).is_some_and(|e| e.alive));
        match known {
            Some(exec) => result(submit::launch_graph(exec, stream)),
            None => code::INVALID_HANDLE,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuGraphExecDestroy(exec: usize) -> i32 {
    traced(&Call::driver(516, c"cuGraphExecDestroy", &Args1(exec)), || {
        let mut gpu = gpu();
        match index(exec, tag::EXEC).and_then(|e| gpu.execs.get_mut(e)) {
            Some(exec) => {
                exec.alive = false;
                code::SUCCESS
            }
            None => code::INVALID_HANDLE,
        }
    })
}

#[no_mangle]
pub(crate) extern "C" fn cuGraphDestroy(graph: usize) -> i32 {
    traced(&Call::driver(517, c"cuGraphDestroy", &Args1(graph)), || code::SUCCESS)
}
