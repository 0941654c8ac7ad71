// SPDX-License-Identifier: Apache-2.0
// The counter that a program writes itself: every tick kernel leaves the GPU time of its own end in
// pinned host memory, and a thread copies that to a file every 5 ms, so that it is there after
// SIGKILL. Loaded by exits.py through ctypes.
//
// File, 8-byte words: 0 ticks launched, 1 CLOCK_MONOTONIC minus GPU time (ns), 2 capacity, 3
// unused, then the end of tick i in GPU time (0: it has not ended).
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native.h"

static const long HEAD = 4;
static volatile uint64_t* pinned;   // written by the GPU
static volatile int64_t* kept;      // the file
static long capacity;

__device__ static unsigned long long gpu_time() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

extern "C" __global__ void spin_tick(volatile unsigned long long* slot, long long spin_ns) {
    const unsigned long long began = gpu_time();
    while ((long long)(gpu_time() - began) < spin_ns) {
    }
    *slot = gpu_time();
    __threadfence_system();
}

static void* copy(void*) {
    for (;;) {
        const long n = (long)kept[0];
        for (long i = n > 100000 ? n - 100000 : 0; i < n && i < capacity; i++) kept[HEAD + i] = (int64_t)pinned[i];
        usleep(5000);
    }
    return NULL;
}

extern "C" int tick_launch(void* stream, long long spin_ns) {
    const long i = (long)kept[0];
    if (i >= capacity) return -1;
    spin_tick<<<1, 1, 0, (cudaStream_t)stream>>>((volatile unsigned long long*)(pinned + i), spin_ns);
    kept[0] = i + 1;
    return (int)cudaGetLastError();
}

// Opens the file and finds the offset between the clocks (20 ticks). 0 or a CUDA or errno error.
extern "C" int tick_start(const char* path, long most) {
    capacity = most;
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    const size_t bytes = (HEAD + most) * 8;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return 1;
    void* map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return 2;
    kept = (volatile int64_t*)map;
    kept[2] = most;
    void* host = NULL;
    cudaError_t e = cudaHostAlloc(&host, most * 8, cudaHostAllocMapped);
    if (e != cudaSuccess) return (int)e;
    memset(host, 0, most * 8);
    pinned = (volatile uint64_t*)host;
    long long best = 1LL << 62;
    for (int i = 0; i < 20; i++) {
        const long long before = now_ns(CLOCK_MONOTONIC);
        if (tick_launch(NULL, 0) != 0 || (e = cudaDeviceSynchronize()) != cudaSuccess) return e ? (int)e : 3;
        const long long after = now_ns(CLOCK_MONOTONIC);
        if (after - before < best) {
            best = after - before;
            kept[1] = (before + after) / 2 - (int64_t)pinned[i];
        }
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t thread;
    const int failed = pthread_create(&thread, NULL, copy, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}
