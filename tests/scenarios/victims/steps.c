// SPDX-License-Identifier: Apache-2.0
// link: -lcudart -lcuda
// A training loop as a framework has it: LAYERS pairs of kernels a step, one at the end that comes
// once, now and then a wait.
//
// usage: steps STEPS LAYERS HOST_US [SLOW_FROM SLOW_US [SLOW_STEPS]] [g | u | t | a | q | c | p |
// l]
//   HOST_US    sleep of the host in each step
//   SLOW_FROM  from this step on the host sleeps SLOW_US, for SLOW_STEPS steps (all that follow)
//   g          another thread captures, instantiates and replays CUDA graphs all the while
//   u          steps are not marked
//   t          steps are not marked, and the kernel at their end comes twice: no launch comes once
//              a step
//   a          the host runs ahead: it never waits, and kernels take ten times as long
//   q          as a, with kernels half as long
//   p          as a, with a copy in front of each step, on a stream of its own that waits for
//              nothing
//   l          steps are not marked and long: a quarter of the host's time lies behind each layer,
//              and as many other kernels at the end take as long
//   c          as a, and the program has the first half of each twenty steps recorded (by its own
//              time, not the GPU's)
// Prints "launched N".
#include "gapprobe.h"
#include "sim.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct config {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    void *attributes;
    unsigned count;
};
int cudaLaunchKernelExC(const void *, const void *, void **);

static volatile int over;
static void *node;
static long replayed;

static void *graphs(void *unused) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    while (!over) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(stream, 0));
        for (int k = 0; k < 5; k++) launch(node, stream);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
        for (int k = 0; k < 3; k++) CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        replayed += 15;
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: steps STEPS LAYERS HOST_US [SLOW_FROM SLOW_US [SLOW_STEPS]] [g | u | t | a | q | c | p | l]\n");
        return 2;
    }
    long steps = atol(argv[1]), layers = atol(argv[2]), host_us = atol(argv[3]), launched = 0;
    long slow_from = argc > 5 ? atol(argv[4]) : steps, // (a letter alone is none)
         slow_us = argc > 5 ? atol(argv[5]) : 0;
    long slow_steps = argc > 6 ? atol(argv[6]) : steps;
    int with_graphs = strcmp(argv[argc - 1], "g") == 0, twice = strcmp(argv[argc - 1], "t") == 0;
    int lasts = strcmp(argv[argc - 1], "l") == 0;
    int marked = strcmp(argv[argc - 1], "u") != 0 && !twice && !lasts;
    int switched = strcmp(argv[argc - 1], "c") == 0, fetches = strcmp(argv[argc - 1], "p") == 0;
    int quick = strcmp(argv[argc - 1], "q") == 0, ahead = strcmp(argv[argc - 1], "a") == 0 || quick || switched || fetches;
    int us = quick ? 50 : ahead ? 100 : 10;
    pthread_t thread;
    void *up = kernel("up", us), *down = kernel("down", us), *update = kernel("update", 2 * us), *loss = kernel("loss", us);
    CHECK(cudaSetDevice(0));
    node = kernel("node", 2);
    cudaStream_t side;
    void *host, *device;
    CHECK(cudaStreamCreateWithFlags(&side, 1));
    CHECK(cudaMallocHost(&host, 4096));
    CHECK(cudaMalloc(&device, 4096));
    if (with_graphs) pthread_create(&thread, NULL, graphs, NULL);
    for (long step = 0; step < steps; step++) {
        if (marked) gp_step();
        if (switched && step % 20 == 0) gp_capture(1);
        if (switched && step % 20 == 10) gp_capture(0);
        if (fetches) CHECK(cudaMemcpyAsync(device, host, 4096, 1, side));
        int slow = step >= slow_from && step < slow_from + slow_steps;
        for (long layer = 0; layer < layers; layer++) {
            launch(up, NULL);
            launch(down, NULL);
            if (lasts) usleep(host_us / 4);
        }
        if (lasts) launch(loss, NULL);
        launched += lasts;
        for (long n = 0; lasts && n < layers; n++) {
            launch(update, NULL);
            launch(node, NULL);
            launched += 2;
            usleep(host_us / 4);
        }
        if (with_graphs) {
            struct config config = {{1, 1, 1}, {1, 1, 1}, 0, NULL, NULL, 0};
            CHECK(cudaLaunchKernelExC(&config, update, NULL));
        } else
            launch(update, NULL);
        if (twice) launch(update, NULL);
        launched += 2 * layers + 1 + twice;
        if (host_us || slow) usleep(slow ? slow_us : host_us);
        if (!ahead && step % 8 == 7) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());
    if (with_graphs) {
        over = 1;
        pthread_join(thread, NULL);
    }
    printf("launched %ld\n", launched);
    return 0;
}
