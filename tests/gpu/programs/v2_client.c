/* SPDX-License-Identifier: Apache-2.0
 * A client of CUPTI's V2 API, in the order of calls that PyTorch's torch.profiler._cuspy has, and a
 * client of the V1 API, in one process by turns:
 *
 *     v2_client CUPTI PLAN [CYCLES]        prints one line of JSON; ends with 1 where CUDA fails
 *
 * PLAN   letters, done one after the other, all of them CYCLES times (1):
 *        L  100 kernels, and waits for them
 *        G  a graph of 100 kernels, which L launches from then on, too
 *        T  two threads that launch, copy and wait from then on, whatever is done meanwhile
 *        2  V2 on: subscribe, user-defined records, buffers, kernels    p  the same, whole records
 *        s  the same as 2, for the only subscriber                      o  V2 off
 *        1  V1 on: subscribe, buffers, kernels    a  the same without a subscription
 *        x  V1 off                                F  cuptiFinalize
 *        1  V1 on: subscribe, buffers, kernels    a  the same, no subscription
 * were the same in all others; of either client the records, how many of them have times, how many
 * a correlation id of their own, and the buffers given out and returned, and their bytes. From
 * NVIDIA's documentation of CUPTI 13.5 (cupti_callbacks.h, cupti_activity.h); needs no header of
 * CUDA's.
 * Build: gcc -O1 -o v2_client v2_client.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*fn)();

struct subscriber_params { size_t size; const char *name; char *old_name; size_t old_size; uint8_t allow_multiple, padding[7]; };
struct selection { size_t size, count; int *fields; };
struct config { size_t size; struct selection selection; void *options; };
struct entry { size_t size; int field; size_t offset, bytes, alignment; };
struct layout { size_t size; struct entry *entries; size_t count, record; };
struct completed { size_t size; uint64_t thread; struct layout **layouts; size_t count; };

enum { KERNEL = 10, USER_DEFINED_RECORDS = 11, FIELD_KIND = 0, FIELD_START = 7, FIELD_END = 8, FIELD_CORRELATION = 22, MOST = 1 << 20 };

static void *cuda, *cupti;
static fn cu(const char *name) {
    fn f = (fn)dlsym(cuda, name);
    if (!f) exit((fprintf(stderr, "the driver has no %s\n", name), 1));
    return f;
}
static int call(const char *name, fn *found) { return (*found = (fn)dlsym(cupti, name)) != 0; }

/* records of the V1 client [0] and the V2 client [1] */
static long records[2], timed[2], distinct[2], given[2], returned[2], bytes[2];
static uint8_t seen[2][MOST];
static void count(int client, uint64_t start, uint64_t end, uint32_t correlation) {
    records[client]++;
    timed[client] += start && end >= start;
    distinct[client] += !seen[client][correlation % MOST]++;
}

static void give(int client, uint8_t **buffer, size_t *size, size_t *most) {
    given[client]++;
    *size = 1 << 20, *most = 0;
    *buffer = aligned_alloc(8, *size);
    memset(*buffer, 0, *size);
}
static void request(uint8_t **buffer, size_t *size, size_t *most) { give(0, buffer, size, most); }
static void read_whole(int client, uint8_t *buffer, size_t valid) {
    uint8_t *record = 0;
    fn next;
    while (call("cuptiActivityGetNextRecord", &next) && valid && next(buffer, valid, &record) == 0)
        if (*(uint32_t *)record == KERNEL) count(client, *(uint64_t *)(record + 16), *(uint64_t *)(record + 24), *(uint32_t *)(record + 92));
}
static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    returned[0]++, bytes[0] += valid;
    read_whole(0, buffer, valid);
    free(buffer);
}
static void request_v2(uint8_t **buffer, size_t *size, size_t *most, void *info) { (void)info, give(1, buffer, size, most); }
static uint64_t field(const uint8_t *record, const struct layout *layout, int id) {
    uint64_t value = 0;
    for (size_t i = 0; i < layout->count; i++)
        if (layout->entries[i].field == id) memcpy(&value, record + layout->entries[i].offset, layout->entries[i].bytes <= 8 ? layout->entries[i].bytes : 8);
    return value;
}
static int is_whole;
static void complete_v2(uint8_t *buffer, size_t size, size_t valid, struct completed *info) {
    (void)size;
    returned[1]++, bytes[1] += valid;
    if (is_whole) read_whole(1, buffer, valid);
    /* one kind is on: records of one length, one behind the other; layouts are by kind */
    const struct layout *layout = 0;
    for (size_t i = 0; !is_whole && info && i < info->count; i++)
        if (info->layouts[i] && info->layouts[i]->record) layout = info->layouts[i];
    for (size_t at = 0; layout && at + layout->record <= valid; at += layout->record)
        count(1, field(buffer + at, layout, FIELD_START), field(buffer + at, layout, FIELD_END), field(buffer + at, layout, FIELD_CORRELATION));
    free(buffer);
}
static void callback(void *user, int domain, uint32_t id, const void *data) { (void)user, (void)domain, (void)id, (void)data; }

