/* SPDX-License-Identifier: Apache-2.0
 * What a launch costs before CUPTI is attached, while it records, and after everything was switched
 * off again: in ns, and in instructions by the library that runs them. One plan a process:
 *
 *     residue KINDS PLAN [CUPTI [CUDART [LAUNCHER]]]        prints one line of JSON
 *
 * KINDS  none, registered (buffers and clock only), filter (launch calls), kernel, memcpy, records
 *        (kinds and filter), all (records, the subscription, callbacks of synchronizing calls),
 *        context (kinds switched context by context), rt, drv (as records, launch calls of the
 *        runtime, of the driver alone), callbacks (as records, launch calls by callbacks and not by
 *        the filter)
 * PLAN   letters, done one after the other:
 *        A attach   1 switch on   0 switch off   f forced flush   M measure
 *        U give up the subscription   F cuptiFinalize
 *        C create the context   G capture and instantiate a graph of 600 kernels
 *        W 50 windows beside launches
 *        before A: T a buffer a thread   D the device's buffers limited   Z buffers given out as
 *        zeroes
 *        R 12 windows of 50 ms beside launches (and the first graph's replays): what each of them
 *          recorded, and what is resident
 *        S the same as R, switched by the thread that launches   P by another one while that waits
 *        Q the same, and the GPU has nothing to do
 *        n w i b 60 windows, switched by the thread that launches: with no launches, with 5,000 in
 *          and 20,000 after each, in alone, after alone; g as w, each fifth launch a replay of the
 *          first graph; r as w, launched by the runtime, x by the name that CUDA 13's compiler
 *          calls, s by launch_symbol.cu: what is resident after 3, 22, 41 and 60
 *
 * Instructions are counted by single-stepping one launch from a parent process (ptrace): exact,
 * unlike times on this machine. No header of CUDA's is needed: everything is found by dlsym.
 * Build: gcc -O1 -o residue residue.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int (*fn)();
typedef struct { unsigned x, y, z; } dim3;

static void *cuda, *cupti, *cudart;
static fn load(void *library, const char *name) {
    fn f = library ? (fn)dlsym(library, name) : 0;
    return f;
}
#define CU(name) static fn name
CU(cuInit); CU(cuDevicePrimaryCtxRetain); CU(cuCtxSetCurrent); CU(cuCtxSynchronize); CU(cuStreamCreate); CU(cuModuleLoadData);
CU(cuModuleGetFunction); CU(cuLaunchKernel); CU(cuStreamBeginCapture_v2); CU(cuStreamEndCapture); CU(cuGraphInstantiateWithFlags);
CU(cuGraphLaunch); CU(cuStreamSynchronize);

static void *stream, *function, *kernel;
static int value;
static void *arguments[] = {&value};

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static void launch_driver(void) { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, (void *)0); }
typedef int (*launch_fn)(const void *, dim3, dim3, void **, size_t, void *);
static launch_fn cudaLaunchKernel;
static launch_fn cudaLaunchKernel13;
static void launch_compiled(void) { cudaLaunchKernel13(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream); }
static void (*by_symbol)(void *);
static void launch_symbol(void) { by_symbol(stream); }
static void launch_runtime(void) { cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, arguments, 0, stream); }

/* ---- records ---- */
static _Atomic long kernels, nodes, zero, others, calls, distinct;
static fn next_record;
static uint64_t clock_of_ours(void) { return now(); }
static void request(uint8_t **buffer, size_t *size, size_t *most) {
    *size = 1 << 20;
    *buffer = aligned_alloc(8, *size);
    memset(*buffer, 0, *size);
    *most = 0;
}
static void complete(void *context, uint32_t id, uint8_t *buffer, size_t size, size_t valid) {
    uint8_t *record = 0;
    (void)context; (void)id; (void)size;
    while (valid && next_record(buffer, valid, &record) == 0) {
        if (*(uint32_t *)record == 10) {
            uint64_t end = *(uint64_t *)(record + 24);
            static uint32_t last;
            uint32_t correlation = *(uint32_t *)(record + 92);
            if (correlation != last) distinct++;
            last = correlation;
            if (!end) zero++;
            if (*(uint32_t *)(record + 156)) nodes++;
            else kernels++;
        } else if (*(uint32_t *)record == 4 || *(uint32_t *)record == 5)
            calls++;
        else
            others++;
    }
    free(buffer);
}
static void callback(void *user, int domain, uint32_t id, const void *data) { (void)user; (void)domain; (void)id; (void)data; }

