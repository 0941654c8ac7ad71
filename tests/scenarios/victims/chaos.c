// SPDX-License-Identifier: Apache-2.0
// link: -rdynamic -lcudart -lcuda
// A program that does anything a training run may do, in an order that a seed decides
// (scenarios/src/chaos).
//
// usage: chaos SEED ACTIONS WAY [FILE_LIMIT]
//   ACTIONS     how many random actions: launches on streams, threads, forks, programs run,
//               signals, being stopped, memory, graphs, modules, clock steps, loading libraries,
//               closing descriptors; each says what it did on stdout
//   WAY         return, exit, thread (exit in one), last (main ends first), handler, _exit, quick,
//               abort, segv, sigterm, sigkill, exec; "forever" does not come to an end: it is
//               killed
//   FILE_LIMIT  RLIMIT_FSIZE from cuInit on, bytes; "none" otherwise
// stdout depends on the arguments alone. "launched N" before the end: what this program itself
// launched and waited for.
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int cudaStreamDestroy(cudaStream_t);
int cudaGraphExecDestroy(cudaGraphExec_t);
int cudaGraphDestroy(cudaGraph_t);

extern char **environ;

enum { STREAMS = 6, KERNELS = 5, BACKGROUND = 4, THREADS = 70 };

static char *self, *seed_word;
static void *functions[KERNELS];
static cudaStream_t streams[STREAMS];  // the first is the null stream
static long launched;                  // main's and its joined threads', atomically
static pthread_t background[BACKGROUND];
static int in_background;
static int told_to_stop;
static int data_file = -1;  // our own file under a high number, once all descriptors were closed
static long data_bytes;

// ---- a clock that somebody sets: this definition comes before libc's for every library of the
// process

static int64_t clock_step;

int clock_gettime(clockid_t id, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME && result == 0) t->tv_sec += __atomic_load_n(&clock_step, __ATOMIC_RELAXED);
    return result;
}

