// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A launcher as Triton makes one: asks libcuda for cuLaunchKernelEx when it launches first. As a
// Python module it fails to import, and stays loaded.
#include "gapprobe.h"
#include "sim.h"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

struct launch_config {
    unsigned grid[3], block[3], shared;
    cudaStream_t stream;
    void *attributes;
    unsigned count;
};
static void *function;
static volatile int over;
static long launched;

static void launch_ex(void) {
    static int (*handle)(const struct launch_config *, void *, void **, void **);
    if (!handle) handle = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuLaunchKernelEx");
    struct launch_config config = {{1, 1, 1}, {128, 1, 1}, 0, NULL, NULL, 0};
    CHECK(handle(&config, function, NULL, NULL));
    __sync_fetch_and_add(&launched, 1);
}

// The thread of a compiled backward: it launches by this alone.
static void *backward(void *unused) {
    CHECK(cudaSetDevice(0));
    while (!over) {
        launch_ex();
        usleep(200);
    }
    return unused;
}

// So many steps, each with a launch through the runtime and nine of ours; how many launches there
// were.
long triton_train(void *kernel, long steps) {
    pthread_t thread;
    function = kernel;
    pthread_create(&thread, NULL, backward, NULL);
    for (long step = 0; step < steps; step++) {
        gp_step();
        launch(kernel, NULL);
        for (int n = 0; n < 9; n++) launch_ex();
        usleep(300);
        if (step % 8 == 7) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());
    over = 1;
    pthread_join(thread, NULL);
    return launched + steps;
}
