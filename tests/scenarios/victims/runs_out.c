// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// Training that keeps 2 GB of the device in each step, until there is no more.
//
// usage: runs_out WAY: what it does when an allocation fails
//   exit    says so and ends with 1
//   retry   frees what it can, tries again, then as exit
//   goes_on frees what it kept and goes on for as many steps, ends with 0
// Prints "launched N" as it ends.
#include "gapprobe.h"
#include "sim.h"
#include <string.h>
#include <unistd.h>

enum { KERNELS = 8, MOST = 200 };

static void *kept[MOST];
static long held, launched;

static void forward(void *work) {
    for (int n = 0; n < KERNELS; n++) launch(work, NULL);
    launched += KERNELS;
    CHECK(cudaStreamSynchronize(NULL));
}

// Noinline: the function whose call failed is one that a reader finds.
__attribute__((noinline)) static int keep_activations(void) {
    int result = cudaMalloc(&kept[held], 2l << 30);
    held += result == 0;
    return result;
}

static void end(int result) {
    fprintf(stderr, "runs_out: out of memory (%d)\n", result);
    printf("launched %ld\n", launched);
    exit(1);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "exit";
    void *work = kernel("gemm", 50), *weights, *cached;
    long more = MOST;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&weights, 1l << 20));
    CHECK(cudaMalloc(&cached, 1l << 20)); // too little to help
    for (long step = 0; step < more; step++) {
        gapprobe_step();
        forward(work);
        usleep(1000);
        int result = keep_activations();
        if (result && !strcmp(way, "goes_on")) {
            more = step * 2;
            while (held) CHECK(cudaFree(kept[--held]));
            continue;
        }
        if (result && !strcmp(way, "retry")) {
            CHECK(cudaFree(cached));
            result = keep_activations();
        }
        if (result) end(result);
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}