int gettimeofday(struct timeval *t, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

// ---- small things

static uint64_t next(uint64_t *state) {  // splitmix64
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static long between(uint64_t *state, long least, long most) {
    return least + (long)(next(state) % (uint64_t)(most - least + 1));
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char line[200];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(1, line, length) != length) _exit(91);
}

static void pause_us(long us) {  // whatever signals come meanwhile
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

static void launches(uint64_t *state, long count, cudaStream_t stream) {
    for (long n = 0; n < count; n++) launch(functions[next(state) % KERNELS], stream);
    __atomic_add_fetch(&launched, count, __ATOMIC_RELAXED);
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// ---- threads

struct work {
    uint64_t state;
    long kernels;
    int own_stream, way_out;
};

static void *short_thread(void *argument) {
    struct work *work = argument;
    cudaStream_t stream = NULL;
    if (work->own_stream) CHECK(cudaStreamCreateWithFlags(&stream, 1));
    launches(&work->state, work->kernels, stream);
    CHECK(cudaStreamSynchronize(stream));
    if (work->own_stream) CHECK(cudaStreamDestroy(stream));
    if (work->way_out) pthread_exit(argument);
    return argument;
}

static void threads(uint64_t *state) {
    static struct work work[THREADS];
    pthread_t ids[THREADS];
    long count = next(state) % 8 ? between(state, 1, 10) : between(state, 50, THREADS);
    for (long t = 0; t < count; t++) {
        work[t] = (struct work){next(state), between(state, 1, 60), next(state) % 2, next(state) % 2};
        if (pthread_create(&ids[t], NULL, short_thread, &work[t])) _exit(92);
    }
    for (long t = 0; t < count; t++) pthread_join(ids[t], NULL);
    say("threads %ld\n", count);
}

// Launches beside the others until it is told to stop, or the driver is gone. What it launched is
// in no count.
static void *long_thread(void *argument) {
    dim3 one = {64, 1, 1};
    uint64_t state = (uintptr_t)argument;
    while (!__atomic_load_n(&told_to_stop, __ATOMIC_RELAXED)) {
        for (int n = 0; n < 20; n++)
            if (cudaLaunchKernel(functions[next(&state) % KERNELS], one, one, NULL, 0, NULL)) return NULL;
        pause_us(between(&state, 200, 4000));
        if (next(&state) % 8 == 0 && cudaStreamSynchronize(NULL)) return NULL;
    }
    return NULL;
}

static void end_background(void) {
    __atomic_store_n(&told_to_stop, 1, __ATOMIC_RELAXED);
    while (in_background > 0) pthread_join(background[--in_background], NULL);
    __atomic_store_n(&told_to_stop, 0, __ATOMIC_RELAXED);
}

// ---- children

static void fork_one(uint64_t *state) {
    static const char *const NAMES[] = {"_exit", "exit", "silent", "uses CUDA", "abort", "killed", "grandchild", "closes", "thread"};
    long kind = between(state, 0, 8), status = between(state, 0, 99), us = between(state, 0, 20000);
    if (in_background && (kind == 3 || kind == 8)) kind = 0;  // the simulated driver may be forked with its lock held
    pid_t child = fork();
    if (child == 0) {
        char *words[] = {self, "child", NULL};
        switch (kind) {
        case 0: _exit(status);
        case 1: pause_us(us); exit(status);
        case 2: execv(self, words); _exit(93);
        case 3: status = cudaDeviceSynchronize(); pause_us(us); _exit(status == 0 ? 94 : 5);
        case 4: abort();
        case 5: for (;;) pause();
        case 6: {
            pid_t grandchild = fork();
            if (grandchild == 0) exit(status);
            _exit(wait_for(grandchild));
        }
        case 7: close_range(3, ~0u, 0); pause_us(us); exit(status);
        default: {
            pthread_t thread;
            void *out = NULL;
            if (pthread_create(&thread, NULL, long_thread, NULL)) _exit(92);  // its first launch is refused
            pthread_join(thread, &out);
            exit(status);
        }
        }
    }
    if (kind == 5) pause_us(us), kill(child, SIGKILL);
    if (next(state) % 2) launches(state, between(state, 1, 100), streams[1]);
    say("child %s: %d\n", NAMES[kind], wait_for(child));
}

static void run_one(uint64_t *state) {
    char *words[] = {self, "child", NULL};
    pid_t child = 0;
    long kind = between(state, 0, 2);
    if (kind == 0) {
        say("system: %d\n", system("exit 3"));
    } else if (kind == 1) {
        if (posix_spawn(&child, self, NULL, NULL, words, environ)) _exit(95);
        say("spawned: %d\n", wait_for(child));
    } else {
        if ((child = vfork()) == 0) {
            execv(self, words);
            _exit(93);
        }
        say("vfork: %d\n", wait_for(child));
    }
}

// A program of its own that uses CUDA, and is recorded as such.
static void run_another(uint64_t *state) {
    char word[32];
    char *words[] = {self, word, "3", "return", "nested", NULL};
    snprintf(word, sizeof word, "%lu", next(state) >> 1);
    pid_t child = fork();
    if (child == 0) {
        execv(self, words);
        _exit(93);
    }
    say("another: %d\n", wait_for(child));
}

// ---- signals, being stopped

static volatile sig_atomic_t signals;

static void on_signal(int signal) {
    (void)signal;
    signals++;
}

static void get_signals(uint64_t *state) {
    struct sigaction action = {.sa_handler = on_signal};
    long kind = between(state, 0, 2), period = between(state, 500, 5000), kernels = between(state, 100, 600);
    action.sa_flags = (next(state) % 2 ? SA_RESTART : 0) | (next(state) % 2 ? SA_ONSTACK : 0);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    struct itimerval often = {{0, period}, {0, period}}, never = {{0, 0}, {0, 0}};
    int which = kind == 0 ? ITIMER_REAL : ITIMER_PROF;
    if (kind < 2) setitimer(which, &often, NULL);
    for (long n = 0; n < kernels; n += 20) {
        launches(state, 20, streams[next(state) % STREAMS]);
        if (kind == 2) next(state) % 2 ? raise(SIGUSR1) : kill(getpid(), SIGUSR1);
    }
    CHECK(cudaDeviceSynchronize());
    setitimer(which, &never, NULL);
    say("signals, kind %ld\n", kind);
}

static void be_stopped(uint64_t *state) {
    long before = between(state, 0, 5000), length = next(state) % 4 ? between(state, 100, 50000) : between(state, 300000, 700000);
    uint64_t own = *state;  // how often it is used is chance
    pid_t parent = getpid(), helper = fork();
    if (helper == 0) {
        pause_us(before);
        kill(parent, SIGSTOP);
        pause_us(length);
        kill(parent, SIGCONT);
        _exit(0);
    }
    int status;
    while (waitpid(helper, &status, WNOHANG) == 0) {
        launches(&own, 10, NULL);
        CHECK(cudaStreamSynchronize(NULL));
    }
    __atomic_store_n(&launched, 0, __ATOMIC_RELAXED);  // how many it were is chance: "launched" counts from here on
    say("stopped\n");
}

// ---- the GPU

static void use_streams(uint64_t *state) {
    long rounds = between(state, 1, 6);
    for (long round = 0; round < rounds; round++) {
        cudaStream_t stream = streams[next(state) % STREAMS];
        launches(state, between(state, 1, 200), stream);
        cudaEvent_t event;
        switch (next(state) % 4) {
        case 0: CHECK(cudaDeviceSynchronize()); break;
        case 1: CHECK(cudaStreamSynchronize(stream)); break;
        case 2:
            CHECK(cudaEventCreate(&event));
            CHECK(cudaEventRecord(event, stream));
            CHECK(cudaStreamWaitEvent(streams[next(state) % STREAMS], event, 0));
            CHECK(cudaEventSynchronize(event));
            break;
        default: break;
        }
    }
    say("streams %ld\n", rounds);
}

static void use_memory(uint64_t *state) {
    size_t size = between(state, 1, 4 << 20);
    void *device, *pinned, *plain = malloc(size);
    memset(plain, 1, size);
    CHECK(cudaMalloc(&device, size));
    CHECK(cudaMallocHost(&pinned, size));
    CHECK(cudaMemcpyAsync(device, next(state) % 2 ? pinned : plain, size, 1, streams[next(state) % STREAMS]));
    CHECK(cudaMemsetAsync(device, 0, size, streams[next(state) % STREAMS]));
    CHECK(cudaMemcpy(plain, device, size, 2));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    free(plain);
    say("memory %zu\n", size);
}

static void use_graph(uint64_t *state) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    long nodes = between(state, 1, 40), times = between(state, 1, 8);
    CHECK(cudaStreamBeginCapture(streams[2], 0));
    for (long n = 0; n < nodes; n++) launch(functions[next(state) % KERNELS], streams[2]);
    CHECK(cudaStreamEndCapture(streams[2], &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (long n = 0; n < times; n++) CHECK(cudaGraphLaunch(exec, streams[2]));
    CHECK(cudaStreamSynchronize(streams[2]));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    launched += nodes * times;
    say("graph %ld %ld\n", nodes, times);
}

static void use_module(uint64_t *state) {
    CUmodule module;
    CUfunction function;
    char name[40];
    long kernels = between(state, 1, 60);
    snprintf(name, sizeof name, "module_kernel_%ld:%ld", between(state, 0, 999), between(state, 1, 30));
    CHECK(cuModuleLoadData(&module, "image"));
    CHECK(cuModuleGetFunction(&function, module, name));
    for (long n = 0; n < kernels; n++)
        CHECK(cuLaunchKernel(function, 16, 1, 1, 64, 1, 1, 0, streams[next(state) % STREAMS], NULL, NULL));
    CHECK(cudaDeviceSynchronize());
    if (next(state) % 2) pause_us(between(state, 0, 80000));
    CHECK(cuModuleUnload(module));
    launched += kernels;
    say("module %ld\n", kernels);
}

// ---- the process

static void load_library(uint64_t *state) {
    static const char *const NAMES[] = {"libm.so.6", "libresolv.so.2", "libutil.so.1", "libnss_files.so.2", "none.so"};
    void *library = dlopen(NAMES[next(state) % 5], next(state) % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL);
    if (library && next(state) % 2) dlclose(library);
    say("loaded\n");
}

static void change_environment(uint64_t *state) {
    char name[40];
    for (int n = 0; n < 60; n++) {
        snprintf(name, sizeof name, "CHAOS_%lu", next(state) % 200);
        next(state) % 3 ? setenv(name, "value", 1) : unsetenv(name);
    }
    if (chdir(next(state) % 2 ? "/" : "/usr")) _exit(96);
    say("environment\n");
}

// As a daemon does; then a file of ours under all numbers that gapprobe may have had.
static void close_descriptors(uint64_t *state) {
    char path[300];
    close_range(3, ~0u, 0);
    snprintf(path, sizeof path, "%s/chaos-data", getenv("CHAOS_FOLDER"));
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int number = 300; number < 340; number++) dup2(file, number);
    data_file = 300;
    data_bytes = between(state, 1, 4000);
    close(file);
    for (long n = 0; n < data_bytes; n++)
        if (write(data_file, "d", 1) != 1) _exit(97);
    say("closed\n");
}

static void check_data(void) {
    char bytes[4096];
    if (data_file < 0) return;
    long length = pread(data_file, bytes, sizeof bytes, 0), whole = 0;
    while (whole < length && bytes[whole] == 'd') whole++;
    say("data %s\n", length == data_bytes && whole == length ? "whole" : "DAMAGED");
}

static void act(uint64_t *state, int nested) {
    static const unsigned char WEIGHTS[] = {20, 10, 6, 10, 6, 4, 8, 5, 8, 8, 8, 4, 6, 4, 2, 3, 1};
    long total = 0, kind = 0;
    for (size_t n = 0; n < sizeof WEIGHTS; n++) total += WEIGHTS[n];
    for (long at = between(state, 0, total - 1); at >= WEIGHTS[kind]; kind++) at -= WEIGHTS[kind];
    switch (kind) {
    case 0: use_streams(state); break;
    case 1: threads(state); break;
    case 2:
        if (in_background < BACKGROUND && !pthread_create(&background[in_background], NULL, long_thread, (void *)(uintptr_t)next(state)))
            in_background++;
        say("background\n");
        break;
    case 3: fork_one(state); break;
    case 4: run_one(state); break;
    case 5: nested || data_file >= 0 ? run_one(state) : run_another(state); break;
    case 6: get_signals(state); break;
    case 7: be_stopped(state); break;
    case 8: use_memory(state); break;
    case 9: use_graph(state); break;
    case 10: use_module(state); break;
    case 11:
        __atomic_store_n(&clock_step, between(state, -100000000, 100000000), __ATOMIC_RELAXED);
        say("clock %ld\n", (long)clock_step);
        break;
    case 12: pause_us(between(state, 0, 120000)); say("slept\n"); break;
    case 13: load_library(state); break;
    case 14: change_environment(state); break;
    case 15:
        CHECK(cudaProfilerStart());
        use_streams(state);
        CHECK(cudaProfilerStop());
        break;
    default: nested ? use_streams(state) : close_descriptors(state); break;
    }
}

// When our end began: what other threads do from then on is followed by nobody.
static void note_the_end(void) {
    char path[300], text[40];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(path, sizeof path, "%s/end.%d", getenv("CHAOS_FOLDER"), getpid());
    int length = snprintf(text, sizeof text, "%lld", now.tv_sec * 1000000000ll + now.tv_nsec);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, text, length) != length) _exit(97);
    close(file);
}

static void *exits(void *unused) {
    exit(5);
    return unused;
}

static void *goes_on(void *unused) {
    uint64_t state = 7;
    pause_us(20000);  // main is gone
    launches(&state, 300, NULL);
    CHECK(cudaDeviceSynchronize());
    pause_us(20000);
    exit(6);
    return unused;
}

static void exit_in_handler(int signal) {
    (void)signal;
    exit(8);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "child")) return 7;
    if (argc < 4) return 2;
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    self = realpath("/proc/self/exe", NULL), seed_word = argv[1];
    uint64_t state = strtoull(seed_word, NULL, 10);
    long actions = atol(argv[2]);
    const char *way = argv[3];
    int nested = argc > 4 && !strcmp(argv[4], "nested");
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&other, NULL);
    CHECK(cuInit(0));
    if (argc > 4 && !nested && strcmp(argv[4], "none")) {
        struct rlimit limit = {strtoul(argv[4], NULL, 10), strtoul(argv[4], NULL, 10)};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    static const char *const NAMES[KERNELS] = {"gemm", "gelu", "norm", "softmax", "adam"};
    static const double LENGTHS[KERNELS] = {40, 8, 4, 15, 1.5};
    for (int n = 0; n < KERNELS; n++) functions[n] = kernel(NAMES[n], LENGTHS[n]);
    for (int n = 1; n < STREAMS; n++) CHECK(cudaStreamCreateWithFlags(&streams[n], n % 2));
    for (long n = 0; n < actions || !strcmp(way, "forever"); n++) act(&state, nested);
    int polite = nested || !strcmp(way, "exit") || next(&state) % 2;  // else threads go on while the process ends
    if (polite) end_background();
    CHECK(cudaDeviceSynchronize());
    check_data();
    say("launched %ld\n", launched);
    say(polite ? "ends alone\n" : "ends among threads\n");
    note_the_end();
    if (!polite) launches(&state, between(&state, 0, 500), streams[3]);  // queued when it ends
    if (!strcmp(way, "exit")) exit(3);
    if (!strcmp(way, "_exit")) _exit(4);
    if (!strcmp(way, "quick")) quick_exit(9);
    if (!strcmp(way, "abort")) abort();
    if (!strcmp(way, "segv")) raise(SIGSEGV);
    if (!strcmp(way, "sigterm")) raise(SIGTERM);
    if (!strcmp(way, "sigkill")) raise(SIGKILL);
    pthread_t thread;
    if (!strcmp(way, "thread") && !pthread_create(&thread, NULL, exits, NULL)) pthread_join(thread, NULL);
    if (!strcmp(way, "last") && !pthread_create(&thread, NULL, goes_on, NULL)) pthread_exit(NULL);
    if (!strcmp(way, "handler")) {
        signal(SIGUSR2, exit_in_handler);
        raise(SIGUSR2);
    }
    if (!strcmp(way, "exec")) {
        char truth[400];
        snprintf(truth, sizeof truth, "%s.exec", getenv("SIM_TRUTH") ? getenv("SIM_TRUTH") : "");
        if (getenv("SIM_TRUTH")) setenv("SIM_TRUTH", truth, 1);
        char *words[] = {self, seed_word, "2", "return", "nested", NULL};
        execv(self, words);
        return 98;
    }
    return 0;
}
