// SPDX-License-Identifier: Apache-2.0
//! What a random program's host does, act by act, and the machine it does it on. `truth.rs` plays
//! them on a simulator of its own; `tests/scenarios/tests/promises.rs` has a real program do them
//! on the simulated driver. All times are ns.

/// What the host does next.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Python and the framework, on the way to the next launch.
    Think(u64),
    /// The thread is elsewhere: writes a file, waits for a lock.
    Sleep(u64),
    /// The thread fetches a batch, in a range that says so.
    Fetch(u64),
    /// One kernel into a stream.
    Launch { stream: u32, kernel: usize, ns: u64 },
    /// One graph launch: kernels and waits between streams, at no time of the host's.
    Graph(Vec<Act>),
    /// Data to the device. From pageable memory the call stands until it is there.
    CopyIn { stream: u32, bytes: u64, pinned: bool },
    /// Values to the host, of what was launched before. The call stands until they are there; from
    /// pinned memory, and where it is done `aside` by another thread, on a stream of its own.
    CopyOut { bytes: u64, pinned: bool, aside: bool },
    /// `.item()`: four bytes to the host and a wait for them; `later`: into pinned memory, and
    /// nobody waits. `site`: which of the program's lines it is.
    Item { later: bool, site: usize },
    /// cudaDeviceSynchronize.
    Sync,
    /// cudaFree: the device drains first.
    Free(u64),
    /// cudaMalloc: no wait.
    Malloc(u64),
    /// `stream` does not go on before what `on` has been given so far is done; `late`: the event
    /// was recorded long before.
    Wait { stream: u32, on: u32, late: bool },
    /// What follows is another thread's (autograd's).
    Thread(u32),
}

/// What the machine takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// A launch call, whose kernel may start this long after the call's begin at the earliest.
    pub(crate) launch: u64,
    pub(crate) latency: u64,
    /// Between two kernels of a stream.
    pub(crate) spacing: u64,
    /// From the end of what was awaited to the call's return.
    pub(crate) back: u64,
    /// A graph launch: its own time, and more for each node, whose records are on (H200: 0.86 ms
    /// for 645 nodes). The first node does not wait for the others to be submitted.
    pub(crate) graph: u64,
    pub(crate) node: u64,
    /// The link, bytes per ns.
    pub(crate) pageable: u64,
    pub(crate) pinned: u64,
    /// A small copy to pageable memory: the copy's call stands until it is done, or the synchronize
    /// behind it does.
    pub(crate) copy_waits: bool,
}
