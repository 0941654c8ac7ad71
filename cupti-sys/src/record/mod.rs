// SPDX-License-Identifier: Apache-2.0
//! Where the fields of an activity record lie, and readers for them.
//!
//! The layout of a record follows the library that is loaded, and there are up to nine versions of
//! each struct; but versions only append, so every field below sits at one offset in all releases
//! from 11.7 to 13.5. A record is therefore read by offset, never through a struct of NVIDIA's, and
//! one reader serves all. `tests/layout/fields.rs` holds every offset against NVIDIA's headers,
//! `tests/layout/walk.rs` every size against the libraries.
//!
//! The distance to the next record differs by release: step with `cuptiActivityGetNextRecord` only.
//! [`size()`] is for checks and for whoever writes records (the simulated driver).
//!
//! Reading does not allocate, lock or panic; a slice that is too short gives `None`. Any thread.

mod size;
mod value;

pub use crate::bindings::{
    channel_type, flag, launch_type, memcpy_kind, memory_kind, overhead_kind, synchronization_type,
};
pub use size::{size, ALIGNMENT};

use crate::kind;
use value::Value;

/// A field of a record as the tests and `doctor` see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// NVIDIA's name of the field.
    pub name: &'static str,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// The kind that stands in the first four bytes of every record.
#[inline]
#[must_use]
pub fn kind_of(record: &[u8]) -> Option<u32> {
    u32::get(record, 0)
}

/// Writes the kind into the first four bytes; false if there are not four.
pub fn set_kind(record: &mut [u8], kind: u32) -> bool {
    kind.put(record, 0)
}

