// SPDX-License-Identifier: Apache-2.0
// A library that profiles with CUPTI as XLA's plugin does: finds every function by dlsym,
// subscribes, registers buffers of its own, frees every buffer it is handed (so a buffer of anybody
// else's kills the process), unsubscribes, and tears CUPTI down where it is told to.
#define _GNU_SOURCE
#include "own_buffers.h"
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

// Found by the plugin alone: the program maps it into no global scope.
int xla_of_its_own(void) { return 0; }

// Profiles `work`; prints what was seen. Returns 0 where that is exactly `expected` kernels.
int xla_profile(void (*work)(void), long expected, int finalize) {
    void *cupti = dlopen("libcupti.so", RTLD_LAZY), *subscriber = NULL;
    any subscribe = (any)dlsym(cupti, "cuptiSubscribe"), unsubscribe = (any)dlsym(cupti, "cuptiUnsubscribe"),
        enable = (any)dlsym(cupti, "cuptiActivityEnable"), disable = (any)dlsym(cupti, "cuptiActivityDisable"),
        flush = (any)dlsym(cupti, "cuptiActivityFlushAll"), tear_down = (any)dlsym(cupti, "cuptiFinalize"),
        register_buffers = (any)dlsym(cupti, "cuptiActivityRegisterCallbacks");
    next = (any)dlsym(cupti, "cuptiActivityGetNextRecord");
    kernels = others = 0;
    if (dlsym(RTLD_DEFAULT, "xla_of_its_own") != (void *)xla_of_its_own || !dlsym(RTLD_NEXT, "printf")) {
        printf("xla: dlsym looks in another scope\n");
        return 1;
    }
    int subscribed = subscribe(&subscriber, called, NULL);
    register_buffers(requested, completed);
    enable(10);
    work();
    disable(10);
    flush(1);
    if (subscribed == 0) unsubscribe(subscriber);
    if (finalize) tear_down();
    printf("xla: subscribe %d, kernels %ld of %ld, others %ld\n", subscribed, kernels, expected, others);
    return subscribed != 0 || kernels != expected || others != 0;
}

// As XLA's own functions for the driver's: each asks for the real one when it is called first.
#define STUB(name, ...)                                                                               \
    static any real;                                                                                  \
    if (!real) real = (any)dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);                             \
    return real(__VA_ARGS__)

static int xla_init(void) { STUB("cuInit", 0); }
static int xla_retain(void **context) { STUB("cuDevicePrimaryCtxRetain", context, 0); }
static int xla_set_current(void *context) { STUB("cuCtxSetCurrent", context); }
static int xla_wait(void) { STUB("cuCtxSynchronize"); }
static int xla_register(const char *name, uint64_t ns) { STUB("simRegisterKernel", name, ns); }
static int xla_launch(void *function) {
    STUB("cuLaunchKernel", function, 1u, 1u, 1u, 128u, 1u, 1u, 0u, NULL, NULL, NULL);
}

static void *kernels_of_a_step[5];
enum { PROFILED = 200 };

static void profiled(void) {
    for (int n = 0; n < PROFILED; n++) xla_launch(kernels_of_a_step[n % 5]);
    xla_wait();
}

// A training loop of so many steps of five kernels; `profiles`: it profiles itself in the middle;
// `tries`: launches before the first step. How many launches there were; -1: something was wrong.
long xla_train(long steps, long host_us, int profiles, long tries) {
    void *context;
    long launched = tries;
    if (xla_init() || xla_retain(&context) || xla_set_current(context)) return -1;
    for (int n = 0; n < 5; n++) {
        char name[16];
        snprintf(name, sizeof name, "fusion_%d", n);
        kernels_of_a_step[n] = (void *)(intptr_t)xla_register(name, 20000);
    }
    for (long n = 0; n < tries; n++) {
        if (xla_launch(kernels_of_a_step[n % 3])) return -1;
    }
    for (long step = 0; step < steps; step++) {
        for (int n = 0; n < 5; n++) {
            if (xla_launch(kernels_of_a_step[n])) return -1;
        }
        launched += 5;
        usleep(host_us);
        if (step % 8 == 7) xla_wait();
        if (profiles && step == steps / 2) {
            if (xla_profile(profiled, PROFILED, 0)) return -1;
            launched += PROFILED;
        }
    }
    return xla_wait() ? -1 : launched;
}