static void *subscriber, *context;
static const int KINDS[] = {1, 22, 2, 38, 10};
static const int LAUNCHES_RUNTIME[] = {211, 430, 505}, LAUNCHES_DRIVER[] = {307, 652}, SYNCS[] = {131, 165, 137, 41};
static const char *kinds;
static int is(const char *name) { return strcmp(kinds, name) == 0; }

static void filter(int on) {
    fn r = load(cupti, "cuptiActivityEnableRuntimeApi"), d = load(cupti, "cuptiActivityEnableDriverApi");
    for (int i = 0; r && !is("drv") && i < 3; i++) r(LAUNCHES_RUNTIME[i], on);
    for (int i = 0; d && !is("rt") && i < 2; i++) d(LAUNCHES_DRIVER[i], on);
}
static int has_filter(void) { return is("filter") || is("records") || is("all") || is("rt") || is("drv"); }
static void attach(void) {
    if (is("none")) return;
    if (is("all") || is("callbacks")) load(cupti, "cuptiSubscribe")(&subscriber, callback, (void *)0);
    load(cupti, "cuptiActivityRegisterTimestampCallback")(clock_of_ours);
    load(cupti, "cuptiActivityRegisterCallbacks")(request, complete);
}
static void one_kind(int kind, int on) {
    if (is("context")) load(cupti, on ? "cuptiActivityEnableContext" : "cuptiActivityDisableContext")(context, kind);
    else load(cupti, on ? "cuptiActivityEnable" : "cuptiActivityDisable")(kind);
}
static void toggle(int on) {
    if (is("none") || is("registered")) return;
    if (!on && has_filter()) filter(0);
    if (is("memcpy")) one_kind(1, on);
    else if (is("kernel")) one_kind(10, on);
    else if (!is("filter"))
        for (int i = 0; i < 5; i++) one_kind(KINDS[i], on);
    if (on && has_filter()) filter(1);
    for (int i = 0; subscriber && i < 4; i++) load(cupti, "cuptiEnableCallback")(on, subscriber, 2, SYNCS[i]);
    for (int i = 0; is("callbacks") && i < 3; i++) load(cupti, "cuptiEnableCallback")(on, subscriber, 2, LAUNCHES_RUNTIME[i]);
    for (int i = 0; is("callbacks") && i < 2; i++) load(cupti, "cuptiEnableCallback")(on, subscriber, 1, LAUNCHES_DRIVER[i]);
}
static void attribute(int id, size_t value, size_t size) {
    if (!is("none")) load(cupti, "cuptiActivitySetAttribute")(id, &size, &value);
}
static void flush(void) {
    if (!is("none")) load(cupti, "cuptiActivityFlushAll")(1);
}

/* ---- measuring ---- */
static int by_size(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return (x > y) - (x < y);
}
static double median_launch(void (*launch)(void)) {
    enum { BLOCKS = 41, EACH = 1000 };
    double all[BLOCKS];
    for (int b = 0; b < BLOCKS; b++) {
        uint64_t begin = now();
        for (int i = 0; i < EACH; i++) launch();
        all[b] = (double)(now() - begin) / EACH;
        cuCtxSynchronize();
    }
    qsort(all, BLOCKS, sizeof all[0], by_size);
    return all[BLOCKS / 2];
}
static void *new_graph(void) {
    void *graph = 0, *exec = 0;
    cuStreamBeginCapture_v2(stream, 2);
    for (int i = 0; i < 600; i++) launch_driver();
    cuStreamEndCapture(stream, &graph);
    cuGraphInstantiateWithFlags(&exec, graph, 0ull);
    return exec;
}
static double median_replay(void *exec) {
    enum { BLOCKS = 41 };
    double all[BLOCKS];
    if (!exec) return -1;
    for (int b = 0; b < BLOCKS; b++) {
        uint64_t begin = now();
        cuGraphLaunch(exec, stream);
        cuStreamSynchronize(stream);
        all[b] = (double)(now() - begin) / 1000;
    }
    qsort(all, BLOCKS, sizeof all[0], by_size);
    return all[BLOCKS / 2];
}

