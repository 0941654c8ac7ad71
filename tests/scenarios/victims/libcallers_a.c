// SPDX-License-Identifier: Apache-2.0
// link: -O2 -fomit-frame-pointer -fcf-protection=none -lcudart -lcuda
// A plugin that calls CUDA: its function is number 1001 (see callers.c). libcallers_b.c is the same
// with another name, so that the loader puts one where the other was.
#include "sim.h"

#ifndef NUMBER
#define NUMBER 1001
#define FUNCTION function_1001
#endif

__attribute__((noinline)) static void FUNCTION(void *memory) {
    CHECK(cudaMemsetAsync(memory, 0, NUMBER, NULL));
    CHECK(cudaStreamSynchronize(NULL));
    __asm__ volatile("");
}

void entry(void *memory) {
    FUNCTION(memory);
    __asm__ volatile("");
}
