// SPDX-License-Identifier: Apache-2.0
// A library that profiles with CUPTI as XLA's plugin does: finds every function by dlsym, subscribes, registers buffers
// of its own, frees every buffer it is handed (so a buffer of anybody else's kills the process), unsubscribes, and tears
// CUPTI down where it is told to.
#define _GNU_SOURCE
#include "own_buffers.h"
#include <dlfcn.h>

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
