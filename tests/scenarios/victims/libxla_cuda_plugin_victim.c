// SPDX-License-Identifier: Apache-2.0
// A library that profiles with CUPTI as XLA's plugin does: finds every function by dlsym, subscribes, registers buffers
// of its own, frees every buffer it is handed (so a buffer of anybody else's kills the process), unsubscribes, and tears
// CUPTI down where it is told to.
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <string.h>

typedef int (*any)();
static any next;
static long kernels, others;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 1 << 20;
    *buffer = aligned_alloc(8, *size);
    memset(*buffer, 0, *size);
    *records = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    while (valid && next(buffer, valid, &record) == 0) {
        if (*(int *)record == 10) kernels++;
        else others++;
    }
    free(buffer);
}

static void called(void) {}

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
