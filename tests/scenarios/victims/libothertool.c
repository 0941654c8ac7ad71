// SPDX-License-Identifier: Apache-2.0
// link: -Wl,--no-as-needed -lcupti
// Another tool's library, as CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH name it: says at exit
// what it was given. With OTHERTOOL=cupti it records kernels itself, as a client of CUPTI that is
// linked to it.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuptiSubscribe(void **, void *, void *), cuptiActivityEnable(int), cuptiActivityFlushAll(uint32_t);
int cuptiActivityRegisterCallbacks(void *, void *), cuptiActivityGetNextRecord(uint8_t *, size_t, uint8_t **);

static int initialised, objects, pushes, kernels, records;

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    *size = 1 << 20;
    *buffer = aligned_alloc(8, *size);
    *most = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = NULL;
    while (valid && cuptiActivityGetNextRecord(buffer, valid, &record) == 0) {
        if (*(int *)record == 10) kernels++;
        else records++;
    }
    free(buffer);
}

static void called(void) {}

static void said(void) {
    if (getenv("OTHERTOOL")) cuptiActivityFlushAll(1);
    printf("tool: initialised %d, objects %d, pushes %d, kernels %d, other records %d\n", initialised, objects, pushes,
           kernels, records);
}

static void begin(void) {
    static int begun;
    if (!begun++) atexit(said);
}

int InitializeInjection(void) {
    void *subscriber = NULL;
    begin();
    initialised++;
    if (getenv("OTHERTOOL")) {
        cuptiSubscribe(&subscriber, called, NULL);
        cuptiActivityRegisterCallbacks(requested, completed);
        cuptiActivityEnable(10);
    }
    return 1;
}

static int push(const char *name) {
    (void)name;
    return pushes++;
}

typedef struct {
    size_t size;
    int (*module)(uint32_t, void ***, unsigned *);
} exported;

int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
    void **table;
    unsigned size;
    begin();
    objects++;
    if (!((const exported *)get(1))->module(1, &table, &size)) return 0;
    *(void **)table[9] = push;
    return 1;
}
