// SPDX-License-Identifier: Apache-2.0
// Threads that come and go: ROUNDS times, THREADS threads launch KERNELS kernels each and end, all
// at once.
//
// usage: threads ROUNDS THREADS KERNELS [own]: with "own" every thread uses a stream of its own.
// Prints "launched N".
#include "sim.h"
#include <pthread.h>
#include <string.h>

static void *function;
static long kernels;
static int own;

static void *work(void *unused) {
    cudaStream_t stream = NULL;
    if (own) CHECK(cudaStreamCreateWithFlags(&stream, 1));
    for (long k = 0; k < kernels; k++) launch(function, stream);
    CHECK(cudaStreamSynchronize(stream));
    return unused;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10, threads = argc > 2 ? atol(argv[2]) : 4;
    pthread_t ids[256];
    kernels = argc > 3 ? atol(argv[3]) : 100;
    own = argc > 4 && !strcmp(argv[4], "own");
    if (threads > 256) threads = 256;
    function = kernel("thread_kernel", 2);
    for (long round = 0; round < rounds; round++) {
        for (long t = 0; t < threads; t++) pthread_create(&ids[t], NULL, work, NULL);
        for (long t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    }
    CHECK(cudaDeviceSynchronize());
    printf("launched %ld\n", rounds * threads * kernels);
    return 0;
}
