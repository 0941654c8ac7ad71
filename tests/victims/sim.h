// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's C API that the victim programs use, declared by hand: no CUDA toolkit is
// needed to build them.
#ifndef GAPPROBE_VICTIMS_SIM_H
#define GAPPROBE_VICTIMS_SIM_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { unsigned x, y, z; } dim3;
typedef void *cudaStream_t, *cudaEvent_t, *cudaGraph_t, *cudaGraphExec_t;
typedef void *CUmodule, *CUfunction, *CUcontext;

int cudaSetDevice(int);
int cudaGetDeviceCount(int *);
int cudaDeviceSynchronize(void);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocHost(void **, size_t);
int cudaFreeHost(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemsetAsync(void *, int, size_t, cudaStream_t);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
int cudaStreamCreate(cudaStream_t *);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
int cudaEventCreate(cudaEvent_t *);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventSynchronize(cudaEvent_t);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
int cudaGraphInstantiateWithFlags(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
int cudaProfilerStart(void);
int cudaProfilerStop(void);
int cuInit(unsigned);
int cuModuleLoadData(CUmodule *, const void *);
int cuModuleUnload(CUmodule);
int cuModuleGetFunction(CUfunction *, CUmodule, const char *);
int cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cudaStream_t,
                   void **, void **);

// Private to the simulated driver: see tests/sim/README.md.
int simRegisterKernel(const char *name, uint64_t duration_ns);
size_t simTimeCallbacks(uint32_t *ns, size_t room);

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        int code_ = (call);                                                                           \
        if (code_ != 0) {                                                                             \
            fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, code_);                    \
            exit(90);                                                                                 \
        }                                                                                             \
    } while (0)

// One kernel of `us` microseconds; usable with cudaLaunchKernel and cuLaunchKernel.
static inline void *kernel(const char *name, double us) {
    return (void *)(intptr_t)simRegisterKernel(name, (uint64_t)(us * 1000));
}

static inline void launch(void *function, cudaStream_t stream) {
    dim3 grid = {264, 1, 1}, block = {256, 1, 1};
    CHECK(cudaLaunchKernel(function, grid, block, NULL, 0, stream));
}
#endif
