// SPDX-License-Identifier: Apache-2.0
// Steps of one form for some seconds, marked: what windows are tried on without Python's start.
//
//   eager    50 kernels
//   item     50 kernels, a synchronize after every tenth
//   graph    a replay of a graph with 100 kernel nodes, and one kernel
//   soak     50 kernels, a copy, and in every eighth step the graph, until --launches were made;
//            memory, threads and descriptors when a tenth is done and at the end
// Prints the steps.
#include <dirent.h>
#include <dlfcn.h>

#include "native.h"

__global__ void work(long clocks) {
    const long long end = clock64() + clocks;
    while (clock64() < end) {
    }
}

static int entries(const char* folder) {
    int n = 0;
    DIR* open = opendir(folder);
    while (open && readdir(open)) n++;
    if (open) closedir(open);
    return n;
}

static void print_resources(const char* when) {
    printf("\"rss_%s_kb\": %ld, \"gpu_free_%s\": %lld, \"threads_%s\": %d, \"descriptors_%s\": %d, ", when, resident_kb(), when, gpu_free(), when,
           entries("/proc/self/task"), when, entries("/proc/self/fd"));
}

int main(int argc, char** argv) {
    const long ms = option(argc, argv, "--ms", 6000), clocks = option(argc, argv, "--clocks", 20000);
    const long most = option(argc, argv, "--launches", 0);
    const char form = argc > 1 ? argv[1][0] : 'e';
    const int item = form == 'i', graph = form == 'g', soak = form == 's';
    void (*mark)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gapprobe_step");
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < 100; k++) work<<<1, 32, 0, stream>>>(clocks);
    CHECK(cudaStreamEndCapture(stream, &captured));
    CHECK(cudaGraphInstantiateWithFlags(&ready, captured, 0));
    char *host, *device;
    CHECK(cudaMallocHost((void**)&host, 4096));
    CHECK(cudaMalloc((void**)&device, 4096));
    const long began = now_ns(CLOCK_MONOTONIC);
    long steps = 0, launches = 0, is_tenth = 0;
    printf("{");
    for (; soak ? launches < most : now_ns(CLOCK_MONOTONIC) - began < ms * 1000000; steps++) {
        if (mark) mark();
        if (soak) CHECK(cudaMemcpyAsync(device, host, 4096, cudaMemcpyHostToDevice, stream));
        if (graph || soak && steps % 8 == 0) CHECK(cudaGraphLaunch(ready, stream));
        if (soak && !is_tenth && launches > most / 10) {
            is_tenth = 1;
            print_resources("start");
        }
        launches += 50;
        for (int k = 0; k < (graph ? 1 : 50); k++) {
            work<<<1, 32, 0, stream>>>(clocks);
            if (item && k % 10 == 9) CHECK(cudaStreamSynchronize(stream));
        }
        if (steps % 4 == 3) CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    if (soak) print_resources("end");
    printf("\"true_steps\": %ld, \"launches\": %ld, \"ran_s\": %.1f}\n", steps, launches, (now_ns(CLOCK_MONOTONIC) - began) / 1e9);
    return 0;
}
