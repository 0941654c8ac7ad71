// SPDX-License-Identifier: Apache-2.0
// Every way out of a process, with work on the device, for tests that a profiler changes none of
// them.
//
// usage: ways_out WAY [KERNELS] [QUEUED_MS]
//   WAY        return, exit3, _exit4, abort, sigterm, sigkill, segv, thread (exit from another
//              thread), two (from two at once), two_slow (the same, with exit handlers of the
//              program's own, in two blocks of glibc's), joins (a handler of the first waits for a
//              second that exits), uploads (a handler of the first takes long), nine (threads at
//              once), interrupted (SIGTERM comes 100 ms after exit was called; its handler exits,
//              too), hang (sleeps until killed, after saying "ready")
//   KERNELS    launched and finished before leaving (1000)
//   QUEUED_MS  of work still queued on the device when leaving (0)
// Prints "launched N" first: these kernels were synchronized, so they have ended by then. "hang"
// goes on launching.
#include "sim.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t together;

static void quick(void) {}
static void slow_100_ms(void) { usleep(100000); }
static void slow_300_ms(void) { usleep(300000); }

// glibc's first block has 32 places, its second is allocated, and freed once its handlers have
// begun
static void register_handlers(void) {
    atexit(slow_300_ms);
    for (int k = 0; k < 40; k++) atexit(quick);
    atexit(slow_100_ms);
}

static pthread_t second;
static volatile int first_exits;

static void join_second(void) { pthread_join(second, NULL); }
static void upload(void) { sleep(20); }
static void let_second_exit(void) { first_exits = 1; }

static void *leave_as_second(void *unused) {
    while (!first_exits) usleep(100);
    usleep(50000); // the first is in its long handler, and in no block that this thread frees; or in gapprobe's
    exit(5);
    return NULL;
}

static void exit_on_signal(int number) { exit(number == SIGTERM ? 6 : 8); }

static void *interrupt(void *first) {
    usleep(100000);
    pthread_kill(*(pthread_t *)first, SIGTERM);
    return NULL;
}

static void *leave_from_thread(void *at_once) {
    if (at_once) pthread_barrier_wait(&together);
    exit(5);
    return NULL;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "return";
    long kernels = argc > 2 ? atol(argv[2]) : 1000, queued_ms = argc > 3 ? atol(argv[3]) : 0;
    if (!strcmp(way, "two_slow")) register_handlers();
    if (!strcmp(way, "joins") || !strcmp(way, "uploads")) {
        atexit(way[0] == 'j' ? join_second : upload);
        for (int k = 0; k < 40; k++) atexit(quick);
    }
    void *function = kernel("work", 10), *slow = kernel("queued_work", 1000);
    for (long k = 0; k < kernels; k++) launch(function, NULL);
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", kernels);
    fflush(stdout);
    for (long ms = 0; ms < queued_ms && ms < 1000; ms++) launch(slow, NULL);
    if (!strcmp(way, "return")) return 0;
    if (!strcmp(way, "exit3")) exit(3);
    if (!strcmp(way, "_exit4")) _exit(4);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "sigterm")) raise(SIGTERM);
    if (!strcmp(way, "sigkill")) raise(SIGKILL);
    if (!strcmp(way, "segv")) raise(SIGSEGV);
    if (!strcmp(way, "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, leave_from_thread, NULL);
        pthread_join(thread, NULL);
    }
    if (!strncmp(way, "two", 3) || !strcmp(way, "nine")) {
        int threads = way[0] == 't' ? 2 : 9;
        pthread_t thread;
        pthread_barrier_init(&together, NULL, threads);
        for (int k = 1; k < threads; k++) pthread_create(&thread, NULL, leave_from_thread, &together);
        leave_from_thread(&together);
    }
    if (!strcmp(way, "joins") || !strcmp(way, "uploads")) {
        atexit(let_second_exit);
        pthread_create(&second, NULL, leave_as_second, NULL);
        exit(4);
    }
    if (!strcmp(way, "interrupted")) {
        static pthread_t first;
        first = pthread_self();
        signal(SIGTERM, exit_on_signal);
        pthread_create(&second, NULL, interrupt, &first);
        exit(4);
    }
    if (!strcmp(way, "hang")) {
        printf("ready\n");
        fflush(stdout);
        for (;;) {
            for (int k = 0; k < 50; k++) launch(function, NULL);
            CHECK(cudaDeviceSynchronize());
        }
    }
    return 7;
}
