// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that profiles itself once through libstranger.so, with the same work before, meanwhile
// and after.
//
// usage: stranger_host PLUGIN HOW QUIET: HOW as in libstranger.c; QUIET 1 waits before the profile
// until all records are
// delivered, 0 begins it while a kernel runs. Prints the plugin's line and "launched N".
#include "sim.h"
#include <dlfcn.h>
#include <unistd.h>

enum { KERNELS = 20, STEPS = 50 };
static void *function;
static long launched;

static void work(void) {
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < KERNELS; k++, launched++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int quiet = atoi(argv[3]);
    int (*profile)(void (*)(void), int);
    void *plugin = dlopen(argv[1], RTLD_NOW), *longest = kernel("long", 400000);
    if (!plugin || !(profile = dlsym(plugin, "stranger_profile"))) return 83;
    function = kernel("gemm", 20);
    work();
    if (quiet) usleep(700000);
    else launch(longest, NULL), launched++;
    profile(work, atoi(argv[2]));
    usleep(700000);
    work();
    printf("launched %ld\n", launched);
    return 0;
}
