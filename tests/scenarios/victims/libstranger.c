// SPDX-License-Identifier: Apache-2.0
// A library that profiles with CUPTI, finds every function by dlsym, and is on no list of
// gapprobe's.
#include "sim.h"
#include <dlfcn.h>
#include <string.h>

typedef int (*any)();
enum { MOST = 4096 };
static any next;
static long kernels, others, foreign;
static uint8_t *lent[MOST];
static int lends, frees_all;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 1 << 20;
    *buffer = aligned_alloc(8, *size);
    memset(*buffer, 0, *size);
    *records = 0;
    if (lends < MOST) lent[lends++] = *buffer;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    int own = 0;
    for (int n = 0; n < lends; n++) own |= lent[n] == buffer;
    while (valid && next(buffer, valid, &record) == 0) {
        if (*(int *)record == 10) kernels++;
        else others++;
    }
    if (!own) foreign++;
    if (own || frees_all) free(buffer);
}

static void called(void) {}

// Profiles `work` and prints what was seen. HOW 0: gives up where the subscription is taken; 1:
// goes on without it and keeps its hands off buffers that are not its own; 2: goes on and frees
// every buffer it is handed.
int stranger_profile(void (*work)(void), int how) {
    void *cupti = dlopen("libcupti.so", RTLD_LAZY), *subscriber = NULL;
    any subscribe = (any)dlsym(cupti, "cuptiSubscribe"), unsubscribe = (any)dlsym(cupti, "cuptiUnsubscribe"),
        enable = (any)dlsym(cupti, "cuptiActivityEnable"), disable = (any)dlsym(cupti, "cuptiActivityDisable"),
        flush = (any)dlsym(cupti, "cuptiActivityFlushAll"),
        register_buffers = (any)dlsym(cupti, "cuptiActivityRegisterCallbacks");
    next = (any)dlsym(cupti, "cuptiActivityGetNextRecord");
    kernels = others = foreign = 0;
    frees_all = how == 2;
    int subscribed = subscribe(&subscriber, called, NULL);
    if (subscribed != 0 && how == 0) {
        work();
        printf("stranger: subscribe %d, gave up\n", subscribed);
        return 0;
    }
    register_buffers(requested, completed);
    enable(10);
    work();
    disable(10);
    flush(1);
    if (subscribed == 0) unsubscribe(subscriber);
    printf("stranger: subscribe %d, kernels %ld, others %ld, buffers of somebody else %ld\n", subscribed, kernels, others,
           foreign);
    return 0;
}
