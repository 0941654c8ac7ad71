// SPDX-License-Identifier: Apache-2.0
// link: -rdynamic -lcudart -lcuda
// What gapprobe does on the program's threads once recording runs: allocations, system calls, page
// faults, time.
//
// usage: hot_path allocations | syscalls [ROUNDS] | faults | cost [CALLS] | tail [CALLS]
//   allocations  counts those with a frame of libgapprobe.so on the stack, on the main thread after
//                its warm-up and on fresh threads from their first instruction: "allocations A
//                (checked C)"
//   syscalls     marks the window by write(-1, "begin") and write(-1, "end"), on the main and on a
//                fresh thread
//   faults       page faults of this thread in windows of 30,000 calls, bare CUPTI and gapprobe in
//                turn: "faults bare A B C ours D E F"
//   cost         ns a recorded call costs above bare CUPTI, median of paired blocks, and by the
//                quickest block of each: "event NS (least NS above bare NS)"
//   tail         what the callbacks of single calls take, ENTER and EXIT together, by the simulated
//                driver's own stopwatch around them (four clock reads, two of them in the figure);
//                no call left out; blocks of bare CUPTI, ours, and loops as long as ours that only
//                read the clock in turn: "bare|ours|loop p50 NS p99.9 NS p99.99 NS max NS ns calls
//                N late L" (late: 5 us or more)
#define _GNU_SOURCE
#include "nvtx.h"
#include "sim.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static __thread int inside, busy;
static long allocations, checked;
static char *gapprobe_from, *gapprobe_to;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

// In libcuda, libcudart or libcupti?
static int is_drivers(void *address) {
    Dl_info of;
    if (!dladdr(address, &of) || !of.dli_fname) return 0;
    const char *file = strrchr(of.dli_fname, '/');
    file = file ? file + 1 : of.dli_fname;
    return !strncmp(file, "libcuda", 7) || !strncmp(file, "libcupti", 8);
}

static void look(void) {
    if (!inside || busy) return;
    busy = 1;
    void *frames[64];
    int depth = backtrace(frames, 64);
    __sync_fetch_and_add(&checked, 1);
    // (the driver's own calls in a launch that came through gapprobe are the driver's)
    for (int n = 0; n < depth && !is_drivers(frames[n]); n++)
        if ((char *)frames[n] >= gapprobe_from && (char *)frames[n] < gapprobe_to) {
            __sync_fetch_and_add(&allocations, 1);
            break;
        }
    busy = 0;
}

