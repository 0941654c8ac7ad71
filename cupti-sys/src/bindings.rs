// SPDX-License-Identifier: Apache-2.0
//! Made by scripts/dev/bindings from the headers of CUDA 13.5 with bindgen 0.72.1: do not edit.
//!
//! Names, numbers and signatures of the part of CUPTI we use; no text of NVIDIA's headers.

#![allow(missing_docs, non_camel_case_types, non_snake_case, reason = "names are NVIDIA's")]

use crate::CuptiResult as CUptiResult;

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUctx_st {
    _unused: [u8; 0],
}
pub type CUcontext = *mut CUctx_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
pub type CUstream = *mut CUstream_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUgraph_st {
    _unused: [u8; 0],
}
pub type CUgraph = *mut CUgraph_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUgraphNode_st {
    _unused: [u8; 0],
}
pub type CUgraphNode = *mut CUgraphNode_st;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUgraphExec_st {
    _unused: [u8; 0],
}
pub type CUgraphExec = *mut CUgraphExec_st;
pub type CUgraphNodeType_enum = ::core::ffi::c_uint;
pub use self::CUgraphNodeType_enum as CUgraphNodeType;
pub type cuptiGetResultString_fn =
    unsafe extern "C" fn(result: CUptiResult, str_: *mut *const ::core::ffi::c_char) -> CUptiResult;
pub type cuptiGetErrorMessage_fn =
    unsafe extern "C" fn(result: CUptiResult, str_: *mut *const ::core::ffi::c_char) -> CUptiResult;
