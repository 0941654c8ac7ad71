// SPDX-License-Identifier: Apache-2.0
// What a library that profiles with CUPTI gives it: buffers of its own, and it frees every buffer
// that it is handed, so that a buffer of anybody else's kills the process. Counts kernels and other
// records.
#include "sim.h"
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
