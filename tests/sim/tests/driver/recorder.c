// SPDX-License-Identifier: Apache-2.0
// A minimal CUPTI client, entered through CUDA_INJECTION64_PATH: the simulated driver's tests run
// victims under it.
//
// Writes one line per callback ("C domain cbid site corr shared ctx name"), per buffer ("B size
// valid") and per record ("R kind ...") to REC_OUT at exit. Environment: REC_CUPTI (library to
// dlopen), REC_KINDS "10,1", REC_CALLBACKS "2.211,1.307", REC_FILTER "2.211", REC_BUFFER bytes,
// REC_MOST records a buffer, REC_FLUSH plain|forced|none REC_CLOCK mono|real|tick (tick: monotonic
// / 4), REC_EXTERNAL id to push, REC_PER_THREAD 0|1.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef int (*any)();
static void *cupti;
static FILE *out;
static size_t buffer_bytes = 64 << 10, most;
static int requests;

static any find(const char *name) { return (any)dlsym(cupti, name); }
static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static uint64_t mono(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static uint64_t tick(void) { return mono() / 4; }

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    __atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED);
    *buffer = aligned_alloc(8, buffer_bytes);
    memset(*buffer, 0xaa, buffer_bytes);  // the library must zero it: attribute 5 is left at 0
    *size = buffer_bytes;
    *records = most;
}

#define AT(type, offset) (*(type *)(record + (offset)))

// The name as gapprobe reads it: a fault must be an error, not a crash.
static void read_name(uint64_t at, char *name, size_t size) {
    struct iovec mine = {name, size - 1}, theirs = {(void *)at, size - 1};
    memset(name, 0, size);
    if (!at) strcpy(name, "<null>");
    else if (process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0) < 0) strcpy(name, "<unloaded>");
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    flockfile(out);
    fprintf(out, "B %zu %zu\n", size, valid);
    uint8_t *record = NULL, *before = NULL;
    int code;
    while ((code = find("cuptiActivityGetNextRecord")(buffer, valid, &record)) == 0) {
        uint32_t kind = AT(uint32_t, 0);
        char name[64];
        if (before) fprintf(out, "S %zu\n", (size_t)(record - before));
        switch (kind) {
        case 3: case 10:
            read_name(AT(uint64_t, 104), name, sizeof name);
            fprintf(out, "R %u start=%lu end=%lu dev=%u ctx=%u stream=%u corr=%u node=%lu graph=%u grid=%u name=%s\n", kind,
                    AT(uint64_t, 16), AT(uint64_t, 24), AT(uint32_t, 40), AT(uint32_t, 44), AT(uint32_t, 48),
                    AT(uint32_t, 92), AT(uint64_t, 144), AT(uint32_t, 156), AT(uint32_t, 52), name);
            break;
        case 1:
            fprintf(out, "R 1 start=%lu end=%lu dev=%u ctx=%u stream=%u corr=%u copy=%u src=%u dst=%u flags=%u bytes=%lu\n",
                    AT(uint64_t, 16), AT(uint64_t, 24), AT(uint32_t, 32), AT(uint32_t, 36), AT(uint32_t, 40),
                    AT(uint32_t, 44), AT(uint8_t, 4), AT(uint8_t, 5), AT(uint8_t, 6), AT(uint8_t, 7), AT(uint64_t, 8));
            break;
        case 2:
            fprintf(out, "R 2 start=%lu end=%lu stream=%u corr=%u bytes=%lu\n", AT(uint64_t, 16), AT(uint64_t, 24),
                    AT(uint32_t, 40), AT(uint32_t, 44), AT(uint64_t, 8));
            break;
        case 4: case 5:
            fprintf(out, "R %u cbid=%u start=%lu end=%lu pid=%u tid=%u corr=%u ret=%u\n", kind, AT(uint32_t, 4),
                    AT(uint64_t, 8), AT(uint64_t, 16), AT(uint32_t, 24), AT(uint32_t, 28), AT(uint32_t, 32), AT(uint32_t, 36));
            break;
        case 22:
            fprintf(out, "R 22 start=%lu end=%lu corr=%u from=%u to=%u bytes=%lu\n", AT(uint64_t, 16), AT(uint64_t, 24),
                    AT(uint32_t, 60), AT(uint32_t, 44), AT(uint32_t, 52), AT(uint64_t, 8));
            break;
        case 38:
            fprintf(out, "R 38 type=%u start=%lu end=%lu corr=%u ctx=%u stream=%u event=%u\n", AT(uint32_t, 4),
                    AT(uint64_t, 8), AT(uint64_t, 16), AT(uint32_t, 24), AT(uint32_t, 28), AT(uint32_t, 32), AT(uint32_t, 36));
            break;
        case 39:
            fprintf(out, "R 39 kind=%u id=%lu corr=%u\n", AT(uint32_t, 4), AT(uint64_t, 8), AT(uint32_t, 16));
            break;
        case 51:
            fprintf(out, "R 51 start=%lu end=%lu corr=%u graph=%u stream=%u\n", AT(uint64_t, 8), AT(uint64_t, 16),
                    AT(uint32_t, 4), AT(uint32_t, 28), AT(uint32_t, 36));
            break;
        default: fprintf(out, "R %u\n", kind);
        }
        before = record;
    }
    if (code != 12) fprintf(out, "E GetNextRecord %d\n", code);
    size_t dropped = 0;
    find("cuptiActivityGetNumDroppedRecords")(context, stream, &dropped);
    if (dropped) fprintf(out, "D %zu\n", dropped);
    fflush(out);
    funlockfile(out);
    free(buffer);
}

