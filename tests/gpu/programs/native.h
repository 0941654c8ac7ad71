/* SPDX-License-Identifier: Apache-2.0
 * What the CUDA C++ programs of gpu-check share: checked calls, clocks, memory figures, gapprobe's
 * C ABI if it is loaded. */
#pragma once
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        cudaError_t e_ = (call);                                                                      \
        if (e_ != cudaSuccess) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));    \
            exit(9);                                                                                  \
        }                                                                                             \
    } while (0)

static inline long long now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Pin the calling thread to one core; threads made before keep theirs. */
static inline void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (core >= 0 && sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity");
}

/* Resident host memory of this process, kB. */
static inline long resident_kb(void) {
    char line[256];
    long kb = -1;
    FILE* f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) break;
    if (f) fclose(f);
    return kb;
}

/* Free memory of the GPU, bytes. */
static inline long long gpu_free(void) {
    size_t free_b = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_b, &total));
    return (long long)free_b;
}

/* "--name value" of the command line, or the default. */
static inline long option(int argc, char** argv, const char* name, long otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return atol(argv[i + 1]);
    return otherwise;
}

typedef void (*switch_fn)(int);
static inline switch_fn gapprobe_switch(const char* name) { return (switch_fn)dlsym(RTLD_DEFAULT, name); }