static void *first, *second;
static char holder[64];
static int fields[] = {FIELD_KIND, FIELD_START, FIELD_END, FIELD_CORRELATION};

/* the first cycle's results, and whether any later one had another */
static char told[2][4096];
static int cycle;
static void say(const char *what, int result) {
    char *to = told[cycle > 0];
    size_t used = strlen(to);
    snprintf(to + used, sizeof told[0] - used, " %s=%d", what, result);
}
/* -1: this libcupti has no such call */
#define TRY(what, name, ...) do { fn f; say(what, call(name, &f) ? f(__VA_ARGS__) : -1); } while (0)

static void step(char letter) {
    uint8_t yes = 1, no = 0;
    size_t one = 1;
    struct config config = {sizeof config, {sizeof(struct selection), 4, fields}, 0};
    struct subscriber_params params = {sizeof params, "a client of tests", holder, sizeof holder, 1, {0}};
    switch (letter) {
    case '2':
    case 'p':
    case 's':
        params.allow_multiple = letter != 's';
        is_whole = letter == 'p';
        TRY("subscribe", "cuptiSubscribe_v2", &second, callback, (void *)0, &params);
        if (!is_whole) TRY("records", "cuptiActivitySetAttribute_v2", second, USER_DEFINED_RECORDS, &one, &yes);
        TRY("buffers", "cuptiActivityRegisterCallbacks_v2", second, request_v2, complete_v2);
        TRY("enable", "cuptiActivityEnable_v2", second, KERNEL, is_whole ? (void *)0 : &config);
        break;
    case 'o':
        TRY("flush", "cuptiActivityFlushAll", 1);
        TRY("disable", "cuptiActivityDisable_v2", second, KERNEL, is_whole ? (void *)0 : &config);
        if (!is_whole) TRY("records", "cuptiActivitySetAttribute_v2", second, USER_DEFINED_RECORDS, &one, &no);
        TRY("unsubscribe", "cuptiUnsubscribe", second);
        break;
    case '1':
    case 'a':
        if (letter == '1') TRY("subscribe", "cuptiSubscribe", &first, callback, (void *)0);
        TRY("buffers", "cuptiActivityRegisterCallbacks", request, complete);
        TRY("enable", "cuptiActivityEnable", KERNEL);
        break;
    case 'x':
        TRY("flush", "cuptiActivityFlushAll", 1);
        TRY("disable", "cuptiActivityDisable", KERNEL);
        if (first) TRY("unsubscribe", "cuptiUnsubscribe", first);
        first = 0;
        break;
    case 'F':
        TRY("finalize", "cuptiFinalize");
        break;
    }
}