struct data {
    int site;
    const char *function;
    const void *params, *ret;
    const char *symbol;
    void *context;
    uint32_t context_id;
    uint64_t *shared;
    uint32_t correlation;
};

static void report(const char *what, int code) {
    if (code) fprintf(out, "E %s %d\n", what, code);
}

static void called(void *user, int domain, int cbid, const struct data *d) {
    if (domain == 1 || domain == 2) {
        if (d->site == 0) *d->shared = mono();
        fprintf(out, "C %d.%d site=%d corr=%u shared=%lu ctx=%u ret=%d user=%ld name=%s symbol=%s\n", domain, cbid, d->site,
                d->correlation, *d->shared, d->context_id, d->ret ? *(const int *)d->ret : -1, (long)user, d->function,
                d->symbol ? d->symbol : "-");
    } else if (domain == 3 && (cbid == 13 || cbid == 20)) {
        // CUpti_ResourceData's descriptor, and the nodes of a CUpti_GraphData
        void **graph = ((void **)d)[2];
        uint64_t node = 0, original = 0;
        report("GetGraphNodeId", find("cuptiGetGraphNodeId")(graph[2], &node));
        if (cbid == 20) report("GetGraphNodeId", find("cuptiGetGraphNodeId")(graph[3], &original));
        fprintf(out, "C %d.%d node=%lu original=%lu type=%d\n", domain, cbid, node, original, *(int *)&graph[4]);
    } else {
        fprintf(out, "C %d.%d\n", domain, cbid);
        if (domain == 3 && cbid == 1) fprintf(out, "context\n");
    }
}

static void leave(void) {
    const char *flush = setting("REC_FLUSH", "plain");
    if (strcmp(flush, "none")) report("FlushAll", find("cuptiActivityFlushAll")(!strcmp(flush, "forced")));
    if (!strcmp(flush, "forced")) {
        // What was returned unfinished must not be delivered again.
        usleep(200000);
        fprintf(out, "again\n");
        find("cuptiActivityFlushAll")(1);
    }
    fprintf(out, "requests %d\n", requests);
    // Not closed: the library's worker may still deliver (it did, into a closed file, once in ten
    // runs on a busy machine).
    fflush(out);
}

__attribute__((visibility("default"))) int InitializeInjection(void) {
    out = fopen(setting("REC_OUT", "/dev/null"), "w");
    cupti = dlopen(setting("REC_CUPTI", "libcupti.so"), RTLD_LAZY);
    if (!cupti) {
        fprintf(out, "E dlopen %s\n", dlerror());
        return 1;
    }
    buffer_bytes = atol(setting("REC_BUFFER", "65536"));
    most = atol(setting("REC_MOST", "0"));
    uint32_t version = 0, sub_state = 0;
    report("GetVersion", find("cuptiGetVersion")(&version));
    fprintf(out, "version %u\n", version);
    void *subscriber = NULL, *second = NULL;
    report("Subscribe", find("cuptiSubscribe")(&subscriber, called, (void *)77L));
    if (subscriber) fprintf(out, "second %d\n", find("cuptiSubscribe")(&second, called, NULL));
    const char *clock = setting("REC_CLOCK", "mono");
    if (strcmp(clock, "real"))
        report("Timestamp", find("cuptiActivityRegisterTimestampCallback")(strcmp(clock, "tick") ? mono : tick));
    fprintf(out, "null-clock %d\n", find("cuptiActivityRegisterTimestampCallback")(NULL));
    if (getenv("REC_PER_THREAD")) {
        uint8_t on = atoi(getenv("REC_PER_THREAD"));
        size_t one = 1;
        report("SetAttribute", find("cuptiActivitySetAttribute")(9, &one, &on));
    }
    find("cuptiSetThreadIdType")(1);
    report("Register", find("cuptiActivityRegisterCallbacks")(requested, completed));
    char list[512], *word, *rest;
    snprintf(list, sizeof list, "%s", setting("REC_CALLBACKS", ""));
    for (word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int domain = atoi(word), cbid = atoi(strchr(word, '.') + 1);
        report(word, find("cuptiEnableCallback")(1, subscriber, domain, cbid));
        find("cuptiGetCallbackState")(&sub_state, subscriber, domain, cbid);
        if (!sub_state) fprintf(out, "E state %s\n", word);
    }
    snprintf(list, sizeof list, "%s", setting("REC_FILTER", ""));
    for (word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        any filter = find(atoi(word) == 2 ? "cuptiActivityEnableRuntimeApi" : "cuptiActivityEnableDriverApi");
        if (filter) report(word, filter(atoi(strchr(word, '.') + 1), (uint8_t)1));
        else fprintf(out, "no filter\n");
    }
    if (getenv("REC_EXTERNAL"))
        find("cuptiActivityPushExternalCorrelationId")(3, (uint64_t)atol(getenv("REC_EXTERNAL")));
    snprintf(list, sizeof list, "%s", setting("REC_KINDS", "10"));
    for (word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char what[32];
        snprintf(what, sizeof what, "Enable:%s", word);
        report(what, find("cuptiActivityEnable")(atoi(word)));
    }
    atexit(leave);
    return 1;
}
