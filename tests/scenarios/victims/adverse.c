// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A program that makes it hard for what lives inside it, after 400 kernels.
//
// usage: adverse WAY [ARGUMENT]
//   clone        4 children made by the system call alone (no fork handlers run) that end by
//                exit(7): "child STATUS" each
//   memory go|exit  takes all memory its limit leaves, sleeps 1.2 s; go: gives it back and goes on,
//                   exit: ends with status 3
//   handler      ends by exit(0) in a handler of SIGTERM, which interrupts malloc and free; prints
//                "ready" before
//   last         its main thread ends; another uses new kernels for 600 ms, then ends the process
//                with status 6
//   threads      may make no more threads (as user 65534, if it is root's)
//   files        may open no more files, as a sandbox has it, and goes on for half a second
//   library FILE loads FILE, whose constructor uses the GPU: "loading took MS ms"
//   removes      removes its recording right before its end, as who tidies its TMPDIR away does
//   place        bound to one CPU; realtime: of class SCHED_FIFO, both before the first use. "NAME
//                cpus N class N" a thread
//   capture      calls cudaProfilerStop, says "off" and goes on until it is killed
//   elsewhere    a thread of its own calls cudaProfilerStart and Stop 120 times, main synchronizes
//                40 times in between: "wanted N" calls
//   faults       "faults N" three times: page faults of this thread in 2,000 launches after a fork
// Prints "launched N" at a normal end.
#define _GNU_SOURCE
#include "sim.h"
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *function;
static long launched;

static void work(int steps) {
    for (int step = 0; step < steps; step++) {
        for (int k = 0; k < 20; k++, launched++) launch(function, NULL);
        CHECK(cudaDeviceSynchronize());
    }
}

static void end(int signal) {
    (void)signal;
    exit(0);
}

static pthread_barrier_t turn;

static void *switch_capture(void *rounds) {
    for (long n = (long)rounds; n > 0; n--) {
        pthread_barrier_wait(&turn);
        CHECK(cudaProfilerStart());
        pthread_barrier_wait(&turn);  // main works
        pthread_barrier_wait(&turn);
        CHECK(cudaProfilerStop());
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static void capture_from_elsewhere(long rounds, int calls) {
    pthread_t thread;
    pthread_barrier_init(&turn, NULL, 2);
    if (pthread_create(&thread, NULL, switch_capture, (void *)rounds)) abort();
    for (long n = 0; n < rounds; n++) {
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        for (int call = 0; call < calls; call++) {
            CHECK(cudaDeviceSynchronize());
            usleep(50);
        }
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        usleep(3000);
    }
    pthread_join(thread, NULL);
    printf("wanted %ld\n", rounds * calls);
}

static void *go_on(void *unused) {
    usleep(50000);  // main is gone
    function = kernel("after_main", 20);
    for (int n = 0; n < 60; n++) work(1), usleep(10000);
    exit(6);
    return unused;
}

static void limit(int what, rlim_t soft) {
    struct rlimit r;
    getrlimit(what, &r);
    r.rlim_cur = soft;
    if (setrlimit(what, &r)) perror("setrlimit");
}

// All there is, in pieces of up to 1 MB, chained by their first words.
static void **take_all(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) exit(91);
    fclose(file);
    limit(RLIMIT_AS, pages * 4096);
    void **taken = NULL, **piece;
    for (size_t size = 1 << 20; size >= 16; size /= 2)
        while ((piece = malloc(size))) *piece = taken, taken = piece;
    return taken;
}

static void show_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(tasks));) {
        char path[300], name[32] = "";
        cpu_set_t cpus;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(name, sizeof name, file)) continue;
        fclose(file);
        name[strcspn(name, "\n")] = 0;
        CPU_ZERO(&cpus);
        sched_getaffinity(atoi(e->d_name), sizeof cpus, &cpus);
        printf("%s cpus %d class %d\n", name, CPU_COUNT(&cpus), sched_getscheduler(atoi(e->d_name)));
    }
    closedir(tasks);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "", *argument = argc > 2 ? argv[2] : "";
    if (!strcmp(way, "library")) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        if (!dlopen(argument, RTLD_NOW)) {
            fprintf(stderr, "%s\n", dlerror());
            return 92;
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("loading took %ld ms\n", (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
    } else if (!strcmp(way, "place")) {
        cpu_set_t before, one;
        sched_getaffinity(0, sizeof before, &before);
        CPU_ZERO(&one);
        for (int cpu = 0; CPU_COUNT(&one) == 0 && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one)) return 93;
    } else if (!strcmp(way, "realtime")) {
        struct sched_param priority = {.sched_priority = 1};
        if (sched_setscheduler(0, SCHED_FIFO, &priority)) {
            printf("not allowed\n");
            return 0;
        }
    }
    function = kernel("step", 20);
    work(20);
    if (!strcmp(way, "clone")) {
        fflush(stdout);
        for (int n = 0; n < 4; n++) {
            int status;
            pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (child == 0) exit(7);
            waitpid(child, &status, 0);
            printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
            fflush(stdout);
        }
        work(20);
    } else if (!strcmp(way, "memory")) {
        usleep(400000);  // what was done so far is recorded
        void **taken = take_all();
        usleep(1200000);
        if (!strcmp(argument, "exit")) exit(3);
        for (void **next; taken; taken = next) next = *taken, free(taken);
        limit(RLIMIT_AS, RLIM_INFINITY);
        work(20);
    } else if (!strcmp(way, "handler")) {
        signal(SIGTERM, end);
        if (write(1, "ready\n", 6) != 6) return 94;
        for (;;) {
            void *blocks[64];
            for (int n = 0; n < 64; n++) blocks[n] = malloc(3000 + n * 1000);
            for (int n = 0; n < 64; n++) free(blocks[n]);
        }
    } else if (!strcmp(way, "last")) {
        pthread_t thread;
        if (!pthread_create(&thread, NULL, go_on, NULL)) pthread_exit(NULL);
    } else if (!strcmp(way, "threads")) {
        if (getuid() == 0 && setuid(65534)) perror("setuid");
        limit(RLIMIT_NPROC, 0);
        work(20);
    } else if (!strcmp(way, "removes")) {
        usleep(300000);  // it is there
        if (system("rm -f \"$TMPDIR\"/gapprobe-*/*.gpr")) return 96;
    } else if (!strcmp(way, "files")) {
        limit(RLIMIT_NOFILE, 0);
        for (int n = 0; n < 20; n++) work(1), usleep(25000);
    } else if (!strcmp(way, "place") || !strcmp(way, "realtime")) {
        show_threads();
    } else if (!strcmp(way, "capture")) {
        CHECK(cudaProfilerStop());
        if (write(1, "off\n", 4) != 4) return 94;
        for (;;) work(1);
    } else if (!strcmp(way, "elsewhere")) {
        capture_from_elsewhere(120, 40);
    } else if (!strcmp(way, "faults")) {
        usleep(200000);
        for (int round = 0; round < 3; round++) {
            struct rusage before, after;
            int ends[2];
            char byte;
            if (pipe(ends)) return 95;
            pid_t child = fork();
            if (child == 0) {
                close(ends[1]);
                _exit(read(ends[0], &byte, 1) != 0);  // until the parent closes its end
            }
            getrusage(RUSAGE_THREAD, &before);
            work(100);
            getrusage(RUSAGE_THREAD, &after);
            printf("faults %ld\n", after.ru_minflt - before.ru_minflt);
            close(ends[0]), close(ends[1]);
            waitpid(child, NULL, 0);
        }
    }
    printf("launched %ld\n", launched);
    return 0;
}
