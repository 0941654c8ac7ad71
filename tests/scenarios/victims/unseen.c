// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A compiled training loop: of a step's launches some go through the runtime's library, the others
// through the driver, as Triton's do, where nobody sees them but CUPTI.
//
// usage: unseen STEPS SEEN UNSEEN [t | l | u]: launches of each kind a step; t: another thread
// makes unseen ones alone all the while, l: from the middle on; u: steps are not marked
// Prints "launched N".
#include "gapprobe.h"
#include "sim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static volatile int over;
static void *function;
static long launched;

static int (*cu_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cudaStream_t, void **, void **);

static void by_driver(void) {
    CHECK(cu_launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    __sync_fetch_and_add(&launched, 1);
}

static void *alone(void *unused) {
    CHECK(cudaSetDevice(0));
    while (!over) {
        by_driver();
        usleep(200);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    long steps = atol(argv[1]), seen = atol(argv[2]), unseen = atol(argv[3]);
    int has_thread = argc > 4 && (!strcmp(argv[4], "t") || !strcmp(argv[4], "l")), late = has_thread && !strcmp(argv[4], "l");
    int marked = argc < 5 || strcmp(argv[4], "u");
    pthread_t thread;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(NULL));
    function = kernel("node", 5);
    cu_launch = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
    if (seen) launch(function, NULL);
    launched += seen > 0;
    if (has_thread && !late) pthread_create(&thread, NULL, alone, NULL);
    for (long step = 0; step < steps; step++) {
        if (late && step == steps / 2) pthread_create(&thread, NULL, alone, NULL);
        if (marked) gp_step();
        for (long n = 0; n < seen; n++) launch(function, NULL);
        launched += seen;
        for (long n = 0; n < unseen; n++) by_driver();
        usleep(300);
        if (step % 8 == 7) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());
    over = 1;
    if (has_thread) pthread_join(thread, NULL);
    printf("launched %ld\n", launched);
    return 0;
}