/* ---- instructions, counted from outside ---- */
__attribute__((noinline)) void stepping_begins(void) { __asm__ volatile("int3"); }
__attribute__((noinline)) void stepping_ends(void) { __asm__ volatile("int3"); }
static void count_one(const char *title, void (*launch)(void)) {
    for (int i = 0; i < 8; i++) launch();
    cuCtxSynchronize();
    printf("\"%s\": ", title);
    fflush(stdout);
    stepping_begins();
    launch();
    stepping_ends();
    cuCtxSynchronize();
}

struct map { uint64_t from, to; char name[64]; long count; };
static struct map maps[512];
static int read_maps(int pid) {
    char path[64], line[512];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *f = fopen(path, "r");
    while (f && n < 512 && fgets(line, sizeof line, f)) {
        char permissions[8], name[400] = "";
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx %7s %*s %*s %*s %399s", &from, &to, permissions, name) < 3 || permissions[2] != 'x') continue;
        char *base = strrchr(name, '/');
        maps[n] = (struct map){from, to, "", 0};
        snprintf(maps[n++].name, sizeof maps[0].name, "%.60s", base ? base + 1 : name);
    }
    if (f) fclose(f);
    return n;
}
/* Steps the child from one int3 to the next; prints how many instructions each library ran. */
static void step_through(int pid) {
    int n = read_maps(pid), status, last = -1;
    long total = 0, entries = 0;
    for (;;) {
        if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0) < 0 || waitpid(pid, &status, 0) < 0 || WIFEXITED(status) || WIFSIGNALED(status)) break;
        struct user_regs_struct r;
        ptrace(PTRACE_GETREGS, pid, 0, &r);
        if (r.rip == (uint64_t)stepping_ends || total > 3000000) break;
        total++;
        if (last < 0 || r.rip < maps[last].from || r.rip >= maps[last].to) {
            int before = last;
            for (last = n - 1; last >= 0 && (r.rip < maps[last].from || r.rip >= maps[last].to); last--) {}
            if (last >= 0 && last != before && strstr(maps[last].name, "cupti") && entries < 40) {
                fprintf(stderr, "%s enters cupti at +%llx\n", kinds, (unsigned long long)(r.rip - maps[last].from));
                entries++;
            }
        }
        if (last >= 0) maps[last].count++;
    }
    printf("{\"total\": %ld", total);
    for (int i = 0; i < n; i++)
        if (maps[i].count) printf(", \"%s\": %ld", maps[i].name, maps[i].count);
    printf("}, ");
    fflush(stdout);
}

/* ---- window cycles beside a launching thread ---- */
static volatile int stop;
static double longest_us;
static void *launcher(void *unused) {
    (void)unused;
    uint64_t n = 0;
    while (!stop) {
        uint64_t begin = now();
        launch_driver();
        double us = (double)(now() - begin) / 1000;
        if (us > longest_us) longest_us = us;
        if (++n % 500 == 0) cuStreamSynchronize(stream);
    }
    return 0;
}
static void cycles(void) {
    pthread_t thread;
    double ons[50], offs[50];
    pthread_create(&thread, 0, launcher, 0);
    usleep(200000);
    double quiet = longest_us;
    longest_us = 0;
    for (int i = 0; i < 50; i++) {
        uint64_t a = now();
        toggle(1);
        uint64_t b = now();
        usleep(3000);
        uint64_t c = now();
        toggle(0);
        offs[i] = (double)(now() - c) / 1000;
        ons[i] = (double)(b - a) / 1000;
        usleep(3000);
    }
    stop = 1;
    pthread_join(thread, 0);
    qsort(ons, 50, sizeof ons[0], by_size);
    qsort(offs, 50, sizeof offs[0], by_size);
    printf("{\"cycle_on_us\": [%.0f, %.0f], \"cycle_off_us\": [%.0f, %.0f], \"longest_launch_us\": [%.0f, %.0f]}, ", ons[25], ons[49], offs[25], offs[49],
           quiet, longest_us);
}

