// SPDX-License-Identifier: Apache-2.0
// Steps of one form for some seconds, marked: what windows are tried on without Python's start.
//
//   eager    50 kernels
//   item     50 kernels, a synchronize after every tenth
//   graph    a replay of a graph with 100 kernel nodes, and one kernel
// Prints the steps.
#include <dlfcn.h>

#include "native.h"

__global__ void work(long clocks) {
    const long long end = clock64() + clocks;
    while (clock64() < end) {
    }
}

int main(int argc, char** argv) {
    const long ms = option(argc, argv, "--ms", 6000), clocks = option(argc, argv, "--clocks", 20000);
    const int item = argc > 1 && argv[1][0] == 'i', graph = argc > 1 && argv[1][0] == 'g';
    void (*mark)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gapprobe_step");
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < 100; k++) work<<<1, 32, 0, stream>>>(clocks);
    CHECK(cudaStreamEndCapture(stream, &captured));
    CHECK(cudaGraphInstantiateWithFlags(&ready, captured, 0));
    const long began = now_ns(CLOCK_MONOTONIC);
    long steps = 0;
    for (; now_ns(CLOCK_MONOTONIC) - began < ms * 1000000; steps++) {
        if (mark) mark();
        if (graph) CHECK(cudaGraphLaunch(ready, stream));
        for (int k = 0; k < (graph ? 1 : 50); k++) {
            work<<<1, 32, 0, stream>>>(clocks);
            if (item && k % 10 == 9) CHECK(cudaStreamSynchronize(stream));
        }
        if (steps % 4 == 3) CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    printf("{\"true_steps\": %ld}\n", steps);
    return 0;
}
