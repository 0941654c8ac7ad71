// SPDX-License-Identifier: Apache-2.0
// Loads a module, launches its kernels, unloads it, again and again: kernel-name pointers that die
// (driver API).
//
// usage: modules ROUNDS KERNELS: each round's kernels are named round<N>_kernel. Prints "launched
// N".
#include "sim.h"

int cuDeviceGet(int *, int);
int cuCtxCreate_v2(CUcontext *, unsigned, int);
int cuCtxSynchronize(void);

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 5, kernels = argc > 2 ? atol(argv[2]) : 20;
    CUcontext context;
    int device;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate_v2(&context, 0, device));
    for (long round = 0; round < rounds; round++) {
        CUmodule module;
        CUfunction function;
        char name[64];
        snprintf(name, sizeof name, "round%ld_kernel:%d", round, 20);
        CHECK(cuModuleLoadData(&module, "image"));
        CHECK(cuModuleGetFunction(&function, module, name));
        for (long k = 0; k < kernels; k++) CHECK(cuLaunchKernel(function, 64, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL));
        CHECK(cuCtxSynchronize());
        CHECK(cuModuleUnload(module));
    }
    printf("launched %ld\n", rounds * kernels);
    return 0;
}