/* What twelve windows record. */
static void *replayed;
static pthread_mutex_t between_launches = PTHREAD_MUTEX_INITIALIZER;
static volatile int pauses, wanted, is_on, by_launcher;
static void *launcher_and_replayer(void *unused) {
    (void)unused;
    for (uint64_t n = 0; !stop; n++) {
        if (by_launcher && wanted != is_on) {
            toggle(wanted);
            is_on = wanted;
        }
        if (pauses) pthread_mutex_lock(&between_launches);
        if (cudaLaunchKernel && n % 2) launch_runtime();
        else launch_driver();
        if (replayed && n % 20 == 0) cuGraphLaunch(replayed, stream);
        if (pauses) pthread_mutex_unlock(&between_launches);
        if (n % 100 == 0) cuStreamSynchronize(stream);
        if (pauses && n % 10 == 0) usleep(20);
    }
    return 0;
}
static void switch_beside(char way, int on) {
    if (way == 'S') {
        wanted = on;
        while (is_on != on) usleep(50);
        return;
    }
    if (pauses) pthread_mutex_lock(&between_launches);
    if (way == 'Q') cuStreamSynchronize(stream);
    toggle(on);
    if (pauses) pthread_mutex_unlock(&between_launches);
}
static long resident_kb(void) {
    long pages = 0, kb = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*s %ld", &pages) == 1) kb = pages * 4;
    if (f) fclose(f);
    return kb;
}
static void record_windows(char way, void *graph, int was_on) {
    pthread_t thread;
    cuCtxSetCurrent(context);
    (replayed = graph, stop = 0, by_launcher = way == 'S', pauses = way == 'P' || way == 'Q', wanted = is_on = was_on);
    pthread_create(&thread, 0, launcher_and_replayer, 0);
    printf("{\"windows\": [");
    for (int i = 0; i < 12; i++) {
        long k = kernels, n = nodes, c = calls, d = distinct, z = zero;
        switch_beside(way, 1);
        for (int j = 0; j < 5; j++) {
            usleep(10000);
            load(cupti, "cuptiActivityFlushAll")(0);
        }
        switch_beside(way, 0);
        usleep(20000);
        flush();
        printf("%s\"%ld kernels, %ld nodes, %ld calls, %ld ids, %ld zero, %ld kB\"", i ? ", " : "", kernels - k, nodes - n, calls - c,
               distinct - d, zero - z, resident_kb());
        fflush(stdout);
    }
    printf("]}, ");
    stop = 1;
    pthread_join(thread, 0);
}

/* What 60 windows leave in memory, by where the launches are. */
static void launch_many(int n, void *graph, void (*launch)(void)) {
    for (int i = 0; i < n; i++) {
        if (graph && i % 5 == 0) cuGraphLaunch(graph, stream);
        else launch();
        if (i % 100 == 0) cuStreamSynchronize(stream);
    }
}
static void keep(char way, void *graph) {
    cuCtxSetCurrent(context);
    int both = strchr("wgrxs", way) != 0, in = way == 'i' || both, behind = way == 'b' || both;
    void (*launch)(void) = way == 'r' && cudaLaunchKernel ? launch_runtime : way == 'x' && cudaLaunchKernel13 ? launch_compiled
                           : way == 's' && by_symbol ? launch_symbol : launch_driver;
    printf("{\"%c kB\": [", way);
    if (way != 'g') graph = 0;
    for (int i = 0; i < 60; i++) {
        toggle(1);
        launch_many(in ? 5000 : 0, graph, launch);
        load(cupti, "cuptiActivityFlushAll")(0);
        toggle(0);
        flush();
        launch_many(behind ? 20000 : 0, graph, launch);
        if (i == 2 || i % 19 == 2) printf("%s%ld", i == 2 ? "" : ", ", resident_kb());
    }
    printf("]}, ");
    fflush(stdout);
}

