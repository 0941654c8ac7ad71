// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program with NVTX in it, see nvtx.h.
//
// usage: nvtx_calls story    ranges of every sort, before the first use of the device and after;
//                            what they should leave is in tests/scenarios/tests/nvtx.rs. Prints
//                            "tables A B" (two objects), "depth D", "launched N"
//        nvtx_calls hostile  attributes that make no sense, a million of them. Prints "alive"
//        nvtx_calls no_cuda  ranges of a process that never touches CUDA. Prints "alive"
//        nvtx_calls burst    more ranges at once than a ring holds, 60 synchronizes among them,
//                            then one more range. Prints "launched 2"
//        nvtx_calls crowd    64 threads with a range each: "launched 64"
//        nvtx_calls fork     a child with ranges of its own: "child 0", "launched 2"
//        nvtx_calls cost     ns of a push and its pop: "registered NS text NS mark NS"
#include "nvtx.h"
#include "sim.h"
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *function;
static long launched;

static void work(void) {
    launch(function, NULL);
    __sync_fetch_and_add(&launched, 1);
}

static uint64_t started;

static void *ends_it(void *unused) {
    nvtx_name_thread(syscall(SYS_gettid), "the one that ends");
    nvtx_push("on its own thread");
    work();
    nvtx_pop();
    nvtx_end(started);
    return unused;
}

static void numbers(void *domain, void *name) {
    nvtx_attributes a = nvtx_named(3, name);
    const struct { int type; uint64_t bits; } all[] = {
        {1, UINT64_MAX}, {2, (uint64_t)-5}, {4, 0xffffffff00000007}, {5, 0x1fffffff9}, {1, 0},
    };
    double real = 2.5;
    float small = 0.5f;
    for (unsigned n = 0; n < sizeof all / sizeof *all; n++) {
        a.payload_type = all[n].type, a.payload = all[n].bits;
        nvtx_domain_push(domain, &a);
        nvtx_domain_pop(domain);
    }
    a.payload_type = 3;
    memcpy(&a.payload, &real, 8);
    nvtx_domain_push(domain, &a);
    nvtx_domain_pop(domain);
    a.payload_type = 6, a.payload = 0;
    memcpy(&a.payload, &small, 4);
    nvtx_domain_push(domain, &a);
    nvtx_domain_pop(domain);
}

static void nccl(void) {
    void *domain = nvtx_domain("NCCL");
    struct { uint64_t comm, bytes; int op; } reduce = {0xabc, 3 << 20, 1};
    struct { uint64_t schema; size_t size; const void *payload; } data = {(1 << 24) + 5, sizeof reduce, &reduce};
    nvtx_attributes a = nvtx_named(3, nvtx_register(domain, "ncclAllReduce"));
    a.payload_type = (int32_t)0xDFBD0009, a.reserved = 1, a.payload = (uint64_t)(uintptr_t)&data;
    nvtx_domain_push(domain, &a);
    work();
    nvtx_domain_pop(domain);
    // a layout that nobody knows: a range without a number
    data.size = 12;
    nvtx_domain_push(domain, &a);
    nvtx_domain_pop(domain);
}

// Registered before gapprobe's own handler, so it runs when the recording has ended.
static void too_late(void) {
    nvtx_push("too late");
    nvtx_pop();
    nvtx_pop();  // of "left open"
    nvtx_end(nvtx_start("too late"));
}

