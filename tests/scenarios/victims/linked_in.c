// SPDX-License-Identifier: Apache-2.0
// A program with the CUDA runtime linked in, as nvcc makes it: it holds code for GPUs, opens the
// driver, asks dlsym for cuGetProcAddress_v2, and that for itself and all others, before it calls
// cuInit. Steps are not marked: LAYERS pairs of kernels, and one that comes once.
//
// usage: linked_in STEPS LAYERS HOST_US [p | x | g | d | 1 | o | t]
//   p  launches of the thread's own stream
//   x  cuLaunchKernelEx
//   g  a step is one replay of a graph of these kernels
//   d  as runtimes did before cuGetProcAddress: all by dlsym
//   1  as runtimes of CUDA 11 did: by the first form of cuGetProcAddress
//   o  with a dlsym that it has from dlsym: nobody sees what is asked
//   t  a second thread launches, too
// Prints "launched N".
#define _GNU_SOURCE
#include "sim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

__attribute__((section(".nv_fatbin"), used)) static const char code[16] = "\x50\xed\x55\xba";

struct launch_config {
    unsigned grid[3], block[3], shared;
    cudaStream_t stream;
    void *attributes;
    unsigned count;
};
typedef int (*any)();
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cudaStream_t, void **, void **);
static int (*get_address)(const char *, void **, int, uint64_t, int *);
static void *driver;
static launch_t launch_kernel;
static int (*launch_ex)(const struct launch_config *, void *, void **, void **);
static int (*launch_graph)(void *, cudaStream_t);
static any set_current;
static void *context, *up, *down, *update;
static long layers, launched;
static volatile int over;
static char how;

static void *ask(const char *name, int version) {
    static void *(*another)(void *, const char *);
    void *found = NULL;
    if (how == 'o') {
        if (!another) another = dlsym(RTLD_DEFAULT, "dlsym");
        return another(driver, name);
    }
    if (how == 'd') return dlsym(driver, name);
    CHECK(get_address(name, &found, version, how == 'p' ? 2 : 0, NULL));
    return found;
}

static void open_driver(void) {
    void *found = NULL;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (how == '1') {
        get_address = dlsym(driver, "cuGetProcAddress");
        CHECK(get_address("cuGetProcAddress", &found, 11030, 0, NULL));
        get_address = found;
    } else if (how != 'd' && how != 'o') {
        get_address = dlsym(driver, "cuGetProcAddress_v2");
        CHECK(get_address("cuGetProcAddress", &found, 12000, 0, NULL));
        get_address = found;
    }
    launch_kernel = ask("cuLaunchKernel", 4000);
    launch_ex = ask("cuLaunchKernelEx", 11060);
    launch_graph = ask("cuGraphLaunch", 10000);
    set_current = ask("cuCtxSetCurrent", 4000);
    any init = ask("cuInit", 2000), retain = ask("cuDevicePrimaryCtxRetain", 7000);
    CHECK(init(0));
    CHECK(retain(&context, 0));
    CHECK(set_current(context));
}

static cudaStream_t stream;
static int (*runtime_call)(uint32_t, int (*)(void *), void *);

// What cudaLaunchKernel (211) and cudaLaunchKernelExC (430) call.
static int by_driver(void *function) {
    struct launch_config config = {{1, 1, 1}, {128, 1, 1}, 0, stream, NULL, 0};
    if (how == 'x')
        return launch_ex(&config, function, NULL, NULL);
    return launch_kernel(function, 1, 1, 1, 128, 1, 1, 0, stream, NULL, NULL);
}

static void one(void *function) { CHECK(runtime_call(how == 'x' ? 430 : 211, by_driver, function)); }

static void step(void) {
    for (long layer = 0; layer < layers; layer++) one(up), one(down);
    one(update);
}

static void *beside(void *unused) {
    CHECK(set_current(context));
    while (!over) {
        one(down);
        __sync_fetch_and_add(&launched, 1);
        usleep(300);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    long steps = atol(argv[1]), host_us = atol(argv[3]);
    layers = atol(argv[2]), how = argc > 4 ? argv[4][0] : 0;
    pthread_t thread;
    open_driver();
    int (*name)(const char *, uint64_t) = dlsym(driver, "simRegisterKernel");
    runtime_call = dlsym(driver, "simRuntimeCall");
    any wait = ask("cuCtxSynchronize", 2000);
    up = (void *)(intptr_t)name("up", 10000), down = (void *)(intptr_t)name("down", 10000);
    update = (void *)(intptr_t)name("update", 20000);
    void *graph, *exec = NULL;
    if (how == 'g') {
        any create = ask("cuStreamCreate", 2000), begin = dlsym(driver, "cuStreamBeginCapture_v2");
        any end = ask("cuStreamEndCapture", 10000), make = ask("cuGraphInstantiateWithFlags", 11040);
        CHECK(create(&stream, 1));
        CHECK(begin(stream, 0));
        step();
        CHECK(end(stream, &graph));
        CHECK(make(&exec, graph, 0ULL));
    }
    if (how == 't') pthread_create(&thread, NULL, beside, NULL);
    for (long n = 0; n < steps; n++) {
        if (exec)
            CHECK(launch_graph(exec, stream));
        else
            step();
        __sync_fetch_and_add(&launched, 2 * layers + 1);
        if (host_us) usleep(host_us);
        if (n % 8 == 7) CHECK(wait());
    }
    over = 1;
    if (how == 't') pthread_join(thread, NULL);
    CHECK(wait());
    printf("launched %ld\n", launched);
    return 0;
}