void *malloc(size_t size) { look(); return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { look(); return __libc_calloc(count, size); }
void *realloc(void *at, size_t size) { look(); return __libc_realloc(at, size); }
void *memalign(size_t alignment, size_t size) { look(); return __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **at, size_t alignment, size_t size) { return !(*at = memalign(alignment, size)); }

static int find(struct dl_phdr_info *info, size_t size, void *data) {
    if (!strstr(info->dlpi_name, "libgapprobe.so")) return 0;
    for (int n = 0; n < info->dlpi_phnum; n++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[n];
        if (h->p_type != PT_LOAD) continue;
        char *from = (char *)info->dlpi_addr + h->p_vaddr, *to = from + h->p_memsz;
        if (!gapprobe_from || from < gapprobe_from) gapprobe_from = from;
        if (to > gapprobe_to) gapprobe_to = to;
    }
    return 1;
}

static void *function, *memory, *domain;
static nvtx_attributes registered, text;
static cudaStream_t stream;

// Everything that leaves an event: launches (records of the filter, or callbacks), synchronizes,
// memsets, graph launches, NVTX ranges of each sort.
static void calls(long count) {
    for (long n = 0; n < count; n++) {
        nvtx_domain_push(domain, &registered);
        uint64_t range = nvtx_start_ex(&text);
        for (int k = 0; k < 8; k++) launch(function, stream);
        nvtx_push_w(L"wide \u20ac");
        nvtx_mark("a moment");
        nvtx_pop();
        nvtx_end(range);
        nvtx_domain_pop(domain);
        CHECK(cudaMemsetAsync(memory, 0, 64, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
}

// NVTX as the library that is there receives it; loaded by the driver alone, only the other
// variable names it.
static void nvtx_ready(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    if (!path) path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    if (library) nvtx_load(library);
    domain = nvtx_domain("hot path");
    registered = nvtx_named(3, nvtx_register(domain, "registered"));
    text = nvtx_named(1, "a text of more than twenty-four bytes");
    text.payload_type = 1, text.payload = 7;
}

static void *fresh_thread(void *mark) {
    inside = 1;
    if (mark && write(-1, "begin", 5) > 0) abort();
    calls(20);
    if (mark && write(-1, "end", 3) > 0) abort();
    inside = 0;
    return NULL;
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void busy_for(double ns) {
    for (double until = now_ns() + ns; now_ns() < until;) continue;
}

static int ascending_costs(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t median(const uint32_t *of, long count) {
    uint32_t *sorted = __libc_malloc(count * sizeof *sorted);
    memcpy(sorted, of, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, ascending);
    uint32_t middle = sorted[count / 2];
    free(sorted);
    return middle;
}

// What this machine adds to loops of so many ns that do nothing but read the clock.
static void idle_loops(uint32_t *taken, long count, uint32_t ns) {
    for (long n = 0; n < count; n++) {
        double begin = now_ns(), end = begin;
        while (end - begin < ns) end = now_ns();
        taken[n] = (uint32_t)(end - begin);
    }
}

static struct rusage usage(void) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    long count = argc > 2 ? atol(argv[2]) : 0;
    void *frames[4];
    backtrace(frames, 4);  // loads libgcc
    function = kernel("hot", 1);
    nvtx_ready();
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    CHECK(cudaMalloc(&memory, 1 << 20));
    calls(300);
    usleep(300000);
    calls(20);
    dl_iterate_phdr(find, NULL);
    void *own = dlopen("libgapprobe.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!own && getenv("CUDA_INJECTION64_PATH")) own = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_LAZY | RTLD_NOLOAD);
    void (*bare)(int) = own ? (void (*)(int))dlsym(own, "gapprobe_test_bare") : NULL;
    if (!gapprobe_from) fprintf(stderr, "no libgapprobe.so here\n");

    if (!strcmp(mode, "allocations")) {
        pthread_t threads[8];
        inside = 1;
        calls(2000);
        inside = 0;
        for (int t = 0; t < 8; t++) pthread_create(&threads[t], NULL, fresh_thread, NULL);
        for (int t = 0; t < 8; t++) pthread_join(threads[t], NULL);
        printf("allocations %ld (checked %ld)\n", allocations, checked);
    } else if (!strcmp(mode, "syscalls")) {
        pthread_t thread;
        if (write(-1, "begin", 5) > 0) abort();
        calls(count ? count : 3000);
        if (write(-1, "end", 3) > 0) abort();
        pthread_create(&thread, NULL, fresh_thread, "mark");
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "faults")) {
        long faults[6];
        for (int round = 0; round < 6; round++) {
            if (bare) bare(round % 2 == 0);
            usleep(200000);
            calls(50);
            long before = usage().ru_minflt + usage().ru_majflt;
            calls(3000);
            faults[round] = usage().ru_minflt + usage().ru_majflt - before;
        }
        printf("faults bare %ld %ld %ld ours %ld %ld %ld\n", faults[0], faults[2], faults[4], faults[1], faults[3], faults[5]);
    } else if (!strcmp(mode, "cost")) {
        enum { BLOCKS = 40 };
        double added[BLOCKS], least[2] = {1e9, 1e9};  // (what else runs only adds)
        if (!count) count = 2000;
        for (int block = 0; block < BLOCKS; block++) {
            double spent[2];
            for (int turn = 0; turn < 2; turn++) {
                int round = (turn + block) % 2;  // which goes first alternates
                if (bare) bare(round == 0);
                usleep(70000);  // the drain thread empties the ring
                for (long n = 0; n < 100; n++) cudaStreamSynchronize(stream);
                double from = now_ns();
                for (long n = 0; n < count; n++) cudaStreamSynchronize(stream);
                spent[round] = (now_ns() - from) / count;
                if (spent[round] < least[round]) least[round] = spent[round];
            }
            added[block] = spent[1] - spent[0];
        }
        qsort(added, BLOCKS, sizeof *added, ascending_costs);
        printf("event %.1f (least %.1f above bare %.1f)\n", added[BLOCKS / 2], least[1] - least[0], least[0]);
    } else if (!strcmp(mode, "tail")) {
        enum { BLOCK = 4000, LATE_NS = 5000 };
        if (!count) count = 100000;
        count = (count + BLOCK - 1) / BLOCK * BLOCK;
        uint32_t *taken[3], usual = 200;
        for (int round = 0; round < 3; round++) {
            taken[round] = __libc_malloc(count * sizeof(uint32_t));
            memset(taken[round], 1, count * sizeof(uint32_t));
        }
        for (long at = 0; at < count; at += BLOCK)
            for (int turn = 0; turn < 3; turn++) {
                int round = (turn + at / BLOCK) % 3;  // which goes first alternates
                if (bare) bare(round != 1);
                busy_for(60e6);  // the drain thread empties the ring, and this core does not fall asleep
                if (round == 2) {
                    idle_loops(taken[2] + at, BLOCK, usual);
                    continue;
                }
                for (int n = 0; n < 20; n++) cudaStreamSynchronize(stream);
                simTimeCallbacks(taken[round] + at, BLOCK);
                for (int n = 0; n < BLOCK; n++) cudaStreamSynchronize(stream);
                if (simTimeCallbacks(NULL, 0) != BLOCK) fprintf(stderr, "a call had no callback\n"), abort();
                if (round == 1) usual = median(taken[1] + at, BLOCK);
            }
        for (int round = 0; round < 3; round++) {
            uint32_t *of = taken[round];
            qsort(of, count, sizeof *of, ascending);
            long late = 0;
            while (late < count && of[count - 1 - late] >= LATE_NS) late++;
            printf("%s p50 %u p99.9 %u p99.99 %u max %u ns calls %ld late %ld\n", (const char *[]){"bare", "ours", "loop"}[round], of[count / 2],
                   of[count - 1 - count / 1000], of[count - 1 - count / 10000], of[count - 1], count, late);
        }
    }
    return 0;
}
