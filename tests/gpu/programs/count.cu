// SPDX-License-Identifier: Apache-2.0
// Counts its own launches: the truth that the trace is held against, and the memory a run has
// before and after them.
//
//   ping     a launch into an empty queue, then a synchronize: what the clock checks look at
//   bulk     empty kernels on four streams as fast as the host can, a synchronize every 10,000
//   pdl      programmatic dependent launches: kernels of one stream that overlap
//   graphs   replays of a graph with 100 kernel nodes: many kernels from one call
// Every kernel also adds one to a counter on the GPU, so the program knows what ran, not only what
// it asked for.
#include "native.h"

__global__ void tick(unsigned long long* ran) {
    if (threadIdx.x == 0) atomicAdd(ran, 1ULL);
}

__global__ void tick_dependent(unsigned long long* ran) {
    cudaTriggerProgrammaticLaunchCompletion();
    if (threadIdx.x == 0) atomicAdd(ran, 1ULL);
    cudaGridDependencySynchronize();
}

int main(int argc, char** argv) {
    const long pings = option(argc, argv, "--ping", 3000), bulk = option(argc, argv, "--bulk", 1000000);
    const long dependent = option(argc, argv, "--pdl", 20000), graphs = option(argc, argv, "--graphs", 50);
    const long pause_s = option(argc, argv, "--pause-s", 0);
    unsigned long long *ran, total = 0;
    long launches = 0, kernels = 0;  // launch calls made (captured ones too), kernels that must run
    cudaStream_t stream[4];
    CHECK(cudaMalloc(&ran, sizeof *ran));
    CHECK(cudaMemset(ran, 0, sizeof *ran));
    for (int i = 0; i < 4; i++) CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    const long rss_start = resident_kb();
    const long long free_start = gpu_free(), began = now_ns(CLOCK_MONOTONIC);

    for (int round = 0; round < (pause_s > 0 ? 2 : 1); round++) {
        if (round == 1) {
            struct timespec pause = {pause_s, 0};
            puts("pausing");
            fflush(stdout);
            nanosleep(&pause, NULL);
        }
        for (long i = 0; i < pings; i++, launches++, kernels++) {
            tick<<<1, 32, 0, stream[0]>>>(ran);
            CHECK(cudaStreamSynchronize(stream[0]));
        }
    }
    const long long bulk_began = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < bulk; i++, launches++, kernels++) {
        tick<<<1, 32, 0, stream[i & 3]>>>(ran);
        if (i % 10000 == 9999) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    const double bulk_s = (now_ns(CLOCK_MONOTONIC) - bulk_began) / 1e9;

    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = stream[1];
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (long i = 0; i < dependent; i++, launches++, kernels++) {
        CHECK(cudaLaunchKernelEx(&config, tick_dependent, ran));
        if (i % 10000 == 9999) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());

    if (graphs > 0) {
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        CHECK(cudaStreamBeginCapture(stream[2], cudaStreamCaptureModeGlobal));
        for (int i = 0; i < 100; i++, launches++) tick<<<1, 32, 0, stream[2]>>>(ran);
        CHECK(cudaStreamEndCapture(stream[2], &graph));
        CHECK(cudaGraphInstantiate(&ready, graph, 0));
        for (long i = 0; i < graphs; i++, kernels += 100) CHECK(cudaGraphLaunch(ready, stream[2]));
        CHECK(cudaDeviceSynchronize());
    }
    const double took_s = (now_ns(CLOCK_MONOTONIC) - began) / 1e9;
    const long rss_end = resident_kb();
    const long long free_end = gpu_free();
    CHECK(cudaMemcpy(&total, ran, sizeof total, cudaMemcpyDeviceToHost));
    printf("{\"program\": \"count\", \"launches\": %ld, \"kernels\": %ld, \"ran\": %llu, \"graph_launches\": %ld, \"pdl\": %ld, "
           "\"pings\": %ld, \"rss_start_kb\": %ld, \"rss_end_kb\": %ld, \"gpu_free_start\": %lld, \"gpu_free_end\": %lld, "
           "\"bulk_ns_per_launch\": %.1f, \"took_s\": %.3f}\n",
           launches, kernels, total, graphs, dependent, pings, rss_start, rss_end, free_start, free_end,
           bulk > 0 ? bulk_s * 1e9 / bulk : 0.0, took_s);
    return total == (unsigned long long)kernels ? 0 : 8;
}
