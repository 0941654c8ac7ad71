// SPDX-License-Identifier: Apache-2.0
// A training loop in miniature, for end-to-end tests: STEPS steps of KERNELS launches each.
//
// usage: loop STEPS KERNELS KERNEL_US [HOST_US] [SYNC_EVERY] [FLAGS]
//   HOST_US     host sleep between steps, microseconds (0)
//   SYNC_EVERY  cudaStreamSynchronize every n steps, 0 = only at the end (1)
//   FLAGS       letters: d launches through the driver API, g a CUDA graph a step, p a pageable 4
//               MB copy a step, a cudaMalloc and cudaFree a step, r cudaProfilerStart/Stop around
//               the second half, s a stream of its own, n no final synchronize, q only cuInit, i
//               prints the time of each step, m prints the device memory in use at the end (what a
//               profiler adds shows there)
// Prints "launched N" at the end: the number of kernels the device was given.
#include "sim.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: loop STEPS KERNELS KERNEL_US [HOST_US] [SYNC_EVERY] [FLAGS]\n");
        return 2;
    }
    long steps = atol(argv[1]), kernels = atol(argv[2]);
    double us = atof(argv[3]);
    long host_us = argc > 4 ? atol(argv[4]) : 0, sync_every = argc > 5 ? atol(argv[5]) : 1;
    const char *flags = argc > 6 ? argv[6] : "";
    if (strchr(flags, 'q')) {
        CHECK(cuInit(0));
        return 0;
    }
    enum { NAMES = 4 };
    static const char *const names[NAMES] = {"gemm_forward", "gelu", "layer_norm", "gemm_backward"};
    void *functions[NAMES], *device = NULL, *host = NULL;
    cudaStream_t stream = NULL;
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    for (int n = 0; n < NAMES; n++) functions[n] = kernel(names[n], us);
    CHECK(cudaSetDevice(0));
    if (strchr(flags, 's') || strchr(flags, 'g')) CHECK(cudaStreamCreateWithFlags(&stream, 1));
    if (strchr(flags, 'p')) {
        CHECK(cudaMalloc(&device, 4 << 20));
        host = calloc(1, 4 << 20);
    }
    if (strchr(flags, 'g')) {
        CHECK(cudaStreamBeginCapture(stream, 0));
        for (long k = 0; k < kernels; k++) launch(functions[k % NAMES], stream);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    }
    for (long step = 0; step < steps; step++) {
        double from = now_ms();
        if (strchr(flags, 'r') && step == steps / 2) CHECK(cudaProfilerStart());
        if (host_us) usleep(host_us);
        if (strchr(flags, 'p')) CHECK(cudaMemcpyAsync(device, host, 4 << 20, 1, stream));
        void *scratch = NULL;
        if (strchr(flags, 'a')) CHECK(cudaMalloc(&scratch, 1 << 20));
        if (exec) {
            CHECK(cudaGraphLaunch(exec, stream));
        } else if (strchr(flags, 'd')) {
            for (long k = 0; k < kernels; k++)
                CHECK(cuLaunchKernel(functions[k % NAMES], 264, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
        } else {
            for (long k = 0; k < kernels; k++) launch(functions[k % NAMES], stream);
        }
        if (strchr(flags, 'a')) CHECK(cudaFree(scratch));
        if (sync_every && (step + 1) % sync_every == 0) CHECK(cudaStreamSynchronize(stream));
        if (strchr(flags, 'i')) printf("step %ld %.3f ms\n", step, now_ms() - from);
    }
    if (strchr(flags, 'r')) CHECK(cudaProfilerStop());
    if (!strchr(flags, 'n')) CHECK(cudaDeviceSynchronize());
    if (strchr(flags, 'm')) {
        size_t free_bytes, total;
        CHECK(cudaMemGetInfo(&free_bytes, &total));
        printf("device memory %zu bytes\n", total - free_bytes);
    }
    printf("launched %ld\n", steps * kernels);
    return 0;
}