static int story(void) {
    atexit(too_late);
    int first = nvtx_load(NULL), second = nvtx_load(NULL);
    printf("tables %d %d\n", first, second);
    void *domain = nvtx_domain("training"), *other = nvtx_domain("other");
    void *phase = nvtx_register(domain, "phase"), *wide = nvtx_register_w(domain, L"weit \u00e4 \U0001F600");
    nvtx_push("before CUDA");
    uint64_t early = nvtx_start("started before CUDA");
    nvtx_push("never seen");
    nvtx_pop();
    function = kernel("ranged", 20);
    work();  // gapprobe begins here
    nvtx_end(early);
    nvtx_pop();  // of "before CUDA": its begin is not recorded

    nvtx_attributes a = nvtx_named(3, phase), w = nvtx_named(3, wide), t = nvtx_named(1, "text in attributes");
    printf("depth %d\n", nvtx_push("outer"));
    for (int n = 0; n < 10; n++) {
        // three stacks that cross one another: each domain nests by itself
        nvtx_domain_push(domain, &a);
        nvtx_domain_push(other, &t);
        nvtx_push_w(L"wide \u20ac");
        work();
        nvtx_domain_pop(domain);
        nvtx_pop();
        nvtx_domain_pop(other);
    }
    nvtx_domain_push(domain, &w);
    nvtx_domain_pop(domain);
    nvtx_pop();
    numbers(domain, phase);
    nccl();
    for (int n = 0; n < 5; n++) nvtx_mark("a moment");
    a.payload_type = 4, a.payload = 42;
    nvtx_domain_mark(domain, &a);

    // overlapping, ended by another thread and in another order
    uint64_t own = nvtx_start("ended here");
    t = nvtx_named(1, "ended there");
    started = nvtx_domain_start(domain, &t);
    nvtx_end(own);
    pthread_t thread;
    pthread_create(&thread, NULL, ends_it, NULL);
    pthread_join(thread, NULL);
    nvtx_end(started);          // a second time
    nvtx_end(0);                // none
    nvtx_end(0x7777777777777);  // never started
    nvtx_domain_pop(other);     // nothing is open
    nvtx_start("never ended");
    for (int n = 0; n < 100; n++) nvtx_push("deep");
    for (int n = 0; n < 100; n++) nvtx_pop();
    char name[501];
    memset(name, 'n', 500);
    name[500] = 0;
    nvtx_push(name);
    nvtx_pop();
    nvtx_push(NULL);
    nvtx_pop();
    nvtx_push("");
    nvtx_pop();
    nvtx_domain_destroy(domain);
    nvtx_push("left open");
    work();
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}

static uint64_t next_random(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static int hostile(void) {
    if (nvtx_load(NULL) != 1) return 1;
    function = kernel("ranged", 20);
    work();
    static char text[64] = "a text that ends";
    static wchar_t wide[64] = L"ein Text";
    wide[3] = (wchar_t)0xd800, wide[4] = (wchar_t)0x7fffffff;  // no characters
    struct { uint64_t schema; size_t size; const void *payload; } data[8];
    void *domains[] = {NULL, nvtx_domain("NCCL"), nvtx_domain(""), nvtx_domain(NULL), (void *)-1, &data, text};
    for (int n = 0; n < 1000000; n++) {
        uint64_t r = next_random();
        void *domain = domains[r % 7];
        nvtx_attributes a;
        memset(&a, 0, sizeof a);
        a.version = r >> 8, a.size = (r >> 16) % (sizeof a + 1);  // never more than there is
        a.payload_type = (r >> 24) % 2 ? (int32_t)0xDFBD0009 : (int32_t)((r >> 25) % 9);
        a.reserved = (int32_t)((r >> 29) % 16) - 8;
        if (a.reserved > 8) a.reserved = 8;
        for (int k = 0; k < 8; k++) {
            uint64_t s = next_random();
            data[k].schema = (1 << 24) + s % 24 - (s >> 8) % 2 * (1 << 24);
            // a size is a promise: the bytes are there wherever a layout we know would look
            data[k].size = (s >> 16) % 4 ? (s >> 20) % 33 : s;
            data[k].payload = (s >> 32) % 4 ? text : NULL;
        }
        a.payload = (r >> 33) % 4 ? (uint64_t)(uintptr_t)data : 0;
        if (a.payload_type != (int32_t)0xDFBD0009) a.payload = next_random();
        a.message_type = (int32_t)((r >> 36) % 6) - 1;
        const void *messages[] = {NULL, text, wide, (void *)7, (void *)-1};
        a.message = messages[a.message_type < 1 || a.message_type > 3 ? (r >> 40) % 5 : 0];
        if (a.message_type == 1 && (r >> 43) % 2) a.message = text;
        if (a.message_type == 2 && (r >> 43) % 2) a.message = wide;
        if (a.message_type == 3) a.message = (void *)(uintptr_t)((r >> 43) % 2 ? r : (r >> 44) % 300000);
        switch ((r >> 48) % 10) {
        case 0: nvtx_domain_push(domain, &a); break;
        case 1: nvtx_domain_pop(domain); break;
        case 2: nvtx_domain_mark(domain, &a); break;
        case 3: nvtx_domain_end(domain, nvtx_domain_start(domain, &a)); break;
        case 4: nvtx_end(r); break;
        case 5: nvtx_push_ex(NULL); break;
        case 6: nvtx_push(NULL); break;
        case 7: nvtx_push_w(NULL); break;
        case 8: nvtx_name_thread((uint32_t)r, (r >> 60) % 2 ? NULL : text); break;
        case 9: snprintf(text, 40, "text %u", (unsigned)(r >> 44)); nvtx_register(domain, text); break;
        }
        if (n % 1000 == 0) work();
    }
    CHECK(cudaDeviceSynchronize());
    printf("alive\n");
    return 0;
}

static int no_cuda(void) {
    if (nvtx_load(NULL) != 1) return 1;
    void *domain = nvtx_domain("training");
    nvtx_attributes a = nvtx_named(3, nvtx_register(domain, "phase"));
    for (int n = 0; n < 1000; n++) {
        nvtx_domain_push(domain, &a);
        nvtx_mark("moment");
        nvtx_end(nvtx_start("started"));
        nvtx_domain_pop(domain);
    }
    nvtx_name_thread(syscall(SYS_gettid), "main");
    printf("alive\n");
    return 0;
}

static int burst(void) {
    nvtx_load(NULL);
    function = kernel("ranged", 20);
    work();
    usleep(200000);
    nvtx_push("around");
    // far more than a ring holds, faster than it is drained: pushes and pops are refused alike
    for (int n = 0; n < 60000; n++) {
        nvtx_push("x"), nvtx_push("y"), nvtx_pop(), nvtx_pop();
        if (n % 1000 == 999) CHECK(cudaStreamSynchronize(NULL));
    }
    usleep(200000);
    nvtx_push("after");
    work();
    nvtx_push("inside");
    nvtx_pop();
    nvtx_pop();
    nvtx_pop();  // of "around", which was forgotten
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}

static pthread_barrier_t all_here;

static void *one_of_many(void *domain) {
    nvtx_attributes a = nvtx_named(3, nvtx_register(domain, "registered")), t = nvtx_named(1, "text");
    nvtx_domain_push(domain, &a);
    nvtx_domain_push(domain, &t);
    work();
    nvtx_domain_pop(domain);
    nvtx_domain_pop(domain);
    pthread_barrier_wait(&all_here);
    return NULL;
}

static int crowd(void) {
    enum { THREADS = 64 };
    nvtx_load(NULL);
    function = kernel("ranged", 20);
    launch(function, NULL);
    usleep(200000);
    pthread_t threads[THREADS];
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, one_of_many, nvtx_domain("crowd"));
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", launched);
    return 0;
}

