// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// CUDA calls in a loop of C, for Python to stand around (tests/victims/depth.py): what a call costs
// on the thread that Python called from, and on one that Python knows nothing of; page faults; and,
// where this is preloaded, allocations that have a frame of libgapprobe.so on their stack.
#define _GNU_SOURCE
#include "sim.h"
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

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static void look(void) {
    if (!inside || busy) return;
    busy = 1;
    void *frames[64];
    int depth = backtrace(frames, 64);
    __sync_fetch_and_add(&checked, 1);
    for (int n = 0; n < depth; n++)
        if ((char *)frames[n] >= gapprobe_from && (char *)frames[n] < gapprobe_to) {
            __sync_fetch_and_add(&allocations, 1);
            break;
        }
    busy = 0;
}

void *malloc(size_t size) { look(); return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { look(); return __libc_calloc(count, size); }
void *realloc(void *at, size_t size) { look(); return __libc_realloc(at, size); }

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

static long faults(void) {
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return u.ru_minflt + u.ru_majflt;
}

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

// ns a call
double from_here(long count) {
    double from = now_ns();
    for (long n = 0; n < count; n++) CHECK(cudaStreamSynchronize(NULL));
    return (now_ns() - from) / count;
}

static void *on_thread(void *count) {
    static double spent[64];
    static int next;
    double *at = &spent[__sync_fetch_and_add(&next, 1) % 64];
    from_here(100);
    usleep(120000);  // the drain thread empties the ring
    *at = from_here(*(long *)count);
    return at;
}

double on_a_native_thread(long count) {
    pthread_t thread;
    void *spent;
    pthread_create(&thread, NULL, on_thread, &count);
    pthread_join(thread, &spent);
    return *(double *)spent;
}

// Calls between marks for strace.
void marked(long count) {
    if (write(-1, "begin", 5) > 0) abort();
    from_here(count);
    if (write(-1, "end", 3) > 0) abort();
}

long faults_of(long count) {
    long before = faults();
    from_here(count);
    return faults() - before;
}

// "allocations" of ours while `count` calls are made
long allocations_of(long count) {
    void *frames[4];
    backtrace(frames, 4);  // loads libgcc
    dl_iterate_phdr(find, NULL);
    if (!gapprobe_from) return -1;
    inside = 1;
    void *volatile mine = malloc(10);  // counted, so that a count of none means something
    from_here(count);
    inside = 0;
    free(mine);
    return checked ? allocations : -2;
}