static const char PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u32 a) { ret; }\n";
static void start_cuda(void) {
    void *module;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, 1);
    if (cuModuleLoadData(&module, PTX)) { fprintf(stderr, "no module\n"); exit(1); }
    cuModuleGetFunction(&function, module, "k");
    if (cudart) {
        void *library;
        fn l = load(cudart, "cudaLibraryLoadData"), k = load(cudart, "cudaLibraryGetKernel");
        if (l && l(&library, PTX, (void *)0, (void *)0, 0, (void *)0, (void *)0, 0) == 0 && k(&kernel, library, "k") == 0)
            cudaLaunchKernel = (launch_fn)dlsym(cudart, "cudaLaunchKernel"), cudaLaunchKernel13 = (launch_fn)dlsym(cudart, "__cudaLaunchKernel");
    }
    for (int i = 0; i < 3000; i++) launch_driver();
    if (cudaLaunchKernel) launch_runtime();
    cuCtxSynchronize();
}
static void measure(void **graphs, int count) {
    long before = nodes, plain = kernels;
    printf("{\"driver_ns\": %.0f, ", median_launch(launch_driver));
    if (cudaLaunchKernel) printf("\"runtime_ns\": %.0f, ", median_launch(launch_runtime));
    printf("\"replay_us\": [");
    for (int i = 0; i < count; i++) printf("%s%.0f", i ? ", " : "", median_replay(graphs[i]));
    printf("], ");
    count_one("instructions", launch_driver);
    flush();
    printf("\"kernels\": %ld, \"nodes\": %ld}, ", kernels - plain, nodes - before);
    fflush(stdout);
}
static void child(const char *plan) {
    void *graphs[8] = {0};
    int count = 0;
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    cuInit(0);
    printf("{\"kinds\": \"%s\", \"plan\": \"%s\", \"measured\": [", kinds, plan);
    for (; *plan; plan++) switch (*plan) {
        case 'A': attach(); break;
        case '1': toggle(1); break;
        case '0': toggle(0); break;
        case 'f': flush(); break;
        case 'U': if (subscriber) load(cupti, "cuptiUnsubscribe")(subscriber), subscriber = 0; break;
        case 'F': load(cupti, "cuptiFinalize")(); break;
        case 'C': start_cuda(); break;
        case 'G': if (count < 8) graphs[count++] = new_graph(); break;
        case 'M': measure(graphs, count); break;
        case 'W': cycles(); break;
        case 'R': case 'S': case 'P': case 'Q': record_windows(*plan, graphs[0], 0); break;
        case 'n': case 'w': case 'i': case 'b': case 'g': case 'r': case 'x': case 's': keep(*plan, graphs[0]); break;
        case 'T': attribute(9, 1, 1); break;
        case 'Z': attribute(5, 1, 1); break;
        case 'D': attribute(0, 3200000, 8), attribute(2, 10, 8), attribute(6, 3, 8); break;
        }
    printf("{}], \"without_end\": %ld}\n", zero);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: residue KINDS PLAN [CUPTI [CUDART [LAUNCHER]]]\n"); return 2; }
    kinds = argv[1];
    cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!cuda) { fprintf(stderr, "no libcuda: %s\n", dlerror()); return 1; }
    if (argc > 4) cudart = dlopen(argv[4], RTLD_NOW | RTLD_GLOBAL);
    void *launcher = argc > 5 ? dlopen(argv[5], RTLD_NOW) : 0;
    if (argc > 5 && !launcher) { fprintf(stderr, "no launcher: %s\n", dlerror()); return 1; }
    if (launcher) by_symbol = (void (*)(void *))dlsym(launcher, "launch_symbol");
    if (argc > 3 && !is("none")) {
        cupti = dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL);
        if (!cupti) { fprintf(stderr, "no cupti: %s\n", dlerror()); return 1; }
        next_record = load(cupti, "cuptiActivityGetNextRecord");
    }
#define GET(name) name = load(cuda, #name)
    GET(cuInit); GET(cuDevicePrimaryCtxRetain); GET(cuCtxSetCurrent); GET(cuCtxSynchronize); GET(cuStreamCreate); GET(cuModuleLoadData);
    GET(cuModuleGetFunction); GET(cuLaunchKernel); GET(cuStreamBeginCapture_v2); GET(cuStreamEndCapture); GET(cuGraphInstantiateWithFlags);
    GET(cuGraphLaunch); GET(cuStreamSynchronize);
    int pid = fork(), status;
    if (pid == 0) child(argv[2]);
    while (waitpid(pid, &status, 0) == pid) {
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        if (WIFSIGNALED(status)) { printf("\"killed by signal\": %d}\n", WTERMSIG(status)); return 1; }
        int signal = WSTOPSIG(status);
        if (signal == SIGTRAP) {
            struct user_regs_struct r;
            ptrace(PTRACE_GETREGS, pid, 0, &r);
            if (r.rip == (uint64_t)stepping_begins + 1) step_through(pid);
            signal = 0;
        }
        ptrace(PTRACE_CONT, pid, 0, signal);
    }
    return 1;
}