pub type cuptiGetVersion_fn = unsafe extern "C" fn(version: *mut u32) -> CUptiResult;
pub type CUpti_ApiCallbackSite = ::core::ffi::c_uint;
pub type CUpti_CallbackDomain = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUpti_CallbackData {
    pub callbackSite: CUpti_ApiCallbackSite,
    pub functionName: *const ::core::ffi::c_char,
    pub functionParams: *const ::core::ffi::c_void,
    pub functionReturnValue: *mut ::core::ffi::c_void,
    pub symbolName: *const ::core::ffi::c_char,
    pub context: CUcontext,
    pub contextUid: u32,
    pub correlationData: *mut u64,
    pub correlationId: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct CUpti_ResourceData {
    pub context: CUcontext,
    pub resourceHandle: CUpti_ResourceData__bindgen_ty_1,
    pub resourceDescriptor: *mut ::core::ffi::c_void,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union CUpti_ResourceData__bindgen_ty_1 {
    pub stream: CUstream,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUpti_ModuleResourceData {
    pub moduleId: u32,
    pub cubinSize: usize,
    pub pCubin: *const ::core::ffi::c_char,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUpti_GraphData {
    pub graph: CUgraph,
    pub originalGraph: CUgraph,
    pub node: CUgraphNode,
    pub originalNode: CUgraphNode,
    pub nodeType: CUgraphNodeType,
    pub dependency: CUgraphNode,
    pub graphExec: CUgraphExec,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUpti_SynchronizeData {
    pub context: CUcontext,
    pub stream: CUstream,
}
pub type CUpti_CallbackId = u32;
pub type CUpti_CallbackFunc = ::core::option::Option<
    unsafe extern "C" fn(
        userdata: *mut ::core::ffi::c_void,
        domain: CUpti_CallbackDomain,
        cbid: CUpti_CallbackId,
        cbdata: *const ::core::ffi::c_void,
    ),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUpti_Subscriber_st {
    _unused: [u8; 0],
}
pub type CUpti_SubscriberHandle = *mut CUpti_Subscriber_st;
pub type cuptiSubscribe_fn = unsafe extern "C" fn(
    subscriber: *mut CUpti_SubscriberHandle,
    callback: CUpti_CallbackFunc,
    userdata: *mut ::core::ffi::c_void,
) -> CUptiResult;
pub type cuptiUnsubscribe_fn = unsafe extern "C" fn(subscriber: CUpti_SubscriberHandle) -> CUptiResult;
pub type cuptiGetCallbackState_fn = unsafe extern "C" fn(
    enable: *mut u32,
    subscriber: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
    cbid: CUpti_CallbackId,
) -> CUptiResult;
pub type cuptiEnableCallback_fn = unsafe extern "C" fn(
    enable: u32,
    subscriber: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
    cbid: CUpti_CallbackId,
) -> CUptiResult;
pub type cuptiEnableDomain_fn = unsafe extern "C" fn(
    enable: u32,
    subscriber: CUpti_SubscriberHandle,
    domain: CUpti_CallbackDomain,
) -> CUptiResult;
pub type cuptiGetCallbackName_fn = unsafe extern "C" fn(
    domain: CUpti_CallbackDomain,
    cbid: u32,
    name: *mut *const ::core::ffi::c_char,
) -> CUptiResult;
pub type CUpti_ActivityKind = ::core::ffi::c_uint;
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Copy, Clone)]
pub struct CUpti_Activity {
    pub kind: CUpti_ActivityKind,
}
pub type CUpti_ExternalCorrelationKind = ::core::ffi::c_uint;
pub type CUpti_ActivityAttribute = ::core::ffi::c_uint;
pub type CUpti_ActivityThreadIdType = ::core::ffi::c_uint;
pub type cuptiGetTimestamp_fn = unsafe extern "C" fn(timestamp: *mut u64) -> CUptiResult;
pub type cuptiGetContextId_fn = unsafe extern "C" fn(context: CUcontext, contextId: *mut u32) -> CUptiResult;
pub type cuptiGetStreamIdEx_fn = unsafe extern "C" fn(
    context: CUcontext,
    stream: CUstream,
    perThreadStream: u8,
    streamId: *mut u32,
) -> CUptiResult;
pub type cuptiGetDeviceId_fn = unsafe extern "C" fn(context: CUcontext, deviceId: *mut u32) -> CUptiResult;
pub type cuptiGetGraphNodeId_fn = unsafe extern "C" fn(node: CUgraphNode, nodeId: *mut u64) -> CUptiResult;
pub type cuptiGetGraphId_fn = unsafe extern "C" fn(graph: CUgraph, pId: *mut u32) -> CUptiResult;
pub type cuptiGetGraphExecId_fn = unsafe extern "C" fn(graphExec: CUgraphExec, pId: *mut u32) -> CUptiResult;
pub type cuptiActivityEnable_fn = unsafe extern "C" fn(kind: CUpti_ActivityKind) -> CUptiResult;
pub type cuptiActivityDisable_fn = unsafe extern "C" fn(kind: CUpti_ActivityKind) -> CUptiResult;
pub type cuptiActivityGetEnabledKinds_fn = unsafe extern "C" fn(
    subscriber: CUpti_SubscriberHandle,
    buffer: *mut CUpti_ActivityKind,
    bufferSize: *mut u32,
    enabledKindsCount: *mut u32,
) -> CUptiResult;
pub type cuptiActivityGetStructSize_fn = unsafe extern "C" fn(
    activityKind: CUpti_ActivityKind,
    version: u32,
    activityStructSize: *mut usize,
) -> CUptiResult;
pub type cuptiActivityGetNumDroppedRecords_fn =
    unsafe extern "C" fn(context: CUcontext, streamId: u32, dropped: *mut usize) -> CUptiResult;
pub type cuptiActivityGetNextRecord_fn = unsafe extern "C" fn(
    buffer: *mut u8,
    validBufferSizeBytes: usize,
    record: *mut *mut CUpti_Activity,
) -> CUptiResult;
pub type CUpti_BuffersCallbackRequestFunc = ::core::option::Option<
    unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, maxNumRecords: *mut usize),
>;
pub type CUpti_BuffersCallbackCompleteFunc = ::core::option::Option<
    unsafe extern "C" fn(context: CUcontext, streamId: u32, buffer: *mut u8, size: usize, validSize: usize),
>;
pub type cuptiActivityRegisterCallbacks_fn = unsafe extern "C" fn(
    funcBufferRequested: CUpti_BuffersCallbackRequestFunc,
    funcBufferCompleted: CUpti_BuffersCallbackCompleteFunc,
) -> CUptiResult;
pub type cuptiActivityFlushAll_fn = unsafe extern "C" fn(flag: u32) -> CUptiResult;
pub type cuptiActivityGetAttribute_fn = unsafe extern "C" fn(
    attr: CUpti_ActivityAttribute,
    valueSize: *mut usize,
    value: *mut ::core::ffi::c_void,
) -> CUptiResult;
pub type cuptiActivitySetAttribute_fn = unsafe extern "C" fn(
    attr: CUpti_ActivityAttribute,
    valueSize: *mut usize,
    value: *mut ::core::ffi::c_void,
) -> CUptiResult;
pub type cuptiSetThreadIdType_fn = unsafe extern "C" fn(type_: CUpti_ActivityThreadIdType) -> CUptiResult;
pub type cuptiGetThreadIdType_fn =
    unsafe extern "C" fn(type_: *mut CUpti_ActivityThreadIdType) -> CUptiResult;
pub type cuptiFinalize_fn = unsafe extern "C" fn() -> CUptiResult;
pub type cuptiActivityPushExternalCorrelationId_fn =
    unsafe extern "C" fn(kind: CUpti_ExternalCorrelationKind, id: u64) -> CUptiResult;
pub type cuptiActivityPopExternalCorrelationId_fn =
    unsafe extern "C" fn(kind: CUpti_ExternalCorrelationKind, lastId: *mut u64) -> CUptiResult;
pub type cuptiActivityFlushPeriod_fn = unsafe extern "C" fn(time: u32) -> CUptiResult;
pub type CUpti_TimestampCallbackFunc = ::core::option::Option<unsafe extern "C" fn() -> u64>;
pub type cuptiActivityRegisterTimestampCallback_fn =
    unsafe extern "C" fn(funcTimestamp: CUpti_TimestampCallbackFunc) -> CUptiResult;
pub type cuptiActivityEnableDeviceGraph_fn = unsafe extern "C" fn(enable: u8) -> CUptiResult;
pub type cuptiActivityEnableDriverApi_fn =
    unsafe extern "C" fn(cbid: CUpti_CallbackId, enable: u8) -> CUptiResult;
pub type cuptiActivityEnableRuntimeApi_fn =
    unsafe extern "C" fn(cbid: CUpti_CallbackId, enable: u8) -> CUptiResult;
pub type cuptiActivityEnableAllSyncRecords_fn = unsafe extern "C" fn(enable: u8) -> CUptiResult;
pub type cuptiActivityEnableCudaEventDeviceTimestamps_fn = unsafe extern "C" fn(enable: u8) -> CUptiResult;
/// Activity kinds.
pub mod kind {
    numbers! {
        INVALID = 0,
        MEMCPY = 1,
        MEMSET = 2,
        KERNEL = 3,
        DRIVER = 4,
        RUNTIME = 5,
        DEVICE = 8,
        CONTEXT = 9,
        CONCURRENT_KERNEL = 10,
        NAME = 11,
        MARKER = 12,
        OVERHEAD = 17,
        MEMCPY2 = 22,
        CUDA_EVENT = 36,
        STREAM = 37,
        SYNCHRONIZATION = 38,
        EXTERNAL_CORRELATION = 39,
        INTERNAL_LAUNCH_API = 48,
        MEMORY2 = 49,
        MEMORY_POOL = 50,
        GRAPH_TRACE = 51,
        DEVICE_GRAPH_TRACE = 53,
        GRAPH_HOST_NODE = 56,
        HOST_LAUNCH = 58,
    }
}
/// Attributes of the activity interface.
pub mod attribute {
    numbers! {
        DEVICE_BUFFER_SIZE = 0,
        DEVICE_BUFFER_POOL_LIMIT = 2,
        PROFILING_SEMAPHORE_POOL_SIZE = 3,
        PROFILING_SEMAPHORE_POOL_LIMIT = 4,
        ZEROED_OUT_ACTIVITY_BUFFER = 5,
        DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6,
        PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE = 7,
        MEM_ALLOCATION_TYPE_HOST_PINNED = 8,
        PER_THREAD_ACTIVITY_BUFFER = 9,
        DEVICE_BUFFER_SIZE_DEVICE_GRAPHS = 10,
    }
}
/// Result codes.
pub mod result {
    numbers! {
        SUCCESS = 0,
        ERROR_INVALID_PARAMETER = 1,
        ERROR_INVALID_DEVICE = 2,
        ERROR_INVALID_CONTEXT = 3,
        ERROR_INVALID_EVENT_DOMAIN_ID = 4,
        ERROR_INVALID_EVENT_ID = 5,
        ERROR_INVALID_EVENT_NAME = 6,
        ERROR_INVALID_OPERATION = 7,
        ERROR_OUT_OF_MEMORY = 8,
        ERROR_HARDWARE = 9,
        ERROR_PARAMETER_SIZE_NOT_SUFFICIENT = 10,
        ERROR_API_NOT_IMPLEMENTED = 11,
        ERROR_MAX_LIMIT_REACHED = 12,
        ERROR_NOT_READY = 13,
        ERROR_NOT_COMPATIBLE = 14,
        ERROR_NOT_INITIALIZED = 15,
        ERROR_INVALID_METRIC_ID = 16,
        ERROR_INVALID_METRIC_NAME = 17,
        ERROR_QUEUE_EMPTY = 18,
        ERROR_INVALID_HANDLE = 19,
        ERROR_INVALID_STREAM = 20,
        ERROR_INVALID_KIND = 21,
        ERROR_INVALID_EVENT_VALUE = 22,
        ERROR_DISABLED = 23,
        ERROR_INVALID_MODULE = 24,
        ERROR_INVALID_METRIC_VALUE = 25,
        ERROR_HARDWARE_BUSY = 26,
        ERROR_NOT_SUPPORTED = 27,
        ERROR_UM_PROFILING_NOT_SUPPORTED = 28,
        ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE = 29,
        ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES = 30,
        ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS = 31,
        ERROR_CDP_TRACING_NOT_SUPPORTED = 32,
        ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED = 33,
        ERROR_CUDA_COMPILER_NOT_COMPATIBLE = 34,
        ERROR_INSUFFICIENT_PRIVILEGES = 35,
        ERROR_OLD_PROFILER_API_INITIALIZED = 36,
        ERROR_OPENACC_UNDEFINED_ROUTINE = 37,
        ERROR_LEGACY_PROFILER_NOT_SUPPORTED = 38,
        ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
        ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES = 40,
        ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED = 41,
        ERROR_CMP_DEVICE_NOT_SUPPORTED = 42,
        ERROR_MIG_DEVICE_NOT_SUPPORTED = 43,
        ERROR_SLI_DEVICE_NOT_SUPPORTED = 44,
        ERROR_WSL_DEVICE_NOT_SUPPORTED = 45,
        ERROR_INVALID_CHIP_NAME = 46,
        ERROR_HES_TRACE_NOT_SUPPORTED_ON_MPS = 47,
        ERROR_UNKNOWN = 999,
    }
}
/// Callback domains.
pub mod domain {
    numbers! {
        DRIVER_API = 1,
        RUNTIME_API = 2,
        RESOURCE = 3,
        SYNCHRONIZE = 4,
        NVTX = 5,
        STATE = 6,
    }
}
/// Where in a call a callback stands.
pub mod site {
    numbers! {
        ENTER = 0,
        EXIT = 1,
    }
}
/// Directions of a copy.
pub mod memcpy_kind {
    numbers! {
        UNKNOWN = 0,
        HTOD = 1,
        DTOH = 2,
        HTOA = 3,
        ATOH = 4,
        ATOA = 5,
        ATOD = 6,
        DTOA = 7,
        DTOD = 8,
        HTOH = 9,
        PTOP = 10,
    }
}
/// Kinds of memory at either end of a copy.
pub mod memory_kind {
    numbers! {
        UNKNOWN = 0,
        PAGEABLE = 1,
        PINNED = 2,
        DEVICE = 3,
        ARRAY = 4,
        MANAGED = 5,
        DEVICE_STATIC = 6,
        MANAGED_STATIC = 7,
    }
}
/// Kinds of synchronization.
pub mod synchronization_type {
    numbers! {
        UNKNOWN = 0,
        EVENT_SYNCHRONIZE = 1,
        STREAM_WAIT_EVENT = 2,
        STREAM_SYNCHRONIZE = 3,
        CONTEXT_SYNCHRONIZE = 4,
    }
}
/// What an overhead record accounts for.
pub mod overhead_kind {
    numbers! {
        UNKNOWN = 0,
        DRIVER_COMPILER = 1,
        CUPTI_BUFFER_FLUSH = 65536,
        CUPTI_INSTRUMENTATION = 131072,
        CUPTI_RESOURCE = 196608,
        RUNTIME_TRIGGERED_MODULE_LOADING = 262144,
        LAZY_FUNCTION_LOADING = 327680,
        COMMAND_BUFFER_FULL = 393216,
        ACTIVITY_BUFFER_REQUEST = 458752,
        UVM_ACTIVITY_INIT = 524288,
    }
}
/// How a kernel was launched.
pub mod launch_type {
    numbers! {
        REGULAR = 0,
        COOPERATIVE_SINGLE_DEVICE = 1,
        COOPERATIVE_MULTI_DEVICE = 2,
        CBL_COMMANDLIST = 3,
    }
}
/// Kinds of hardware channel.
pub mod channel_type {
    numbers! {
        INVALID = 0,
        COMPUTE = 1,
        ASYNC_MEMCPY = 2,
    }
}
/// What a thread id in a record is.
pub mod thread_id_type {
    numbers! {
        DEFAULT = 0,
        SYSTEM = 1,
    }
}
/// Flags of records and of the flush.
pub mod flag {
    numbers! {
        NONE = 0,
        MEMCPY_ASYNC = 1,
        MEMSET_ASYNC = 1,
        FLUSH_FORCED = 1,
    }
}
/// Owners of external correlation ids.
pub mod external_correlation_kind {
    numbers! {
        CUSTOM0 = 3,
        CUSTOM1 = 4,
        CUSTOM2 = 5,
    }
}
