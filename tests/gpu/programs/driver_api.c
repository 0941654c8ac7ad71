/* SPDX-License-Identifier: Apache-2.0
 *
 * A program on the driver API alone (libcuda opened at run time, no CUDA runtime, no libcupti of
 * its own), so that gapprobe can be given any CUPTI release through GAPPROBE_CUPTI. It does one of
 * everything that leaves a record: launches on two streams, copies of each direction from pageable
 * and pinned memory, memsets, events and waits, every kind of synchronize, a graph, and a module
 * that is unloaded after its kernels ran. It prints what it did. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
/* The entry with the version suffix that cuda.h maps the name to. */
#define DRIVER(f) ((__typeof__(&f))driver(TEXT(f)))
#define CHECK(call)                                                              \
    do {                                                                         \
        CUresult e_ = (call);                                                    \
        if (e_ != CUDA_SUCCESS) {                                                \
            fprintf(stderr, "driver_api.c:%d: %s: %d\n", __LINE__, #call, (int)e_); \
            exit(9);                                                             \
        }                                                                        \
    } while (0)

static const char* const PTX =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry driver_tick(.param .u64 where)\n{\n"
    " .reg .b64 %rd<3>; .reg .b32 %r<3>;\n"
    " ld.param.u64 %rd1, [where];\n cvta.to.global.u64 %rd2, %rd1;\n"
    " atom.global.add.u32 %r1, [%rd2], 1;\n ret;\n}\n";

static void* library;
static void* driver(const char* name) {
    void* f = dlsym(library, name);
    if (!f) {
        fprintf(stderr, "driver_api: libcuda has no %s\n", name);
        exit(9);
    }
    return f;
}

int main(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "driver_api: %s\n", dlerror());
        return 9;
    }
    const int steps = 100, each = 8;
    const size_t bytes = 1 << 20;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction tick;
    CUstream stream[2];
    CUevent event;
    CUdeviceptr counter, buffer, other;
    CUgraph graph;
    CUgraphExec ready;
    void* pinned;
    char* pageable = malloc(bytes);
    unsigned ran = 0;
    long kernels = 0, copies = 0, memsets = 0;
    memset(pageable, 1, bytes);
    CHECK(DRIVER(cuInit)(0));
    CHECK(DRIVER(cuDeviceGet)(&device, 0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuModuleLoadData)(&module, PTX));
    CHECK(DRIVER(cuModuleGetFunction)(&tick, module, "driver_tick"));
    CHECK(DRIVER(cuMemAlloc)(&counter, 4));
    CHECK(DRIVER(cuMemAlloc)(&buffer, bytes));
    CHECK(DRIVER(cuMemAlloc)(&other, bytes));
    CHECK(DRIVER(cuMemAllocHost)(&pinned, bytes));
    CHECK(DRIVER(cuMemsetD8Async)(counter, 0, 4, NULL));
    memsets++;
    for (int i = 0; i < 2; i++) CHECK(DRIVER(cuStreamCreate)(&stream[i], CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    void* arguments[] = {&counter};
    __typeof__(&cuLaunchKernel) launch = DRIVER(cuLaunchKernel);

    CHECK(DRIVER(cuStreamBeginCapture)(stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 10; i++) CHECK(launch(tick, 1, 1, 1, 32, 1, 1, 0, stream[0], arguments, NULL));
    CHECK(DRIVER(cuStreamEndCapture)(stream[0], &graph));
    CHECK(DRIVER(cuGraphInstantiateWithFlags)(&ready, graph, 0));

    for (int step = 0; step < steps; step++) {
        CHECK(DRIVER(cuMemcpyHtoDAsync)(buffer, pinned, bytes, stream[1]));
        CHECK(DRIVER(cuEventRecord)(event, stream[1]));
        CHECK(DRIVER(cuStreamWaitEvent)(stream[0], event, 0));
        for (int i = 0; i < each; i++, kernels++)
            CHECK(launch(tick, 1, 1, 1, 32, 1, 1, 0, stream[i & 1], arguments, NULL));
        CHECK(DRIVER(cuGraphLaunch)(ready, stream[0]));
        kernels += 10;
        CHECK(DRIVER(cuMemcpyDtoDAsync)(other, buffer, bytes, stream[0]));
        CHECK(DRIVER(cuMemsetD8Async)(buffer, 7, bytes, stream[1]));
        CHECK(DRIVER(cuMemcpyDtoHAsync)(pinned, other, 64, stream[0]));
        copies += 3;
        memsets++;
        if (step % 4 == 0) CHECK(DRIVER(cuStreamSynchronize)(stream[0]));
        if (step % 4 == 1) CHECK(DRIVER(cuCtxSynchronize)());
        if (step % 4 == 2) {
            CHECK(DRIVER(cuEventRecord)(event, stream[0]));
            CHECK(DRIVER(cuEventSynchronize)(event));
        }
        if (step % 10 == 9) {
            CHECK(DRIVER(cuMemcpyHtoD)(other, pageable, bytes));
            CHECK(DRIVER(cuMemcpyDtoH)(pageable, other, bytes));
            copies += 2;
        }
    }
    CHECK(DRIVER(cuCtxSynchronize)());
    CHECK(DRIVER(cuMemcpyDtoH)(&ran, counter, 4));
    copies++;
    CHECK(DRIVER(cuGraphExecDestroy)(ready));
    CHECK(DRIVER(cuGraphDestroy)(graph));
    CHECK(DRIVER(cuModuleUnload)(module));
    CHECK(DRIVER(cuMemFree)(buffer));
    CHECK(DRIVER(cuMemFreeHost)(pinned));
    printf("{\"program\": \"driver_api\", \"kernels\": %ld, \"ran\": %u, \"copies\": %ld, \"memsets\": %ld, \"true_steps\": %d}\n",
           kernels, ran / 32, copies, memsets, steps);
    return ran == (unsigned)kernels * 32 ? 0 : 8;
}