static int forks(void) {
    nvtx_load(NULL);
    function = kernel("ranged", 20);
    work();
    nvtx_push("parent");
    pid_t child = fork();
    if (child == 0) {
        for (int n = 0; n < 1000; n++) nvtx_push("child"), nvtx_pop();
        nvtx_end(nvtx_start("child"));
        _exit(nvtx_domain("of the child") ? 2 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    nvtx_pop();
    work();
    CHECK(cudaDeviceSynchronize());
    printf("child %d\nlaunched %ld\n", status, launched);
    return 0;
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int cost(void) {
    enum { BLOCKS = 40, PAIRS = 1000 };
    double taken[3][BLOCKS];
    nvtx_load(NULL);
    function = kernel("ranged", 20);
    work();
    void *domain = nvtx_domain("training");
    nvtx_attributes a = nvtx_named(3, nvtx_register(domain, "phase"));
    for (int block = 0; block < BLOCKS; block++) {
        for (int way = 0; way < 3; way++) {
            usleep(70000);  // the drain thread empties the ring
            double from = now_ns();
            for (int n = 0; n < PAIRS; n++) {
                if (way == 0) nvtx_domain_push(domain, &a), nvtx_domain_pop(domain);
                if (way == 1) nvtx_push("aten::convolution_backward"), nvtx_pop();
                if (way == 2) nvtx_domain_mark(domain, &a);
            }
            taken[way][block] = (now_ns() - from) / PAIRS;
        }
    }
    for (int way = 0; way < 3; way++) qsort(taken[way], BLOCKS, sizeof(double), ascending);
    printf("registered %.1f text %.1f mark %.1f\n", taken[0][BLOCKS / 2], taken[1][BLOCKS / 2], taken[2][BLOCKS / 2]);
    return 0;
}

int main(int argc, char **argv) {
    const struct { const char *name; int (*run)(void); } ways[] = {
        {"story", story}, {"hostile", hostile}, {"no_cuda", no_cuda}, {"burst", burst}, {"crowd", crowd},
        {"fork", forks}, {"cost", cost},
    };
    for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++)
        if (argc > 1 && !strcmp(argv[1], ways[n].name)) return ways[n].run();
    return 2;
}
