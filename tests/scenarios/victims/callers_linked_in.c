// SPDX-License-Identifier: Apache-2.0
// link: -O2 -g0 -fomit-frame-pointer -fcf-protection=none -lcuda
// A program with CUDA's runtime linked into it, as nvcc does: the API's functions are the program's
// own (here they go on to the simulated libcudart, since the real static one does not run on the
// simulated driver). Functions as in callers.c.
//
// usage: callers_linked_in [ROUNDS]
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <unistd.h>

static int (*memset_there)(void *, int, size_t, cudaStream_t);
static int (*wait_there)(cudaStream_t);
static int (*malloc_there)(void **, size_t);

__attribute__((noinline)) static int __cudart42(cudaStream_t stream) {
    int code = wait_there(stream);
    __asm__ volatile("");
    return code;
}

__attribute__((noinline)) int cudaStreamSynchronize(cudaStream_t stream) {
    int code = __cudart42(stream);
    __asm__ volatile("");
    return code;
}

__attribute__((noinline)) int cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    int code = memset_there(at, value, bytes, stream);
    __asm__ volatile("");
    return code;
}

#define WAITS(n)                                                                  \
    __attribute__((noinline)) static void function_##n(void *memory) {            \
        CHECK(cudaMemsetAsync(memory, 0, n, NULL));                               \
        CHECK(cudaStreamSynchronize(NULL));                                       \
        __asm__ volatile("");                                                     \
    }
WAITS(1)
WAITS(2)

int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : 200;
    void *runtime = dlopen("libcudart.so", RTLD_NOW), *memory;
    if (!runtime) return 3;
    memset_there = (int (*)(void *, int, size_t, cudaStream_t))dlsym(runtime, "cudaMemsetAsync");
    wait_there = (int (*)(cudaStream_t))dlsym(runtime, "cudaStreamSynchronize");
    malloc_there = (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
    CHECK(malloc_there(&memory, 4096));
    for (long n = 0; n < rounds; n++) {
        (n % 2 ? function_1 : function_2)(memory);
        usleep(300);
    }
    printf("done\n");
    return 0;
}