static void *context, *kernel;
static atomic_long elsewhere;
static void *work(void *unused) {
    uint64_t memory = 0;
    char host[4096];
    void *stream = 0;
    (void)unused;
    if (cu("cuCtxSetCurrent")(context) || cu("cuMemAlloc_v2")(&memory, sizeof host) || cu("cuStreamCreate")(&stream, 1)) exit((fprintf(stderr, "thread\n"), 1));
    fn launch = cu("cuLaunchKernel"), copy = cu("cuMemcpyDtoH_v2"), wait = cu("cuStreamSynchronize");
    for (;;) {
        for (int i = 0; i < 20; i++) elsewhere += launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, (void *)0, (void *)0) == 0;
        if (copy(host, memory, sizeof host) || wait(stream)) exit((fprintf(stderr, "thread: copy\n"), 1));
    }
}

static const char PTX[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry k() { ret; }\n";

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: v2_client CUPTI PLAN [CYCLES]\n"), 2;
    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    cupti = dlopen(argv[1], RTLD_NOW);
    if (!cuda || !cupti) return fprintf(stderr, "%s\n", dlerror()), 1;
    uint32_t version = 0;
    int driver = 0, result;
    fn f;
    if (call("cuptiGetVersion", &f)) f(&version);
    cu("cuDriverGetVersion")(&driver);
    void *module = 0;
    if ((result = cu("cuInit")(0)) || (result = cu("cuDevicePrimaryCtxRetain")(&context, 0)) || (result = cu("cuCtxSetCurrent")(context)) ||
        (result = cu("cuModuleLoadData")(&module, PTX)) || (result = cu("cuModuleGetFunction")(&kernel, module, "k")))
        return fprintf(stderr, "CUDA: %d\n", result), 1;
    fn launch = cu("cuLaunchKernel"), wait = cu("cuCtxSynchronize");
    long launched = 0;
    int cycles = argc > 3 ? atoi(argv[3]) : 1;
    int alike = 1;
    void *graph = 0, *stream = 0;
    for (cycle = 0; cycle < cycles; cycle++) {
        told[1][0] = 0;
        for (const char *letter = argv[2]; *letter; letter++) {
            if (*letter == 'L') {
                for (int i = 0; i < 100; i++, launched++)
                    if ((result = launch(kernel, 1, 1, 1, 1, 1, 1, 0, (void *)0, (void *)0, (void *)0))) return fprintf(stderr, "launch: %d\n", result), 1;
                if (graph && (result = cu("cuGraphLaunch")(graph, stream))) return fprintf(stderr, "graph: %d\n", result), 1;
                if ((result = wait())) return fprintf(stderr, "wait: %d\n", result), 1;
            } else if (*letter == 'T') {
                pthread_t thread;
                for (int i = 0; cycle == 0 && i < 2; i++) pthread_create(&thread, 0, work, 0);
            } else if (*letter == 'G') {
                void *captured = 0;
                if ((result = cu("cuStreamCreate")(&stream, 1)) || (result = cu("cuStreamBeginCapture_v2")(stream, 2))) return fprintf(stderr, "capture: %d\n", result), 1;
                for (int i = 0; i < 100; i++) launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, (void *)0, (void *)0);
                if ((result = cu("cuStreamEndCapture")(stream, &captured)) || (result = cu("cuGraphInstantiateWithFlags")(&graph, captured, 0ull)))
                    return fprintf(stderr, "graph: %d\n", result), 1;
            } else
                step(*letter);
        }
        alike &= cycle == 0 || strcmp(told[0], told[1]) == 0;
    }
    printf("{\"cupti\": %u, \"driver\": %d, \"plan\": \"%s\", \"cycles\": %d, \"results\": \"%s\", \"alike\": %s, \"held_by\": \"%s\", "
           "\"launched\": %ld, \"elsewhere\": %ld, \"v1\": [%ld, %ld, %ld, %ld, %ld, %ld], \"v2\": [%ld, %ld, %ld, %ld, %ld, %ld]}\n",
           version, driver, argv[2], cycles, told[0] + (told[0][0] == ' '), alike ? "true" : "false", holder, launched, elsewhere, records[0], timed[0], distinct[0],
           given[0], returned[0], bytes[0], records[1], timed[1], distinct[1], given[1], returned[1], bytes[1]);
    fflush(stdout);
    _exit(0);
}
