// SPDX-License-Identifier: Apache-2.0
//! Made by scripts/dev/bindings from the headers of CUDA 13.5 with bindgen 0.72.1: do not edit.
//!
//! Callback ids. A group, such as `runtime::LAUNCH`, lists every API version and stream variant of
//! its calls.

#![allow(missing_docs, non_camel_case_types, non_snake_case, reason = "names are NVIDIA's")]

/// Callback ids of the resource domain.
pub mod resource {
    numbers! {
        CONTEXT_CREATED = 1,
        CONTEXT_DESTROY_STARTING = 2,
        STREAM_CREATED = 3,
        STREAM_DESTROY_STARTING = 4,
        CU_INIT_FINISHED = 5,
        MODULE_LOADED = 6,
        MODULE_UNLOAD_STARTING = 7,
        MODULE_PROFILED = 8,
        GRAPHNODE_CREATED = 13,
        GRAPHEXEC_CREATED = 18,
        GRAPHEXEC_DESTROY_STARTING = 19,
        GRAPHNODE_CLONED = 20,
    }
}
/// Callback ids of the synchronize domain.
pub mod synchronize {
    numbers! {
        STREAM_SYNCHRONIZED = 1,
        CONTEXT_SYNCHRONIZED = 2,
    }
}
/// Callback ids of the state domain (12.2+).
pub mod state {
    numbers! {
        FATAL_ERROR = 1,
        ERROR = 2,
        WARNING = 3,
    }
}
/// Callback ids of the runtime domain (libcudart).
pub mod runtime {
    calls! {
        LAUNCH {
            CUDA_LAUNCH_V3020 = 13, "cudaLaunch";
            CUDA_LAUNCH_PTSZ_V7000 = 213, "cudaLaunch";
            CUDA_LAUNCH_KERNEL_V7000 = 211, "cudaLaunchKernel";
            CUDA_LAUNCH_KERNEL_PTSZ_V7000 = 214, "cudaLaunchKernel";
            CUDA_LAUNCH_KERNEL_EX_C_V11060 = 430, "cudaLaunchKernelExC";
            CUDA_LAUNCH_KERNEL_EX_C_PTSZ_V11060 = 431, "cudaLaunchKernelExC";
            __CUDA_LAUNCH_KERNEL_V13000 = 505, "__cudaLaunchKernel";
            __CUDA_LAUNCH_KERNEL_PTSZ_V13000 = 506, "__cudaLaunchKernel";
            CUDA_LAUNCH_COOPERATIVE_KERNEL_V9000 = 269, "cudaLaunchCooperativeKernel";
            CUDA_LAUNCH_COOPERATIVE_KERNEL_PTSZ_V9000 = 270, "cudaLaunchCooperativeKernel";
            CUDA_LAUNCH_COOPERATIVE_KERNEL_MULTI_DEVICE_V9000 = 272, "cudaLaunchCooperativeKernelMultiDevice";
        }
        GRAPH_LAUNCH {
            CUDA_GRAPH_LAUNCH_V10000 = 311, "cudaGraphLaunch";
            CUDA_GRAPH_LAUNCH_PTSZ_V10000 = 312, "cudaGraphLaunch";
        }
        GRAPH_SETUP {
            CUDA_GRAPH_INSTANTIATE_V10000 = 310, "cudaGraphInstantiate";
            CUDA_GRAPH_INSTANTIATE_V12000 = 443, "cudaGraphInstantiate";
            CUDA_GRAPH_INSTANTIATE_WITH_FLAGS_V11040 = 418, "cudaGraphInstantiateWithFlags";
            CUDA_GRAPH_INSTANTIATE_WITH_PARAMS_V12000 = 436, "cudaGraphInstantiateWithParams";
            CUDA_GRAPH_INSTANTIATE_WITH_PARAMS_PTSZ_V12000 = 437, "cudaGraphInstantiateWithParams";
            CUDA_GRAPH_UPLOAD_V10000 = 348, "cudaGraphUpload";
            CUDA_GRAPH_UPLOAD_PTSZ_V10000 = 349, "cudaGraphUpload";
        }
        HOST_LAUNCH {
            CUDA_LAUNCH_HOST_FUNC_V10000 = 284, "cudaLaunchHostFunc";
            CUDA_LAUNCH_HOST_FUNC_PTSZ_V10000 = 285, "cudaLaunchHostFunc";
            CUDA_LAUNCH_HOST_FUNC_V2_V13020 = 550, "cudaLaunchHostFunc";
            CUDA_LAUNCH_HOST_FUNC_V2_PTSZ_V13020 = 551, "cudaLaunchHostFunc";
            CUDA_STREAM_ADD_CALLBACK_V5000 = 197, "cudaStreamAddCallback";
            CUDA_STREAM_ADD_CALLBACK_PTSZ_V7000 = 248, "cudaStreamAddCallback";
        }
        MEMCPY {
            CUDA_MEMCPY_V3020 = 31, "cudaMemcpy";
            CUDA_MEMCPY_PTDS_V7000 = 215, "cudaMemcpy";
            CUDA_MEMCPY_2D_V3020 = 32, "cudaMemcpy2D";
            CUDA_MEMCPY_2D_PTDS_V7000 = 216, "cudaMemcpy2D";
            CUDA_MEMCPY_3D_V3020 = 144, "cudaMemcpy3D";
            CUDA_MEMCPY_3D_PTDS_V7000 = 245, "cudaMemcpy3D";
            CUDA_MEMCPY_PEER_V4000 = 160, "cudaMemcpyPeer";
            CUDA_MEMCPY_3D_PEER_V4000 = 162, "cudaMemcpy3DPeer";
            CUDA_MEMCPY_3D_PEER_PTDS_V7000 = 249, "cudaMemcpy3DPeer";
            CUDA_MEMCPY_TO_SYMBOL_V3020 = 39, "cudaMemcpyToSymbol";
            CUDA_MEMCPY_TO_SYMBOL_PTDS_V7000 = 223, "cudaMemcpyToSymbol";
            CUDA_MEMCPY_FROM_SYMBOL_V3020 = 40, "cudaMemcpyFromSymbol";
            CUDA_MEMCPY_FROM_SYMBOL_PTDS_V7000 = 224, "cudaMemcpyFromSymbol";
            CUDA_MEMCPY_TO_ARRAY_V3020 = 33, "cudaMemcpyToArray";
            CUDA_MEMCPY_TO_ARRAY_PTDS_V7000 = 217, "cudaMemcpyToArray";
            CUDA_MEMCPY_FROM_ARRAY_V3020 = 35, "cudaMemcpyFromArray";
            CUDA_MEMCPY_FROM_ARRAY_PTDS_V7000 = 219, "cudaMemcpyFromArray";
            CUDA_MEMCPY_2D_TO_ARRAY_V3020 = 34, "cudaMemcpy2DToArray";
            CUDA_MEMCPY_2D_TO_ARRAY_PTDS_V7000 = 218, "cudaMemcpy2DToArray";
            CUDA_MEMCPY_2D_FROM_ARRAY_V3020 = 36, "cudaMemcpy2DFromArray";
            CUDA_MEMCPY_2D_FROM_ARRAY_PTDS_V7000 = 220, "cudaMemcpy2DFromArray";
            CUDA_MEMCPY_ARRAY_TO_ARRAY_V3020 = 37, "cudaMemcpyArrayToArray";
            CUDA_MEMCPY_ARRAY_TO_ARRAY_PTDS_V7000 = 221, "cudaMemcpyArrayToArray";
            CUDA_MEMCPY_2D_ARRAY_TO_ARRAY_V3020 = 38, "cudaMemcpy2DArrayToArray";
            CUDA_MEMCPY_2D_ARRAY_TO_ARRAY_PTDS_V7000 = 222, "cudaMemcpy2DArrayToArray";
        }
        MEMCPY_ASYNC {
            CUDA_MEMCPY_ASYNC_V3020 = 41, "cudaMemcpyAsync";
            CUDA_MEMCPY_ASYNC_PTSZ_V7000 = 225, "cudaMemcpyAsync";
            CUDA_MEMCPY_2D_ASYNC_V3020 = 44, "cudaMemcpy2DAsync";
            CUDA_MEMCPY_2D_ASYNC_PTSZ_V7000 = 228, "cudaMemcpy2DAsync";
            CUDA_MEMCPY_3D_ASYNC_V3020 = 145, "cudaMemcpy3DAsync";
            CUDA_MEMCPY_3D_ASYNC_PTSZ_V7000 = 246, "cudaMemcpy3DAsync";
            CUDA_MEMCPY_PEER_ASYNC_V4000 = 161, "cudaMemcpyPeerAsync";
            CUDA_MEMCPY_3D_PEER_ASYNC_V4000 = 163, "cudaMemcpy3DPeerAsync";
            CUDA_MEMCPY_3D_PEER_ASYNC_PTSZ_V7000 = 250, "cudaMemcpy3DPeerAsync";
            CUDA_MEMCPY_TO_SYMBOL_ASYNC_V3020 = 47, "cudaMemcpyToSymbolAsync";
            CUDA_MEMCPY_TO_SYMBOL_ASYNC_PTSZ_V7000 = 231, "cudaMemcpyToSymbolAsync";
            CUDA_MEMCPY_FROM_SYMBOL_ASYNC_V3020 = 48, "cudaMemcpyFromSymbolAsync";
            CUDA_MEMCPY_FROM_SYMBOL_ASYNC_PTSZ_V7000 = 232, "cudaMemcpyFromSymbolAsync";
            CUDA_MEMCPY_TO_ARRAY_ASYNC_V3020 = 42, "cudaMemcpyToArrayAsync";
            CUDA_MEMCPY_TO_ARRAY_ASYNC_PTSZ_V7000 = 226, "cudaMemcpyToArrayAsync";
            CUDA_MEMCPY_FROM_ARRAY_ASYNC_V3020 = 43, "cudaMemcpyFromArrayAsync";
            CUDA_MEMCPY_FROM_ARRAY_ASYNC_PTSZ_V7000 = 227, "cudaMemcpyFromArrayAsync";
            CUDA_MEMCPY_2D_TO_ARRAY_ASYNC_V3020 = 45, "cudaMemcpy2DToArrayAsync";
            CUDA_MEMCPY_2D_TO_ARRAY_ASYNC_PTSZ_V7000 = 229, "cudaMemcpy2DToArrayAsync";
            CUDA_MEMCPY_2D_FROM_ARRAY_ASYNC_V3020 = 46, "cudaMemcpy2DFromArrayAsync";
            CUDA_MEMCPY_2D_FROM_ARRAY_ASYNC_PTSZ_V7000 = 230, "cudaMemcpy2DFromArrayAsync";
            CUDA_MEMCPY_BATCH_ASYNC_V12080 = 482, "cudaMemcpyBatchAsync";
            CUDA_MEMCPY_BATCH_ASYNC_PTSZ_V12080 = 483, "cudaMemcpyBatchAsync";
            CUDA_MEMCPY_BATCH_ASYNC_V13000 = 509, "cudaMemcpyBatchAsync";
            CUDA_MEMCPY_BATCH_ASYNC_PTSZ_V13000 = 510, "cudaMemcpyBatchAsync";
            CUDA_MEMCPY_3D_BATCH_ASYNC_V12080 = 484, "cudaMemcpy3DBatchAsync";
            CUDA_MEMCPY_3D_BATCH_ASYNC_PTSZ_V12080 = 485, "cudaMemcpy3DBatchAsync";
            CUDA_MEMCPY_3D_BATCH_ASYNC_V13000 = 511, "cudaMemcpy3DBatchAsync";
            CUDA_MEMCPY_3D_BATCH_ASYNC_PTSZ_V13000 = 512, "cudaMemcpy3DBatchAsync";
            CUDA_MEMCPY_WITH_ATTRIBUTES_ASYNC_V13020 = 554, "cudaMemcpyWithAttributesAsync";
            CUDA_MEMCPY_WITH_ATTRIBUTES_ASYNC_PTSZ_V13020 = 555, "cudaMemcpyWithAttributesAsync";
            CUDA_MEMCPY_3D_WITH_ATTRIBUTES_ASYNC_V13020 = 556, "cudaMemcpy3DWithAttributesAsync";
            CUDA_MEMCPY_3D_WITH_ATTRIBUTES_ASYNC_PTSZ_V13020 = 557, "cudaMemcpy3DWithAttributesAsync";
            CUDA_MEM_PREFETCH_ASYNC_V8000 = 252, "cudaMemPrefetchAsync";
            CUDA_MEM_PREFETCH_ASYNC_PTSZ_V8000 = 253, "cudaMemPrefetchAsync";
            CUDA_MEM_PREFETCH_ASYNC_V12020 = 449, "cudaMemPrefetchAsync";
            CUDA_MEM_PREFETCH_ASYNC_PTSZ_V12020 = 450, "cudaMemPrefetchAsync";
            CUDA_MEM_PREFETCH_BATCH_ASYNC_V13000 = 487, "cudaMemPrefetchBatchAsync";
            CUDA_MEM_PREFETCH_BATCH_ASYNC_PTSZ_V13000 = 488, "cudaMemPrefetchBatchAsync";
        }
        MEMSET {
            CUDA_MEMSET_V3020 = 49, "cudaMemset";
            CUDA_MEMSET_PTDS_V7000 = 233, "cudaMemset";
            CUDA_MEMSET_2D_V3020 = 50, "cudaMemset2D";
            CUDA_MEMSET_2D_PTDS_V7000 = 234, "cudaMemset2D";
            CUDA_MEMSET_3D_V3020 = 142, "cudaMemset3D";
            CUDA_MEMSET_3D_PTDS_V7000 = 243, "cudaMemset3D";
        }
        MEMSET_ASYNC {
            CUDA_MEMSET_ASYNC_V3020 = 51, "cudaMemsetAsync";
            CUDA_MEMSET_ASYNC_PTSZ_V7000 = 235, "cudaMemsetAsync";
            CUDA_MEMSET_2D_ASYNC_V3020 = 52, "cudaMemset2DAsync";
            CUDA_MEMSET_2D_ASYNC_PTSZ_V7000 = 236, "cudaMemset2DAsync";
            CUDA_MEMSET_3D_ASYNC_V3020 = 143, "cudaMemset3DAsync";
            CUDA_MEMSET_3D_ASYNC_PTSZ_V7000 = 244, "cudaMemset3DAsync";
        }
        SYNCHRONIZE {
            CUDA_STREAM_SYNCHRONIZE_V3020 = 131, "cudaStreamSynchronize";
            CUDA_STREAM_SYNCHRONIZE_PTSZ_V7000 = 239, "cudaStreamSynchronize";
            CUDA_DEVICE_SYNCHRONIZE_V3020 = 165, "cudaDeviceSynchronize";
            CUDA_EVENT_SYNCHRONIZE_V3020 = 137, "cudaEventSynchronize";
            CUDA_THREAD_SYNCHRONIZE_V3020 = 126, "cudaThreadSynchronize";
            CUDA_EXECUTION_CTX_SYNCHRONIZE_V13010 = 534, "cudaExecutionCtxSynchronize";
        }
        QUERY {
            CUDA_STREAM_QUERY_V3020 = 132, "cudaStreamQuery";
            CUDA_STREAM_QUERY_PTSZ_V7000 = 240, "cudaStreamQuery";
            CUDA_EVENT_QUERY_V3020 = 138, "cudaEventQuery";
        }
        EVENT {
            CUDA_EVENT_RECORD_V3020 = 135, "cudaEventRecord";
            CUDA_EVENT_RECORD_PTSZ_V7000 = 242, "cudaEventRecord";
            CUDA_EVENT_RECORD_WITH_FLAGS_V11010 = 370, "cudaEventRecordWithFlags";
            CUDA_EVENT_RECORD_WITH_FLAGS_PTSZ_V11010 = 371, "cudaEventRecordWithFlags";
            CUDA_STREAM_WAIT_EVENT_V3020 = 147, "cudaStreamWaitEvent";
            CUDA_STREAM_WAIT_EVENT_PTSZ_V7000 = 247, "cudaStreamWaitEvent";
        }
        ALLOCATE {
            CUDA_MALLOC_V3020 = 20, "cudaMalloc";
            CUDA_MALLOC_PITCH_V3020 = 21, "cudaMallocPitch";
            CUDA_MALLOC_3D_V3020 = 140, "cudaMalloc3D";
            CUDA_MALLOC_MANAGED_V6000 = 206, "cudaMallocManaged";
            CUDA_FREE_V3020 = 22, "cudaFree";
        }
        ALLOCATE_HOST {
            CUDA_MALLOC_HOST_V3020 = 25, "cudaMallocHost";
            CUDA_HOST_ALLOC_V3020 = 27, "cudaHostAlloc";
            CUDA_FREE_HOST_V3020 = 26, "cudaFreeHost";
            CUDA_HOST_REGISTER_V4000 = 152, "cudaHostRegister";
            CUDA_HOST_UNREGISTER_V4000 = 153, "cudaHostUnregister";
        }
        ALLOCATE_ASYNC {
            CUDA_MALLOC_ASYNC_V11020 = 373, "cudaMallocAsync";
            CUDA_MALLOC_ASYNC_PTSZ_V11020 = 374, "cudaMallocAsync";
            CUDA_MALLOC_FROM_POOL_ASYNC_V11020 = 391, "cudaMallocFromPoolAsync";
            CUDA_MALLOC_FROM_POOL_ASYNC_PTSZ_V11020 = 392, "cudaMallocFromPoolAsync";
            CUDA_FREE_ASYNC_V11020 = 375, "cudaFreeAsync";
            CUDA_FREE_ASYNC_PTSZ_V11020 = 376, "cudaFreeAsync";
        }
        PROFILER {
            CUDA_PROFILER_START_V4000 = 171, "cudaProfilerStart";
            CUDA_PROFILER_STOP_V4000 = 172, "cudaProfilerStop";
        }
        RESET {
            CUDA_DEVICE_RESET_V3020 = 164, "cudaDeviceReset";
        }
    }
}
/// Callback ids of the driver domain (libcuda).
pub mod driver {
    calls! {
        LAUNCH {
            CU_LAUNCH_KERNEL = 307, "cuLaunchKernel";
            CU_LAUNCH_KERNEL_PTSZ = 442, "cuLaunchKernel";
            CU_LAUNCH_KERNEL_EX = 652, "cuLaunchKernelEx";
            CU_LAUNCH_KERNEL_EX_PTSZ = 653, "cuLaunchKernelEx";
            CU_LAUNCH_COOPERATIVE_KERNEL = 477, "cuLaunchCooperativeKernel";
            CU_LAUNCH_COOPERATIVE_KERNEL_PTSZ = 478, "cuLaunchCooperativeKernel";
            CU_LAUNCH_COOPERATIVE_KERNEL_MULTI_DEVICE = 480, "cuLaunchCooperativeKernelMultiDevice";
            CU_LAUNCH = 115, "cuLaunch";
            CU_LAUNCH_GRID = 116, "cuLaunchGrid";
            CU_LAUNCH_GRID_ASYNC = 117, "cuLaunchGridAsync";
        }
        GRAPH_LAUNCH {
            CU_GRAPH_LAUNCH = 514, "cuGraphLaunch";
            CU_GRAPH_LAUNCH_PTSZ = 515, "cuGraphLaunch";
        }
        GRAPH_SETUP {
            CU_GRAPH_INSTANTIATE = 513, "cuGraphInstantiate";
            CU_GRAPH_INSTANTIATE_V2 = 578, "cuGraphInstantiate";
            CU_GRAPH_INSTANTIATE_WITH_FLAGS = 643, "cuGraphInstantiateWithFlags";
            CU_GRAPH_INSTANTIATE_WITH_PARAMS = 656, "cuGraphInstantiateWithParams";
            CU_GRAPH_INSTANTIATE_WITH_PARAMS_PTSZ = 657, "cuGraphInstantiateWithParams";
            CU_GRAPH_UPLOAD = 580, "cuGraphUpload";
            CU_GRAPH_UPLOAD_PTSZ = 581, "cuGraphUpload";
        }
        HOST_LAUNCH {
            CU_LAUNCH_HOST_FUNC = 527, "cuLaunchHostFunc";
            CU_LAUNCH_HOST_FUNC_PTSZ = 528, "cuLaunchHostFunc";
            CU_LAUNCH_HOST_FUNC_V2 = 831, "cuLaunchHostFunc";
            CU_LAUNCH_HOST_FUNC_V2_PTSZ = 832, "cuLaunchHostFunc";
            CU_STREAM_ADD_CALLBACK = 346, "cuStreamAddCallback";
            CU_STREAM_ADD_CALLBACK_PTSZ = 437, "cuStreamAddCallback";
        }
        MEMCPY {
            CU_MEMCPY = 305, "cuMemcpy";
            CU_MEMCPY_PTDS = 408, "cuMemcpy";
            CU_MEMCPY_HTOD = 43, "cuMemcpyHtoD";
            CU_MEMCPY_HTOD_V2 = 276, "cuMemcpyHtoD";
            CU_MEMCPY_HTOD_V2_PTDS = 397, "cuMemcpyHtoD";
            CU_MEMCPY_DTOH = 45, "cuMemcpyDtoH";
            CU_MEMCPY_DTOH_V2 = 278, "cuMemcpyDtoH";
            CU_MEMCPY_DTOH_V2_PTDS = 398, "cuMemcpyDtoH";
            CU_MEMCPY_DTOD = 47, "cuMemcpyDtoD";
            CU_MEMCPY_DTOD_V2 = 280, "cuMemcpyDtoD";
            CU_MEMCPY_DTOD_V2_PTDS = 399, "cuMemcpyDtoD";
            CU_MEMCPY_PEER = 318, "cuMemcpyPeer";
            CU_MEMCPY_PEER_PTDS = 409, "cuMemcpyPeer";
            CU_MEMCPY_2D = 56, "cuMemcpy2D";
            CU_MEMCPY_2D_V2 = 287, "cuMemcpy2D";
            CU_MEMCPY_2D_V2_PTDS = 405, "cuMemcpy2D";
            CU_MEMCPY_2D_UNALIGNED = 57, "cuMemcpy2DUnaligned";
            CU_MEMCPY_2D_UNALIGNED_V2 = 288, "cuMemcpy2DUnaligned";
            CU_MEMCPY_2D_UNALIGNED_V2_PTDS = 406, "cuMemcpy2DUnaligned";
            CU_MEMCPY_3D = 58, "cuMemcpy3D";
            CU_MEMCPY_3D_V2 = 290, "cuMemcpy3D";
            CU_MEMCPY_3D_V2_PTDS = 407, "cuMemcpy3D";
            CU_MEMCPY_3D_PEER = 320, "cuMemcpy3DPeer";
            CU_MEMCPY_3D_PEER_PTDS = 410, "cuMemcpy3DPeer";
            CU_MEMCPY_HTOA = 53, "cuMemcpyHtoA";
            CU_MEMCPY_HTOA_V2 = 292, "cuMemcpyHtoA";
            CU_MEMCPY_HTOA_V2_PTDS = 402, "cuMemcpyHtoA";
            CU_MEMCPY_ATOH = 54, "cuMemcpyAtoH";
            CU_MEMCPY_ATOH_V2 = 282, "cuMemcpyAtoH";
            CU_MEMCPY_ATOH_V2_PTDS = 403, "cuMemcpyAtoH";
            CU_MEMCPY_DTOA = 49, "cuMemcpyDtoA";
            CU_MEMCPY_DTOA_V2 = 285, "cuMemcpyDtoA";
            CU_MEMCPY_DTOA_V2_PTDS = 400, "cuMemcpyDtoA";
            CU_MEMCPY_ATOD = 51, "cuMemcpyAtoD";
            CU_MEMCPY_ATOD_V2 = 284, "cuMemcpyAtoD";
            CU_MEMCPY_ATOD_V2_PTDS = 401, "cuMemcpyAtoD";
            CU_MEMCPY_ATOA = 55, "cuMemcpyAtoA";
            CU_MEMCPY_ATOA_V2 = 286, "cuMemcpyAtoA";
            CU_MEMCPY_ATOA_V2_PTDS = 404, "cuMemcpyAtoA";
        }
        MEMCPY_ASYNC {
            CU_MEMCPY_ASYNC = 306, "cuMemcpyAsync";
            CU_MEMCPY_ASYNC_PTSZ = 418, "cuMemcpyAsync";
            CU_MEMCPY_HTOD_ASYNC = 60, "cuMemcpyHtoDAsync";
            CU_MEMCPY_HTOD_ASYNC_V2 = 277, "cuMemcpyHtoDAsync";
            CU_MEMCPY_HTOD_ASYNC_V2_PTSZ = 421, "cuMemcpyHtoDAsync";
            CU_MEMCPY_DTOH_ASYNC = 62, "cuMemcpyDtoHAsync";
            CU_MEMCPY_DTOH_ASYNC_V2 = 279, "cuMemcpyDtoHAsync";
            CU_MEMCPY_DTOH_ASYNC_V2_PTSZ = 422, "cuMemcpyDtoHAsync";
            CU_MEMCPY_DTOD_ASYNC = 64, "cuMemcpyDtoDAsync";
            CU_MEMCPY_DTOD_ASYNC_V2 = 281, "cuMemcpyDtoDAsync";
            CU_MEMCPY_DTOD_ASYNC_V2_PTSZ = 423, "cuMemcpyDtoDAsync";
            CU_MEMCPY_PEER_ASYNC = 319, "cuMemcpyPeerAsync";
            CU_MEMCPY_PEER_ASYNC_PTSZ = 426, "cuMemcpyPeerAsync";
            CU_MEMCPY_2D_ASYNC = 68, "cuMemcpy2DAsync";
            CU_MEMCPY_2D_ASYNC_V2 = 289, "cuMemcpy2DAsync";
            CU_MEMCPY_2D_ASYNC_V2_PTSZ = 424, "cuMemcpy2DAsync";
            CU_MEMCPY_3D_ASYNC = 69, "cuMemcpy3DAsync";
            CU_MEMCPY_3D_ASYNC_V2 = 291, "cuMemcpy3DAsync";
            CU_MEMCPY_3D_ASYNC_V2_PTSZ = 425, "cuMemcpy3DAsync";
            CU_MEMCPY_3D_PEER_ASYNC = 321, "cuMemcpy3DPeerAsync";
            CU_MEMCPY_3D_PEER_ASYNC_PTSZ = 427, "cuMemcpy3DPeerAsync";
            CU_MEMCPY_HTOA_ASYNC = 66, "cuMemcpyHtoAAsync";
            CU_MEMCPY_HTOA_ASYNC_V2 = 293, "cuMemcpyHtoAAsync";
            CU_MEMCPY_HTOA_ASYNC_V2_PTSZ = 419, "cuMemcpyHtoAAsync";
            CU_MEMCPY_ATOH_ASYNC = 67, "cuMemcpyAtoHAsync";
            CU_MEMCPY_ATOH_ASYNC_V2 = 283, "cuMemcpyAtoHAsync";
            CU_MEMCPY_ATOH_ASYNC_V2_PTSZ = 420, "cuMemcpyAtoHAsync";
            CU_MEMCPY_BATCH_ASYNC = 776, "cuMemcpyBatchAsync";
            CU_MEMCPY_BATCH_ASYNC_PTSZ = 777, "cuMemcpyBatchAsync";
            CU_MEMCPY_BATCH_ASYNC_V2 = 796, "cuMemcpyBatchAsync";
            CU_MEMCPY_BATCH_ASYNC_V2_PTSZ = 797, "cuMemcpyBatchAsync";
            CU_MEMCPY_3D_BATCH_ASYNC = 778, "cuMemcpy3DBatchAsync";
            CU_MEMCPY_3D_BATCH_ASYNC_PTSZ = 779, "cuMemcpy3DBatchAsync";
            CU_MEMCPY_3D_BATCH_ASYNC_V2 = 798, "cuMemcpy3DBatchAsync";
            CU_MEMCPY_3D_BATCH_ASYNC_V2_PTSZ = 799, "cuMemcpy3DBatchAsync";
            CU_MEMCPY_WITH_ATTRIBUTES_ASYNC = 837, "cuMemcpyWithAttributesAsync";
            CU_MEMCPY_WITH_ATTRIBUTES_ASYNC_PTSZ = 838, "cuMemcpyWithAttributesAsync";
            CU_MEMCPY_3D_WITH_ATTRIBUTES_ASYNC = 839, "cuMemcpy3DWithAttributesAsync";
            CU_MEMCPY_3D_WITH_ATTRIBUTES_ASYNC_PTSZ = 840, "cuMemcpy3DWithAttributesAsync";
            CU_MEM_PREFETCH_ASYNC = 467, "cuMemPrefetchAsync";
            CU_MEM_PREFETCH_ASYNC_PTSZ = 468, "cuMemPrefetchAsync";
            CU_MEM_PREFETCH_ASYNC_V2 = 716, "cuMemPrefetchAsync";
            CU_MEM_PREFETCH_ASYNC_V2_PTSZ = 717, "cuMemPrefetchAsync";
            CU_MEM_PREFETCH_BATCH_ASYNC = 784, "cuMemPrefetchBatchAsync";
            CU_MEM_PREFETCH_BATCH_ASYNC_PTSZ = 785, "cuMemPrefetchBatchAsync";
        }
        MEMSET {
            CU_MEMSET_D8 = 71, "cuMemsetD8";
            CU_MEMSET_D8_V2 = 249, "cuMemsetD8";
            CU_MEMSET_D8_V2_PTDS = 411, "cuMemsetD8";
            CU_MEMSET_D16 = 73, "cuMemsetD16";
            CU_MEMSET_D16_V2 = 250, "cuMemsetD16";
            CU_MEMSET_D16_V2_PTDS = 412, "cuMemsetD16";
            CU_MEMSET_D32 = 75, "cuMemsetD32";
            CU_MEMSET_D32_V2 = 251, "cuMemsetD32";
            CU_MEMSET_D32_V2_PTDS = 413, "cuMemsetD32";
            CU_MEMSET_D2D8 = 77, "cuMemsetD2D8";
            CU_MEMSET_D2D8_V2 = 252, "cuMemsetD2D8";
            CU_MEMSET_D2D8_V2_PTDS = 414, "cuMemsetD2D8";
            CU_MEMSET_D2D16 = 79, "cuMemsetD2D16";
            CU_MEMSET_D2D16_V2 = 253, "cuMemsetD2D16";
            CU_MEMSET_D2D16_V2_PTDS = 415, "cuMemsetD2D16";
            CU_MEMSET_D2D32 = 81, "cuMemsetD2D32";
            CU_MEMSET_D2D32_V2 = 254, "cuMemsetD2D32";
            CU_MEMSET_D2D32_V2_PTDS = 416, "cuMemsetD2D32";
        }
        MEMSET_ASYNC {
            CU_MEMSET_D8_ASYNC = 216, "cuMemsetD8Async";
            CU_MEMSET_D8_ASYNC_PTSZ = 428, "cuMemsetD8Async";
            CU_MEMSET_D16_ASYNC = 218, "cuMemsetD16Async";
            CU_MEMSET_D16_ASYNC_PTSZ = 429, "cuMemsetD16Async";
            CU_MEMSET_D32_ASYNC = 220, "cuMemsetD32Async";
            CU_MEMSET_D32_ASYNC_PTSZ = 430, "cuMemsetD32Async";
            CU_MEMSET_D2D8_ASYNC = 222, "cuMemsetD2D8Async";
            CU_MEMSET_D2D8_ASYNC_PTSZ = 431, "cuMemsetD2D8Async";
            CU_MEMSET_D2D16_ASYNC = 224, "cuMemsetD2D16Async";
            CU_MEMSET_D2D16_ASYNC_PTSZ = 432, "cuMemsetD2D16Async";
            CU_MEMSET_D2D32_ASYNC = 226, "cuMemsetD2D32Async";
            CU_MEMSET_D2D32_ASYNC_PTSZ = 433, "cuMemsetD2D32Async";
        }
        SYNCHRONIZE {
            CU_STREAM_SYNCHRONIZE = 126, "cuStreamSynchronize";
            CU_STREAM_SYNCHRONIZE_PTSZ = 440, "cuStreamSynchronize";
            CU_CTX_SYNCHRONIZE = 17, "cuCtxSynchronize";
            CU_CTX_SYNCHRONIZE_V2 = 800, "cuCtxSynchronize";
            CU_EVENT_SYNCHRONIZE = 121, "cuEventSynchronize";
        }
        QUERY {
            CU_STREAM_QUERY = 125, "cuStreamQuery";
            CU_STREAM_QUERY_PTSZ = 439, "cuStreamQuery";
            CU_EVENT_QUERY = 120, "cuEventQuery";
        }
        EVENT {
            CU_EVENT_RECORD = 119, "cuEventRecord";
            CU_EVENT_RECORD_PTSZ = 441, "cuEventRecord";
            CU_EVENT_RECORD_WITH_FLAGS = 587, "cuEventRecordWithFlags";
            CU_EVENT_RECORD_WITH_FLAGS_PTSZ = 588, "cuEventRecordWithFlags";
            CU_STREAM_WAIT_EVENT = 295, "cuStreamWaitEvent";
            CU_STREAM_WAIT_EVENT_PTSZ = 436, "cuStreamWaitEvent";
        }
        STREAM_WAIT {
            CU_STREAM_WAIT_VALUE32 = 458, "cuStreamWaitValue32";
            CU_STREAM_WAIT_VALUE32_PTSZ = 459, "cuStreamWaitValue32";
            CU_STREAM_WAIT_VALUE32_V2 = 659, "cuStreamWaitValue32";
            CU_STREAM_WAIT_VALUE32_V2_PTSZ = 660, "cuStreamWaitValue32";
            CU_STREAM_WAIT_VALUE64 = 473, "cuStreamWaitValue64";
            CU_STREAM_WAIT_VALUE64_PTSZ = 474, "cuStreamWaitValue64";
            CU_STREAM_WAIT_VALUE64_V2 = 661, "cuStreamWaitValue64";
            CU_STREAM_WAIT_VALUE64_V2_PTSZ = 662, "cuStreamWaitValue64";
        }
        ALLOCATE {
            CU_MEM_ALLOC = 29, "cuMemAlloc";
            CU_MEM_ALLOC_V2 = 243, "cuMemAlloc";
            CU_MEM_ALLOC_PITCH = 31, "cuMemAllocPitch";
            CU_MEM_ALLOC_PITCH_V2 = 244, "cuMemAllocPitch";
            CU_MEM_ALLOC_MANAGED = 371, "cuMemAllocManaged";
            CU_MEM_FREE = 33, "cuMemFree";
            CU_MEM_FREE_V2 = 245, "cuMemFree";
        }
        ALLOCATE_HOST {
            CU_MEM_ALLOC_HOST = 37, "cuMemAllocHost";
            CU_MEM_ALLOC_HOST_V2 = 294, "cuMemAllocHost";
            CU_MEM_HOST_ALLOC = 39, "cuMemHostAlloc";
            CU_MEM_FREE_HOST = 38, "cuMemFreeHost";
            CU_MEM_HOST_REGISTER = 301, "cuMemHostRegister";
            CU_MEM_HOST_REGISTER_V2 = 379, "cuMemHostRegister";
            CU_MEM_HOST_UNREGISTER = 302, "cuMemHostUnregister";
        }
        ALLOCATE_ASYNC {
            CU_MEM_ALLOC_ASYNC = 598, "cuMemAllocAsync";
            CU_MEM_ALLOC_ASYNC_PTSZ = 599, "cuMemAllocAsync";
            CU_MEM_ALLOC_FROM_POOL_ASYNC = 611, "cuMemAllocFromPoolAsync";
            CU_MEM_ALLOC_FROM_POOL_ASYNC_PTSZ = 612, "cuMemAllocFromPoolAsync";
            CU_MEM_FREE_ASYNC = 600, "cuMemFreeAsync";
            CU_MEM_FREE_ASYNC_PTSZ = 601, "cuMemFreeAsync";
        }
        VIRTUAL_MEMORY {
            CU_MEM_ADDRESS_RESERVE = 547, "cuMemAddressReserve";
            CU_MEM_ADDRESS_FREE = 548, "cuMemAddressFree";
            CU_MEM_CREATE = 549, "cuMemCreate";
            CU_MEM_RELEASE = 550, "cuMemRelease";
            CU_MEM_MAP = 551, "cuMemMap";
            CU_MEM_UNMAP = 552, "cuMemUnmap";
            CU_MEM_SET_ACCESS = 553, "cuMemSetAccess";
        }
        PROFILER {
            CU_PROFILER_START = 308, "cuProfilerStart";
            CU_PROFILER_STOP = 309, "cuProfilerStop";
        }
        MODULE {
            CU_MODULE_LOAD = 18, "cuModuleLoad";
            CU_MODULE_LOAD_DATA = 19, "cuModuleLoadData";
            CU_MODULE_LOAD_DATA_EX = 20, "cuModuleLoadDataEx";
            CU_MODULE_LOAD_FAT_BINARY = 21, "cuModuleLoadFatBinary";
            CU_MODULE_UNLOAD = 22, "cuModuleUnload";
            CU_LIBRARY_LOAD_DATA = 678, "cuLibraryLoadData";
            CU_LIBRARY_LOAD_FROM_FILE = 679, "cuLibraryLoadFromFile";
            CU_LIBRARY_UNLOAD = 680, "cuLibraryUnload";
        }
        INIT {
            CU_INIT = 1, "cuInit";
        }
    }
}