macro_rules! record {
    (
        $(#[$doc:meta])*
        $name:ident [$($kind:ident),*] {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $c_name:literal @ $offset:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The kinds whose records have this form.
            pub const KINDS: &'static [u32] = &[$(kind::$kind),*];

            /// Every field that is read, for tests and diagnosis.
            pub const FIELDS: &'static [Field] =
                &[$(Field { name: $c_name, offset: $offset, size: size_of::<$type>() }),*];

            /// A record must have at least this many bytes to be read.
            pub const NEEDS: usize = {
                let mut needs = size_of::<u32>();
                $(if $offset + size_of::<$type>() > needs { needs = $offset + size_of::<$type>(); })*
                needs
            };

            /// Reads a record whose kind is one of [`Self::KINDS`] (not checked here). `record`
            /// starts at the record and may go on beyond it; `None` if it is shorter than
            /// [`Self::NEEDS`].
            #[inline]
            #[must_use]
            pub fn read(record: &[u8]) -> Option<Self> {
                let record = record.get(..Self::NEEDS)?;
                Some(Self { $($field: <$type>::get(record, $offset)?,)* })
            }

            /// Writes the fields (not the kind) at their places and leaves all other bytes alone:
            /// for tests and the simulated driver. False, and nothing written, if `record` is
            /// shorter than [`Self::NEEDS`].
            pub fn write(&self, record: &mut [u8]) -> bool {
                let Some(record) = record.get_mut(..Self::NEEDS) else { return false };
                $(self.$field.put(record, $offset);)*
                true
            }
        }
    };
}

record! {
    /// One kernel that ran on the GPU, inside a graph or not.
    Kernel [KERNEL, CONCURRENT_KERNEL] {
        /// Registers a thread.
        registers_per_thread: u16 = "registersPerThread" @ 6;
        /// Start in ns on CUPTI's clock; 0 with `end` 0 if the timestamp was lost.
        start: u64 = "start" @ 16;
        /// End in ns; 0 if the record was flushed by force before the kernel ended.
        end: u64 = "end" @ 24;
        /// CUPTI's device id.
        device: u32 = "deviceId" @ 40;
        /// CUPTI's context id.
        context: u32 = "contextId" @ 44;
        /// CUPTI's stream id (not the CUstream pointer), unique within the context.
        stream: u32 = "streamId" @ 48;
        /// Blocks in the grid, X.
        grid_x: i32 = "gridX" @ 52;
        /// Blocks in the grid, Y.
        grid_y: i32 = "gridY" @ 56;
        /// Blocks in the grid, Z.
        grid_z: i32 = "gridZ" @ 60;
        /// Threads in a block, X.
        block_x: i32 = "blockX" @ 64;
        /// Threads in a block, Y.
        block_y: i32 = "blockY" @ 68;
        /// Threads in a block, Z.
        block_z: i32 = "blockZ" @ 72;
        /// Shared memory of a block known at compile time, bytes.
        static_shared_memory: i32 = "staticSharedMemory" @ 76;
        /// Shared memory of a block asked for at launch, bytes.
        dynamic_shared_memory: i32 = "dynamicSharedMemory" @ 80;
        /// The call that launched it; all nodes of a graph carry the id of the graph launch.
        correlation: u32 = "correlationId" @ 92;
        /// Address of the mangled name, a C string that dangles once its module is unloaded.
        name: u64 = "name" @ 104;
        /// One of [`launch_type`].
        launch_type: u8 = "launchType" @ 136;
        /// The node of the graph, 0 outside graphs.
        graph_node: u64 = "graphNodeId" @ 144;
        /// The executable graph, 0 outside graphs.
        graph: u32 = "graphId" @ 156;
        /// The hardware channel.
        channel: u32 = "channelID" @ 168;
    }
}

record! {
    /// One copy within a device or between host and device.
    Memcpy [MEMCPY] {
        /// One of [`memcpy_kind`].
        copy_kind: u8 = "copyKind" @ 4;
        /// One of [`memory_kind`].
        source_kind: u8 = "srcKind" @ 5;
        /// One of [`memory_kind`].
        destination_kind: u8 = "dstKind" @ 6;
        /// Bits of [`flag`]: `MEMCPY_ASYNC`.
        flags: u8 = "flags" @ 7;
        /// Bytes copied.
        bytes: u64 = "bytes" @ 8;
        /// Start in ns; 0 with `end` 0 if lost.
        start: u64 = "start" @ 16;
        /// End in ns.
        end: u64 = "end" @ 24;
        /// CUPTI's device id.
        device: u32 = "deviceId" @ 32;
        /// CUPTI's context id.
        context: u32 = "contextId" @ 36;
        /// CUPTI's stream id.
        stream: u32 = "streamId" @ 40;
        /// The call that asked for it.
        correlation: u32 = "correlationId" @ 44;
        /// The node of the graph, 0 outside graphs.
        graph_node: u64 = "graphNodeId" @ 64;
        /// The executable graph, 0 outside graphs.
        graph: u32 = "graphId" @ 72;
        /// The hardware channel.
        channel: u32 = "channelID" @ 76;
    }
}

record! {
    /// One copy between two devices.
    MemcpyPeer [MEMCPY2] {
        /// One of [`memcpy_kind`].
        copy_kind: u8 = "copyKind" @ 4;
        /// One of [`memory_kind`].
        source_kind: u8 = "srcKind" @ 5;
        /// One of [`memory_kind`].
        destination_kind: u8 = "dstKind" @ 6;
        /// Bits of [`flag`]: `MEMCPY_ASYNC`.
        flags: u8 = "flags" @ 7;
        /// Bytes copied.
        bytes: u64 = "bytes" @ 8;
        /// Start in ns; 0 with `end` 0 if lost.
        start: u64 = "start" @ 16;
        /// End in ns.
        end: u64 = "end" @ 24;
        /// The device that did it.
        device: u32 = "deviceId" @ 32;
        /// The context of the stream.
        context: u32 = "contextId" @ 36;
        /// CUPTI's stream id.
        stream: u32 = "streamId" @ 40;
        /// Where the bytes came from.
        source_device: u32 = "srcDeviceId" @ 44;
        /// Where the bytes went.
        destination_device: u32 = "dstDeviceId" @ 52;
        /// The call that asked for it.
        correlation: u32 = "correlationId" @ 60;
        /// The node of the graph, 0 outside graphs.
        graph_node: u64 = "graphNodeId" @ 72;
        /// The executable graph, 0 outside graphs.
        graph: u32 = "graphId" @ 80;
        /// The hardware channel.
        channel: u32 = "channelID" @ 84;
    }
}

record! {
    /// One memset on the GPU.
    Memset [MEMSET] {
        /// What is written.
        value: u32 = "value" @ 4;
        /// Bytes set.
        bytes: u64 = "bytes" @ 8;
        /// Start in ns; 0 with `end` 0 if lost.
        start: u64 = "start" @ 16;
        /// End in ns.
        end: u64 = "end" @ 24;
        /// CUPTI's device id.
        device: u32 = "deviceId" @ 32;
        /// CUPTI's context id.
        context: u32 = "contextId" @ 36;
        /// CUPTI's stream id.
        stream: u32 = "streamId" @ 40;
        /// The call that asked for it.
        correlation: u32 = "correlationId" @ 44;
        /// Bits of [`flag`]: `MEMSET_ASYNC`.
        flags: u16 = "flags" @ 48;
        /// One of [`memory_kind`].
        memory_kind: u16 = "memoryKind" @ 50;
        /// The node of the graph, 0 outside graphs.
        graph_node: u64 = "graphNodeId" @ 64;
        /// The executable graph, 0 outside graphs.
        graph: u32 = "graphId" @ 72;
        /// The hardware channel.
        channel: u32 = "channelID" @ 76;
    }
}

record! {
    /// One wait of the host for the GPU, or of a stream for an event.
    Synchronization [SYNCHRONIZATION] {
        /// One of [`synchronization_type`].
        sync_type: u32 = "type" @ 4;
        /// Start in ns.
        start: u64 = "start" @ 8;
        /// End in ns.
        end: u64 = "end" @ 16;
        /// The call.
        correlation: u32 = "correlationId" @ 24;
        /// CUPTI's context id.
        context: u32 = "contextId" @ 28;
        /// CUPTI's stream id; `u32::MAX` where the wait is not for a stream.
        stream: u32 = "streamId" @ 32;
        /// CUPTI's id of the event; `u32::MAX` where the wait is not for one.
        event: u32 = "cudaEventId" @ 36;
    }
}

record! {
    /// One call into the driver or the runtime, on the host.
    Api [DRIVER, RUNTIME] {
        /// The callback id, in the domain that the kind says ([`crate::cbid`]).
        cbid: u32 = "cbid" @ 4;
        /// Start in ns.
        start: u64 = "start" @ 8;
        /// End in ns.
        end: u64 = "end" @ 16;
        /// The process.
        process: u32 = "processId" @ 24;
        /// The thread: gettid if asked for with `thread_id_type::SYSTEM`, else 32 bits of
        /// pthread_self.
        thread: u32 = "threadId" @ 28;
        /// The id that the GPU work of this call carries; a driver call under a runtime call has
        /// the same.
        correlation: u32 = "correlationId" @ 32;
        /// What the call returned.
        return_value: u32 = "returnValue" @ 36;
    }
}

record! {
    /// One launch of a whole graph, where graphs are recorded as a whole.
    GraphTrace [GRAPH_TRACE] {
        /// The graph launch.
        correlation: u32 = "correlationId" @ 4;
        /// Start of the first node in ns.
        start: u64 = "start" @ 8;
        /// End of the last node in ns.
        end: u64 = "end" @ 16;
        /// The device of the first node.
        device: u32 = "deviceId" @ 24;
        /// The executable graph.
        graph: u32 = "graphId" @ 28;
        /// The context of the first node.
        context: u32 = "contextId" @ 32;
        /// The stream it was launched into.
        stream: u32 = "streamId" @ 36;
    }
}

record! {
    /// Time that CUPTI or the driver took for itself.
    Overhead [OVERHEAD] {
        /// One of [`overhead_kind`].
        overhead_kind: u32 = "overheadKind" @ 4;
        /// What `object_a..c` are: 1 process, 2 thread, 3 device, 4 context, 5 stream.
        object_kind: u32 = "objectKind" @ 8;
        /// The process, or the device.
        object_a: u32 = "objectId.dcs.deviceId" @ 12;
        /// The thread, or the context.
        object_b: u32 = "objectId.dcs.contextId" @ 16;
        /// The stream.
        object_c: u32 = "objectId.dcs.streamId" @ 20;
        /// Start in ns.
        start: u64 = "start" @ 24;
        /// End in ns.
        end: u64 = "end" @ 32;
    }
}

record! {
    /// One `cudaEventRecord`: which event was recorded into which stream.
    CudaEvent [CUDA_EVENT] {
        /// The call.
        correlation: u32 = "correlationId" @ 4;
        /// CUPTI's context id.
        context: u32 = "contextId" @ 8;
        /// CUPTI's stream id.
        stream: u32 = "streamId" @ 12;
        /// CUPTI's event id, as in [`Synchronization::event`].
        event: u32 = "eventId" @ 16;
    }
}

record! {
    /// A context and its device.
    Context [CONTEXT] {
        /// CUPTI's context id.
        context: u32 = "contextId" @ 4;
        /// CUPTI's device id.
        device: u32 = "deviceId" @ 8;
        /// The id of the default stream.
        null_stream: u16 = "nullStreamId" @ 14;
    }
}

record! {
    /// A stream.
    Stream [STREAM] {
        /// CUPTI's context id.
        context: u32 = "contextId" @ 4;
        /// CUPTI's stream id.
        stream: u32 = "streamId" @ 8;
        /// Its priority as a signed number: lower is more urgent.
        priority: u32 = "priority" @ 12;
        /// Blocking (1) or not (2), or a default stream (3, 4).
        flag: u32 = "flag" @ 16;
    }
}

record! {
    /// A device.
    Device [DEVICE] {
        /// Bytes of its memory.
        global_memory_bytes: u64 = "globalMemorySize" @ 16;
        /// Streaming multiprocessors.
        multiprocessors: u32 = "numMultiprocessors" @ 44;
        /// Compute capability, the part before the point.
        capability_major: u32 = "computeCapabilityMajor" @ 104;
        /// Compute capability, the part after the point.
        capability_minor: u32 = "computeCapabilityMinor" @ 108;
        /// CUPTI's device id.
        device: u32 = "id" @ 112;
        /// Address of its name, a C string.
        name: u64 = "name" @ 136;
    }
}

#[cfg(test)]
mod tests;
