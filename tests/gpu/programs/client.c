/* SPDX-License-Identifier: Apache-2.0
 * A client of CUPTI that does nothing but what it is told, preloaded into any program as gapprobe
 * is: what of CUPTI costs what.
 *
 *     CLIENT="subscribe clock buffers kernel" LD_PRELOAD=client.so python train.py
 *
 * The words of CLIENT are done in their order when the driver starts: subscribe (callbacks of
 * nothing), clock (a timestamp callback), buffers (given and thrown away), kernel, memcpy, memset,
 * copies (both), sync (the kinds CONCURRENT_KERNEL, MEMCPY, MEMSET, SYNCHRONIZATION), filter
 * (launch calls by cuptiActivityEnableRuntimeApi), runtime, driver (the whole kinds), waits
 * (callbacks of synchronizing calls and copies), finalize (all of it undone). Says on stderr what
 * it did, and at the end how many buffers there were. Used by the suite always_on
 * (side=client:WORD:WORD). No header of CUDA's is needed. Build: gcc -O1 -shared -fPIC -o client.so
 * client.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*fn)();
enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, RUNTIME = 5, CONCURRENT_KERNEL = 10, SYNCHRONIZATION = 38, RUNTIME_API = 2 };

static void *cupti;
static long buffers;

static fn load(const char *name) {
    fn f = (fn)dlsym(cupti, name);
    if (!f) fprintf(stderr, "client: no %s\n", name), exit(9);
    return f;
}

static void callback(void *user, int domain, uint32_t id, const void *info) { (void)user, (void)domain, (void)id, (void)info; }

static void requested(uint8_t **buffer, size_t *size, size_t *most) { *size = 1 << 20, *most = 0, *buffer = aligned_alloc(8, 1 << 20); }

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size, (void)valid;
    __atomic_add_fetch(&buffers, 1, __ATOMIC_RELAXED);
    free(buffer);
}

static uint64_t stamp(void) {
    struct { int64_t s, ns; } t;
    extern int clock_gettime(int, void *);
    clock_gettime(1, &t);
    return (uint64_t)t.s * 1000000000u + (uint64_t)t.ns;
}

static int each(const char *function, const int *ids, int n, void *handle) {
    int worst = 0;
    for (int i = 0; i < n; i++) {
        int r = handle ? load(function)(1, handle, RUNTIME_API, ids[i]) : load(function)(ids[i], 1);
        worst = r ? r : worst;
    }
    return worst;
}

static int one(const char *word) {
    static void *handle;
    static const int launches[] = {211, 430, 505}, waits[] = {131, 165, 137, 31, 41};
    int (*on)() = load("cuptiActivityEnable");
    if (!strcmp(word, "subscribe")) return load("cuptiSubscribe")(&handle, callback, (void *)0);
    if (!strcmp(word, "clock")) return load("cuptiActivityRegisterTimestampCallback")(stamp);
    if (!strcmp(word, "buffers")) return load("cuptiActivityRegisterCallbacks")(requested, completed);
    if (!strcmp(word, "kernel")) return on(CONCURRENT_KERNEL);
    if (!strcmp(word, "memcpy")) return on(MEMCPY);
    if (!strcmp(word, "memset")) return on(MEMSET);
    if (!strcmp(word, "copies")) return on(MEMCPY) | on(MEMSET);
    if (!strcmp(word, "sync")) return on(SYNCHRONIZATION);
    if (!strcmp(word, "runtime")) return on(RUNTIME);
    if (!strcmp(word, "driver")) return on(DRIVER);
    if (!strcmp(word, "filter")) return each("cuptiActivityEnableRuntimeApi", launches, 3, 0);
    if (!strcmp(word, "waits")) return !handle ? -2 : each("cuptiEnableCallback", waits, 5, handle);
    if (!strcmp(word, "finalize")) return load("cuptiFinalize")();
    return -1;
}

int InitializeInjection(void) {
    const char *named = getenv("CLIENT_CUPTI");
    cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    cupti = cupti ? cupti : dlopen(named ? named : "libcupti.so.13", RTLD_NOW);
    char *words = strdup(getenv("CLIENT") ? getenv("CLIENT") : ""), *save = 0;
    if (!cupti) return fprintf(stderr, "client: no libcupti: %s\n", dlerror()), 0;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(0, " ", &save)) fprintf(stderr, "client: %s %d\n", w, one(w));
    return 1;
}

__attribute__((constructor)) static void begin(void) {
    Dl_info self;
    if (dladdr((void *)InitializeInjection, &self)) setenv("CUDA_INJECTION64_PATH", self.dli_fname, 1);
}

__attribute__((destructor)) static void end(void) {
    if (cupti) fprintf(stderr, "client: %ld buffers\n", buffers);
}
