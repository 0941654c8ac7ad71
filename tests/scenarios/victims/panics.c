// SPDX-License-Identifier: Apache-2.0
// link: -rdynamic -lcudart -lcuda
// A program with a clock_gettime and a clock_nanosleep of its own; one of them fails, as no Linux
// lets it, for calls from libgapprobe.so on one thread and from one moment on. Rust's standard
// library panics then (Instant::now, thread::sleep): a real panic in the library as it is shipped.
//
// usage: panics now|sleep start|middle|end THREAD: which fails, from before cuInit, half-way, or
// the end of main on;
// THREAD is the thread's name (main, gapprobe-flush, gapprobe-exit; none: nothing fails). Unloads a
// module after every step. Prints "launched 400", then after all exit handlers "failed N": calls
// that failed.
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 40, KERNELS = 10 };
static volatile int armed;
static const char *which, *thread;
static long failed;

static int fails(const char *function, void *caller) {
    char name[16] = "main";
    Dl_info info;
    if (!armed || strcmp(function, which) || !dladdr(caller, &info) || !strstr(info.dli_fname, "libgapprobe")) return 0;
    if (syscall(SYS_gettid) != getpid()) prctl(PR_GET_NAME, name);
    if (strcmp(name, thread)) return 0;
    __sync_fetch_and_add(&failed, 1);
    return 1;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (fails("now", __builtin_return_address(0))) {
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_clock_gettime, clock, time);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
    if (fails("sleep", __builtin_return_address(0))) return EINVAL;
    return syscall(SYS_clock_nanosleep, clock, flags, time, left) ? errno : 0;
}

__attribute__((destructor)) static void at_the_very_end(void) { dprintf(1, "failed %ld\n", failed); }

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    which = argv[1], thread = argv[3];
    armed = !strcmp(argv[2], "start");
    CHECK(cuInit(0));
    CHECK(cudaDeviceSynchronize());
    for (int step = 0; step < STEPS; step++) {
        CUmodule module;
        CUfunction function;
        CHECK(cuModuleLoadData(&module, "image"));
        CHECK(cuModuleGetFunction(&function, module, "gemm:20"));
        for (int k = 0; k < KERNELS; k++) CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
        CHECK(cudaDeviceSynchronize());
        CHECK(cuModuleUnload(module));
        usleep(10000);
        if (step == STEPS / 2) armed |= !strcmp(argv[2], "middle");
    }
    void *last = kernel("at the end", 50000);  // still runs when main returns: the last flush has to wait
    launch(last, NULL);
    printf("launched %d\n", STEPS * KERNELS);
    fflush(stdout);
    armed = 1;
    return 0;
}
